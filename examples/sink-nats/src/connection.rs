//! One connection, from its handshake to its loss.

use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{
    AuthError, Client, ConnectOptions, Event, HeaderMap, Message, Request, RequestErrorKind,
    ServerAddr, ServerError, StatusCode,
};
use bytes::Bytes;
use dispatch_api::{Outcome, SinkError};
use futures_util::StreamExt as _;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use crate::ack::{self, Answer};
use crate::classify;
use crate::config::LinkConfig;
use crate::record::Record;

/// How often an idle connection is tested. Two tests without an answer end it.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// How long a pull that brought something goes on without anything more. A server that may let
/// no more out until something is settled does not end it.
const QUIET: Duration = Duration::from_millis(50);

/// How many refusals a delivery may fall behind by before it misses one and times out.
const REFUSALS_KEPT: usize = 64;

/// One connection to one server.
///
/// It never connects again by itself: the client would then send what was waiting, after
/// its callers were told that it failed. What replaces it is a new one.
pub(crate) struct Connection {
    client: Client,
    denials: Arc<Denials>,
    is_over: AtomicBool,
}

/// What the server forbade. It says so beside the protocol, never in a reply.
struct Denials {
    publishing: broadcast::Sender<String>,
    inbox: AtomicBool,
    inbox_changed: tokio::sync::Notify,
}

/// A message to be answered.
pub(crate) struct Outgoing<'a> {
    pub(crate) subject: &'a str,
    pub(crate) headers: Option<HeaderMap>,
    pub(crate) payload: Bytes,
}

/// Why a message has no answer of a stream.
pub(crate) enum Failure {
    /// It never left: the connection was over before.
    NotSent,
    /// Everything else.
    Error(SinkError),
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        Self::Error(error)
    }
}

impl Connection {
    /// Connects to one server.
    ///
    /// # Errors
    ///
    /// See [`classify::not_connected`].
    pub(crate) async fn open(server: &ServerAddr, config: &LinkConfig) -> Result<Self, SinkError> {
        let credentials = config.credentials.clone();
        let identity = tokio::task::spawn_blocking(move || credentials.load())
            .await
            .map_err(|error| {
                SinkError::transient(
                    Outcome::NotStored,
                    "ConnectFailed",
                    "the runtime ended before the credentials were read",
                )
                .with_source(error)
            })?
            .map_err(|error| {
                SinkError::config("InvalidCredentials", format!("credentials_file {error}"))
            })?;
        let was_open = Arc::new(AtomicBool::new(false));
        let denials = Arc::new(Denials::new());
        let mut options = ConnectOptions::with_auth_callback({
            let was_open = Arc::clone(&was_open);
            move |nonce| {
                // The client connects again after a loss, at least once. Without an
                // identity it gives up, and with it what was waiting.
                ready(match was_open.load(Ordering::Acquire) {
                    true => Err(AuthError::new(
                        "the connection is over; a new one replaces it",
                    )),
                    false => identity.answer(&nonce).map_err(AuthError::new),
                })
            }
        })
        .name("sink-nats")
        .max_reconnects(1)
        .ignore_discovered_servers()
        .connection_timeout(config.connect_timeout)
        .ping_interval(PING_INTERVAL)
        .request_timeout(None)
        .event_callback({
            let denials = Arc::clone(&denials);
            move |event| {
                denials.notice(&event);
                ready(())
            }
        });
        for path in &config.root_certificates {
            options = options
                .add_root_certificates(path.clone())
                .require_tls(true);
        }
        let connecting = timeout(config.connect_timeout, options.connect(server.clone()));
        let client = match connecting.await {
            Ok(connected) => connected.map_err(classify::not_connected)?,
            Err(_) => return Err(classify::connect_timeout()),
        };
        was_open.store(true, Ordering::Release);
        Ok(Self {
            client,
            denials,
            is_over: AtomicBool::new(false),
        })
    }

    /// Whether it may still be used.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_over.load(Ordering::Acquire) && self.client.connection_state() == State::Connected
    }

    /// Publishes one message and waits for the stream's answer.
    ///
    /// # Errors
    ///
    /// [`Failure`]. At the deadline the outcome is unknown, because the message may have
    /// left.
    pub(crate) async fn publish(
        &self,
        record: &Record,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        record.check_size(self.client.max_payload(), "the server's max_payload")?;
        let message = Outgoing {
            subject: &record.subject,
            headers: Some(record.headers.clone()),
            payload: record.payload.clone(),
        };
        let nobody = || classify::no_stream(&record.template);
        let answer = self.request(&message, deadline, nobody).await?;
        Ok(ack::read(&answer.payload)?)
    }

    /// Sends a message and waits for the answer to it. `nobody` is the error where nobody
    /// listens on the subject.
    ///
    /// # Errors
    ///
    /// [`Failure`]. At the deadline the outcome is unknown, because the message may have
    /// left.
    pub(crate) async fn request(
        &self,
        message: &Outgoing<'_>,
        deadline: Instant,
        nobody: impl FnOnce() -> SinkError,
    ) -> Result<Message, Failure> {
        if self.denials.inbox.load(Ordering::Acquire) {
            return Err(classify::inbox_denied(false).into());
        }
        // Before the message leaves, so that no refusal of it is missed.
        let denied = self.denials.of(message.subject);
        let mut request = Request::new()
            .payload(message.payload.clone())
            .timeout(None);
        if let Some(headers) = &message.headers {
            request = request.headers(headers.clone());
        }
        let answered = self
            .client
            .send_request(message.subject.to_owned(), request);
        tokio::select! {
            biased;
            answered = answered => answered.map_err(|error| self.failed(&error, nobody)),
            error = denied => Err(error.into()),
            () = sleep_until(deadline) => Err(SinkError::transient(
                Outcome::Unknown,
                "Timeout",
                "no acknowledgement of a stream in time",
            )
            .into()),
        }
    }

    /// Sends a message that is answered by up to `max` messages, and hands over each as it
    /// comes. Returns when all have come, or a status says that no more do.
    ///
    /// # Errors
    ///
    /// [`Failure`]; what was handed over stays so.
    pub(crate) async fn pull(
        &self,
        message: &Outgoing<'_>,
        max: usize,
        deadline: Instant,
        take: &(dyn Fn(Message) + Send + Sync),
    ) -> Result<(), Failure> {
        if self.denials.inbox.load(Ordering::Acquire) {
            return Err(classify::inbox_denied(false).into());
        }
        let denied = self.denials.of(message.subject);
        let inbox = self.client.new_inbox();
        let asking = async {
            let answers = self.client.subscribe(inbox.clone()).await.ok()?;
            let subject = message.subject.to_owned();
            let asked = self
                .client
                .publish_with_reply(subject, inbox, message.payload.clone());
            asked.await.ok()?;
            Some(answers)
        };
        let Ok(Some(mut answers)) = timeout_at(deadline, asking).await else {
            self.is_over.store(true, Ordering::Release);
            return Err(Failure::NotSent);
        };
        let gathering = async {
            let mut left = max;
            let mut is_draining = false;
            while left > 0 {
                let answer = match left < max && !is_draining {
                    false => answers.next().await,
                    true => match timeout(QUIET, answers.next()).await {
                        Ok(answer) => answer,
                        Err(_) => {
                            // Ends once the server knows that nobody listens any more, and
                            // all that it sent before is here.
                            is_draining = answers.drain().await.is_ok();
                            continue;
                        }
                    },
                };
                let Some(message) = answer else {
                    if is_draining {
                        break;
                    }
                    self.is_over.store(true, Ordering::Release);
                    return Err(SinkError::transient(
                        Outcome::Unknown,
                        "ConnectionLost",
                        "the connection ended during the receive",
                    ));
                };
                match message.status {
                    None | Some(StatusCode::OK) => {
                        left -= 1;
                        take(message);
                    }
                    Some(StatusCode::IDLE_HEARTBEAT) => {}
                    Some(StatusCode::NOT_FOUND | StatusCode::TIMEOUT) => break,
                    Some(status) => {
                        let words = message.description.as_deref().unwrap_or_default();
                        return Err(classify::pull_refused(status.as_u16(), words));
                    }
                }
            }
            Ok(())
        };
        tokio::select! {
            biased;
            gathered = gathering => Ok(gathered?),
            error = denied => Err(error.into()),
            () = sleep_until(deadline) => Err(SinkError::transient(
                Outcome::Unknown,
                "Timeout",
                "the receive has no end in time",
            )
            .into()),
        }
    }

    fn failed(
        &self,
        error: &async_nats::RequestError,
        nobody: impl FnOnce() -> SinkError,
    ) -> Failure {
        match error.kind() {
            RequestErrorKind::NoResponders => nobody().into(),
            RequestErrorKind::MaxPayloadExceeded => SinkError::permanent(
                "MessageTooLarge",
                "the message is over the server's max_payload",
            )
            .into(),
            RequestErrorKind::InvalidSubject => {
                SinkError::permanent("InvalidSubject", "the client refuses the subject").into()
            }
            _ => {
                self.is_over.store(true, Ordering::Release);
                let was_handed_over = std::error::Error::source(error)
                    .is_some_and(|source| source.is::<oneshot::error::RecvError>());
                match was_handed_over {
                    true => SinkError::transient(
                        Outcome::Unknown,
                        "ConnectionLost",
                        "the connection ended before the stream's acknowledgement came",
                    )
                    .into(),
                    false => Failure::NotSent,
                }
            }
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}

impl Denials {
    fn new() -> Self {
        Self {
            publishing: broadcast::channel(REFUSALS_KEPT).0,
            inbox: AtomicBool::new(false),
            inbox_changed: tokio::sync::Notify::new(),
        }
    }

    fn notice(&self, event: &Event) {
        let Event::ServerError(ServerError::Other(text)) = event else {
            return;
        };
        if let Some(subject) = denied_subject(text, "publish") {
            // Nobody listens when all deliveries have ended.
            let _ = self.publishing.send(subject.to_owned());
        } else if denied_subject(text, "subscription").is_some() {
            self.inbox.store(true, Ordering::Release);
            self.inbox_changed.notify_waiters();
        }
    }

    /// Ends when the server forbids publishing to `subject`, or listening for answers.
    fn of(&self, subject: &str) -> impl Future<Output = SinkError> {
        let mut publishing = self.publishing.subscribe();
        async move {
            let publishing = async {
                loop {
                    match publishing.recv().await {
                        Ok(denied) if denied == subject => return classify::publish_denied(),
                        Ok(_) | Err(RecvError::Lagged(_)) => {}
                        // The sender lives as long as this.
                        Err(RecvError::Closed) => std::future::pending().await,
                    }
                }
            };
            let inbox = async {
                let mut changed = std::pin::pin!(self.inbox_changed.notified());
                // Registered before the flag is read: a change in between still wakes this.
                changed.as_mut().enable();
                if !self.inbox.load(Ordering::Acquire) {
                    changed.await;
                }
                classify::inbox_denied(true)
            };
            tokio::select! {
                error = publishing => error,
                error = inbox => error,
            }
        }
    }
}

/// The subject of `Permissions Violation for Publish to "hooks.acme"`, if the text is one
/// of that operation.
fn denied_subject<'a>(text: &'a str, operation: &str) -> Option<&'a str> {
    let (before, rest) = text.split_once('"')?;
    let before = before.to_ascii_lowercase();
    let is_denial = before.starts_with("permissions violation")
        && before.contains(&format!("for {operation} "));
    let (subject, _) = rest.rsplit_once('"')?;
    is_denial.then_some(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_names_its_subject_and_operation() {
        let text = "Permissions Violation for Publish to \"hooks.acme\"";
        assert_eq!(denied_subject(text, "publish"), Some("hooks.acme"));
        assert_eq!(denied_subject(text, "subscription"), None);
        let text = "Permissions Violation for Subscription to \"_INBOX.a.*\"";
        assert_eq!(denied_subject(text, "subscription"), Some("_INBOX.a.*"));
        assert_eq!(denied_subject("stale connection", "publish"), None);
        let text = "Permissions Violation for Publish to \"a\"b\"";
        assert_eq!(denied_subject(text, "publish"), Some("a\"b"));
    }
}
