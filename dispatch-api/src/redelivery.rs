//! Copies of messages for a later attempt.

use std::fmt;
use std::num::NonZeroU32;

use bytes::Bytes;

use crate::encoding::sha256_hex;

/// What a source says of a copy that it publishes in place of a retry.
///
/// Every queue sink sends [`Redelivery::to_attribute`] beside the message, under the name
/// [`Redelivery::ATTRIBUTE`], and makes it a part of its deduplication id. A sink that can
/// carry them also sends the [`attributes`](Redelivery::attributes) and the
/// [`key`](Redelivery::key) of the original.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Redelivery {
    /// Which delivery of the message the copy is to be, the first being 1.
    pub count: NonZeroU32,
    /// The moment before which no source hands it out, in unix milliseconds.
    pub not_before: Option<u64>,
    /// The only group of subscribers that is to have it; `None` for all.
    pub group: Option<String>,
    /// What the original is ordered by, as it was stored: not every broker's keys are text.
    pub key: Option<Bytes>,
    /// What is beside the original, without [`Redelivery::ATTRIBUTE`].
    pub attributes: Vec<(String, Bytes)>,
}

impl Redelivery {
    /// The name of the attribute that makes a message a copy.
    pub const ATTRIBUTE: &'static str = "dispatch_redelivery";

    /// A copy for everyone, to be handed out at once.
    #[must_use]
    pub const fn new(count: NonZeroU32) -> Self {
        Self {
            count,
            not_before: None,
            group: None,
            key: None,
            attributes: Vec::new(),
        }
    }

    /// What travels beside the message: `count`, `not_before` and `group`, as far as they are
    /// there, such as `count=2;not_before=1767225600123;group=workers`.
    #[must_use]
    pub fn to_attribute(&self) -> String {
        let mut text = format!("count={}", self.count);
        if let Some(not_before) = self.not_before {
            text.push_str(&format!(";not_before={not_before}"));
        }
        if let Some(group) = &self.group {
            text.push_str(";group=");
            text.push_str(group);
        }
        text
    }

    /// Reads what [`Redelivery::to_attribute`] wrote; `None` for anything else.
    #[must_use]
    pub fn from_attribute(text: &str) -> Option<Self> {
        let (text, group) = match text.split_once(";group=") {
            Some((text, group)) => (text, Some(group.to_owned())),
            None => (text, None),
        };
        let (count, not_before) = match text.split_once(";not_before=") {
            Some((count, not_before)) => (count, Some(not_before.parse().ok()?)),
            None => (text, None),
        };
        Some(Self {
            not_before,
            group,
            ..Self::new(count.strip_prefix("count=")?.parse().ok()?)
        })
    }

    /// The end of a deduplication id: the same for the same copy, however often it is
    /// published, and another for another attempt or group.
    pub(crate) fn deduplication_mark(&self) -> String {
        let group = self.group.as_deref().unwrap_or_default();
        let group = sha256_hex(group.as_bytes());
        format!(":retry:{}:{}", self.count, &group[..8])
    }
}

impl fmt::Debug for Redelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.attributes.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Redelivery")
            .field("count", &self.count)
            .field("not_before", &self.not_before)
            .field("group", &self.group)
            .field("key", &self.key)
            .field("attributes", &names)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::DeliveryContext;
    use crate::envelope::EnvelopeId;

    fn redelivery(count: u32, not_before: Option<u64>, group: Option<&str>) -> Redelivery {
        Redelivery {
            not_before,
            group: group.map(str::to_owned),
            ..Redelivery::new(NonZeroU32::new(count).unwrap())
        }
    }

    #[test]
    fn what_is_written_beside_a_copy_is_read_back() {
        for (written, text) in [
            (redelivery(2, None, None), "count=2"),
            (
                redelivery(3, Some(1_767_225_600_123), None),
                "count=3;not_before=1767225600123",
            ),
            (
                redelivery(2, None, Some("a;group=b")),
                "count=2;group=a;group=b",
            ),
            (
                redelivery(4_294_967_295, Some(0), Some("")),
                "count=4294967295;not_before=0;group=",
            ),
        ] {
            assert_eq!(written.to_attribute(), text);
            assert_eq!(Redelivery::from_attribute(text), Some(written));
        }
    }

    #[test]
    fn what_nobody_wrote_is_no_copy() {
        for text in [
            "",
            "2",
            "count=0",
            "count=2;not_before=",
            "count=2;not_before=-1",
            "count=4294967296",
            "not_before=1;count=2",
        ] {
            assert_eq!(Redelivery::from_attribute(text), None, "{text}");
        }
    }

    #[test]
    fn a_copy_has_a_deduplication_id_of_its_own_for_each_attempt_and_group() {
        let id: EnvelopeId = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901".parse().unwrap();
        let of = |redelivery| {
            let ctx = DeliveryContext::direct().with_redelivery(redelivery);
            ctx.deduplication_id(id)
        };
        let first = of(redelivery(2, None, Some("workers")));
        assert_eq!(first, format!("{id}:retry:2:ed574aa7"));
        assert_eq!(first, of(redelivery(2, Some(7), Some("workers"))));
        assert_ne!(first, of(redelivery(3, None, Some("workers"))));
        assert_ne!(first, of(redelivery(2, None, Some("clerks"))));
        let replay = DeliveryContext::direct().with_replay_id("r1");
        assert_eq!(replay.deduplication_id(id), format!("{id}:replay:r1"));
        assert_eq!(
            DeliveryContext::direct().deduplication_id(id),
            id.to_string()
        );
    }
}
