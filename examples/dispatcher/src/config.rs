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
    max_inflight: Option<usize>,
    max_inflight_bytes: Option<usize>,
    max_retrying_per_sink: Option<usize>,
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

/// How many hooks are on their way at once, those that wait for a retry included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlightLimits {
    /// Hooks. Default 4,096.
    pub hooks: NonZeroUsize,
    /// Bytes of their lines. A hook that is heavier goes alone. Default 128 MiB.
    pub bytes: NonZeroUsize,
    /// Hooks of one sink that were refused and are to be tried again. One more is given up
    /// after its first attempt. Default: no limit.
    pub retrying_per_sink: Option<NonZeroUsize>,
}

impl Default for InFlightLimits {
    fn default() -> Self {
        Self {
            hooks: NonZeroUsize::new(4_096).expect("4,096 is not zero"),
            bytes: NonZeroUsize::new(128 << 20).expect("128 MiB are not zero"),
            retrying_per_sink: None,
        }
    }
}

/// A configuration that was checked, with its sinks built.
#[derive(Debug)]
#[non_exhaustive]
pub struct Config {
    /// When to try again.
    pub retry: RetryPolicy,
    /// How much is on its way at once.
    pub in_flight: InFlightLimits,
    /// What the sinks share.
    pub services: HostServices,
    /// Who receives what.
    pub routes: RouteTable,
    /// The names of the sinks.
    pub sinks: Vec<String>,
    /// What every message says of its origin.
    pub origin: Option<Arc<Origin>>,
}

/// A configuration file as a value, its placeholders filled.
#[derive(Debug)]
#[non_exhaustive]
pub struct Document {
    /// What stands in it.
    pub value: Value,
    /// The variables that are missing.
    pub problems: Problems,
    /// Where: what is found there later follows from that.
    pub unset: Vec<String>,
}

impl Document {
    /// Reads TOML, and fills `${NAME}` and `${NAME:-default}` from the environment.
    ///
    /// # Errors
    ///
    /// A text that is no TOML, by line and column.
    pub fn parse(text: &str, services: &HostServices) -> Result<Self, Problems> {
        let mut problems = Problems::new();
        let value = file::parse(text)?;
        let (value, unset) = environment::fill(value, services, &mut problems);
        Ok(Self {
            value,
            problems,
            unset,
        })
    }
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
        let Document {
            value,
            mut problems,
            unset,
        } = Document::parse(text, &services)?;
        let raw: RawConfig = read_options(&value, &mut problems);

        let mut services = services;
        if let Some(concurrency) = raw.dispatch.sink_concurrency(&mut problems) {
            services = services.with_sink_concurrency(concurrency);
        }
        let in_flight = raw.dispatch.in_flight(&mut problems);
        if let Some(claim_check) = &raw.claim_check
            && let Some(store) = open_claim_check(claim_check, &services, &mut problems)
        {
            services = services.with_claim_check(Arc::new(store));
        }
        let retry = raw.dispatch.retry.validate(&mut problems);
        let origin = raw.dispatch.origin(&mut problems);
        let sinks = build_sinks(&raw.sinks, registry, &services, &mut problems);
        let routes = raw.routes(&sinks, &mut problems);
        for path in unset {
            problems.keep_first_at(&path);
        }
        problems.into_result(Self {
            retry,
            in_flight,
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

/// More would not make anything faster, and cannot be counted at some point.
const MOST_AT_ONCE: usize = 1_024;
const MOST_HOOKS: usize = 1_000_000;
const MOST_BYTES: usize = 64 << 30;

impl RawDispatch {
    fn sink_concurrency(&self, problems: &mut Problems) -> Option<NonZeroUsize> {
        let path = "dispatch.sink_concurrency";
        within(self.sink_concurrency, MOST_AT_ONCE, path, problems)
    }

    fn in_flight(&self, problems: &mut Problems) -> InFlightLimits {
        let default = InFlightLimits::default();
        let (hooks, bytes) = (self.max_inflight, self.max_inflight_bytes);
        let retrying = self.max_retrying_per_sink;
        InFlightLimits {
            hooks: within(hooks, MOST_HOOKS, "dispatch.max_inflight", problems)
                .unwrap_or(default.hooks),
            bytes: within(bytes, MOST_BYTES, "dispatch.max_inflight_bytes", problems)
                .unwrap_or(default.bytes),
            retrying_per_sink: within(
                retrying,
                MOST_HOOKS,
                "dispatch.max_retrying_per_sink",
                problems,
            ),
        }
    }

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

fn within(
    value: Option<usize>,
    most: usize,
    path: &str,
    problems: &mut Problems,
) -> Option<NonZeroUsize> {
    let value = value?;
    let number = NonZeroUsize::new(value).filter(|number| number.get() <= most);
    if number.is_none() {
        problems.add(path, format!("expected 1 to {most}"));
    }
    number
}

impl RawConfig {
    fn routes(
        &self,
        sinks: &BTreeMap<&str, Option<NamedSink>>,
        problems: &mut Problems,
    ) -> RouteTable {
        let mut table = RouteTable::new();
        if self.sources.is_empty() && !problems.iter().any(|problem| problem.path == "sources") {
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
    if sinks.is_empty() && !problems.iter().any(|problem| problem.path == "sinks") {
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
            other => {
                let kinds: Vec<&str> = registry.plugins().map(|plugin| plugin.kind).collect();
                let what = match other {
                    None => "is missing",
                    Some(_) => "expected a string",
                };
                let text = format!("{what}: one of {}", kinds.join(", "));
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
    let store = DirectoryClaimCheck::at_url(raw.url.as_deref().unwrap_or_default(), services);
    if store.is_none() {
        problems.add(
            "claim_check.url",
            "expected the URL of a folder, such as file:///var/lib/dispatcher/claims",
        );
    }
    store
}
