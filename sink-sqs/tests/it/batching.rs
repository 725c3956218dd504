//! Deliveries of a dispatcher, sent along with others.

use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    Admission, DeliveryContext, Envelope, EnvelopeId, ErrorClass, HostServices, Ordering, Outcome,
    Sink as _,
};
use serde_json::{Value, json};
use sink_testkit::sqs::{
    Answer, Damage, EntryFault, EntrySelector, ErrorCode, Fault, Operation, SqsServer,
};
use tokio::time::Instant;

use crate::batch_bench::{
    Batching, LINGER_MS, attempt, code, codes, envelope, names, numbered, ok_but, ten,
};
use crate::bench::{FIFO_QUEUE, QUEUE, config, is_pause, parts};

#[tokio::test]
async fn ten_deliveries_are_one_request_numbered_by_position_and_each_gets_its_own_receipt() {
    let bench = Batching::on(QUEUE).await;
    let answers = bench.deliver(ten()).await;
    let [entries] = &*bench.batches() else {
        panic!("one request")
    };
    let ids: Vec<_> = entries.iter().map(|entry| entry["Id"].clone()).collect();
    assert_eq!(
        ids,
        (0..10).map(|id| json!(id.to_string())).collect::<Vec<_>>()
    );
    assert!(bench.server.requests_of(Operation::SendMessage).is_empty());
    for (stored, answer) in bench.server.messages(QUEUE).unwrap().iter().zip(&answers) {
        let receipt = answer.as_ref().unwrap();
        assert_eq!(receipt.provider_id.as_deref(), Some(&*stored.message_id));
    }
    assert_eq!(bench.stored(), names(0..10));
}

#[tokio::test]
async fn a_batch_carries_what_a_single_send_carries() {
    let batched = Batching::on(FIFO_QUEUE).await;
    let single = Batching::with(FIFO_QUEUE, |config| config.batch(false)).await;
    let envelope = numbered(0).with_dedupe_key("mv-88 🌊");
    batched
        .deliver(vec![envelope.clone()])
        .await
        .pop()
        .unwrap()
        .unwrap();
    single.deliver(vec![envelope]).await.pop().unwrap().unwrap();
    let first = &batched.server.messages(FIFO_QUEUE).unwrap()[0];
    let second = &single.server.messages(FIFO_QUEUE).unwrap()[0];
    assert_eq!(first.body, second.body);
    assert_eq!(first.attributes, second.attributes);
    assert_eq!(first.group_id, second.group_id);
    assert_eq!(first.deduplication_id, second.deduplication_id);
}

#[tokio::test]
async fn who_bounds_what_runs_and_the_order_follow_from_batching() {
    let batched = Batching::on(FIFO_QUEUE).await;
    assert_eq!(batched.sink.admission(), Admission::SelfLimited);
    assert_eq!(batched.sink.guarantees().ordering, Ordering::PerKey);
    let single = Batching::with(FIFO_QUEUE, |config| config.batch(false)).await;
    assert_eq!(single.sink.admission(), Admission::HostLimited);
    assert_eq!(
        single.sink.guarantees().ordering,
        Ordering::PerKeyWhenAwaited
    );
}

#[tokio::test]
async fn a_direct_delivery_and_one_without_batching_are_requests_of_their_own() {
    let bench = Batching::with(QUEUE, |config| config.batch_linger_ms(60_000)).await;
    let direct = DeliveryContext::direct();
    bench.sink.deliver(&numbered(0), &direct).await.unwrap();
    let single = Batching::with(QUEUE, |config| config.batch(false)).await;
    single.deliver(ten()).await;
    assert!(bench.batches().is_empty() && single.batches().is_empty());
    assert_eq!(bench.stored().len(), 1);
    assert_eq!(single.server.requests_of(Operation::SendMessage).len(), 10);
}

#[tokio::test]
async fn a_failed_entry_is_classed_on_its_own_and_fails_nobody_else() {
    let bench = Batching::on(QUEUE).await;
    let failures = [
        (1, "InvalidMessageContents", true),
        (3, "RequestThrottled", true),
        (5, "InternalError", false),
        (7, "AccessDenied", true),
        (9, "BrandNew", true),
    ];
    let mut fault = Fault::reversed();
    for (index, code, sender_fault) in failures {
        let selector = EntrySelector::index(index);
        fault = fault.and_entry(selector, EntryFault::failed(code, sender_fault));
    }
    bench.fault(fault);
    let answers = bench.deliver(ten()).await;
    let seen: Vec<_> = answers
        .iter()
        .filter_map(|answer| answer.as_ref().err().map(parts))
        .collect();
    assert_eq!(
        seen,
        [
            ("permanent", Outcome::NotStored, "InvalidMessageContents"),
            ("retry_after", Outcome::NotStored, "RequestThrottled"),
            ("transient", Outcome::Unknown, "InternalFailure"),
            ("config", Outcome::NotStored, "AccessDenied"),
            ("transient", Outcome::Unknown, "ServiceError"),
        ]
    );
    let text = answers[1].as_ref().unwrap_err().text();
    assert!(text.ends_with("(SenderFault true)"), "{text}");
    assert_eq!(bench.stored(), ["0", "2", "4", "6", "8"]);
}

#[tokio::test]
async fn an_entry_that_the_answer_leaves_out_names_twice_or_contradicts_has_an_unknown_outcome() {
    let bench = Batching::on(QUEUE).await;
    let at = EntrySelector::index;
    bench.fault(
        Fault::entry(at(0), EntryFault::missing())
            .and_entry(at(2), EntryFault::missing_after_storing())
            .and_entry(at(4), EntryFault::repeated())
            .and_entry(at(6), EntryFault::in_both_lists("InternalError", false)),
    );
    let answers = bench.deliver(ten()).await;
    assert_eq!(
        codes(&answers),
        ok_but(&[
            (0, "BatchEntryMissing"),
            (2, "BatchEntryMissing"),
            (4, "BatchEntryContradicted"),
            (6, "BatchEntryContradicted"),
        ])
    );
    for index in [0, 2, 4, 6] {
        let error = answers[index].as_ref().unwrap_err();
        assert_eq!(
            (error.class(), error.outcome()),
            (ErrorClass::Transient, Outcome::Unknown)
        );
    }
}

#[tokio::test]
async fn entries_that_nobody_sent_harm_nobody() {
    let bench = Batching::on(QUEUE).await;
    for id in ["10", "00", "hook", ""] {
        bench.fault(Fault::foreign_entry(id));
        let answers = bench.deliver(ten()).await;
        assert_eq!(codes(&answers), ok_but(&[]), "{id:?}");
    }
}

#[tokio::test]
async fn a_wrong_digest_fails_its_own_entry_and_a_missing_one_of_attributes_none() {
    let bench = Batching::on(QUEUE).await;
    let damaged = |index, damage| (EntrySelector::index(index), EntryFault::damaged(damage));
    let (first, fault) = damaged(2, Damage::BodyDigestWrong);
    let mut faults = Fault::entry(first, fault);
    for (selector, fault) in [
        damaged(4, Damage::AttributeDigestWrong),
        damaged(5, Damage::AttributeDigestMissing),
        damaged(6, Damage::BodyDigestMissing),
        damaged(7, Damage::MessageIdMissing),
        damaged(8, Damage::UnknownMembers),
    ] {
        faults = faults.and_entry(selector, fault);
    }
    bench.fault(faults);
    let answers = bench.deliver(ten()).await;
    assert_eq!(
        codes(&answers),
        ok_but(&[
            (2, "Md5Mismatch"),
            (4, "Md5Mismatch"),
            (6, "UnexpectedReply")
        ])
    );
}

#[tokio::test]
async fn a_request_that_fails_whole_fails_each_as_a_single_send_would() {
    let cases = [
        (
            Fault::answer(Answer::error(ErrorCode::QueueDoesNotExist)),
            ("config", Outcome::NotStored, "QueueDoesNotExist"),
        ),
        (
            Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
            ("retry_after", Outcome::NotStored, "RequestThrottled"),
        ),
        (
            Fault::answer(Answer::html(http::StatusCode::BAD_GATEWAY)),
            ("transient", Outcome::Unknown, "HttpStatus"),
        ),
        (
            Fault::answer(Answer::new(http::StatusCode::SERVICE_UNAVAILABLE)),
            ("retry_after", Outcome::Unknown, "HttpStatus"),
        ),
        (
            Fault::truncated(),
            ("transient", Outcome::Unknown, "ConnectionLost"),
        ),
        (
            Fault::reset().after_storing(),
            ("transient", Outcome::Unknown, "ConnectionLost"),
        ),
    ];
    for (fault, expected) in cases {
        let bench = Batching::on(QUEUE).await;
        bench.fault(fault);
        for answer in bench.deliver(ten()).await {
            assert_eq!(parts(&answer.unwrap_err()), expected);
        }
        assert_eq!(bench.sizes(), [10], "nothing is repeated here");
    }
}

#[tokio::test]
async fn a_success_that_is_no_json_is_unknown_for_every_entry() {
    let bench = Batching::on(QUEUE).await;
    for body in ["<html>", "[]", "{\"Successful\":7}", ""] {
        let answer = Answer::new(http::StatusCode::OK).with_body(body.to_owned());
        bench.fault(Fault::answer(answer));
        for answer in bench.deliver(ten()).await {
            let error = answer.unwrap_err();
            assert_eq!(
                (error.class(), error.outcome()),
                (ErrorClass::Transient, Outcome::Unknown)
            );
        }
    }
}

#[tokio::test]
async fn a_batch_that_is_too_long_for_the_destination_is_cut_down_to_one_in_order() {
    for count in [2, 3, 10] {
        let size = size_of(&numbered(0));
        let server = SqsServer::builder()
            .batch_limit(size + 100)
            .start()
            .await
            .unwrap();
        let bench = Batching::at(server, FIFO_QUEUE, |config| {
            config.batch_linger_ms(LINGER_MS)
        })
        .await;
        let answers = bench.deliver((0..count).map(numbered).collect()).await;
        assert_eq!(codes(&answers), vec!["ok"; count]);
        assert_eq!(bench.stored(), names(0..count));
        assert_eq!(bench.sizes()[0], count, "the first try is whole");
    }
}

#[tokio::test]
async fn a_413_is_cut_in_two_and_a_lone_message_that_gets_one_is_answered() {
    let bench = Batching::on(QUEUE).await;
    bench.fault(Fault::answer(Answer::new(
        http::StatusCode::PAYLOAD_TOO_LARGE,
    )));
    let answers = bench.deliver(ten()).await;
    assert_eq!(codes(&answers), ok_but(&[]));
    assert_eq!(bench.sizes(), [10, 5, 5]);
    bench.fault(Fault::answer(Answer::new(
        http::StatusCode::PAYLOAD_TOO_LARGE,
    )));
    let alone = bench.deliver(vec![numbered(10)]).await;
    assert_eq!(codes(&alone), ["HttpStatus"]);
}

#[tokio::test]
async fn messages_that_do_not_fit_together_leave_in_two_requests() {
    let bench = Batching::on(QUEUE).await;
    let large = |number| envelope(number, "€".repeat(20_000));
    // 60,000 bytes of body each are 80,000 in base64: three fit into 262,144 bytes.
    let answers = bench.deliver((0..10).map(large).collect()).await;
    assert_eq!(codes(&answers), ok_but(&[]));
    let mut sizes = bench.sizes();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 3, 3, 3]);
    for entries in bench.batches() {
        let bytes: usize = entries.iter().map(counted).sum();
        assert!(bytes <= 262_144, "{bytes}");
    }
}

#[tokio::test]
async fn a_message_that_cannot_be_sent_is_refused_alone_and_is_in_no_request() {
    let bench = Batching::on(QUEUE).await;
    let mut envelopes = ten();
    envelopes[4] = numbered(4).with_dedupe_key("bad \u{ffff}");
    envelopes[6] = envelope(6, vec![b'x'; 65_537]);
    let answers = bench.deliver(envelopes).await;
    assert_eq!(
        codes(&answers),
        ok_but(&[(4, "InvalidCharacters"), (6, "ClaimCheckMissing")])
    );
    assert_eq!(bench.sizes(), [8]);
}

#[tokio::test]
async fn two_messages_of_one_envelope_go_in_one_batch() {
    let bench = Batching::on(QUEUE).await;
    let answers = bench.deliver(vec![numbered(0), numbered(0)]).await;
    assert_eq!(codes(&answers), ["ok", "ok"]);
    assert_eq!(bench.sizes(), [2]);
    assert_eq!(bench.stored(), ["0", "0"]);
}

#[tokio::test]
async fn a_group_keeps_its_order_with_one_request_in_flight_while_another_goes_on() {
    let bench = Batching::on(FIFO_QUEUE).await;
    let hold = bench.server.hold(Operation::SendMessageBatch);
    let mut started = Vec::new();
    for number in 0..15 {
        started.push(bench.start(numbered(number)));
        tokio::task::yield_now().await;
    }
    hold.arrived().await;
    let other = Envelope::new(EnvelopeId::v7(99, &[0; 10]), "dock", 5, "other");
    let other = bench.start(other.with_tenant("quay-7"));
    // The other group's request is answered while the first one's is held.
    other.await.unwrap().unwrap();
    assert_eq!(
        bench.batches().iter().map(Vec::len).collect::<Vec<_>>(),
        [10, 1]
    );
    hold.release();
    for delivery in started {
        delivery.await.unwrap().unwrap();
    }
    assert_eq!(bench.sizes(), [10, 1, 5]);
    let stored = bench.stored();
    let group: Vec<_> = stored.into_iter().filter(|body| body != "other").collect();
    assert_eq!(group, names(0..15));
}

#[tokio::test]
async fn a_retry_after_a_lost_answer_stores_one_message_on_a_fifo_queue() {
    let bench = Batching::on(FIFO_QUEUE).await;
    bench.fault(Fault::reset().after_storing());
    let lost = bench.deliver(ten()).await;
    assert!(lost.iter().all(|answer| code(answer) == "ConnectionLost"));
    let again = bench.deliver(ten()).await;
    assert_eq!(codes(&again), ok_but(&[]));
    assert_eq!(bench.stored(), names(0..10));
}

#[tokio::test]
async fn a_fair_queue_gets_the_group_and_promises_no_order() {
    let bench = Batching::with(QUEUE, |config| config.message_group_id("{tenant_id}")).await;
    bench.deliver(ten()).await;
    let entries = &bench.batches()[0];
    assert_eq!(entries.len(), 10, "one group does not wait for itself");
    assert!(
        entries
            .iter()
            .all(|entry| entry["MessageGroupId"] == "quay-7")
    );
    assert!(
        entries
            .iter()
            .all(|entry| entry.get("MessageDeduplicationId").is_none())
    );
    assert_eq!(bench.sink.guarantees().ordering, Ordering::None);
}

#[tokio::test]
async fn callers_that_go_away_take_their_messages_along_and_nobody_elses() {
    let bench = Batching::on(QUEUE).await;
    let mut started: Vec<_> = ten().into_iter().take(9).map(|e| bench.start(e)).collect();
    tokio::task::yield_now().await;
    for index in [0, 4, 7] {
        started[index].abort();
    }
    started.push(bench.start(numbered(9)));
    for (index, delivery) in started.into_iter().enumerate() {
        let answer = delivery.await;
        assert_eq!(answer.is_err(), [0, 4, 7].contains(&index), "{index}");
    }
    assert_eq!(bench.sizes(), [7]);
    assert_eq!(bench.stored().len(), 7);
}

#[tokio::test]
async fn a_caller_that_goes_away_during_the_request_leaves_its_neighbours_alone() {
    let bench = Batching::on(QUEUE).await;
    let hold = bench.server.hold(Operation::SendMessageBatch);
    let started: Vec<_> = ten().into_iter().map(|e| bench.start(e)).collect();
    hold.arrived().await;
    started[3].abort();
    hold.release();
    for (index, delivery) in started.into_iter().enumerate() {
        assert_eq!(delivery.await.is_err(), index == 3);
    }
    assert_eq!(bench.stored().len(), 10, "it had left");
    assert!(bench.deliver(ten()).await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_full_queue_refuses_with_a_pause_and_names_the_ceiling() {
    let bench = Batching::with(QUEUE, |config| config.batch_queue_tenant_max(2)).await;
    let first: Vec<_> = (0..2).map(|number| bench.start(numbered(number))).collect();
    tokio::task::yield_now().await;
    let refused = bench
        .deliver(vec![numbered(2)])
        .await
        .pop()
        .unwrap()
        .unwrap_err();
    assert!(is_pause(&refused));
    assert_eq!(
        (refused.code(), refused.outcome()),
        ("BatchQueueFull", Outcome::NotStored)
    );
    assert!(
        refused.text().contains("batch_queue_tenant_max"),
        "{refused}"
    );
    let neighbour = bench.start(numbered(3).with_tenant("quay-8"));
    for delivery in first.into_iter().chain([neighbour]) {
        delivery.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_deadline_that_comes_while_a_message_waits_takes_it_out_and_says_so() {
    let bench = Batching::on(QUEUE).await;
    let soon = Instant::now() + Duration::from_millis(20);
    let error = bench
        .sink
        .deliver(&numbered(0), &attempt(1).with_deadline(soon))
        .await
        .unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::NotStored, "Timeout"));
    bench
        .deliver(vec![numbered(1)])
        .await
        .pop()
        .unwrap()
        .unwrap();
    assert_eq!(bench.stored(), ["1"]);
}

#[tokio::test]
async fn a_deadline_that_comes_during_the_request_leaves_the_outcome_unknown() {
    let bench = Batching::with(QUEUE, |config| config.batch_linger_ms(1)).await;
    let hold = bench.server.hold(Operation::SendMessageBatch);
    let sink = Arc::clone(&bench.sink);
    let delivery = tokio::spawn(async move {
        let soon = Instant::now() + Duration::from_millis(500);
        sink.deliver(&numbered(0), &attempt(1).with_deadline(soon))
            .await
    });
    hold.arrived().await;
    let error = delivery.await.unwrap().unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
}

#[tokio::test]
async fn a_server_that_never_answers_times_every_entry_out() {
    let bench = Batching::with(QUEUE, |config| config.timeout_ms(200)).await;
    bench.fault(Fault::silence());
    for answer in bench.deliver(ten()).await {
        let error = answer.unwrap_err();
        assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    }
    assert!(bench.deliver(ten()).await.iter().all(Result::is_ok));
}

fn size_of(envelope: &Envelope) -> usize {
    let config = config("http://127.0.0.1:1/0/hooks.fifo");
    let config = config.build(&HostServices::new()).unwrap();
    config.preflight(envelope, &attempt(1)).unwrap()
}

/// What the service counts for an entry of a request.
fn counted(entry: &Value) -> usize {
    let attributes = entry["MessageAttributes"].as_object().unwrap();
    let attributes: usize = attributes
        .iter()
        .map(|(name, value)| {
            let of = |part: &str| value[part].as_str().unwrap().len();
            name.len() + of("DataType") + of("StringValue")
        })
        .sum();
    entry["MessageBody"].as_str().unwrap().len() + attributes
}
