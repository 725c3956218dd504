//! Configuration: what is wrong is found when a sink is built, all of it at once, each
//! problem at its key, and no secret in any of them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dispatch_api::Problems;
use serde_json::{Value, json};

use super::options::{OptionOf, Takes, of_schema};
use crate::conformance::case::case;
use crate::conformance::{Capability, Case, Checked, Context, Failure, check, check_eq};

pub(super) const CASES: &[Case] = &[
    case!(
        config_unknown_key_named,
        "a misspelt key is refused, named, and answered with the nearest known one"
    ),
    case!(
        config_unknown_key_in_a_table_named,
        "a key that a table within the options does not know is refused at its place"
    ),
    case!(
        config_missing_required_named,
        "a required key that is missing is named"
    ),
    case!(
        config_blank_is_not_a_value,
        "a required text or a secret that is blank is as good as missing, and named"
    ),
    case!(
        config_bounds_table,
        "every number is taken within the bounds of the schema and refused beyond them"
    ),
    case!(
        config_wrong_type_named,
        "a value of another type is refused at its key, at every depth"
    ),
    case!(
        config_time_is_a_whole_number,
        "a time is a whole number of its unit: no text, no fraction, no sign, no overflow"
    ),
    case!(
        config_conflicts_rejected_at_build,
        "options that contradict each other are refused, and both are named"
    )
    .needs_capabilities(&[Capability::Conflicts]),
    case!(
        config_all_problems_at_once,
        "one build tells everything that is wrong"
    ),
    case!(
        config_not_a_table_refused,
        "options that are no table are refused in words"
    ),
    case!(
        config_error_quotes_no_value,
        "no problem shows a value, which may be a secret"
    ),
    case!(
        config_hostile_key_shown_safely,
        "a key that nobody would write is shown short and on one line"
    ),
    case!(
        config_build_needs_no_network,
        "a sink is built without a runtime and without asking the destination"
    ),
    case!(
        config_schema_matches_parser,
        "the schema knows every option that is in use, and the parser every one of the schema"
    ),
    case!(
        config_schema_describes_every_option,
        "every option says in the schema what it is for"
    ),
    case!(
        config_schema_marks_secrets,
        "every option that holds a secret is marked as one"
    )
    .needs_capabilities(&[Capability::Credentials]),
];

/// The least options, and all that the schema knows.
async fn known(context: &Context<'_>) -> Checked<(Value, Vec<OptionOf>)> {
    let destination = context.destination().await?;
    let options = context.fixture().options(&destination);
    context.build_with(options.clone())?;
    Ok((options, all_options(context)?))
}

/// All that the schema knows, which is something: every sink has options.
fn all_options(context: &Context<'_>) -> Checked<Vec<OptionOf>> {
    let options = of_schema(&schema(context));
    check(!options.is_empty(), "the schema", "options", "none")?;
    Ok(options)
}

fn schema(context: &Context<'_>) -> Value {
    (context.fixture().plugin().schema)()
}

/// The problems of options that have to be refused.
fn refusal(context: &Context<'_>, step: &str, options: &Value) -> Checked<Problems> {
    context.step(step);
    match context.build_or_problems(options) {
        Err(problems) => Ok(problems),
        Ok(_) => Err(Failure::new(step, "the options are refused", "a sink")),
    }
}

/// The text at this place, where there is a problem.
fn text_at<'p>(problems: &'p Problems, path: &str) -> Option<&'p str> {
    let mut all = problems.iter();
    all.find(|problem| problem.path == path)
        .map(|problem| &*problem.text)
}

/// The text of the problem at this place, of options that have to be refused there.
fn refused_at(context: &Context<'_>, step: &str, options: &Value, path: &str) -> Checked<String> {
    let problems = refusal(context, step, options)?;
    let paths: Vec<&str> = problems.iter().map(|problem| &*problem.path).collect();
    text_at(&problems, path).map(str::to_owned).ok_or_else(|| {
        let expected = format!("a problem at {path}");
        Failure::new(step, expected, format!("problems at {paths:?}"))
    })
}

/// A name with its last two different letters exchanged.
fn misspelt(name: &str) -> String {
    let mut letters: Vec<char> = name.chars().collect();
    let place = (1..letters.len())
        .rev()
        .find(|at| letters[*at] != letters[*at - 1]);
    if let Some(place) = place {
        letters.swap(place, place - 1);
    }
    letters.into_iter().collect()
}

async fn config_unknown_key_named(context: &Context<'_>) -> Checked {
    context.plan("a misspelt key");
    let (options, known) = known(context).await?;
    for option in known.iter().filter(|option| option.keys.len() == 1) {
        let name = &option.keys[0];
        let wrong = misspelt(name);
        if known.iter().any(|option| option.keys[0] == wrong) {
            continue;
        }
        let mut options = options.clone();
        options[&wrong] = Value::from(1);
        let text = refused_at(context, "an unknown key", &options, &wrong)?;
        check(
            text.contains(&**name),
            "an unknown key",
            format!("the nearest known key, {name}"),
            "another text",
        )?;
        context.happened("a misspelt key");
    }
    Ok(())
}

async fn config_unknown_key_in_a_table_named(context: &Context<'_>) -> Checked {
    let (options, known) = known(context).await?;
    // A table that takes any key has none of its own.
    let has_keys = |table: &&OptionOf| {
        table.takes == Takes::Table
            && known.iter().any(|option| {
                option.keys.starts_with(&table.keys) && option.keys.len() > table.keys.len()
            })
    };
    let tables: Vec<&OptionOf> = known.iter().filter(has_keys).collect();
    if tables.is_empty() {
        return Err(Failure::not_applicable(
            "the schema has no table with keys of its own",
        ));
    }
    for table in tables {
        let path = format!("{}.nobodys_key", table.path());
        let options = table.set(&options, json!({"nobodys_key": 1}));
        refused_at(context, "an unknown key in a table", &options, &path)?;
    }
    Ok(())
}

/// The keys of the least options without which no sink is built.
fn required(context: &Context<'_>, options: &Value) -> Vec<(String, Value)> {
    let members = options.as_object().into_iter().flatten();
    let without = members.map(|(key, _)| {
        let mut rest = options.clone();
        if let Some(rest) = rest.as_object_mut() {
            rest.remove(key);
        }
        (key.clone(), rest)
    });
    without
        .filter(|(_, rest)| context.build_or_problems(rest).is_err())
        .collect()
}

async fn config_missing_required_named(context: &Context<'_>) -> Checked {
    context.plan("a required key");
    let (options, _) = known(context).await?;
    let none = refusal(context, "no options", &json!({}))?;
    check(!none.is_empty(), "no options", "a problem", "none")?;
    for (key, rest) in required(context, &options) {
        refused_at(context, "a missing key", &rest, &key)?;
        context.happened("a required key");
    }
    Ok(())
}

async fn config_blank_is_not_a_value(context: &Context<'_>) -> Checked {
    let (options, known) = known(context).await?;
    let is_secret = |key: &str| known.iter().any(|o| o.is_secret && o.path() == key);
    let required = required(context, &options);
    let is_required = |key: &str| required.iter().any(|(required, _)| required == key);
    let members = options.as_object().into_iter().flatten();
    let texts: Vec<&String> = members
        .filter(|(key, value)| value.is_string() && (is_required(key) || is_secret(key)))
        .map(|(key, _)| key)
        .collect();
    if texts.is_empty() {
        return Err(Failure::not_applicable(
            "no option is a required text or a secret",
        ));
    }
    for key in texts {
        for blank in ["", "   ", "\t\n"] {
            let mut options = options.clone();
            options[key] = blank.into();
            refused_at(context, "a blank text", &options, key)?;
        }
    }
    Ok(())
}

async fn config_bounds_table(context: &Context<'_>) -> Checked {
    context.plan("a number with bounds");
    let (options, known) = known(context).await?;
    for option in &known {
        let Takes::Whole { least, most } = option.takes else {
            continue;
        };
        let path = option.path();
        for inside in [Some(least), most].into_iter().flatten() {
            let built = context.build_or_problems(&option.set(&options, inside));
            let Some(text) = built
                .as_ref()
                .err()
                .and_then(|problems| text_at(problems, &path))
            else {
                continue;
            };
            // A bound may contradict another option, which the problem has to name.
            let mut others = known.iter().filter(|other| other.path() != path);
            check(
                others.any(|other| text.contains(&*other.path())),
                &format!("{path} = {inside}"),
                "it is taken, or contradicts another option",
                "it is refused",
            )?;
        }
        let below = least.checked_sub(1).map(|below| (below, least));
        let above = most.and_then(|most| Some((most.checked_add(1)?, most)));
        for (outside, bound) in [below, above].into_iter().flatten() {
            let step = format!("{path} = {outside}");
            let text = refused_at(context, &step, &option.set(&options, outside), &path)?;
            check(
                text.contains(&bound.to_string()),
                &step,
                format!("the bound {bound} in the problem"),
                "it is not there",
            )?;
            context.happened("a number with bounds");
        }
    }
    Ok(())
}

/// A value that no option of this kind takes.
fn of_another_type(takes: Takes) -> Option<Value> {
    match takes {
        Takes::Whole { .. } | Takes::Flag | Takes::List | Takes::Table => {
            Some(Value::from("canary-4b1f"))
        }
        Takes::Text => Some(Value::from(40_417)),
        Takes::Other => None,
    }
}

async fn config_wrong_type_named(context: &Context<'_>) -> Checked {
    context.plan("a value of another type");
    let (options, known) = known(context).await?;
    for option in &known {
        let Some(value) = of_another_type(option.takes) else {
            continue;
        };
        let path = option.path();
        let step = format!("another type at {path}");
        refused_at(context, &step, &option.set(&options, value), &path)?;
        context.happened("a value of another type");
    }
    Ok(())
}

async fn config_time_is_a_whole_number(context: &Context<'_>) -> Checked {
    context.plan("a time");
    let (options, known) = known(context).await?;
    let times = known.iter().filter(|option| {
        let name = option.keys.last().map_or("", |name| &**name);
        matches!(option.takes, Takes::Whole { .. })
            && ["_ms", "_secs", "_seconds"]
                .iter()
                .any(|end| name.ends_with(end))
    });
    for option in times {
        let path = option.path();
        for value in [
            json!("5"),
            json!("5s"),
            json!("5ms"),
            json!(-1),
            json!(1.5),
            json!(1e30),
            json!(true),
        ] {
            let step = format!("{path} = {value}");
            refused_at(context, &step, &option.set(&options, value), &path)?;
        }
        context.happened("a time");
    }
    Ok(())
}

async fn config_conflicts_rejected_at_build(context: &Context<'_>) -> Checked {
    let destination = context.destination().await?;
    let least = context.fixture().options(&destination);
    let conflicts = context.fixture().conflicts(&destination);
    if conflicts.is_empty() {
        let text = "the fixture knows no options in conflict";
        return Err(Failure::of_kit("conflicts", text));
    }
    for (over, keys) in conflicts {
        let mut options = least.clone();
        for (key, value) in over.as_object().into_iter().flatten() {
            options[key] = value.clone();
        }
        let [one, other] = keys;
        let step = format!("{one} beside {other}");
        let text = refusal(context, &step, &options)?.to_string();
        for key in keys {
            check(
                text.contains(key),
                &step,
                format!("{key} in the problems"),
                "it is not there",
            )?;
        }
    }
    Ok(())
}

async fn config_all_problems_at_once(context: &Context<'_>) -> Checked {
    let (options, known) = known(context).await?;
    let mut wrong = options.clone();
    let mut paths = vec!["nobodys_key".to_owned()];
    wrong["nobodys_key"] = Value::from(1);
    for option in &known {
        let Takes::Whole {
            most: Some(most), ..
        } = option.takes
        else {
            continue;
        };
        // A number beyond its bound here, a value of another type there.
        let value = match paths.len() % 2 {
            0 => Value::from("canary-4b1f"),
            _ => Value::from(most.saturating_add(1)),
        };
        wrong = option.set(&wrong, value);
        paths.push(option.path());
    }
    // Without the first, the others may be no longer required.
    if let Some((key, _)) = required(context, &options).into_iter().next() {
        if let Some(wrong) = wrong.as_object_mut() {
            wrong.remove(&key);
        }
        paths.push(key);
    }
    if paths.len() < 2 {
        return Err(Failure::not_applicable(
            "the options can be wrong in one way only",
        ));
    }
    let problems = refusal(context, "many problems", &wrong)?;
    let missing: Vec<&String> = paths
        .iter()
        .filter(|path| text_at(&problems, path).is_none())
        .collect();
    check(
        missing.is_empty(),
        "many problems",
        format!("{} problems at once", paths.len()),
        format!("none at {missing:?}"),
    )
}

async fn config_not_a_table_refused(context: &Context<'_>) -> Checked {
    for (label, options) in [
        ("nothing", Value::Null),
        ("a list", json!([])),
        ("a text", json!("hooks")),
        ("a number", json!(7)),
    ] {
        let problems = refusal(context, label, &options)?;
        check(!problems.is_empty(), label, "a problem", "none")?;
    }
    Ok(())
}

async fn config_error_quotes_no_value(context: &Context<'_>) -> Checked {
    context.plan("options that are refused");
    let destination = context.destination().await?;
    let least = context.fixture().options(&destination);
    let secrets = context.fixture().secrets(&destination);
    let known = all_options(context)?;
    let mut seen = Vec::new();
    // Every problem of this text stands beside the secrets of the least options.
    let mut beside = least.clone();
    beside["nobodys_key"] = Value::from("canary-4b1f");
    seen.push(beside);
    for option in &known {
        if let Some(value) = of_another_type(option.takes) {
            seen.push(option.set(&least, value));
        }
        if let Takes::Whole { most: Some(_), .. } = option.takes {
            seen.push(option.set(&least, 987_654_321_987_u64));
        }
        if option.is_secret {
            seen.push(option.set(&least, json!(["canary-4b1f"])));
            seen.push(option.set(&least, json!({"canary": "canary-4b1f"})));
            seen.push(option.set(&least, "canary-4b1f \u{0} line\nbreak"));
        }
    }
    let canaries = ["canary-4b1f", "40417", "987654321987"].map(str::to_owned);
    for options in &seen {
        let Err(problems) = context.build_or_problems(options) else {
            continue;
        };
        context.happened("options that are refused");
        let shown = format!("{problems} {problems:?}");
        for value in canaries.iter().chain(&secrets) {
            check(
                !shown.contains(&**value),
                "the text of a problem",
                "no value of the options",
                format!("one, at {:?}", problems.iter().next().map(|p| &p.path)),
            )?;
        }
    }
    Ok(())
}

async fn config_hostile_key_shown_safely(context: &Context<'_>) -> Checked {
    let (options, _) = known(context).await?;
    let mut options = options;
    let key = format!("\u{1b}[31m\nline 9: fine{}", "x".repeat(20_000));
    options[key] = Value::from(1);
    let problems = refusal(context, "a hostile key", &options)?;
    check(!problems.is_empty(), "a hostile key", "a problem", "none")?;
    for problem in problems.iter() {
        let shown = problem.to_string();
        check(
            shown.len() < 5_000,
            "a hostile key",
            "a short text",
            format!("{} bytes", shown.len()),
        )?;
        check(
            !shown.contains(char::is_control),
            "a hostile key",
            "a text without control characters",
            "one with them",
        )?;
    }
    Ok(())
}

async fn config_build_needs_no_network(context: &Context<'_>) -> Checked {
    let fixture = context.fixture();
    let (plugin, services) = (fixture.plugin(), fixture.services());
    // Nobody made this destination: whoever asks for it gets no answer that builds.
    let options = fixture.options(&fixture.missing());
    let (sender, built) = mpsc::channel();
    context.step("build on a thread without a runtime");
    let builder = thread::spawn(move || {
        let built = (plugin.build)(&options, &services).map(drop);
        let _ = sender.send(built.map_err(|problems| problems.to_string()));
    });
    let built = built.recv_timeout(Duration::from_secs(10));
    match built {
        Ok(built) => check_eq("build without a runtime", &Ok(()), &built)?,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            return check(false, "build without a runtime", "an end", "it still runs");
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            return check(false, "build without a runtime", "a sink", "a panic");
        }
    }
    let _ = builder.join();
    Ok(())
}

async fn config_schema_matches_parser(context: &Context<'_>) -> Checked {
    let (options, known) = known(context).await?;
    let mut shared = vec!["inline_max_bytes", "timeout_ms"];
    if context.profile().has(Capability::MessageLimit) {
        shared.push("max_message_bytes");
    }
    let in_use = options.as_object().into_iter().flatten();
    let in_use = in_use.map(|(key, _)| &**key).chain(shared);
    for key in in_use {
        check(
            known.iter().any(|option| option.path() == key),
            "the schema",
            format!("the option {key}"),
            "it is not there",
        )?;
    }
    // An option of the schema that the parser does not know is answered like this one.
    let mut unknown = options.clone();
    unknown["nobodys_key"] = Value::from(1);
    let text = refused_at(context, "an unknown key", &unknown, "nobodys_key")?;
    for option in &known {
        let name = option.keys.last().map_or("", |name| &**name);
        let as_unknown = text.split("nobodys_key").next().unwrap_or_default();
        let as_unknown = format!("{as_unknown}{name}");
        let value = of_another_type(option.takes).unwrap_or_default();
        let Err(problems) = context.build_or_problems(&option.set(&options, value)) else {
            continue;
        };
        let text = text_at(&problems, &option.path()).unwrap_or_default();
        check(
            !text.starts_with(&*as_unknown),
            "the parser",
            format!("the option {}", option.path()),
            "it is unknown",
        )?;
    }
    Ok(())
}

async fn config_schema_describes_every_option(context: &Context<'_>) -> Checked {
    let silent: Vec<String> = all_options(context)?
        .iter()
        .filter(|option| !option.is_described)
        .map(OptionOf::path)
        .collect();
    check(
        silent.is_empty(),
        "the schema",
        "a description of every option",
        format!("none of {silent:?}"),
    )
}

/// Whether a value is this secret, or has it within.
fn holds(value: &Value, secret: &str) -> bool {
    match value {
        Value::String(text) => text == secret,
        Value::Array(values) => values.iter().any(|value| holds(value, secret)),
        Value::Object(members) => members.values().any(|value| holds(value, secret)),
        _ => false,
    }
}

async fn config_schema_marks_secrets(context: &Context<'_>) -> Checked {
    context.plan("an option with a secret");
    let destination = context.named_destination("hooks-with-secrets").await?;
    let secrets = context.fixture().secrets(&destination);
    let (options, known) = known(context).await?;
    for (key, value) in options.as_object().into_iter().flatten() {
        if !secrets.iter().any(|secret| holds(value, secret)) {
            continue;
        }
        let is_marked = known.iter().any(|o| o.is_secret && o.path() == *key);
        check(
            is_marked,
            "the schema",
            format!("{key} marked writeOnly"),
            "it is not",
        )?;
        context.happened("an option with a secret");
    }
    Ok(())
}
