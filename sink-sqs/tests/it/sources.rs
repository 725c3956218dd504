//! What hands out credentials, in this process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dispatch_api::{Clock, HostServices};
use sink_testkit::sqs::{Credentials, SqsServer};

use crate::bench::QUEUE;
use crate::raw::{RawServer, Then, answer};

pub(crate) const ROLE: &str = "arn:aws:iam::123456789012:role/sender";

/// Variables of a host's environment, which a test may change.
pub(crate) type Environment = Arc<Mutex<HashMap<&'static str, String>>>;

/// A server that knows the keys `ASIA1` to `ASIA9`, each with its secret and token, and a
/// host that lives by its clock and by an environment of its own.
pub(crate) struct World {
    pub(crate) server: SqsServer,
    pub(crate) queue_url: String,
    pub(crate) services: HostServices,
    pub(crate) environment: Environment,
}

struct ServerClock(sink_testkit::sqs::Clock);

impl Clock for ServerClock {
    fn now(&self) -> SystemTime {
        self.0.now()
    }
}

impl World {
    pub(crate) async fn new(variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let server = SqsServer::start().await.unwrap();
        let known = (1..10).map(|n| known(&n.to_string()));
        server.set_credentials(known.chain([Credentials::new("test", "test")]));
        let queue_url = server.create_queue(QUEUE, []).await.unwrap();
        server.clear_requests();
        let environment: Environment = Arc::new(Mutex::new(variables.into_iter().collect()));
        environment
            .lock()
            .unwrap()
            .entry("AWS_EC2_METADATA_DISABLED")
            .or_insert_with(|| "true".to_owned());
        let read = Arc::clone(&environment);
        let services = HostServices::new()
            .with_clock(Arc::new(ServerClock(server.clock().clone())))
            .with_environment(move |name| read.lock().unwrap().get(name).cloned());
        Self {
            server,
            queue_url,
            services,
            environment,
        }
    }

    pub(crate) fn set(&self, name: &'static str, value: impl Into<String>) {
        self.environment.lock().unwrap().insert(name, value.into());
    }

    pub(crate) fn now(&self) -> SystemTime {
        self.server.clock().now()
    }

    /// The access keys that signed the requests so far, in their order.
    pub(crate) fn signers(&self) -> Vec<String> {
        self.server
            .requests()
            .iter()
            .map(|request| signer(request.header("authorization").unwrap()))
            .collect()
    }
}

/// The access key of an authorization header.
pub(crate) fn signer(authorization: &str) -> String {
    let rest = authorization.split_once("Credential=").unwrap().1;
    rest.split_once('/').unwrap().0.to_owned()
}

/// The credentials of this name, as a server knows them.
pub(crate) fn known(name: &str) -> Credentials {
    Credentials::new(format!("ASIA{name}"), format!("secret{name}"))
        .with_session_token(format!("token{name}"))
}

/// A token service that hands out the keys `ASIA1`, `ASIA2` and so on, in its turn.
#[derive(Clone)]
pub(crate) struct Sts {
    pub(crate) server: Arc<RawServer>,
}

impl Sts {
    /// Keys that live this long by the clock of `world`.
    pub(crate) async fn start(clock: sink_testkit::sqs::Clock, life: Duration) -> Self {
        let count = AtomicUsize::new(0);
        Self::answering(move |request| {
            let n = count.fetch_add(1, Ordering::Relaxed) + 1;
            assumed(request, &n.to_string(), clock.now() + life)
        })
        .await
    }

    pub(crate) async fn answering(handler: impl Fn(&str) -> Then + Send + Sync + 'static) -> Self {
        let server = RawServer::answering(handler).await;
        Self {
            server: Arc::new(server),
        }
    }

    /// The forms that were posted so far.
    pub(crate) fn forms(&self) -> Vec<HashMap<String, String>> {
        self.server
            .requests()
            .iter()
            .map(|request| form(request))
            .collect()
    }
}

/// The members of a posted form.
pub(crate) fn form(request: &str) -> HashMap<String, String> {
    let body = request.split_once("\r\n\r\n").unwrap().1;
    url::form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect()
}

/// The answer that hands out the keys of this name.
pub(crate) fn assumed(request: &str, name: &str, end: SystemTime) -> Then {
    let action = &form(request)["Action"];
    let end = time(end);
    let body = format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
         <{action}Result><Credentials><SessionToken>token{name}</SessionToken>\
         <SecretAccessKey>secret{name}</SecretAccessKey><Expiration>{end}</Expiration>\
         <AccessKeyId>ASIA{name}</AccessKeyId></Credentials></{action}Result>\
         <ResponseMetadata><RequestId>r-1</RequestId></ResponseMetadata></{action}Response>"
    );
    Then::Answer(answer("200 OK", "content-type: text/xml\r\n", &body))
}

/// The answer that refuses.
pub(crate) fn refused(status: &str, code: &str, message: &str) -> Then {
    let body = format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>\
         <Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>\
         <RequestId>r-1</RequestId></ErrorResponse>"
    );
    Then::Answer(answer(status, "content-type: text/xml\r\n", &body))
}

/// The document in which an instance's metadata or a container's endpoint hands out keys.
pub(crate) fn document(name: &str, end: SystemTime) -> String {
    let end = time(end);
    serde_json::json!({
        "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": format!("ASIA{name}"),
        "SecretAccessKey": format!("secret{name}"), "Token": format!("token{name}"),
        "Expiration": end,
    })
    .to_string()
}

/// A metadata service whose instance has a role with the keys of this name.
pub(crate) async fn metadata(name: &'static str, end: SystemTime) -> RawServer {
    metadata_refusing(0, name, end).await
}

/// The same, which gives out so many tokens that it then refuses.
pub(crate) async fn metadata_refusing(
    tokens: usize,
    name: &'static str,
    end: SystemTime,
) -> RawServer {
    const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
    let given = AtomicUsize::new(0);
    RawServer::answering(move |request| {
        let line = request.lines().next().unwrap();
        let target = line.split(' ').nth(1).unwrap();
        let has_token = |number: usize| {
            let header = format!("x-aws-ec2-metadata-token: metadata-token-{number}\r\n");
            request.to_lowercase().contains(&header)
        };
        let is_authorized = (tokens + 1..=given.load(Ordering::Relaxed)).any(has_token);
        Then::Answer(match (target, is_authorized) {
            ("/latest/api/token", _) if line.starts_with("PUT ") => {
                let number = given.fetch_add(1, Ordering::Relaxed) + 1;
                answer(
                    "200 OK",
                    "x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n",
                    &format!("metadata-token-{number}"),
                )
            }
            (ROLES, true) => answer("200 OK", "", "sender"),
            (target, true) if target == format!("{ROLES}sender") => {
                answer("200 OK", "", &document(name, end))
            }
            (_, false) => answer("401 Unauthorized", "", ""),
            _ => answer("404 Not Found", "", ""),
        })
    })
    .await
}

/// A time as the services write it.
pub(crate) fn time(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0.
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3_600,
        second / 60 % 60,
        second % 60
    )
}
