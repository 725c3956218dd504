//! Requests to the JetStream API and acknowledgements, over the shared connection.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dispatch_api::{ErrorClass, Outcome, SinkError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::telemetry::SourceTelemetry;
use crate::ack::{self, Answer, Refusal};
use crate::classify;
use crate::connection::Outgoing;
use crate::link::Link;

/// There is no stream of this name.
pub(super) const NO_STREAM: u32 = 10059;
/// There is no consumer of this name.
pub(super) const NO_CONSUMER: u32 = 10014;
/// A consumer of this name was created by somebody else meanwhile.
pub(super) const CONSUMER_EXISTS: u32 = 10148;

/// The pause after a refusal that asks for one without saying how long.
const PAUSE: Duration = Duration::from_secs(1);

/// Asks about one consumer of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    pub(super) link: Arc<Link>,
    pub(super) timeout: Duration,
    pub(super) stream: String,
    pub(super) durable: String,
    pub(super) telemetry: SourceTelemetry,
}

/// A consumer as the server describes it.
#[derive(Deserialize)]
struct ConsumerInfo {
    config: ConsumerConfig,
}

/// What of a consumer's configuration matters here. Times are nanoseconds.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ConsumerConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) durable_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) deliver_subject: Option<String>,
    pub(super) ack_policy: String,
    pub(super) ack_wait: u64,
    pub(super) max_deliver: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter_subject: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) filter_subjects: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_ack_pending: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) backoff: Vec<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_batch: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_expires: Option<u64>,
}

#[derive(Serialize)]
struct CreateConsumer<'a> {
    stream_name: &'a str,
    config: &'a ConsumerConfig,
    /// Never changes one that exists, from server 2.10 on.
    action: &'static str,
}

#[derive(Serialize)]
struct StreamsOf<'a> {
    subject: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StreamNames {
    streams: Option<Vec<String>>,
}

#[derive(Serialize)]
struct Pull {
    batch: usize,
    /// With `expires`: what is there, or else the first that comes.
    no_wait: bool,
    /// Nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
}

/// An API's answer: a refusal has an error.
#[derive(Deserialize)]
struct Failed {
    error: Option<Refusal>,
}

impl Calls {
    /// The moment by which a request that starts now has to be answered.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// Asks whether the stream is there.
    pub(super) async fn stream(&self, deadline: Instant) -> Result<(), SinkError> {
        let subject = format!("STREAM.INFO.{}", self.stream);
        let found = self.api::<serde::de::IgnoredAny>(&subject, Bytes::new(), deadline);
        found.await?.map(|_| ()).map_err(|no| self.refused(&no))
    }

    /// The consumer; `None` where there is none of the name.
    pub(super) async fn consumer(
        &self,
        deadline: Instant,
    ) -> Result<Option<ConsumerConfig>, SinkError> {
        let subject = format!("CONSUMER.INFO.{}.{}", self.stream, self.durable);
        let found = self.api::<ConsumerInfo>(&subject, Bytes::new(), deadline);
        match found.await? {
            Ok(found) => Ok(Some(found.config)),
            Err(refusal) if refusal.err_code == NO_CONSUMER => Ok(None),
            Err(refusal) => Err(self.refused(&refusal)),
        }
    }

    /// Creates the consumer; `None` where there is one of the name already, of another
    /// configuration.
    pub(super) async fn create(
        &self,
        config: &ConsumerConfig,
        deadline: Instant,
    ) -> Result<Option<ConsumerConfig>, SinkError> {
        let mut subject = format!("CONSUMER.CREATE.{}.{}", self.stream, self.durable);
        if let Some(filter) = &config.filter_subject {
            subject = format!("{subject}.{filter}");
        }
        let request = json(&CreateConsumer {
            stream_name: &self.stream,
            config,
            action: "create",
        });
        match self
            .api::<ConsumerInfo>(&subject, request, deadline)
            .await?
        {
            Ok(created) => Ok(Some(created.config)),
            Err(refusal) if refusal.err_code == CONSUMER_EXISTS => Ok(None),
            Err(refusal) => Err(self.refused(&refusal)),
        }
    }

    /// The streams that take a subject.
    pub(super) async fn streams_of(
        &self,
        subject: &str,
        deadline: Instant,
    ) -> Result<Vec<String>, SinkError> {
        let request = json(&StreamsOf { subject });
        let found = self.api::<StreamNames>("STREAM.NAMES", request, deadline);
        let found = found.await?.map_err(|no| self.refused(&no))?;
        Ok(found.streams.unwrap_or_default())
    }

    /// Pulls up to `max` messages, and hands over each as it comes.
    pub(super) async fn pull(
        &self,
        max: usize,
        wait: Duration,
        take: &(dyn Fn(async_nats::Message) + Send + Sync),
    ) -> Result<(), SinkError> {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{}", self.stream, self.durable);
        let payload = json(&Pull {
            batch: max,
            no_wait: true,
            expires: (!wait.is_zero()).then(|| nanos(wait)),
        });
        let message = Outgoing {
            subject: &subject,
            headers: None,
            payload,
        };
        let deadline = self.deadline() + wait;
        let pulled = self.link.pull(message, max, deadline, take).await;
        let error = match pulled {
            Ok(()) => return Ok(()),
            Err(error) => denied(error, &subject),
        };
        // Some servers say nothing to a pull of a consumer that is not there.
        if matches!(error.code(), classify::CONSUMER_UNAVAILABLE | "Timeout")
            && matches!(self.consumer(self.deadline()).await, Ok(None))
        {
            return Err(SinkError::config(
                "ConsumerNotFound",
                "the durable consumer was deleted: open the source again to create it",
            ));
        }
        Err(error)
    }

    /// Sends an acknowledgement of some kind, and returns when the server confirms it.
    ///
    /// # Errors
    ///
    /// Everything but the confirmation.
    pub(super) async fn acknowledge(
        &self,
        reply: &str,
        kind: Bytes,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        let message = Outgoing {
            subject: reply,
            headers: None,
            payload: kind,
        };
        let nobody = || {
            SinkError::transient(
                Outcome::NotStored,
                classify::CONSUMER_UNAVAILABLE,
                "nobody takes acknowledgements of the consumer now: it was deleted, or a cluster \
                 elects its leader",
            )
        };
        let confirmed = self.link.request(message, deadline, nobody).await;
        confirmed
            .map(|_| ())
            .map_err(|error| denied(error, "$JS.ACK.>"))
    }

    /// Publishes a message, and returns when a stream has stored it.
    ///
    /// # Errors
    ///
    /// Everything but the stream's acknowledgement.
    pub(super) async fn store(
        &self,
        message: Outgoing<'_>,
        deadline: Instant,
    ) -> Result<(), SinkError> {
        let subject = message.subject;
        let nobody = || classify::no_stream(subject);
        let answer = self.link.request(message, deadline, nobody).await;
        let answer = answer.map_err(|error| denied(error, subject))?;
        match ack::read(&answer.payload)? {
            Answer::Stored(_) => Ok(()),
            Answer::Refused(refusal) => Err(classify::refused(&refusal, PAUSE)),
        }
    }

    /// Asks the API; the inner error is its refusal.
    async fn api<T: DeserializeOwned>(
        &self,
        subject: &str,
        payload: Bytes,
        deadline: Instant,
    ) -> Result<Result<T, Refusal>, SinkError> {
        let subject = format!("$JS.API.{subject}");
        let message = Outgoing {
            subject: &subject,
            headers: None,
            payload,
        };
        let nobody = || {
            SinkError::config(
                "JetStreamNotEnabled",
                "nobody answers for JetStream: enable it on the server or for the account",
            )
        };
        let answer = self.link.request(message, deadline, nobody).await;
        let payload = answer.map_err(|error| denied(error, &subject))?.payload;
        let read = match serde_json::from_slice::<Failed>(&payload) {
            Ok(Failed { error: Some(no) }) => return Ok(Err(no)),
            Ok(Failed { error: None }) => serde_json::from_slice(&payload),
            Err(error) => Err(error),
        };
        read.map(Ok).map_err(|error| {
            SinkError::transient(
                Outcome::Unknown,
                "UnexpectedReply",
                "the reply is none of the JetStream API: something else answers on its subject",
            )
            .with_source(error)
        })
    }

    fn refused(&self, refusal: &Refusal) -> SinkError {
        let stream = &self.stream;
        match refusal.err_code {
            NO_STREAM => SinkError::config(
                "StreamNotFound",
                format!(
                    "there is no stream `{stream}` that this user can see: create it, or correct \
                     stream; the source never creates one"
                ),
            )
            .with_status(404),
            _ => {
                let known = classify::refused(refusal, PAUSE);
                let is_unknown = known.code() == "StreamError";
                match is_unknown && (400..500).contains(&refusal.code) {
                    true => SinkError::config(
                        "ConsumerRefused",
                        format!(
                            "the server refuses the durable consumer `{}` of `{stream}` \
                             (err_code {}): correct filter_subject, ack_wait_ms or \
                             max_ack_pending, or raise the stream's limits",
                            self.durable, refusal.err_code
                        ),
                    )
                    .with_status(refusal.code),
                    false => known,
                }
            }
        }
    }
}

/// A refusal to publish names the subject, which here is no tenant's.
fn denied(error: SinkError, subject: &str) -> SinkError {
    match (error.class(), error.code()) {
        (ErrorClass::Config, "PermissionDenied") => SinkError::config(
            "PermissionDenied",
            format!("the server forbids this user to publish to `{subject}`: allow it"),
        ),
        _ => error,
    }
}

fn json(value: &impl Serialize) -> Bytes {
    let text = serde_json::to_vec(value);
    text.expect("texts and numbers are always JSON").into()
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
