//! The checks that options have in common.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use dispatch_api::Problems;
use url::Url;

use super::connection::{AssumeRole, HttpConfig};
use super::raw::{RawAssumeRole, RawHttp};
use crate::credentials::{Credentials, TOKEN_RULE, is_token};
use crate::endpoint::{QueueUrl, aws_region, parse_http_url, region_hint};

/// A value, unless it is absent or blank.
pub(crate) fn present(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty())
}

/// Whether a text has the form of a role's ARN.
fn is_role_arn(text: &str) -> bool {
    let mut parts = text.splitn(6, ':');
    let mut next = || parts.next().unwrap_or_default();
    let [arn, partition, service, region, account, resource] =
        [next(), next(), next(), next(), next(), next()];
    text.len() <= 2_048
        && arn == "arn"
        && partition.starts_with("aws")
        && partition
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
        && (service, region) == ("iam", "")
        && account.len() == 12
        && account.bytes().all(|byte| byte.is_ascii_digit())
        && resource
            .strip_prefix("role/")
            .is_some_and(|name| !name.ends_with('/') && is_made_of(name, 1..=2_048, "_+=,.@-/"))
}

/// Whether a text is made of ASCII letters, digits and `others` alone.
fn is_made_of(text: &str, length: RangeInclusive<usize>, others: &str) -> bool {
    length.contains(&text.len())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || others.contains(c))
}

/// Checks options one by one, and collects the problems.
pub(crate) struct Check {
    pub(crate) problems: Problems,
}

impl Check {
    pub(crate) fn new(problems: Problems) -> Self {
        Self { problems }
    }

    /// An optional text, read by `parse`.
    pub(crate) fn parsed<T>(
        &mut self,
        path: &str,
        value: Option<String>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(&present(value)?) {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problems.add(path, problem);
                None
            }
        }
    }

    pub(crate) fn queue_url(&mut self, value: Option<String>) -> Option<QueueUrl> {
        if let Some(value) = present(value) {
            return self.parsed("queue_url", Some(value), QueueUrl::parse);
        }
        self.problems.add(
            "queue_url",
            "missing: set the queue's URL, such as \
             https://sqs.us-east-1.amazonaws.com/123456789012/hooks",
        );
        None
    }

    pub(crate) fn region(
        &mut self,
        value: Option<String>,
        hosts: [(&str, Option<&Url>); 2],
    ) -> Option<String> {
        let Some(region) = present(value) else {
            let hint = hosts
                .iter()
                .find_map(|(name, url)| Some((name, region_hint((*url)?)?)));
            self.problems.add(
                "region",
                match hint {
                    Some((name, region)) => {
                        format!("missing: set it to {region}, as the host of {name} suggests")
                    }
                    None => "missing: set the queue's region, such as us-east-1".to_owned(),
                },
            );
            return None;
        };
        let region = region.trim();
        let is_region = region.len() <= 64
            && region
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !is_region {
            self.problems.add(
                "region",
                "expected up to 64 lower-case letters, digits and hyphens, such as us-east-1",
            );
            return None;
        }
        for (name, url) in hosts {
            if let Some(of_host) = url.and_then(aws_region)
                && of_host != region
            {
                self.problems.add(
                    "region",
                    format!(
                        "it contradicts {name}, whose host belongs to {of_host}: set it to \
                         {of_host} or correct {name}"
                    ),
                );
            }
        }
        Some(region.to_owned())
    }

    pub(crate) fn https(&mut self, path: &str, url: &Url) {
        if aws_region(url).is_some() && url.scheme() != "https" {
            self.problems
                .add(path, "its host belongs to the service: expected https");
        }
    }

    pub(crate) fn credentials(
        &mut self,
        access_key_id: Option<String>,
        secret_access_key: Option<String>,
        session_token: Option<String>,
    ) -> Option<Credentials> {
        let [id, secret, token] = [
            ("access_key_id", access_key_id),
            ("secret_access_key", secret_access_key),
            ("session_token", session_token),
        ]
        .map(|(name, value)| {
            let value = present(value).map(zeroize::Zeroizing::new);
            if value.as_ref().is_some_and(|value| !is_token(value)) {
                self.problems.add(name, TOKEN_RULE);
            }
            value
        });
        match (&id, &secret) {
            (Some(id), Some(secret)) => {
                let token = token.as_ref().map(|token| token.as_str());
                return Some(Credentials::new(id, secret, token, "options"));
            }
            (Some(_), None) => self.problems.add(
                "secret_access_key",
                "missing beside access_key_id: set both, or neither to use the environment's",
            ),
            (None, Some(_)) => self.problems.add(
                "access_key_id",
                "missing beside secret_access_key: set both, or neither to use the environment's",
            ),
            (None, None) if token.is_some() => self.problems.add(
                "session_token",
                "it belongs to access_key_id and secret_access_key, which are missing: set all \
                 three, or none to use the environment's",
            ),
            (None, None) => {}
        }
        None
    }

    pub(crate) fn profile(&mut self, value: Option<String>) -> Option<String> {
        let profile = self.parsed("profile", value, |name| {
            match name.contains(|c: char| c.is_control() || c == '[' || c == ']') {
                true => Err("expected a name without brackets and control characters".to_owned()),
                false => Ok(name.trim().to_owned()),
            }
        })?;
        self.needs_chain("profile");
        Some(profile)
    }

    pub(crate) fn assume_role(&mut self, raw: RawAssumeRole) -> Option<AssumeRole> {
        self.needs_chain("assume_role");
        if present(raw.role_arn.clone()).is_none() {
            self.problems.add(
                "assume_role.role_arn",
                "missing: set the role's ARN, such as arn:aws:iam::123456789012:role/sender",
            );
        }
        let role_arn = self.parsed("assume_role.role_arn", raw.role_arn, |arn| {
            let arn = arn.trim();
            match is_role_arn(arn) {
                true => Ok(arn.to_owned()),
                false => Err(
                    "expected the form arn:aws:iam::123456789012:role/name, at most 2048 \
                     characters"
                        .to_owned(),
                ),
            }
        });
        let external_id =
            self.parsed(
                "assume_role.external_id",
                raw.external_id,
                |id| match is_made_of(id, 2..=1_224, "_+=,.@:/-") {
                    true => Ok(id.to_owned()),
                    false => Err("expected 2 to 1224 letters, digits and _+=,.@:/-".to_owned()),
                },
            );
        let session_name =
            self.parsed(
                "assume_role.session_name",
                raw.session_name,
                |name| match is_made_of(name, 2..=64, "_+=,.@-") {
                    true => Ok(name.to_owned()),
                    false => Err("expected 2 to 64 letters, digits and _+=,.@-".to_owned()),
                },
            );
        Some(AssumeRole {
            role_arn: role_arn?,
            external_id,
            session_name: session_name.unwrap_or_else(|| "sink-sqs".to_owned()),
        })
    }

    pub(crate) fn needs_chain(&mut self, path: &str) {
        if !cfg!(feature = "default-chain") {
            self.problems.add(
                path,
                "it needs the cargo feature default-chain of sink-sqs, which is off: switch it \
                 on, or remove this and set access_key_id and secret_access_key",
            );
        }
    }

    pub(crate) fn number(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let Some(value) = value else {
            return default;
        };
        if range.contains(&value) {
            return value;
        }
        self.problems.add(
            path,
            match (range.start(), range.end()) {
                (least, &u64::MAX) => format!("expected {least} or more"),
                (least, most) => format!("expected {least} to {most}"),
            },
        );
        default
    }

    pub(crate) fn size(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: usize,
        range: RangeInclusive<u64>,
    ) -> usize {
        let value = self.number(path, value, default as u64, range);
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    pub(crate) fn count(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: NonZeroUsize,
        range: RangeInclusive<u64>,
    ) -> NonZeroUsize {
        // A value outside the range is among the problems.
        NonZeroUsize::new(self.size(path, value, default.get(), range)).unwrap_or(default)
    }

    pub(crate) fn millis(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Duration {
        Duration::from_millis(self.number(path, value, default, range))
    }

    pub(crate) fn http(&mut self, raw: RawHttp) -> HttpConfig {
        let proxy = self.parsed("http.proxy", raw.proxy, |text| {
            parse_http_url(
                text.trim(),
                "expected a URL such as http://proxy.internal:3128",
            )
        });
        let root_certificates = raw.root_certificates.unwrap_or_default();
        for (index, path) in root_certificates.iter().enumerate() {
            if path.trim().is_empty() {
                self.problems.add(
                    format!("http.root_certificates[{index}]"),
                    "blank: expected the path of a PEM file",
                );
            }
        }
        HttpConfig {
            proxy,
            pool_max_idle_per_host: self.size(
                "http.pool_max_idle_per_host",
                raw.pool_max_idle_per_host,
                64,
                0..=1_024,
            ),
            pool_idle_timeout: self.millis(
                "http.pool_idle_timeout_ms",
                raw.pool_idle_timeout_ms,
                20_000,
                1..=60_000,
            ),
            root_certificates: root_certificates.into_iter().map(PathBuf::from).collect(),
        }
    }
}
