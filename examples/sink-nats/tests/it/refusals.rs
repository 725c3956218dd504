//! What a real server refuses, and that it is told so.

use async_nats::jetstream::stream::DiscardPolicy;
use dispatch_api::{ErrorClass, Outcome, Sink as _};
use futures_util::TryStreamExt as _;
use serde_json::json;

use crate::support::server::{NatsServer, server_or_skip};
use crate::support::{ctx, envelope, envelope_of, parts, sink};

#[tokio::test]
async fn without_a_stream_the_configuration_is_at_fault_and_none_is_created() {
    let server = server_or_skip!();
    let sink = sink(&server.address(), &json!({}));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("config", Outcome::NotStored, "NoStream"));
    let jetstream = server.jetstream().await;
    let streams: Vec<String> = jetstream.stream_names().try_collect().await.unwrap();
    assert_eq!(streams, [""; 0]);
    server.create_stream().await;
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_subscriber_that_is_no_stream_is_no_confirmation() {
    let server = server_or_skip!();
    let client = async_nats::connect(server.address()).await.unwrap();
    let mut subscriber = client.subscribe("hooks.acme").await.unwrap();
    client.flush().await.unwrap();
    let answering = tokio::spawn(async move {
        use futures_util::StreamExt as _;
        let message = subscriber.next().await.unwrap();
        let reply = message.reply.unwrap();
        client.publish(reply, "+OK".into()).await.unwrap();
        client.flush().await.unwrap();
    });
    let sink = sink(&server.address(), &json!({}));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "UnexpectedReply")
    );
    answering.await.unwrap();
}

#[tokio::test]
async fn wrong_credentials_are_the_configurations_fault_and_right_ones_connect() {
    for (server_side, wrong, right) in [
        (
            r#"authorization { token: "right" }"#,
            json!({"token": "wrong"}),
            json!({"token": "right"}),
        ),
        (
            r#"authorization { user: "u", password: "right" }"#,
            json!({"user": "u", "password": "wrong"}),
            json!({"user": "u", "password": "right"}),
        ),
    ] {
        let Some(server) = NatsServer::start(server_side) else {
            return;
        };
        let expected = ("config", Outcome::NotStored, "AuthorizationViolation");
        for options in [wrong, json!({})] {
            let sink = sink(&server.address(), &options);
            let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
            assert_eq!(parts(&error), expected);
        }
        let sink = sink(&server.address(), &right);
        let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
        assert_eq!(parts(&error).2, "NoStream");
    }
}

const PERMISSIONS: &str = r#"
authorization { users: [
  { user: "writer", password: "p", permissions: { publish: ["hooks.acme"], subscribe: ["_INBOX.>"] } }
  { user: "deaf", password: "p", permissions: { publish: ["hooks.>"], subscribe: ["nothing"] } }
  { user: "admin", password: "p" }
] }"#;

async fn create_stream_as_admin(address: &str) {
    let options = async_nats::ConnectOptions::with_user_and_password("admin".into(), "p".into());
    let client = options.connect(address).await.unwrap();
    let config = async_nats::jetstream::stream::Config {
        name: "HOOKS".to_owned(),
        subjects: vec!["hooks.>".to_owned()],
        ..Default::default()
    };
    async_nats::jetstream::new(client)
        .create_stream(config)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_forbidden_subject_is_told_at_once_and_a_permitted_one_goes_on() {
    let Some(server) = NatsServer::start(PERMISSIONS) else {
        return;
    };
    create_stream_as_admin(&server.address()).await;
    let writer = json!({"user": "writer", "password": "p", "subject": "hooks.{tenant_id}", "timeout_ms": 60_000});
    let sink = sink(&server.address(), &writer);
    let began = tokio::time::Instant::now();
    let error = sink
        .deliver(&envelope().with_tenant("globex"), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("config", Outcome::NotStored, "PermissionDenied")
    );
    assert!(began.elapsed().as_secs() < 30);
    sink.deliver(&envelope(), &ctx()).await.unwrap();
}

#[tokio::test]
async fn a_user_who_may_not_listen_for_answers_sends_one_message_and_no_more() {
    let Some(server) = NatsServer::start(PERMISSIONS) else {
        return;
    };
    create_stream_as_admin(&server.address()).await;
    let sink = sink(
        &server.address(),
        &json!({"user": "deaf", "password": "p", "timeout_ms": 60_000}),
    );
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::Unknown, "InboxDenied")
    );
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), ("config", Outcome::NotStored, "InboxDenied"));
}

#[tokio::test]
async fn a_message_over_the_servers_maximum_is_refused_unsent_with_both_sizes() {
    let server = server_or_skip!("max_payload: 2048");
    let mut stream = server.create_stream().await;
    let sink = sink(&server.address(), &json!({}));
    let error = sink
        .deliver(&envelope_of("x".repeat(3_000)), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "MessageTooLarge")
    );
    assert!(error.text().contains("max_payload (2048)"), "{error}");
    assert!(error.text().contains("the message of 4"), "{error}");
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 1);
}

#[tokio::test]
async fn a_configured_maximum_below_the_servers_wins_and_one_above_does_not() {
    let server = server_or_skip!("max_payload: 2048");
    server.create_stream().await;
    for (configured, limit) in [
        (1_500, "max_message_bytes (1500)"),
        (9_000, "max_payload (2048)"),
    ] {
        let sink = sink(&server.address(), &json!({"max_message_bytes": configured}));
        let error = sink
            .deliver(&envelope_of("x".repeat(2_000)), &ctx())
            .await
            .unwrap_err();
        assert!(error.text().contains(limit), "{error}");
    }
}

#[tokio::test]
async fn a_message_of_exactly_the_servers_maximum_is_stored_and_one_byte_more_is_not() {
    let envelope = envelope_of("x".repeat(3_000)).with_dedupe_key("é".repeat(40));
    let measuring = sink("127.0.0.1", &json!({"max_message_bytes": 1}));
    let error = measuring.deliver(&envelope, &ctx()).await.unwrap_err();
    let size: usize = error.text().split(' ').nth(3).unwrap().parse().unwrap();
    for (max, fits) in [(size, true), (size - 1, false)] {
        let Some(server) = NatsServer::start(&format!("max_payload: {max}")) else {
            return;
        };
        server.create_stream().await;
        let sink = sink(&server.address(), &json!({}));
        let answer = sink.deliver(&envelope, &ctx()).await;
        assert_eq!(answer.is_ok(), fits, "{answer:?}");
    }
}

#[tokio::test]
async fn a_stream_that_is_full_and_discards_new_messages_asks_to_wait() {
    let server = server_or_skip!();
    let mut stream = server
        .create_stream_with(|config| {
            config.max_messages = 1;
            config.discard = DiscardPolicy::New;
        })
        .await;
    let sink = sink(&server.address(), &json!({}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("retry_after", Outcome::NotStored, "StreamFull")
    );
    assert!(matches!(error.class(), ErrorClass::RetryAfter(pause) if pause.as_millis() <= 500));
    stream.purge().await.unwrap();
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 1);
}

#[tokio::test]
async fn a_stream_full_of_bytes_asks_to_wait() {
    let server = server_or_skip!();
    server
        .create_stream_with(|config| {
            config.max_bytes = 2_000;
            config.discard = DiscardPolicy::New;
        })
        .await;
    let sink = sink(&server.address(), &json!({}));
    sink.deliver(&envelope(), &ctx()).await.unwrap();
    let error = sink
        .deliver(&envelope_of("x".repeat(1_400)), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("retry_after", Outcome::NotStored, "StreamFull")
    );
}

#[tokio::test]
async fn a_message_over_the_streams_maximum_is_permanent() {
    let server = server_or_skip!();
    server
        .create_stream_with(|config| config.max_message_size = 1_500)
        .await;
    let sink = sink(&server.address(), &json!({}));
    let error = sink
        .deliver(&envelope_of("x".repeat(2_000)), &ctx())
        .await
        .unwrap_err();
    assert_eq!(
        parts(&error),
        ("permanent", Outcome::NotStored, "MessageTooLarge")
    );
    assert!(error.text().contains("max_msg_size"), "{error}");
}

#[tokio::test]
async fn a_sealed_stream_is_the_configurations_fault() {
    let server = server_or_skip!();
    let stream = server.create_stream().await;
    let mut config = stream.cached_info().config.clone();
    config.sealed = true;
    let jetstream = server.jetstream().await;
    jetstream.update_stream(config).await.unwrap();
    let sink = sink(&server.address(), &json!({}));
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error).0, "config", "{error}");
}
