//! `dispatcher sinks`: what is linked, and its options.

use dispatch_api::Registry;
use serde_json::{Value, json};

use crate::run::Exit;
use crate::terminal::print;

pub(crate) fn list(registry: &Registry, as_json: bool) -> Exit {
    if as_json {
        let plugins = registry.plugins().map(|plugin| {
            json!({
                "kind": plugin.kind,
                "summary": plugin.summary,
                "options": (plugin.schema)(),
            })
        });
        return print(&format!("{:#}\n", plugins.collect::<Value>()));
    }
    let mut text = String::new();
    for plugin in registry.plugins() {
        text.push_str(&format!("{}: {}\n", plugin.kind, plugin.summary));
        let schema = (plugin.schema)();
        push_options(&mut text, &schema, &schema, 1);
        text.push('\n');
    }
    print(&text)
}

fn push_options(text: &mut String, schema: &Value, root: &Value, depth: usize) {
    let Some(Value::Object(options)) = schema.get("properties") else {
        return;
    };
    let indent = "  ".repeat(depth);
    for (name, option) in options {
        text.push_str(&format!("{indent}{name}\n"));
        let described = option.get("description").and_then(Value::as_str);
        for line in described.unwrap_or_default().lines() {
            text.push_str(&format!("{indent}    {line}\n"));
        }
        if let Some(inner) = referenced(option, root) {
            push_options(text, inner, root, depth + 1);
        }
    }
}

/// The schema of a table of options, directly or as one of two alternatives.
fn referenced<'a>(option: &Value, root: &'a Value) -> Option<&'a Value> {
    let target = |schema: &Value| {
        let pointer = schema.get("$ref")?.as_str()?.strip_prefix('#')?;
        root.pointer(pointer)
    };
    target(option).or_else(|| {
        let alternatives = option.get("anyOf")?.as_array()?;
        alternatives.iter().find_map(target)
    })
}
