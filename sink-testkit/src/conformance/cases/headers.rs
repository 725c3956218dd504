//! The headers of a hook: which of them travel, and that those that do arrive as they were.

use std::sync::Arc;

use dispatch_api::{Envelope, HeaderField, HeaderForwarding};

use super::carried::{Delivery, deliveries_arrive, envelopes_arrive};
use crate::conformance::case::case;
use crate::conformance::{Case, Checked, Context};

pub(super) const CASES: &[Case] = &[
    case!(
        headers_many_roundtrip,
        "as many headers as a sender likes arrive, of any length"
    ),
    case!(
        header_empty_value,
        "a header without a value arrives without a value"
    ),
    case!(
        header_values_beyond_ascii,
        "values of any script arrive, and octets that are no UTF-8 as ISO-8859-1"
    ),
    case!(
        header_line_break_is_data,
        "a line break within a value never makes another header"
    ),
    case!(
        header_names_that_are_none_stay_behind,
        "a name that is no token does not travel in any form"
    ),
    case!(
        header_repeated_names_are_joined,
        "the values of a repeated name are joined in order of arrival"
    ),
    case!(
        header_names_differing_only_by_case_are_one,
        "names in another letter case are the same name"
    ),
    case!(
        header_reserved_names_cannot_override,
        "a header named like a field or like metadata is a header and nothing else"
    ),
    case!(
        header_credentials_stay_behind,
        "credentials and headers of the connection do not travel, whatever is configured"
    ),
    case!(
        header_forwarding_is_by_list,
        "of a list of names these travel and no others; of an empty one none"
    ),
    case!(
        header_order_of_arrival_kept,
        "headers stand in the message in order of arrival"
    ),
];

async fn headers_arrive(
    context: &Context<'_>,
    rows: &[(&'static str, &[(&str, &str)])],
) -> Checked {
    let rows = rows.iter().map(|(label, headers)| {
        let fields = headers.iter();
        let fields = fields.map(|(name, value)| HeaderField::new(*name, *value));
        (*label, context.envelope().with_headers(fields))
    });
    envelopes_arrive(context, rows.collect::<Vec<(&str, Envelope)>>()).await
}

async fn headers_many_roundtrip(context: &Context<'_>) -> Checked {
    let headers = (0..60).map(|number| {
        let value = "v".repeat(number % 17 + context.random(5));
        HeaderField::new(format!("X-Number-{number}"), value)
    });
    let envelope = context.envelope().with_headers(headers);
    envelopes_arrive(context, [("sixty headers", envelope)]).await
}

async fn header_empty_value(context: &Context<'_>) -> Checked {
    let headers: &[(&str, &str)] = &[("X-Before", "1"), ("X-Empty", ""), ("X-After", "2")];
    headers_arrive(context, &[("an empty value between others", headers)]).await
}

async fn header_values_beyond_ascii(context: &Context<'_>) -> Checked {
    let texts = [
        HeaderField::new("X-Harbor", "Sm\u{f6}gen \u{20ac} \u{1f30a}"),
        HeaderField::new("X-Noncharacter", "x\u{fffe}y\u{ffff}"),
        HeaderField::new("X-Quoted", "\"a\\b\""),
    ];
    let octets = [HeaderField::from_bytes("X-Octets", b"caf\xe9 \xff")];
    let envelopes = [
        (
            "values of several scripts",
            context.envelope().with_headers(texts),
        ),
        (
            "octets that are no UTF-8",
            context.envelope().with_headers(octets),
        ),
    ];
    envelopes_arrive(context, envelopes).await
}

async fn header_line_break_is_data(context: &Context<'_>) -> Checked {
    let broken: &[(&str, &str)] = &[
        ("X-Broken", "a\r\nX-Injected: 1"),
        ("X-Line", "a\nb"),
        ("X-Zero", "a\0b"),
        ("X-Colon", "a: b"),
    ];
    let plain: &[(&str, &str)] = &[("X-Plain", "1")];
    let rows = [
        ("values with line breaks", broken),
        ("the next message", plain),
    ];
    headers_arrive(context, &rows).await
}

async fn header_names_that_are_none_stay_behind(context: &Context<'_>) -> Checked {
    let names: &[(&str, &str)] = &[
        ("X-Good", "1"),
        ("X-Bad\r\nX-Injected", "1"),
        ("X Bad", "1"),
        ("X-Bad:", "1"),
        ("", "1"),
        ("X-B\u{e4}d", "1"),
        ("authorization ", "1"),
    ];
    headers_arrive(context, &[("names that are none", names)]).await
}

async fn header_repeated_names_are_joined(context: &Context<'_>) -> Checked {
    let headers: &[(&str, &str)] = &[
        ("X-Multi", "b"),
        ("X-Other", "1"),
        ("X-Multi", "a"),
        ("X-Multi", ""),
        ("X-Multi", "b"),
    ];
    headers_arrive(context, &[("a repeated name", headers)]).await
}

async fn header_names_differing_only_by_case_are_one(context: &Context<'_>) -> Checked {
    let headers: &[(&str, &str)] = &[("X-Mixed", "1"), ("x-mixed", "2"), ("X-MIXED", "3")];
    headers_arrive(context, &[("one name in three forms", headers)]).await
}

async fn header_reserved_names_cannot_override(context: &Context<'_>) -> Checked {
    let headers: &[(&str, &str)] = &[
        ("id", "forged"),
        ("tenant_id", "forged"),
        ("dedupe_key", "forged"),
        ("ankusa_id", "forged"),
        ("ankusa_tenant_id", "forged"),
        ("ankusa_idempotency_key", "forged"),
        ("content_type", "forged"),
        (
            "traceparent",
            "00-00000000000000000000000000000001-0000000000000001-01",
        ),
        ("Nats-Msg-Id", "forged"),
        ("AWSTraceHeader", "forged"),
        ("MessageGroupId", "forged"),
    ];
    headers_arrive(context, &[("headers with reserved names", headers)]).await
}

const NEVER: &[(&str, &str)] = &[
    ("Authorization", "Bearer canary"),
    ("Proxy-Authorization", "Basic canary"),
    ("Cookie", "session=canary"),
    ("X-Api-Key", "canary"),
    ("X-Ankusa-Id", "1"),
    ("Host", "harbor.example"),
    ("Connection", "close"),
    ("Keep-Alive", "timeout=5"),
    ("Transfer-Encoding", "chunked"),
    ("TE", "trailers"),
    ("Trailer", "Expires"),
    ("Upgrade", "websocket"),
    ("Expect", "100-continue"),
    ("Content-Length", "2"),
    ("Content-Type", "text/plain"),
];

async fn header_credentials_stay_behind(context: &Context<'_>) -> Checked {
    let fields = || NEVER.iter().chain(&[("X-Harbor", "1")]);
    let headers = fields().map(|(name, value)| HeaderField::new(*name, *value));
    let names = fields().map(|(name, _)| (*name).to_owned()).collect();
    let by_default = context.envelope().with_headers(headers.clone());
    let listed = context.envelope().with_headers(headers);
    let ctx = context.first_attempt();
    let list = ctx
        .clone()
        .with_forward_headers(HeaderForwarding::Only(names));
    let deliveries = [
        Delivery::new("headers that never travel", by_default, ctx),
        Delivery::new("a list of headers that never travel", listed, list),
    ];
    deliveries_arrive(context, &deliveries).await
}

async fn header_forwarding_is_by_list(context: &Context<'_>) -> Checked {
    let headers = [
        HeaderField::new("X-Harbor-Event", "loaded"),
        HeaderField::new("X-Harbor-Berth", "3"),
        HeaderField::new("User-Agent", "harbor/3"),
    ];
    let envelope = || context.envelope().with_headers(headers.clone());
    let ctx = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        context
            .first_attempt()
            .with_forward_headers(Arc::new(HeaderForwarding::Only(names)))
    };
    let deliveries = [
        Delivery::new("a list of one name", envelope(), ctx(&["x-HARBOR-event"])),
        Delivery::new("an empty list", envelope(), ctx(&[])),
        Delivery::new(
            "a list of a name that is not there",
            envelope(),
            ctx(&["X-Depot"]),
        ),
    ];
    deliveries_arrive(context, &deliveries).await
}

async fn header_order_of_arrival_kept(context: &Context<'_>) -> Checked {
    let headers: &[(&str, &str)] = &[("X-C", "1"), ("X-A", "2"), ("X-B", "3"), ("X-0", "4")];
    headers_arrive(context, &[("headers out of alphabetical order", headers)]).await
}
