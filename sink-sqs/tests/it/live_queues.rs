//! What the live suites leave at an emulator, which a server in this process stands in for.

#[path = "../conformance_live/adapter.rs"]
mod adapter;
#[path = "../conformance_live/divergences.rs"]
mod divergences;
#[path = "../conformance_live/emulator.rs"]
mod emulator;
#[path = "../conformance_live/plain.rs"]
#[allow(dead_code, reason = "shared with the live suites")]
mod plain;

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::json;
use sink_testkit::conformance::{Adapter, Case, Failure, Verdict, cases, run_case};
use sink_testkit::sqs::{Credentials, Operation, SqsServer};

use self::plain::{KEY, Named, Queues, SECRET};

async fn count(server: &SqsServer) -> usize {
    let listed = server.call(Operation::ListQueues, json!({})).await.unwrap();
    listed["QueueUrls"].as_array().map_or(0, Vec::len)
}

/// A case that fails with a queue of its own.
fn failing() -> Case {
    Case::new("fails", "it fails", |context| {
        Box::pin(async {
            context.destination().await?;
            Err(Failure::new("a step", "this", "that"))
        })
    })
}

/// One that panics.
fn panicking() -> Case {
    Case::new("panics", "it panics", |context| {
        Box::pin(async {
            context.destination().await?;
            panic!("as it has to")
        })
    })
}

/// One that passes.
fn passing() -> Case {
    let known = cases::all();
    let passing = known
        .iter()
        .find(|case| case.id == "equal_bodies_stay_distinct");
    *passing.unwrap()
}

/// Plays cases in every mode.
async fn play(queues: &Arc<Queues>, cases: &'static [fn() -> Case]) -> Vec<Verdict> {
    let adapter: Arc<dyn Adapter> = Arc::new(adapter::Live {
        named: Named::none(),
        queues: Arc::clone(queues),
    });
    let playing = tokio::task::spawn_blocking(move || {
        let mut verdicts = Vec::new();
        for profile in adapter.profiles() {
            for case in cases {
                verdicts.push(run_case(&adapter, &profile, &case(), 1).verdict);
            }
        }
        verdicts
    });
    playing.await.unwrap()
}

/// What a run comes to that succeeds but for its queues.
async fn end(queues: Arc<Queues>) -> ExitCode {
    let ending = tokio::task::spawn_blocking(move || queues.gone_after(ExitCode::SUCCESS));
    ending.await.unwrap()
}

async fn server() -> SqsServer {
    let server = SqsServer::builder().credentials([Credentials::new(KEY, SECRET)]);
    server.start().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queues_of_a_run_are_gone_after_it_and_those_of_others_are_not() {
    use Verdict::{Failed, Passed};
    let server = server().await;
    server.create_queue("hooks", []).await.unwrap();
    // The second run begins where the first has left off.
    for _ in 0..2 {
        let queues = Queues::at(server.endpoint());
        let verdicts = play(&queues, &[passing, failing, panicking]).await;
        assert_eq!(verdicts, [Passed, Failed, Failed].repeat(4));
        assert!(count(&server).await > 12, "each case made a queue");
        assert_eq!(end(queues).await, ExitCode::SUCCESS);
        assert_eq!(count(&server).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_that_cannot_be_deleted_fail_the_run() {
    let server = server().await;
    let queues = Queues::at(server.endpoint());
    play(&queues, &[failing]).await;
    server.shutdown().await;
    assert_eq!(end(queues).await, ExitCode::FAILURE);
}
