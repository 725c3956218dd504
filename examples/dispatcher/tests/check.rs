//! `check`, `sinks`, `demo` and wrong usage, as a user runs them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

mod support;

use serde_json::Value;
use support::{CANARY, Workplace, run};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// The kinds that are linked.
const KINDS: &[&str] = match cfg!(feature = "kafka") {
    true => &["kafka", "log", "nats", "sqs"],
    false => &["log", "nats", "sqs"],
};

#[tokio::test]
async fn check_reports_everything_wrong_in_one_run() {
    let workplace = Workplace::new(
        r#"
[dispatch]
sink_concurrency = 0

[sinks.one]
kind = "sqss"

[sinks.two]
kind = "sqs"
queue_ulr = "https://sqs.us-east-1.amazonaws.com/123456789012/hooks"
timeout_ms = 0

[sinks.three]
kind = "sqs"
queue_url = "${NO_SUCH_VARIABLE}"
region = "us-east-1"
http = { porxy = "http://127.0.0.1:3128" }

[sinks.four]
kind = 5

[sources.github]
sinks = ["tow"]
forward_heders = "default"

[tenants.acme]
sinks = []
"#,
    );
    let ran = workplace
        .run(&["check", "--config", "dispatcher.toml"])
        .await;
    assert_eq!(ran.status, 1);
    assert_eq!(ran.stdout, "");
    let known = KINDS.join(", ");
    for expected in [
        "dispatch.sink_concurrency: expected 1 to 1024",
        &format!("sinks.one.kind: unknown kind `sqss`, did you mean `sqs`? known: {known}"),
        "sinks.two.queue_ulr: unknown key `queue_ulr`, did you mean `queue_url`?",
        "sinks.two.queue_url: ",
        "sinks.two.region: ",
        "sinks.two.timeout_ms: ",
        "sinks.three.queue_url: the environment variable NO_SUCH_VARIABLE is not set",
        &format!("sinks.four.kind: expected a string: one of {known}"),
        "sinks.three.http.porxy: unknown key `porxy`, did you mean `proxy`?",
        "sources.github.sinks: unknown sink `tow`, did you mean `two`? known: four, one, three, two",
        "sources.github.forward_heders: unknown key `forward_heders`, did you mean `forward_headers`?",
        "tenants.acme.sinks: name at least one sink",
    ] {
        let found = ran.stderr.lines().any(|line| line.starts_with(expected));
        assert!(found, "{expected:?} is missing in:\n{}", ran.stderr);
    }
    let of_the_unset_one = ran.stderr.matches("sinks.three.queue_url: ").count();
    assert_eq!(
        of_the_unset_one, 1,
        "one cause is one problem:\n{}",
        ran.stderr
    );
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_failure() {
    for arguments in [&["sinks"][..], &["sinks", "--json"], &["demo"]] {
        let mut child = support::command(arguments)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let ran = child.wait_with_output().await.unwrap();
        assert_eq!(ran.status.code(), Some(0), "{arguments:?}");
        assert!(!String::from_utf8(ran.stderr).unwrap().contains("panicked"));
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn an_output_that_takes_nothing_is_status_1() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let child = support::command(&["sinks"])
        .stdout(full)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let ran: support::Ran = child.wait_with_output().await.unwrap().into();
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.starts_with("cannot write to standard output: "),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn check_passes_a_good_configuration_without_any_network() {
    let workplace = Workplace::new(
        r#"
[sinks.main]
kind = "sqs"
queue_url = "https://sqs.${REGION:-eu-west-1}.amazonaws.com/123456789012/hooks.fifo"
region = "${REGION:-eu-west-1}"

[sinks.journal]
kind = "log"

[sources.github]
sinks = ["main", "journal"]
forward_headers = ["X-GitHub-Event"]
"#,
    );
    let ran = workplace
        .run(&["check", "--config", "dispatcher.toml"])
        .await;
    assert_eq!((ran.status, &*ran.stderr), (0, ""));
    assert_eq!(ran.stdout, "dispatcher.toml: valid; sinks: journal, main\n");
}

#[tokio::test]
async fn a_problem_never_shows_the_value_of_a_secret() {
    let workplace = Workplace::new(&format!(
        r#"
[sinks.main]
kind = "sqs"
queue_url = "https://user:{CANARY}@sqs.us-east-1.amazonaws.com/123456789012/hooks"
region = "us-east-1"
secret_access_key = "{CANARY}"
session_token = "{CANARY}"
timeout_ms = "{CANARY}"

[sources.github]
sinks = ["main"]
"#
    ));
    let ran = workplace
        .run(&["check", "--config", "dispatcher.toml"])
        .await;
    assert_eq!(ran.status, 1);
    assert!(
        ran.stderr.contains("sinks.main.timeout_ms"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains(CANARY), "{}", ran.stderr);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_one_clear_line() {
    let workplace = Workplace::new("sinks = [\n");
    let missing = workplace.run(&["check", "--config", "missing.toml"]).await;
    assert_eq!(missing.status, 1);
    assert!(
        missing.stderr.starts_with("cannot read missing.toml: "),
        "{}",
        missing.stderr
    );
    let broken = workplace
        .run(&["check", "--config", "dispatcher.toml"])
        .await;
    assert_eq!(broken.status, 1);
    assert!(broken.stderr.contains("not TOML"), "{}", broken.stderr);
}

#[tokio::test]
async fn sinks_lists_the_linked_plugins_and_their_options() {
    let ran = run(&["sinks"]).await;
    assert_eq!(ran.status, 0);
    assert!(
        ran.stdout.contains("sqs: ") && ran.stdout.contains("log: "),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("  queue_url\n"), "{}", ran.stdout);

    let ran = run(&["sinks", "--json"]).await;
    let plugins: Vec<Value> = serde_json::from_str(&ran.stdout).unwrap();
    let kinds = plugins
        .iter()
        .map(|plugin| plugin["kind"].as_str().unwrap());
    assert_eq!(kinds.collect::<Vec<_>>(), KINDS);
    let options = plugins.last().unwrap()["options"]["properties"]
        .as_object()
        .unwrap();
    for option in [
        "queue_url",
        "region",
        "endpoint",
        "message_group_id",
        "inline_max_bytes",
        "max_message_bytes",
        "timeout_ms",
        "access_key_id",
        "secret_access_key",
        "session_token",
        "batch",
        "batch_linger_ms",
        "batch_max_entries",
        "batch_max_bytes",
        "batch_queue_max",
        "batch_queue_max_bytes",
        "batch_queue_tenant_max",
        "batch_max_inflight",
        "http",
    ] {
        let described = options
            .get(option)
            .and_then(|option| option.get("description"));
        assert!(
            described.is_some(),
            "{option} is missing or says nothing of itself"
        );
    }
}

#[tokio::test]
async fn demo_shows_each_tenants_hooks_in_its_own_queue_and_one_dead_letter() {
    let ran = run(&["demo"]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    for (queue, tenant) in [
        ("acme-hooks", "acme"),
        ("globex-hooks", "globex"),
        ("initech-hooks.fifo", "initech"),
    ] {
        let (_, after) = ran.stdout.split_once(&format!("in {queue}:\n")).unwrap();
        let listed: Vec<&str> = after.lines().take_while(|line| !line.is_empty()).collect();
        assert_eq!(listed.len(), 3, "{queue}");
        for line in listed {
            assert!(line.contains(&format!("tenant {tenant} ")), "{line}");
        }
    }
    assert!(
        ran.stdout.contains("config: QueueDoesNotExist: "),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stdout
            .contains("10 hooks: 9 delivered, 1 dead-lettered"),
        "{}",
        ran.stdout
    );
}

#[cfg(unix)]
#[tokio::test]
async fn sqs_serves_the_named_queues_until_it_is_told_to_stop() {
    let mut child = support::command(&["sqs", "--addr", "127.0.0.1:0", "--queue", "hooks.fifo"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    assert!(first.starts_with("SQS at http://127.0.0.1:"), "{first}");
    let queue = lines.next_line().await.unwrap().unwrap();
    let queue_url = queue.strip_prefix("queue ").unwrap();
    assert!(queue_url.ends_with("/000000000000/hooks.fifo"), "{queue}");

    let workplace = Workplace::new(&support::one_queue(queue_url));
    let ran = workplace.send(&support::hooks("acme", 3), &[]).await;
    assert_eq!(ran.status, 0, "{}", ran.stderr);

    let pid = child.id().unwrap().to_string();
    let told = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(told.unwrap().success());
    assert_eq!(child.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn wrong_usage_is_status_2() {
    for arguments in [
        &["send"][..],
        &["deliver"],
        &["sqs", "--addr", "nowhere"],
        &[],
    ] {
        assert_eq!(run(arguments).await.status, 2, "{arguments:?}");
    }
}
