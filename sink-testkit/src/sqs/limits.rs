//! Figures and character sets of the service ("Amazon SQS message quotas", "SendMessage").

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes of one message, and of all messages of a batch together.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1_048_576;
/// Entries of a batch.
pub(crate) const MAX_BATCH_ENTRIES: usize = 10;
/// Attributes of a message.
pub(crate) const MAX_ATTRIBUTES: usize = 10;
/// Characters of an attribute's name, and of its type.
pub(crate) const MAX_ATTRIBUTE_NAME: usize = 256;
/// Seconds of a visibility timeout, and of all extensions from the receive on.
pub(crate) const VISIBILITY: RangeInclusive<i64> = 0..=43_200;
/// Seconds of a delay.
pub(crate) const DELAY: RangeInclusive<i64> = 0..=900;
/// Seconds of a long poll.
pub(crate) const WAIT: RangeInclusive<i64> = 0..=20;
/// Messages of one receive.
pub(crate) const RECEIVE_COUNT: RangeInclusive<i64> = 1..=10;
/// How long a deduplication id and a receive attempt are remembered.
pub(crate) const DEDUPLICATION_WINDOW: Duration = Duration::from_secs(300);
/// Messages in flight in one queue.
pub(crate) const IN_FLIGHT: usize = 120_000;
/// How long a name is not to be had after a deletion, and a queue not to be purged after a purge.
pub(crate) const COOL_DOWN: Duration = Duration::from_secs(60);
/// How far the date of a signature may be off.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(900);
/// Bytes of a request body that are read. A batch at its limit can need six bytes of JSON for one of text.
pub(crate) const MAX_REQUEST_BYTES: usize = 16 * 1_048_576;

/// Whether a body or the text of an attribute may hold this character.
pub(crate) const fn is_message_char(c: char) -> bool {
    matches!(c,
        '\u{9}' | '\u{a}' | '\u{d}'
        | '\u{20}'..='\u{d7ff}'
        | '\u{e000}'..='\u{fffd}'
        | '\u{10000}'..='\u{10ffff}')
}

/// Whether `id` can be a message group id or a deduplication id: 1 to 128 visible ASCII characters.
pub(crate) fn is_group_or_deduplication_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `id` can name an entry of a batch.
pub(crate) fn is_batch_entry_id(id: &str) -> bool {
    (1..=80).contains(&id.len()) && id.bytes().all(is_name_byte)
}

/// Whether `name` can name a queue. The ending of a FIFO queue counts towards the length.
pub(crate) fn is_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(FIFO_ENDING).unwrap_or(name);
    (1..=80).contains(&name.len()) && !stem.is_empty() && stem.bytes().all(is_name_byte)
}

/// What the name of a FIFO queue ends in.
pub(crate) const FIFO_ENDING: &str = ".fifo";

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_but_tab_and_line_ends_are_refused_and_so_are_the_two_non_characters() {
        for c in ['\t', '\n', '\r', ' ', '\u{7f}', '\u{9f}', '\u{fffd}', '🌊'] {
            assert!(is_message_char(c), "{c:?}");
        }
        for c in ['\0', '\u{7}', '\u{b}', '\u{1f}', '\u{fffe}', '\u{ffff}'] {
            assert!(!is_message_char(c), "{c:?}");
        }
    }

    #[test]
    fn group_and_deduplication_ids_are_1_to_128_visible_ascii_characters() {
        let all = "abcXYZ0129!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";
        for id in [all, "a", &"a".repeat(128)] {
            assert!(is_group_or_deduplication_id(id), "{id}");
        }
        for id in ["", "a b", "é", "a\n", &"a".repeat(129)] {
            assert!(!is_group_or_deduplication_id(id), "{id:?}");
        }
    }

    #[test]
    fn queue_names_are_1_to_80_characters_with_the_fifo_ending_counted() {
        for name in [
            "a",
            "A-b_9",
            "a.fifo",
            &"a".repeat(80),
            &format!("{}.fifo", "a".repeat(75)),
        ] {
            assert!(is_queue_name(name), "{name}");
        }
        for name in [
            "",
            ".fifo",
            "a.b",
            "a b",
            "é",
            &"a".repeat(81),
            &format!("{}.fifo", "a".repeat(76)),
        ] {
            assert!(!is_queue_name(name), "{name:?}");
        }
    }

    #[test]
    fn batch_entry_ids_are_1_to_80_letters_digits_hyphens_and_underscores() {
        for id in ["0", "a-B_9", &"a".repeat(80)] {
            assert!(is_batch_entry_id(id), "{id}");
        }
        for id in ["", "a/b", "a b", "a.b", &"a".repeat(81)] {
            assert!(!is_batch_entry_id(id), "{id:?}");
        }
    }
}
