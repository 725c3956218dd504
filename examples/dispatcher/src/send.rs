//! Delivering a stream of hooks.

use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dispatch_api::{Envelope, HostServices, Outcome, Problems, SinkError, TenantRoutes};
use futures_util::FutureExt as _;
use indicatif::ProgressBar;
use tokio::io::{AsyncWriteExt as _, BufWriter, Stdout};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::config::{Config, InFlightLimits};
use crate::dead_letters::DeadLetters;
use crate::delivery::{Deliverer, Journey, Verdict, drain_deadline, no_route};
use crate::hook::Hook;
use crate::input::{Input, Line, MAX_LINE_BYTES};
use crate::lanes::{Lanes, Turn};
use crate::report::{Summary, json_line, progress_bar};
use crate::stop::Stop;
use crate::telemetry;
use crate::terminal::tell;

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
/// Lines that are no hooks are reported on standard error and counted; so is a fault of
/// the input, which ends it. Hooks are read no faster than they are delivered: at most
/// [`InFlightLimits`] are on their way at once. After the last delivery the sinks are
/// drained. The summary says whether all of that was complete.
pub async fn send(config: Config, input: Input, output: Output, stop: Stop) -> Summary {
    let services = config.services.clone();
    let deliverer = Deliverer::new(
        TenantRoutes::new(config.routes),
        config.retry,
        config.services,
        config.origin,
        stop.clone(),
    );
    let deliverer = Arc::new(deliverer.with_retrying_per_sink(config.in_flight.retrying_per_sink));
    let (verdicts, finished) = mpsc::channel(64);
    let intake = Intake {
        deliverer: Arc::clone(&deliverer),
        services,
        lanes: Lanes::default(),
        room: Room::new(config.in_flight),
        verdicts,
        started: 0,
    };
    let bar = progress_bar(output.json || output.quiet, Arc::clone(&deliverer));
    let reading = tokio::spawn(intake.read(input, bar.clone(), stop.clone()));
    let mut summary = Summary::default();
    let mut writer = Writer {
        stdout: output.json.then(|| BufWriter::new(tokio::io::stdout())),
        dead_letters: output.dead_letters,
        bar: bar.clone(),
        stop,
    };
    writer.write_all(finished, &mut summary).await;
    bar.finish_and_clear();
    match reading.await {
        Ok(read) => summary.add_read(read),
        Err(_) => summary.input_fault = Some("the reader of the input failed".to_owned()),
    }
    let report = deliverer.routes().drain(drain_deadline()).await;
    if !report.total().is_complete() {
        tell(&format!(
            "{} deliveries were not answered in time",
            report.total().unanswered
        ));
    }
    summary
}

/// What the intake found in the input.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) hooks: u64,
    pub(crate) bad_lines: u64,
    /// How many deliveries were started.
    pub(crate) started: u64,
    pub(crate) stopped_after_line: Option<u64>,
    pub(crate) fault: Option<String>,
}

/// A delivery that ended, and the room that its hook takes until that is written down.
struct Finished {
    journey: Arc<Journey>,
    verdict: Verdict,
    _room: Arc<Taken>,
}

/// Room for hooks on their way.
struct Room {
    hooks: Arc<Semaphore>,
    kib: Arc<Semaphore>,
    most_kib: u32,
}

/// Room taken by one hook, given back when its last delivery is written down.
struct Taken {
    _hook: OwnedSemaphorePermit,
    _kib: OwnedSemaphorePermit,
}

impl Room {
    fn new(limits: InFlightLimits) -> Self {
        let most_kib = u32::try_from(limits.bytes.get().div_ceil(1_024)).unwrap_or(u32::MAX);
        Self {
            hooks: Arc::new(Semaphore::new(limits.hooks.get())),
            kib: Arc::new(Semaphore::new(most_kib as usize)),
            most_kib,
        }
    }

    /// Waits for room; a hook heavier than all the room has it to itself.
    async fn take(&self, bytes: usize) -> Arc<Taken> {
        let kib = u32::try_from(bytes / 1_024 + 1)
            .unwrap_or(u32::MAX)
            .min(self.most_kib);
        let hook = Arc::clone(&self.hooks).acquire_owned().await;
        let kib = Arc::clone(&self.kib).acquire_many_owned(kib).await;
        Arc::new(Taken {
            _hook: hook.expect("the semaphore is never closed"),
            _kib: kib.expect("the semaphore is never closed"),
        })
    }
}

/// Takes hooks in, in order, and starts their deliveries.
struct Intake {
    deliverer: Arc<Deliverer>,
    services: HostServices,
    lanes: Lanes,
    room: Room,
    verdicts: mpsc::Sender<Finished>,
    started: u64,
}

impl Intake {
    async fn read(mut self, mut input: Input, bar: ProgressBar, stop: Stop) -> Read {
        let mut read = Read::default();
        let mut last_line = 0;
        loop {
            let line = tokio::select! {
                biased;
                () = stop.requested() => {
                    read.stopped_after_line = Some(last_line);
                    break;
                }
                line = input.next() => line,
            };
            let (number, hook, weight) = match line {
                Ok(None) => break,
                Err(error) => {
                    read.fault = Some(format!("the input ended after line {last_line}: {error}"));
                    break;
                }
                Ok(Some(Line::Text(number, text))) => {
                    (number, Hook::parse(&text, &self.services), text.len())
                }
                Ok(Some(Line::TooLong(number))) => (number, Err(too_long()), 0),
            };
            last_line = number;
            match hook {
                Ok(hook) => {
                    read.hooks += 1;
                    self.admit(hook, weight).await;
                }
                Err(problems) => {
                    read.bad_lines += 1;
                    bar.suspend(|| report_bad_line(number, &problems));
                }
            }
        }
        read.started = self.started;
        read
    }

    async fn admit(&mut self, hook: Hook, weight: usize) {
        let room = self.room.take(weight).await;
        let Some(receivers) = self.deliverer.receivers(&hook.envelope) else {
            let error = no_route(hook.envelope.source_id());
            return self.refuse(hook, error, room).await;
        };
        let receivers: Vec<_> = receivers
            .into_iter()
            .filter(|receiver| {
                let only = hook.only_sink.as_ref();
                only.is_none_or(|only| *only == receiver.sink)
            })
            .collect();
        if receivers.is_empty() {
            let error = no_route_again(hook.only_sink.as_deref().unwrap_or_default());
            return self.refuse(hook, error, room).await;
        }
        let journey = Arc::new(Journey::new(hook.envelope));
        for receiver in receivers {
            let turn = if receiver.is_ordered {
                self.lanes.join(&receiver.sink, &journey.envelope)
            } else {
                Turn::free()
            };
            self.started += 1;
            telemetry::delivery_started();
            let (deliverer, verdicts) = (Arc::clone(&self.deliverer), self.verdicts.clone());
            let (journey, room) = (Arc::clone(&journey), Arc::clone(&room));
            tokio::spawn(async move {
                let sink = receiver.sink;
                // What a panic leaves behind is this delivery's alone.
                let delivering = AssertUnwindSafe(deliverer.deliver(&journey, &sink, turn));
                let verdict = delivering
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|_| Verdict::refused(Some(sink.clone()), panicked()));
                let finished = Finished {
                    journey,
                    verdict,
                    _room: room,
                };
                // Nobody listens once the run was given up.
                let _ = verdicts.send(finished).await;
            });
        }
    }

    async fn refuse(&mut self, hook: Hook, error: SinkError, room: Arc<Taken>) {
        self.started += 1;
        telemetry::delivery_started();
        let finished = Finished {
            journey: Arc::new(Journey::new(hook.envelope)),
            verdict: Verdict::refused(hook.only_sink, error),
            _room: room,
        };
        let _ = self.verdicts.send(finished).await;
    }
}

/// Writes down how deliveries ended.
struct Writer {
    /// Where a line a delivery goes, until that takes no more.
    stdout: Option<BufWriter<Stdout>>,
    dead_letters: Option<DeadLetters>,
    bar: ProgressBar,
    stop: Stop,
}

impl Writer {
    async fn write_all(&mut self, mut finished: mpsc::Receiver<Finished>, summary: &mut Summary) {
        while let Some(Finished {
            journey, verdict, ..
        }) = finished.recv().await
        {
            let envelope = &journey.envelope;
            summary.add(envelope, &verdict);
            telemetry::delivery_ended(verdict.sink.as_deref(), verdict.result.is_ok());
            self.bar.inc(1);
            self.keep_dead_letter(envelope, &verdict, summary).await;
            let line = json_line(envelope, &verdict);
            self.print(&line, finished.is_empty(), summary).await;
        }
        self.print("", true, summary).await;
    }

    /// Writes a line, and all lines so far when nothing else is at hand. Whoever stops
    /// the host does not wait for a reader that reads no more.
    async fn print(&mut self, line: &str, flush: bool, summary: &mut Summary) {
        let Some(stdout) = &mut self.stdout else {
            return;
        };
        let writing = async {
            if !line.is_empty() {
                stdout.write_all(line.as_bytes()).await?;
                stdout.write_all(b"\n").await?;
            }
            if flush { stdout.flush().await } else { Ok(()) }
        };
        let written = tokio::select! {
            written = writing => written,
            () = self.stop.deadline_passed() => Err(io::ErrorKind::TimedOut.into()),
        };
        if let Err(error) = written {
            summary.output_fault = Some(error.to_string());
            self.stdout = None;
        }
    }

    async fn keep_dead_letter(
        &mut self,
        envelope: &Envelope,
        verdict: &Verdict,
        summary: &mut Summary,
    ) {
        let Err(error) = &verdict.result else {
            return;
        };
        let Some(letters) = &mut self.dead_letters else {
            summary.letters_kept_nowhere += 1;
            return;
        };
        if let Err(fault) = letters.append(envelope, verdict, error).await {
            summary.lost_letters += 1;
            let path = letters.path().display();
            self.bar.suspend(|| {
                tell(&format!(
                    "the dead letter {} could not be written to {path}: {fault}",
                    envelope.id()
                ));
            });
        }
    }
}

fn no_route_again(sink: &str) -> SinkError {
    SinkError::config(
        "NoRoute",
        format!(
            "this dead letter is for the sink `{}`, to which no route leads: restore the route, \
             or remove the line's `dead_letter` to deliver it by the routes",
            dispatch_api::shown(sink, 64)
        ),
    )
}

fn panicked() -> SinkError {
    SinkError::transient(
        Outcome::Unknown,
        "HostPanicked",
        "the host panicked during this delivery",
    )
}

fn report_bad_line(number: u64, problems: &Problems) {
    for problem in problems.iter() {
        tell(&format!("line {number}: {problem}"));
    }
}

fn too_long() -> Problems {
    let mut problems = Problems::new();
    problems.add("", format!("is longer than {MAX_LINE_BYTES} bytes"));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroUsize;

    fn room(hooks: usize, bytes: usize) -> Room {
        let limit = |number| NonZeroUsize::new(number).unwrap();
        Room::new(InFlightLimits {
            hooks: limit(hooks),
            bytes: limit(bytes),
            ..InFlightLimits::default()
        })
    }

    /// What is taken, where there is room at once.
    fn take(room: &Room, bytes: usize) -> Option<Arc<Taken>> {
        room.take(bytes).now_or_never()
    }

    #[test]
    fn hooks_have_room_up_to_their_number_and_up_to_their_weight() {
        let few = room(2, 1 << 20);
        let taken = [take(&few, 0), take(&few, 0)];
        assert!(taken.iter().all(Option::is_some));
        assert!(take(&few, 0).is_none());
        let light = room(100, 4 * 1_024);
        let taken = [take(&light, 1_023), take(&light, 2_048)];
        assert!(taken.iter().all(Option::is_some));
        assert!(take(&light, 0).is_none(), "a line weighs 1 KiB at least");
        drop(taken);
        assert!(take(&light, 0).is_some());
    }

    #[test]
    fn a_hook_heavier_than_all_the_room_has_it_to_itself() {
        let room = room(100, 2 * 1_024);
        let heavy = take(&room, 1 << 30);
        assert!(heavy.is_some());
        assert!(take(&room, 0).is_none());
        drop(heavy);
        let light = take(&room, 0);
        assert!(light.is_some());
        assert!(take(&room, 1 << 30).is_none());
    }

    #[test]
    fn a_verdict_that_waits_to_be_written_keeps_its_hooks_room() {
        let room = room(1, 1 << 20);
        let taken = take(&room, 0).unwrap();
        let hook = Envelope::new(dispatch_api::EnvelopeId::v7(1, &[0; 10]), "github", 0, "{}");
        let finished = Finished {
            journey: Arc::new(Journey::new(hook)),
            verdict: Verdict::refused(None, panicked()),
            _room: taken,
        };
        assert!(take(&room, 0).is_none());
        drop(finished);
        assert!(take(&room, 0).is_some());
    }
}
