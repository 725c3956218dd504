//! Tables of what was measured.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use crate::Failure;
use crate::client::Kind;
use crate::latency::{Latency, RATE};
use crate::machine::Machine;
use crate::meter::Measured;
use crate::stored::HOOK_BYTES;

/// The part of the file about clients that send.
pub(crate) const SENDING: &str = "measured";
/// The part of the file about clients that receive.
pub(crate) const CONSUMING: &str = "measured consuming";

fn begin(part: &str) -> String {
    format!("<!-- {part}: what `benchmark run` writes begins -->")
}

fn end(part: &str) -> String {
    format!("<!-- {part}: what `benchmark run` writes ends -->")
}

/// The runs of every client at one size, round by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    order: Vec<Kind>,
    runs: HashMap<Kind, Vec<Measured>>,
}

impl Series {
    /// Adds the run of one round.
    pub(crate) fn add(&mut self, kind: Kind, measured: Measured) {
        if !self.order.contains(&kind) {
            self.order.push(kind);
        }
        self.runs.entry(kind).or_default().push(measured);
    }

    fn runs(&self, kind: Kind) -> &[Measured] {
        self.runs.get(&kind).map_or(&[], Vec::as_slice)
    }

    fn median(&self, kind: Kind, of: fn(&Measured) -> f64) -> Option<f64> {
        median(self.runs(kind).iter().map(of))
    }

    /// The median of the ratios of the rounds: only what ran side by side is compared.
    fn ratio(&self, kind: Kind, to: Kind, of: fn(&Measured) -> f64) -> Option<f64> {
        let pairs = self.runs(kind).iter().zip(self.runs(to));
        median(pairs.map(|(one, other)| of(one) / of(other)))
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// What one call measured of clients that send.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    machine: Machine,
    rounds: usize,
    missing: Vec<Kind>,
    /// By size, and whether with TLS.
    sizes: Vec<(usize, bool, Series)>,
    latencies: Vec<Latency>,
}

impl Report {
    /// A report without measurements yet.
    pub(crate) fn new(machine: Machine, rounds: usize, missing: Vec<Kind>) -> Self {
        Self {
            machine,
            rounds,
            missing,
            sizes: Vec::new(),
            latencies: Vec::new(),
        }
    }

    /// Adds all runs of one size.
    pub(crate) fn add(&mut self, size: usize, tls: bool, series: Series) {
        self.sizes.push((size, tls, series));
    }

    /// Adds the waits of one round.
    pub(crate) fn add_latency(&mut self, latency: Latency) {
        self.latencies.push(latency);
    }

    fn latency(&self, of: fn(&Latency) -> f64) -> f64 {
        median(self.latencies.iter().map(of)).unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine, rounds, ..
        } = self;
        writeln!(f, "{machine}; medians of {rounds} rounds.")?;
        for kind in &self.missing {
            writeln!(f, "\n{kind}: not installed: skipped.")?;
        }
        for (size, tls, series) in &self.sizes {
            let over = if *tls { "TLS" } else { "plain HTTP" };
            writeln!(f, "\n### Hooks of {}, {over}\n", Bytes(*size))?;
            writeln!(
                f,
                "| Client | CPU, µs a message | × SDK batched | × SDK single | messages/s | \
                 × SDK batched |\n|---|---:|---:|---:|---:|---:|"
            )?;
            for &kind in &series.order {
                writeln!(
                    f,
                    "| {kind} | {} | {} | {} | {} | {} |",
                    Number(series.median(kind, Measured::cpu_us), 1),
                    Number(series.ratio(kind, Kind::SdkBatched, Measured::cpu_us), 2),
                    Number(series.ratio(kind, Kind::SdkSingle, Measured::cpu_us), 3),
                    Number(series.median(kind, Measured::rate), 0),
                    Number(series.ratio(kind, Kind::SdkBatched, Measured::rate), 2),
                )?;
            }
        }
        if !self.latencies.is_empty() {
            writeln!(
                f,
                "\n### Waits for an answer, sink-sqs batched, linger 20 ms\n\n\
                 | | ms |\n|---|---:|\n\
                 | a lone message on an idle sink, median | {:.1} |\n\
                 | a lone message on an idle sink, worst | {:.1} |\n\
                 | steady {RATE} messages a second, median | {:.1} |\n\
                 | steady {RATE} messages a second, 99 of 100 | {:.1} |",
                self.latency(|latency| latency.lone_median),
                self.latency(|latency| latency.lone_worst),
                self.latency(|latency| latency.steady_median),
                self.latency(|latency| latency.steady_p99),
            )?;
        }
        Ok(())
    }
}

/// What one call measured of clients that receive.
#[derive(Clone, Debug)]
pub(crate) struct ConsumingReport {
    machine: Machine,
    rounds: usize,
    series: Series,
}

/// What of a peer a client of sink-sqs is held to.
const GOALS: [(Kind, Kind); 2] = [
    (Kind::ConsumeEach, Kind::SdkConsumeEach),
    (Kind::ConsumeGathered, Kind::SdkConsumeBatched),
];

impl ConsumingReport {
    /// A report of these runs.
    pub(crate) fn new(machine: Machine, rounds: usize, series: Series) -> Self {
        Self {
            machine,
            rounds,
            series,
        }
    }
}

impl fmt::Display for ConsumingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            machine,
            rounds,
            series,
        } = self;
        writeln!(
            f,
            "{machine}; medians of {rounds} rounds.\n\n\
             ### Consuming hooks of {}, plain HTTP\n\n\
             | Client | CPU, µs a message | × SDK batched | × SDK each | messages/s | \
             × SDK batched | × SDK each |\n|---|---:|---:|---:|---:|---:|---:|",
            Bytes(HOOK_BYTES)
        )?;
        let (batched, each) = (Kind::SdkConsumeBatched, Kind::SdkConsumeEach);
        for &kind in &series.order {
            writeln!(
                f,
                "| {kind} | {} | {} | {} | {} | {} | {} |",
                Number(series.median(kind, Measured::cpu_us), 1),
                Number(series.ratio(kind, batched, Measured::cpu_us), 2),
                Number(series.ratio(kind, each, Measured::cpu_us), 2),
                Number(series.median(kind, Measured::rate), 0),
                Number(series.ratio(kind, batched, Measured::rate), 2),
                Number(series.ratio(kind, each, Measured::rate), 2),
            )?;
        }
        writeln!(f, "\n| Goal | Seen | |\n|---|---:|---|")?;
        for (kind, to) in GOALS {
            if let Some(ratio) = series.ratio(kind, to, Measured::cpu_us) {
                let verdict = verdict(ratio <= 0.5);
                writeln!(
                    f,
                    "| {kind}: CPU at most 0.50 × {to} | {ratio:.2} | {verdict} |"
                )?;
            }
            if let Some(ratio) = series.ratio(kind, to, Measured::rate) {
                let verdict = verdict(ratio >= 2.0);
                writeln!(
                    f,
                    "| {kind}: messages/s at least 2.00 × {to} | {ratio:.2} | {verdict} |"
                )?;
            }
        }
        Ok(())
    }
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

/// A size for people.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1_024 && bytes % 1_024 == 0 => write!(f, "{} KiB", bytes / 1_024),
            bytes => write!(f, "{bytes} B"),
        }
    }
}

/// A number with this many decimals, if there is one.
struct Number(Option<f64>, usize);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(number) => write!(f, "{number:.*}", self.1),
            None => f.write_str("–"),
        }
    }
}

/// Puts `text` between the two marks of a part of a file, and leaves the rest as it is.
pub(crate) fn write_measured(path: &Path, part: &str, text: &str) -> Result<(), Failure> {
    let before = match std::fs::read_to_string(path) {
        Ok(before) => before,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    std::fs::write(path, replace_measured(&before, part, text)?)?;
    Ok(())
}

fn replace_measured(before: &str, part: &str, text: &str) -> Result<String, Failure> {
    let (begin, end) = (begin(part), end(part));
    let (head, tail) = match before.split_once(&begin) {
        None => (before, ""),
        Some((head, rest)) => {
            let (_, tail) = rest
                .split_once(&end)
                .ok_or("the file's measured part has no end")?;
            (head, tail)
        }
    };
    let tail = if tail.is_empty() { "\n" } else { tail };
    Ok(format!("{head}{begin}\n{text}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cpu_ns: u64) -> Measured {
        Measured {
            messages: 1,
            cpu_ns,
            wall_ns: 1,
        }
    }

    #[test]
    fn only_the_measured_part_of_a_file_is_replaced() {
        let first = replace_measured("# Title\n", SENDING, "old\n").unwrap();
        let with_tail = format!("{first}## After\n");
        let both = replace_measured(&with_tail, CONSUMING, "kept\n").unwrap();
        let second = replace_measured(&both, SENDING, "new\n").unwrap();
        let part = |part, text: &str| format!("{}\n{text}{}\n", begin(part), end(part));
        assert_eq!(
            second,
            format!(
                "# Title\n{}## After\n{}",
                part(SENDING, "new\n"),
                part(CONSUMING, "kept\n")
            )
        );
    }

    #[test]
    fn a_goal_is_met_or_missed_by_the_ratio_seen() {
        let mut series = Series::default();
        series.add(Kind::ConsumeEach, run(49));
        series.add(Kind::SdkConsumeEach, run(100));
        let report = ConsumingReport::new(Machine::this(), 1, series).to_string();
        let goals: Vec<&str> = report.lines().filter(|line| line.contains("at ")).collect();
        assert_eq!(
            goals,
            [
                "| sink-sqs, a call an outcome: CPU at most 0.50 × aws-sdk-sqs, a delete a \
                 message | 0.49 | met |",
                "| sink-sqs, a call an outcome: messages/s at least 2.00 × aws-sdk-sqs, a delete \
                 a message | 1.00 | missed |",
            ]
        );
    }

    #[test]
    fn a_ratio_compares_runs_of_one_round() {
        let mut series = Series::default();
        for (one, other) in [(1, 2), (10, 100), (300, 100)] {
            series.add(Kind::SinkBatched, run(one));
            series.add(Kind::SdkBatched, run(other));
        }
        let ratio = series.ratio(Kind::SinkBatched, Kind::SdkBatched, Measured::cpu_us);
        assert_eq!(ratio, Some(0.5));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_two_in_the_middle() {
        assert_eq!(median([4.0, 1.0, 2.0, 9.0].into_iter()), Some(3.0));
        assert_eq!(median([].into_iter()), None);
    }
}
