//! Writing a message: one pass, keys in one fixed order.

use std::fmt::Write as _;

use super::{Content, Message};
use crate::encoding::push_base64;

macro_rules! literal {
    ($plain:expr, $escaped:expr) => {
        Literal {
            plain: $plain,
            escaped: $escaped,
        }
    };
}

/// The key of a member that is not the first.
macro_rules! key {
    ($name:literal) => {
        literal!(
            concat!(",\"", $name, "\":"),
            concat!(",\\\"", $name, "\\\":")
        )
    };
}

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
        let mut text = String::with_capacity(self.encoded_capacity());
        self.write(&mut text);
        text
    }

    /// Appends what [`Message::encode`] gives to `text`, and the same as a JSON string,
    /// quotes included, to `quoted`: for a destination whose requests are JSON and hold
    /// messages as text. Both are written in one pass.
    pub fn encode_quoted_into(&self, text: &mut String, quoted: &mut String) {
        /// Quotes of the keys and of the strings, each with a backslash in front.
        const ESCAPES: usize = 192;
        let capacity = self.encoded_capacity();
        text.reserve(capacity);
        quoted.reserve(capacity + ESCAPES);
        quoted.push('"');
        self.write(&mut Twice { text, quoted });
        quoted.push('"');
    }

    fn write(&self, out: &mut impl Out) {
        const { assert!(super::MESSAGE_VERSION == 1) };
        out.literal(literal!(r#"{"v":1,"id":"#, r#"{\"v\":1,\"id\":"#));
        out.string(&self.id);
        out.literal(key!("source_id"));
        out.string(&self.source_id);
        nullable(out, key!("tenant_id"), self.tenant_id.as_deref());
        out.literal(key!("received_at"));
        out.number(self.received_at);
        nullable(out, key!("content_type"), self.content_type.as_deref());
        out.literal(key!("size"));
        out.number(self.size);
        nullable(out, key!("dedupe_key"), self.dedupe_key.as_deref());
        nullable(out, key!("replay_id"), self.replay_id.as_deref());
        nullable(
            out,
            key!("idempotency_key"),
            self.shipped_idempotency_key.as_deref(),
        );
        out.literal(literal!(r#","headers":{"#, r#",\"headers\":{"#));
        for (index, (name, value)) in self.headers.iter().enumerate() {
            if index > 0 {
                out.literal(same(","));
            }
            out.string(name);
            out.literal(same(":"));
            out.string(value);
        }
        out.literal(same("}"));
        optional(out, key!("sha256"), self.sha256.as_deref());
        match &self.content {
            Content::Inline(body) => {
                out.literal(key!("body_base64"));
                out.base64(body);
            }
            Content::Claim(claim) => {
                out.literal(key!("claim"));
                out.string(&claim.to_string());
            }
        }
        out.literal(key!("verification"));
        match &self.verification {
            None => out.literal(same("null")),
            Some(verification) => {
                out.literal(literal!(r#"{"status":"#, r#"{\"status\":"#));
                out.string(&verification.status);
                out.literal(key!("flagged"));
                out.literal(same(match verification.flagged {
                    true => "true}",
                    false => "false}",
                }));
            }
        }
        optional(out, key!("traceparent"), self.traceparent.as_deref());
        optional(out, key!("tracestate"), self.tracestate.as_deref());
        nullable(out, key!("instance"), self.instance.as_deref());
        nullable(out, key!("region"), self.region.as_deref());
        out.literal(same("}"));
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

/// A piece of the format itself: as it stands in a message, and within a JSON string.
#[derive(Clone, Copy)]
struct Literal {
    plain: &'static str,
    escaped: &'static str,
}

/// One that needs no escape.
const fn same(text: &'static str) -> Literal {
    Literal {
        plain: text,
        escaped: text,
    }
}

/// Where a message is written.
trait Out {
    fn literal(&mut self, literal: Literal);
    fn string(&mut self, text: &str);
    fn number(&mut self, number: impl std::fmt::Display);
    fn base64(&mut self, bytes: &[u8]);
}

impl Out for String {
    fn literal(&mut self, literal: Literal) {
        self.push_str(literal.plain);
    }

    fn string(&mut self, text: &str) {
        push_json_string(self, text);
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        let _ = write!(self, "{number}");
    }

    fn base64(&mut self, bytes: &[u8]) {
        self.push('"');
        push_base64(self, bytes);
        self.push('"');
    }
}

/// A message, and the inside of a JSON string that holds it.
struct Twice<'a> {
    text: &'a mut String,
    quoted: &'a mut String,
}

impl Twice<'_> {
    /// Writes the string that the text has from `from` on, quotes included, again. A clean
    /// one has nothing to escape between them.
    fn push_quoted(&mut self, from: usize, is_clean: bool) {
        let written = &self.text[from + 1..self.text.len() - 1];
        self.quoted.push_str("\\\"");
        match is_clean {
            true => self.quoted.push_str(written),
            false => push_escaped(self.quoted, written),
        }
        self.quoted.push_str("\\\"");
    }
}

impl Out for Twice<'_> {
    fn literal(&mut self, literal: Literal) {
        self.text.push_str(literal.plain);
        self.quoted.push_str(literal.escaped);
    }

    fn string(&mut self, text: &str) {
        let from = self.text.len();
        push_json_string(self.text, text);
        // An escape is longer than what it stands for.
        let is_clean = self.text.len() - from == text.len() + 2;
        self.push_quoted(from, is_clean);
    }

    fn number(&mut self, number: impl std::fmt::Display) {
        let from = self.text.len();
        self.text.number(number);
        self.quoted.push_str(&self.text[from..]);
    }

    fn base64(&mut self, bytes: &[u8]) {
        let from = self.text.len();
        self.text.base64(bytes);
        self.push_quoted(from, true);
    }
}

fn nullable(out: &mut impl Out, key: Literal, value: Option<&str>) {
    out.literal(key);
    match value {
        None => out.literal(same("null")),
        Some(value) => out.string(value),
    }
}

fn optional(out: &mut impl Out, key: Literal, value: Option<&str>) {
    if let Some(value) = value {
        out.literal(key);
        out.string(value);
    }
}

/// Appends `text` to `out` as a JSON string, quotes included.
///
/// Escaped are what JSON demands and the two characters that JSON allows and SQS
/// refuses, U+FFFE and U+FFFF. Everything else is written as it is.
pub fn push_json_string(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

/// As [`push_json_string`], without the quotes around it.
fn push_escaped(out: &mut String, text: &str) {
    let bytes = text.as_bytes();
    if is_clean(bytes) {
        out.push_str(text);
        return;
    }
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
}

/// Whether nothing in a text can need an escape, which is the rule.
fn is_clean(bytes: &[u8]) -> bool {
    let has_candidate = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(false, |found, byte| found | is_candidate(*byte))
    };
    let Some(last) = bytes.last_chunk::<WORD>() else {
        return !has_candidate(bytes);
    };
    let (steps, rest) = bytes.as_chunks::<STEP>();
    let (words, _) = rest.as_chunks::<WORD>();
    let is_candidate_in = |word: &[u8; WORD]| candidate_in(u64::from_le_bytes(*word)).is_some();
    // The last word may overlap what was looked at.
    !(steps.iter().any(|step| has_candidate(step))
        || words.iter().any(is_candidate_in)
        || is_candidate_in(last))
}

const WORD: usize = size_of::<u64>();
/// As many bytes as a machine compares in a few instructions.
const STEP: usize = 32;

/// The place of the first byte from `from` on that an escape may begin with.
fn next_candidate(bytes: &[u8], from: usize) -> Option<usize> {
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
    use crate::{DeliveryContext, Envelope, HeaderField, Verification};

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

    #[test]
    fn a_quoted_message_reads_back_as_the_message() {
        let odd = "a\"b\\c\n\u{0}\u{fffe}é🌊";
        let id = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901".parse().unwrap();
        let bare = Envelope::new(id, "harbor", 5, "");
        let full = Envelope::new(id, odd, -5, vec![0xff; 1_000])
            .with_tenant("t".repeat(100))
            .with_content_type("")
            .with_dedupe_key(odd)
            .with_headers([HeaderField::new("a", odd), HeaderField::new("B", "c")])
            .with_verification(Verification::new(odd, true))
            .with_trace("t", Some(odd.to_owned()));
        let ctx = DeliveryContext::direct();
        let replayed = DeliveryContext::direct().with_replay_id(odd);
        for (envelope, ctx) in [(&bare, &ctx), (&full, &ctx), (&full, &replayed)] {
            let message =
                Message::for_delivery(envelope, ctx, crate::DEFAULT_INLINE_MAX_BYTES).unwrap();
            let (mut text, mut written) = (String::new(), String::new());
            message.encode_quoted_into(&mut text, &mut written);
            assert_eq!(text, message.encode());
            assert_eq!(written, quoted(&text));
        }
    }
}
