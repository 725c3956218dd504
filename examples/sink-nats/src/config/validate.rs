//! From options to a configuration, with every problem at once.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::ServerAddr;
use async_nats::rustls::pki_types::CertificateDer;
use async_nats::rustls::pki_types::pem::PemObject as _;
use dispatch_api::{DEFAULT_INLINE_MAX_BYTES, Problems};
use zeroize::Zeroizing;

use super::raw::RawConfig;
use super::{LinkConfig, NatsSinkConfig};
use crate::credentials::{Credentials, CredentialsFile};
use crate::subject::SubjectTemplate;

const TIMEOUT_MS: RangeInclusive<u64> = 1..=300_000;
const DUPLICATE_WINDOW_MS: RangeInclusive<u64> = 0..=31_536_000_000;
const DEFAULT_CONNECT_TIMEOUT_MS: u64 = 2_000;

/// Checks everything that can be checked without a network.
///
/// # Errors
///
/// Every problem, also those of `problems`, which reading the options found.
pub(super) fn validate(raw: RawConfig, problems: Problems) -> Result<NatsSinkConfig, Problems> {
    let mut check = Check { problems };
    let servers = check.servers(raw.servers);
    let subject = check.subject(raw.subject);
    let inline_max_bytes = check.size(
        "inline_max_bytes",
        raw.inline_max_bytes,
        DEFAULT_INLINE_MAX_BYTES.get() as u64,
    );
    let max_message_bytes = raw
        .max_message_bytes
        .map(|bytes| check.size("max_message_bytes", Some(bytes), 1));
    // Base64 makes four bytes of three, and a message is more than its body.
    if let Some(max) = max_message_bytes
        && raw.max_message_bytes != Some(0)
        && raw.inline_max_bytes.is_some_and(|bytes| bytes > 0)
        && inline_max_bytes / 3 * 4 >= max
    {
        check.problems.add(
            "inline_max_bytes",
            format!(
                "expected less than three quarters of max_message_bytes ({max}): a body travels \
                 in base64, and a larger one could neither be sent nor go by claim"
            ),
        );
    }
    let duplicate_window = raw.duplicate_window_ms.map(|millis| {
        let path = "duplicate_window_ms";
        Duration::from_millis(check.number(path, Some(millis), 0, DUPLICATE_WINDOW_MS))
    });
    let (timeout, connect_timeout) = check.timeouts(raw.timeout_ms, raw.connect_timeout_ms);
    let credentials = check.credentials(raw.token, raw.user, raw.password, raw.credentials_file);
    let root_certificates = check.root_certificates(
        raw.tls
            .and_then(|tls| tls.root_certificates)
            .unwrap_or_default(),
    );
    // What is missing here is among the problems.
    let (Some(subject), Some(credentials)) = (subject, credentials) else {
        return Err(check.problems);
    };
    check.problems.into_result(NatsSinkConfig {
        subject,
        inline_max_bytes: NonZeroUsize::new(inline_max_bytes).unwrap_or(NonZeroUsize::MIN),
        max_message_bytes,
        duplicate_window,
        timeout,
        link: LinkConfig {
            servers,
            connect_timeout,
            credentials,
            root_certificates,
        },
    })
}

/// A value, unless it is absent or blank.
pub(crate) fn present(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty())
}

/// Reads one server's address.
fn parse_server(text: &str) -> Result<ServerAddr, &'static str> {
    const EXPECTED: &str =
        "expected host, host:port, nats://host:port or tls://host:port, without a path";
    let address: ServerAddr = text.trim().parse().map_err(|_| EXPECTED)?;
    if address.has_user_pass() || address.password().is_some() {
        return Err(
            "holds credentials, which would be shown with it: set user and password, \
                    token or credentials_file instead",
        );
    }
    let url = address.clone().into_inner();
    let is_plain =
        matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    if !is_plain || address.host().is_empty() || !matches!(url.scheme(), "nats" | "tls") {
        return Err(EXPECTED);
    }
    Ok(address)
}

/// Checks options one by one, and keeps what is wrong with them.
pub(crate) struct Check {
    pub(crate) problems: Problems,
}

impl Check {
    pub(crate) fn servers(&mut self, servers: Option<Vec<String>>) -> Vec<ServerAddr> {
        let servers = servers.unwrap_or_default();
        if servers.is_empty() {
            self.problems.add(
                "servers",
                "missing: list at least one server, such as [\"127.0.0.1:4222\"]",
            );
        }
        let mut addresses = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            match parse_server(server) {
                Ok(address) => addresses.push(address),
                Err(problem) => self.problems.add(format!("servers[{index}]"), problem),
            }
        }
        addresses
    }

    fn subject(&mut self, subject: Option<String>) -> Option<SubjectTemplate> {
        let Some(subject) = present(subject) else {
            self.problems.add(
                "subject",
                "missing: set the subject, such as hooks.acme or hooks.{tenant_id}",
            );
            return None;
        };
        match SubjectTemplate::parse(subject.trim()) {
            Ok(template) => Some(template),
            Err(problem) => {
                self.problems.add("subject", problem);
                None
            }
        }
    }

    pub(crate) fn credentials(
        &mut self,
        token: Option<String>,
        user: Option<String>,
        password: Option<String>,
        file: Option<String>,
    ) -> Option<Credentials> {
        let [token, user, password, file] = [token, user, password, file].map(present);
        let ways = [
            ("token", token.is_some()),
            ("user", user.is_some() || password.is_some()),
            ("credentials_file", file.is_some()),
        ];
        let mut set = ways.iter().filter(|(_, is_set)| *is_set);
        if let (Some((first, _)), Some((second, _))) = (set.next(), set.next()) {
            self.problems.add(
                *second,
                format!("names other credentials beside {first}: keep one of token, user with password, and credentials_file"),
            );
            return None;
        }
        match (token, user, password, file) {
            (Some(token), ..) => Some(Credentials::Token(Zeroizing::new(token))),
            (_, Some(user), Some(password), _) => {
                Some(Credentials::User(user, Zeroizing::new(password)))
            }
            (_, Some(_), None, _) => {
                self.problems.add("password", "missing beside user");
                None
            }
            (_, None, Some(_), _) => {
                self.problems.add("user", "missing beside password");
                None
            }
            (.., Some(path)) => {
                let path = PathBuf::from(path.trim());
                match CredentialsFile::read(&path) {
                    Ok(_) => Some(Credentials::File(path)),
                    Err(problem) => {
                        self.problems.add("credentials_file", problem.to_string());
                        None
                    }
                }
            }
            (None, None, None, None) => Some(Credentials::None),
        }
    }

    pub(crate) fn root_certificates(&mut self, paths: Vec<String>) -> Vec<PathBuf> {
        for (index, path) in paths.iter().enumerate() {
            if let Err(problem) = check_certificates(Path::new(path.trim())) {
                self.problems
                    .add(format!("tls.root_certificates[{index}]"), problem);
            }
        }
        paths
            .iter()
            .map(|path| PathBuf::from(path.trim()))
            .collect()
    }

    /// How long an exchange may take, and connecting as a part of it.
    pub(crate) fn timeouts(
        &mut self,
        timeout_ms: Option<u64>,
        connect_timeout_ms: Option<u64>,
    ) -> (Duration, Duration) {
        let timeout_ms = self.number("timeout_ms", timeout_ms, 5_000, TIMEOUT_MS);
        let connect_timeout_ms = self.number(
            "connect_timeout_ms",
            connect_timeout_ms,
            DEFAULT_CONNECT_TIMEOUT_MS.min(timeout_ms),
            TIMEOUT_MS,
        );
        if connect_timeout_ms > timeout_ms {
            self.problems.add(
                "connect_timeout_ms",
                format!("expected at most timeout_ms ({timeout_ms}), which it is a part of"),
            );
        }
        (
            Duration::from_millis(timeout_ms),
            Duration::from_millis(connect_timeout_ms),
        )
    }

    pub(crate) fn number(
        &mut self,
        path: &str,
        value: Option<u64>,
        default: u64,
        range: RangeInclusive<u64>,
    ) -> u64 {
        let value = value.unwrap_or(default);
        if range.contains(&value) {
            return value;
        }
        let expected = match (range.start(), range.end()) {
            (least, &u64::MAX) => format!("expected {least} or more"),
            (least, most) => format!("expected {least} to {most}"),
        };
        self.problems.add(path, expected);
        default
    }

    fn size(&mut self, path: &str, value: Option<u64>, default: u64) -> usize {
        let value = self.number(path, value, default, 1..=u64::MAX);
        usize::try_from(value).unwrap_or(usize::MAX)
    }
}

fn check_certificates(path: &Path) -> Result<(), String> {
    let text = std::fs::read(path)
        .map_err(|error| format!("cannot be read ({}): expected a PEM file", error.kind()))?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    match certificates {
        Ok(found) if !found.is_empty() => Ok(()),
        _ => Err("holds no certificate: expected a PEM file of certificates".to_owned()),
    }
}
