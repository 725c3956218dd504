//! Mutants of the bounds of batches.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{BatchSettings, DeliveryContext, ErrorClass, Sink};

use super::tools::{altering, delivering, remade};
use super::{Mutant, Parts, Seam};
use crate::reference::ReferenceSink;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "CountPlusOne",
        "puts one message more into a request than it may",
        "batch_never_exceeds_count_limit",
        "messages of one request: expected at most 10; observed 11",
        Seam::Sink(|_, parts| {
            with_settings(parts, |settings| {
                settings.max_entries = NonZeroUsize::MIN.saturating_add(10);
            })
        }),
    ),
    Mutant::new(
        "BytesPlusOne",
        "makes a request one byte larger than it may",
        "batch_never_exceeds_byte_limit",
        "bytes of one request: expected at most 16384; observed 16385",
        Seam::Sink(|_, parts| with_settings(parts, |settings| settings.max_bytes += 1)),
    ),
    Mutant::new(
        "NeverQuiteFull",
        "leaves the last byte of a request empty",
        "batch_uses_the_whole_byte_limit",
        "the first request: expected Some((4, 16384)); observed Some((3, 12288))",
        Seam::Sink(|_, parts| with_settings(parts, |settings| settings.max_bytes -= 1)),
    ),
    Mutant::new(
        "WaitsForFull",
        "sends a batch when it is full and no sooner",
        "batch_lone_message_flushes_within_linger",
        "a lone delivery: expected an end within",
        Seam::Sink(|_, parts| {
            with_settings(parts, |settings| {
                settings.linger = Duration::from_secs(3_600);
            })
        }),
    ),
    Mutant::new(
        "AlwaysLingers",
        "lets a full batch wait as long as any other",
        "batch_full_does_not_linger",
        "a full batch: expected an end within",
        Seam::Sink(|inner, parts| {
            let linger = parts.config.batching.map(|settings| settings.linger);
            delivering(inner, move |inner, envelope, ctx| {
                Box::pin(async move {
                    if !ctx.is_direct() {
                        tokio::time::sleep(linger.unwrap_or_default()).await;
                    }
                    inner.deliver(&envelope, &ctx).await
                })
            })
        }),
    ),
    Mutant::new(
        "DirectLingers",
        "lets a direct delivery wait for company",
        "direct_delivery_does_not_linger",
        "a direct delivery: expected an end within",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let own = DeliveryContext::attempt(ctx.attempt_number());
                    let own = match ctx.deadline() {
                        Some(deadline) => own.with_deadline(deadline),
                        None => own,
                    };
                    inner.deliver(&envelope, &own).await
                })
            })
        }),
    ),
    Mutant::new(
        "DirectForgetsHeaders",
        "leaves the headers out of a direct delivery",
        "batching_off_equals_batching_on",
        "directly: expected the message byte for byte",
        Seam::Sink(|inner, _| {
            let bare = altering(Arc::clone(&inner), |envelope| envelope.with_headers([]));
            delivering(inner, move |inner, envelope, ctx| {
                let bare = Arc::clone(&bare);
                Box::pin(async move {
                    match ctx.is_direct() {
                        true => bare.deliver(&envelope, &ctx).await,
                        false => inner.deliver(&envelope, &ctx).await,
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "DirectIsTransient",
        "takes every failure of a direct delivery for one that time heals",
        "direct_errors_equal_batched_errors",
        "DestinationMissing, in a batch and directly: expected",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let answer = inner.deliver(&envelope, &ctx).await;
                    answer.map_err(|error| match ctx.is_direct() {
                        true => remade(&error, ErrorClass::Transient, error.outcome()),
                        false => error,
                    })
                })
            })
        }),
    ),
];

/// A sink whose batches have other bounds than its options say.
pub(super) fn with_settings(
    mut parts: Parts,
    change: impl FnOnce(&mut BatchSettings),
) -> Arc<dyn Sink> {
    if let Some(settings) = &mut parts.config.batching {
        change(settings);
    }
    Arc::new(ReferenceSink::new(
        parts.config,
        parts.wire,
        &parts.services,
    ))
}
