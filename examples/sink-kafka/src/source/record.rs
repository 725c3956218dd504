//! A record as it was stored, and what a handler gets of it.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use dispatch_api::{Lease, Received, Redelivery};
use rdkafka::message::{BorrowedMessage, Headers as _, Message as _, Timestamp};

/// One record. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct StoredRecord {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    id: String,
    key: Option<Bytes>,
    payload: Bytes,
    /// Without what makes it a copy.
    headers: Vec<(String, Bytes)>,
    timestamp: Option<i64>,
    /// By the broker's clock.
    sent_at: Option<SystemTime>,
    redelivery: Option<Redelivery>,
}

impl StoredRecord {
    pub(super) fn new(message: &BorrowedMessage<'_>) -> Self {
        let (topic, partition, offset) = (message.topic(), message.partition(), message.offset());
        let mut redelivery = None;
        let mut headers = Vec::new();
        for header in message.headers().into_iter().flat_map(|all| all.iter()) {
            let value = header.value.unwrap_or_default();
            if header.key == Redelivery::ATTRIBUTE {
                let text = std::str::from_utf8(value).ok();
                redelivery = text.and_then(Redelivery::from_attribute);
                continue;
            }
            headers.push((header.key.to_owned(), Bytes::copy_from_slice(value)));
        }
        let sent_at = match message.timestamp() {
            Timestamp::LogAppendTime(millis) => u64::try_from(millis).ok(),
            Timestamp::CreateTime(_) | Timestamp::NotAvailable => None,
        };
        Self {
            inner: Arc::new(Inner {
                id: format!("{topic}/{partition}/{offset}"),
                key: message.key().map(Bytes::copy_from_slice),
                payload: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
                headers,
                timestamp: message.timestamp().to_millis(),
                sent_at: sent_at
                    .and_then(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis))),
                redelivery,
            }),
        }
    }

    /// What a handler gets.
    pub(super) fn received(&self, lease: Lease) -> Received {
        let inner = &self.inner;
        Received::new(&*inner.id, inner.payload.clone(), lease)
            .with_attributes(inner.headers.clone())
            .with_group(self.key_text())
            .with_redelivery_count(Some(self.count().get()))
            .with_sent_at(inner.sent_at)
    }

    /// The key, as far as it is text.
    pub(super) fn key_text(&self) -> Option<String> {
        let key = self.inner.key.as_deref()?;
        Some(String::from_utf8_lossy(key).into_owned())
    }

    /// The key as it was stored.
    pub(super) fn key(&self) -> Option<&Bytes> {
        self.inner.key.as_ref()
    }

    pub(super) fn payload(&self) -> &Bytes {
        &self.inner.payload
    }

    pub(super) fn headers(&self) -> &[(String, Bytes)] {
        &self.inner.headers
    }

    /// Unix milliseconds.
    pub(super) fn timestamp(&self) -> Option<i64> {
        self.inner.timestamp
    }

    /// Which delivery this is: a record counts the copies that were made before it.
    pub(super) fn count(&self) -> NonZeroU32 {
        let redelivery = self.inner.redelivery.as_ref();
        redelivery.map_or(NonZeroU32::MIN, |redelivery| redelivery.count)
    }

    /// The moment before which it is not handed out, in unix milliseconds.
    pub(super) fn not_before(&self) -> Option<u64> {
        self.inner.redelivery.as_ref()?.not_before
    }

    /// Whether it is a copy that another group asked for.
    pub(super) fn is_for_another(&self, group: &str) -> bool {
        let redelivery = self.inner.redelivery.as_ref();
        redelivery
            .and_then(|redelivery| redelivery.group.as_deref())
            .is_some_and(|meant| meant != group)
    }
}

impl fmt::Debug for StoredRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRecord")
            .field("id", &self.inner.id)
            .field("bytes", &self.inner.payload.len())
            .finish_non_exhaustive()
    }
}
