//! The sink against the mock cluster of librdkafka, which speaks the protocol over loopback
//! sockets and fails as told.
//!
//! `KAFKA_BROKERS` (joined by commas) adds a test against real brokers, with the topic that
//! `KAFKA_TOPIC` names, `hooks` unless set.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod consuming;
mod delivery;
mod faults;
mod keeping;
mod lifecycle;
mod live_topics;
mod registration;
mod secrets;
mod support;
mod telemetry;
