//! Roles assumed at the security token service.

use std::time::{Duration, SystemTime};

use aws_config::BehaviorVersion;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_sdk_sts::config::Builder;
use aws_sdk_sts::error::{ErrorMetadata, ProvideErrorMetadata, SdkError};
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use dispatch_api::{HostServices, SinkError};
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::super::{Credentials, unavailable};
use super::{Chain, HostTime, Looked, http, invalid, printable};
use crate::client::Route;
use crate::config::AssumeRole;

const ENDPOINT: &str = "AWS_ENDPOINT_URL_STS";
const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
const ROLE_ARN: &str = "AWS_ROLE_ARN";
const SESSION_NAME: &str = "AWS_ROLE_SESSION_NAME";

const ONE_TRY: Duration = Duration::from_secs(3);
const TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Where the service is, if not at its endpoint of the region.
pub(super) fn endpoint(services: &HostServices) -> Option<String> {
    services.env(ENDPOINT)
}

/// The keys of the role that the environment names, for the token that it names.
pub(super) async fn web_identity(chain: &Chain) -> Looked {
    let env = |name: &str| chain.services.env(name);
    let Some(file) = env(TOKEN_FILE) else {
        return Ok(Err(format!("{TOKEN_FILE} is not set")));
    };
    let Some(role_arn) = env(ROLE_ARN) else {
        return Ok(Err(format!("{ROLE_ARN} is not set")));
    };
    let session_name = env(SESSION_NAME).unwrap_or_else(|| "sink-sqs".to_owned());
    // The token is no signature: nothing but this loop repeats the request.
    let config = config(chain)?.retry_config(RetryConfig::disabled());
    let client = aws_sdk_sts::Client::from_conf(config.build());
    let mut attempt = 1;
    loop {
        // Read again for every try: it is replaced while it is in use.
        let token = tokio::fs::read_to_string(&file).await.map_err(|error| {
            unavailable(format!(
                "the file that {TOKEN_FILE} names cannot be read: {error}"
            ))
        })?;
        let token = Zeroizing::new(token);
        if token.trim().is_empty() {
            return Err(unavailable(format!(
                "the file that {TOKEN_FILE} names is empty"
            )));
        }
        let asked = client
            .assume_role_with_web_identity()
            .role_arn(&role_arn)
            .role_session_name(&session_name)
            .web_identity_token(token.trim_end())
            .send();
        let refusal = match timeout(ONE_TRY, asked).await {
            Ok(Ok(answer)) => return keys(answer.credentials(), "web identity").map(Ok),
            Ok(Err(error)) => refusal_of(&error),
            Err(_) => Refusal::silent(),
        };
        if !refusal.is_transient || attempt == TRIES {
            return Err(refusal
                .hiding(&[token.trim_end()])
                .into_error(&format!("the role that {ROLE_ARN} names")));
        }
        sleep(BETWEEN_TRIES * attempt).await;
        attempt += 1;
    }
}

/// The keys of a role, asked for with those of `base`.
pub(super) async fn assume_role(
    chain: &Chain,
    role: &AssumeRole,
    base: Credentials,
) -> Result<Credentials, SinkError> {
    let config = config(chain)?
        .credentials_provider(base.for_signing().clone())
        // The library corrects a clock that is off, and tries again what may heal.
        .retry_config(
            RetryConfig::standard()
                .with_max_attempts(TRIES)
                .with_initial_backoff(BETWEEN_TRIES)
                .with_max_backoff(Duration::from_secs(1)),
        );
    let client = aws_sdk_sts::Client::from_conf(config.build());
    let asked = client
        .assume_role()
        .role_arn(&role.role_arn)
        .set_external_id(role.external_id.clone())
        .role_session_name(&role.session_name)
        .send();
    let refusal = match timeout(ONE_TRY * TRIES, asked).await {
        Ok(Ok(answer)) => return keys(answer.credentials(), "role"),
        Ok(Err(error)) => refusal_of(&error),
        Err(_) => Refusal::silent(),
    };
    let mut hidden: Vec<&str> = base.secrets().collect();
    hidden.extend(role.external_id.as_deref());
    Err(refusal
        .hiding(&hidden)
        .into_error(&format!("the role {}", role.role_arn)))
}

fn config(chain: &Chain) -> Result<Builder, SinkError> {
    let endpoint = endpoint(&chain.services);
    if endpoint
        .as_deref()
        .is_some_and(|url| url::Url::parse(url).is_err())
    {
        return Err(invalid(format!(
            "the environment's {ENDPOINT} is refused: expected a URL"
        )));
    }
    let origin = endpoint.as_deref().unwrap_or("https://sts");
    let client = http::Client::new(&chain.config, origin, Route::Proxied)?;
    let mut builder = aws_sdk_sts::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(chain.region())
        .http_client(client)
        .sleep_impl(TokioSleep::new())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .time_source(HostTime(chain.services.clone()));
    builder.set_endpoint_url(endpoint);
    Ok(builder)
}

fn keys(
    answered: Option<&aws_sdk_sts::types::Credentials>,
    provider: &'static str,
) -> Result<Credentials, SinkError> {
    let keys = answered
        .ok_or_else(|| unavailable("the security token service answers without credentials"))?;
    let end = SystemTime::try_from(*keys.expiration()).map_err(|_| {
        unavailable("the security token service answers an expiration that is no time")
    })?;
    Credentials::handed_out(
        keys.access_key_id(),
        keys.secret_access_key(),
        Some(keys.session_token()),
        Some(end),
        provider,
    )
}

/// Why the service gave no credentials.
#[derive(Debug)]
pub(super) struct Refusal {
    why: String,
    is_transient: bool,
}

impl Refusal {
    fn silent() -> Self {
        Self {
            why: "no answer in time".to_owned(),
            is_transient: true,
        }
    }

    /// What a service says can repeat what it was sent.
    fn hiding(mut self, secrets: &[&str]) -> Self {
        if secrets.iter().any(|secret| self.why.contains(secret)) {
            "what it says repeats a secret".clone_into(&mut self.why);
        }
        self
    }

    pub(super) fn into_error(self, what: &str) -> SinkError {
        let why = self.why;
        match self.is_transient {
            true => unavailable(format!("{what} was not assumed: {why}")),
            false => SinkError::config(
                "CredentialsRefused",
                format!("{what} is refused: correct it or its trust policy: {why}"),
            ),
        }
    }
}

fn refusal_of<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Refusal {
    match error {
        SdkError::ServiceError(answered) => refusal(answered.err().meta()),
        SdkError::TimeoutError(_) => Refusal::silent(),
        SdkError::DispatchFailure(failure) if failure.is_timeout() => Refusal::silent(),
        SdkError::DispatchFailure(_) => Refusal {
            why: "no connection to the security token service".to_owned(),
            is_transient: true,
        },
        _ => Refusal {
            why: "an answer that is not the security token service's".to_owned(),
            is_transient: true,
        },
    }
}

/// What the code of an error means. One that is not named here may heal.
pub(super) fn refusal(error: &ErrorMetadata) -> Refusal {
    let code = error.code().unwrap_or("no code");
    let message = error.message().unwrap_or_default();
    let is_transient = match code.strip_suffix("Exception").unwrap_or(code) {
        "AccessDenied"
        | "ValidationError"
        | "Validation"
        | "InvalidParameterValue"
        | "InvalidParameterCombination"
        | "MissingParameter"
        | "MalformedPolicyDocument"
        | "PackedPolicyTooLarge"
        | "RegionDisabled"
        | "IDPRejectedClaim"
        | "InvalidClientTokenId"
        | "UnrecognizedClient" => false,
        // The service could not reach the issuer; anything else is the token's own fault.
        "InvalidIdentityToken" => message.contains("retrieve verification key"),
        _ => true,
    };
    Refusal {
        why: match message {
            "" => printable(code),
            _ => printable(&format!("{code}: {message}")),
        },
        is_transient,
    }
}

#[cfg(test)]
mod tests;
