//! The hooks that every client sends.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dispatch_api::{DeliveryContext, Envelope, HeaderField, HostServices, Message, Verification};

use crate::Failure;

/// Bodies up to this size travel inside their message, so that every size measured does.
pub(crate) const INLINE_MAX_BYTES: NonZeroUsize =
    NonZeroUsize::new(262_144).expect("262,144 is not zero");

/// The most bytes that the service takes in one request.
pub(crate) const MAX_REQUEST_BYTES: usize = 1_048_576;

/// How many different bodies there are.
const BODIES: usize = 16;

const TENANTS: [&str; 3] = ["acme", "globex", "initech"];

/// Hooks that stand ready, each to be taken once.
#[derive(Debug)]
pub(crate) struct Workload {
    hooks: Vec<Envelope>,
    next: AtomicUsize,
}

impl Workload {
    /// `messages` hooks with bodies of `size` bytes. Every run has the same bodies.
    pub(crate) fn new(size: usize, messages: usize) -> Arc<Self> {
        let services = HostServices::new().with_seed(7);
        let mut random = fastrand::Rng::with_seed(size as u64);
        let bodies: Vec<Bytes> = (0..BODIES).map(|_| body(size, &mut random)).collect();
        let hooks = (0..messages)
            .map(|index| hook(&services, index, bodies[index % BODIES].clone()))
            .collect();
        Arc::new(Self {
            hooks,
            next: AtomicUsize::new(0),
        })
    }

    /// The next hook, until all are taken.
    pub(crate) fn take(&self) -> Option<&Envelope> {
        self.hooks.get(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The next hooks, as many as stand ready and no more than `count`.
    pub(crate) fn take_some(&self, count: usize) -> &[Envelope] {
        let from = self.next.fetch_add(count, Ordering::Relaxed);
        let rest = self.hooks.get(from..).unwrap_or_default();
        &rest[..rest.len().min(count)]
    }
}

/// The first attempt of a dispatcher.
pub(crate) fn context() -> DeliveryContext {
    DeliveryContext::attempt(NonZeroU32::MIN)
}

/// The message of a hook: what every client encodes for itself.
pub(crate) fn message<'a>(
    hook: &'a Envelope,
    ctx: &'a DeliveryContext,
) -> Result<Message<'a>, Failure> {
    Ok(Message::for_delivery(hook, ctx, INLINE_MAX_BYTES)?)
}

/// How many messages of hooks of this size fit in one request, 10 at most.
pub(crate) fn per_request(size: usize) -> usize {
    let services = HostServices::new();
    let hook = hook(&services, 0, Bytes::from(vec![b'x'; size]));
    let ctx = context();
    let bytes = message(&hook, &ctx).map_or(size, |message| message.encode().len() + 512);
    (MAX_REQUEST_BYTES / bytes).clamp(1, 10)
}

/// Writes the messages as lines of JSON, for clients that cannot encode them.
pub(crate) fn write(size: usize, messages: usize, output: &Path) -> Result<(), Failure> {
    let workload = Workload::new(size, messages);
    let ctx = context();
    let mut file = BufWriter::new(File::create(output)?);
    while let Some(hook) = workload.take() {
        let message = message(hook, &ctx)?;
        let attributes: serde_json::Map<String, serde_json::Value> = message
            .attributes()
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| (name.to_owned(), value.into_owned().into()))
            .collect();
        let line = serde_json::json!({ "body": message.encode(), "attributes": attributes });
        writeln!(file, "{line}")?;
    }
    file.flush()?;
    Ok(())
}

fn hook(services: &HostServices, index: usize, body: Bytes) -> Envelope {
    Envelope::new(
        services.new_envelope_id(),
        "github",
        1_767_225_600_000,
        body,
    )
    .with_tenant(TENANTS[index % TENANTS.len()])
    .with_request("POST", "/hooks/github")
    .with_headers([
        HeaderField::new("Host", "hooks.example.com"),
        HeaderField::new("User-Agent", "GitHub-Hookshot/9c1f0d2"),
        HeaderField::new("Accept", "*/*"),
        HeaderField::new("Content-Type", "application/json"),
        HeaderField::new("X-GitHub-Event", "push"),
        HeaderField::new("X-GitHub-Delivery", format!("delivery-{index:08}")),
        HeaderField::new("X-Hub-Signature-256", "sha256=5f0c3a1be7d94c0f8a6e2d1b"),
    ])
    .with_content_type("application/json")
    .with_dedupe_key(format!("delivery-{index:08}"))
    .with_verification(Verification::new("ok", false))
}

/// Text like a hook's, without a pattern that a branch predictor could learn.
fn body(size: usize, random: &mut fastrand::Rng) -> Bytes {
    let mut text = String::with_capacity(size + 64);
    text.push_str("{\"events\":[");
    while text.len() < size {
        text.push_str(&format!(
            "{{\"id\":{},\"ref\":\"{:016x}\",\"forced\":{}}},",
            random.u32(..),
            random.u64(..),
            random.bool()
        ));
    }
    let mut bytes = text.into_bytes();
    bytes.truncate(size);
    Bytes::from(bytes)
}
