//! The table of faults: what librdkafka and the brokers refuse.

use std::time::Duration;

use dispatch_api::{ErrorClass, Outcome, SinkError, SourceError};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// What the caller may do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Permanent,
    Config,
    RetryAfter,
    /// Not stored, whenever it happens.
    Refused,
    /// Unknown once the message was handed to the client.
    Transient,
}

/// The name of a fault, its class, and what to do.
fn row(code: Code) -> (&'static str, Class, &'static str) {
    use Class::{Config, Permanent, Refused, RetryAfter, Transient};
    match code {
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => (
            "MessageTooLarge",
            Permanent,
            "the message is over the topic's max.message.bytes: lower inline_max_bytes, so that \
             large bodies go through the claim check, or raise the topic's limit",
        ),
        Code::InvalidRecord => ("InvalidRecord", Permanent, "the topic refuses the record"),
        Code::InvalidTimestamp => (
            "InvalidTimestamp",
            Permanent,
            "the topic refuses the time at which the hook was received",
        ),
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => (
            "UnknownTopic",
            Config,
            "create the topic, or correct topic; the sink never creates one",
        ),
        Code::InvalidTopic => (
            "InvalidTopic",
            Config,
            "the brokers refuse the topic's name",
        ),
        Code::TopicAuthorizationFailed => (
            "TopicAuthorizationFailed",
            Config,
            "allow this client to describe and to write to the topic",
        ),
        Code::ClusterAuthorizationFailed | Code::TransactionalIdAuthorizationFailed => (
            "ClusterAuthorizationFailed",
            Config,
            "allow this client idempotent writes",
        ),
        Code::Authentication
        | Code::SaslAuthenticationFailed
        | Code::UnsupportedSASLMechanism
        | Code::IllegalSASLState => (
            "AuthenticationFailed",
            Config,
            "the brokers refuse the credentials: correct the properties security.protocol and \
             sasl.*",
        ),
        Code::PolicyViolation => (
            "PolicyViolation",
            Config,
            "a policy of the brokers forbids it",
        ),
        Code::UnsupportedForMessageFormat | Code::UnsupportedVersion | Code::UnsupportedFeature => {
            (
                "UnsupportedVersion",
                Config,
                "the brokers are too old for idempotent writes or for headers",
            )
        }
        Code::QueueFull => (
            "QueueFull",
            RetryAfter,
            "the client's queue of waiting messages is full",
        ),
        Code::ThrottlingQuotaExceeded => ("Throttled", RetryAfter, "a quota is exhausted"),
        Code::MessageTimedOut => (
            "Timeout",
            Transient,
            "no acknowledgement of the brokers in time",
        ),
        Code::NotEnoughReplicas | Code::ISRInsufficient => (
            "NotEnoughReplicas",
            Refused,
            "fewer replicas are in sync than the topic demands",
        ),
        Code::NotEnoughReplicasAfterAppend => (
            "NotEnoughReplicas",
            Transient,
            "fewer replicas are in sync than the topic demands, and the leader has the message",
        ),
        Code::BrokerTransportFailure | Code::AllBrokersDown | Code::NetworkException => (
            "ConnectionLost",
            Transient,
            "the connection to the broker failed",
        ),
        Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::InvalidProducerEpoch
        | Code::UnknownProducerId
        | Code::ProducerFenced
        | Code::Fenced
        | Code::GaplessGuarantee
        | Code::PurgeQueue
        | Code::PurgeInflight => (
            "ProducerReplaced",
            Transient,
            "the producer lost track of its sequence; a new one takes its place",
        ),
        _ => ("BrokerError", Transient, "the brokers refuse the message"),
    }
}

/// Turns a fault into an error. `pause` is for one that asks for a pause without saying
/// how long; `was_handed_over` tells whether the client had taken the message for `topic`.
pub(crate) fn failed(code: Code, topic: &str, was_handed_over: bool, pause: Duration) -> SinkError {
    let (name, class, advice) = row(code);
    let text = format!("topic `{topic}`: {advice}");
    let outcome = match was_handed_over && class == Class::Transient {
        true => Outcome::Unknown,
        false => Outcome::NotStored,
    };
    match class {
        Class::Permanent => SinkError::permanent(name, text),
        Class::Config => SinkError::config(name, text),
        Class::RetryAfter => SinkError::retry_after(pause, outcome, name, text),
        Class::Refused | Class::Transient => SinkError::transient(outcome, name, text),
    }
    // The name and number of a fault, and nothing of the message.
    .with_source(KafkaError::MessageProduction(code))
}

/// Turns a fault of a receive, or of looking for a topic, into an error.
pub(crate) fn receive_failed(code: Code, topic: &str, pause: Duration) -> SourceError {
    let (name, class, advice) = match code {
        Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition => (
            "UnknownTopic",
            Class::Config,
            "create the topic, or correct topic; the source never creates one",
        ),
        Code::TopicAuthorizationFailed => (
            "TopicAuthorizationFailed",
            Class::Config,
            "allow this client to describe and to read the topic",
        ),
        Code::GroupAuthorizationFailed => (
            "GroupAuthorizationFailed",
            Class::Config,
            "allow this client to read with its consumer group",
        ),
        Code::PollExceeded => (
            "PollExceeded",
            Class::Transient,
            "the process stood still for longer than max.poll.interval.ms, and its partitions \
             went to others: it joins the group again",
        ),
        code => match row(code) {
            known if known.0 == "BrokerError" => (
                "BrokerError",
                Class::Transient,
                "the brokers refuse to hand out records",
            ),
            known => known,
        },
    };
    let text = format!("topic `{topic}`: {advice}");
    let class = match class {
        Class::Permanent => ErrorClass::Permanent,
        Class::Config => ErrorClass::Config,
        Class::RetryAfter => ErrorClass::RetryAfter(pause),
        Class::Refused | Class::Transient => ErrorClass::Transient,
    };
    SourceError::new(class, name, text).with_source(KafkaError::MessageConsumption(code))
}

/// Turns a fault of a commit into an error. `Permanent` means that the records are another
/// member's now.
pub(crate) fn commit_failed(code: Code, topic: &str) -> SinkError {
    let error = match code {
        Code::IllegalGeneration
        | Code::UnknownMemberId
        | Code::RebalanceInProgress
        | Code::FencedInstanceId
        | Code::FencedMemberEpoch
        | Code::StaleMemberEpoch
        | Code::UnreleasedInstanceId
        | Code::AssignmentLost
        | Code::Fenced
        | Code::Fatal
        | Code::State => SinkError::permanent(
            "NotAssigned",
            format!("topic `{topic}`: the group gives the partition to another member"),
        ),
        Code::GroupAuthorizationFailed | Code::TopicAuthorizationFailed => SinkError::config(
            "GroupAuthorizationFailed",
            format!("topic `{topic}`: allow this client to read the topic with its consumer group"),
        ),
        code if is_config(code) => return failed(code, topic, true, Duration::ZERO),
        Code::BrokerTransportFailure
        | Code::AllBrokersDown
        | Code::NetworkException
        | Code::BrokerDestroy => SinkError::transient(
            Outcome::Unknown,
            "ConnectionLost",
            format!("topic `{topic}`: the connection to the group's coordinator failed"),
        ),
        Code::RequestTimedOut
        | Code::OperationTimedOut
        | Code::TimedOutQueue
        | Code::WaitingForCoordinator
        | Code::WaitCache => SinkError::transient(
            Outcome::Unknown,
            "Timeout",
            format!("topic `{topic}`: no answer of the group's coordinator in time"),
        ),
        _ => SinkError::transient(
            Outcome::NotStored,
            "BrokerError",
            format!("topic `{topic}`: the group's coordinator refuses the commit"),
        ),
    };
    error.with_source(KafkaError::ConsumerCommit(code))
}

/// Whether it is an operator who has to act.
pub(crate) fn is_config(code: Code) -> bool {
    row(code).1 == Class::Config
}

/// No broker answered. Nothing was sent.
pub(crate) fn not_connected(source: Option<KafkaError>) -> SinkError {
    let error = SinkError::transient(
        Outcome::NotStored,
        "ConnectFailed",
        "no broker could be asked about the topic: check brokers, network and security.protocol",
    );
    match source {
        Some(source) => error.with_source(source),
        None => error,
    }
}

/// The properties contradict each other. Nothing was sent.
pub(crate) fn invalid_configuration() -> SinkError {
    // What librdkafka says of it may repeat a value.
    SinkError::config(
        "InvalidConfiguration",
        "librdkafka refuses the properties together: an idempotent producer allows at most 5 \
         requests in flight, and security.protocol has to suit how librdkafka is built",
    )
}

/// No answer by the deadline of the delivery.
pub(crate) fn timeout() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "Timeout",
        "no acknowledgement of the brokers in time",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(250);

    #[test]
    fn every_fault_has_its_class_outcome_and_name() {
        use ErrorClass::{Config, Permanent, RetryAfter, Transient};
        use Outcome::{NotStored, Unknown};
        for (code, class, outcome, name) in [
            (
                Code::MessageSizeTooLarge,
                Permanent,
                NotStored,
                "MessageTooLarge",
            ),
            (
                Code::MessageBatchTooLarge,
                Permanent,
                NotStored,
                "MessageTooLarge",
            ),
            (Code::InvalidRecord, Permanent, NotStored, "InvalidRecord"),
            (
                Code::InvalidTimestamp,
                Permanent,
                NotStored,
                "InvalidTimestamp",
            ),
            (
                Code::UnknownTopicOrPartition,
                Config,
                NotStored,
                "UnknownTopic",
            ),
            (Code::UnknownTopic, Config, NotStored, "UnknownTopic"),
            (Code::UnknownPartition, Config, NotStored, "UnknownTopic"),
            (Code::InvalidTopic, Config, NotStored, "InvalidTopic"),
            (
                Code::TopicAuthorizationFailed,
                Config,
                NotStored,
                "TopicAuthorizationFailed",
            ),
            (
                Code::ClusterAuthorizationFailed,
                Config,
                NotStored,
                "ClusterAuthorizationFailed",
            ),
            (
                Code::Authentication,
                Config,
                NotStored,
                "AuthenticationFailed",
            ),
            (
                Code::SaslAuthenticationFailed,
                Config,
                NotStored,
                "AuthenticationFailed",
            ),
            (Code::PolicyViolation, Config, NotStored, "PolicyViolation"),
            (
                Code::UnsupportedForMessageFormat,
                Config,
                NotStored,
                "UnsupportedVersion",
            ),
            (Code::QueueFull, RetryAfter(PAUSE), NotStored, "QueueFull"),
            (
                Code::ThrottlingQuotaExceeded,
                RetryAfter(PAUSE),
                NotStored,
                "Throttled",
            ),
            (Code::MessageTimedOut, Transient, Unknown, "Timeout"),
            (
                Code::NotEnoughReplicas,
                Transient,
                NotStored,
                "NotEnoughReplicas",
            ),
            (
                Code::NotEnoughReplicasAfterAppend,
                Transient,
                Unknown,
                "NotEnoughReplicas",
            ),
            (Code::AllBrokersDown, Transient, Unknown, "ConnectionLost"),
            (Code::Fatal, Transient, Unknown, "ProducerReplaced"),
            (
                Code::OutOfOrderSequenceNumber,
                Transient,
                Unknown,
                "ProducerReplaced",
            ),
            (Code::ProducerFenced, Transient, Unknown, "ProducerReplaced"),
            (Code::PurgeQueue, Transient, Unknown, "ProducerReplaced"),
            (Code::KafkaStorageError, Transient, Unknown, "BrokerError"),
            (Code::Unknown, Transient, Unknown, "BrokerError"),
        ] {
            let error = failed(code, "hooks", true, PAUSE);
            assert_eq!(
                (error.class(), error.outcome(), error.code()),
                (class, outcome, name),
                "{code:?}"
            );
            assert_eq!(
                failed(code, "hooks", false, PAUSE).outcome(),
                NotStored,
                "{code:?}"
            );
        }
    }

    #[test]
    fn every_fault_of_a_receive_has_its_class_and_name() {
        use ErrorClass::{Config, RetryAfter, Transient};
        for (code, class, name) in [
            (Code::UnknownTopicOrPartition, Config, "UnknownTopic"),
            (
                Code::TopicAuthorizationFailed,
                Config,
                "TopicAuthorizationFailed",
            ),
            (
                Code::GroupAuthorizationFailed,
                Config,
                "GroupAuthorizationFailed",
            ),
            (Code::Authentication, Config, "AuthenticationFailed"),
            (Code::PollExceeded, Transient, "PollExceeded"),
            (Code::AllBrokersDown, Transient, "ConnectionLost"),
            (
                Code::ThrottlingQuotaExceeded,
                RetryAfter(PAUSE),
                "Throttled",
            ),
            (Code::Unknown, Transient, "BrokerError"),
        ] {
            let error = receive_failed(code, "hooks", PAUSE);
            assert_eq!((error.class(), error.code()), (class, name), "{code:?}");
        }
    }

    #[test]
    fn every_fault_of_a_commit_has_its_class_outcome_and_name() {
        use ErrorClass::{Config, Permanent, Transient};
        use Outcome::{NotStored, Unknown};
        for (code, class, outcome, name) in [
            (Code::AssignmentLost, Permanent, NotStored, "NotAssigned"),
            (Code::UnknownMemberId, Permanent, NotStored, "NotAssigned"),
            (
                Code::GroupAuthorizationFailed,
                Config,
                NotStored,
                "GroupAuthorizationFailed",
            ),
            (
                Code::BrokerTransportFailure,
                Transient,
                Unknown,
                "ConnectionLost",
            ),
            (Code::RequestTimedOut, Transient, Unknown, "Timeout"),
            (Code::Unknown, Transient, NotStored, "BrokerError"),
        ] {
            let error = commit_failed(code, "hooks");
            assert_eq!(
                (error.class(), error.outcome(), error.code()),
                (class, outcome, name),
                "{code:?}"
            );
        }
    }
}
