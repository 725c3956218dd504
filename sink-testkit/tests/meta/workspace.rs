//! Every sink and source of the workspace plays the suite, and every ledger is whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use sink_testkit::conformance::{Ledger, cases, source};

/// The crates with a plugin and without a suite, and why.
const WITHOUT_A_SUITE: [(&str, &str); 1] = [(
    "examples/dispatcher",
    "its sink writes to the log and keeps nothing that could be read back",
)];

/// How every ledger begins.
const LEDGER: &str = "# What every case of the conformance suite comes to.";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folders of the workspace's crates, relative to its root.
fn members() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let members = manifest["workspace"]["members"].as_array().unwrap();
    let members = members.iter().map(|member| member.as_str().unwrap());
    members.map(str::to_owned).collect()
}

/// Every file below a folder with this end, with its text.
fn files(folder: &Path, end: &str) -> Vec<(PathBuf, String)> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let found = paths.flat_map(|path| match path.is_dir() {
        true => files(&path, end),
        false if path.extension().is_some_and(|found| found == end) => {
            let text = fs::read_to_string(&path).unwrap();
            vec![(path, text)]
        }
        false => Vec::new(),
    });
    found.collect()
}

/// The programs of a crate: its tests and its examples.
fn programs(member: &str) -> Vec<(PathBuf, String)> {
    let folders = ["tests", "examples"];
    let all = folders.map(|folder| files(&root().join(member).join(folder), "rs"));
    all.concat()
}

/// The ledgers of a crate, by their paths within it.
fn ledgers(member: &str) -> BTreeMap<String, String> {
    let folder = root().join(member);
    let all = ["tests", "examples"].map(|part| files(&folder.join(part), "toml"));
    let ledgers = all.concat().into_iter().filter_map(|(path, text)| {
        let path = path.strip_prefix(&folder).unwrap().display().to_string();
        text.starts_with(LEDGER).then_some((path, text))
    });
    ledgers.collect()
}

/// Whether one of the programs begins a suite with this call.
fn plays(member: &str, call: &str) -> bool {
    programs(member).iter().any(|(_, text)| text.contains(call))
}

fn has(member: &str, declaration: &str) -> bool {
    let sources = files(&root().join(member).join("src"), "rs");
    sources.iter().any(|(_, text)| text.contains(declaration))
}

pub(crate) fn every_sink_of_the_workspace_has_a_suite() {
    let excused: BTreeMap<&str, &str> = WITHOUT_A_SUITE.into();
    let mut sinks = BTreeSet::new();
    for member in members() {
        if !has(&member, "\npub static PLUGIN: SinkPlugin") {
            continue;
        }
        let plays = plays(&member, "conformance::main(");
        let is_excused = excused.contains_key(&*member);
        assert_ne!(
            plays, is_excused,
            "{member}: a suite, or an excuse for none"
        );
        assert!(is_excused || !ledgers(&member).is_empty(), "{member}");
        sinks.insert(member);
    }
    for member in excused.keys() {
        assert!(sinks.contains(*member), "{member} needs no excuse");
    }
    assert!(sinks.len() > excused.len() + 2, "few sinks: {sinks:?}");
}

pub(crate) fn every_source_of_the_workspace_has_a_suite() {
    let members = members();
    let sources = members
        .iter()
        .filter(|member| has(member, "\nimpl Source for "));
    let sources: Vec<&String> = sources.collect();
    for member in &sources {
        assert!(plays(member, "source::main("), "{member} has no suite");
    }
    assert!(sources.len() > 2, "few sources: {sources:?}");
}

pub(crate) fn every_ledger_is_one_that_a_suite_compares() {
    for member in members() {
        let programs = programs(&member);
        for path in ledgers(&member).keys() {
            // Those that are chosen while it runs are named by their folder.
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let named = [format!("/{path}\""), format!("/{folder}/{{}}.toml\"")];
            let is_named = programs
                .iter()
                .any(|(_, text)| named.iter().any(|name| text.contains(&**name)));
            assert!(is_named, "nothing compares {member}/{path}");
        }
    }
}

pub(crate) fn every_ledger_has_a_row_for_every_case_and_no_other() {
    let of_sinks: BTreeSet<&str> = cases::all().iter().map(|case| case.id).collect();
    let of_sources = source::cases::all();
    let of_sources: BTreeSet<&str> = of_sources.iter().map(|case| case.id).collect();
    let mut count = 0;
    for member in members() {
        for (path, text) in ledgers(&member) {
            let expected = match path.contains("source") {
                true => &of_sources,
                false => &of_sinks,
            };
            let ledger = Ledger::parse(&text, &path).unwrap();
            let mut modes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for (mode, case, _) in ledger.rows() {
                modes.entry(mode).or_default().insert(case);
            }
            for (mode, rows) in modes {
                let differ: Vec<_> = rows.symmetric_difference(expected).collect();
                assert!(differ.is_empty(), "{member}/{path}, {mode}: {differ:?}");
                count += 1;
            }
        }
    }
    assert!(count > 20, "few modes: {count}");
}
