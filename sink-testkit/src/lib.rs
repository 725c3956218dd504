#![doc = include_str!("../README.md")]

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod reference;
pub mod sqs;
