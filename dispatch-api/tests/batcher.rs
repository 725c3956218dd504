//! The batcher, on a paused clock: instants are exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dispatch_api::{
    Answer, BatchEntry, BatchSender, BatchSettings, Batcher, DrainReport, ErrorClass, Flush,
    FlushReason, Outcome, QueueFull, Receipt, SinkError,
};
use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// One request, as the sender saw it.
#[derive(Clone, Debug)]
struct Sent {
    at: Duration,
    entries: Vec<String>,
    reason: FlushReason,
}

/// Takes `latency` for a request, and answers it as told.
struct Recorder {
    start: Instant,
    latency: Duration,
    sent: Mutex<Vec<Sent>>,
    answer: Box<Reply>,
    /// Whether the owner of what is `gone` has withdrawn.
    withdrawn: AtomicBool,
}

type Reply = dyn Fn(&[String]) -> Vec<Answer> + Send + Sync;

#[derive(Clone)]
struct Through(Arc<Recorder>);

impl BatchSender for Through {
    type Entry = String;

    async fn send(&self, entries: Vec<String>, flush: Flush) -> Vec<Answer> {
        self.0.sent.lock().unwrap().push(Sent {
            at: self.0.start.elapsed(),
            entries: entries.clone(),
            reason: flush.reason,
        });
        sleep(self.0.latency).await;
        (self.0.answer)(&entries)
    }

    fn is_withdrawn(&self, entry: &String) -> bool {
        entry.starts_with("gone") && self.0.withdrawn.load(Ordering::Relaxed)
    }
}

#[test]
fn a_submission_without_a_runtime_panics_and_the_next_within_one_is_sent() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let bench = runtime.block_on(async { Bench::new(0, BatchSettings::default()) });
    let submit = |text: &str| {
        let entry = BatchEntry::new("acme", text.len(), text.to_owned());
        bench
            .batcher
            .submit(entry, |_| unreachable!("there is room"))
    };
    let without = std::panic::AssertUnwindSafe(|| submit("lost").now_or_never());
    assert!(std::panic::catch_unwind(without).is_err());
    assert_eq!(bench.batcher.load(), (0, 0));
    let answer = runtime.block_on(submit("sent"));
    assert_eq!(answer.unwrap().provider_id.as_deref(), Some("sent"));
}

struct Bench {
    recorder: Arc<Recorder>,
    batcher: Arc<Batcher<Through>>,
}

fn all_ok(entries: &[String]) -> Vec<Answer> {
    let ids = entries.iter();
    ids.map(|entry| Ok(Receipt::new().with_provider_id(entry)))
        .collect()
}

impl Bench {
    fn new(latency_ms: u64, settings: BatchSettings) -> Self {
        Self::answering(latency_ms, settings, all_ok)
    }

    fn answering(
        latency_ms: u64,
        settings: BatchSettings,
        answer: impl Fn(&[String]) -> Vec<Answer> + Send + Sync + 'static,
    ) -> Self {
        let recorder = Arc::new(Recorder {
            start: Instant::now(),
            latency: Duration::from_millis(latency_ms),
            sent: Mutex::default(),
            answer: Box::new(answer),
            withdrawn: AtomicBool::new(false),
        });
        let batcher = Batcher::new(Through(Arc::clone(&recorder)), settings);
        Self {
            recorder,
            batcher: Arc::new(batcher),
        }
    }

    /// Submits in order: the entry is admitted when this returns.
    async fn submit(&self, entry: BatchEntry<String>) -> JoinHandle<Answer> {
        let batcher = Arc::clone(&self.batcher);
        let submitted = tokio::spawn(async move {
            let pause = Duration::from_millis(7);
            batcher.submit(entry, |full| full.into_error(pause)).await
        });
        tokio::task::yield_now().await;
        submitted
    }

    /// A submission that nobody has polled.
    async fn submission(&self, tenant: &str, name: &str) -> Answer {
        let entry = BatchEntry::new(tenant, 100, name.to_owned());
        let full = |full: QueueFull| full.into_error(ms(7));
        self.batcher.submit(entry, full).await
    }

    async fn submit_of(&self, tenant: &str, name: &str) -> JoinHandle<Answer> {
        self.submit(BatchEntry::new(tenant, 100, name.to_owned()))
            .await
    }

    async fn submit_in(&self, group: &str, name: &str) -> JoinHandle<Answer> {
        let entry = BatchEntry::new("t", 100, name.to_owned());
        self.submit(entry.with_ordering_key(group)).await
    }

    fn sent(&self) -> Vec<Sent> {
        self.recorder.sent.lock().unwrap().clone()
    }

    fn batches(&self) -> Vec<Vec<String>> {
        self.sent().into_iter().map(|sent| sent.entries).collect()
    }
}

fn settings() -> BatchSettings {
    BatchSettings::default()
}

fn limited(change: impl FnOnce(&mut BatchSettings)) -> BatchSettings {
    let mut settings = BatchSettings::default();
    change(&mut settings);
    settings
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn names(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

async fn answers(handles: Vec<JoinHandle<Answer>>) -> Vec<Answer> {
    let mut answers = Vec::new();
    for handle in handles {
        answers.push(handle.await.unwrap());
    }
    answers
}

fn ids(answers: &[Answer]) -> Vec<&str> {
    let ids = answers.iter().map(|answer| match answer {
        Ok(receipt) => receipt.provider_id.as_deref().unwrap(),
        Err(error) => error.code(),
    });
    ids.collect()
}

#[tokio::test(start_paused = true)]
async fn a_lone_entry_leaves_exactly_after_the_linger() {
    let bench = Bench::new(0, settings());
    let submitted = bench.submit_of("a", "0").await;
    submitted.await.unwrap().unwrap();
    let sent = bench.sent();
    assert_eq!((sent[0].at, sent[0].reason), (ms(20), FlushReason::Linger));
}

#[tokio::test(start_paused = true)]
async fn the_linger_runs_from_the_first_arrival_and_a_full_batch_does_not_wait_for_it() {
    let bench = Bench::new(0, settings());
    let mut handles = vec![bench.submit_of("a", "0").await];
    sleep(ms(5)).await;
    for name in names(1..10) {
        handles.push(bench.submit_of("a", &name).await);
    }
    handles.push(bench.submit_of("a", "10").await);
    answers(handles).await;
    let sent = bench.sent();
    assert_eq!((sent[0].at, sent[0].reason), (ms(5), FlushReason::Entries));
    assert_eq!(sent[0].entries, names(0..10));
    // A timer belongs to one batch: the eleventh entry waits its own linger.
    assert_eq!((sent[1].at, sent[1].reason), (ms(25), FlushReason::Linger));
    assert_eq!(sent[1].entries, ["10"]);
}

#[tokio::test(start_paused = true)]
async fn under_a_flood_every_batch_is_full() {
    let bench = Bench::new(30, settings());
    let mut handles = Vec::new();
    for name in names(0..400) {
        handles.push(bench.submit_of("a", &name).await);
    }
    let answers = answers(handles).await;
    assert_eq!(ids(&answers), names(0..400));
    let sizes: Vec<usize> = bench.batches().iter().map(Vec::len).collect();
    assert_eq!(sizes, vec![10; 40]);
}

#[tokio::test(start_paused = true)]
async fn two_entries_that_do_not_fit_together_leave_in_two_requests() {
    let bench = Bench::new(0, settings());
    let mut handles = Vec::new();
    for name in ["0", "1"] {
        let entry = BatchEntry::new("a", 200_000, name.to_owned());
        handles.push(bench.submit(entry).await);
    }
    answers(handles).await;
    let sent = bench.sent();
    assert_eq!((sent[0].at, sent[0].reason), (ms(0), FlushReason::Bytes));
    assert_eq!((sent[1].at, sent[1].reason), (ms(20), FlushReason::Linger));
    assert_eq!(bench.batches(), [["0"], ["1"]]);
}

#[tokio::test(start_paused = true)]
async fn exactly_the_bytes_of_a_batch_leave_together_at_once() {
    let bench = Bench::new(0, settings());
    let mut handles = Vec::new();
    for name in ["0", "1"] {
        let entry = BatchEntry::new("a", 131_072, name.to_owned());
        handles.push(bench.submit(entry).await);
    }
    answers(handles).await;
    assert_eq!(bench.batches(), [["0", "1"]]);
    assert_eq!(bench.sent()[0].at, ms(0));
}

#[tokio::test(start_paused = true)]
async fn an_entry_larger_than_a_batch_goes_alone() {
    let bench = Bench::new(0, settings());
    let small = bench.submit_of("a", "small").await;
    let large = BatchEntry::new("a", 1_000_000, "large".to_owned());
    let large = bench.submit(large).await;
    answers(vec![small, large]).await;
    assert_eq!(bench.batches(), [["small"], ["large"]]);
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_in_flight_than_allowed_and_the_rest_goes_on_as_they_return() {
    let bench = Bench::new(
        50,
        limited(|s| s.max_inflight = NonZeroUsize::new(2).unwrap()),
    );
    let mut handles = Vec::new();
    for name in names(0..40) {
        handles.push(bench.submit_of("a", &name).await);
    }
    answers(handles).await;
    let times: Vec<_> = bench.sent().iter().map(|sent| sent.at).collect();
    assert_eq!(times, [ms(0), ms(0), ms(50), ms(50)]);
}

#[tokio::test(start_paused = true)]
async fn tenants_take_turns() {
    let bench = Bench::new(50, limited(|s| s.max_inflight = NonZeroUsize::MIN));
    let mut handles = Vec::new();
    for number in 0..30 {
        handles.push(bench.submit_of("flood", &format!("f{number}")).await);
    }
    for number in 0..3 {
        handles.push(bench.submit_of("quiet", &format!("q{number}")).await);
    }
    answers(handles).await;
    let batches = bench.batches();
    assert_eq!(batches[0].len(), 10);
    assert_eq!(batches[1][..6], ["f10", "q0", "f11", "q1", "f12", "q2"]);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_one_tenant_is_refused_at_its_own_ceiling_and_delays_the_other_by_two_requests()
{
    let bench = Bench::new(50, settings());
    let mut flood = Vec::new();
    for number in 0..50_000 {
        flood.push(bench.submit_of("flood", &format!("f{number}")).await);
    }
    for number in 0..20 {
        let start = Instant::now();
        let quiet = bench.submit_of("quiet", &format!("q{number}")).await;
        quiet.await.unwrap().unwrap();
        let waited = start.elapsed();
        assert!(waited <= ms(20 + 2 * 50), "{number} waited {waited:?}");
    }
    let answers = answers(flood).await;
    let refused = answers.iter().filter(|answer| answer.is_err());
    assert_eq!(refused.clone().count(), 50_000 - 1_024);
    for answer in refused {
        let error = answer.as_ref().unwrap_err();
        assert!(error.text().starts_with("tenant_entries"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_would_pass_a_ceiling_is_refused_with_a_pause_and_its_reason() {
    let cases = [
        (
            limited(|s| s.queue_max_entries = 2),
            QueueFull::Entries,
            "b",
        ),
        (
            limited(|s| s.queue_max_tenant_entries = 2),
            QueueFull::TenantEntries,
            "a",
        ),
        (limited(|s| s.queue_max_bytes = 299), QueueFull::Bytes, "b"),
    ];
    for (settings, reason, tenant) in cases {
        let bench = Bench::new(0, settings);
        let first = bench.submit_of("a", "0").await;
        let second = bench.submit_of("a", "1").await;
        let refused = bench.submit_of(tenant, "2").await;
        let refused = refused.await.unwrap().unwrap_err();
        assert_eq!(refused.class(), ErrorClass::RetryAfter(ms(7)));
        assert_eq!(refused.code(), "BatchQueueFull");
        assert_eq!(refused.outcome(), Outcome::NotStored);
        assert!(refused.text().starts_with(reason.as_str()), "{refused}");
        answers(vec![first, second]).await;
        // The places are free again.
        bench.submit_of(tenant, "3").await.await.unwrap().unwrap();
        assert_eq!(bench.batches(), [vec!["0", "1"], vec!["3"]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenants_ceiling_does_not_touch_its_neighbour() {
    let bench = Bench::new(0, limited(|s| s.queue_max_tenant_entries = 1));
    let first = bench.submit_of("a", "0").await;
    let other = bench.submit_of("b", "1").await;
    assert_eq!(ids(&answers(vec![first, other]).await), ["0", "1"]);
}

#[tokio::test(start_paused = true)]
async fn a_group_has_one_request_in_flight_in_order_of_admission_while_others_go_on() {
    let bench = Bench::new(100, settings());
    let mut handles = Vec::new();
    for name in ["a0", "a1"] {
        handles.push(bench.submit_in("a", name).await);
    }
    sleep(ms(30)).await;
    for (group, name) in [("a", "a2"), ("b", "b0"), ("a", "a3")] {
        handles.push(bench.submit_in(group, name).await);
    }
    answers(handles).await;
    let sent = bench.sent();
    let seen: Vec<_> = sent
        .iter()
        .map(|sent| (sent.at, sent.entries.clone()))
        .collect();
    assert_eq!(
        seen,
        [
            (ms(20), vec!["a0".to_owned(), "a1".to_owned()]),
            (ms(50), vec!["b0".to_owned()]),
            (ms(120), vec!["a2".to_owned(), "a3".to_owned()]),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn one_group_of_many_tenants_keeps_the_order_of_admission() {
    let bench = Bench::new(
        10,
        limited(|s| s.max_entries = NonZeroUsize::new(3).unwrap()),
    );
    let mut handles = Vec::new();
    for (number, tenant) in ["a", "a", "b", "a", "b", "c", "c"].into_iter().enumerate() {
        let entry = BatchEntry::new(tenant, 1, number.to_string());
        handles.push(bench.submit(entry.with_ordering_key("all")).await);
    }
    answers(handles).await;
    assert_eq!(bench.batches().concat(), names(0..7));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_before_its_entry_left_takes_it_out() {
    let bench = Bench::new(0, settings());
    let stays = bench.submit_of("a", "stays").await;
    let goes = bench.submit_of("a", "goes").await;
    goes.abort();
    let _ = goes.await;
    stays.await.unwrap().unwrap();
    assert_eq!(bench.batches(), [["stays"]]);
    assert_eq!(bench.batcher.load(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_later_harms_nobody_and_its_entry_counts_as_sent() {
    let bench = Bench::new(50, settings());
    let stays = bench.submit_of("a", "stays").await;
    let goes = bench.submit_of("a", "goes").await;
    sleep(ms(30)).await;
    goes.abort();
    stays.await.unwrap().unwrap();
    assert_eq!(bench.batches(), [["stays", "goes"]]);
    bench.submit_of("a", "next").await.await.unwrap().unwrap();
    assert_eq!(bench.batcher.load(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_happens_before_the_first_poll() {
    let bench = Bench::new(0, settings());
    let entry = BatchEntry::new("a", 1, "never".to_owned());
    let submission = bench.batcher.submit(entry, |full| full.into_error(ms(1)));
    assert_eq!(bench.batcher.load(), (0, 0));
    drop(submission);
    sleep(ms(100)).await;
    assert!(bench.sent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn cancelled_callers_leave_no_slot_behind() {
    let bench = Bench::new(10, limited(|s| s.queue_max_entries = 4));
    for round in 0..50 {
        let mut handles = Vec::new();
        for name in names(0..4) {
            handles.push(bench.submit_of("a", &name).await);
        }
        if round % 2 == 0 {
            sleep(ms(25)).await;
        }
        for handle in handles {
            handle.abort();
            let _ = handle.await;
        }
        sleep(ms(40)).await;
    }
    bench.submit_of("a", "last").await.await.unwrap().unwrap();
    assert_eq!(bench.batcher.load(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn each_caller_gets_its_own_answer() {
    let bench = Bench::answering(0, settings(), |entries| {
        let answers = entries.iter().map(|entry| {
            let number: u32 = entry.parse().unwrap();
            if number.is_multiple_of(3) {
                Err(SinkError::permanent(format!("code-{number}"), "refused"))
            } else {
                Ok(Receipt::new().with_provider_id(entry))
            }
        });
        answers.collect()
    });
    let mut handles = Vec::new();
    for name in names(0..20) {
        handles.push(bench.submit_of("a", &name).await);
    }
    let answers = answers(handles).await;
    for (number, id) in ids(&answers).into_iter().enumerate() {
        let expected = if number % 3 == 0 {
            format!("code-{number}")
        } else {
            number.to_string()
        };
        assert_eq!(id, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_too_short_or_too_long_still_answers_everyone_once() {
    let bench = Bench::answering(0, settings(), |entries| {
        let count = if entries.len() == 3 { 1 } else { 9 };
        (0..count)
            .map(|_| Ok(Receipt::new().with_provider_id("ok")))
            .collect()
    });
    let mut handles = Vec::new();
    for name in names(0..3) {
        handles.push(bench.submit_of("a", &name).await);
    }
    let short = answers(handles).await;
    assert_eq!(
        ids(&short),
        ["ok", "BatchEntryMissing", "BatchEntryMissing"]
    );
    assert_eq!(short[1].as_ref().unwrap_err().outcome(), Outcome::Unknown);
    let long = bench.submit_of("a", "alone").await;
    assert_eq!(ids(&answers(vec![long]).await), ["ok"]);
}

#[tokio::test(start_paused = true)]
async fn a_sender_that_panics_fails_its_own_batch_and_the_next_one_works() {
    let bench = Bench::answering(0, settings(), |entries| {
        assert_ne!(entries[0], "bad");
        all_ok(entries)
    });
    let bad = bench
        .submit_of("a", "bad")
        .await
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(
        (bad.code(), bad.outcome()),
        ("SinkPanicked", Outcome::Unknown)
    );
    bench.submit_of("a", "good").await.await.unwrap().unwrap();
    assert_eq!(bench.batcher.load(), (0, 0));
}

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
