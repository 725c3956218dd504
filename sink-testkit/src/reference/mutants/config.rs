//! Mutants of configuration.

use dispatch_api::{Problems, SinkPlugin};
use serde_json::{Map, Value, json};

use super::{Mutant, Seam};
use crate::reference::ReferenceConfig;
use crate::reference::plugin::{build, world};

const SUMMARY: &str = "the reference broker, in memory";

static DRIFTED: SinkPlugin = SinkPlugin::new(
    "reference",
    SUMMARY,
    || {
        schema_with(|options| {
            let timeout = options.remove("timeout_ms");
            options.extend(timeout.map(|timeout| ("timeout".to_owned(), timeout)));
        })
    },
    build,
);

static OF_TOMORROW: SinkPlugin = SinkPlugin::new(
    "reference",
    SUMMARY,
    || {
        schema_with(|options| {
            let retries = json!({"type": "boolean", "description": "Whether to retry."});
            options.insert("retries".to_owned(), retries);
        })
    },
    build,
);

static UNDESCRIBED: SinkPlugin = SinkPlugin::new(
    "reference",
    SUMMARY,
    || schema_with(|options| forget(options, "timeout_ms", "description")),
    build,
);

static UNMARKED: SinkPlugin = SinkPlugin::new(
    "reference",
    SUMMARY,
    || schema_with(|options| forget(options, "secret", "writeOnly")),
    build,
);

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "IgnoresUnknown",
        "takes no notice of keys that it does not know",
        "config_unknown_key_named",
        "an unknown key: expected the options are refused",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                members.retain(|key, _| is_known(key));
            }))
        }),
    ),
    Mutant::new(
        "IgnoresUnknownInTables",
        "takes no notice of keys that a table does not know",
        "config_unknown_key_in_a_table_named",
        "an unknown key in a table: expected the options are refused",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                if let Some(Value::Object(link)) = members.get_mut("link") {
                    link.retain(|key, _| matches!(&**key, "host" | "request_timeout_ms"));
                }
            }))
        }),
    ),
    Mutant::new(
        "GenericMessage",
        "says of a missing key only that something is missing",
        "config_missing_required_named",
        "expected a problem at destination",
        Seam::Build(|options, _, honest| {
            honest(options).map_err(|problems| {
                retold(&problems, |path, text| match text.contains("is required") {
                    true => (String::new(), "the options are incomplete".to_owned()),
                    false => (path, text),
                })
            })
        }),
    ),
    Mutant::new(
        "FailsOnFirstSend",
        "builds a sink of nothing, which then cannot send",
        "config_missing_required_named",
        "no options: expected the options are refused",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                for key in ["destination", "key_id", "secret"] {
                    members.entry(key).or_insert_with(|| "unset".into());
                }
            }))
        }),
    ),
    Mutant::new(
        "BlankIsAValue",
        "takes a blank text for a value",
        "config_blank_is_not_a_value",
        "a blank text: expected the options are refused",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                for value in members.values_mut() {
                    if value.as_str().is_some_and(|text| text.trim().is_empty()) {
                        *value = "blank".into();
                    }
                }
            }))
        }),
    ),
    Mutant::new(
        "ClampsSilently",
        "brings a number within its bounds without a word",
        "config_bounds_table",
        "expected the options are refused; observed a sink",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                if let Some(value) = members.get_mut("batch_max_entries")
                    && let Some(number) = value.as_u64()
                {
                    *value = number.clamp(1, 10).into();
                }
            }))
        }),
    ),
    Mutant::new(
        "OffByOneBound",
        "refuses a number that is its bound",
        "config_bounds_table",
        "timeout_ms = 300000: expected it is taken",
        Seam::Build(|options, _, honest| {
            if options.get("timeout_ms") == Some(&Value::from(300_000)) {
                return Err(problem("timeout_ms", "expected less than 300000"));
            }
            honest(options)
        }),
    ),
    Mutant::new(
        "DefaultsOnWrongType",
        "takes the default for a value of another type",
        "config_wrong_type_named",
        "another type at timeout_ms: expected the options are refused",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                if members.get("timeout_ms").is_some_and(Value::is_string) {
                    members.remove("timeout_ms");
                }
            }))
        }),
    ),
    Mutant::new(
        "ReadsUnits",
        "reads texts such as 5s as times",
        "config_time_is_a_whole_number",
        "expected the options are refused; observed a sink",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                for (_, value) in members.iter_mut().filter(|(key, _)| key.ends_with("_ms")) {
                    let seconds = value.as_str().and_then(|text| text.strip_suffix('s'));
                    let seconds = seconds.and_then(|text| text.parse::<u64>().ok());
                    if let Some(seconds) = seconds {
                        *value = (seconds * 1_000).into();
                    }
                }
            }))
        }),
    ),
    Mutant::new(
        "LastOneWins",
        "takes one of two options that contradict each other",
        "config_conflicts_rejected_at_build",
        "batch_linger_ms beside batch: expected the options are refused",
        Seam::Build(|options, _, honest| {
            honest(&changed(options, |members| {
                if members.get("batch") == Some(&Value::Bool(false)) {
                    members.remove("batch_linger_ms");
                }
            }))
        }),
    ),
    Mutant::new(
        "FirstProblemOnly",
        "tells one problem a time",
        "config_all_problems_at_once",
        "problems at once; observed none at",
        Seam::Build(|options, _, honest| {
            honest(options).map_err(|problems| {
                let first = problems.iter().next();
                first.map_or(problems.clone(), |first| problem(&first.path, &first.text))
            })
        }),
    ),
    Mutant::new(
        "TakesNothing",
        "builds a sink of the defaults where there are no options at all",
        "config_not_a_table_refused",
        "nothing: expected the options are refused",
        Seam::Build(|options, _, honest| match options {
            Value::Null => {
                honest(&json!({"destination": "hooks", "key_id": "key", "secret": "s3cret"}))
            }
            options => honest(options),
        }),
    ),
    Mutant::new(
        "QuotesTheValue",
        "shows the value that it refuses",
        "config_error_quotes_no_value",
        "expected no value of the options",
        Seam::Build(|options, _, honest| {
            honest(options).map_err(|problems| {
                retold(&problems, |path, text| {
                    let found = options.get(&path).cloned().unwrap_or_default();
                    (path, format!("{text}, found {found}"))
                })
            })
        }),
    ),
    Mutant::new(
        "ShowsKeysRaw",
        "shows a key as it stands",
        "config_hostile_key_shown_safely",
        "a hostile key: expected",
        Seam::Build(|options, _, honest| {
            honest(options).map_err(|problems| {
                retold(&problems, |path, _| {
                    let text = format!("`{path}` is refused");
                    (path, text)
                })
            })
        }),
    ),
    Mutant::new(
        "ValidatesByConnecting",
        "asks the broker for the destination before it builds",
        "config_build_needs_no_network",
        "build without a runtime",
        Seam::Build(|options, services, honest| {
            let sink = honest(options)?;
            let name = options["destination"].as_str().unwrap_or_default();
            match world(services)?
                .broker
                .destinations()
                .iter()
                .any(|known| known == name)
            {
                true => Ok(sink),
                false => Err(problem("destination", "the broker has none of this name")),
            }
        }),
    ),
    Mutant::new(
        "NeedsARuntime",
        "starts a task while it builds",
        "config_build_needs_no_network",
        "build without a runtime",
        Seam::Build(
            |options, _, honest| match tokio::runtime::Handle::try_current() {
                Ok(_) => honest(options),
                Err(_) => Err(problem("", "there is no runtime")),
            },
        ),
    ),
    Mutant::new(
        "SchemaDrift",
        "has a schema that knows an option under another name",
        "config_schema_matches_parser",
        "the schema: expected the option timeout_ms",
        Seam::Plugin(&DRIFTED),
    ),
    Mutant::new(
        "SchemaOfTomorrow",
        "has a schema with an option that is not read",
        "config_schema_matches_parser",
        "the parser: expected the option retries",
        Seam::Plugin(&OF_TOMORROW),
    ),
    Mutant::new(
        "UndescribedOption",
        "does not say what an option is for",
        "config_schema_describes_every_option",
        "timeout_ms",
        Seam::Plugin(&UNDESCRIBED),
    ),
    Mutant::new(
        "UnmarkedSecret",
        "does not mark its secret",
        "config_schema_marks_secrets",
        "secret marked writeOnly",
        Seam::Plugin(&UNMARKED),
    ),
];

fn changed(options: &Value, change: impl FnOnce(&mut Map<String, Value>)) -> Value {
    let mut options = options.clone();
    if let Some(members) = options.as_object_mut() {
        change(members);
    }
    options
}

fn is_known(key: &str) -> bool {
    ReferenceConfig::schema()["properties"].get(key).is_some()
}

fn schema_with(change: impl FnOnce(&mut Map<String, Value>)) -> Value {
    let mut schema = ReferenceConfig::schema();
    if let Some(Value::Object(options)) = schema.get_mut("properties") {
        change(options);
    }
    schema
}

fn forget(options: &mut Map<String, Value>, key: &str, word: &str) {
    if let Some(Value::Object(option)) = options.get_mut(key) {
        option.remove(word);
    }
}

fn problem(path: &str, text: &str) -> Problems {
    let mut problems = Problems::new();
    problems.add(path, text);
    problems
}

fn retold(problems: &Problems, tell: impl Fn(String, String) -> (String, String)) -> Problems {
    let mut told = Problems::new();
    for problem in problems.iter() {
        let (path, text) = tell(problem.path.clone(), problem.text.clone());
        told.add(path, text);
    }
    told
}
