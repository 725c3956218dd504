//! What is logged, in a process of its own: other tests would log too.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[expect(dead_code, reason = "shared with the other tests")]
#[path = "it/raw.rs"]
mod raw;

use std::io;
use std::sync::{Arc, Mutex};

use dispatch_api::{DeliveryContext, Envelope, HostServices, Sink as _};
use sink_sqs::{SqsSink, SqsSinkConfig};

use crate::raw::{RawServer, Then, answer};

const SECRET: &str = "canarySecretKey";
const TOKEN: &str = "canarySessionToken";
const PAYLOAD: &str = "canaryPayload";
/// How the payload travels, less what depends on its end.
const ENCODED: &str = "Y2FuYXJ5UGF5bG9hZ";
const IDENTITY: &str = "canaryIdentityToken";
const EXTERNAL: &str = "canaryExternalId";
const FORBIDDEN: [&str; 6] = [SECRET, TOKEN, PAYLOAD, ENCODED, IDENTITY, EXTERNAL];

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A web identity exchanged for a role's keys, and a role that is refused, with a token
/// service and an environment that hold nothing but secrets.
#[cfg(feature = "default-chain")]
async fn deliver_with_a_role() {
    let handed_out = format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
         <SessionToken>{TOKEN}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>\
         </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
    );
    let refusal = format!(
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>{TOKEN} {EXTERNAL}</Message>\
         </Error></ErrorResponse>"
    );
    let sts = RawServer::answering(move |request| {
        Then::Answer(match request.contains("WithWebIdentity") {
            true => answer("200 OK", "", &handed_out),
            false => answer("403 Forbidden", "", &refusal),
        })
    })
    .await;
    let file = std::env::temp_dir().join(format!("sink-sqs-log-{}", std::process::id()));
    std::fs::write(&file, IDENTITY).unwrap();
    let (path, origin) = (file.to_str().unwrap().to_owned(), sts.origin());
    let services = HostServices::new().with_environment(move |name| match name {
        "AWS_WEB_IDENTITY_TOKEN_FILE" => Some(path.clone()),
        "AWS_ROLE_ARN" => Some("arn:aws:iam::123456789012:role/r".to_owned()),
        "AWS_ENDPOINT_URL_STS" => Some(origin.clone()),
        _ => None,
    });
    let queue = RawServer::start(Then::Close).await;
    let plain = SqsSinkConfig::builder(queue.queue_url(), "us-east-1");
    let role = plain
        .clone()
        .assume_role("arn:aws:iam::123456789012:role/s")
        .external_id(EXTERNAL);
    for (config, code) in [(plain, "ConnectionLost"), (role, "CredentialsRefused")] {
        let sink = SqsSink::new(config.build(&services).unwrap(), &services).unwrap();
        let envelope = Envelope::new(services.new_envelope_id(), "harbor", 0, PAYLOAD);
        let error = sink
            .deliver(&envelope, &DeliveryContext::direct())
            .await
            .unwrap_err();
        assert_eq!(error.code(), code);
        for forbidden in FORBIDDEN {
            assert!(!format!("{error} {error:?} {sink:?}").contains(forbidden));
        }
    }
    let _ = std::fs::remove_file(file);
    let requests = sts.requests().concat();
    assert!(requests.contains(IDENTITY) && requests.contains(TOKEN) && requests.contains(EXTERNAL));
    assert!(queue.requests().concat().contains(TOKEN));
}

#[tokio::test]
async fn a_log_at_its_loudest_shows_no_credential_and_no_payload() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || written.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).unwrap();

    let refusal = format!(r#"{{"__type":"AccessDenied","message":"{TOKEN} {SECRET} {PAYLOAD}"}}"#);
    let services = HostServices::new();
    let id = services.new_envelope_id();
    for then in [
        Then::Close,
        Then::Answer(answer("200 OK", "", "{}")),
        Then::Answer(answer("403 Forbidden", "", &refusal)),
    ] {
        let server = RawServer::start(then).await;
        let config = SqsSinkConfig::builder(server.queue_url(), "us-east-1")
            .credentials("AKID", SECRET)
            .session_token(TOKEN)
            .build(&services)
            .unwrap();
        let sink = SqsSink::new(config, &services).unwrap();
        let envelope = Envelope::new(id, "harbor", 0, PAYLOAD);
        sink.deliver(&envelope, &DeliveryContext::direct())
            .await
            .unwrap_err();
        let request = server.requests().concat();
        assert!(request.contains(TOKEN) && request.contains(ENCODED));
    }

    #[cfg(feature = "default-chain")]
    deliver_with_a_role().await;

    let shown = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(
        shown.contains("connecting to"),
        "nothing was logged: {shown}"
    );
    #[cfg(feature = "default-chain")]
    assert!(shown.contains("credentials obtained") && shown.contains("web identity"));
    for forbidden in FORBIDDEN {
        assert!(!shown.contains(forbidden), "{forbidden} in {shown}");
    }
}
