//! `${NAME}` and `${NAME:-default}` in the strings of a configuration.

use dispatch_api::{HostServices, Problems};
use serde_json::Value;

/// Fills the placeholders of every string. `$$` stands for one `$`.
///
/// A variable that is unset or blank, without a default, is a problem. What is filled
/// in is never looked at again, so a value cannot bring placeholders of its own.
///
/// Also returned are the paths of the problems: what is found there later follows from
/// them.
pub(super) fn fill(
    value: Value,
    services: &HostServices,
    problems: &mut Problems,
) -> (Value, Vec<String>) {
    let before = problems.iter().count();
    let value = fill_at(value, "", services, problems);
    let unset = problems.iter().skip(before);
    let unset = unset.map(|problem| problem.path.clone()).collect();
    (value, unset)
}

fn fill_at(value: Value, path: &str, services: &HostServices, problems: &mut Problems) -> Value {
    match value {
        Value::String(text) if text.contains('$') => {
            Value::String(fill_text(&text, services).unwrap_or_else(|problem| {
                problems.add(path, problem);
                // Not blank, so that no second problem follows from this one.
                "unset".to_owned()
            }))
        }
        Value::Array(items) => items
            .into_iter()
            .map(|item| fill_at(item, path, services, problems))
            .collect(),
        Value::Object(members) => members
            .into_iter()
            .map(|(key, member)| {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                (key, fill_at(member, &path, services, problems))
            })
            .collect(),
        other => other,
    }
}

fn fill_text(text: &str, services: &HostServices) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        filled.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            filled.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (inside, after) = after
                .split_once('}')
                .ok_or("`${` without `}`; write `$$` for a plain `$`")?;
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            if !is_name(name) {
                return Err(format!(
                    "`${{{name}}}` names no variable: letters, digits and `_` are accepted"
                ));
            }
            match (services.env(name), default) {
                (Some(value), _) => filled.push_str(&value),
                (None, Some(default)) => filled.push_str(default),
                (None, None) => {
                    return Err(format!(
                        "the environment variable {name} is not set: set it, or write \
                         `${{{name}:-default}}`"
                    ));
                }
            }
            rest = after;
        } else {
            filled.push('$');
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn services() -> HostServices {
        HostServices::new().with_environment(|name| match name {
            "REGION" => Some("eu-west-1".to_owned()),
            "TRICK" => Some("${REGION}".to_owned()),
            _ => None,
        })
    }

    fn filled(text: &str) -> Result<String, String> {
        fill_text(text, &services())
    }

    #[test]
    fn a_set_variable_fills_its_place_and_a_default_an_unset_ones() {
        assert_eq!(filled("in ${REGION}!").as_deref(), Ok("in eu-west-1!"));
        assert_eq!(filled("${REGION:-x}").as_deref(), Ok("eu-west-1"));
        assert_eq!(filled("${NOPE:-a:-b}").as_deref(), Ok("a:-b"));
        assert_eq!(filled("${NOPE:-}").as_deref(), Ok(""));
    }

    #[test]
    fn a_plain_dollar_stays_and_a_doubled_one_is_one() {
        assert_eq!(filled("5$ $x $${REGION}").as_deref(), Ok("5$ $x ${REGION}"));
    }

    #[test]
    fn a_value_brings_no_placeholders_of_its_own() {
        assert_eq!(filled("${TRICK}").as_deref(), Ok("${REGION}"));
    }

    #[test]
    fn an_unset_variable_is_a_problem_at_its_key() {
        let mut problems = Problems::new();
        fill(
            json!({"sinks": {"main": {"region": "${NOPE}"}}}),
            &services(),
            &mut problems,
        );
        assert_eq!(
            problems.to_string(),
            "sinks.main.region: the environment variable NOPE is not set: set it, or write \
             `${NOPE:-default}`"
        );
    }

    #[test]
    fn a_malformed_placeholder_is_a_problem() {
        assert!(filled("${REGION").unwrap_err().contains("without `}`"));
        assert!(filled("${a b}").unwrap_err().contains("names no variable"));
        assert!(filled("${}").unwrap_err().contains("names no variable"));
    }
}
