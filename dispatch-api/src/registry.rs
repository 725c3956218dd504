//! Sinks found by name: link-time registration and the registry.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::options::{Problems, unknown};
use crate::services::HostServices;
use crate::sink::Sink;

/// Builds a sink from its options. It needs no network, and reports everything
/// wrong with the options at once.
pub type BuildSink = fn(&Value, &HostServices) -> Result<Arc<dyn Sink>, Problems>;

/// One kind of sink, as a plugin crate registers it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SinkPlugin {
    /// The name used in configurations, such as `sqs`.
    pub kind: &'static str,
    /// One line for people who choose.
    pub summary: &'static str,
    /// The JSON schema of the options.
    pub schema: fn() -> Value,
    /// Builds a sink.
    pub build: BuildSink,
    /// The credentials that the options leave to the host's surroundings.
    pub credentials: fn(&Value, &HostServices) -> Fingerprint,
}

impl SinkPlugin {
    /// A plugin whose credentials, if any, are all in its options.
    #[must_use]
    pub const fn new(
        kind: &'static str,
        summary: &'static str,
        schema: fn() -> Value,
        build: BuildSink,
    ) -> Self {
        Self {
            kind,
            summary,
            schema,
            build,
            credentials: |_, _| Fingerprint::default(),
        }
    }

    /// Adds the fingerprint of credentials that come from outside the options,
    /// such as the environment, so that a rotated key makes another sink.
    #[must_use]
    pub const fn with_credentials(
        mut self,
        credentials: fn(&Value, &HostServices) -> Fingerprint,
    ) -> Self {
        self.credentials = credentials;
        self
    }
}

/// The plugins of all crates that are linked into this program. Read it through
/// [`Registry::linked`], write it through [`register_sink!`](crate::register_sink).
#[doc(hidden)]
#[linkme::distributed_slice]
pub static LINKED_SINKS: [&'static SinkPlugin];

/// Registers a plugin at link time:
/// `dispatch_api::register_sink!(pub static REGISTRATION = PLUGIN);`
///
/// `PLUGIN` is a `static` [`SinkPlugin`]. The registration is there when the
/// program links the crate, which takes a mention: `use sink_example as _;`.
/// Where a linker drops unreferenced sections, hosts use [`Registry::with`].
#[macro_export]
macro_rules! register_sink {
    ($visibility:vis static $name:ident = $plugin:path) => {
        #[doc = "The link-time registration of this crate's sink."]
        #[$crate::__private::linkme::distributed_slice($crate::__private::LINKED_SINKS)]
        #[linkme(crate = $crate::__private::linkme)]
        $visibility static $name: &$crate::SinkPlugin = &$plugin;
    };
}

/// The kinds of sink that a host can build.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    plugins: BTreeMap<&'static str, &'static SinkPlugin>,
}

impl Registry {
    /// The plugins linked into this program.
    ///
    /// # Errors
    ///
    /// [`DuplicateKind`] when two of them have the same kind.
    pub fn linked() -> Result<Self, DuplicateKind> {
        Self::with(LINKED_SINKS.iter().copied())
    }

    /// These plugins and no others; needs no help of the linker.
    ///
    /// # Errors
    ///
    /// [`DuplicateKind`] when two of them have the same kind.
    pub fn with(
        plugins: impl IntoIterator<Item = &'static SinkPlugin>,
    ) -> Result<Self, DuplicateKind> {
        let mut registry = Self::default();
        for plugin in plugins {
            if registry.plugins.insert(plugin.kind, plugin).is_some() {
                return Err(DuplicateKind { kind: plugin.kind });
            }
        }
        Ok(registry)
    }

    /// The plugins, by kind.
    pub fn plugins(&self) -> impl Iterator<Item = &'static SinkPlugin> {
        self.plugins.values().copied()
    }

    /// Builds a sink. Two builds with the same [`SinkKey`] deliver to the same
    /// place in the same way.
    ///
    /// # Errors
    ///
    /// [`BuildError`], with all that is wrong at once.
    pub fn build(
        &self,
        kind: &str,
        options: &Value,
        services: &HostServices,
    ) -> Result<BuiltSink, BuildError> {
        let plugin = self
            .plugins
            .get(kind)
            .ok_or_else(|| BuildError::UnknownKind {
                kind: kind.to_owned(),
                known: self.plugins.keys().copied().collect(),
            })?;
        let sink = (plugin.build)(options, services).map_err(BuildError::Options)?;
        let key = SinkKey::new(kind, options, (plugin.credentials)(options, services));
        Ok(BuiltSink { key, sink })
    }
}

/// A sink and what identifies it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BuiltSink {
    /// What identifies it.
    pub key: SinkKey,
    /// The sink.
    pub sink: Arc<dyn Sink>,
}

/// Identifies a sink by its kind, its canonical options and the fingerprint of its
/// credentials. The order of keys does not matter; a rotated secret does.
///
/// It holds digests only, never the options.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SinkKey {
    kind: String,
    options: Fingerprint,
    credentials: Fingerprint,
}

impl SinkKey {
    /// The key of these options and credentials.
    #[must_use]
    pub fn new(kind: &str, options: &Value, credentials: Fingerprint) -> Self {
        let mut canonical = String::new();
        write_canonical(options, &mut canonical);
        Self {
            kind: kind.to_owned(),
            options: Fingerprint::of([canonical.as_bytes()]),
            credentials,
        }
    }
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let sorted: BTreeMap<&String, &Value> = members.iter().collect();
            out.push('{');
            for (name, member) in sorted {
                crate::message::push_json_string(out, name);
                out.push(':');
                write_canonical(member, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// A digest that tells credentials apart without holding them.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of these parts, in this order; where one part ends and the
    /// next begins matters.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }

    /// The fingerprint as hex digits, for the key of a
    /// [`Pool`](crate::Pool).
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({}…)", hex::encode(&self.0[..4]))
    }
}

/// Two plugins have the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two linked plugins have the kind `{kind}`: link only one of them")]
pub struct DuplicateKind {
    kind: &'static str,
}

/// A sink cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The options are wrong.
    #[error("{0}")]
    Options(Problems),
    /// No plugin of this kind is linked.
    #[error(
        "{}; a kind is known when its plugin crate is linked, as by `use sink_sqs as _;`",
        unknown("kind", kind, known.iter().copied())
    )]
    UnknownKind {
        /// The kind asked for.
        kind: String,
        /// The kinds that are there.
        known: Vec<&'static str>,
    },
}

impl BuildError {
    /// The error as problems of a configuration, the kind at the key `kind`.
    #[must_use]
    pub fn into_problems(self) -> Problems {
        match self {
            Self::Options(problems) => problems,
            unknown @ Self::UnknownKind { .. } => {
                let mut problems = Problems::new();
                problems.add("kind", unknown.to_string());
                problems
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refuse(_: &Value, _: &HostServices) -> Result<Arc<dyn Sink>, Problems> {
        let mut problems = Problems::new();
        problems.add("region", "missing");
        problems.add("timeout_ms", "expected 1 to 60000");
        Err(problems)
    }

    static SQS: SinkPlugin = SinkPlugin::new("sqs", "a queue", || json!({}), refuse);
    static SQS_AGAIN: SinkPlugin = SinkPlugin::new("sqs", "another", || json!({}), refuse);
    static LOG: SinkPlugin = SinkPlugin::new("log", "a log", || json!({}), refuse);

    #[test]
    fn two_plugins_of_one_kind_are_refused() {
        let error = Registry::with([&SQS, &LOG, &SQS_AGAIN]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "two linked plugins have the kind `sqs`: link only one of them"
        );
    }

    #[test]
    fn plugins_are_listed_by_kind_whatever_the_order_of_linking() {
        let kinds = |registry: Registry| registry.plugins().map(|p| p.kind).collect::<Vec<_>>();
        assert_eq!(kinds(Registry::with([&SQS, &LOG]).unwrap()), ["log", "sqs"]);
        assert_eq!(kinds(Registry::with([&LOG, &SQS]).unwrap()), ["log", "sqs"]);
    }

    #[test]
    fn an_unknown_kind_is_answered_with_the_known_ones() {
        let registry = Registry::with([&SQS, &LOG]).unwrap();
        let error = registry
            .build("sqss", &json!({}), &HostServices::new())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown kind `sqss`, did you mean `sqs`? known: log, sqs; a kind is known when its \
             plugin crate is linked, as by `use sink_sqs as _;`"
        );
    }

    #[test]
    fn an_empty_registry_says_that_it_is_empty() {
        let error = Registry::default()
            .build("sqs", &json!({}), &HostServices::new())
            .unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("unknown kind `sqs`, known: none")
        );
    }

    #[test]
    fn every_problem_of_the_options_comes_back_at_once() {
        let registry = Registry::with([&SQS]).unwrap();
        let error = registry
            .build("sqs", &json!({}), &HostServices::new())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "region: missing\ntimeout_ms: expected 1 to 60000"
        );
    }

    #[test]
    fn a_key_sees_values_and_credentials_but_not_the_order_of_keys() {
        let key = |options: &str, secret: &str| {
            SinkKey::new(
                "sqs",
                &serde_json::from_str(options).unwrap(),
                Fingerprint::of([secret.as_bytes()]),
            )
        };
        let first = key(r#"{"a":1,"b":{"c":"x","d":2}}"#, "s");
        assert_eq!(first, key(r#"{"b":{"d":2,"c":"x"},"a":1}"#, "s"));
        assert_ne!(first, key(r#"{"a":1,"b":{"c":"y","d":2}}"#, "s"));
        assert_ne!(first, key(r#"{"a":1,"b":{"c":"x","d":2}}"#, "rotated"));
    }

    #[test]
    fn parts_of_a_fingerprint_do_not_run_into_each_other() {
        assert_ne!(
            Fingerprint::of([b"ab".as_slice(), b"c"]),
            Fingerprint::of([b"a".as_slice(), b"bc"])
        );
    }
}
