//! TOML text to a value.

use dispatch_api::Problems;
use serde_json::Value;

/// Parses TOML. A fault is named by line and column, never by the line's text, which
/// may hold a secret.
pub(super) fn parse(text: &str) -> Result<Value, Problems> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let place = error.span().map_or_else(String::new, |span| {
            let before = &text[..span.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            format!("line {line}, column {column}: ")
        });
        let mut problems = Problems::new();
        problems.add("", format!("{place}not TOML: {}", error.message()));
        problems
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_fault_is_named_by_its_place_and_does_not_quote_the_line() {
        let problems = parse("a = 1\nsecret = \"canary\n").unwrap_err().to_string();
        assert!(problems.starts_with("line 2, column"), "{problems}");
        assert!(!problems.contains("canary"), "{problems}");
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        let problems = parse("a = 1\na = 2\n").unwrap_err().to_string();
        assert!(
            problems.starts_with("line 2, column 1: not TOML: duplicate key"),
            "{problems}"
        );
    }
}
