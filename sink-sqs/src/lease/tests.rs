use super::*;
use dispatch_api::{Outcome, Receipt, SinkError};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

type Script = dyn Fn(&str, Duration) -> Answer + Send + Sync;

/// When, and what was asked for.
type Call = (Duration, Vec<(String, u64)>);

/// Answers by handle and time, and notes every call.
struct Scripted {
    begun: Instant,
    takes: Duration,
    answer: Box<Script>,
    calls: Mutex<Vec<Call>>,
}

impl Extend for Scripted {
    async fn extend(&self, holds: &[(Arc<str>, u64)], _: Instant) -> Vec<Answer> {
        let at = self.begun.elapsed();
        let noted = holds.iter().map(|(handle, s)| (handle.to_string(), *s));
        self.calls.lock().unwrap().push((at, noted.collect()));
        sleep(self.takes).await;
        let answers = holds.iter().map(|(handle, _)| (self.answer)(handle, at));
        answers.collect()
    }
}

impl Scripted {
    /// When each call began, in milliseconds.
    fn times(&self) -> Vec<u128> {
        let calls = self.calls.lock().unwrap();
        calls.iter().map(|(at, _)| at.as_millis()).collect()
    }
}

fn leases(
    visibility: Duration,
    takes: Duration,
    answer: impl Fn(&str, Duration) -> Answer + Send + Sync + 'static,
) -> (Leases<Scripted>, Arc<Scripted>) {
    let scripted = Arc::new(Scripted {
        begun: Instant::now(),
        takes,
        answer: Box::new(answer),
        calls: Mutex::default(),
    });
    let telemetry = ConsumerTelemetry::new("hooks");
    (
        Leases::new(Arc::clone(&scripted), visibility, telemetry),
        scripted,
    )
}

fn fine(_: &str, _: Duration) -> Answer {
    Ok(Receipt::new())
}

fn transient() -> Answer {
    Err(SinkError::transient(Outcome::Unknown, "Timeout", ""))
}

fn begin(leases: &Leases<Scripted>, handle: &str) -> Hold {
    leases.begin(handle.into(), Instant::now())
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_extended_at_half_of_the_time_left_as_long_as_it_is_held() {
    let (leases, calls) = leases(10 * SECOND, Duration::ZERO, fine);
    let hold = begin(&leases, "h");
    sleep(24 * SECOND).await;
    assert_eq!(calls.times(), [5_000, 10_000, 15_000, 20_000]);
    let asked = calls.calls.lock().unwrap()[0].1.clone();
    assert_eq!(asked, [("h".to_owned(), 10)]);
    assert!(!hold.lease.is_lost());
    assert_eq!(hold.lease.until(), Some(calls.begun + 30 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn the_shortest_hold_is_extended_before_it_ends() {
    let (leases, calls) = leases(SECOND, Duration::from_millis(100), fine);
    let hold = begin(&leases, "h");
    sleep(20 * SECOND).await;
    assert!(!hold.lease.is_lost());
    assert!(calls.times().len() <= 50, "{:?}", calls.times());
}

#[tokio::test(start_paused = true)]
async fn what_is_due_together_goes_in_calls_of_ten() {
    let (leases, calls) = leases(10 * SECOND, Duration::ZERO, fine);
    for number in 0..25 {
        begin(&leases, &number.to_string());
        // What came a little later is extended along.
        sleep(Duration::from_millis(10)).await;
    }
    sleep(9 * SECOND).await;
    let mut sizes: Vec<usize> = Vec::new();
    for (_, holds) in &*calls.calls.lock().unwrap() {
        sizes.push(holds.len());
    }
    assert_eq!(sizes, [10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_ended_or_forgotten_is_extended_no_more() {
    let (leases, calls) = leases(10 * SECOND, Duration::ZERO, fine);
    let (ended, forgotten) = (begin(&leases, "ended"), begin(&leases, "forgotten"));
    sleep(7 * SECOND).await;
    assert!(leases.end(ended.number).await);
    leases.forget(forgotten.number);
    assert_eq!(leases.count(), 0);
    sleep(1_000 * SECOND).await;
    assert_eq!(calls.times(), [5_000]);
    // A later hold is extended again.
    begin(&leases, "later");
    sleep(6 * SECOND).await;
    assert_eq!(calls.times().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_hold_waits_for_the_call_that_extends_it() {
    let (leases, _calls) = leases(10 * SECOND, 2 * SECOND, fine);
    let hold = begin(&leases, "h");
    sleep(6 * SECOND).await;
    let before = Instant::now();
    assert!(leases.end(hold.number).await);
    assert_eq!(
        before.elapsed(),
        SECOND,
        "the call began at 5 and takes 2 seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_that_finds_the_hold_lost_is_heard_by_who_settles() {
    let (leases, _calls) = leases(10 * SECOND, 2 * SECOND, |_, _| {
        Err(SinkError::permanent("ReceiptHandleIsInvalid", ""))
    });
    let hold = begin(&leases, "h");
    sleep(6 * SECOND).await;
    assert!(!leases.end(hold.number).await);
    assert!(hold.lease.is_lost());
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_fires_and_the_others_of_its_call_go_on() {
    let (leases, calls) = leases(10 * SECOND, Duration::ZERO, |handle, _| match handle {
        "b" => Err(SinkError::permanent(crate::calls::EXPIRED, "")),
        _ => Ok(Receipt::new()),
    });
    let holds = ["a", "b", "c"].map(|handle| begin(&leases, handle));
    timeout(6 * SECOND, holds[1].lease.lost()).await.unwrap();
    sleep(10 * SECOND).await;
    let lost = holds.each_ref().map(|hold| hold.lease.is_lost());
    assert_eq!(lost, [false, true, false]);
    assert!(!leases.end(holds[1].number).await);
    assert!(leases.end(holds[0].number).await);
    let calls = calls.calls.lock().unwrap();
    assert!(calls[1..].iter().all(|(_, holds)| holds.len() == 2));
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_fails_is_tried_again_while_the_hold_lasts() {
    let (leases, calls) = leases(16 * SECOND, Duration::ZERO, |_, at| {
        match at < 14 * SECOND {
            true => transient(),
            false => Ok(Receipt::new()),
        }
    });
    let hold = begin(&leases, "h");
    sleep(15 * SECOND).await;
    assert_eq!(calls.times(), [8_000, 12_000, 14_000]);
    assert!(!hold.lease.is_lost());
    assert_eq!(hold.lease.until(), Some(calls.begun + 30 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_nothing_extends_is_lost_when_its_time_is_over() {
    let (leases, calls) = leases(16 * SECOND, Duration::ZERO, |_, _| transient());
    let hold = begin(&leases, "h");
    timeout(100 * SECOND, hold.lease.lost()).await.unwrap();
    assert_eq!(calls.begun.elapsed(), 16 * SECOND);
    assert!(calls.times().len() < 20, "{:?}", calls.times());
    assert!(!leases.end(hold.number).await);
}

#[tokio::test(start_paused = true)]
async fn calls_without_an_answer_do_not_keep_a_hold() {
    let (leases, _calls) = leases(10 * SECOND, 3_600 * SECOND, fine);
    let hold = begin(&leases, "h");
    timeout(11 * SECOND, hold.lease.lost()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_extension_never_reaches_past_twelve_hours_and_then_the_hold_is_lost() {
    let (leases, calls) = leases(3_600 * SECOND, Duration::ZERO, fine);
    let asked = Instant::now();
    let hold = leases.begin("h".into(), asked);
    hold.lease.lost().await;
    let held = asked.elapsed();
    let limit = 12 * 3_600 * SECOND;
    assert!(held < limit && held > limit - 60 * SECOND, "{held:?}");
    for (at, holds) in &*calls.calls.lock().unwrap() {
        let ends = *at + Duration::from_secs(holds[0].1);
        assert!(ends < limit, "a call at {at:?} asks for {} s", holds[0].1);
    }
}

/// What is logged, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_all_extensions_is_one_warning_however_many_holds_it_ends_and_names_the_queue() {
    let log = Log::default();
    let written = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .with_writer(move || written.clone())
        .finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let shown = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let (leases, _calls) = leases(3_600 * SECOND, Duration::ZERO, fine);
    let holds = ["h", "i", "j"].map(|handle| begin(&leases, handle));
    sleep(11 * 3_600 * SECOND).await;
    assert_eq!(shown(), "");
    for hold in &holds {
        hold.lease.lost().await;
    }
    let shown = shown();
    assert_eq!(shown.matches("twelve hours").count(), 1, "{shown}");
    assert!(shown.contains("hooks"), "{shown}");
}

#[tokio::test(start_paused = true)]
async fn two_hundred_holds_of_two_seconds_stay_held() {
    let (leases, calls) = leases(2 * SECOND, Duration::from_millis(200), fine);
    let holds: Vec<Hold> = (0..200).map(|n| begin(&leases, &n.to_string())).collect();
    sleep(6 * SECOND).await;
    assert!(holds.iter().all(|hold| !hold.lease.is_lost()));
    assert_eq!(calls.times().len(), 5 * 20, "five rounds of twenty calls");
}

#[test]
fn a_hold_outlives_the_runtime_that_extended_it_and_another_goes_on() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let first = runtime();
    let (leases, _calls) = first.block_on(async { leases(SECOND, Duration::ZERO, fine) });
    first.block_on(async { begin(&leases, "first") });
    drop(first);
    let second = runtime();
    second.block_on(async {
        let hold = begin(&leases, "second");
        sleep(Duration::from_millis(1_500)).await;
        assert!(!hold.lease.is_lost());
        assert!(leases.end(hold.number).await);
    });
}
