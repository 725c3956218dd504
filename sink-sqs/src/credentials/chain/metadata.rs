//! The instance's role, by version 2 of the metadata service.

use std::time::Duration;

use aws_config::imds;
use aws_smithy_runtime_api::client::interceptors::context::InterceptorContext;
use aws_smithy_runtime_api::client::retries::classifiers::{
    ClassifyRetry, RetryAction, SharedRetryClassifier,
};
use tokio::time::timeout;

use super::super::Credentials;
use super::{Chain, document, http};
use crate::client::Route;

/// The longest that the whole may take: most hosts have no such service, and learn it here.
const LONGEST: Duration = Duration::from_secs(3);
const ONE_TRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 2;

const ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// The keys of the instance's role, or why there are none. As the last source it fails
/// nobody.
pub(super) async fn load(chain: &Chain) -> Result<Credentials, String> {
    let env = |name: &str| chain.services.env(name);
    if env("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err("switched off by AWS_EC2_METADATA_DISABLED".to_owned());
    }
    let endpoint = env("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| {
        let is_ipv6 = env("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")
            .is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
        match is_ipv6 {
            true => "http://[fd00:ec2::254]".to_owned(),
            false => "http://169.254.169.254".to_owned(),
        }
    });
    let client = http::Client::new(&chain.config, &endpoint, Route::Direct)
        .map_err(|error| error.text().to_owned())?;
    let builder = imds::Client::builder()
        .configure(&chain.provider_config().with_http_client(client))
        .endpoint(&endpoint)
        .map_err(|_| "AWS_EC2_METADATA_SERVICE_ENDPOINT is no URL".to_owned())?
        .connect_timeout(ONE_TRY)
        .read_timeout(ONE_TRY)
        .operation_attempt_timeout(ONE_TRY)
        .max_attempts(TRIES)
        .retry_classifier(SharedRetryClassifier::new(FaultsOnly));
    let asking = async {
        match ask(&builder.clone().build()).await {
            // A client keeps its token to its end: another one gets another token, once.
            Err(Failed::TokenRefused) => ask(&builder.build()).await,
            asked => asked,
        }
    };
    match timeout(LONGEST, asking).await {
        Ok(Ok(credentials)) => Ok(credentials),
        Ok(Err(Failed::TokenRefused)) => Err(format!("{endpoint}: it refuses its own tokens")),
        Ok(Err(Failed::Because(why))) => Err(format!("{endpoint}: {why}")),
        Err(_) => Err(format!("{endpoint}: no answer")),
    }
}

/// Why the service gives no keys.
enum Failed {
    TokenRefused,
    Because(String),
}

impl From<imds::client::error::ImdsError> for Failed {
    fn from(error: imds::client::error::ImdsError) -> Self {
        use imds::client::error::ImdsError;
        let why = match error {
            ImdsError::ErrorResponse(context) => match context.response().status().as_u16() {
                401 => return Self::TokenRefused,
                404 => "the instance has no role".to_owned(),
                status => format!("it answers the status {status}"),
            },
            ImdsError::FailedToLoadToken(_) => "it gives no token".to_owned(),
            _ => "no answer".to_owned(),
        };
        Self::Because(why)
    }
}

async fn ask(client: &imds::Client) -> Result<Credentials, Failed> {
    let roles = client.get(ROLES).await?;
    let role = roles.as_ref().lines().next().unwrap_or_default().trim();
    if role.is_empty() {
        return Err(Failed::Because("the instance has no role".to_owned()));
    }
    let keys = client.get(format!("{ROLES}{role}")).await?;
    document::read(keys.as_ref().as_bytes(), "instance metadata").map_err(Failed::Because)
}

/// Tries again where the service failed. Where it refused a token, the library would send
/// the same one again.
#[derive(Debug)]
struct FaultsOnly;

impl ClassifyRetry for FaultsOnly {
    fn name(&self) -> &'static str {
        "FaultsOnly"
    }

    fn classify_retry(&self, context: &InterceptorContext) -> RetryAction {
        match context.response() {
            Some(response) if response.status().is_server_error() => RetryAction::server_error(),
            _ => RetryAction::NoActionIndicated,
        }
    }
}
