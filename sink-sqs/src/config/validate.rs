//! From options to a configuration, with every problem at once.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{BatchSettings, DEFAULT_INLINE_MAX_BYTES, HostServices, Problems};
use url::Url;

use super::raw::{RawAssumeRole, RawConfig, RawHttp};
use super::{AssumeRole, GroupFn, HttpConfig, SqsSinkConfig};
use crate::credentials::{Credentials, TOKEN_RULE, is_token};
use crate::endpoint::{QueueUrl, aws_region, parse_endpoint, parse_http_url, region_hint};
use crate::group::{Grouping, Template};

/// The service's limit of one message and of the messages of one batch together.
pub(super) const SERVICE_MAX_BYTES: u64 = 1_048_576;

/// Checks everything that can be checked without a network or a file.
///
/// # Errors
///
/// Every problem, also those of `problems`, which reading the options found.
pub(super) fn validate(
    raw: RawConfig,
    group: Option<Arc<GroupFn>>,
    services: &HostServices,
    problems: Problems,
) -> Result<SqsSinkConfig, Problems> {
    let mut check = Check { problems };
    let queue = check.queue_url(raw.queue_url);
    let endpoint = check.parsed("endpoint", raw.endpoint, parse_endpoint);
    let region = check.region(raw.region, queue.as_ref(), endpoint.as_ref());
    if let Some(queue) = &queue {
        check.https("queue_url", queue.url());
    }
    if let Some(endpoint) = &endpoint {
        check.https("endpoint", endpoint);
    }
    let template = check.parsed("message_group_id", raw.message_group_id, Template::parse);
    let is_fifo = queue.as_ref().is_some_and(QueueUrl::is_fifo);
    let grouping = match (group, template) {
        (Some(group), _) => Grouping::With(group),
        (None, Some(template)) => Grouping::Template(template),
        (None, None) if is_fifo => Grouping::TenantAndSource,
        (None, None) => Grouping::None,
    };
    let credentials =
        check.credentials(raw.access_key_id, raw.secret_access_key, raw.session_token);
    let profile = check.profile(raw.profile);
    if profile.is_some() && credentials.is_some() {
        check.problems.add(
            "profile",
            "names other credentials beside access_key_id and secret_access_key: keep one",
        );
    }
    let assume_role = raw.assume_role.and_then(|role| check.assume_role(role));
    let inline_max_bytes = check.size(
        "inline_max_bytes",
        raw.inline_max_bytes,
        DEFAULT_INLINE_MAX_BYTES.get(),
        1..=u64::MAX,
    );
    let max_message_bytes = check.size(
        "max_message_bytes",
        raw.max_message_bytes,
        1_048_576,
        1..=SERVICE_MAX_BYTES,
    );
    // Base64 makes four bytes of three, and a message is more than its body.
    if raw.inline_max_bytes.is_some() && inline_max_bytes / 3 * 4 >= max_message_bytes {
        check.problems.add(
            "inline_max_bytes",
            format!(
                "expected less than three quarters of max_message_bytes ({max_message_bytes}): a \
                 body travels in base64, and a larger one could neither be sent nor go by claim"
            ),
        );
    }
    let timeout = check.millis("timeout_ms", raw.timeout_ms, 5_000, 1..=300_000);
    let batch_enabled = raw.batch.unwrap_or(true);
    let mut batch = BatchSettings::default();
    batch.linger = check.millis("batch_linger_ms", raw.batch_linger_ms, 20, 1..=60_000);
    batch.max_entries = check.count(
        "batch_max_entries",
        raw.batch_max_entries,
        batch.max_entries,
        1..=10,
    );
    batch.max_bytes = check.size(
        "batch_max_bytes",
        raw.batch_max_bytes,
        batch.max_bytes,
        1..=SERVICE_MAX_BYTES,
    );
    batch.queue_max_entries = check.size(
        "batch_queue_max",
        raw.batch_queue_max,
        batch.queue_max_entries,
        1..=u64::MAX,
    );
    batch.queue_max_bytes = check.size(
        "batch_queue_max_bytes",
        raw.batch_queue_max_bytes,
        batch.queue_max_bytes,
        1..=u64::MAX,
    );
    batch.queue_max_tenant_entries = check.size(
        "batch_queue_tenant_max",
        raw.batch_queue_tenant_max,
        batch.queue_max_tenant_entries,
        1..=u64::MAX,
    );
    batch.max_inflight = check.count(
        "batch_max_inflight",
        raw.batch_max_inflight,
        services.sink_concurrency(),
        1..=1_024,
    );
    if batch_enabled && batch.queue_max_bytes < max_message_bytes {
        check.problems.add(
            "batch_queue_max_bytes",
            format!(
                "expected max_message_bytes ({max_message_bytes}) or more, or the largest \
                 message could never wait: raise it, or lower max_message_bytes"
            ),
        );
    }
    let http = check.http(raw.http.unwrap_or_default());
    // What is missing here is among the problems.
    let (Some(queue), Some(region)) = (queue, region) else {
        return Err(check.problems);
    };
    let endpoint = endpoint.unwrap_or_else(|| queue.endpoint());
    check.problems.into_result(SqsSinkConfig {
        queue,
        region,
        endpoint,
        grouping,
        inline_max_bytes: NonZeroUsize::new(inline_max_bytes).unwrap_or(NonZeroUsize::MIN),
        max_message_bytes,
        timeout,
        credentials,
        profile,
        assume_role,
        batch_enabled,
        batch,
        http,
    })
}

/// A value, unless it is absent or blank.
fn present(value: Option<String>) -> Option<String> {
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

struct Check {
    problems: Problems,
}

impl Check {
    /// An optional text, read by `parse`.
    fn parsed<T>(
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

    fn queue_url(&mut self, value: Option<String>) -> Option<QueueUrl> {
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

    fn region(
        &mut self,
        value: Option<String>,
        queue: Option<&QueueUrl>,
        endpoint: Option<&Url>,
    ) -> Option<String> {
        let hosts = [
            ("queue_url", queue.map(QueueUrl::url)),
            ("endpoint", endpoint),
        ];
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

    fn https(&mut self, path: &str, url: &Url) {
        if aws_region(url).is_some() && url.scheme() != "https" {
            self.problems
                .add(path, "its host belongs to the service: expected https");
        }
    }

    fn credentials(
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

    fn profile(&mut self, value: Option<String>) -> Option<String> {
        let profile = self.parsed("profile", value, |name| {
            match name.contains(|c: char| c.is_control() || c == '[' || c == ']') {
                true => Err("expected a name without brackets and control characters".to_owned()),
                false => Ok(name.trim().to_owned()),
            }
        })?;
        self.needs_chain("profile");
        Some(profile)
    }

    fn assume_role(&mut self, raw: RawAssumeRole) -> Option<AssumeRole> {
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

    fn needs_chain(&mut self, path: &str) {
        if !cfg!(feature = "default-chain") {
            self.problems.add(
                path,
                "it needs the cargo feature default-chain of sink-sqs, which is off: switch it \
                 on, or remove this and set access_key_id and secret_access_key",
            );
        }
    }

    fn number(
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

    fn size(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: usize,
        range: RangeInclusive<u64>,
    ) -> usize {
        let value = self.number(path, value, default as u64, range);
        usize::try_from(value).unwrap_or(usize::MAX)
    }

    fn count(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: NonZeroUsize,
        range: RangeInclusive<u64>,
    ) -> NonZeroUsize {
        // A value outside the range is among the problems.
        NonZeroUsize::new(self.size(path, value, default.get(), range)).unwrap_or(default)
    }

    fn millis(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> Duration {
        Duration::from_millis(self.number(path, value, default, range))
    }

    fn http(&mut self, raw: RawHttp) -> HttpConfig {
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
