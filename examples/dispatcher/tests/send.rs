//! `send`, as a user runs it, against the in-process server.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod support;

use serde_json::{Value, json};
use sink_testkit::sqs::{Answer, ErrorCode, Fault, FaultRule, Operation};
use support::{CANARY, Workplace, hooks, one_queue, server_with, sqs_sink, stored_bodies};
use tokio::io::{AsyncBufReadExt as _, BufReader};

#[tokio::test]
async fn every_hook_reaches_the_sinks_of_its_tenant_and_no_other() {
    let server = server_with(&["main", "acme", "globex.fifo"]).await;
    let workplace = Workplace::new(&format!(
        "[sinks.main]\n{}\n[sinks.acme]\n{}\n[sinks.globex]\n{}\n\
         [sources.github]\nsinks = [\"main\"]\n\
         [tenants.acme]\nsinks = [\"acme\"]\n[tenants.globex]\nsinks = [\"globex\", \"main\"]\n",
        sqs_sink(&server.queue_url("main")),
        sqs_sink(&server.queue_url("acme")),
        sqs_sink(&server.queue_url("globex.fifo")),
    ));
    let input = hooks("acme", 20)
        + &hooks("globex", 20)
        + &hooks("initech", 20)
        + "{\"source_id\":\"github\",\"body\":\"of nobody\"}\n";
    let ran = workplace.send(&input, &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.json_lines().len(), 81);
    assert_eq!(server.messages("acme").unwrap().len(), 20);
    assert_eq!(server.messages("globex.fifo").unwrap().len(), 20);
    assert_eq!(server.messages("main").unwrap().len(), 41);
    for (queue, tenant) in [("acme", "acme"), ("globex.fifo", "globex")] {
        for message in server.messages(queue).unwrap() {
            let message = dispatch_api::Message::decode(message.body.as_bytes())
                .unwrap()
                .into_owned();
            assert_eq!(message.tenant_id.as_deref(), Some(tenant));
        }
    }
}

#[tokio::test]
async fn a_json_line_says_where_the_hook_is_stored() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let id = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";
    let hook = format!(
        "{{\"source_id\":\"github\",\"tenant_id\":\"acme\",\"id\":\"{id}\",\"body\":\"{{}}\"}}\n"
    );
    let ran = workplace.send(&hook, &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let stored = &server.messages("hooks").unwrap()[0];
    assert_eq!(
        ran.json_lines(),
        [json!({
            "id": id, "source_id": "github", "tenant_id": "acme", "sink": "main",
            "outcome": "delivered", "class": null, "code": null, "attempts": 1,
            "provider_id": stored.message_id,
        })]
    );
}

#[tokio::test]
async fn a_missing_queue_dead_letters_every_hook_and_says_what_to_do_and_a_later_run_delivers_them()
{
    let server = server_with(&[]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace
        .send(&hooks("acme", 5), &["--dead-letters", "dead.ndjson"])
        .await;
    assert_eq!(ran.status, 3);
    let lines = ran.json_lines();
    assert_eq!(lines.len(), 5);
    for line in &lines {
        assert_eq!(line["outcome"], "dead_lettered");
        assert_eq!(line["class"], "config");
        assert_eq!(line["code"], "QueueDoesNotExist");
        assert_eq!(line["attempts"], 1);
    }
    assert!(
        ran.stderr.contains("config: QueueDoesNotExist: "),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("create"),
        "says what to do: {}",
        ran.stderr
    );
    let dead = workplace.read("dead.ndjson");
    assert_eq!(dead.lines().count(), 5);

    server.create_queue("hooks", []).await.unwrap();
    let again = workplace
        .run(&[
            "send",
            "--config",
            "dispatcher.toml",
            "--input",
            "dead.ndjson",
            "--json",
        ])
        .await;
    assert_eq!(again.status, 0, "{}", again.stderr);
    let mut bodies = stored_bodies(&server, "hooks");
    bodies.sort_unstable();
    assert_eq!(bodies, ["hook 0", "hook 1", "hook 2", "hook 3", "hook 4"]);
    let id_of = |line: &Value| line["id"].as_str().unwrap().to_owned();
    let mut ids: Vec<String> = lines.iter().map(id_of).collect();
    let mut ids_again: Vec<String> = again.json_lines().iter().map(id_of).collect();
    ids.sort_unstable();
    ids_again.sort_unstable();
    assert_eq!(ids, ids_again, "a dead letter keeps its id");
}

#[tokio::test]
async fn a_dead_letter_goes_again_to_the_sink_that_refused_it_and_to_no_other() {
    let server = server_with(&["good"]).await;
    let workplace = Workplace::new(&format!(
        "[sinks.good]\n{}\n[sinks.bad]\n{}\n[sources.github]\nsinks = [\"good\", \"bad\"]\n",
        sqs_sink(&server.queue_url("good")),
        sqs_sink(&server.queue_url("bad")),
    ));
    let ran = workplace
        .send(&hooks("acme", 3), &["--dead-letters", "dead.ndjson"])
        .await;
    assert_eq!(ran.status, 3);
    assert_eq!(server.messages("good").unwrap().len(), 3);
    server.create_queue("bad", []).await.unwrap();
    let again = workplace.send(&workplace.read("dead.ndjson"), &[]).await;
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert_eq!(server.messages("good").unwrap().len(), 3);
    assert_eq!(server.messages("bad").unwrap().len(), 3);
}

#[tokio::test]
async fn lines_that_are_no_hooks_are_reported_by_number_and_stop_nothing() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let input = format!(
        "{}not json\n\n{{\"source_id\":\"github\"}}\n{}",
        hooks("a", 1),
        hooks("a", 1)
    );
    let ran = workplace.send(&input, &[]).await;
    assert_eq!(ran.status, 3);
    assert_eq!(server.messages("hooks").unwrap().len(), 2);
    assert!(ran.stderr.contains("line 2: not JSON: "), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("line 4: needs `body`"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("2 lines were no hooks"),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn a_throttled_hook_is_tried_again_and_delivered_once() {
    let server = server_with(&["hooks"]).await;
    server.add_fault(
        FaultRule::on(
            Operation::SendMessageBatch,
            Fault::answer(Answer::error(ErrorCode::RequestThrottled)),
        )
        .times(2),
    );
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace.send(&hooks("acme", 1), &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.json_lines()[0]["attempts"], 3);
    assert_eq!(server.messages("hooks").unwrap().len(), 1);
}

#[tokio::test]
async fn attempts_end_at_the_policys_number() {
    let server = server_with(&["hooks"]).await;
    let endpoint = server.queue_url("hooks");
    server.shutdown().await;
    let workplace = Workplace::new(&one_queue(&endpoint));
    let ran = workplace.send(&hooks("acme", 1), &[]).await;
    assert_eq!(ran.status, 3);
    let line = &ran.json_lines()[0];
    assert_eq!(
        (&line["class"], &line["attempts"]),
        (&json!("transient"), &json!(4))
    );
}

#[tokio::test]
async fn a_fifo_queue_gets_the_hooks_of_one_source_and_tenant_in_the_order_of_the_input() {
    let server = server_with(&["hooks.fifo"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks.fifo")));
    let ran = workplace.send(&hooks("acme", 60), &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let expected: Vec<String> = (0..60).map(|number| format!("hook {number}")).collect();
    assert_eq!(stored_bodies(&server, "hooks.fifo"), expected);
}

#[tokio::test]
async fn a_large_body_goes_by_claim_where_a_claim_check_is_configured_and_is_a_config_error_without()
 {
    let server = server_with(&["hooks"]).await;
    let body = "x".repeat(65_537);
    let hook = format!("{{\"source_id\":\"github\",\"tenant_id\":\"acme\",\"body\":\"{body}\"}}\n");
    let without = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = without.send(&hook, &[]).await;
    assert_eq!(ran.status, 3);
    assert_eq!(ran.json_lines()[0]["class"], "config");
    assert_eq!(ran.json_lines()[0]["code"], "ClaimCheckMissing");

    let with = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let claims = with.path("claims");
    let config = format!(
        "[claim_check]\nurl = \"file://{}\"\n{}",
        claims.display(),
        one_queue(&server.queue_url("hooks"))
    );
    with.write("dispatcher.toml", &config);
    let ran = with.send(&hook, &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let claim: dispatch_api::ClaimRef = stored_bodies(&server, "hooks")[0].parse().unwrap();
    let stored = std::fs::read(claims.join("acme").join(claim.id().as_str())).unwrap();
    assert_eq!(stored, body.as_bytes());
}

#[tokio::test]
async fn a_source_that_nobody_receives_is_a_config_error_that_names_it() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace
        .send(
            "{\"source_id\":\"stripe\",\"body\":\"{}\"}\n",
            &["--dead-letters", "dead"],
        )
        .await;
    assert_eq!(ran.status, 3);
    assert_eq!(ran.json_lines()[0]["code"], "NoRoute");
    assert!(
        ran.stderr.contains("add [sources.stripe]"),
        "{}",
        ran.stderr
    );
    assert_eq!(workplace.read("dead").lines().count(), 1);
}

#[tokio::test]
async fn no_log_level_shows_a_secret_or_a_payload() {
    let server = server_with(&["hooks"]).await;
    let config = one_queue(&server.queue_url("hooks")).replace(
        "secret_access_key = \"test\"",
        &format!("secret_access_key = \"{CANARY}\"\nsession_token = \"{CANARY}\""),
    );
    let workplace = Workplace::new(&config);
    let hook = format!(
        "{{\"source_id\":\"github\",\"body\":\"{CANARY}\",\"headers\":[[\"Authorization\",\"{CANARY}\"]]}}\n"
    );
    workplace.write("hooks", &hook);
    let ran: support::Ran = workplace
        .command(&["send", "--config", "dispatcher.toml", "--input", "hooks"])
        .env("RUST_LOG", "trace")
        .output()
        .await
        .unwrap()
        .into();
    assert_eq!(ran.status, 3, "the secret is wrong");
    assert!(ran.stderr.len() > 1_000, "it logged at all");
    assert!(!ran.stderr.contains(CANARY), "{}", ran.stderr);
}

#[tokio::test]
async fn the_file_of_dead_letters_cannot_be_the_input() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    workplace.write("hooks", &hooks("acme", 1));
    let ran = workplace
        .run(&[
            "send",
            "--config",
            "dispatcher.toml",
            "--input",
            "hooks",
            "--dead-letters",
            "hooks",
        ])
        .await;
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr
            .contains("both the input and the file of dead letters")
    );
    assert_eq!(workplace.read("hooks"), hooks("acme", 1));
}

#[tokio::test]
async fn an_input_that_is_not_there_is_status_1() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace
        .run(&[
            "send",
            "--config",
            "dispatcher.toml",
            "--input",
            "none.ndjson",
        ])
        .await;
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.starts_with("cannot read none.ndjson: "),
        "{}",
        ran.stderr
    );
}

#[cfg(unix)]
#[tokio::test]
async fn ctrl_c_finishes_what_is_in_flight_and_dead_letters_what_waits_for_a_retry() {
    let server = server_with(&["hooks"]).await;
    let config = format!(
        "[dispatch]\nretry = {{ base_ms = 200000, max_ms = 300000 }}\n[sinks.good]\n{}\n\
         [sinks.down]\n{}timeout_ms = 300\n[sources.github]\nsinks = [\"good\", \"down\"]\n",
        sqs_sink(&server.queue_url("hooks")),
        sqs_sink("http://127.0.0.1:9/000000000000/hooks"),
    );
    let workplace = Workplace::new(&config);
    let hold = server.hold(Operation::SendMessageBatch);
    let mut child = workplace
        .start_send(&hooks("acme", 1), &["--dead-letters", "dead.ndjson"])
        .await;
    let open_input = child.stdin.take();
    hold.arrived().await;
    let pid = child.id().unwrap().to_string();
    let interrupted = std::process::Command::new("kill")
        .args(["-INT", &pid])
        .status();
    assert!(interrupted.unwrap().success());
    hold.release();

    // Standard input is still open: it is the signal that ends the run.
    let ran: support::Ran = child.wait_with_output().await.unwrap().into();
    drop(open_input);
    assert_eq!(ran.status, 3, "{}", ran.stderr);
    let lines = ran.json_lines();
    let of = |sink: &str| {
        lines
            .iter()
            .find(|line| line["sink"] == sink)
            .unwrap()
            .clone()
    };
    assert_eq!(of("good")["outcome"], "delivered");
    assert_eq!(of("down")["outcome"], "dead_lettered");
    assert!(
        ran.stderr.contains("stopped after line 1"),
        "{}",
        ran.stderr
    );
    let dead: Value = serde_json::from_str(&workplace.read("dead.ndjson")).unwrap();
    assert_eq!(dead["dead_letter"]["sink"], "down");
    assert_eq!(dead["body"], "hook 0");
    assert_eq!(server.messages("hooks").unwrap().len(), 1);
}

#[tokio::test]
async fn a_hook_that_nobody_received_is_delivered_once_a_route_is_there() {
    let server = server_with(&["hooks"]).await;
    let config = one_queue(&server.queue_url("hooks"));
    let workplace = Workplace::new(&config.replace("sources.github", "sources.stripe"));
    let ran = workplace
        .send(&hooks("acme", 1), &["--dead-letters", "dead"])
        .await;
    assert_eq!(ran.json_lines()[0]["sink"], Value::Null);
    workplace.write("dispatcher.toml", &config);
    let again = workplace.send(&workplace.read("dead"), &[]).await;
    assert_eq!(again.status, 0, "{}", again.stderr);
    assert_eq!(stored_bodies(&server, "hooks"), ["hook 0"]);
}

#[tokio::test]
async fn the_pause_that_a_destination_asks_for_is_kept() {
    let server = server_with(&["hooks"]).await;
    let answer = Answer::error(ErrorCode::RequestThrottled);
    let pause = std::time::Duration::from_secs(1);
    server.add_fault(FaultRule::on(
        Operation::SendMessageBatch,
        Fault::answer(answer.with_retry_after(pause)),
    ));
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace.send(&hooks("acme", 1), &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let requests = server.requests_of(Operation::SendMessageBatch);
    let between = requests[1].at.duration_since(requests[0].at).unwrap();
    assert!(between >= pause, "{between:?}");
}

#[tokio::test]
async fn a_refusal_at_a_ceiling_of_the_sink_uses_up_no_attempt_and_keeps_the_order() {
    let server = server_with(&["hooks.fifo"]).await;
    let config = one_queue(&server.queue_url("hooks.fifo"))
        .replace("max_attempts = 4", "max_attempts = 1")
        .replace("region =", "batch_queue_tenant_max = 3\nregion =");
    let workplace = Workplace::new(&config);
    let ran = workplace.send(&hooks("acme", 40), &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for line in ran.json_lines() {
        assert_eq!(line["attempts"], 1);
    }
    let expected: Vec<String> = (0..40).map(|number| format!("hook {number}")).collect();
    assert_eq!(stored_bodies(&server, "hooks.fifo"), expected);
}

#[tokio::test]
async fn a_fifo_queue_without_batches_gets_the_order_of_the_input_too() {
    let server = server_with(&["hooks.fifo"]).await;
    let config =
        one_queue(&server.queue_url("hooks.fifo")).replace("region =", "batch = false\nregion =");
    let workplace = Workplace::new(&config);
    let ran = workplace.send(&hooks("acme", 40), &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let expected: Vec<String> = (0..40).map(|number| format!("hook {number}")).collect();
    assert_eq!(stored_bodies(&server, "hooks.fifo"), expected);
}

#[tokio::test]
async fn a_dead_letter_is_unknown_as_soon_as_one_attempt_was() {
    let server = server_with(&["hooks"]).await;
    server.fault(Operation::SendMessageBatch, Fault::reset().after_storing());
    let denied = Fault::answer(Answer::error(ErrorCode::AccessDenied));
    server.fault(Operation::SendMessageBatch, denied);
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace
        .send(&hooks("acme", 1), &["--dead-letters", "dead"])
        .await;
    assert_eq!(ran.status, 3);
    let dead: Value = serde_json::from_str(&workplace.read("dead")).unwrap();
    assert_eq!(dead["dead_letter"]["code"], "AccessDenied");
    assert_eq!(dead["dead_letter"]["attempts"], 2);
    assert_eq!(dead["dead_letter"]["outcome"], "unknown");
    assert_eq!(server.messages("hooks").unwrap().len(), 1);
}

#[tokio::test]
async fn a_stopped_server_is_told_once_with_its_cause_while_hooks_are_tried_again() {
    let server = server_with(&["hooks"]).await;
    let url = server.queue_url("hooks");
    server.shutdown().await;
    let workplace = Workplace::new(&one_queue(&url));
    let ran = workplace.send(&hooks("acme", 20), &[]).await;
    assert_eq!(ran.status, 3);
    assert_eq!(
        ran.stderr.matches("trying again").count(),
        1,
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.to_lowercase().contains("connection refused"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("kept nowhere: name a file"),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn an_input_that_is_a_folder_is_status_1() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let ran = workplace
        .run(&["send", "--config", "dispatcher.toml", "--input", "."])
        .await;
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.starts_with("cannot read .: "), "{}", ran.stderr);
}

#[cfg(unix)]
#[tokio::test]
async fn a_reader_that_reads_no_more_does_not_keep_a_host_that_is_told_to_stop() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    // Nobody reads the pipe, and it is far too small for the lines.
    let mut child = workplace.start_send(&hooks("acme", 2_000), &[]).await;
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    let pid = child.id().unwrap().to_string();
    let terminate = || {
        std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status()
    };
    let ends = async {
        // It delivers for as long as it can: 500 of them are more than the pipe takes.
        while server.messages("hooks").unwrap().len() < 500 {
            tokio::task::yield_now().await;
        }
        assert!(terminate().unwrap().success());
        while let Some(line) = stderr.next_line().await.unwrap() {
            if line.starts_with("stopping: ") {
                break;
            }
        }
        assert!(terminate().unwrap().success());
        child.wait().await.unwrap().code()
    };
    // Well under the ten seconds that the first request alone would allow.
    let status = tokio::time::timeout(std::time::Duration::from_secs(8), ends).await;
    assert_eq!(status.expect("it ends at once"), Some(3));
}

#[tokio::test]
async fn output_that_is_closed_is_told_and_every_hook_is_delivered_all_the_same() {
    let server = server_with(&["hooks"]).await;
    let workplace = Workplace::new(&one_queue(&server.queue_url("hooks")));
    let mut child = workplace.start_send(&hooks("acme", 300), &[]).await;
    drop(child.stdout.take());
    drop(child.stdin.take());
    let ran = child.wait_with_output().await.unwrap();
    assert_eq!(ran.status.code(), Some(3));
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert!(stderr.contains("300 hooks: 300 delivered"), "{stderr}");
    assert!(
        stderr.contains("standard output took no more lines"),
        "{stderr}"
    );
    assert_eq!(server.messages("hooks").unwrap().len(), 300);
}
