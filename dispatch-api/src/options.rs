//! Reading a plugin's options: every problem at once, each with its place.

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One thing wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Where: keys joined by dots, such as `sinks.main.queue_url`. Empty for the
    /// whole.
    pub path: String,
    /// What is wrong, and what is accepted. Never the value itself, which may be
    /// a secret.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.text)
        } else {
            write!(f, "{}: {}", shown(&self.path, 256), self.text)
        }
    }
}

/// Everything wrong with a configuration, in the order in which it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// Text of unknown origin as it may be shown: on one line, without control characters,
/// cut after `max` characters.
#[must_use]
pub fn shown(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == max {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_debug());
        } else {
            shown.push(character);
        }
    }
    shown
}

impl Problems {
    /// None so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn add(&mut self, path: impl Into<String>, text: impl Into<String>) {
        self.0.push(Problem {
            path: path.into(),
            text: text.into(),
        });
    }

    /// Adds those of a part that stands at `prefix`.
    pub fn add_all_under(&mut self, prefix: &str, part: Self) {
        self.0.extend(part.0.into_iter().map(|problem| Problem {
            path: join(prefix, &problem.path),
            text: problem.text,
        }));
    }

    /// Drops every problem at `path` but the first, which is what the others follow from.
    pub fn keep_first_at(&mut self, path: &str) {
        let mut found = false;
        self.0
            .retain(|problem| problem.path != path || !std::mem::replace(&mut found, true));
    }

    /// Replaces whatever was found at `path` and below it by one problem with this text,
    /// if anything was.
    pub fn explain(&mut self, path: &str, text: impl Into<String>) {
        let before = self.0.len();
        self.0.retain(|problem| {
            !problem
                .path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        if self.0.len() < before {
            self.add(path, text);
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Goes through them.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    /// `value`, if there are no problems.
    ///
    /// # Errors
    ///
    /// The problems, if there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Reads options into a struct whose fields all have defaults.
///
/// Unknown keys are reported at every depth, with the nearest known one; of the
/// rest every value of a wrong type is reported and read as its default, so that
/// one run shows all there is to mend. Values never appear in a problem.
///
/// The known keys are those of the struct's JSON schema.
pub fn read_options<T>(options: &Value, problems: &mut Problems) -> T
where
    T: DeserializeOwned + Default + JsonSchema,
{
    if !options.is_object() {
        problems.add(
            "",
            format!("expected a table, found {}", name_of_type(options)),
        );
        return T::default();
    }
    let mut options = options.clone();
    let schema = schemars::schema_for!(T).to_value();
    remove_unknown_keys(&mut options, &schema, &schema, "", problems);
    loop {
        let error = match serde_path_to_error::deserialize::<_, T>(&options) {
            Ok(read) => return read,
            Err(error) => error,
        };
        let keys: Vec<String> = error
            .path()
            .iter()
            .map_while(|segment| match segment {
                serde_path_to_error::Segment::Map { key } => Some(key.clone()),
                _ => None,
            })
            .collect();
        let path = error.path().to_string();
        let path = if keys.is_empty() { "" } else { &*path };
        problems.add(path, expectation(&error.inner().to_string()));
        if !remove(&mut options, &keys) {
            return T::default();
        }
    }
}

/// Says that `word` is unknown, which is the nearest known one, and what is known.
pub fn unknown<'a>(what: &str, word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    const LONGEST_SHOWN: usize = 64;
    let known: BTreeSet<&str> = known.into_iter().collect();
    let is_a_word = word.len() <= LONGEST_SHOWN;
    let nearest = known
        .iter()
        // A long text is nobody's misspelt key, and costly to compare.
        .filter(|_| is_a_word)
        .map(|name| (strsim::damerau_levenshtein(name, word), *name))
        .filter(|(distance, name)| *distance <= 1.max(name.chars().count() / 3))
        .min();
    let known = match known.is_empty() {
        true => "none".to_owned(),
        false => known.into_iter().collect::<Vec<_>>().join(", "),
    };
    let word = shown(word, LONGEST_SHOWN);
    match nearest {
        Some((_, name)) => {
            format!("unknown {what} `{word}`, did you mean `{name}`? known: {known}")
        }
        None => format!("unknown {what} `{word}`, known: {known}"),
    }
}

fn remove_unknown_keys(
    value: &mut Value,
    schema: &Value,
    root: &Value,
    path: &str,
    problems: &mut Problems,
) {
    let Value::Object(members) = value else {
        return;
    };
    let mut known = Vec::new();
    collect_properties(schema, root, &mut known);
    if known.is_empty() {
        if let Some(schema) = schema_of_any_key(schema, root) {
            for (name, member) in members {
                remove_unknown_keys(member, schema, root, &join(path, name), problems);
            }
        }
        return;
    }
    members.retain(|key, _| {
        let is_known = known.iter().any(|(name, _)| *name == key);
        if !is_known {
            let names = known.iter().map(|(name, _)| *name);
            problems.add(join(path, key), unknown("key", key, names));
        }
        is_known
    });
    for (name, schema) in known {
        if let Some(member) = members.get_mut(name) {
            remove_unknown_keys(member, schema, root, &join(path, name), problems);
        }
    }
}

/// The properties that `schema` knows, through references and alternatives.
fn collect_properties<'a>(
    schema: &'a Value,
    root: &'a Value,
    known: &mut Vec<(&'a str, &'a Value)>,
) {
    if let Some(Value::Object(properties)) = schema.get("properties") {
        known.extend(
            properties
                .iter()
                .map(|(name, schema)| (name.as_str(), schema)),
        );
    }
    if let Some(target) = target_of_reference(schema, root) {
        collect_properties(target, root, known);
    }
    for alternatives in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(schemas)) = schema.get(alternatives) {
            for schema in schemas {
                collect_properties(schema, root, known);
            }
        }
    }
}

/// The schema of every member of a table whose keys are free.
fn schema_of_any_key<'a>(schema: &'a Value, root: &'a Value) -> Option<&'a Value> {
    match schema.get("additionalProperties") {
        Some(members) => Some(members),
        None => schema_of_any_key(target_of_reference(schema, root)?, root),
    }
}

fn target_of_reference<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
    root.pointer(pointer)
}

/// Removes the value at `keys`, so that its default is read instead.
fn remove(value: &mut Value, keys: &[String]) -> bool {
    let Some((last, parents)) = keys.split_last() else {
        return false;
    };
    parents
        .iter()
        .try_fold(value, |value, key| value.get_mut(key))
        .and_then(Value::as_object_mut)
        .and_then(|members| members.remove(last))
        .is_some()
}

/// What was expected, from a deserializer's message, without the value it quotes.
fn expectation(message: &str) -> String {
    let Some((_, expected)) = message.rsplit_once("expected ") else {
        return "a value of this key is not accepted".to_owned();
    };
    let expected = match expected {
        "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        "a tuple of size 2" => "a list of two",
        other => other,
    };
    format!("expected {expected}")
}

fn name_of_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

fn join(prefix: &str, path: &str) -> String {
    match (prefix.is_empty(), path.is_empty()) {
        (true, _) => path.to_owned(),
        (_, true) => prefix.to_owned(),
        _ => format!("{prefix}.{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(default)]
    struct Options {
        queue_url: Option<String>,
        timeout_ms: Option<u64>,
        batch: Option<bool>,
        http: Option<Http>,
        mode: Option<Mode>,
        queues: std::collections::BTreeMap<String, Http>,
    }

    #[derive(Debug, Default, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(default)]
    struct Http {
        proxy: Option<String>,
        pool: Option<u32>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Mode {
        Standard,
        Fair,
    }

    fn read(options: &Value) -> (Options, Vec<String>) {
        let mut problems = Problems::new();
        let read = read_options(options, &mut problems);
        (read, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn good_options_are_read_without_a_problem() {
        let (read, problems) =
            read(&json!({"queue_url": "q", "http": {"pool": 3}, "mode": "fair"}));
        assert_eq!(problems, [""; 0]);
        assert_eq!(read.queue_url.as_deref(), Some("q"));
        assert_eq!(read.mode, Some(Mode::Fair));
        assert_eq!(
            read.http,
            Some(Http {
                proxy: None,
                pool: Some(3)
            })
        );
    }

    #[test]
    fn unknown_keys_are_named_at_every_depth_with_the_nearest_known_one() {
        let (_, problems) = read(&json!({"queue_ulr": "q", "http": {"porxy": "p"}}));
        assert_eq!(
            problems,
            [
                "queue_ulr: unknown key `queue_ulr`, did you mean `queue_url`? known: batch, http, mode, queue_url, queues, timeout_ms",
                "http.porxy: unknown key `porxy`, did you mean `proxy`? known: pool, proxy",
            ]
        );
    }

    #[test]
    fn unknown_keys_are_found_behind_keys_that_are_free() {
        let (_, problems) = read(&json!({"queues": {"main": {"poool": 1}}}));
        assert_eq!(
            problems,
            ["queues.main.poool: unknown key `poool`, did you mean `pool`? known: pool, proxy"]
        );
    }

    #[test]
    fn every_wrong_type_is_reported_in_one_run_and_the_rest_is_read() {
        let (read, problems) = read(&json!({
            "queue_url": "q", "timeout_ms": "soon", "batch": 1, "http": {"pool": -1}, "mode": "fast",
        }));
        assert_eq!(read.queue_url.as_deref(), Some("q"));
        assert_eq!(
            problems,
            [
                "batch: expected true or false",
                "http.pool: expected a whole number, 0 or more",
                "mode: expected `standard` or `fair`",
                "timeout_ms: expected a whole number, 0 or more",
            ]
        );
    }

    #[test]
    fn a_problem_never_quotes_a_value() {
        let (_, problems) =
            read(&json!({"timeout_ms": "canary", "queue_url": 77_777, "mode": "canary"}));
        assert_eq!(problems.len(), 3);
        for problem in problems {
            assert!(
                !problem.contains("canary") && !problem.contains("77777"),
                "{problem}"
            );
        }
    }

    #[test]
    fn a_hostile_key_is_shown_cut_and_without_control_characters() {
        let key = format!("\u{1b}[31m\nline 9: fine{}", "x".repeat(1_000_000));
        let (_, problems) = read(&json!({key: 1}));
        assert!(problems[0].len() < 1_000, "{} bytes", problems[0].len());
        assert!(!problems[0].contains(['\u{1b}', '\n']), "{}", problems[0]);
    }

    #[test]
    fn options_that_are_no_table_are_one_problem() {
        let (_, problems) = read(&json!([1]));
        assert_eq!(problems, ["expected a table, found a list"]);
    }

    #[test]
    fn problems_of_a_part_get_the_place_of_the_part() {
        let mut part = Problems::new();
        part.add("region", "missing");
        part.add("", "expected a table, found a list");
        let mut whole = Problems::new();
        whole.add_all_under("sinks.main", part);
        assert_eq!(
            whole.to_string(),
            "sinks.main.region: missing\nsinks.main: expected a table, found a list"
        );
    }
}
