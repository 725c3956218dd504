//! Runs the program as a user does.
#![cfg(unix)]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on stops here"
)]

mod support;

use dispatch_api::{ClaimCheck as _, HeaderField, HostServices};
use dispatcher::DirectoryClaimCheck;
use serde_json::json;
use sink_testkit::sqs::{Operation, Visibility};
use tokio::time::timeout;

use crate::support::{Place, SECOND, envelope, until};

#[tokio::test]
async fn the_exit_status_settles_the_delivery() {
    let cases = [
        ("exit 0", "ack", None),
        ("exit 75", "retry", None),
        (
            "echo working; echo retry_after=60; exit 75",
            "retry_after",
            None,
        ),
        ("exit 100", "drop", None),
        ("exit 3", "retry", Some("exit status 3")),
        (
            "kill -9 $$$$",
            "retry",
            Some("the command ended by signal: 9 (SIGKILL)"),
        ),
    ];
    for (script, outcome, error) in cases {
        let place = Place::new().await;
        place.send(&envelope("a hook")).await;
        // The second time it is acknowledged, so that the run ends.
        let script = format!("[ \"$DISPATCH_REDELIVERY_COUNT\" = 1 ] || exit 0; {script}");
        place.configure(&script, "");
        let ran = place.run(&["--json", "--until-empty"]).await;
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        let first = &ran.json_lines()[0];
        let expected = json!({
            "id": envelope("").id().to_string(),
            "source_id": "github",
            "tenant_id": "acme",
            "redelivery_count": 1,
            "outcome": outcome,
            "settled": true,
            "error": error,
        });
        assert_eq!(*first, expected, "{script}");
        let stored = place.stored();
        match outcome {
            "retry_after" => {
                assert_eq!(stored[0].visibility, Visibility::InFlight);
                assert_eq!(ran.json_lines().len(), 1);
            }
            _ => assert!(stored.is_empty(), "{script}"),
        }
    }
}

#[tokio::test]
async fn the_command_finds_the_body_on_its_input_and_the_metadata_in_its_environment() {
    let place = Place::new().await;
    let hook = envelope("the body ✓")
        .with_dedupe_key("d-1")
        .with_headers([HeaderField::new("X-GitHub-Event", "push")]);
    place.send(&hook).await;
    place.configure("cat > body; env | grep ^DISPATCH_ | sort > variables", "");
    let ran = place.run(&["--until-empty"]).await;
    assert_eq!((ran.status, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    assert_eq!(place.read("body"), "the body ✓");
    let variables = place.read("variables");
    let message_id = place.sent_ids()[0].clone();
    for line in [
        format!("DISPATCH_ID={}", hook.id()),
        "DISPATCH_SOURCE_ID=github".to_owned(),
        "DISPATCH_TENANT_ID=acme".to_owned(),
        "DISPATCH_RECEIVED_AT=1764500000000".to_owned(),
        "DISPATCH_SIZE=12".to_owned(),
        "DISPATCH_DEDUPE_KEY=d-1".to_owned(),
        "DISPATCH_IDEMPOTENCY_KEY=acme:github:d-1".to_owned(),
        "DISPATCH_TRUSTED=false".to_owned(),
        "DISPATCH_REDELIVERY_COUNT=1".to_owned(),
        "DISPATCH_HEADER_X_GITHUB_EVENT=push".to_owned(),
        format!("DISPATCH_MESSAGE_ID={message_id}"),
    ] {
        assert!(
            variables.lines().any(|found| found == line),
            "{line} in {variables}"
        );
    }
    assert!(ran.stderr.contains("1 received: 1 acked"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_with_all_it_started() {
    let place = Place::new().await;
    place.send(&envelope("slow")).await;
    let script = "[ \"$DISPATCH_REDELIVERY_COUNT\" = 1 ] || exit 0; \
                  (sleep 3; touch survived) & sleep 30";
    place.configure(script, "timeout_ms = 300\n");
    let ran = place.run(&["--json", "--until-empty"]).await;
    let lines = ran.json_lines();
    assert_eq!(lines[0]["outcome"], "retry");
    assert_eq!(
        lines[0]["error"],
        "the handler took longer than handler.timeout_ms"
    );
    assert_eq!(lines[1]["outcome"], "ack");
    tokio::time::sleep(3 * SECOND).await;
    assert!(!place.path("survived").exists());
}

#[tokio::test]
async fn a_command_that_leaves_something_running_has_ended_all_the_same() {
    let place = Place::new().await;
    place.send(&envelope("quick")).await;
    // It inherits the pipes, and holds them for longer than a handler may take.
    place.configure("(sleep 2; touch survived) & exit 0", "timeout_ms = 1000\n");
    let ran = place.run(&["--json", "--until-empty"]).await;
    let lines = ran.json_lines();
    assert_eq!((lines.len(), &lines[0]["outcome"]), (1, &"ack".into()));
    tokio::time::sleep(3 * SECOND).await;
    assert!(place.path("survived").exists());
}

#[tokio::test]
async fn a_large_body_is_redeemed_and_a_damaged_or_missing_one_comes_back_later() {
    let place = Place::new().await;
    let services = HostServices::new();
    let store = DirectoryClaimCheck::new(place.path("claims"), services);
    let claims = format!(
        "[claim_check]\nurl = \"file://{}\"\n",
        place.path("claims").display()
    );
    let hook = envelope("a large body");
    let claim = store.check_in(&hook).await.unwrap();
    place.send_by_claim(&hook, claim.clone()).await;
    place.configure_with("cat > body", "", &claims);
    let ran = place.run(&["--json", "--until-empty"]).await;
    assert_eq!(ran.json_lines()[0]["outcome"], "ack", "{}", ran.stderr);
    assert_eq!(place.read("body"), "a large body");

    let file = place.path("claims").join("acme").join(claim.id().as_str());
    std::fs::write(&file, "another body").unwrap();
    place.send_by_claim(&hook, claim.clone()).await;
    let ran = place.run(&["--json", "--until-empty"]).await;
    let line = &ran.json_lines()[0];
    assert_eq!(line["outcome"], "retry_after");
    let error = line["error"].as_str().unwrap();
    assert!(error.contains("does not match the digest"), "{error}");

    place.configure("cat > body", "");
    place.server.clock().advance(3_600 * SECOND);
    let ran = place.run(&["--json", "--until-empty"]).await;
    let error = ran.json_lines()[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("set claim_check.url"), "{error}");
    assert_eq!(place.stored().len(), 1, "nothing is lost");
}

#[tokio::test]
async fn a_message_of_no_known_format_is_kept_until_the_redrive_policy_takes_it() {
    let place = Place::new().await;
    place.server.create_queue("dead", []).await.unwrap();
    place.send_raw("no hook at all").await;
    place.configure_source("exit 0", "max_attempts = 2\ndead_letter = \"dead\"\n");
    let mut counts = Vec::new();
    while place.server.messages("dead").unwrap().is_empty() {
        let ran = place.run(&["--json", "--until-empty"]).await;
        for line in ran.json_lines() {
            assert_eq!(line["outcome"], "retry_after");
            assert_eq!(line["source_id"], json!(null));
            counts.push(line["redelivery_count"].as_u64().unwrap());
        }
        assert!(counts.len() <= 2, "{counts:?}");
        place.server.clock().advance(3_600 * SECOND);
    }
    assert_eq!(counts, [1, 2]);
    assert_eq!(place.server.messages("dead").unwrap().len(), 1);
}

#[tokio::test]
async fn a_hook_that_was_handled_is_not_handled_again_where_that_is_asked_for() {
    for (dedupe, runs) in [(true, 1), (false, 2)] {
        let place = Place::new().await;
        for _ in 0..2 {
            place.send(&envelope("twice").with_dedupe_key("d-1")).await;
        }
        let more = format!("dedupe = {dedupe}\n");
        place.configure_all("echo run >> runs", &more, "concurrency = 1\n", "");
        let ran = place.run(&["--json", "--until-empty"]).await;
        let outcomes: Vec<_> = ran
            .json_lines()
            .iter()
            .map(|l| l["outcome"].clone())
            .collect();
        assert_eq!(outcomes, ["ack", "ack"]);
        assert_eq!(place.read("runs").lines().count(), runs);
    }
}

#[tokio::test]
async fn print_shows_the_hook_and_acknowledges_it() {
    let place = Place::new().await;
    place.send(&envelope("a hook")).await;
    place.configure_print();
    let ran = place.run(&["--until-empty"]).await;
    let id = envelope("").id();
    assert_eq!(ran.stdout, format!("{id} github acme\na hook\n"));
    assert!(place.stored().is_empty());
}

#[tokio::test]
async fn a_stop_lets_what_runs_finish_and_reports() {
    let place = Place::new().await;
    for _ in 0..3 {
        place.send(&envelope("a hook")).await;
    }
    place.configure("touch begun; sleep 1", "");
    let child = place.start(&["--json"]);
    until("a command runs", || place.path("begun").exists()).await;
    let id = rustix::process::Pid::from_raw(child.id().unwrap().try_into().unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let output = timeout(30 * SECOND, child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let report = String::from_utf8(output.stderr).unwrap();
    assert!(report.contains("received: "), "{report}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let acked = lines
        .lines()
        .filter(|line| line.contains("\"ack\""))
        .count();
    assert!(acked >= 1);
    assert_eq!(place.stored().len(), 3 - acked);
    assert!(
        place
            .stored()
            .iter()
            .all(|m| m.visibility == Visibility::Visible)
    );
}

#[tokio::test]
async fn what_cannot_start_says_why_and_exits_with_1() {
    let place = Place::new().await;
    place.configure_source("exit 0", "max_attempts = 5\n");
    let ran = place.run(&[]).await;
    assert_eq!((ran.status, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("IncompleteRedrive"), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("dead_letter is missing"),
        "{}",
        ran.stderr
    );

    place.configure_source("exit 0", "wait = 5\n");
    let ran = place.run(&[]).await;
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("source.wait"), "{}", ran.stderr);

    std::fs::remove_file(place.path("worker.toml")).unwrap();
    let ran = place.run(&[]).await;
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("cannot read worker.toml"),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn a_worker_that_is_killed_ten_times_loses_no_hook() {
    const HOOKS: usize = 600;
    const IN_HAND: usize = 50;
    let place = Place::new().await;
    for number in 0..HOOKS {
        place.send(&envelope(&format!("{number}\n"))).await;
    }
    // A command whose worker is killed before the hook is written sees an empty input.
    place.configure_all(
        "read -r line || exit 1; echo \"$line\" >> done; sleep 0.5",
        "",
        "concurrency = 50\n",
        "",
    );
    for _ in 0..10 {
        let mut child = place.start(&[]);
        // Some are settled while others come.
        until("about fifty are in hand", || {
            place.in_flight() >= IN_HAND - 10
        })
        .await;
        child.kill().await.unwrap();
        // What it held comes back when its visibility timeout is over.
        place.server.clock().advance(3 * SECOND);
    }
    let ran = place.run(&["--until-empty"]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(place.stored().is_empty());
    let done = place.read("done");
    let mut lines: Vec<usize> = done.lines().map(|line| line.parse().unwrap()).collect();
    let handled = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(
        lines,
        (0..HOOKS).collect::<Vec<_>>(),
        "every hook was handled"
    );
    // At most those in hand at each end are repeated.
    assert!(handled <= HOOKS + 10 * IN_HAND, "{handled}");
    assert_eq!(place.server.requests_of(Operation::SendMessage).len(), 0);
}
