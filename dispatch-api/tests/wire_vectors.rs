//! The vectors of wire format v1: what every consumer, in any language, reads from
//! these bytes.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dispatch_api::{ClaimRef, Content, Message};
use serde_json::{Map, Value, json};

fn vectors() -> Vec<Map<String, Value>> {
    serde_json::from_str(include_str!("vectors/wire-v1.json")).unwrap()
}

/// What a decoded message says, in the form of the vectors: absent fields left out.
fn shown(message: &Message<'_>) -> Value {
    let mut fields = json!({
        "v": message.version,
        "id": message.id,
        "source_id": message.source_id,
        "received_at": message.received_at,
        "size": message.size,
        "headers": message.headers.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "key": message.idempotency_key(),
        "key_with_replay": message.idempotency_key_with_replay(),
        "trusted": message.is_trusted(),
    });
    let optional = [
        ("tenant_id", &message.tenant_id),
        ("content_type", &message.content_type),
        ("dedupe_key", &message.dedupe_key),
        ("replay_id", &message.replay_id),
        ("idempotency_key", &message.shipped_idempotency_key),
        ("sha256", &message.sha256),
        ("traceparent", &message.traceparent),
        ("tracestate", &message.tracestate),
        ("instance", &message.instance),
        ("region", &message.region),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            fields[key] = json!(value);
        }
    }
    match &message.content {
        Content::Inline(body) => fields["body_base64"] = json!(STANDARD.encode(body)),
        Content::Claim(claim) => fields["claim"] = json!(claim.to_string()),
    }
    if let Some(verification) = &message.verification {
        fields["verification"] =
            json!({"status": verification.status, "flagged": verification.flagged});
    }
    fields
}

#[test]
fn every_message_vector_decodes_as_written_down() {
    let mut checked = 0;
    for vector in vectors() {
        let name = &vector["name"];
        let bytes = match (vector.get("message"), vector.get("raw")) {
            (Some(message), None) => message.to_string(),
            (None, Some(raw)) => raw.as_str().unwrap().to_owned(),
            _ => continue,
        };
        let expected = &vector["expect"];
        let decoded = match Message::decode(bytes.as_bytes()) {
            Ok(message) => json!({"ok": shown(&message)}),
            Err(error) => match error.field {
                None => json!({"error": {"code": error.code.as_str()}}),
                Some(field) => json!({"error": {"code": error.code.as_str(), "field": field}}),
            },
        };
        assert_eq!(&decoded, expected, "{name}");
        checked += 1;
    }
    assert_eq!(checked, 80, "a vector was added or lost");
}

#[test]
fn every_claim_vector_is_read_or_refused_as_written_down() {
    let mut checked = 0;
    for vector in vectors() {
        let Some(text) = vector.get("ref") else {
            continue;
        };
        let name = &vector["name"];
        let text = text.as_str().unwrap();
        let read = match text.parse::<ClaimRef>() {
            Ok(claim) => {
                assert_eq!(claim.to_string(), text, "{name}");
                json!({"ok": {
                    "tenant": claim.tenant(),
                    "claim_id": claim.id().as_str(),
                    "path": claim.gateway_path(),
                }})
            }
            Err(_) => json!({"error": {"code": "invalid_ref"}}),
        };
        assert_eq!(read, vector["expect"], "{name}");
        checked += 1;
    }
    assert_eq!(checked, 21, "a vector was added or lost");
}

#[test]
fn what_decodes_encodes_to_bytes_that_decode_to_the_same() {
    for vector in vectors() {
        if vector["expect"].get("ok").is_none() {
            continue;
        }
        let Some(message) = vector.get("message") else {
            continue;
        };
        let bytes = message.to_string();
        let first = Message::decode(bytes.as_bytes()).unwrap();
        let encoded = first.encode();
        let mut second = Message::decode(encoded.as_bytes()).unwrap();
        assert_eq!(second.version, 1, "{}", vector["name"]);
        second.version = first.version;
        assert_eq!(first, second, "{}", vector["name"]);
    }
}
