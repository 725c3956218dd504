//! The shared configuration files.

use std::path::{Path, PathBuf};

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_runtime::env_config::file::{EnvConfigFileKind, EnvConfigFiles};
use aws_sdk_sts::error::{ErrorMetadata, ProvideErrorMetadata as _};
use aws_sdk_sts::operation::assume_role::AssumeRoleError;
use dispatch_api::{ErrorChain, SinkError};

use super::super::{Credentials, unavailable};
use super::{Chain, Looked, container, http, metadata, printable, sts};
use crate::client::Route;

/// The keys of the profile: its own, or those of the role that it names.
///
/// The files are read anew each time, so that what is changed in them counts.
pub(super) async fn load(chain: &Chain) -> Looked {
    let services = &chain.services;
    let name = chain
        .config
        .profile()
        .map(ToOwned::to_owned)
        .or_else(|| services.env("AWS_PROFILE"))
        .unwrap_or_else(|| "default".to_owned());
    let mut files = EnvConfigFiles::builder();
    let mut found = Vec::new();
    for (kind, variable, default) in [
        (EnvConfigFileKind::Config, "AWS_CONFIG_FILE", "config"),
        (
            EnvConfigFileKind::Credentials,
            "AWS_SHARED_CREDENTIALS_FILE",
            "credentials",
        ),
    ] {
        let path = file(chain, variable, default);
        if let Some(path) = path.filter(|path| path.exists()) {
            found.push(path.display().to_string());
            files = files.with_file(kind, path);
        }
    }
    if found.is_empty() {
        return Ok(Err(
            "no file where AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE name one, nor in \
             .aws of the home directory"
                .to_owned(),
        ));
    }
    let client = http::Client::new(&chain.config, "https://sts", Route::Proxied)?;
    let provider = ProfileFileCredentialsProvider::builder()
        .configure(&chain.provider_config().with_http_client(client))
        .profile_files(files.build())
        .profile_name(name.clone())
        .with_custom_provider("Environment", Named::new(chain, Which::Environment))
        .with_custom_provider("EcsContainer", Named::new(chain, Which::Container))
        .with_custom_provider("Ec2InstanceMetadata", Named::new(chain, Which::Metadata))
        .build();
    let keys = match provider.provide_credentials().await {
        Ok(keys) => keys,
        Err(CredentialsError::CredentialsNotLoaded(_)) => {
            return Ok(Err(format!(
                "no credentials under {name} in {}",
                found.join(" and ")
            )));
        }
        Err(error) => return Err(failed(&name, &error)),
    };
    Credentials::handed_out(
        keys.access_key_id(),
        keys.secret_access_key(),
        keys.session_token(),
        keys.expiry(),
        "profile",
    )
    .map(Ok)
}

/// Where a file is, by the host's environment.
fn file(chain: &Chain, variable: &str, default: &str) -> Option<PathBuf> {
    let env = |name: &str| chain.services.env(name);
    let home = || Some(PathBuf::from(env("HOME").or_else(|| env("USERPROFILE"))?));
    match env(variable) {
        Some(path) => match Path::new(&path).strip_prefix("~") {
            Ok(rest) => Some(home()?.join(rest)),
            Err(_) => Some(PathBuf::from(path)),
        },
        None => Some(home()?.join(".aws").join(default)),
    }
}

/// What is said by others than this host is not shown: it can repeat what it was sent, and
/// here nobody knows what that was.
fn failed(name: &str, error: &CredentialsError) -> SinkError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(next) = cause {
        if let Some(refused) = next.downcast_ref::<AssumeRoleError>() {
            let code = ErrorMetadata::builder()
                .code(refused.code().unwrap_or("no code"))
                .build();
            return sts::refusal(&code).into_error(&format!("the role of the profile {name}"));
        }
        if let Some(error) = next.downcast_ref::<SinkError>() {
            return error.clone();
        }
        cause = next.source();
    }
    let why = match error {
        CredentialsError::InvalidConfiguration(_) => printable(&ErrorChain(error).to_string()),
        _ => "the source that it names gives none".to_owned(),
    };
    unavailable(format!("the profile {name} gives no credentials: {why}"))
}

/// A source that a profile can name, asked in the host's environment.
#[derive(Debug)]
struct Named {
    chain: Chain,
    which: Which,
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Environment,
    Container,
    Metadata,
}

impl Named {
    fn new(chain: &Chain, which: Which) -> Self {
        Self {
            chain: chain.clone(),
            which,
        }
    }

    async fn keys(&self) -> Result<aws_credential_types::Credentials, CredentialsError> {
        let looked = match self.which {
            Which::Environment => self.chain.at_hand.find(),
            Which::Container => container::load(&self.chain).await,
            Which::Metadata => Ok(metadata::load(&self.chain).await),
        };
        match looked {
            Ok(Ok(credentials)) => Ok(credentials.for_signing().clone()),
            Ok(Err(why)) => Err(CredentialsError::not_loaded(why)),
            Err(error) => Err(CredentialsError::provider_error(error)),
        }
    }
}

impl ProvideCredentials for Named {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.keys())
    }
}
