//! Where the credentials come from.

#[cfg(feature = "default-chain")]
mod chain;
#[cfg(feature = "default-chain")]
mod refreshing;

use std::fmt;
use std::sync::{Arc, OnceLock};
#[cfg(feature = "default-chain")]
use std::time::SystemTime;

use async_trait::async_trait;
use dispatch_api::{Fingerprint, HostServices, Outcome, SinkError};
use zeroize::Zeroizing;

use crate::config::Connection;

const ACCESS_KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_ACCESS_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SECRET_ACCESS_KEY_OLD: &str = "SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// What the environment says of other sources than keys of its own.
const OF_THE_CHAIN: &[&str] = &[
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "HOME",
    "USERPROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_EC2_METADATA_DISABLED",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE",
];

/// One set of keys. Wiped when the last copy is dropped, hidden from `Debug`.
#[derive(Clone)]
pub(crate) struct Credentials(aws_credential_types::Credentials);

impl Credentials {
    pub(crate) fn new(
        access_key_id: &str,
        secret_access_key: &str,
        session_token: Option<&str>,
        provider: &'static str,
    ) -> Self {
        Self(aws_credential_types::Credentials::new(
            access_key_id,
            secret_access_key,
            session_token.map(ToOwned::to_owned),
            None,
            provider,
        ))
    }

    /// Keys that somebody else handed out, if a header can carry them.
    #[cfg(feature = "default-chain")]
    fn handed_out(
        access_key_id: &str,
        secret_access_key: &str,
        session_token: Option<&str>,
        end: Option<SystemTime>,
        provider: &'static str,
    ) -> Result<Self, SinkError> {
        let credentials = Self(aws_credential_types::Credentials::new(
            access_key_id,
            secret_access_key,
            session_token.map(ToOwned::to_owned),
            end,
            provider,
        ));
        let fit = |part: &str| is_token(part) && !part.is_empty();
        if credentials.secrets().all(fit) {
            return Ok(credentials);
        }
        Err(unavailable(format!(
            "the {provider} handed out keys that are refused: {TOKEN_RULE}"
        )))
    }

    #[cfg(feature = "default-chain")]
    fn expiry(&self) -> Option<SystemTime> {
        self.0.expiry()
    }

    pub(crate) fn for_signing(&self) -> &aws_credential_types::Credentials {
        &self.0
    }

    /// Everything that no text of ours may show, whoever said it first.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        [
            Some(self.0.access_key_id()),
            Some(self.0.secret_access_key()),
            self.0.session_token(),
        ]
        .into_iter()
        .flatten()
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        // An absent token and an empty one are told apart by their number of parts.
        Fingerprint::of(self.secrets().map(str::as_bytes))
    }
}

/// Whose keys sign, as far as that is known before the first request.
pub(crate) fn identity_of(config: &Connection, services: &HostServices) -> Fingerprint {
    let base = match config.credentials() {
        Some(credentials) => credentials.fingerprint(),
        None if config.profile().is_some() => Fingerprint::default(),
        None => environment_fingerprint(services),
    };
    let base = base.to_hex();
    let role = config.assume_role();
    let parts = [
        Some(base.as_str()),
        config.profile(),
        role.map(|role| role.role_arn.as_str()),
        role.and_then(|role| role.external_id.as_deref()),
        role.map(|role| role.session_name.as_str()),
    ];
    // No part that is set is empty.
    Fingerprint::of(parts.map(|part| part.unwrap_or_default().as_bytes()))
}

/// The source of a sink's credentials.
pub(crate) fn provider_of(
    config: &Connection,
    services: &HostServices,
) -> Arc<dyn ProvideCredentials> {
    let at_hand = OptionsThenEnvironment {
        asks_environment: config.profile().is_none(),
        ..OptionsThenEnvironment::new(config.credentials().cloned(), services)
    };
    #[cfg(feature = "default-chain")]
    return chain::provider(at_hand, config, services);
    #[cfg(not(feature = "default-chain"))]
    Arc::new(at_hand)
}

/// No credentials now, and perhaps later.
#[cfg(feature = "default-chain")]
fn unavailable(text: impl Into<std::borrow::Cow<'static, str>>) -> SinkError {
    SinkError::transient(Outcome::NotStored, "CredentialsUnavailable", text)
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(redacted)")
    }
}

/// A source of credentials.
#[async_trait]
pub(crate) trait ProvideCredentials: fmt::Debug + Send + Sync {
    /// The credentials to sign with now.
    ///
    /// # Errors
    ///
    /// A [`SinkError`] that says where they were looked for and what to set.
    async fn provide(&self) -> Result<Credentials, SinkError>;

    /// Told that the service refuses these. Whether asking again may give others.
    fn give_up(&self, _refused: &Credentials) -> bool {
        false
    }
}

/// The options' keys, else those of the environment.
#[derive(Clone, Debug)]
pub(crate) struct OptionsThenEnvironment {
    services: HostServices,
    /// A profile that the options name is somebody's: the environment's keys may be
    /// somebody else's.
    asks_environment: bool,
    /// The environment is asked until it has an answer, which then stays: other
    /// keys there are other credentials, and so another sink.
    found: Arc<OnceLock<Credentials>>,
}

impl OptionsThenEnvironment {
    pub(crate) fn new(options: Option<Credentials>, services: &HostServices) -> Self {
        let found = OnceLock::new();
        if let Some(credentials) = options {
            tracing::debug!(provider = "options", "credentials obtained");
            // A new cell is empty.
            let _ = found.set(credentials);
        }
        Self {
            services: services.clone(),
            asks_environment: true,
            found: Arc::new(found),
        }
    }

    /// The keys, or why there are none.
    ///
    /// # Errors
    ///
    /// Keys that cannot be used.
    fn find(&self) -> Result<Result<Credentials, String>, SinkError> {
        if let Some(credentials) = self.found.get() {
            return Ok(Ok(credentials.clone()));
        }
        if !self.asks_environment {
            return Ok(Err(
                "the environment is not asked, because the options name a profile".to_owned(),
            ));
        }
        let found = Environment::read(&self.services).into_credentials()?;
        Ok(found.map(|credentials| {
            let keep = || {
                tracing::debug!(provider = "environment", "credentials obtained");
                credentials
            };
            self.found.get_or_init(keep).clone()
        }))
    }
}

#[async_trait]
impl ProvideCredentials for OptionsThenEnvironment {
    async fn provide(&self) -> Result<Credentials, SinkError> {
        self.find()?.map_err(|why| {
            SinkError::transient(
                Outcome::NotStored,
                "NoCredentials",
                format!("no credentials: {why}; set both in one of these places"),
            )
        })
    }
}

/// The keys of the environment, as far as they are set.
struct Environment {
    access_key_id: Option<Zeroizing<String>>,
    secret_access_key: Option<Zeroizing<String>>,
    session_token: Option<Zeroizing<String>>,
}

impl Environment {
    fn read(services: &HostServices) -> Self {
        let read = |name| services.env(name).map(Zeroizing::new);
        Self {
            access_key_id: read(ACCESS_KEY_ID),
            secret_access_key: read(SECRET_ACCESS_KEY).or_else(|| read(SECRET_ACCESS_KEY_OLD)),
            session_token: read(SESSION_TOKEN),
        }
    }

    fn into_credentials(self) -> Result<Result<Credentials, String>, SinkError> {
        let (Some(id), Some(secret)) = (&self.access_key_id, &self.secret_access_key) else {
            return Ok(Err(self.none_found()));
        };
        for (name, value) in [
            (ACCESS_KEY_ID, Some(id)),
            (SECRET_ACCESS_KEY, Some(secret)),
            (SESSION_TOKEN, self.session_token.as_ref()),
        ] {
            if value.is_some_and(|value| !is_token(value)) {
                return Err(SinkError::config(
                    "InvalidCredentials",
                    format!("the environment's {name} is refused: {TOKEN_RULE}"),
                ));
            }
        }
        let token = self.session_token.as_ref().map(|token| token.as_str());
        Ok(Ok(Credentials::new(id, secret, token, "environment")))
    }

    fn none_found(&self) -> String {
        let state = |value: &Option<_>| if value.is_some() { "set" } else { "not set" };
        format!(
            "the options have no access_key_id and secret_access_key, and in the environment \
             {ACCESS_KEY_ID} is {} and {SECRET_ACCESS_KEY} is {}",
            state(&self.access_key_id),
            state(&self.secret_access_key),
        )
    }
}

/// What [`is_token`] accepts, in words.
pub(crate) const TOKEN_RULE: &str = "expected printable ASCII characters without white space";

/// Whether a text can be a key or a token. Others cannot stand in a header, and a
/// stray line end would only be answered with a wrong signature.
pub(crate) fn is_token(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Tells the credentials that the environment holds or names from others that it may
/// hold or name later.
pub(crate) fn environment_fingerprint(services: &HostServices) -> Fingerprint {
    let environment = Environment::read(services);
    let keys = [
        environment.access_key_id,
        environment.secret_access_key,
        environment.session_token,
    ];
    let chain = cfg!(feature = "default-chain")
        .then_some(OF_THE_CHAIN)
        .unwrap_or_default()
        .iter()
        .map(|name| services.env(name).map(Zeroizing::new));
    let parts: Vec<_> = keys.into_iter().chain(chain).collect();
    // A value that is set is not blank.
    Fingerprint::of(
        parts
            .iter()
            .map(|part| part.as_ref().map_or(&[][..], |part| part.as_bytes())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services(variables: &'static [(&str, &str)]) -> HostServices {
        HostServices::new().with_environment(move |name| {
            variables
                .iter()
                .find(|(set, _)| *set == name)
                .map(|(_, value)| (*value).to_owned())
        })
    }

    fn provider(
        options: Option<Credentials>,
        variables: &'static [(&str, &str)],
    ) -> OptionsThenEnvironment {
        OptionsThenEnvironment::new(options, &services(variables))
    }

    async fn access_key_id(provider: &OptionsThenEnvironment) -> Result<String, SinkError> {
        let credentials = provider.provide().await?;
        Ok(credentials.for_signing().access_key_id().to_owned())
    }

    #[tokio::test]
    async fn the_options_win_over_the_environment() {
        let options = Credentials::new("FROMOPTIONS", "s", None, "options");
        let environment = &[(ACCESS_KEY_ID, "FROMENV"), (SECRET_ACCESS_KEY, "s")];
        let found = access_key_id(&provider(Some(options), environment)).await;
        assert_eq!(found.unwrap(), "FROMOPTIONS");
    }

    #[tokio::test]
    async fn the_environment_is_read_in_both_spellings_and_blank_is_unset() {
        let found = provider(
            None,
            &[
                (ACCESS_KEY_ID, "FROMENV"),
                (SECRET_ACCESS_KEY, "  "),
                (SECRET_ACCESS_KEY_OLD, "old"),
                (SESSION_TOKEN, ""),
            ],
        )
        .provide()
        .await
        .unwrap();
        assert_eq!(found.for_signing().secret_access_key(), "old");
        assert_eq!(found.for_signing().session_token(), None);
    }

    #[tokio::test]
    async fn without_credentials_the_error_says_what_was_tried_and_what_to_set() {
        let error = access_key_id(&provider(None, &[(ACCESS_KEY_ID, "FROMENV")]))
            .await
            .unwrap_err();
        assert_eq!(error.code(), "NoCredentials");
        assert_eq!(error.outcome(), Outcome::NotStored);
        assert!(error.class().is_retryable());
        assert_eq!(
            error.text(),
            "no credentials: the options have no access_key_id and secret_access_key, and in \
             the environment AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not set; set \
             both in one of these places"
        );
    }

    #[tokio::test]
    async fn a_key_that_no_header_can_carry_is_named_and_not_shown() {
        let error = access_key_id(&provider(
            None,
            &[
                (ACCESS_KEY_ID, "FROMENV"),
                (SECRET_ACCESS_KEY, "s"),
                (SESSION_TOKEN, "canary\n"),
            ],
        ))
        .await
        .unwrap_err();
        assert_eq!(error.code(), "InvalidCredentials");
        assert!(error.text().contains(SESSION_TOKEN));
        assert!(!error.to_string().contains("canary"));
    }

    #[tokio::test]
    async fn credentials_that_were_found_stay() {
        let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let services = HostServices::new().with_environment(move |name| {
            let call = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (!name.contains("TOKEN")).then(|| format!("key{call}"))
        });
        let provider = OptionsThenEnvironment::new(None, &services);
        let first = access_key_id(&provider).await.unwrap();
        assert_eq!(access_key_id(&provider).await.unwrap(), first);
    }

    #[test]
    fn a_rotated_key_has_another_fingerprint() {
        let first = services(&[(ACCESS_KEY_ID, "a"), (SECRET_ACCESS_KEY, "s")]);
        let rotated = services(&[(ACCESS_KEY_ID, "a"), (SECRET_ACCESS_KEY, "t")]);
        assert_eq!(
            environment_fingerprint(&first),
            environment_fingerprint(&first)
        );
        assert_ne!(
            environment_fingerprint(&first),
            environment_fingerprint(&rotated)
        );
    }

    #[test]
    fn debug_hides_every_part() {
        let credentials = Credentials::new("canary", "canary", Some("canary"), "options");
        let provider = provider(Some(credentials.clone()), &[]);
        assert!(!format!("{credentials:?}{provider:?}").contains("canary"));
    }
}
