//! One call of the consuming side, and its judged answer.

use std::collections::BTreeMap;
use std::time::Duration;

use dispatch_api::{
    Answer as EntryAnswer, HostServices, Receipt, Reconciliation, SinkError, SourceError,
};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::answer::{Asked, entry_failure, failure, not_json, said, with_identity};
use crate::client::{Client, Exchange};
use crate::protocol::position;
use crate::requests::{
    self, CHANGE_VISIBILITY, CHANGE_VISIBILITY_BATCH, Change, ChangeBatchReply, DELETE,
    DELETE_BATCH, EmptyReply, GET_QUEUE_ATTRIBUTES, GET_QUEUE_URL, Operation, QueueAttributesReply,
    QueueUrlReply, SET_QUEUE_ATTRIBUTES,
};
use crate::telemetry::ConsumerTelemetry;

/// The code of a refusal because the message is not held any more, whatever words the service
/// has for it.
pub(crate) const EXPIRED: &str = "ReceiptHandleExpired";

/// Whether a refusal says that the hold is lost.
pub(crate) fn is_lost(error: &SinkError) -> bool {
    matches!(
        error.code(),
        EXPIRED | "ReceiptHandleIsInvalid" | "MessageNotInflight"
    )
}

/// Calls the service. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    client: Client,
    timeout: Duration,
    services: HostServices,
    pub(crate) telemetry: ConsumerTelemetry,
}

impl Calls {
    pub(crate) fn new(
        client: Client,
        timeout: Duration,
        services: HostServices,
        telemetry: ConsumerTelemetry,
    ) -> Self {
        Self {
            client,
            timeout,
            services,
            telemetry,
        }
    }

    /// The same calls by another client.
    pub(crate) fn with_client(&self, client: Client) -> Self {
        Self {
            client,
            ..self.clone()
        }
    }

    /// The latest moment by which a call that begins now is answered.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    /// One call.
    ///
    /// # Errors
    ///
    /// Everything but a 200 that reads as a `T`.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        operation: Operation,
        queue_url: &str,
        request: Vec<u8>,
        deadline: Instant,
    ) -> Result<T, SinkError> {
        let (_, reply) = self
            .exchange(operation, queue_url, request, deadline)
            .await?;
        Ok(reply)
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        operation: Operation,
        queue_url: &str,
        request: Vec<u8>,
        deadline: Instant,
    ) -> Result<(Exchange, T), SinkError> {
        let began = Instant::now();
        let span = self.telemetry.span(operation);
        let exchange = self
            .client
            .call(operation.target, request, deadline)
            .instrument(span.clone())
            .await;
        let result = exchange.and_then(|exchange| {
            let answer = &exchange.answer;
            if answer.status == 200 {
                return match requests::parse(&answer.body) {
                    Ok(reply) => Ok((exchange, reply)),
                    Err(_) => Err(with_identity(not_json(), answer)),
                };
            }
            let error = failure(answer, &self.asked(&exchange, queue_url));
            Err(expiry(error, said(answer).as_deref()))
        });
        let code = result.as_ref().err().map_or("", SinkError::code);
        self.telemetry
            .request_ended(operation, began.elapsed(), code, &span);
        result
    }

    /// Changes one held message.
    ///
    /// # Errors
    ///
    /// Everything but the service's confirmation. [`is_lost`] tells a hold that is gone.
    pub(crate) async fn change(
        &self,
        queue_url: &str,
        handle: &str,
        change: Change,
    ) -> Result<(), SinkError> {
        let operation = match change {
            Change::Delete => DELETE,
            Change::Visibility(_) => CHANGE_VISIBILITY,
        };
        let request = requests::change(queue_url, handle, change);
        let EmptyReply {} = self
            .call(operation, queue_url, request, self.deadline())
            .await?;
        Ok(())
    }

    /// Changes up to ten held messages, all in the same way, and answers each.
    pub(crate) async fn change_batch(
        &self,
        queue_url: &str,
        changes: &[(&str, Change)],
        deadline: Instant,
    ) -> Vec<EntryAnswer> {
        let operation = match changes.first() {
            Some((_, Change::Delete)) => DELETE_BATCH,
            _ => CHANGE_VISIBILITY_BATCH,
        };
        let request = requests::change_batch(queue_url, changes.iter().copied());
        let exchange = self
            .exchange::<ChangeBatchReply>(operation, queue_url, request, deadline)
            .await;
        let (exchange, reply) = match exchange {
            Ok(exchange) => exchange,
            // Without an answer it is for every message as it would be for one.
            Err(error) => return changes.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut answers = Reconciliation::new(changes.len());
        for entry in reply.successful {
            answers.note(position(&entry.id), Ok(Receipt::new()));
        }
        for entry in reply.failed {
            let asked = self.asked(&exchange, queue_url);
            let error = entry_failure(&entry, &exchange.answer, &asked);
            let error = expiry(error, entry.message.as_deref());
            answers.note(position(&entry.id), Err(error));
        }
        answers.finish()
    }

    fn asked<'a>(&'a self, exchange: &'a Exchange, queue_url: &'a str) -> Asked<'a> {
        Asked {
            queue_url,
            credentials: &exchange.credentials,
            services: &self.services,
        }
    }

    /// The URL of the queue of this name, of this account where it is not one's own.
    ///
    /// # Errors
    ///
    /// `Config` where there is no such queue.
    pub(crate) async fn queue_url(
        &self,
        name: &str,
        account: Option<&str>,
    ) -> Result<String, SourceError> {
        let request = requests::get_queue_url(name, account);
        let reply: QueueUrlReply = self
            .call(GET_QUEUE_URL, name, request, self.deadline())
            .await?;
        reply.queue_url.ok_or_else(|| not_json().into())
    }

    /// What is asked about a queue when it is opened.
    pub(crate) async fn attributes(&self, queue_url: &str) -> Result<QueueAttributes, SourceError> {
        let request = requests::get_queue_attributes(queue_url);
        let reply: QueueAttributesReply = self
            .call(GET_QUEUE_ATTRIBUTES, queue_url, request, self.deadline())
            .await?;
        Ok(QueueAttributes(reply.attributes.unwrap_or_default()))
    }

    pub(crate) async fn set_redrive_policy(
        &self,
        queue_url: &str,
        policy: &str,
    ) -> Result<(), SourceError> {
        let request = requests::set_redrive_policy(queue_url, policy);
        let EmptyReply {} = self
            .call(SET_QUEUE_ATTRIBUTES, queue_url, request, self.deadline())
            .await?;
        Ok(())
    }
}

/// The attributes of a queue.
#[derive(Debug)]
pub(crate) struct QueueAttributes(BTreeMap<String, String>);

impl QueueAttributes {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn arn(&self) -> Result<&str, SourceError> {
        self.get("QueueArn").ok_or_else(|| incomplete("QueueArn"))
    }

    /// The policy, where there is one.
    pub(crate) fn redrive_policy(&self) -> Option<&str> {
        self.get("RedrivePolicy")
            .filter(|policy| !policy.is_empty())
    }

    pub(crate) fn visibility(&self) -> Result<Duration, SourceError> {
        let seconds = self
            .get("VisibilityTimeout")
            .and_then(|text| text.parse().ok());
        let seconds = seconds.ok_or_else(|| incomplete("VisibilityTimeout"))?;
        Ok(Duration::from_secs(seconds))
    }
}

fn incomplete(name: &str) -> SourceError {
    SourceError::transient(
        "UnexpectedReply",
        format!("the queue's attributes come without a usable {name}: check endpoint"),
    )
}

/// The service has one code for all values that it refuses; its words tell a handle that has
/// expired.
fn expiry(error: SinkError, said: Option<&str>) -> SinkError {
    const WORDS: [&str; 5] = [
        "receipt handle",
        "receipthandle",
        "expired",
        "does not exist",
        "not available",
    ];
    let said = said.unwrap_or_default().to_ascii_lowercase();
    if error.code() != "InvalidParameterValue" || !WORDS.iter().any(|words| said.contains(words)) {
        return error;
    }
    let mut expired = SinkError::permanent(
        EXPIRED,
        "the message is not held any more: its visibility timeout is over, or it is deleted",
    );
    if let Some(status) = error.status() {
        expired = expired.with_status(status);
    }
    match error.request_id() {
        Some(id) => expired.with_request_id(id),
        None => expired,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wording_of_an_expired_handle_is_known_and_no_other_refused_value_is() {
        let code = |code: &'static str, said: &str| {
            let error = SinkError::permanent(code, "")
                .with_status(400)
                .with_request_id("r");
            let error = expiry(error, Some(said));
            assert_eq!((error.status(), error.request_id()), (Some(400), Some("r")));
            (error.code().to_owned(), is_lost(&error))
        };
        let invalid = "InvalidParameterValue";
        for said in [
            "Value AQEB for parameter ReceiptHandle is invalid. Reason: The receipt handle has \
             expired.",
            "Value AQEB for parameter ReceiptHandle is invalid. Reason: Message does not exist or \
             is not available for visibility timeout change.",
            "The receipt handle has expired",
            "The input receipt handle is invalid.",
        ] {
            assert_eq!(code(invalid, said), (EXPIRED.to_owned(), true), "{said}");
        }
        for said in [
            "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total \
             VisibilityTimeout for the message is beyond the limit [43200 seconds].",
            "",
        ] {
            assert_eq!(code(invalid, said), (invalid.to_owned(), false), "{said}");
        }
        for lost in ["ReceiptHandleIsInvalid", "MessageNotInflight"] {
            assert_eq!(code(lost, ""), (lost.to_owned(), true));
        }
        let missing = "QueueDoesNotExist";
        let said = "The specified queue does not exist.";
        assert_eq!(code(missing, said), (missing.to_owned(), false));
    }
}
