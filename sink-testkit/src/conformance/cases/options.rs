//! A plugin's options as its JSON schema tells them: used by the cases about
//! configuration, which know no option of their own.

use serde_json::{Map, Value};

/// One option, at its place.
pub(super) struct OptionOf {
    /// The keys that lead to it.
    pub(super) keys: Vec<String>,
    /// What it takes.
    pub(super) takes: Takes,
    /// Whether it is marked as a secret: `writeOnly`.
    pub(super) is_secret: bool,
    /// Whether the schema says what it is for.
    pub(super) is_described: bool,
}

/// What an option takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    Whole {
        least: u64,
        most: Option<u64>,
    },
    Text,
    Flag,
    List,
    Table,
    /// Something that these cases do not know.
    Other,
}

impl OptionOf {
    /// Its place, as problems name it.
    pub(super) fn path(&self) -> String {
        self.keys.join(".")
    }

    /// The options with this one set.
    pub(super) fn set(&self, options: &Value, value: impl Into<Value>) -> Value {
        let mut options = options.clone();
        set(&mut options, &self.keys, value.into());
        options
    }
}

fn set(options: &mut Value, keys: &[String], value: Value) {
    let Some((first, rest)) = keys.split_first() else {
        *options = value;
        return;
    };
    if !options.is_object() {
        *options = Value::Object(Map::new());
    }
    set(&mut options[first], rest, value);
}

/// Every option of a schema, tables and what they hold.
pub(super) fn of_schema(schema: &Value) -> Vec<OptionOf> {
    let mut found = Vec::new();
    collect(schema, schema, &[], &mut found);
    found
}

fn collect(table: &Value, root: &Value, above: &[String], found: &mut Vec<OptionOf>) {
    let Some(Value::Object(properties)) = table.get("properties") else {
        return;
    };
    for (name, property) in properties {
        let keys = [above, std::slice::from_ref(name)].concat();
        let resolved = resolved(property, root);
        let says = |word: &str| property.get(word).or_else(|| resolved?.get(word));
        found.push(OptionOf {
            takes: resolved.map_or(Takes::Other, takes),
            is_secret: says("writeOnly") == Some(&Value::Bool(true)),
            is_described: says("description")
                .and_then(Value::as_str)
                .is_some_and(|text| !text.trim().is_empty()),
            keys: keys.clone(),
        });
        if let Some(table) = resolved
            && keys.len() < 5
        {
            collect(table, root, &keys, found);
        }
    }
}

/// The one schema that a property leads to, past references and the alternative `null`;
/// none where there are several.
fn resolved<'s>(schema: &'s Value, root: &'s Value) -> Option<&'s Value> {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        return resolved(root.pointer(target.strip_prefix('#')?)?, root);
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(alternatives)) = schema.get(word) {
            let is_null = |one: &&Value| one.get("type").and_then(Value::as_str) == Some("null");
            let mut others = alternatives.iter().filter(|one| !is_null(one));
            return match (others.next(), others.next()) {
                (Some(only), None) => resolved(only, root),
                _ => None,
            };
        }
    }
    Some(schema)
}

fn takes(schema: &Value) -> Takes {
    let names = match schema.get("type") {
        Some(Value::String(name)) => vec![&**name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let names: Vec<&str> = names.into_iter().filter(|name| *name != "null").collect();
    let bound = |word: &str| schema.get(word).and_then(Value::as_u64);
    match *names {
        ["integer"] => Takes::Whole {
            least: bound("minimum").unwrap_or(0),
            most: bound("maximum"),
        },
        ["string"] if schema.get("enum").is_none() => Takes::Text,
        ["boolean"] => Takes::Flag,
        ["array"] => Takes::List,
        ["object"] => Takes::Table,
        _ => Takes::Other,
    }
}
