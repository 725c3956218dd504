//! The guides show the code that is tested, as it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use sink_testkit::conformance::{Ledger, Verdict};

use crate::documents::{ROOT, read};

pub(crate) const SINK: &str = "docs/write-a-sink.md";
pub(crate) const SOURCE: &str = "docs/write-a-source.md";

/// The example that the guide of sinks shows in full.
const EXAMPLE: &str = "examples/write_a_sink";
/// Where the plugin is of which both show excerpts, as they link to it.
const NATS: &str = "../../examples/sink-nats/";

/// Of which files the guide of sinks has to show something.
const OF_SINKS: &[&str] = &[
    "src/ack.rs",
    "src/classify.rs",
    "src/plugin.rs",
    "src/sink.rs",
    "tests/conformance/adapter.rs",
    "tests/conformance/fixture.rs",
    "tests/conformance/main.rs",
    "tests/conformance/script.rs",
];
/// Of which files that of sources has to.
const OF_SOURCES: &[&str] = &[
    "src/source/delivery.rs",
    "tests/conformance_source/adapter.rs",
    "tests/conformance_source/fixture.rs",
    "tests/conformance_source/main.rs",
    "tests/conformance_source/script.rs",
];

/// How many lines a start may take.
const START: usize = 30;

/// A fenced block.
struct Block<'a> {
    language: &'a str,
    /// The last line before it that is not empty.
    caption: &'a str,
    text: String,
}

impl Block<'_> {
    /// The file that the caption links to, from the folder of the guides on.
    fn file(&self) -> &str {
        let link = self.caption.rsplit_once("](");
        let file = link.and_then(|(_, rest)| rest.split_once(')'));
        let (file, _) = file.unwrap_or_else(|| panic!("`{}` names no file", self.caption));
        file
    }

    /// That file's text, as far as it can be shown.
    fn source(&self) -> String {
        let path = Path::new(ROOT).join("docs").join(self.file());
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        match self.file() == format!("../{EXAMPLE}/main.rs") {
            true => as_in_a_crate(&text),
            false => text,
        }
    }
}

fn blocks(guide: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    let mut caption = "";
    for line in guide.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                open = Some(Block {
                    language,
                    caption,
                    text: String::new(),
                });
            }
            (None, None) if line.is_empty() => {}
            (None, None) => caption = line,
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// What is shown of a file and not compiled as documentation.
fn excerpts(guide: &str) -> Vec<Block<'_>> {
    let mut blocks = blocks(guide);
    blocks.retain(|block| block.language == "rs");
    blocks
}

/// Whether these are whole lines of the text, one after another.
fn is_part(lines: &str, text: &str) -> bool {
    format!("\n{text}").contains(&format!("\n{lines}"))
}

/// The `main.rs` of the example as it is in a crate whose library is not in the same program.
fn as_in_a_crate(text: &str) -> String {
    let (_, text) = text.split_once("\n\n").unwrap();
    [
        (
            "mod sink;

// The crate of the guide, whose library and test are one program here.
extern crate self as sink_journal;
pub use sink::PLUGIN;
",
            "",
        ),
        (
            "concat!(
        env!(\"CARGO_MANIFEST_DIR\"),
        \"/examples/write_a_sink/ledger.toml\"
    )",
            "concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/tests/ledger.toml\")",
        ),
    ]
    .into_iter()
    .fold(text.to_owned(), |text, (own, other)| {
        assert!(text.contains(own), "no longer so:\n{own}");
        text.replace(own, other)
    })
}

/// The methods of a trait that have no default.
fn required<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let head = format!("\npub trait {name}: ");
    let (_, text) = text.split_once(&head).unwrap();
    let (body, _) = text.split_once("\n}\n").unwrap();
    let mut required = Vec::new();
    let mut method = None;
    for line in body.lines().map(str::trim) {
        let signature = line.strip_prefix("async ").unwrap_or(line);
        if let Some(signature) = signature.strip_prefix("fn ") {
            method = signature.split(['(', '<']).next();
        }
        if line.ends_with('{') {
            method = None;
        }
        if line.ends_with(';') {
            required.extend(method.take());
        }
    }
    required
}

/// Holds a guide's start to its length, and to all that a test target takes: its entry in
/// `Cargo.toml`, its `main.rs`, what its fixture implements, and two runs.
fn starts(guide: &str, target: &str, traits: &str, names: [&str; 2]) {
    let (_, rest) = guide.split_once("\n## Start\n").unwrap();
    let (start, _) = rest.split_once("\n## ").unwrap();
    let lines = start.trim().lines().count();
    assert!(lines <= START, "the start takes {lines} lines");

    let blocks = blocks(start);
    let entry = blocks.iter().find(|block| block.language == "toml");
    let entry: toml::Table = entry.unwrap().text.parse().unwrap();
    assert!(entry["dev-dependencies"]["sink-testkit"].is_table());
    assert_eq!(entry["test"][0]["name"].as_str(), Some(target));
    assert_eq!(entry["test"][0]["harness"].as_bool(), Some(false));

    let excerpts = excerpts(start);
    assert!(
        excerpts
            .iter()
            .any(|block| block.text.contains("fn main()"))
    );

    let text = read(traits);
    for name in names {
        let methods = required(&text, name);
        assert!(methods.len() > 2, "{name}: {methods:?}");
        for word in methods.iter().chain([&name]) {
            let word = format!("`{word}`");
            assert!(start.contains(&word), "the start does not name {word}");
        }
    }

    let console = blocks.iter().find(|block| block.language == "console");
    let commands: Vec<&str> = console.unwrap().text.lines().collect();
    let [update, compare] = commands[..] else {
        panic!("not two commands: {commands:?}");
    };
    assert!(compare.starts_with("cargo test -p "), "{compare}");
    assert!(compare.ends_with(&format!(" --test {target}")), "{compare}");
    assert_eq!(update, format!("UPDATE_LEDGER=1 {compare}"));
}

pub(crate) fn the_guide_of_sinks_begins_with_all_that_is_needed_in_thirty_lines() {
    let traits = "src/conformance/fixture.rs";
    let names = ["Adapter", "SinkFixture"];
    starts(&read(SINK), "conformance", traits, names);
}

pub(crate) fn the_guide_of_sources_begins_with_all_that_is_needed_in_thirty_lines() {
    let traits = "src/conformance/source/fixture.rs";
    let names = ["SourceAdapter", "SourceFixture"];
    starts(&read(SOURCE), "conformance_source", traits, names);
}

pub(crate) fn the_guide_shows_the_files_of_its_example() {
    let guide = read(SINK);
    let shown: Vec<String> = blocks(&guide)
        .into_iter()
        .filter(|block| block.language == "rust" || block.language.starts_with("rust,"))
        .map(|block| {
            let lines = block.text.lines().filter(|line| !line.starts_with("# "));
            lines.map(|line| format!("{line}\n")).collect()
        })
        .collect();
    for name in ["sink.rs", "fixture.rs"] {
        assert!(
            shown.contains(&read(&format!("{EXAMPLE}/{name}"))),
            "the guide does not show {name} as it is"
        );
    }
    let main = as_in_a_crate(&read(&format!("{EXAMPLE}/main.rs")));
    let excerpts = excerpts(&guide);
    assert!(
        excerpts.iter().any(|block| block.text == main),
        "the guide does not show main.rs as it is:\n{main}"
    );
}

pub(crate) fn the_guide_counts_the_verdicts_of_its_examples() {
    let guide = read(SINK);
    let words: Vec<&str> = guide.split_whitespace().collect();
    let guide = words.join(" ");
    let example = format!("{EXAMPLE}/ledger.toml");
    for path in [&*example, "../examples/sink-nats/tests/ledger.toml"] {
        let ledger = Ledger::parse(&read(path), path).unwrap();
        let count = |wanted| {
            let rows = ledger.rows().filter(|(_, _, verdict)| *verdict == wanted);
            rows.count()
        };
        let said = format!(
            "{} passed, {} refused as declared and {} not applicable",
            count(Verdict::Passed),
            count(Verdict::RefusedAsDeclared),
            count(Verdict::NotApplicable)
        );
        assert!(guide.contains(&said), "the guide does not say {said}");
    }
}

pub(crate) fn every_excerpt_is_a_part_of_the_file_that_it_names() {
    for (guide, files) in [(SINK, OF_SINKS), (SOURCE, OF_SOURCES)] {
        let text = read(guide);
        let mut shown = BTreeSet::new();
        for excerpt in excerpts(&text) {
            let file = excerpt.file();
            assert!(
                is_part(&excerpt.text, &excerpt.source()),
                "{guide}: this is not in {file}:\n{}",
                excerpt.text
            );
            assert!(
                excerpt.text.lines().count() > 1,
                "{guide}: too little of {file}"
            );
            shown.extend(file.strip_prefix(NATS).map(str::to_owned));
        }
        let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
        assert_eq!(shown, files, "{guide} shows parts of other files");
    }
}

pub(crate) fn an_excerpt_that_differs_in_one_character_is_noticed() {
    for guide in [SINK, SOURCE] {
        let text = read(guide);
        for excerpt in excerpts(&text) {
            let source = excerpt.source();
            let middle = excerpt.text.len() / 2;
            let at = (middle..)
                .find(|at| excerpt.text.is_char_boundary(*at))
                .unwrap();
            let (before, after) = excerpt.text.split_at(at);
            assert!(!is_part(&format!("{before}~{after}"), &source));
            let (_, without_first) = excerpt.text.split_at(1);
            assert!(
                !is_part(without_first, &source),
                "part of a line is no line"
            );
        }
    }
}
