//! Starts the server and the clients, and compares what the clients used.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clap::Args;
use serde::de::DeserializeOwned;

use crate::Failure;
use crate::client::{Kind, endpoint};
use crate::latency::Latency;
use crate::machine::Machine;
use crate::meter::Measured;
use crate::report::{CONSUMING, ConsumingReport, Report, SENDING, Series, write_measured};
use crate::stored::HOOK_BYTES;
use crate::tls::Certificate;
use crate::{peers, workload};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// A smoke run: one size, one round, few messages. Writes no file
    #[arg(long)]
    quick: bool,
    /// How often every client runs
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The sizes of hooks' bodies in bytes
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1_024, 16_384, 262_144])]
    sizes: Vec<usize>,
    /// The sizes that are measured with TLS too, by default two: what it adds to a request
    /// and what to its bytes. The floor speaks plain HTTP only
    #[arg(long, value_delimiter = ',', default_values_t = [1_024, 16_384])]
    tls_sizes: Vec<usize>,
    /// Only these clients
    #[arg(long, value_delimiter = ',')]
    clients: Vec<Kind>,
    /// Only the clients that receive
    #[arg(long)]
    consume: bool,
    /// The file whose measured part is replaced
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/BENCHMARKS.md"))]
    output: PathBuf,
}

const SENDERS: [Kind; 11] = [
    Kind::Floor,
    Kind::SinkBatched,
    Kind::SinkSingle,
    Kind::SdkBatched,
    Kind::SdkSingle,
    Kind::OmniBatched,
    Kind::OmniSingle,
    Kind::Boto3Batched,
    Kind::Boto3Single,
    Kind::NodeBatched,
    Kind::NodeSingle,
];

const CONSUMERS: [Kind; 5] = [
    Kind::ConsumeEach,
    Kind::ConsumeGathered,
    Kind::SdkConsumeEach,
    Kind::SdkConsumeBatched,
    Kind::OmniqueueConsume,
];

impl Options {
    fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds.max(1) }
    }

    /// Those of `kinds` that are asked for.
    fn asked<const N: usize>(&self, kinds: [Kind; N]) -> Vec<Kind> {
        let asked = |kind: &Kind| self.clients.is_empty() || self.clients.contains(kind);
        kinds.into_iter().filter(asked).collect()
    }

    fn messages(&self, kind: Kind, size: usize) -> usize {
        messages(kind, size) / if self.quick { 5 } else { 1 }
    }

    /// Prints a report, and writes it where it is kept.
    fn tell(&self, part: &str, text: &str) -> Result<(), Failure> {
        println!("{text}");
        if !self.quick {
            write_measured(&self.output, part, text)?;
            eprintln!("written to {}", self.output.display());
        }
        Ok(())
    }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let senders = options.asked(SENDERS);
    let mut consumers = options.asked(CONSUMERS);
    consumers.retain(|kind| peers::is_installed(*kind));
    let server = Server::start(None)?;
    if !options.consume && !senders.is_empty() {
        send(options, &server, senders)?;
    }
    if !consumers.is_empty() {
        consume(options, &server, &consumers)?;
    }
    Ok(())
}

fn consume(options: &Options, server: &Server, clients: &[Kind]) -> Result<(), Failure> {
    let mut series = Series::default();
    let files = Workloads::default();
    for round in 1..=options.rounds() {
        for &kind in clients {
            let messages = options.messages(kind, HOOK_BYTES);
            let measured = client(kind, server, HOOK_BYTES, messages, &files)?;
            eprintln!(
                "consuming, round {round}: {kind:<42} {:>9.1} µs {:>9.0} messages/s",
                measured.cpu_us(),
                measured.rate(),
            );
            series.add(kind, measured);
        }
    }
    let report = ConsumingReport::new(Machine::this(), options.rounds(), series);
    options.tell(CONSUMING, &report.to_string())
}

fn send(options: &Options, server: &Server, clients: Vec<Kind>) -> Result<(), Failure> {
    let rounds = options.rounds();
    let (sizes, tls_sizes) = match options.quick {
        true => (&[1_024][..], &[1_024][..]),
        false => (&*options.sizes, &*options.tls_sizes),
    };
    let (installed, missing): (Vec<Kind>, Vec<Kind>) = clients
        .into_iter()
        .partition(|kind| peers::is_installed(*kind));
    for kind in &missing {
        eprintln!("{kind}: not installed: skipped");
    }
    let tls_server = Server::start(Some(Certificate::create()?))?;
    let mut report = Report::new(Machine::this(), rounds, missing);
    let plain = sizes.iter().map(|&size| (size, server));
    let tls = tls_sizes.iter().map(|&size| (size, &tls_server));
    for (size, server) in plain.chain(tls) {
        let mut series = Series::default();
        let files = Workloads::default();
        for round in 1..=rounds {
            for &kind in &installed {
                if refuses(kind, size) || (server.is_tls() && kind == Kind::Floor) {
                    continue;
                }
                let messages = options.messages(kind, size);
                let measured = client(kind, server, size, messages, &files)?;
                eprintln!(
                    "{size:>7} B{tls}, round {round}: {kind:<42} {:>9.1} µs {:>9.0} messages/s",
                    measured.cpu_us(),
                    measured.rate(),
                    tls = if server.is_tls() { " TLS" } else { "" },
                );
                series.add(kind, measured);
            }
        }
        report.add(size, server.is_tls(), series);
    }
    let seconds = if options.quick { 2 } else { 10 };
    for _ in 0..rounds {
        let latency: Latency = output(
            own()?
                .args(["latency", "--addr", &server.addr.to_string()])
                .args(["--seconds", &seconds.to_string()]),
        )?;
        report.add_latency(latency);
    }
    options.tell(SENDING, &report.to_string())
}

/// Whether a client takes no message of this size: omniqueue has a bound of its own.
fn refuses(kind: Kind, size: usize) -> bool {
    matches!(kind, Kind::OmniBatched | Kind::OmniSingle) && size >= 262_144
}

/// How many messages make about a second of work.
fn messages(kind: Kind, size: usize) -> usize {
    // What a message costs beside its bytes, and per KiB, in microseconds.
    let (own, per_kib) = match kind {
        Kind::Floor | Kind::SinkBatched => (15, 12),
        Kind::SdkBatched | Kind::OmniBatched => (40, 16),
        Kind::SinkSingle => (60, 14),
        Kind::SdkSingle | Kind::OmniSingle => (200, 16),
        Kind::Boto3Batched | Kind::NodeBatched => (250, 25),
        Kind::Boto3Single | Kind::NodeSingle => (900, 30),
        Kind::ConsumeEach => (60, 10),
        Kind::ConsumeGathered => (30, 10),
        Kind::SdkConsumeBatched => (30, 20),
        Kind::SdkConsumeEach | Kind::OmniqueueConsume => (130, 20),
    };
    (1_500_000 / (own + per_kib * size.div_ceil(1_024))).max(100)
}

/// Files of messages for clients that need them, removed at the end.
#[derive(Default)]
struct Workloads {
    files: std::cell::RefCell<BTreeMap<usize, PathBuf>>,
}

impl Workloads {
    fn file(&self, size: usize, messages: usize) -> Result<PathBuf, Failure> {
        let mut files = self.files.borrow_mut();
        if let Some(path) = files.get(&messages) {
            return Ok(path.clone());
        }
        let name = format!("benchmark-{}-{size}-{messages}.ndjson", std::process::id());
        let path = std::env::temp_dir().join(name);
        workload::write(size, messages, &path)?;
        files.insert(messages, path.clone());
        Ok(path)
    }
}

impl Drop for Workloads {
    fn drop(&mut self) {
        for path in self.files.get_mut().values() {
            // A file that is gone is what is wanted.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn client(
    kind: Kind,
    server: &Server,
    size: usize,
    messages: usize,
    files: &Workloads,
) -> Result<Measured, Failure> {
    let mut command = if kind.is_rust() {
        let name = clap::ValueEnum::to_possible_value(&kind).ok_or("a client has a name")?;
        let mut command = own()?;
        command
            .args([
                "client",
                name.get_name(),
                "--addr",
                &server.addr.to_string(),
            ])
            .args(["--size", &size.to_string()])
            .args(["--messages", &messages.to_string()])
            .args(server.is_tls().then_some("--tls"));
        command
    } else {
        let path = files.file(size, messages)?;
        let endpoint = endpoint(server.addr, server.is_tls());
        peers::command(kind, &endpoint, &path, workload::per_request(size))?
            .ok_or("a client that is no Rust program")?
    };
    if let Some(certificate) = &server.certificate {
        certificate.trust(&mut command);
    }
    output(&mut command)
}

fn own() -> Result<Command, Failure> {
    Ok(Command::new(std::env::current_exe()?))
}

/// Runs a command and reads the line that it prints.
fn output<T: DeserializeOwned>(command: &mut Command) -> Result<T, Failure> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The server's process, which ends with its standard input.
struct Server {
    process: Child,
    addr: SocketAddr,
    /// What it shows; none where it speaks plainly.
    certificate: Option<Certificate>,
}

impl Server {
    fn start(certificate: Option<Certificate>) -> Result<Self, Failure> {
        let mut command = own()?;
        command.arg("server");
        if let Some(certificate) = &certificate {
            command.arg("--tls").arg(certificate.directory());
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().ok_or("the server has an output")?;
        BufReader::new(output).read_line(&mut line)?;
        let addr = line.trim().parse()?;
        Ok(Self {
            process,
            addr,
            certificate,
        })
    }

    fn is_tls(&self) -> bool {
        self.certificate.is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It ends on its own: there is nobody to tell how.
        let _ = self.process.wait();
    }
}
