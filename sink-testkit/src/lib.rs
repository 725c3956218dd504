#![doc = include_str!("../README.md")]

#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod reference;
pub mod sqs;
#[cfg(feature = "conformance")]
#[doc = include_str!("../docs/write-a-sink.md")]
pub mod write_a_sink {}
#[cfg(feature = "conformance")]
#[doc = include_str!("../docs/write-a-source.md")]
pub mod write_a_source {}
