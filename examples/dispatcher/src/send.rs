//! Delivering a stream of hooks.

use std::io;
use std::sync::Arc;

use dispatch_api::{Envelope, HostServices, Problems, SinkError, TenantRoutes};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::config::Config;
use crate::dead_letters::DeadLetters;
use crate::delivery::{Deliverer, Journey, Lanes, Turn, Verdict, drain_deadline, no_route};
use crate::hook::Hook;
use crate::input::{Input, Line};
use crate::report::{Summary, json_line, progress_bar};
use crate::stop::Stop;

/// How many hooks are on their way at once, those that wait for a retry included.
const MAX_HOOKS_IN_FLIGHT: usize = 10_000;

/// How much they may weigh together: 256 MiB of bodies, in units of 1 KiB.
const MAX_KIB_IN_FLIGHT: u32 = 256 * 1024;

/// What a run of [`send`] writes, and where.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Output {
    /// One JSON object a delivery on standard output.
    pub json: bool,
    /// Keeps what could not be delivered.
    pub dead_letters: Option<DeadLetters>,
    /// No progress bar, whatever standard error is.
    pub quiet: bool,
}

/// Delivers every hook of the input, and returns when each is delivered or
/// dead-lettered, or the host was told to stop.
///
/// Lines that are no hooks are reported on standard error and counted. At most
/// 10,000 hooks or 256 MiB of bodies are on their way at once. After the last
/// delivery the sinks are drained.
///
/// # Errors
///
/// Those of reading the input or of writing to standard output. What was read
/// before is still delivered.
pub async fn send(
    config: Config,
    mut input: Input,
    mut output: Output,
    stop: Stop,
) -> io::Result<Summary> {
    let services = config.services.clone();
    let deliverer = Arc::new(Deliverer::new(
        TenantRoutes::new(config.routes),
        config.retry,
        config.services,
        config.origin,
        stop.clone(),
    ));
    let (verdicts, mut finished) = mpsc::channel(64);
    let mut intake = Intake {
        deliverer: Arc::clone(&deliverer),
        services,
        lanes: Lanes::default(),
        hooks: Arc::new(Semaphore::new(MAX_HOOKS_IN_FLIGHT)),
        weight: Arc::new(Semaphore::new(MAX_KIB_IN_FLIGHT as usize)),
        verdicts,
    };
    let bar = progress_bar(output.json || output.quiet);
    let reading = {
        let (bar, stop) = (bar.clone(), stop.clone());
        tokio::spawn(async move {
            let mut read = Summary::default();
            let mut last_line = 0;
            let result = loop {
                let line = tokio::select! {
                    biased;
                    () = stop.requested() => {
                        read.stopped_after_line = Some(last_line);
                        break Ok(());
                    }
                    line = input.next() => line,
                };
                let (number, hook) = match line {
                    Ok(None) => break Ok(()),
                    Err(error) => break Err(error),
                    Ok(Some(Line::Text(number, text))) => {
                        (number, Hook::parse(&text, &intake.services))
                    }
                    Ok(Some(Line::TooLong(number))) => (number, Err(too_long())),
                };
                last_line = number;
                match hook {
                    Ok(hook) => {
                        read.hooks += 1;
                        intake.admit(hook).await;
                    }
                    Err(problems) => {
                        read.bad_lines += 1;
                        bar.suspend(|| report_bad_line(number, &problems));
                    }
                }
            };
            (read, result)
        })
    };

    let mut summary = Summary::default();
    let mut stdout = tokio::io::BufWriter::new(tokio::io::stdout());
    let mut written = Ok(());
    while let Some(Finished { journey, verdict }) = finished.recv().await {
        let envelope = &journey.envelope;
        summary.add(envelope, &verdict);
        bar.inc(1);
        if output.json && written.is_ok() {
            let mut line = json_line(envelope, &verdict);
            line.push('\n');
            written = stdout.write_all(line.as_bytes()).await;
            if written.is_ok() && finished.is_empty() {
                written = stdout.flush().await;
            }
        }
        if let Err(problem) = keep_dead_letter(&mut output, envelope, &verdict).await {
            summary.lost_letters += 1;
            bar.suspend(|| eprintln!("{problem}"));
        }
    }
    if written.is_ok() {
        written = stdout.flush().await;
    }
    bar.finish_and_clear();
    let (read, result) = reading.await.map_err(io::Error::other)?;
    summary.hooks = read.hooks;
    summary.bad_lines = read.bad_lines;
    summary.stopped_after_line = read.stopped_after_line;
    let report = deliverer.routes().drain(drain_deadline()).await;
    if !report.total().is_complete() {
        eprintln!(
            "{} deliveries were not answered in time",
            report.total().unanswered
        );
    }
    result.and(written).map(|()| summary)
}

/// A delivery that ended.
struct Finished {
    journey: Arc<Journey>,
    verdict: Verdict,
}

/// Takes hooks in, in order, and starts their deliveries.
struct Intake {
    deliverer: Arc<Deliverer>,
    services: HostServices,
    lanes: Lanes,
    hooks: Arc<Semaphore>,
    weight: Arc<Semaphore>,
    verdicts: mpsc::Sender<Finished>,
}

/// Room for one hook, given back when its last delivery ended.
struct Room {
    _hook: OwnedSemaphorePermit,
    _weight: OwnedSemaphorePermit,
}

impl Intake {
    async fn admit(&mut self, hook: Hook) {
        let room = Arc::new(self.room(hook.envelope.body().len()).await);
        let Some(receivers) = self.deliverer.receivers(&hook.envelope) else {
            let error = no_route(hook.envelope.source_id());
            self.refuse(hook.envelope, "-".to_owned(), error).await;
            return;
        };
        let receivers: Vec<_> = match &hook.only_sink {
            None => receivers,
            Some(only) => receivers
                .into_iter()
                .filter(|(sink, _)| sink == only)
                .collect(),
        };
        if receivers.is_empty() {
            let sink = hook.only_sink.unwrap_or_else(|| "-".to_owned());
            let error = SinkError::config(
                "NoRoute",
                format!(
                    "this dead letter is for the sink `{sink}`, to which no route leads: restore \
                     the route, or remove the line's `dead_letter` to deliver it by the routes"
                ),
            );
            self.refuse(hook.envelope, sink, error).await;
            return;
        }
        let journey = Arc::new(Journey::new(hook.envelope));
        for (sink, in_turn) in receivers {
            let turn = if in_turn {
                self.lanes.join(&sink, &journey.envelope)
            } else {
                Turn::free()
            };
            let (deliverer, verdicts) = (Arc::clone(&self.deliverer), self.verdicts.clone());
            let (journey, room) = (Arc::clone(&journey), Arc::clone(&room));
            tokio::spawn(async move {
                let verdict = deliverer.deliver(&journey, &sink, turn).await;
                drop(room);
                // Nobody listens once the run was given up.
                let _ = verdicts.send(Finished { journey, verdict }).await;
            });
        }
    }

    async fn room(&self, body_bytes: usize) -> Room {
        let kib = u32::try_from(body_bytes / 1024 + 1)
            .unwrap_or(MAX_KIB_IN_FLIGHT)
            .min(MAX_KIB_IN_FLIGHT);
        let hook = Arc::clone(&self.hooks).acquire_owned().await;
        let weight = Arc::clone(&self.weight).acquire_many_owned(kib).await;
        Room {
            _hook: hook.expect("the semaphore is never closed"),
            _weight: weight.expect("the semaphore is never closed"),
        }
    }

    async fn refuse(&self, envelope: Envelope, sink: String, error: SinkError) {
        let finished = Finished {
            journey: Arc::new(Journey::new(envelope)),
            verdict: Verdict {
                sink,
                attempts: 0,
                result: Err(error),
            },
        };
        let _ = self.verdicts.send(finished).await;
    }
}

async fn keep_dead_letter(
    output: &mut Output,
    envelope: &Envelope,
    verdict: &Verdict,
) -> Result<(), String> {
    let (Some(letters), Err(error)) = (&mut output.dead_letters, &verdict.result) else {
        return Ok(());
    };
    letters
        .append(envelope, &verdict.sink, error, verdict.attempts)
        .await
        .map_err(|fault| {
            format!(
                "the dead letter {} could not be written to {}: {fault}",
                envelope.id(),
                letters.path().display()
            )
        })
}

fn report_bad_line(number: u64, problems: &Problems) {
    for problem in problems.iter() {
        eprintln!("line {number}: {problem}");
    }
}

fn too_long() -> Problems {
    let mut problems = Problems::new();
    problems.add(
        "",
        format!("is longer than {} bytes", crate::input::MAX_LINE_BYTES),
    );
    problems
}
