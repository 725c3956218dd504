//! Where a delivered message comes from, as its reply subject tells.

/// What stands in the reply subject of a delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// How often it was delivered, the first time being 1.
    pub(super) delivered: u64,
    /// Its sequence in the stream.
    pub(super) sequence: u64,
    /// When the stream stored it, in nanoseconds of the Unix time.
    pub(super) stored_at: u64,
}

impl Origin {
    /// Reads `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.
    /// <pending>`, or the longer form with a domain and an account before the stream.
    pub(super) fn parse(reply: &str) -> Option<Self> {
        let rest = reply.strip_prefix("$JS.ACK.")?;
        let tokens: Vec<&str> = rest.split('.').collect();
        let first = match tokens.len() {
            7 => 2,
            9.. => 4,
            _ => return None,
        };
        let number = |at: usize| tokens.get(first + at)?.parse::<u64>().ok();
        Some(Self {
            delivered: number(0)?,
            sequence: number(1)?,
            stored_at: number(3)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_reply_subject_are_read() {
        let expected = Origin {
            delivered: 2,
            sequence: 7,
            stored_at: 1_767_225_600_000_000_000,
        };
        for reply in [
            "$JS.ACK.HOOKS.worker.2.7.9.1767225600000000000.0",
            "$JS.ACK.hub.Ab12.HOOKS.worker.2.7.9.1767225600000000000.0",
            "$JS.ACK.hub.Ab12.HOOKS.worker.2.7.9.1767225600000000000.0.token",
        ] {
            assert_eq!(Origin::parse(reply), Some(expected), "{reply}");
        }
    }

    #[test]
    fn what_is_no_reply_subject_of_a_consumer_is_none() {
        for reply in [
            "",
            "_INBOX.a.b",
            "$JS.ACK.HOOKS.worker.2.7",
            "$JS.ACK.HOOKS.worker.2.x.9.1.0",
        ] {
            assert_eq!(Origin::parse(reply), None, "{reply}");
        }
    }
}
