//! From options to a configuration, with every problem at once.

use std::num::NonZeroUsize;
use std::sync::Arc;

use dispatch_api::{BatchSettings, DEFAULT_INLINE_MAX_BYTES, HostServices, Problems};

use super::check::Check;
use super::connection::RawConnection;
use super::raw::RawConfig;
use super::{GroupFn, SqsSinkConfig};
use crate::endpoint::{QueueUrl, parse_endpoint};
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
    let mut check = Check::new(problems);
    let queue = check.queue_url(raw.queue_url);
    let endpoint = check.parsed("endpoint", raw.endpoint, parse_endpoint);
    let region = check.region(
        raw.region,
        [
            ("queue_url", queue.as_ref().map(QueueUrl::url)),
            ("endpoint", endpoint.as_ref()),
        ],
    );
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
    let place = match (&queue, region) {
        (Some(queue), Some(region)) => Some((endpoint.unwrap_or_else(|| queue.endpoint()), region)),
        _ => None,
    };
    let connection = RawConnection {
        timeout_ms: raw.timeout_ms,
        access_key_id: raw.access_key_id,
        secret_access_key: raw.secret_access_key,
        session_token: raw.session_token,
        profile: raw.profile,
        assume_role: raw.assume_role,
        http: raw.http,
    };
    let connection = connection.check(&mut check, place);
    // What is missing here is among the problems.
    let (Some(queue), Some(connection)) = (queue, connection) else {
        return Err(check.problems);
    };
    check.problems.into_result(SqsSinkConfig {
        queue,
        connection,
        grouping,
        inline_max_bytes: NonZeroUsize::new(inline_max_bytes).unwrap_or(NonZeroUsize::MIN),
        max_message_bytes,
        batch_enabled,
        batch,
    })
}
