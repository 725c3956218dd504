//! TOML text to a value.

use dispatch_api::Problems;
use serde_json::Value;

/// Parses TOML. A fault is named by line and column, never by the line's text, which
/// may hold a secret.
pub(super) fn parse(text: &str) -> Result<Value, Problems> {
    let table: toml::Table = toml::from_str(text).map_err(|error: toml::de::Error| {
        let place = error.span().map_or_else(String::new, |span| {
            let before = &text[..span.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            format!("line {line}, column {column}: ")
        });
        let mut problems = Problems::new();
        problems.add("", format!("{place}not TOML: {}", error.message()));
        problems
    })?;
    let mut problems = Problems::new();
    let value = to_json(toml::Value::Table(table), "", &mut problems);
    problems.into_result(value)
}

/// The value without TOML's own kinds: a date is its text, and what JSON has no number
/// for is a problem.
fn to_json(value: toml::Value, path: &str, problems: &mut Problems) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Boolean(value) => Value::Bool(value),
        toml::Value::Datetime(time) => Value::String(time.to_string()),
        toml::Value::Float(number) => {
            if !number.is_finite() {
                problems.add(path, "expected a number, and nan and inf are none");
            }
            number.into()
        }
        toml::Value::Array(items) => items
            .into_iter()
            .map(|item| to_json(item, path, problems))
            .collect(),
        toml::Value::Table(members) => members
            .into_iter()
            .map(|(key, member)| {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                (key, to_json(member, &path, problems))
            })
            .collect(),
    }
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
    fn what_is_no_number_is_not_taken_for_a_default() {
        for number in ["nan", "inf", "-inf"] {
            let problems = parse(&format!("[sinks.main]\ntimeout_ms = {number}\n"));
            let problems = problems.unwrap_err().to_string();
            assert!(problems.starts_with("sinks.main.timeout_ms: expected a number"));
        }
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
