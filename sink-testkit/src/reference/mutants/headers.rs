//! Mutants of headers.

use dispatch_api::{Envelope, HeaderField, HeaderForwarding, is_header_name};
use serde_json::Value;

use super::tools::{altering, delivering, rewrite_attribute, rewriting};
use super::{Mutant, Seam};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "FirstTenOnly",
        "forwards ten headers",
        "headers_many_roundtrip",
        "the field headers of sixty headers",
        Seam::Sink(|inner, _| altering(inner, |envelope| with(&envelope, |all| all.truncate(10)))),
    ),
    Mutant::new(
        "EmptyHeaderDropper",
        "leaves headers without a value behind",
        "header_empty_value",
        "the field headers of an empty value",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                with(&envelope, |all| {
                    all.retain(|header| !header.value().is_empty());
                })
            })
        }),
    ),
    Mutant::new(
        "AsciiFold",
        "replaces what is not ASCII",
        "header_values_beyond_ascii",
        "the field headers of values of several scripts",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                map(&envelope, |name, value| {
                    (name, value.replace(|c: char| !c.is_ascii(), "?"))
                })
            })
        }),
    ),
    Mutant::new(
        "RawConcatenation",
        "writes headers as lines",
        "header_line_break_is_data",
        "the field headers of values with line breaks",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                with(&envelope, |all| {
                    *all = std::mem::take(all)
                        .iter()
                        .flat_map(|header| {
                            let text = format!("{}: {}", header.name(), header.value());
                            let lines = text.lines().filter_map(|line| line.split_once(": "));
                            lines
                                .map(|(name, value)| HeaderField::new(name, value))
                                .collect::<Vec<_>>()
                        })
                        .collect();
                })
            })
        }),
    ),
    Mutant::new(
        "MendsNames",
        "makes a name of what is none",
        "header_names_that_are_none_stay_behind",
        "the field headers of names that are none",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                map(&envelope, |name, value| match is_header_name(&name) {
                    true => (name, value),
                    false => (
                        name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
                        value,
                    ),
                })
            })
        }),
    ),
    Mutant::new(
        "SilentLastWins",
        "keeps the last of a repeated name",
        "header_repeated_names_are_joined",
        "the field headers of a repeated name",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                with(&envelope, |all| {
                    let names: Vec<String> =
                        all.iter().map(|header| header.name().to_owned()).collect();
                    let mut index = 0;
                    all.retain(|header| {
                        index += 1;
                        !names[index..].iter().any(|later| later == header.name())
                    });
                })
            })
        }),
    ),
    Mutant::new(
        "FirstCaseWins",
        "takes names in another letter case for copies",
        "header_names_differing_only_by_case_are_one",
        "the field headers of one name in three forms",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                with(&envelope, |all| {
                    let mut kept: Vec<HeaderField> = Vec::new();
                    for header in std::mem::take(all) {
                        let is_copy = |other: &HeaderField| {
                            other.name() != header.name()
                                && other.name().eq_ignore_ascii_case(header.name())
                        };
                        if !kept.iter().any(is_copy) {
                            kept.push(header);
                        }
                    }
                    *all = kept;
                })
            })
        }),
    ),
    Mutant::new(
        "UserHeaderWins",
        "lets a header of the hook replace metadata of the same name",
        "header_reserved_names_cannot_override",
        "the metadata ankusa_tenant_id",
        Seam::Wire(|inner, _| {
            rewriting(inner, |entry| {
                let fields: Value = serde_json::from_slice(&entry.body).unwrap_or_default();
                let forged = fields["headers"]["ankusa_tenant_id"].as_str();
                if let Some(forged) = forged {
                    rewrite_attribute(entry, "ankusa_tenant_id", forged);
                }
            })
        }),
    ),
    Mutant::new(
        "CopiesCredentials",
        "carries credentials under another name",
        "header_credentials_stay_behind",
        "the field headers of headers that never travel",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                map(&envelope, |name, value| match &*name.to_lowercase() {
                    "authorization" => ("X-Forwarded-Authorization".to_owned(), value),
                    _ => (name, value),
                })
            })
        }),
    ),
    Mutant::new(
        "IgnoresForwarding",
        "forwards all headers whatever is chosen",
        "header_forwarding_is_by_list",
        "the field headers of a list of one name",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                let ctx = ctx.with_forward_headers(HeaderForwarding::Default);
                Box::pin(async move { inner.deliver(&envelope, &ctx).await })
            })
        }),
    ),
    Mutant::new(
        "SortsHeaders",
        "sorts headers by name",
        "header_order_of_arrival_kept",
        "of headers out of alphabetical order",
        Seam::Sink(|inner, _| {
            altering(inner, |envelope| {
                with(&envelope, |all| {
                    all.sort_by_key(|header| header.name().to_ascii_lowercase());
                })
            })
        }),
    ),
];

/// The envelope with its headers changed.
fn with(envelope: &Envelope, change: impl FnOnce(&mut Vec<HeaderField>)) -> Envelope {
    let mut headers = envelope.headers().to_vec();
    change(&mut headers);
    envelope.clone().with_headers(headers)
}

/// The envelope with each of its headers changed.
fn map(envelope: &Envelope, change: fn(String, String) -> (String, String)) -> Envelope {
    with(envelope, |all| {
        for header in all {
            let (name, value) = change(header.name().to_owned(), header.value().to_owned());
            *header = HeaderField::new(name, value);
        }
    })
}
