//! An open subscription: receiving, and what comes of it.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use dispatch_api::{
    Delivery, HostServices, Outcome, Received, Settlement, SourceError, Subscription,
};
use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::attempts::Attempts;
use crate::calls::Calls;
use crate::delivery::{Settling, SqsDelivery};
use crate::digest::{self, DigestValue};
use crate::lease::Leases;
use crate::queue::RECEIVE_MARGIN;
use crate::requests::{self, RECEIVE, ReceiveReply, WireAttribute, WireMessage};
use crate::settler::{BATCH, Caller, Settler};

/// What opening a queue found out.
pub(crate) struct Opened {
    pub(crate) name: String,
    pub(crate) url: String,
    /// Whole seconds.
    pub(crate) wait: Duration,
    /// Whole seconds, 1 and more.
    pub(crate) visibility: Duration,
    pub(crate) max_attempts: Option<u32>,
    /// For receives, which have more time than other calls.
    pub(crate) receiving: Calls,
    pub(crate) calls: Calls,
    pub(crate) batch_settlement: bool,
    pub(crate) services: HostServices,
}

/// A queue that is consumed.
#[derive(Debug)]
pub(crate) struct SqsSubscription {
    shared: Arc<Shared>,
    is_closed: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    name: String,
    url: String,
    wait: Duration,
    visibility: Duration,
    receiving: Calls,
    /// On a FIFO queue.
    attempts: Option<Attempts>,
    settling: Arc<Settling>,
}

impl SqsSubscription {
    pub(crate) fn new(opened: Opened) -> Self {
        let telemetry = opened.calls.telemetry.clone();
        let caller = Arc::new(Caller {
            calls: opened.calls,
            queue_url: opened.url.clone(),
        });
        let settling = Settling {
            leases: Leases::new(Arc::clone(&caller), opened.visibility, telemetry.clone()),
            settler: Settler::new(caller, opened.batch_settlement),
            max_attempts: opened.max_attempts,
            telemetry,
        };
        let is_fifo = opened.name.ends_with(".fifo");
        Self {
            shared: Arc::new(Shared {
                attempts: is_fifo.then(|| Attempts::new(opened.services)),
                name: opened.name,
                url: opened.url,
                wait: opened.wait,
                visibility: opened.visibility,
                receiving: opened.receiving,
                settling: Arc::new(settling),
            }),
            is_closed: AtomicBool::new(false),
        }
    }
}

#[async_trait]
impl Subscription for SqsSubscription {
    async fn receive(&self, max: NonZeroUsize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(SourceError::subscription_closed());
        }
        // In a task of its own: messages that come when nobody waits for them any more go
        // back at once, and are not hidden until their time is over.
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let result = shared.receive(max.get().min(BATCH)).await;
            if let Err(Ok(deliveries)) = sender.send(result) {
                let given_back = deliveries
                    .into_iter()
                    .map(|delivery| delivery.settle(Settlement::Retry));
                join_all(given_back).await;
            }
        });
        receiver.await.unwrap_or_else(|_| {
            Err(SourceError::transient(
                "ReceiveStopped",
                "the runtime ended that the receive ran on, or the receive panicked",
            ))
        })
    }

    fn is_ordered(&self) -> bool {
        self.shared.name.ends_with(".fifo")
    }

    fn name(&self) -> &str {
        &self.shared.name
    }

    async fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.shared.settling.settler.flush().await;
    }
}

impl Shared {
    async fn receive(&self, max: usize) -> Result<Vec<Box<dyn Delivery>>, SourceError> {
        let asked = Instant::now();
        let attempt = self.attempts.as_ref().map(|all| all.next(max));
        let request = requests::receive(
            &self.url,
            max,
            self.wait.as_secs(),
            self.visibility.as_secs(),
            attempt.as_ref().map(|attempt| &*attempt.id),
        );
        let deadline = asked + self.wait + RECEIVE_MARGIN;
        let reply: Result<ReceiveReply, _> = self
            .receiving
            .call(RECEIVE, &self.url, request, deadline)
            .await;
        let telemetry = &self.settling.telemetry;
        let messages = match reply {
            Ok(reply) => reply.messages.unwrap_or_default(),
            Err(error) => {
                if let (Some(attempts), Some(attempt), Outcome::Unknown) =
                    (&self.attempts, attempt, error.outcome())
                {
                    attempts.is_unanswered(attempt);
                }
                telemetry.receive_failed(error.code());
                return Err(error.into());
            }
        };
        let mut deliveries: Vec<Box<dyn Delivery>> = Vec::with_capacity(messages.len());
        for message in messages {
            let id = message.id.clone().unwrap_or_default();
            match intact(message) {
                Ok(intact) => deliveries.push(Box::new(self.delivery(intact, asked))),
                // It is nobody's to handle: it comes back when its visibility timeout is over,
                // and a redrive policy takes it out in the end.
                Err(fault) => telemetry.damaged(&id, fault),
            }
        }
        telemetry.received(deliveries.len(), "");
        Ok(deliveries)
    }

    fn delivery(&self, message: Intact, asked: Instant) -> SqsDelivery {
        let handle: Arc<str> = message.handle.into();
        let hold = self.settling.leases.begin(Arc::clone(&handle), asked);
        let received = Received::new(message.id, message.body, hold.lease.clone())
            .with_attributes(message.attributes)
            .with_group(message.group)
            .with_redelivery_count(message.receive_count)
            .with_sent_at(
                message
                    .sent_timestamp
                    .map(|millis| UNIX_EPOCH + Duration::from_millis(millis)),
            );
        SqsDelivery {
            settling: Arc::clone(&self.settling),
            received,
            handle,
            hold,
        }
    }
}

/// A message that is what was sent, as far as its digests show.
struct Intact {
    id: String,
    handle: String,
    body: Bytes,
    attributes: Vec<(String, Bytes)>,
    group: Option<String>,
    receive_count: Option<u32>,
    sent_timestamp: Option<u64>,
}

/// Checks a message against its digests, where the answer shows them; some emulators do not.
fn intact(message: WireMessage) -> Result<Intact, &'static str> {
    const INCOMPLETE: &str = "MessageIncomplete";
    const MISMATCH: &str = "Md5Mismatch";
    let (Some(handle), Some(body)) = (message.handle, message.body) else {
        return Err(INCOMPLETE);
    };
    if let Some(shown) = &message.body_md5
        && !digest::of_body(&body).is_shown_by(shown)
    {
        return Err(MISMATCH);
    }
    let read = message.attributes.unwrap_or_default().into_iter();
    let read = read.map(
        |(
            name,
            WireAttribute {
                data_type,
                text,
                binary,
            },
        )| { Some((name, data_type, Value::read(text, binary)?)) },
    );
    let read: Option<Vec<(String, Cow<'static, str>, Value)>> = read.collect();
    let attributes = read.ok_or(INCOMPLETE)?;
    if let Some(shown) = &message.attributes_md5 {
        let hashed = attributes.iter();
        let hashed =
            hashed.map(|(name, data_type, value)| (name.as_str(), &**data_type, value.hashed()));
        let digest = digest::of_attributes(hashed);
        if !digest.is_some_and(|digest| digest.is_shown_by(shown)) {
            return Err(MISMATCH);
        }
    }
    let system = message.system.unwrap_or_default();
    Ok(Intact {
        id: message.id.unwrap_or_default(),
        handle,
        body: body.into(),
        attributes: attributes
            .into_iter()
            .map(|(name, _, value)| (name, value.into()))
            .collect(),
        group: system.group_id,
        // More than that many is as many as anybody asks about.
        receive_count: system
            .receive_count
            .map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        sent_timestamp: system.sent_timestamp,
    })
}

/// The value of an attribute.
enum Value {
    Text(String),
    Binary(Vec<u8>),
}

impl Value {
    fn read(text: Option<String>, binary: Option<String>) -> Option<Self> {
        match text {
            Some(text) => Some(Self::Text(text)),
            None => BASE64_STANDARD.decode(binary?).ok().map(Self::Binary),
        }
    }

    fn hashed(&self) -> DigestValue<'_> {
        match self {
            Self::Text(text) => DigestValue::Text(text),
            Self::Binary(bytes) => DigestValue::Binary(bytes),
        }
    }
}

impl From<Value> for Bytes {
    fn from(value: Value) -> Self {
        match value {
            Value::Text(text) => text.into(),
            Value::Binary(bytes) => bytes.into(),
        }
    }
}
