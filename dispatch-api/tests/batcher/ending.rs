//! Drains, owners that withdraw, and runtimes that end.

use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dispatch_api::{DrainReport, FlushReason, Outcome};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, answers, ids, limited, ms, names, settings};

#[tokio::test(start_paused = true)]
async fn a_drain_sends_what_waits_at_once_and_answers_everyone() {
    let bench = Bench::new(30, limited(|s| s.linger = Duration::from_secs(60)));
    let mut handles = Vec::new();
    for name in names(0..5) {
        handles.push(bench.submit_of("a", &name).await);
    }
    let report = bench
        .batcher
        .drain(Instant::now() + Duration::from_secs(5))
        .await;
    assert_eq!(report, DrainReport::new(5, 0));
    assert_eq!(ids(&answers(handles).await), names(0..5));
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(
        (bench.sent()[0].at, bench.sent()[0].reason),
        (ms(0), FlushReason::Requested)
    );
    let late = bench
        .submit_of("a", "late")
        .await
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(late.code(), "SinkClosed");
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_a_dead_destination_ends_at_its_deadline_and_everyone_is_answered() {
    let settings = limited(|s| {
        s.max_inflight = NonZeroUsize::MIN;
        s.max_entries = NonZeroUsize::new(2).unwrap();
    });
    let bench = Bench::new(60_000, settings);
    let mut handles = Vec::new();
    for name in names(0..5) {
        handles.push(bench.submit_of("a", &name).await);
    }
    let start = Instant::now();
    let report = bench.batcher.drain(start + Duration::from_secs(5)).await;
    assert_eq!(report, DrainReport::new(0, 5));
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    let answers = answers(handles).await;
    assert_eq!(
        ids(&answers),
        ["0", "1", "SinkClosed", "SinkClosed", "SinkClosed"]
    );
    assert_eq!(bench.sent().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_waits_of_an_owner_that_withdrew_is_refused_and_his_neighbours_go_on() {
    let bench = Bench::new(100, limited(|s| s.max_inflight = NonZeroUsize::MIN));
    let left = bench.submit_of("a", "gone: in flight").await;
    sleep(ms(30)).await;
    let mut waiting = Vec::new();
    for name in ["0", "gone: waits", "1"] {
        waiting.push(bench.submit_in("group", name).await);
    }
    bench.batcher.withdraw();
    assert!(!waiting[1].is_finished(), "nobody has withdrawn yet");
    bench.recorder.withdrawn.store(true, Ordering::Relaxed);
    bench.batcher.withdraw();
    waiting.push(bench.submit_in("group", "gone: late").await);
    let start = Instant::now();
    let refused = waiting.remove(1).await.unwrap().unwrap_err();
    assert_eq!(
        (refused.code(), refused.outcome()),
        ("SinkClosed", Outcome::NotStored)
    );
    assert_eq!(start.elapsed(), ms(0));
    assert_eq!(ids(&answers(waiting).await), ["0", "1", "SinkClosed"]);
    assert_eq!(ids(&answers(vec![left]).await), ["gone: in flight"]);
    assert_eq!(bench.batches(), [vec!["gone: in flight"], vec!["0", "1"]]);
    assert_eq!(bench.batcher.load(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_flush_ends_the_linger_of_what_waits_and_not_of_what_comes() {
    let bench = Bench::new(0, settings());
    let first = bench.submit_of("a", "first").await;
    bench.batcher.flush();
    first.await.unwrap().unwrap();
    assert_eq!(bench.sent()[0].at, ms(0));
    bench.submit_of("a", "second").await.await.unwrap().unwrap();
    assert_eq!(bench.sent()[1].at, ms(20));
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

#[test]
fn a_runtime_may_end_and_the_next_one_goes_on() {
    let first = runtime();
    let bench = first.block_on(async { Bench::new(60_000, settings()) });
    first.block_on(async {
        bench.submit_of("a", "in flight").await;
        sleep(ms(30)).await;
        assert_eq!(bench.batcher.load(), (1, 1));
    });
    drop(first);
    assert_eq!(bench.batcher.load(), (0, 0));

    let second = runtime();
    second.block_on(async {
        bench.submit_of("a", "later").await.await.unwrap().unwrap();
    });
}

#[test]
fn a_caller_that_outlives_the_runtime_of_its_batch_takes_no_later_entry_along() {
    let (first, second) = (runtime(), runtime());
    let bench = first.block_on(async { Bench::new(60_000, settings()) });
    first.block_on(bench.submit_of("a", "of the first"));
    let caller = second.block_on(bench.submit_of("a", "caller"));
    drop(first);
    let answers = second.block_on(async {
        // Both are admitted before the caller looks at its answer.
        let mut later = ["0", "1"].map(|name| Box::pin(bench.submission("a", name)));
        for submission in &mut later {
            assert!(submission.as_mut().now_or_never().is_none());
        }
        caller.abort();
        let _ = caller.await;
        join_all(later).await
    });
    assert_eq!(ids(&answers), ["0", "1"]);
}

#[test]
fn a_runtime_that_is_over_answers_who_comes_and_hangs_nobody() {
    let over = runtime();
    let bench = over.block_on(async { Bench::new(0, settings()) });
    let entered = over.handle().clone();
    drop(over);
    let refused = {
        let _entered = entered.enter();
        bench.submission("a", "late").now_or_never().unwrap()
    };
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.code(), refused.outcome()),
        ("BatcherStopped", Outcome::NotStored)
    );
    let next = runtime();
    let answer = next.block_on(bench.submission("a", "next"));
    assert_eq!(ids(&[answer]), ["next"]);
}

#[test]
fn a_submission_without_a_runtime_panics_and_the_next_within_one_is_sent() {
    let runtime = runtime();
    let bench = runtime.block_on(async { Bench::new(0, settings()) });
    let without = || bench.submission("a", "lost").now_or_never();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(without));
    assert!(panicked.is_err());
    assert_eq!(bench.batcher.load(), (0, 0));
    let answer = runtime.block_on(bench.submission("a", "sent"));
    assert_eq!(answer.unwrap().provider_id.as_deref(), Some("sent"));
}
