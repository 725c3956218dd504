//! Writing a message: one pass, keys in one fixed order.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Content, Message};

impl Message<'_> {
    /// The message as JSON text, keys in one fixed order.
    ///
    /// Every character of it may stand in the body of an SQS message: U+FFFE and
    /// U+FFFF are escaped beside those that JSON escapes anyway. The body form
    /// that is not used is left out, as are an absent `sha256`, `traceparent`
    /// and `tracestate`; every other absent field is `null`.
    ///
    /// `version` is written as 1 whatever was decoded: this is what the writer
    /// speaks.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::new();
        self.encode_into(&mut out);
        out
    }

    /// Appends what [`Message::encode`] gives, for a caller that has room to reuse.
    pub fn encode_into(&self, out: &mut String) {
        out.reserve(self.encoded_capacity());
        let _ = write!(out, "{{\"v\":{},\"id\":", super::MESSAGE_VERSION);
        push_json_string(out, &self.id);
        out.push_str(",\"source_id\":");
        push_json_string(out, &self.source_id);
        push_nullable(out, "tenant_id", self.tenant_id.as_deref());
        let _ = write!(out, ",\"received_at\":{}", self.received_at);
        push_nullable(out, "content_type", self.content_type.as_deref());
        let _ = write!(out, ",\"size\":{}", self.size);
        push_nullable(out, "dedupe_key", self.dedupe_key.as_deref());
        push_nullable(out, "replay_id", self.replay_id.as_deref());
        push_nullable(
            out,
            "idempotency_key",
            self.shipped_idempotency_key.as_deref(),
        );
        out.push_str(",\"headers\":{");
        for (index, (name, value)) in self.headers.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            push_json_string(out, name);
            out.push(':');
            push_json_string(out, value);
        }
        out.push('}');
        push_optional(out, "sha256", self.sha256.as_deref());
        match &self.content {
            Content::Inline(body) => {
                out.push_str(",\"body_base64\":\"");
                STANDARD.encode_string(body, out);
                out.push('"');
            }
            Content::Claim(claim) => {
                let _ = write!(out, ",\"claim\":\"{claim}\"");
            }
        }
        match &self.verification {
            None => out.push_str(",\"verification\":null"),
            Some(verification) => {
                out.push_str(",\"verification\":{\"status\":");
                push_json_string(out, &verification.status);
                let _ = write!(out, ",\"flagged\":{}}}", verification.flagged);
            }
        }
        push_optional(out, "traceparent", self.traceparent.as_deref());
        push_optional(out, "tracestate", self.tracestate.as_deref());
        push_nullable(out, "instance", self.instance.as_deref());
        push_nullable(out, "region", self.region.as_deref());
        out.push('}');
    }

    /// Enough for a message without escapes, so that the text is allocated once.
    fn encoded_capacity(&self) -> usize {
        const KEYS_AND_FIXED_FIELDS: usize = 512;
        let optional = [
            &self.tenant_id,
            &self.content_type,
            &self.dedupe_key,
            &self.replay_id,
            &self.shipped_idempotency_key,
            &self.traceparent,
            &self.tracestate,
            &self.instance,
            &self.region,
        ];
        let strings: usize = optional
            .into_iter()
            .flatten()
            .map(|text| text.len())
            .sum::<usize>()
            + self.source_id.len();
        let headers: usize = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len() + 6)
            .sum();
        let body = match &self.content {
            Content::Inline(body) => body.len().div_ceil(3) * 4,
            Content::Claim(_) => 192,
        };
        KEYS_AND_FIXED_FIELDS + strings + headers + body
    }
}

fn push_nullable(out: &mut String, key: &str, value: Option<&str>) {
    push_key(out, key);
    match value {
        None => out.push_str("null"),
        Some(value) => push_json_string(out, value),
    }
}

fn push_optional(out: &mut String, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        push_key(out, key);
        push_json_string(out, value);
    }
}

fn push_key(out: &mut String, key: &str) {
    out.push_str(",\"");
    out.push_str(key);
    out.push_str("\":");
}

/// Appends `text` to `out` as a JSON string, quotes included.
///
/// Escaped are what JSON demands and the two characters that JSON allows and SQS
/// refuses, U+FFFE and U+FFFF. Everything else is written as it is.
pub fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    let bytes = text.as_bytes();
    let mut clean_from = 0;
    let mut at = 0;
    while let Some(next) = next_candidate(bytes, at) {
        at = next;
        let (length, escape) = match bytes[at] {
            b'"' => (1, Escape::Short("\\\"")),
            b'\\' => (1, Escape::Short("\\\\")),
            b'\n' => (1, Escape::Short("\\n")),
            b'\r' => (1, Escape::Short("\\r")),
            b'\t' => (1, Escape::Short("\\t")),
            byte @ 0..=0x1f => (1, Escape::Control(byte)),
            // The UTF-8 of U+FFFE and U+FFFF.
            0xef if bytes[at..].starts_with(b"\xef\xbf\xbe") => (3, Escape::Short("\\ufffe")),
            0xef if bytes[at..].starts_with(b"\xef\xbf\xbf") => (3, Escape::Short("\\uffff")),
            _ => {
                at += 1;
                continue;
            }
        };
        out.push_str(&text[clean_from..at]);
        match escape {
            Escape::Short(escape) => out.push_str(escape),
            Escape::Control(byte) => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
        at += length;
        clean_from = at;
    }
    out.push_str(&text[clean_from..]);
    out.push('"');
}

/// The place of the first byte from `from` on that an escape may begin with.
fn next_candidate(bytes: &[u8], from: usize) -> Option<usize> {
    const WORD: usize = size_of::<u64>();
    /// As many as a machine compares in a few instructions.
    const STEP: usize = 32;
    let mut at = from;
    // Text between quotes is short: word by word finds the place at once.
    for _ in 0..STEP / WORD {
        let Some(word) = bytes[at..].first_chunk::<WORD>() else {
            break;
        };
        if let Some(place) = candidate_in(u64::from_le_bytes(*word)) {
            return Some(at + place);
        }
        at += WORD;
    }
    // What is longer is base64 as a rule. Without a branch inside, a step is compared at
    // once.
    while let Some(step) = bytes[at..].first_chunk::<STEP>() {
        if step
            .iter()
            .fold(false, |found, byte| found | is_candidate(*byte))
        {
            break;
        }
        at += STEP;
    }
    while let Some(word) = bytes[at..].first_chunk::<WORD>() {
        if let Some(place) = candidate_in(u64::from_le_bytes(*word)) {
            return Some(at + place);
        }
        at += WORD;
    }
    let rest = bytes[at..].iter().position(|byte| is_candidate(*byte))?;
    Some(at + rest)
}

const fn is_candidate(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte == 0xef)
}

/// The place of the first candidate among eight bytes, the first one lowest.
fn candidate_in(word: u64) -> Option<usize> {
    const ONES: u64 = u64::MAX / 0xff;
    const HIGH: u64 = ONES << 7;
    // The high bit of a byte is set where it is less than `than`. The borrow of a byte
    // that is can reach those above it, never those below, and the lowest one counts.
    let less = |word: u64, than: u64| word.wrapping_sub(ONES * than) & !word & HIGH;
    let equal = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    let found = less(word, 0x20) | equal(b'"') | equal(b'\\') | equal(0xef);
    (found != 0).then_some((found.trailing_zeros() / 8) as usize)
}

enum Escape {
    Short(&'static str),
    Control(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut out = String::new();
        push_json_string(&mut out, text);
        out
    }

    #[test]
    fn what_json_demands_is_escaped() {
        assert_eq!(
            quoted("a\"b\\c\n\r\t\u{8}\u{0}"),
            r#""a\"b\\c\n\r\t\u0008\u0000""#
        );
    }

    #[test]
    fn the_two_noncharacters_that_sqs_refuses_are_escaped() {
        assert_eq!(quoted("x\u{fffe}y\u{ffff}"), r#""x\ufffey\uffff""#);
    }

    #[test]
    fn neighbours_of_the_noncharacters_and_other_planes_are_left_alone() {
        assert_eq!(
            quoted("\u{fffd}\u{7f}\u{1fffe}🌊é"),
            "\"\u{fffd}\u{7f}\u{1fffe}🌊é\""
        );
    }

    #[test]
    fn an_escape_is_found_at_every_place() {
        let escaped = [
            ("\"", "\\\""),
            ("\\", "\\\\"),
            ("\u{0}", "\\u0000"),
            ("\u{1f}", "\\u001f"),
            ("\u{ffff}", "\\uffff"),
        ];
        for (raw, written) in escaped {
            for before in 0..100 {
                for after in 0..40 {
                    // Neighbours of what is escaped, in bytes.
                    let head: String = " !#[]~\u{7f}é\u{fffd}"
                        .chars()
                        .cycle()
                        .take(before)
                        .collect();
                    let tail = "a".repeat(after);
                    assert_eq!(
                        quoted(&format!("{head}{raw}{tail}")),
                        format!("\"{head}{written}{tail}\"")
                    );
                }
            }
        }
    }

    #[test]
    fn any_text_reads_back_as_it_was() {
        for text in [
            "",
            "\u{fffe}",
            "\u{ffff}\u{ffff}",
            "ï\u{fffe}",
            "\u{10ffff}\\",
        ] {
            assert_eq!(serde_json::from_str::<String>(&quoted(text)).unwrap(), text);
        }
    }
}
