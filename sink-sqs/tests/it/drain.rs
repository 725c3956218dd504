//! Draining while deliveries wait to leave.

use std::time::Duration;

use dispatch_api::{DrainReport, Sink as _};
use sink_testkit::sqs::{Fault, FaultRule, Operation};
use tokio::time::{Instant, timeout};

use crate::batch_bench::{Batching, codes, names, numbered};
use crate::bench::QUEUE;

const LONG_LINGER_MS: u64 = 60_000;

/// A sink that lets nothing leave by itself for a minute, on a slow server.
async fn slow(
    change: impl FnOnce(sink_sqs::SqsSinkConfigBuilder) -> sink_sqs::SqsSinkConfigBuilder,
) -> Batching {
    let bench = Batching::with(QUEUE, |config| {
        change(config.batch_linger_ms(LONG_LINGER_MS))
    })
    .await;
    let late = Fault::delay_after_storing(Duration::from_millis(300));
    bench
        .server
        .add_fault(FaultRule::on(Operation::SendMessageBatch, late).always());
    bench
}

#[tokio::test]
async fn five_that_wait_when_the_sink_is_drained_are_one_request_and_five_successes() {
    let bench = slow(|config| config).await;
    let mut waiting = Vec::new();
    for number in 0..5 {
        waiting.push(bench.start(numbered(number)));
        tokio::task::yield_now().await;
    }
    let report = bench
        .sink
        .drain(Instant::now() + Duration::from_secs(30))
        .await;
    assert_eq!(report, DrainReport::new(5, 0));
    for delivery in waiting {
        delivery.await.unwrap().unwrap();
    }
    assert_eq!(bench.sizes(), [5]);
    assert_eq!(bench.stored(), names(0..5));
}

#[tokio::test]
async fn a_queue_drained_at_its_ceiling_in_the_same_tick_answers_all_that_were_submitted() {
    const CEILING: u64 = 64;
    let bench = slow(|config| {
        config
            .batch_queue_max(CEILING)
            .batch_queue_tenant_max(CEILING)
    })
    .await;
    // Polled by hand and not awaited: nothing else runs before the drain begins.
    let envelopes: Vec<_> = (0..70).map(numbered).collect();
    let ctx = crate::batch_bench::attempt(1);
    let deliveries = envelopes
        .iter()
        .map(|envelope| bench.sink.deliver(envelope, &ctx));
    let all = futures_util::future::join_all(deliveries);
    let drained = bench.sink.drain(Instant::now() + Duration::from_secs(30));
    let both = async { tokio::join!(biased; all, drained) };
    let (answers, report) = timeout(Duration::from_secs(60), both)
        .await
        .expect("none hangs");
    let mut expected = vec!["ok"; 64];
    expected.extend(["BatchQueueFull"; 6]);
    assert_eq!(codes(&answers), expected);
    assert_eq!(report, DrainReport::new(64, 0));
    assert_eq!(bench.stored().len(), 64);
}
