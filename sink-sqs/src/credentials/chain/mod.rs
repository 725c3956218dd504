//! The sources beside options and environment: profile files, web identity, the
//! container's endpoint, the instance's metadata; and the role assumed with any of them.

mod container;
mod document;
mod http;
mod metadata;
mod profile;
mod sts;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use aws_config::provider_config::ProviderConfig;
use aws_smithy_async::rt::sleep::TokioSleep;
use aws_smithy_async::time::TimeSource;
use dispatch_api::{Fingerprint, HostServices, Outcome, SinkError};
use tracing::instrument::WithSubscriber as _;
use tracing::subscriber::NoSubscriber;

use super::refreshing::{Refreshing, Source};
use super::{Credentials, OptionsThenEnvironment, ProvideCredentials, identity_of};
use crate::config::Connection;

/// Credentials, or why this source has none. An error is of a source that is configured
/// and fails: the sources after it may belong to somebody else, so they are not asked.
type Looked = Result<Result<Credentials, String>, SinkError>;

/// The provider of a sink. What it caches is shared within the host by sinks of the same
/// identity, and by no others.
pub(super) fn provider(
    at_hand: OptionsThenEnvironment,
    config: &Connection,
    services: &HostServices,
) -> Arc<dyn ProvideCredentials> {
    if config.assume_role().is_none() && config.credentials().is_some() {
        return Arc::new(at_hand);
    }
    let key = format!(
        "{} {} {} {:?}",
        identity_of(config, services).to_hex(),
        config.region(),
        Fingerprint::of([sts::endpoint(services).unwrap_or_default().as_bytes()]).to_hex(),
        config.http(),
    );
    let chain = Chain {
        at_hand: at_hand.clone(),
        config: config.clone(),
        services: services.clone(),
    };
    let made = services.pool().get_or_try_create(&key, || {
        Ok::<_, Infallible>(Refreshing::new(chain, services))
    });
    let shared = match made {
        Ok(shared) => shared,
        Err(never) => match never {},
    };
    match config.assume_role() {
        Some(_) => Arc::new(shared),
        None => Arc::new(AtHandThenChain { at_hand, shared }),
    }
}

/// Keys at hand are asked for at every delivery: they cost nothing, and win.
#[derive(Debug)]
struct AtHandThenChain {
    at_hand: OptionsThenEnvironment,
    shared: Arc<Refreshing>,
}

#[async_trait]
impl ProvideCredentials for AtHandThenChain {
    async fn provide(&self) -> Result<Credentials, SinkError> {
        match self.at_hand.find()? {
            Ok(credentials) => Ok(credentials),
            Err(_) => self.shared.provide().await,
        }
    }

    fn give_up(&self, refused: &Credentials) -> bool {
        // Keys at hand do not change.
        !matches!(self.at_hand.find(), Ok(Ok(_))) && self.shared.give_up(refused)
    }
}

/// All sources, in their order.
#[derive(Clone, Debug)]
struct Chain {
    at_hand: OptionsThenEnvironment,
    config: Connection,
    services: HostServices,
}

#[async_trait]
impl Source for Chain {
    async fn fetch(&self) -> Result<Credentials, SinkError> {
        // The libraries below log what they send and receive, keys among it.
        let (provider, credentials) = self.look().with_subscriber(NoSubscriber::default()).await?;
        tracing::debug!(provider, "credentials obtained");
        Ok(credentials)
    }
}

impl Chain {
    async fn look(&self) -> Result<(&'static str, Credentials), SinkError> {
        let (provider, base) = self.base().await?;
        match self.config.assume_role() {
            None => Ok((provider, base)),
            Some(role) => {
                let credentials = sts::assume_role(self, role, base).await?;
                Ok(("assume_role", credentials))
            }
        }
    }

    async fn base(&self) -> Result<(&'static str, Credentials), SinkError> {
        let mut tried = Vec::new();
        match self.at_hand.find()? {
            Ok(credentials) => return Ok(("options or environment", credentials)),
            Err(why) => tried.push(why),
        }
        match profile::load(self).await? {
            Ok(credentials) => return Ok(("profile", credentials)),
            Err(why) => tried.push(format!("profile: {why}")),
        }
        if self.config.profile().is_none() {
            match sts::web_identity(self).await? {
                Ok(credentials) => return Ok(("web identity", credentials)),
                Err(why) => tried.push(format!("web identity: {why}")),
            }
            match container::load(self).await? {
                Ok(credentials) => return Ok(("container", credentials)),
                Err(why) => tried.push(format!("container: {why}")),
            }
            match metadata::load(self).await {
                Ok(credentials) => return Ok(("instance metadata", credentials)),
                Err(why) => tried.push(format!("instance metadata: {why}")),
            }
        }
        Err(SinkError::transient(
            Outcome::NotStored,
            "NoCredentials",
            format!(
                "no credentials: {}; set access_key_id and secret_access_key, or one of these \
                 sources",
                tried.join("; ")
            ),
        ))
    }

    /// What the libraries of the sources work with, but for a client.
    fn provider_config(&self) -> ProviderConfig {
        ProviderConfig::empty()
            .with_region(Some(self.region()))
            .with_time_source(HostTime(self.services.clone()))
            .with_sleep_impl(TokioSleep::new())
    }

    fn region(&self) -> aws_config::Region {
        aws_config::Region::new(self.config.region().to_owned())
    }
}

/// The host's clock.
#[derive(Debug)]
struct HostTime(HostServices);

impl TimeSource for HostTime {
    fn now(&self) -> SystemTime {
        self.0.now()
    }
}

/// A value of the environment cannot be used.
fn invalid(text: String) -> SinkError {
    SinkError::config("InvalidCredentials", text)
}

/// Text of unknown origin on one line, cut where it is long.
fn printable(text: &str) -> String {
    const MOST: usize = 300;
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST)
        .collect()
}
