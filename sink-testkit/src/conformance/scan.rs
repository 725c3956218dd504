//! Looking for secrets and payloads in text, plain or encoded.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Finds a value in text, as it is and in the forms in which it could slip out: hex,
/// percent-encoded, escaped for JSON, and base64 at any alignment.
#[derive(Clone, Debug)]
pub struct Scanner {
    forms: Vec<(&'static str, String)>,
}

/// The least length of what is looked for, so that it does not occur by accident.
const LEAST: usize = 12;

impl Scanner {
    /// A scanner for this value.
    ///
    /// # Errors
    ///
    /// When the value is so short that it could occur by accident.
    pub fn new(value: &str) -> Result<Self, String> {
        if value.len() < LEAST {
            let found = value.len();
            return Err(format!(
                "a canary has {LEAST} bytes or more, this has {found}"
            ));
        }
        let mut forms = vec![
            ("as it is", value.to_owned()),
            ("in reverse", value.chars().rev().collect()),
            ("in hex", hex::encode(value)),
            ("in upper-case hex", hex::encode_upper(value)),
            ("percent-encoded", percent_encoded(value)),
            (
                "its first half",
                value[..floor(value, value.len() / 2)].to_owned(),
            ),
        ];
        for (shift, name) in [
            (0, "in base64"),
            (1, "in base64, shifted"),
            (2, "in base64, shifted twice"),
        ] {
            // What surrounds the value decides only the first and last characters.
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let mut bytes = vec![0; shift];
                bytes.extend_from_slice(value.as_bytes());
                bytes.truncate(bytes.len() / 3 * 3);
                let encoded = engine.encode(&bytes);
                forms.push((name, encoded[if shift == 0 { 0 } else { 4 }..].to_owned()));
            }
        }
        forms.retain(|(_, form)| form.len() >= LEAST / 2);
        Ok(Self { forms })
    }

    /// In which form the text holds the value; never the value itself.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<&'static str> {
        let mut forms = self.forms.iter();
        let found = forms.find(|(_, form)| text.contains(form.as_str()));
        found.map(|(name, _)| *name)
    }
}

fn percent_encoded(value: &str) -> String {
    let mut encoded = String::new();
    for byte in value.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    encoded
}

fn floor(text: &str, mut index: usize) -> usize {
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    const CANARY: &str = "harbor-s3cret-7f2c9d41aa";

    #[test]
    fn a_canary_is_found_in_every_form() {
        let scanner = Scanner::new(CANARY).unwrap_or_else(|error| unreachable!("{error}"));
        for text in [
            format!("Debug {{ secret: \"{CANARY}\" }}"),
            hex::encode(CANARY),
            STANDARD.encode(CANARY),
            STANDARD.encode(format!("key:{CANARY}")),
            STANDARD.encode(format!("keys:{CANARY}@host")),
            STANDARD.encode(format!("other:{CANARY}")),
            CANARY.chars().rev().collect(),
            format!("starts with {}...", &CANARY[..13]),
        ] {
            assert!(scanner.find(&text).is_some(), "not found in {text}");
        }
        assert_eq!(scanner.find("harbor-depot, and nothing else"), None);
    }

    #[test]
    fn a_canary_that_could_occur_by_accident_is_refused() {
        assert!(Scanner::new("").is_err());
        assert!(Scanner::new("test").is_err());
    }
}
