//! Credentials of every source, and their replacement.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dispatch_api::{DeliveryContext, Outcome, Sink as _, SinkError};
use sink_sqs::{SqsSink, SqsSinkConfig, SqsSinkConfigBuilder};
use sink_testkit::sqs::PeekedMessage;
use tokio::time::Instant;

use crate::bench::{QUEUE, ctx, envelope, envelope_of, parts, sink_of};
use crate::raw::{RawServer, Then, answer};
use crate::sources::{
    ROLE, Sts, World, assumed, document, form, known, metadata, refused, signer, time,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn config(world: &World) -> SqsSinkConfigBuilder {
    SqsSinkConfig::builder(&world.queue_url, "us-east-1")
}

fn sink(world: &World) -> SqsSink {
    sink_of(config(world), &world.services)
}

async fn deliver(sink: &SqsSink) -> Result<(), SinkError> {
    sink.deliver(&envelope(), &ctx()).await.map(drop)
}

/// A file of this test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(content: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "sink-sqs-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    fn path(&self) -> String {
        self.0.to_str().unwrap().to_owned()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A world whose environment names a web identity and this token service.
async fn web_identity(sts: impl AsyncFnOnce(&World) -> Sts) -> (World, Sts, TempFile) {
    let token = TempFile::new("identity-1\n");
    let world = World::new([]).await;
    let sts = sts(&world).await;
    world.set("AWS_WEB_IDENTITY_TOKEN_FILE", token.path());
    world.set("AWS_ROLE_ARN", ROLE);
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    (world, sts, token)
}

async fn hourly(world: &World) -> Sts {
    Sts::start(world.server.clock().clone(), HOUR).await
}

#[tokio::test]
async fn a_web_identity_is_exchanged_for_keys_without_a_signature() {
    let (world, sts, _token) = web_identity(hourly).await;
    let sink = sink(&world);
    deliver(&sink).await.unwrap();
    deliver(&sink).await.unwrap();
    assert_eq!(world.signers(), ["ASIA1", "ASIA1"]);
    let forms = sts.forms();
    assert_eq!(forms.len(), 1);
    assert_eq!(forms[0]["Action"], "AssumeRoleWithWebIdentity");
    assert_eq!(forms[0]["RoleArn"], ROLE);
    assert_eq!(forms[0]["WebIdentityToken"], "identity-1");
    assert_eq!(forms[0]["RoleSessionName"], "sink-sqs");
    let request = sts.server.requests()[0].to_lowercase();
    assert!(!request.contains("authorization:"), "{request}");
}

#[tokio::test]
async fn a_token_file_that_is_replaced_between_attempts_is_read_again() {
    let token = TempFile::new("identity-1\n");
    let path = token.path();
    let world = World::new([]).await;
    let end = world.now() + HOUR;
    let sts = Sts::answering(move |request| {
        let sent = form(request)["WebIdentityToken"].clone();
        let newest = std::fs::read_to_string(&path).unwrap();
        match (sent.as_str(), newest.trim()) {
            ("identity-1", "identity-1") => {
                std::fs::write(&path, "identity-2\n").unwrap();
                refused("400 Bad Request", "ExpiredTokenException", "token expired")
            }
            ("identity-2", "identity-2") => {
                std::fs::write(&path, "identity-3").unwrap();
                refused("400 Bad Request", "IDPCommunicationError", "try again")
            }
            ("identity-3", "identity-3") => assumed(request, "3", end),
            _ => refused("403 Forbidden", "AccessDenied", "an old token"),
        }
    })
    .await;
    world.set("AWS_WEB_IDENTITY_TOKEN_FILE", token.path());
    world.set("AWS_ROLE_ARN", ROLE);
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    deliver(&sink(&world)).await.unwrap();
    assert_eq!(sts.forms().len(), 3);
    assert_eq!(world.signers(), ["ASIA3"]);
}

#[tokio::test]
async fn fifty_sends_at_the_end_of_the_keys_make_one_refresh() {
    let (world, sts, token) = web_identity(hourly).await;
    let sink = Arc::new(sink(&world));
    deliver(&sink).await.unwrap();
    world.server.clock().advance(HOUR);
    std::fs::write(&token.0, "identity-2").unwrap();
    let sends: Vec<_> = (0..50)
        .map(|_| {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { deliver(&sink).await })
        })
        .collect();
    for send in sends {
        send.await.unwrap().unwrap();
    }
    let forms = sts.forms();
    assert_eq!(forms.len(), 2);
    assert_eq!(forms[1]["WebIdentityToken"], "identity-2");
    let signers = world.signers();
    assert_eq!(signers.len(), 51);
    assert!(signers[1..].iter().all(|signer| signer == "ASIA2"));
}

#[tokio::test]
async fn a_refresh_is_begun_ahead_and_the_old_keys_are_used_meanwhile() {
    let world = World::new([]).await;
    let (clock, count) = (world.server.clock().clone(), AtomicUsize::new(0));
    let sts = Sts::answering(move |request| match count.fetch_add(1, Ordering::Relaxed) {
        0 => assumed(request, "1", clock.now() + HOUR),
        // The refresh gets no answer.
        _ => Then::Silence,
    })
    .await;
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    let sink = sink_of(
        config(&world).credentials("test", "test").assume_role(ROLE),
        &world.services,
    );
    deliver(&sink).await.unwrap();
    world
        .server
        .clock()
        .advance(HOUR - Duration::from_secs(301));
    deliver(&sink).await.unwrap();
    assert_eq!(sts.forms().len(), 1);
    world.server.clock().advance(Duration::from_secs(1));
    let started = Instant::now();
    deliver(&sink).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(1));
    assert_eq!(world.signers(), ["ASIA1", "ASIA1", "ASIA1"]);
}

#[tokio::test]
async fn keys_that_the_service_calls_expired_are_replaced_and_the_send_succeeds() {
    let (world, sts, _token) = web_identity(hourly).await;
    let early_end = world.now() + Duration::from_secs(60);
    let known = [known("1").expiring_at(early_end), known("2")];
    world.server.set_credentials(known);
    let sink = Arc::new(sink(&world));
    deliver(&sink).await.unwrap();
    world.server.clock().advance(Duration::from_secs(61));
    let sends: Vec<_> = (0..10)
        .map(|_| {
            let sink = Arc::clone(&sink);
            tokio::spawn(async move { deliver(&sink).await })
        })
        .collect();
    for send in sends {
        send.await.unwrap().unwrap();
    }
    assert_eq!(sts.forms().len(), 2);
    assert_eq!(world.server.messages(QUEUE).unwrap().len(), 11);
}

#[tokio::test]
async fn keys_that_the_service_goes_on_refusing_are_replaced_once() {
    let (world, sts, _token) = web_identity(hourly).await;
    world.server.set_credentials([]);
    let sink = sink(&world);
    for (requests, refreshes) in [(2, 2), (3, 2), (4, 2)] {
        let error = deliver(&sink).await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("config", Outcome::NotStored, "UnrecognizedClient")
        );
        assert_eq!(world.signers().len(), requests);
        assert_eq!(sts.forms().len(), refreshes);
    }
}

#[tokio::test]
async fn static_keys_that_are_refused_are_not_sent_again() {
    let world = World::new([
        ("AWS_ACCESS_KEY_ID", "ASIAUNKNOWN".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
    ])
    .await;
    let of_environment = sink(&world);
    let of_options = sink_of(config(&world).credentials("AKID", "s"), &world.services);
    for (sink, requests) in [(of_environment, 1), (of_options, 2)] {
        let error = deliver(&sink).await.unwrap_err();
        assert_eq!(error.code(), "UnrecognizedClient");
        assert_eq!(world.server.requests().len(), requests);
    }
}

#[tokio::test]
async fn refusals_of_the_token_service_are_told_apart() {
    for (status, code, message, class, ours, requests) in [
        (
            "403 Forbidden",
            "AccessDenied",
            "no",
            "config",
            "CredentialsRefused",
            1,
        ),
        (
            "400 Bad Request",
            "ValidationError",
            "no",
            "config",
            "CredentialsRefused",
            1,
        ),
        (
            "400 Bad Request",
            "InvalidIdentityToken",
            "Incorrect token audience",
            "config",
            "CredentialsRefused",
            1,
        ),
        (
            "400 Bad Request",
            "InvalidIdentityToken",
            "Couldn't retrieve verification key from your identity provider",
            "transient",
            "CredentialsUnavailable",
            3,
        ),
        (
            "400 Bad Request",
            "IDPCommunicationError",
            "no",
            "transient",
            "CredentialsUnavailable",
            3,
        ),
        (
            "503 Service Unavailable",
            "ServiceUnavailable",
            "no",
            "transient",
            "CredentialsUnavailable",
            3,
        ),
        (
            "400 Bad Request",
            "Throttling",
            "no",
            "transient",
            "CredentialsUnavailable",
            3,
        ),
    ] {
        let sts = async |_: &World| Sts::answering(move |_| refused(status, code, message)).await;
        let (world, sts, _token) = web_identity(sts).await;
        let error = deliver(&sink(&world)).await.unwrap_err();
        assert_eq!(parts(&error), (class, Outcome::NotStored, ours), "{code}");
        assert!(error.text().contains(code), "{error}");
        assert_eq!(sts.forms().len(), requests, "{code}");
        assert_eq!(world.server.requests().len(), 0);
    }
}

#[tokio::test]
async fn junk_of_the_token_service_is_transient_and_a_repeated_token_is_not_shown() {
    let junk = Then::Answer(answer("502 Bad Gateway", "", "<html>canary</html>"));
    let sts = async |_: &World| Sts::answering(move |_| junk.clone()).await;
    let (world, _sts, _token) = web_identity(sts).await;
    let error = deliver(&sink(&world)).await.unwrap_err();
    assert_eq!(error.code(), "CredentialsUnavailable");
    let echo = async |_: &World| {
        Sts::answering(|request| {
            refused(
                "403 Forbidden",
                "AccessDenied",
                &form(request)["WebIdentityToken"],
            )
        })
        .await
    };
    let (world, _sts, _token) = web_identity(echo).await;
    let error = deliver(&sink(&world)).await.unwrap_err();
    assert_eq!(error.code(), "CredentialsRefused");
    assert!(
        !format!("{error} {error:?}").contains("identity-1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_role_is_assumed_with_its_external_id_by_the_keys_at_hand() {
    let world = World::new([]).await;
    let sts = hourly(&world).await;
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    let builder = config(&world)
        .credentials("test", "test")
        .assume_role(ROLE)
        .external_id("agreed:2026")
        .session_name("harbor");
    deliver(&sink_of(builder, &world.services)).await.unwrap();
    let forms = sts.forms();
    assert_eq!(forms[0]["Action"], "AssumeRole");
    assert_eq!(forms[0]["RoleArn"], ROLE);
    assert_eq!(forms[0]["ExternalId"], "agreed:2026");
    assert_eq!(forms[0]["RoleSessionName"], "harbor");
    assert_eq!(signer(&sts.server.requests()[0]), "test");
    assert_eq!(world.signers(), ["ASIA1"]);
}

#[tokio::test]
async fn a_role_is_assumed_though_the_hosts_clock_is_off() {
    let off = Duration::from_secs(1_200);
    let world = World::new([]).await;
    let right = world.now() + off;
    let sts = Sts::answering(move |request| {
        // The hour and the minute of the signature's date.
        let date = request.split_once("x-amz-date: ").unwrap().1;
        let minute = &date[..13];
        let expected = time(right).replace(['-', ':'], "");
        if minute == &expected[..13] {
            return assumed(request, "1", right + HOUR);
        }
        let date = format!("date: {}\r\n", httpdate::fmt_http_date(right));
        let refusal = "<ErrorResponse><Error><Type>Sender</Type>\
                       <Code>SignatureDoesNotMatch</Code>\
                       <Message>Signature not yet current</Message></Error></ErrorResponse>";
        Then::Answer(answer("403 Forbidden", &date, refusal))
    })
    .await;
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    let builder = config(&world).credentials("test", "test").assume_role(ROLE);
    deliver(&sink_of(builder, &world.services)).await.unwrap();
    assert_eq!(sts.forms().len(), 2);
    assert_eq!(world.signers(), ["ASIA1"]);
}

#[tokio::test]
async fn two_tenants_with_two_roles_never_sign_with_each_others_keys() {
    let world = World::new([]).await;
    let end = world.now() + HOUR;
    let sts = Sts::answering(move |request| {
        let name = match form(request)["RoleArn"].as_str() {
            arn if arn.ends_with("role/one") => "1",
            _ => "2",
        };
        assumed(request, name, end)
    })
    .await;
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    let sink = |role: &str| {
        let builder = config(&world)
            .credentials("test", "test")
            .batch_linger_ms(1)
            .assume_role(format!("arn:aws:iam::123456789012:role/{role}"));
        Arc::new(sink_of(builder, &world.services))
    };
    let sinks = [("tenant-one", sink("one")), ("tenant-two", sink("two"))];
    let mut sends = Vec::new();
    for round in 0..20 {
        for (tenant, sink) in &sinks {
            let envelope = envelope_of(format!("{tenant}-{round}")).with_tenant(*tenant);
            let context = match round % 2 {
                0 => DeliveryContext::attempt(std::num::NonZeroU32::MIN),
                _ => ctx(),
            };
            let sink = Arc::clone(sink);
            sends.push(tokio::spawn(async move {
                sink.deliver(&envelope, &context).await.map(drop)
            }));
        }
    }
    for send in sends {
        send.await.unwrap().unwrap();
    }
    assert_eq!(sts.forms().len(), 2);
    let requests = world.server.requests();
    assert!(requests.len() >= 22);
    for request in requests {
        let body = request.json().to_string();
        let (own, other) = match signer(request.header("authorization").unwrap()).as_str() {
            "ASIA1" => ("tenant-one", "tenant-two"),
            "ASIA2" => ("tenant-two", "tenant-one"),
            signer => panic!("{signer} signed"),
        };
        assert!(body.contains(own) && !body.contains(other), "{body}");
    }
    let stored: Vec<PeekedMessage> = world.server.messages(QUEUE).unwrap();
    assert_eq!(stored.len(), 40);
}

#[tokio::test]
async fn equal_identities_of_a_host_share_their_keys_and_other_ones_do_not() {
    let world = World::new([]).await;
    let sts = hourly(&world).await;
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    let least = || config(&world).credentials("test", "test").assume_role(ROLE);
    let sinks = [
        least(),
        least().timeout_ms(4_000),
        least().external_id("one"),
        least().external_id("two"),
        least().session_name("other"),
        least().credentials("test", "test").session_token("token"),
    ];
    let sinks: Vec<_> = sinks
        .into_iter()
        .map(|builder| sink_of(builder, &world.services))
        .collect();
    for sink in &sinks {
        deliver(sink).await.unwrap();
    }
    assert_eq!(
        world.signers(),
        ["ASIA1", "ASIA1", "ASIA2", "ASIA3", "ASIA4", "ASIA5"]
    );
}

#[tokio::test]
async fn a_profile_of_the_files_is_used_by_option_and_by_environment() {
    let config_file = TempFile::new(
        "[default]\nregion = eu-west-1\n\n[profile sender]\naws_access_key_id = ASIA2\n\
         aws_secret_access_key = secret2\naws_session_token = token2\n",
    );
    let credentials_file = TempFile::new(
        "[default]\naws_access_key_id = ASIA1\naws_secret_access_key = secret1\n\
         aws_session_token = token1\n",
    );
    let world = World::new([
        ("AWS_CONFIG_FILE", config_file.path()),
        ("AWS_SHARED_CREDENTIALS_FILE", credentials_file.path()),
    ])
    .await;
    deliver(&sink(&world)).await.unwrap();
    let by_option = sink_of(config(&world).profile("sender"), &world.services);
    deliver(&by_option).await.unwrap();
    world.set("AWS_PROFILE", "sender");
    deliver(&sink(&world)).await.unwrap();
    assert_eq!(world.signers(), ["ASIA1", "ASIA2", "ASIA2"]);
}

#[tokio::test]
async fn a_profile_that_the_options_name_wins_over_the_keys_of_the_environment() {
    let file = TempFile::new(
        "[profile sender]\naws_access_key_id = ASIA2\naws_secret_access_key = secret2\naws_session_token = token2\n",
    );
    let world = World::new([
        ("AWS_CONFIG_FILE", file.path()),
        ("AWS_ACCESS_KEY_ID", "ASIA1".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret1".to_owned()),
        ("AWS_SESSION_TOKEN", "token1".to_owned()),
    ])
    .await;
    let by_option = sink_of(config(&world).profile("sender"), &world.services);
    deliver(&by_option).await.unwrap();
    assert_eq!(world.signers(), ["ASIA2"]);
}

#[tokio::test]
async fn a_named_profile_without_keys_does_not_end_at_somebody_elses() {
    let file = TempFile::new("[default]\naws_access_key_id = ASIA1\naws_secret_access_key = s\n");
    let world = World::new([("AWS_CONFIG_FILE", file.path())]).await;
    let instance = metadata("1", world.now() + HOUR).await;
    world.set("AWS_EC2_METADATA_DISABLED", "false");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.origin());
    let sink = sink_of(config(&world).profile("absent"), &world.services);
    let error = deliver(&sink).await.unwrap_err();
    assert_eq!(error.code(), "NoCredentials");
    assert!(error.text().contains("absent"), "{error}");
    assert_eq!(instance.requests().len(), 0);
}

#[tokio::test]
async fn a_profile_can_name_its_source() {
    let world = World::new([]).await;
    let instance = metadata("4", world.now() + HOUR).await;
    let sts = hourly(&world).await;
    let file = TempFile::new(&format!(
        "[default]\nrole_arn = {ROLE}\ncredential_source = Ec2InstanceMetadata\n\
         services = local\n\n[services local]\nsts =\n  endpoint_url = {}\n",
        sts.server.origin()
    ));
    world.set("AWS_CONFIG_FILE", file.path());
    world.set("AWS_EC2_METADATA_DISABLED", "false");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.origin());
    deliver(&sink(&world)).await.unwrap();
    assert_eq!(signer(&sts.server.requests()[0]), "ASIA4");
    assert_eq!(world.signers(), ["ASIA1"]);
}

#[tokio::test]
async fn the_role_of_a_profile_that_is_refused_is_a_fault_of_the_configuration() {
    let world = World::new([]).await;
    let sts = Sts::answering(|_| refused("403 Forbidden", "AccessDenied", "canary")).await;
    let file = TempFile::new(&format!(
        "[default]\nrole_arn = {ROLE}\nsource_profile = base\nservices = local\n\n\
         [services local]\nsts =\n  endpoint_url = {}\n\n\
         [profile base]\naws_access_key_id = AKID\naws_secret_access_key = canary\n",
        sts.server.origin()
    ));
    world.set("AWS_CONFIG_FILE", file.path());
    let error = deliver(&sink(&world)).await.unwrap_err();
    assert_eq!(error.code(), "CredentialsRefused");
    assert!(error.text().contains("AccessDenied"), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
}

#[tokio::test]
async fn a_file_that_cannot_be_read_as_profiles_is_named_and_not_shown() {
    for content in [
        "[default\naws_access_key_id = canary\n",
        "[default]\naws_access_key_id canary\n",
        "[default]\naws_access_key_id = canary\n",
        "[default]\nrole_arn = canary\n",
        "[default]\nsso_session = team\nsso_account_id = canary\nsso_role_name = canary\n",
        "[default]\ncredential_process = /bin/echo canary\n",
    ] {
        let file = TempFile::new(content);
        let world = World::new([("AWS_SHARED_CREDENTIALS_FILE", file.path())]).await;
        let error = deliver(&sink(&world)).await.unwrap_err();
        let known = ["NoCredentials", "CredentialsUnavailable"];
        assert!(known.contains(&error.code()), "{error}");
        assert_eq!(error.outcome(), Outcome::NotStored);
        assert!(error.text().contains("profile"), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn the_keys_that_a_credential_process_prints_are_used_until_shortly_before_their_end() {
    let world = World::new([]).await;
    let keys = |name: &str, end| {
        format!(
            "{{\"Version\":1,\"AccessKeyId\":\"ASIA{name}\",\"SecretAccessKey\":\"secret{name}\",\
             \"SessionToken\":\"token{name}\",\"Expiration\":\"{}\"}}",
            time(end)
        )
    };
    let printed = TempFile::new(&keys("1", world.now() + HOUR));
    let file = TempFile::new(&format!(
        "[default]\ncredential_process = cat {}\n",
        printed.path()
    ));
    world.set("AWS_CONFIG_FILE", file.path());
    let sink = sink(&world);
    deliver(&sink).await.unwrap();
    std::fs::write(printed.path(), keys("2", world.now() + 2 * HOUR)).unwrap();
    deliver(&sink).await.unwrap();
    world.server.clock().advance(HOUR);
    deliver(&sink).await.unwrap();
    assert_eq!(world.signers(), ["ASIA1", "ASIA1", "ASIA2"]);
}

#[cfg(unix)]
#[tokio::test]
async fn what_a_credential_process_says_when_it_fails_is_not_shown() {
    for command in ["echo canary >&2; exit 3", "echo canary", "./canary"] {
        let file = TempFile::new(&format!("[default]\ncredential_process = {command}\n"));
        let world = World::new([("AWS_CONFIG_FILE", file.path())]).await;
        let error = deliver(&sink(&world)).await.unwrap_err();
        assert_eq!(error.code(), "CredentialsUnavailable");
        assert!(error.text().contains("the profile default"), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
    }
}

/// A container's endpoint that demands the token of a file.
async fn container(world: &World, file: &TempFile) -> RawServer {
    let (path, document) = (file.path(), document("2", world.now() + HOUR));
    let server = RawServer::answering(move |request| {
        let token = std::fs::read_to_string(&path).unwrap();
        let expected = format!("authorization: {}\r\n", token.trim_end());
        Then::Answer(match request.to_lowercase().contains(&expected) {
            true => answer("200 OK", "", &document),
            false => answer("403 Forbidden", "", ""),
        })
    })
    .await;
    let url = format!("{}/v1/credentials", server.origin());
    world.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
    world.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", file.path());
    server
}

#[tokio::test]
async fn each_source_comes_before_those_behind_it() {
    let token = TempFile::new("pod-token\n");
    let world = World::new([]).await;
    let instance = metadata("1", world.now() + HOUR).await;
    world.set("AWS_EC2_METADATA_DISABLED", "false");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.origin());
    deliver(&sink(&world)).await.unwrap();
    let asked = instance.requests().len();
    assert_eq!(asked, 3);

    let endpoint = container(&world, &token).await;
    deliver(&sink(&world)).await.unwrap();
    assert_eq!(endpoint.requests().len(), 1);

    let end = world.now() + HOUR;
    let sts = Sts::answering(move |request| assumed(request, "3", end)).await;
    let identity = TempFile::new("identity");
    world.set("AWS_WEB_IDENTITY_TOKEN_FILE", identity.path());
    world.set("AWS_ROLE_ARN", ROLE);
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    deliver(&sink(&world)).await.unwrap();

    let file = TempFile::new(
        "[default]\naws_access_key_id = ASIA4\naws_secret_access_key = secret4\n\
         aws_session_token = token4\n",
    );
    world.set("AWS_SHARED_CREDENTIALS_FILE", file.path());
    deliver(&sink(&world)).await.unwrap();

    world.set("AWS_ACCESS_KEY_ID", "ASIA5");
    world.set("AWS_SECRET_ACCESS_KEY", "secret5");
    world.set("AWS_SESSION_TOKEN", "token5");
    deliver(&sink(&world)).await.unwrap();

    let of_options = config(&world).credentials("test", "test");
    deliver(&sink_of(of_options, &world.services))
        .await
        .unwrap();

    assert_eq!(
        world.signers(),
        ["ASIA1", "ASIA2", "ASIA3", "ASIA4", "ASIA5", "test"]
    );
    assert_eq!(instance.requests().len(), asked);
    assert_eq!(endpoint.requests().len(), 1);
    assert_eq!(sts.forms().len(), 1);
}

#[tokio::test]
async fn a_container_that_fails_is_not_passed_over() {
    let token = TempFile::new("pod-token");
    let world = World::new([]).await;
    let endpoint = RawServer::start(Then::Answer(answer("500 Oops", "", ""))).await;
    let instance = metadata("1", world.now() + HOUR).await;
    world.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", endpoint.origin());
    world.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path());
    world.set("AWS_EC2_METADATA_DISABLED", "false");
    world.set("AWS_EC2_METADATA_SERVICE_ENDPOINT", instance.origin());
    let error = deliver(&sink(&world)).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "CredentialsUnavailable")
    );
    assert_eq!(endpoint.requests().len(), 3);
    assert_eq!(instance.requests().len(), 0);
}

#[tokio::test]
async fn a_containers_token_goes_to_the_host_itself_alone() {
    for url in [
        "http://192.0.2.1/",
        "http://example.com/",
        "ftp://127.0.0.1/",
        "nonsense",
    ] {
        let world = World::new([
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.to_owned()),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "canary".to_owned()),
        ])
        .await;
        let error = deliver(&sink(&world)).await.unwrap_err();
        assert_eq!(
            parts(&error),
            ("config", Outcome::NotStored, "InvalidCredentials"),
            "{url}"
        );
    }
    let world = World::new([
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "http://127.0.0.1:1/".to_owned(),
        ),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "canary\n".to_owned()),
    ])
    .await;
    let error = deliver(&sink(&world)).await.unwrap_err();
    assert_eq!(error.code(), "InvalidCredentials");
    assert!(!format!("{error:?}").contains("canary"));
}

#[tokio::test]
async fn without_any_source_each_is_named_within_seconds_though_the_metadata_is_silent() {
    let silent = RawServer::start(Then::Silence).await;
    let world = World::new([
        ("AWS_EC2_METADATA_DISABLED", "false".to_owned()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", silent.origin()),
    ])
    .await;
    let sink = sink(&world);
    let started = Instant::now();
    let error = deliver(&sink).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_millis(4_500));
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "NoCredentials")
    );
    for named in [
        "the options have no access_key_id",
        "AWS_ACCESS_KEY_ID is not set",
        "profile: no file",
        "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set",
        "container: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "instance metadata: http://127.0.0.1",
    ] {
        assert!(error.text().contains(named), "{named} in {error}");
    }
    assert_eq!(world.server.connections(), 0);
    world.set("AWS_ACCESS_KEY_ID", "test");
    world.set("AWS_SECRET_ACCESS_KEY", "test");
    deliver(&sink).await.unwrap();
}

#[tokio::test]
async fn a_source_slower_than_the_delivery_is_told_and_its_answer_kept() {
    let (world, sts, _token) =
        web_identity(async |_: &World| Sts::answering(|_| Then::Silence).await).await;
    let sink = sink_of(config(&world).timeout_ms(100), &world.services);
    let error = deliver(&sink).await.unwrap_err();
    assert_eq!(
        parts(&error),
        ("transient", Outcome::NotStored, "CredentialsUnavailable")
    );
    deliver(&sink).await.unwrap_err();
    assert_eq!(sts.server.requests().len(), 1, "one refresh at a time");
}

#[tokio::test]
async fn neither_metadata_nor_container_is_asked_through_the_proxy() {
    let token = TempFile::new("pod-token");
    let proxy = RawServer::start(Then::Close).await;
    let world = World::new([]).await;
    let builder = || config(&world).proxy(proxy.origin());
    let endpoint = container(&world, &token).await;
    let error = deliver(&sink_of(builder(), &world.services))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "ConnectionLost");
    assert_eq!(endpoint.requests().len(), 1);
    assert_eq!(proxy.requests().len(), 1, "the send alone");
    let sts = hourly(&world).await;
    world.set("AWS_ENDPOINT_URL_STS", sts.server.origin());
    let role = builder().credentials("test", "test").assume_role(ROLE);
    let error = deliver(&sink_of(role, &world.services)).await.unwrap_err();
    assert_eq!(error.code(), "CredentialsUnavailable");
    assert_eq!(sts.server.requests().len(), 0);
}
