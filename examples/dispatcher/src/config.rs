//! The configuration: TOML, read raw, checked whole, then typed.

mod environment;
mod file;

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{
    HeaderForwarding, HostServices, NamedSink, Origin, Problems, Registry, RetryPolicy, RouteTable,
    read_options, unknown,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::claims::DirectoryClaimCheck;

/// The configuration as it is written.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawConfig {
    dispatch: RawDispatch,
    claim_check: Option<RawClaimCheck>,
    sinks: BTreeMap<String, Value>,
    sources: BTreeMap<String, RawSource>,
    tenants: BTreeMap<String, RawTenant>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawDispatch {
    sink_concurrency: Option<usize>,
    retry: RawRetry,
    instance: Option<String>,
    region: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawRetry {
    base_ms: Option<u64>,
    max_ms: Option<u64>,
    max_attempts: Option<u32>,
    jitter: Option<bool>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawClaimCheck {
    url: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawSource {
    sinks: Vec<String>,
    forward_headers: Option<Value>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct RawTenant {
    sinks: Vec<String>,
}

/// A configuration that was checked, with its sinks built.
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// When to try again.
    pub retry: RetryPolicy,
    /// What the sinks share.
    pub services: HostServices,
    /// Who receives what.
    pub routes: RouteTable,
    /// The names of the sinks.
    pub sinks: Vec<String>,
    /// What every message says of its origin.
    pub origin: Option<Arc<Origin>>,
}

impl Config {
    /// Reads and checks a configuration file and builds its sinks. No network is
    /// needed.
    ///
    /// # Errors
    ///
    /// Everything wrong with it, each with the path of its key.
    pub fn load(
        path: &Path,
        registry: &Registry,
        services: HostServices,
    ) -> Result<Self, Problems> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            let mut problems = Problems::new();
            problems.add("", format!("cannot read {}: {error}", path.display()));
            problems
        })?;
        Self::parse(&text, registry, services)
    }

    /// Checks a configuration and builds its sinks.
    ///
    /// # Errors
    ///
    /// Everything wrong with it, each with the path of its key.
    pub fn parse(
        text: &str,
        registry: &Registry,
        services: HostServices,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let value = file::parse(text)?;
        let value = environment::fill(value, &services, &mut problems);
        let raw: RawConfig = read_options(&value, &mut problems);

        let mut services = services;
        if let Some(concurrency) = raw.dispatch.sink_concurrency {
            match NonZeroUsize::new(concurrency) {
                Some(concurrency) => services = services.with_sink_concurrency(concurrency),
                None => problems.add("dispatch.sink_concurrency", "expected 1 or more"),
            }
        }
        if let Some(claim_check) = &raw.claim_check
            && let Some(store) = open_claim_check(claim_check, &services, &mut problems)
        {
            services = services.with_claim_check(Arc::new(store));
        }
        let retry = raw.dispatch.retry.validate(&mut problems);
        let origin = raw.dispatch.origin(&mut problems);
        let sinks = build_sinks(&raw.sinks, registry, &services, &mut problems);
        let routes = raw.routes(&sinks, &mut problems);
        problems.into_result(Self {
            retry,
            services,
            routes,
            sinks: raw.sinks.into_keys().collect(),
            origin,
        })
    }
}

impl RawRetry {
    fn validate(&self, problems: &mut Problems) -> RetryPolicy {
        let mut policy = RetryPolicy::default();
        if let Some(base) = self.base_ms {
            policy.base = Duration::from_millis(base);
        }
        if let Some(max) = self.max_ms {
            policy.max = Duration::from_millis(max);
        }
        if policy.base.is_zero() {
            problems.add(
                "dispatch.retry.base_ms",
                "expected 1 or more (milliseconds)",
            );
        }
        if policy.max < policy.base {
            problems.add(
                "dispatch.retry.max_ms",
                format!("expected base_ms ({}) or more", policy.base.as_millis()),
            );
        }
        if let Some(attempts) = self.max_attempts {
            match NonZeroU32::new(attempts) {
                Some(attempts) => policy.max_attempts = attempts,
                None => problems.add("dispatch.retry.max_attempts", "expected 1 or more"),
            }
        }
        if let Some(jitter) = self.jitter {
            policy.jitter = jitter;
        }
        policy
    }
}

impl RawDispatch {
    fn origin(&self, problems: &mut Problems) -> Option<Arc<Origin>> {
        match (&self.instance, &self.region) {
            (Some(instance), region) => Some(Arc::new(Origin::new(instance, region.clone()))),
            (None, Some(_)) => {
                problems.add(
                    "dispatch.region",
                    "is given without dispatch.instance: name both",
                );
                None
            }
            (None, None) => None,
        }
    }
}

impl RawConfig {
    fn routes(
        &self,
        sinks: &BTreeMap<&str, Option<NamedSink>>,
        problems: &mut Problems,
    ) -> RouteTable {
        let mut table = RouteTable::new();
        if self.sources.is_empty() {
            problems.add(
                "sources",
                "name at least one source: [sources.NAME] with sinks = [\"…\"]",
            );
        }
        for (source, route) in &self.sources {
            let path = format!("sources.{source}");
            let forwarding = forwarding(route.forward_headers.as_ref(), &path, problems);
            let receivers = receivers(&route.sinks, sinks, &path, problems);
            table = table.with_source(source, receivers, forwarding);
        }
        for (tenant, route) in &self.tenants {
            let path = format!("tenants.{tenant}");
            table = table.with_tenant(tenant, receivers(&route.sinks, sinks, &path, problems));
        }
        table
    }
}

fn receivers(
    names: &[String],
    sinks: &BTreeMap<&str, Option<NamedSink>>,
    path: &str,
    problems: &mut Problems,
) -> Vec<NamedSink> {
    let path = format!("{path}.sinks");
    if names.is_empty() {
        problems.add(&path, "name at least one sink, or the hooks reach nobody");
    }
    let mut receivers: Vec<NamedSink> = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match sinks.get(name.as_str()) {
            None => problems.add(&path, unknown("sink", name, sinks.keys().copied())),
            Some(_) if names[..index].contains(name) => {
                problems.add(&path, format!("names `{name}` twice"));
            }
            // One that could not be built has its own problems.
            Some(built) => receivers.extend(built.clone()),
        }
    }
    receivers
}

fn build_sinks<'a>(
    sinks: &'a BTreeMap<String, Value>,
    registry: &Registry,
    services: &HostServices,
    problems: &mut Problems,
) -> BTreeMap<&'a str, Option<NamedSink>> {
    if sinks.is_empty() {
        problems.add(
            "sinks",
            "name at least one sink: [sinks.NAME] with kind = \"…\"",
        );
    }
    let mut built = BTreeMap::new();
    for (name, options) in sinks {
        let path = format!("sinks.{name}");
        let mut options = options.clone();
        let kind = options
            .as_object_mut()
            .and_then(|options| options.remove("kind"));
        let sink = match kind {
            Some(Value::String(kind)) => match registry.build(&kind, &options, services) {
                Ok(sink) => Some(NamedSink::new(name.as_str(), sink)),
                Err(error) => {
                    problems.add_all_under(&path, error.into_problems());
                    None
                }
            },
            _ => {
                let kinds: Vec<&str> = registry.plugins().map(|plugin| plugin.kind).collect();
                let text = format!("is missing: one of {}", kinds.join(", "));
                problems.add(format!("{path}.kind"), text);
                None
            }
        };
        built.insert(name.as_str(), sink);
    }
    built
}

fn forwarding(value: Option<&Value>, path: &str, problems: &mut Problems) -> HeaderForwarding {
    let names = match value {
        None => return HeaderForwarding::Default,
        Some(Value::String(word)) if word == "default" => return HeaderForwarding::Default,
        Some(Value::Array(names)) => names
            .iter()
            .map(|name| name.as_str().map(str::to_owned))
            .collect(),
        Some(_) => None,
    };
    match names {
        Some(names) => HeaderForwarding::Only(names),
        None => {
            problems.add(
                format!("{path}.forward_headers"),
                "expected \"default\", or a list of header names, or []",
            );
            HeaderForwarding::none()
        }
    }
}

fn open_claim_check(
    raw: &RawClaimCheck,
    services: &HostServices,
    problems: &mut Problems,
) -> Option<DirectoryClaimCheck> {
    let directory = raw
        .url
        .as_deref()
        .and_then(|url| url::Url::parse(url).ok())
        .filter(|url| url.scheme() == "file")
        .and_then(|url| url.to_file_path().ok());
    match directory {
        Some(directory) => Some(DirectoryClaimCheck::new(directory, services.clone())),
        None => {
            problems.add(
                "claim_check.url",
                "expected the URL of a folder, such as file:///var/lib/dispatcher/claims",
            );
            None
        }
    }
}
