//! From arguments to the end of the run.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dispatch_api::{
    Consumer, ConsumerSettings, ErrorChain, Handler, HostServices, Received, Settlement, Stop,
};
use dispatcher::{Signals, print, tell};
use tokio::time::Instant;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::Cli;
use crate::command;
use crate::config::{Config, HandlerConfig};
use crate::dedupe::Handled;
use crate::hook::{Hook, Unfit, later};
use crate::report::{Reporter, summary};

/// How much longer than an open receive a stop may take.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// Consumes until it is asked to stop, and returns whether it could start. What went wrong is
/// on standard error.
///
/// Ctrl-C and SIGTERM stop it in order; a second one gives up what still runs.
pub async fn run(cli: Cli) -> bool {
    log_to_standard_error();
    let config = match Config::load(&cli.config, &HostServices::new()) {
        Ok(config) => config,
        Err(problems) => return could_not_start(&problems),
    };
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => return could_not_start(&format!("cannot listen for signals: {error}")),
    };
    let subscription = match config.queue.open().await {
        Ok(subscription) => subscription,
        Err(error) => {
            return could_not_start(&format!("cannot consume: {}", ErrorChain(&error)));
        }
    };
    let reporter = Arc::new(Reporter::new(cli.json));
    let stop = Stop::new();
    let stopping = tokio::spawn(stop_at_signals(
        signals,
        stop.clone(),
        config.wait + STOP_MARGIN,
    ));
    let mut settings = ConsumerSettings::default();
    settings.concurrency = config.concurrency;
    settings.handler_timeout = config.timeout;
    settings.until_empty = cli.until_empty;
    let consumer = Consumer::new(settings).with_observer(Arc::clone(&reporter) as _);
    let handler = Worker {
        handled: config.dedupe.then(Handled::default),
        config,
        reporter,
        json: cli.json,
    };
    let report = consumer.run(subscription, handler, stop).await;
    stopping.abort();
    tell(&summary(&report));
    true
}

async fn stop_at_signals(mut signals: Signals, stop: Stop, time: Duration) {
    signals.next().await;
    tell(&format!(
        "stopping: what runs has {} s; ask again to give it up",
        time.as_secs()
    ));
    stop.by(Instant::now() + time);
    signals.next().await;
    stop.by(Instant::now());
}

fn could_not_start(problem: &dyn std::fmt::Display) -> bool {
    tell(problem);
    false
}

/// Logs what `RUST_LOG` names, such as `debug` or `sink_sqs=debug`; without it, warnings.
fn log_to_standard_error() {
    let filter = std::env::var("RUST_LOG")
        .ok()
        .and_then(|spec| spec.parse::<Targets>().ok())
        .unwrap_or_else(|| Targets::new().with_default(tracing::Level::WARN));
    let layer = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    // A second call finds the first one's subscriber, which is as good.
    let _ = tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .try_init();
}

/// Handles each delivery as the configuration says.
struct Worker {
    config: Config,
    handled: Option<Handled>,
    reporter: Arc<Reporter>,
    json: bool,
}

impl Handler for Worker {
    async fn handle(&self, received: Received) -> Settlement {
        let hook = match Hook::of(&received, self.config.claims.as_deref()).await {
            Ok(hook) => hook,
            Err(Unfit(why)) => {
                self.reporter.note(&received, why);
                return later(&received);
            }
        };
        // A replay is somebody's wish to have it handled again.
        let key = hook.message.idempotency_key_with_replay().into_owned();
        if let Some(handled) = &self.handled
            && handled.knows(&key)
        {
            self.reporter
                .note(&received, "handled before: not handled again".to_owned());
            return Settlement::Ack;
        }
        let settlement = self.carry_out(&received, &hook).await;
        if let Some(handled) = &self.handled
            && settlement == Settlement::Ack
        {
            handled.add(&key);
        }
        settlement
    }
}

impl Worker {
    async fn carry_out(&self, received: &Received, hook: &Hook<'_>) -> Settlement {
        let command = match &self.config.handler {
            HandlerConfig::Print => {
                if !self.json {
                    print(&shown(hook));
                }
                return Settlement::Ack;
            }
            HandlerConfig::Command(command) => command,
        };
        let body: Bytes = hook.body.clone();
        match command::run(command, hook.variables(received), body).await {
            Ok((settlement, note)) => {
                if let Some(note) = note {
                    self.reporter.note(received, note);
                }
                settlement
            }
            Err(error) => {
                let note = format!("cannot run the command: {error}");
                tracing::warn!("{note}");
                self.reporter.note(received, note);
                later(received)
            }
        }
    }
}

/// A hook for people.
fn shown(hook: &Hook<'_>) -> String {
    let message = &hook.message;
    format!(
        "{} {} {}\n{}\n",
        message.id,
        message.source_id,
        message.tenant_id.as_deref().unwrap_or("-"),
        String::from_utf8_lossy(&hook.body)
    )
}
