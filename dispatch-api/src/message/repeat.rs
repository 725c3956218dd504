//! A received message as a delivery to a sink.

use bytes::Bytes;

use super::{Content, Message};
use crate::context::{DeliveryContext, Origin};
use crate::encoding::sha256_hex;
use crate::envelope::{Envelope, HeaderField};
use crate::error::SinkError;

impl Message<'_> {
    /// The envelope and the context that make this message at any sink, for a source that
    /// publishes a copy, or a program that passes messages on: id, source, tenant, time, keys,
    /// headers, verification, trace context, replay and origin are the message's, and a claim
    /// is the context's.
    ///
    /// `body` is the hook's body: that of the message, or what its claim was
    /// [redeemed](crate::redeem) for. The request's method and path are in no message. Headers
    /// that never travel (see [`HeaderForwarding`](crate::HeaderForwarding)) are left out.
    ///
    /// # Errors
    ///
    /// `Permanent`, code `NotRepeatable`: an id that is no UUID, or a body that is not the
    /// message's.
    pub fn to_delivery(&self, body: Bytes) -> Result<(Envelope, DeliveryContext), SinkError> {
        let id = self
            .id
            .parse()
            .map_err(|_| not_repeatable("its id is no UUID"))?;
        let is_its_body = body.len() as u64 == self.size
            && self
                .sha256
                .as_deref()
                .is_none_or(|digest| digest == sha256_hex(&body));
        if !is_its_body {
            return Err(not_repeatable("the body is another's"));
        }
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| HeaderField::new(&**name, &**value));
        let mut envelope = Envelope::new(id, &*self.source_id, self.received_at, body)
            .with_headers(headers)
            .with_idempotency_key(self.idempotency_key());
        if let Some(tenant) = self.tenant_id.as_deref() {
            envelope = envelope.with_tenant(tenant);
        }
        if let Some(content_type) = self.content_type.as_deref() {
            envelope = envelope.with_content_type(content_type);
        }
        if let Some(key) = self.dedupe_key.as_deref() {
            envelope = envelope.with_dedupe_key(key);
        }
        if let Some(verification) = &self.verification {
            envelope = envelope.with_verification(verification.clone());
        }
        if let Some(traceparent) = self.traceparent.as_deref() {
            let tracestate = self.tracestate.as_deref().map(str::to_owned);
            envelope = envelope.with_trace(traceparent, tracestate);
        }
        let mut ctx = DeliveryContext::direct();
        if let Some(replay_id) = self.replay_id.as_deref() {
            ctx = ctx.with_replay_id(replay_id);
        }
        if let Content::Claim(claim) = &self.content {
            ctx = ctx.with_claim(claim.clone());
        }
        if let Some(instance) = self.instance.as_deref() {
            let region = self.region.as_deref().map(str::to_owned);
            ctx = ctx.with_origin(Origin::new(instance, region));
        }
        Ok((envelope, ctx))
    }
}

fn not_repeatable(why: &str) -> SinkError {
    SinkError::permanent(
        "NotRepeatable",
        format!("the message cannot be sent once more: {why}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DEFAULT_INLINE_MAX_BYTES;
    use crate::claim::{ClaimId, ClaimRef};
    use crate::envelope::Verification;

    const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";

    fn envelope(body: &'static [u8]) -> Envelope {
        Envelope::new(ID.parse().unwrap(), "harbor", 1_767_225_600_123, body)
            .with_tenant("quay-7")
            .with_content_type("application/json")
            .with_headers([
                HeaderField::new("x-event", "docked"),
                HeaderField::new("x-signature", "größer"),
            ])
            .with_dedupe_key("d1")
            .with_verification(Verification::new("ok", false))
            .with_trace("00-ab-cd-01", Some("a=b".to_owned()))
    }

    fn again(message: &Message<'_>, body: &'static [u8]) -> String {
        let (envelope, ctx) = message.to_delivery(Bytes::from_static(body)).unwrap();
        Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES)
            .unwrap()
            .encode()
    }

    #[test]
    fn a_message_that_is_sent_once_more_is_the_same_bytes() {
        let ctx = DeliveryContext::direct()
            .with_replay_id("r1")
            .with_origin(Origin::new("node-1", Some("eu".to_owned())));
        let envelope = envelope(b"{}");
        let message = Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES).unwrap();
        let sent = message.encode();
        let received = Message::decode(sent.as_bytes()).unwrap();
        assert_eq!(again(&received, b"{}"), sent);
    }

    #[test]
    fn a_claim_stays_the_claim_that_it_was() {
        let body: &'static [u8] = Box::leak(vec![b'x'; 70_000].into_boxed_slice());
        let claim = ClaimRef::new("quay-7", ClaimId::new(1_767_225_600_123, 7, 0)).unwrap();
        let ctx = DeliveryContext::direct().with_claim(claim);
        let envelope = envelope(body);
        let message = Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES).unwrap();
        let sent = message.encode();
        let received = Message::decode(sent.as_bytes()).unwrap();
        assert_eq!(again(&received, body), sent);
    }

    #[test]
    fn a_key_that_the_producer_shipped_stays_its_key() {
        let envelope = envelope(b"{}").with_idempotency_key("a key of its own");
        let ctx = DeliveryContext::direct();
        let message = Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES).unwrap();
        let sent = message.encode();
        let received = Message::decode(sent.as_bytes()).unwrap();
        assert_eq!(received.idempotency_key(), "a key of its own");
        assert_eq!(again(&received, b"{}"), sent);
    }

    #[test]
    fn another_body_and_an_id_that_no_envelope_has_are_refused() {
        let envelope = envelope(b"{}");
        let ctx = DeliveryContext::direct();
        let mut message = Message::for_delivery(&envelope, &ctx, DEFAULT_INLINE_MAX_BYTES).unwrap();
        for body in [&b"{ }"[..], b"[]"] {
            let error = message.to_delivery(Bytes::from_static(body)).unwrap_err();
            assert_eq!(error.code(), "NotRepeatable");
        }
        message.id = "m-1".into();
        let error = message.to_delivery(Bytes::from_static(b"{}")).unwrap_err();
        assert_eq!(error.code(), "NotRepeatable");
    }
}
