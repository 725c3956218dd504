//! The published consumer SDK reads back everything that is written here.

use bytes::Bytes;
use dispatch_api::{
    ClaimId, ClaimRef, Content, DeliveryContext, Envelope, EnvelopeId, HeaderField,
    HeaderForwarding, Message, Origin, Verification,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::num::NonZeroUsize;

/// Any text, with the characters that escapes get wrong made likely.
fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        3 => any::<char>(),
        1 => prop::sample::select(vec![
            '"', '\\', '/', '\0', '\u{1f}', '\u{7f}', '\u{fffd}', '\u{fffe}', '\u{ffff}',
            '\u{d7ff}', '\u{e000}', '\u{1fffe}', '\u{10ffff}', '\u{2028}',
        ]),
    ];
    vec(character, 0..20).prop_map(String::from_iter)
}

/// A field name of RFC 9110, section 5.1.
fn header_name() -> impl Strategy<Value = String> {
    "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}"
}

/// A field value of RFC 9110, section 5.5: visible characters, obs-text, and
/// blanks and tabs between them.
fn header_value() -> impl Strategy<Value = Vec<u8>> {
    vec(
        prop_oneof![0x21..=0x7e_u8, 0x80..=0xff_u8, Just(b' '), Just(b'\t')],
        0..20,
    )
}

prop_compose! {
    fn envelope()(
        unix_ms in 0..=0xffff_ffff_ffff_u64,
        random in any::<[u8; 10]>(),
        source_id in text(),
        tenant_id in option::of(text()),
        received_at in any::<i64>(),
        headers in vec((header_name(), header_value()), 0..8),
        content_type in option::of(text()),
        body in vec(any::<u8>(), 0..600),
        dedupe_key in option::of(text()),
        verification in option::of((text(), any::<bool>())),
        trace in option::of((text(), option::of(text()))),
    ) -> Envelope {
        let mut envelope = Envelope::new(
            EnvelopeId::v7(unix_ms, &random),
            source_id,
            received_at,
            Bytes::from(body),
        )
        .with_headers(headers.iter().map(|(name, value)| HeaderField::from_bytes(name, value)));
        if let Some(tenant) = tenant_id {
            envelope = envelope.with_tenant(tenant);
        }
        if let Some(content_type) = content_type {
            envelope = envelope.with_content_type(content_type);
        }
        if let Some(key) = dedupe_key {
            envelope = envelope.with_dedupe_key(key);
        }
        if let Some((status, flagged)) = verification {
            envelope = envelope.with_verification(Verification::new(status, flagged));
        }
        if let Some((parent, state)) = trace {
            envelope = envelope.with_trace(parent, state);
        }
        envelope
    }
}

prop_compose! {
    fn context()(
        replay_id in option::of(text()),
        origin in option::of((text(), option::of(text()))),
        only in option::of(vec(header_name(), 0..3)),
    ) -> DeliveryContext {
        let mut ctx = DeliveryContext::direct();
        if let Some(replay_id) = replay_id {
            ctx = ctx.with_replay_id(replay_id);
        }
        if let Some((instance, region)) = origin {
            ctx = ctx.with_origin(Origin::new(instance, region));
        }
        if let Some(names) = only {
            ctx = ctx.with_forward_headers(HeaderForwarding::Only(names));
        }
        ctx
    }
}

const INLINE_MAX: NonZeroUsize = NonZeroUsize::new(300).unwrap();

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}

#[test]
fn of_a_repeated_name_the_last_one_counts_as_the_sdk_has_it() {
    let message = |headers: &str| {
        format!(
            r#"{{"v":1,"id":"a","source_id":"s","received_at":1,"size":0,"body_base64":"",
                "headers":{headers}}}"#
        )
    };
    for headers in [
        r#"{"a":1,"a":"2"}"#,
        r#"{"a":"1","b":"x","a":"2"}"#,
        r#"{"a":"1","a":2}"#,
    ] {
        let bytes = message(headers).into_bytes();
        match (Message::decode(&bytes), ankusa::decode_message(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                let ours: std::collections::BTreeMap<_, _> = ours
                    .headers
                    .iter()
                    .map(|(name, value)| (name.to_string(), value.to_string()))
                    .collect();
                assert_eq!(ours, theirs.headers, "{headers}");
            }
            (Err(ours), Err(theirs)) => assert_eq!(ours.field, theirs.field, "{headers}"),
            (ours, theirs) => panic!("{headers}: we say {ours:?}, the SDK says {theirs:?}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn the_sdk_reads_back_what_was_written(
        envelope in envelope(),
        ctx in context(),
        random in any::<u64>(),
    ) {
        let claim = ClaimRef::new("quay-7", ClaimId::new(envelope.received_at() as u64, random, 7));
        // A tenant that differs from its claim's has no valid message.
        let by_claim = envelope.body().len() > INLINE_MAX.get();
        let envelope = if by_claim { envelope.with_tenant("quay-7") } else { envelope };
        let ctx = ctx.with_claim(claim.unwrap());
        let message = Message::for_delivery(&envelope, &ctx, INLINE_MAX).unwrap();
        let encoded = message.encode();

        let read = ankusa::decode_message(encoded.as_bytes()).unwrap();
        prop_assert_eq!(read.v, 1);
        prop_assert_eq!(&read.id, &envelope.id().to_string());
        prop_assert_eq!(&read.source_id, envelope.source_id());
        prop_assert_eq!(&read.tenant_id, &owned(envelope.tenant_id()));
        prop_assert_eq!(read.received_at, envelope.received_at());
        prop_assert_eq!(&read.content_type, &owned(envelope.content_type()));
        prop_assert_eq!(read.size, envelope.body().len() as u64);
        prop_assert_eq!(&read.dedupe_key, &owned(envelope.dedupe_key()));
        prop_assert_eq!(&read.replay_id, &owned(ctx.replay_id()));
        prop_assert_eq!(&read.traceparent, &owned(envelope.traceparent()));
        prop_assert_eq!(&read.tracestate, &owned(envelope.tracestate()));
        prop_assert_eq!(&read.instance, &ctx.origin().map(|origin| origin.instance.clone()));
        prop_assert_eq!(&read.region, &ctx.origin().and_then(|origin| origin.region.clone()));
        prop_assert_eq!(read.sha256.as_deref(), Some(envelope.sha256()));
        prop_assert_eq!(
            read.verification.as_ref().map(|v| (v.status.clone(), v.flagged)),
            envelope.verification().map(|v| (v.status.clone(), v.flagged))
        );
        prop_assert_eq!(read.idempotency_key(false), envelope.idempotency_key());
        prop_assert_eq!(read.idempotency_key(true), message.idempotency_key_with_replay());
        let headers: std::collections::BTreeMap<String, String> = message
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        prop_assert_eq!(headers.len(), message.headers.len(), "a header name stands twice");
        prop_assert_eq!(&read.headers, &headers);
        if by_claim {
            prop_assert_eq!(read.body, None);
            prop_assert_eq!(read.claim, ctx.claim().map(ToString::to_string));
        } else {
            prop_assert_eq!(read.body.as_deref(), Some(&**envelope.body()));
            prop_assert_eq!(read.claim, None);
        }
    }

    #[test]
    fn our_own_decoder_agrees_with_the_sdk_about_any_bytes(
        envelope in envelope(),
        ctx in context(),
        cut in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let message = Message::for_delivery(&envelope, &ctx, NonZeroUsize::MAX).unwrap();
        let mut bytes = message.encode().into_bytes();
        prop_assert_eq!(&Message::decode(&bytes).unwrap(), &message);
        let at = cut.index(bytes.len());
        bytes[at] = byte;
        match (Message::decode(&bytes), ankusa::decode_message(&bytes)) {
            (Ok(ours), Ok(theirs)) => {
                prop_assert_eq!(&*ours.id, &theirs.id);
                prop_assert_eq!(ours.idempotency_key(), theirs.idempotency_key(false));
                let body = match &ours.content {
                    Content::Inline(body) => Some(&**body),
                    Content::Claim(_) => None,
                };
                prop_assert_eq!(body, theirs.body.as_deref());
            }
            (Err(ours), Err(theirs)) => {
                prop_assert_eq!(ours.code.as_str(), theirs.code);
                prop_assert_eq!(ours.field, theirs.field);
            }
            (ours, theirs) => prop_assert!(false, "we say {ours:?}, the SDK says {theirs:?}"),
        }
    }

    #[test]
    fn no_message_holds_a_character_that_sqs_refuses(envelope in envelope(), ctx in context()) {
        let message = Message::for_delivery(&envelope, &ctx, NonZeroUsize::MAX).unwrap();
        for character in message.encode().chars() {
            prop_assert!(
                matches!(character, '\u{9}' | '\u{a}' | '\u{d}' | '\u{20}'..='\u{d7ff}'
                    | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}'),
                "{:?}", character
            );
        }
    }

    #[test]
    fn the_sdk_accepts_every_claim_reference_that_is_printed(
        tenant in "[A-Za-z0-9_-]{1,64}",
        unix_ms in any::<u64>(),
        random in any::<u64>(),
        position in any::<u16>(),
    ) {
        let claim = ClaimRef::new(&tenant, ClaimId::new(unix_ms, random, position)).unwrap();
        let printed = claim.to_string();
        let read = ankusa::parse_claim_ref(&printed).unwrap();
        prop_assert_eq!(read.tenant_id(), tenant);
        prop_assert_eq!(read.path(), claim.gateway_path());
        prop_assert_eq!(printed.parse::<ClaimRef>(), Ok(claim));
    }
}
