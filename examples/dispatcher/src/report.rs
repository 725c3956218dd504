//! What a run tells: a JSON line a delivery for programs, a bar and a table for people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{Envelope, shown};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::delivery::{Deliverer, Verdict};
use crate::notices::reason;
use crate::send::Read;

/// One delivery, as `--json` prints it.
#[derive(Serialize)]
struct DeliveryLine<'a> {
    id: String,
    source_id: &'a str,
    tenant_id: Option<&'a str>,
    sink: Option<&'a str>,
    outcome: &'static str,
    class: Option<&'static str>,
    code: Option<&'a str>,
    attempts: u32,
    provider_id: Option<&'a str>,
}

/// One delivery as a line of JSON.
pub(crate) fn json_line(envelope: &Envelope, verdict: &Verdict) -> String {
    let receipt = verdict.result.as_ref().ok();
    let error = verdict.result.as_ref().err();
    let line = DeliveryLine {
        id: envelope.id().to_string(),
        source_id: envelope.source_id(),
        tenant_id: envelope.tenant_id(),
        sink: verdict.sink.as_deref(),
        outcome: if error.is_some() {
            "dead_lettered"
        } else {
            "delivered"
        },
        class: error.map(|error| error.class().as_str()),
        code: error.map(|error| error.code()),
        attempts: verdict.attempts,
        provider_id: receipt.and_then(|receipt| receipt.provider_id.as_deref()),
    };
    serde_json::to_string(&line).expect("strings and numbers are JSON")
}

/// How many tenants the summary tells apart.
const MOST_TENANTS: usize = 1_000;

/// What came of a run.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Hooks read.
    pub hooks: u64,
    /// Lines that were no hooks.
    pub bad_lines: u64,
    /// Deliveries that were started: each has a verdict.
    pub started: u64,
    /// Deliveries by sink and tenant; beyond 1,000 of these by sink alone.
    delivered: BTreeMap<(String, String), u64>,
    /// Dead letters by sink, class and code, with the first reason.
    dead: BTreeMap<(String, &'static str, String), (u64, String)>,
    /// Dead letters that could not be written to their file.
    pub lost_letters: u64,
    /// Dead letters for which no file was named.
    pub letters_kept_nowhere: u64,
    /// The line after which no more was read, when the host was told to stop.
    pub stopped_after_line: Option<u64>,
    /// Why the input ended before its end.
    pub input_fault: Option<String>,
    /// Why standard output took no more lines.
    pub output_fault: Option<String>,
}

impl Summary {
    pub(crate) fn add(&mut self, envelope: &Envelope, verdict: &Verdict) {
        let sink = shown(verdict.sink.as_deref().unwrap_or("-"), 64);
        match &verdict.result {
            Ok(_) => {
                let tenant = shown(envelope.tenant_id().unwrap_or("-"), 64);
                let mut place = (sink, tenant);
                if self.delivered.len() >= MOST_TENANTS && !self.delivered.contains_key(&place) {
                    place.1 = "(others)".to_owned();
                }
                *self.delivered.entry(place).or_default() += 1;
            }
            Err(error) => {
                let key = (sink, error.class().as_str(), error.code().to_owned());
                self.dead.entry(key).or_insert_with(|| (0, reason(error))).0 += 1;
            }
        }
    }

    pub(crate) fn add_read(&mut self, read: Read) {
        self.hooks = read.hooks;
        self.bad_lines = read.bad_lines;
        self.started = read.started;
        self.stopped_after_line = read.stopped_after_line;
        self.input_fault = read.fault;
    }

    /// How many deliveries were made.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered.values().sum()
    }

    /// How many deliveries were given up.
    #[must_use]
    pub fn dead_lettered(&self) -> u64 {
        self.dead.values().map(|(count, _)| count).sum()
    }

    /// Whether all was read, every line was a hook, every hook reached every sink, and
    /// all of that was told.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.dead.is_empty()
            && self.bad_lines == 0
            && self.stopped_after_line.is_none()
            && self.input_fault.is_none()
            && self.output_fault.is_none()
            && self.started == self.delivered()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .delivered
            .keys()
            .map(|(sink, _)| sink)
            .chain(self.dead.keys().map(|(sink, ..)| sink))
            .map(|sink| sink.chars().count())
            .max()
            .unwrap_or(0);
        for ((sink, tenant), count) in &self.delivered {
            writeln!(f, "{sink:<width$}  delivered {count:>6}  tenant {tenant}")?;
        }
        for ((sink, class, code), (count, reason)) in &self.dead {
            writeln!(
                f,
                "{sink:<width$}  dead      {count:>6}  {class}: {code}: {reason}"
            )?;
        }
        write!(
            f,
            "{} hooks: {} delivered, {} dead-lettered",
            self.hooks,
            self.delivered(),
            self.dead_lettered()
        )?;
        if self.letters_kept_nowhere > 0 {
            write!(f, " (kept nowhere: name a file with --dead-letters)")?;
        }
        if self.bad_lines > 0 {
            write!(f, ", {} lines were no hooks", self.bad_lines)?;
        }
        if self.lost_letters > 0 {
            write!(
                f,
                ", {} dead letters could not be written",
                self.lost_letters
            )?;
        }
        let answered = self.delivered() + self.dead_lettered();
        if self.started > answered {
            write!(f, ", {} without an answer", self.started - answered)?;
        }
        if let Some(line) = self.stopped_after_line {
            write!(f, "; stopped after line {line}, the rest was not read")?;
        }
        if let Some(fault) = &self.input_fault {
            write!(f, "; {fault}")?;
        }
        if let Some(fault) = &self.output_fault {
            write!(f, "; standard output took no more lines: {fault}")?;
        }
        Ok(())
    }
}

/// A progress bar on standard error; none where that is no terminal.
pub(crate) fn progress_bar(hidden: bool, deliverer: Arc<Deliverer>) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(
        None,
        if hidden {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        },
    );
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} {pos} deliveries, {per_sec}, {elapsed}{waiting}")
    {
        bar.set_style(style.with_key(
            "waiting",
            move |_: &ProgressState, out: &mut dyn fmt::Write| {
                // A bar that cannot be drawn harms no delivery.
                let _ = write_waiting(out, deliverer.waiting());
            },
        ));
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn write_waiting(out: &mut dyn fmt::Write, waiting: u64) -> fmt::Result {
    match waiting {
        0 => Ok(()),
        1 => out.write_str(", 1 waits for another attempt"),
        _ => write!(out, ", {waiting} wait for another attempt"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_tells_how_many_deliveries_wait_and_is_silent_about_none() {
        let written = |waiting| {
            let mut out = String::new();
            write_waiting(&mut out, waiting).map(|()| out)
        };
        assert_eq!(written(0), Ok(String::new()));
        assert_eq!(written(1), Ok(", 1 waits for another attempt".to_owned()));
        assert_eq!(written(12), Ok(", 12 wait for another attempt".to_owned()));
    }
}
