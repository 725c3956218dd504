//! The batcher, on a paused clock: instants are exact.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod bench;
mod ending;

use std::num::NonZeroUsize;

use dispatch_api::{BatchEntry, ErrorClass, FlushReason, Outcome, QueueFull, Receipt, SinkError};
use tokio::time::{Instant, sleep};

use self::bench::{Bench, all_ok, answers, ids, limited, ms, names, settings};

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
