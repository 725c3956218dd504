//! The commands, from arguments to exit status.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use dispatch_api::{HostServices, Registry};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Cli, Command, SendArgs};
use crate::config::Config;
use crate::dead_letters::DeadLetters;
use crate::delivery::drain_deadline;
use crate::input::Input;
use crate::send::{Output, send};
use crate::signals::Signals;
use crate::stop::Stop;
use crate::terminal::{print, tell};
use crate::{demo, sinks, sqs, telemetry};

/// How a command ended.
///
/// Closed on purpose: these are the exit statuses that scripts rely on. Status 2, wrong
/// usage, comes from the parser of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: everything was done.
    Done,
    /// 1: it could not start.
    CouldNotStart,
    /// 3: some hooks were not delivered.
    SomeNotDelivered,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::CouldNotStart => 1,
            Exit::SomeNotDelivered => 3,
        })
    }
}

/// Runs a command to its end. What went wrong is on standard error.
pub async fn run(cli: Cli) -> Exit {
    log_to_standard_error();
    let registry = match Registry::linked() {
        Ok(registry) => registry,
        Err(error) => return could_not_start(&error),
    };
    match cli.command {
        Command::Demo => demo::run(&registry).await,
        Command::Send(args) => run_send(args, &registry).await,
        Command::Check { config } => check(&config, &registry),
        Command::Sinks { json } => sinks::list(&registry, json),
        Command::Sqs { addr, queues } => sqs::serve(addr, &queues).await,
    }
}

/// Logs what `RUST_LOG` names, such as `debug` or `sink_sqs=debug`; without it the
/// lines of the `log` sink, and warnings.
fn log_to_standard_error() {
    let filter = std::env::var("RUST_LOG")
        .ok()
        .and_then(|spec| spec.parse::<Targets>().ok())
        .unwrap_or_else(|| {
            Targets::new()
                .with_default(tracing::Level::WARN)
                .with_target("dispatcher::log_sink", tracing::Level::INFO)
        });
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    // A second call finds the first one's subscriber, which is as good.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .try_init();
}

pub(crate) fn could_not_start(problem: &dyn std::fmt::Display) -> Exit {
    tell(problem);
    Exit::CouldNotStart
}

fn check(path: &Path, registry: &Registry) -> Exit {
    match Config::load(path, registry, HostServices::new()) {
        Ok(config) => {
            let sinks = config.sinks.join(", ");
            print(&format!("{}: valid; sinks: {sinks}\n", path.display()))
        }
        Err(problems) => could_not_start(&problems),
    }
}

async fn run_send(args: SendArgs, registry: &Registry) -> Exit {
    let config = match Config::load(&args.config, registry, HostServices::new()) {
        Ok(config) => config,
        Err(problems) => return could_not_start(&problems),
    };
    let input = match Input::open(&args.input).await {
        Ok(input) => input,
        Err(error) => {
            return could_not_start(&format!("cannot read {}: {error}", args.input.display()));
        }
    };
    let mut output = Output {
        json: args.json,
        ..Output::default()
    };
    if let Some(path) = &args.dead_letters {
        match DeadLetters::open(path).await {
            Ok(letters) => output.dead_letters = Some(letters),
            Err(error) => {
                return could_not_start(&format!("cannot write {}: {error}", path.display()));
            }
        }
        if same_file(path, &args.input) {
            return could_not_start(&format!(
                "{} is both the input and the file of dead letters: it would never end; name two",
                path.display()
            ));
        }
    }
    if let Some(address) = args.metrics_addr
        && let Err(error) = telemetry::serve(address)
    {
        return could_not_start(&format!("cannot serve metrics at {address}: {error}"));
    }
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return could_not_start(&format!("cannot listen for signals: {error}")),
    };
    let stop = Stop::new();
    tokio::spawn(stop_on_request(signals, stop.clone()));
    let summary = send(config, input, output, stop).await;
    tell(&summary);
    if summary.is_complete() {
        Exit::Done
    } else {
        Exit::SomeNotDelivered
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// The first request stops in order, the second ends what still runs, and the third the
/// process, whatever it does.
async fn stop_on_request(mut signals: Signals, stop: Stop) {
    signals.next().await;
    tell(&"stopping: what is in flight is finished; a second request stops at once");
    stop.request(drain_deadline());
    signals.next().await;
    stop.request(tokio::time::Instant::now());
    signals.next().await;
    std::process::exit(130);
}
