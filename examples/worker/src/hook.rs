//! From a received message to a hook with its body.

use std::time::Duration;

use bytes::Bytes;
use dispatch_api::{
    ClaimCheck, Content, DecodeError, ErrorChain, Message, Received, Settlement, redeem,
};

/// A decoded message whose body is here.
#[derive(Debug)]
pub(crate) struct Hook<'a> {
    pub(crate) message: Message<'a>,
    pub(crate) body: Bytes,
}

/// Why a delivery is not handled.
#[derive(Debug)]
pub(crate) struct Unfit(pub(crate) String);

impl<'a> Hook<'a> {
    /// Decodes a message, which checks its digest, and redeems its claim.
    pub(crate) async fn of(
        received: &'a Received,
        claims: Option<&dyn ClaimCheck>,
    ) -> Result<Self, Unfit> {
        let message = received.message().map_err(undecodable)?;
        let body = match &message.content {
            Content::Inline(body) => body.clone(),
            Content::Claim(claim) => {
                let store = claims.ok_or_else(|| {
                    Unfit("its body is in a claim store: set claim_check.url".to_owned())
                })?;
                let digest = message.sha256.as_deref().unwrap_or_default();
                let redeemed = redeem(store, claim, digest).await;
                redeemed.map_err(|error| Unfit(ErrorChain(&error).to_string()))?
            }
        };
        Ok(Self { message, body })
    }

    /// What the command is told, as environment variables.
    pub(crate) fn variables(&self, received: &Received) -> Vec<(String, String)> {
        let message = &self.message;
        let mut variables = Vec::with_capacity(16 + message.headers.len());
        let mut set = |name: &str, value: Option<String>| {
            // No variable can hold a NUL.
            if let Some(value) = value.filter(|value| !value.contains('\0')) {
                variables.push((format!("DISPATCH_{name}"), value));
            }
        };
        let text = |value: &Option<std::borrow::Cow<'_, str>>| value.as_deref().map(str::to_owned);
        set("ID", Some(message.id.to_string()));
        set("SOURCE_ID", Some(message.source_id.to_string()));
        set("TENANT_ID", text(&message.tenant_id));
        set("RECEIVED_AT", Some(message.received_at.to_string()));
        set("CONTENT_TYPE", text(&message.content_type));
        set("SIZE", Some(message.size.to_string()));
        set("DEDUPE_KEY", text(&message.dedupe_key));
        set(
            "IDEMPOTENCY_KEY",
            Some(message.idempotency_key().into_owned()),
        );
        set("REPLAY_ID", text(&message.replay_id));
        set("TRUSTED", Some(message.is_trusted().to_string()));
        set("TRACEPARENT", text(&message.traceparent));
        set("TRACESTATE", text(&message.tracestate));
        set("GROUP", received.group().map(str::to_owned));
        set("MESSAGE_ID", Some(received.id().to_owned()));
        let count = received.redelivery_count();
        set("REDELIVERY_COUNT", count.map(|count| count.to_string()));
        for (name, value) in &message.headers {
            let name: String = name
                .chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() {
                        c.to_ascii_uppercase()
                    } else {
                        '_'
                    }
                })
                .collect();
            set(&format!("HEADER_{name}"), Some(value.to_string()));
        }
        variables
    }
}

fn undecodable(error: DecodeError) -> Unfit {
    Unfit(format!(
        "not a message of this format: {}",
        ErrorChain(&error)
    ))
}

/// A delivery that cannot be handled is not lost: it comes back later each time, until a redrive
/// policy takes it out or somebody mends what is wrong.
pub(crate) fn later(received: &Received) -> Settlement {
    const LONGEST: Duration = Duration::from_secs(900);
    let before = received.redelivery_count().unwrap_or(1).saturating_sub(1);
    let pause = Duration::from_secs(1 << before.min(16));
    Settlement::RetryAfter(pause.min(LONGEST))
}
