//! What is sent again after a request that failed, and what is not.

use dispatch_api::{Outcome, Sink as _};
use sink_testkit::sqs::{EntryFault, EntrySelector, Fault, FaultRule, Operation};

use crate::batch_bench::{Batching, codes, names, numbered, ok_but, ten};
use crate::bench::{Bench, FIFO_QUEUE, QUEUE, ctx, parts};

/// The queues, and how many copies there are of a message whose answer was lost once.
const COPIES: [(&str, usize); 2] = [(QUEUE, 2), (FIFO_QUEUE, 1)];

#[tokio::test]
async fn a_reset_of_a_connection_that_served_before_is_unknown_and_sends_nothing_twice() {
    for (queue, copies) in COPIES {
        let bench = Bench::with(queue, |config| config).await;
        bench.sink.deliver(&numbered(10), &ctx()).await.unwrap();
        let lost = Fault::reset().after_storing();
        bench.server.fault(Operation::SendMessage, lost);
        let error = bench.deliver().await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("transient", Outcome::Unknown, "ConnectionLost")
        );
        assert_eq!(bench.server.connections(), 1, "the one that served before");
        assert_eq!(bench.sends().len(), 2, "nothing is sent twice");
        assert_eq!(bench.stored().len(), 2);

        bench.deliver().await.unwrap();
        assert_eq!(bench.sends().len(), 3);
        assert_eq!(bench.stored().len(), 1 + copies, "{queue}");
    }
}

#[tokio::test]
async fn a_batch_on_a_connection_that_served_before_and_is_reset_goes_again_as_it_was() {
    for (queue, copies) in COPIES {
        let bench = Batching::on(queue).await;
        bench.deliver(vec![numbered(10)]).await.remove(0).unwrap();
        bench.fault(Fault::reset().after_storing());
        for answer in bench.deliver(ten()).await {
            let error = answer.unwrap_err();
            assert_eq!(
                parts(&error),
                ("transient", Outcome::Unknown, "ConnectionLost")
            );
        }
        assert_eq!(bench.server.connections(), 1, "the one that served before");
        assert_eq!(bench.sizes(), [1, 10], "nothing is sent twice");

        assert_eq!(codes(&bench.deliver(ten()).await), ok_but(&[]));
        let batches = bench.batches();
        assert_eq!(batches[1], batches[2], "{queue}");
        assert_eq!(bench.stored().len(), 1 + 10 * copies, "{queue}");
    }
}

#[tokio::test]
async fn a_connection_that_fell_silent_is_not_used_again() {
    let bench = Bench::with(QUEUE, |config| config.timeout_ms(200)).await;
    bench.deliver().await.unwrap();
    bench.server.fault(Operation::SendMessage, Fault::silence());
    let error = bench.deliver().await.unwrap_err();
    assert_eq!(parts(&error), ("transient", Outcome::Unknown, "Timeout"));
    assert_eq!(bench.server.connections(), 1);
    bench.deliver().await.unwrap();
    assert_eq!(bench.server.connections(), 2);
}

#[tokio::test]
async fn of_three_requests_of_which_one_broke_only_the_messages_of_that_one_go_again() {
    let bench = Batching::with(QUEUE, |config| config.batch_max_inflight(1)).await;
    bench.server.add_fault(
        FaultRule::on(Operation::SendMessageBatch, Fault::reset())
            .after(2)
            .times(1),
    );
    let answers = bench.deliver((0..25).map(numbered).collect()).await;
    let failed: Vec<usize> = (0..25).filter(|place| answers[*place].is_err()).collect();
    assert_eq!(failed, [20, 21, 22, 23, 24]);
    let again = bench
        .deliver(failed.into_iter().map(numbered).collect())
        .await;
    assert_eq!(codes(&again), ["ok"; 5]);
    assert_eq!(bench.sizes(), [10, 10, 5, 5]);
    assert_eq!(bench.stored(), names(0..25));
}

#[tokio::test]
async fn the_one_entry_that_failed_inside_a_good_answer_goes_again_alone_and_as_it_was() {
    let bench = Batching::on(FIFO_QUEUE).await;
    bench.fault(Fault::entry(
        EntrySelector::index(4),
        EntryFault::failed("InternalError", false),
    ));
    let answers = bench.deliver(ten()).await;
    assert_eq!(codes(&answers), ok_but(&[(4, "InternalFailure")]));
    bench.deliver(vec![numbered(4)]).await.remove(0).unwrap();
    let batches = bench.batches();
    let [again] = &*batches[1] else {
        panic!("one entry, and not {:?}", batches[1])
    };
    for member in [
        "MessageBody",
        "MessageAttributes",
        "MessageGroupId",
        "MessageDeduplicationId",
    ] {
        assert_eq!(again[member], batches[0][4][member], "{member}");
        assert!(!again[member].is_null(), "{member}");
    }
    assert_eq!(bench.stored().len(), 10);
}

/// The seed calls a parameter that the service refuses permanent: the message can never pass.
#[tokio::test]
async fn a_batch_whose_deduplication_ids_the_service_refuses_is_permanent_for_each_and_ends_there()
{
    let bench = Batching::on(FIFO_QUEUE).await;
    bench.fault(Fault::entry(
        EntrySelector::all(),
        EntryFault::failed("InvalidParameterValue", true),
    ));
    for answer in bench.deliver(ten()).await {
        let error = answer.unwrap_err();
        assert_eq!(
            parts(&error),
            ("permanent", Outcome::NotStored, "InvalidParameterValue")
        );
    }
    assert_eq!(bench.sizes(), [10], "one request, and no other after it");
    let batches = bench.batches();
    assert!(
        batches[0]
            .iter()
            .all(|entry| entry["MessageDeduplicationId"].is_string())
    );
}
