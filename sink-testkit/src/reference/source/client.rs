//! Calls to the broker, and what their failures mean.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Answer, Outcome, Receipt, SinkError};
use tokio::time::{Instant, timeout_at};

use super::settings::ReferenceSourceSettings;
use super::wire::{EntryAnswer, QueueCall, QueueFailure, QueueReply, QueueRequest, QueueWire};
use crate::reference::WireError;
use crate::reference::broker::proof;

/// The code of a hold that is somebody else's now.
pub(super) const GONE: &str = "Gone";

/// A throttle that does not say for how long.
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);

/// One connection and whose it is.
pub(super) struct Client {
    pub(super) settings: ReferenceSourceSettings,
    pub(super) wire: Arc<dyn QueueWire>,
}

impl Client {
    /// When a call that begins now has taken too long.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.settings.timeout
    }

    /// One request and its reply, or why there is none.
    pub(super) async fn call(
        &self,
        call: QueueCall,
        deadline: Instant,
    ) -> Result<QueueReply, SinkError> {
        let request = QueueRequest {
            place: self.settings.place.clone(),
            group: self.settings.group.clone(),
            key_id: self.settings.key_id.clone(),
            proof: proof(&self.settings.key_id, &self.settings.secret),
            call,
        };
        match timeout_at(deadline, self.wire.call(request)).await {
            Ok(Ok(QueueReply::Failed(failure))) => Err(self.failed(&failure)),
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                let outcome = match error {
                    WireError::NotSent => Outcome::NotStored,
                    WireError::Lost => Outcome::Unknown,
                };
                let text = self.at("no reply");
                Err(SinkError::transient(outcome, "ConnectionLost", text).with_source(error))
            }
            Err(_) => Err(SinkError::transient(
                Outcome::Unknown,
                "Timeout",
                self.at("no reply in time"),
            )),
        }
    }

    /// One request about several messages, and an answer for each.
    pub(super) async fn change(&self, call: QueueCall, deadline: Instant) -> Vec<Answer> {
        let count = call.handles().len();
        let answers = match self.call(call, deadline).await {
            Ok(QueueReply::Answers(answers)) => answers,
            Ok(_) => return vec![Err(self.unexpected()); count],
            Err(error) => return vec![Err(error); count],
        };
        let mut answers = answers.iter();
        let all = (0..count).map(|_| match answers.next() {
            Some(EntryAnswer::Done) => Ok(Receipt::new()),
            Some(EntryAnswer::Gone) => Err(SinkError::permanent(
                GONE,
                self.at("the message is not held by this delivery any more"),
            )),
            Some(EntryAnswer::Failed(code)) => Err(self.failed(&QueueFailure::new(&**code))),
            None => Err(SinkError::transient(
                Outcome::Unknown,
                "AnswerMissing",
                self.at("the broker says nothing of this message"),
            )),
        });
        all.collect()
    }

    pub(super) fn unexpected(&self) -> SinkError {
        SinkError::transient(
            Outcome::Unknown,
            "UnexpectedReply",
            self.at("the broker answers something else"),
        )
    }

    fn failed(&self, failure: &QueueFailure) -> SinkError {
        match &*failure.code {
            "Missing" => SinkError::config("Missing", self.at("no such place: create it")),
            "AccessDenied" => {
                SinkError::config("AccessDenied", self.at("the key may not receive: allow it"))
            }
            "BadProof" => {
                SinkError::config("BadCredentials", self.at("key and secret are refused"))
            }
            "DeadLetterMissing" => SinkError::config(
                "DeadLetterMissing",
                self.at("the dead-letter place is not there: create it"),
            ),
            "DeadLetterIsSource" => SinkError::config(
                "DeadLetterIsSource",
                self.at("the dead-letter place is the source itself: name another"),
            ),
            "Throttled" => SinkError::retry_after(
                failure.pause.unwrap_or(DEFAULT_PAUSE),
                Outcome::NotStored,
                "Throttled",
                self.at("too much at once"),
            ),
            "HoldTooLong" => SinkError::permanent(
                "HoldTooLong",
                self.at("no message is held longer than 12 hours"),
            ),
            "NotInALog" => SinkError::permanent(
                "NotInALog",
                self.at("a log gives no message back and has no holds"),
            ),
            "InvalidCount" => {
                SinkError::permanent("InvalidCount", self.at("expected 1 to 10 messages"))
            }
            "Internal" => {
                SinkError::transient(Outcome::Unknown, "Internal", self.at("the broker failed"))
            }
            _ => SinkError::transient(
                Outcome::Unknown,
                "ServiceError",
                self.at("a failure that is not known here"),
            ),
        }
    }

    /// A text that says where.
    fn at(&self, text: &str) -> String {
        format!("{text} (place {})", self.settings.place)
    }
}
