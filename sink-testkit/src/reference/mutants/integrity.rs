//! Mutants of integrity.

use dispatch_api::Receipt;

use super::tools::{changing_results, delivering};
use super::{Mutant, Seam};
use crate::reference::broker::{attributes_digest, body_digest};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "DigestIgnored",
        "does not look at the digest of the body",
        "body_digest_mismatch_is_error",
        "a wrong digest of the body: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for stored in &mut results.stored {
                    let mut entries = request.entries.iter();
                    if let Some(entry) = entries.find(|entry| entry.id == stored.id)
                        && stored.body_sha256.is_some()
                    {
                        stored.body_sha256 = Some(body_digest(&entry.body));
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "BodyDigestOnly",
        "does not look at the digest of the attributes",
        "attributes_digest_mismatch_is_error",
        "a wrong digest of the attributes: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for stored in &mut results.stored {
                    let mut entries = request.entries.iter();
                    if let Some(entry) = entries.find(|entry| entry.id == stored.id)
                        && stored.attributes_sha256.is_some()
                    {
                        stored.attributes_sha256 = Some(attributes_digest(&entry.attributes));
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "MissingDigestIsFine",
        "takes a reply without digests for a confirmation",
        "missing_digest_is_error",
        "no digest: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for stored in &mut results.stored {
                    let mut entries = request.entries.iter();
                    if let Some(entry) = entries.find(|entry| entry.id == stored.id)
                        && stored.body_sha256.is_none()
                    {
                        stored.body_sha256 = Some(body_digest(&entry.body));
                        stored.attributes_sha256 = Some(attributes_digest(&entry.attributes));
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "DirectIsUnchecked",
        "checks digests only of what a dispatcher delivers",
        "digests_are_checked_for_direct_deliveries",
        "delivered directly: expected an error; observed Ok",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    match inner.deliver(&envelope, &ctx).await {
                        Err(error) if ctx.is_direct() && error.code() == "DigestMismatch" => {
                            Ok(Receipt::new())
                        }
                        answer => answer,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "DigestOfSixAttributes",
        "expects the digest of the first six attributes",
        "honest_digests_are_accepted",
        "honest digests of envelope 0: expected Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |request, results| {
                for stored in &mut results.stored {
                    let mut entries = request.entries.iter();
                    if let Some(entry) = entries.find(|entry| entry.id == stored.id)
                        && entry.attributes.len() > 6
                    {
                        stored.attributes_sha256 = Some("0".repeat(64));
                    }
                }
            })
        }),
    ),
    Mutant::new(
        "MismatchFailsAll",
        "lets a wrong digest of one message count for the whole batch",
        "a_digest_mismatch_fails_its_own_caller_only",
        "caller 0 of a batch with one wrong digest: expected Ok",
        Seam::Wire(|inner, _| {
            changing_results(inner, |_, results| {
                let wrong = Some("0".repeat(64));
                if results
                    .stored
                    .iter()
                    .any(|entry| entry.body_sha256 == wrong)
                {
                    for entry in &mut results.stored {
                        entry.body_sha256.clone_from(&wrong);
                    }
                }
            })
        }),
    ),
];
