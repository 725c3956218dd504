use super::*;
use dispatch_api::Clock;
use dispatch_api::Outcome;
use std::collections::VecDeque;
use std::time::UNIX_EPOCH;

/// A wall clock that runs with tokio's.
struct WallOfTokio(Instant);

impl Clock for WallOfTokio {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_796_040_000) + self.0.elapsed()
    }
}

/// What a source does at each request, the last again and again.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Hands out keys of this life.
    Keys(u64),
    /// Hands out keys that end at this second of the test.
    KeysUntil(u64),
    /// Hands out keys without an end.
    Endless,
    Fail,
    /// Takes this long, and fails.
    Hang(u64),
    Panic,
}

#[derive(Clone, Debug)]
struct Scripted {
    steps: Arc<Mutex<VecDeque<Step>>>,
    asked: Arc<Mutex<Vec<Duration>>>,
    start: Instant,
    services: HostServices,
}

#[async_trait]
impl Source for Scripted {
    async fn fetch(&self) -> Fetched {
        let n = {
            let mut asked = self.asked.lock().unwrap();
            asked.push(self.start.elapsed());
            asked.len()
        };
        let step = {
            let mut steps = self.steps.lock().unwrap();
            match steps.len() {
                1 => steps[0],
                _ => steps.pop_front().unwrap(),
            }
        };
        let now = self.services.now();
        let end = match step {
            Step::Keys(life) => Some(now + Duration::from_secs(life)),
            Step::KeysUntil(second) => {
                Some(now - self.start.elapsed() + Duration::from_secs(second))
            }
            Step::Endless => None,
            Step::Fail => return Err(unavailable("no")),
            Step::Hang(seconds) => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                return Err(unavailable("late"));
            }
            Step::Panic => panic!("a source that panics"),
        };
        Credentials::handed_out(&format!("ASIA{n}"), "secret", Some("token"), end, "test")
    }
}

fn refreshing(steps: impl IntoIterator<Item = Step>) -> (Arc<Refreshing>, Scripted) {
    let start = Instant::now();
    let services = HostServices::new().with_clock(Arc::new(WallOfTokio(start)));
    let source = Scripted {
        steps: Arc::new(Mutex::new(steps.into_iter().collect())),
        asked: Arc::default(),
        start,
        services: services.clone(),
    };
    (Arc::new(Refreshing::new(source.clone(), &services)), source)
}

async fn key(refreshing: &Arc<Refreshing>) -> String {
    let credentials = refreshing.provide().await.unwrap();
    credentials.for_signing().access_key_id().to_owned()
}

async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

impl Scripted {
    fn asked(&self) -> Vec<u64> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(Duration::as_secs).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn keys_of_an_hour_are_replaced_five_minutes_ahead() {
    let (refreshing, source) = refreshing([Step::Keys(3_600)]);
    assert_eq!(key(&refreshing).await, "ASIA1");
    pass(3_299).await;
    assert_eq!(key(&refreshing).await, "ASIA1");
    assert_eq!(source.asked(), [0]);
    pass(1).await;
    // The old ones serve while the refresh runs.
    assert_eq!(key(&refreshing).await, "ASIA1");
    pass(1).await;
    assert_eq!(key(&refreshing).await, "ASIA2");
    assert_eq!(source.asked(), [0, 3_300]);
}

#[tokio::test(start_paused = true)]
async fn keys_of_thirty_seconds_do_not_loop() {
    let (refreshing, source) = refreshing([Step::Keys(30)]);
    for _ in 0..3_000 {
        key(&refreshing).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = source.asked();
    assert!((13..=20).contains(&asked.len()), "{asked:?}");
    assert!(
        asked.windows(2).all(|two| two[1] - two[0] >= 15),
        "{asked:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_source_that_hands_out_the_same_end_again_is_not_pressed() {
    let (refreshing, source) = refreshing([Step::KeysUntil(120)]);
    for _ in 0..1_190 {
        key(&refreshing).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let asked = source.asked();
    assert!(asked.len() <= 4, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn valid_keys_outlive_a_source_that_fails_and_expired_ones_do_not() {
    let (refreshing, source) = refreshing([Step::Keys(3_600), Step::Fail]);
    key(&refreshing).await;
    pass(3_400).await;
    for _ in 0..199 {
        assert_eq!(key(&refreshing).await, "ASIA1");
        pass(1).await;
    }
    let asked = source.asked();
    assert!((12..=15).contains(&asked.len()), "{asked:?}");
    pass(1).await;
    let error = refreshing.provide().await.unwrap_err();
    assert_eq!(error.code(), "CredentialsUnavailable");
}

#[tokio::test(start_paused = true)]
async fn every_refresh_is_counted_with_what_came_of_it() {
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let (refreshing, _) = refreshing([Step::Fail, Step::Keys(3_600)]);
    refreshing.provide().await.unwrap_err();
    pass(1).await;
    key(&refreshing).await;
    let mut counted: Vec<String> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels: Vec<_> = key.key().labels().map(|label| label.value()).collect();
            format!("{} {labels:?} {value:?}", key.key().name())
        })
        .collect();
    counted.sort_unstable();
    assert_eq!(
        counted,
        [
            "ankusa_sqs_credential_refreshes_total [\"\"] Counter(1)",
            "ankusa_sqs_credential_refreshes_total [\"CredentialsUnavailable\"] Counter(1)",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failure_answers_those_who_come_at_once_and_nobody_later() {
    let (refreshing, source) = refreshing([Step::Fail, Step::Keys(3_600)]);
    for _ in 0..10 {
        refreshing.provide().await.unwrap_err();
    }
    assert_eq!(source.asked(), [0]);
    pass(1).await;
    assert_eq!(key(&refreshing).await, "ASIA2");
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_past_their_end_when_they_come_are_a_failure() {
    let (refreshing, _) = refreshing([Step::KeysUntil(0)]);
    let error = refreshing.provide().await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotStored);
    assert!(error.text().contains("clock"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn keys_without_an_end_are_looked_up_again_now_and_then() {
    let (refreshing, source) = refreshing([Step::Endless]);
    key(&refreshing).await;
    pass(899).await;
    key(&refreshing).await;
    pass(1).await;
    key(&refreshing).await;
    pass(1).await;
    assert_eq!(key(&refreshing).await, "ASIA2");
    assert_eq!(source.asked(), [0, 900]);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_does_not_end_the_refresh() {
    let (refreshing, source) = refreshing([Step::Hang(10), Step::Keys(60)]);
    let left = timeout(Duration::from_secs(1), refreshing.provide()).await;
    assert!(left.is_err());
    let error = refreshing.provide().await.unwrap_err();
    assert_eq!(error.text(), "late");
    assert_eq!(source.asked(), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_ends_though_its_source_does_not() {
    let (refreshing, source) = refreshing([Step::Hang(3_600), Step::Keys(60)]);
    let error = refreshing.provide().await.unwrap_err();
    assert_eq!(error.code(), "CredentialsUnavailable");
    assert_eq!(source.start.elapsed().as_secs(), 15);
    pass(1).await;
    key(&refreshing).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_panics_harms_one_refresh() {
    let (refreshing, _) = refreshing([Step::Panic, Step::Keys(60)]);
    let error = refreshing.provide().await.unwrap_err();
    assert_eq!(error.code(), "CredentialsUnavailable");
    assert_eq!(key(&refreshing).await, "ASIA2");
}

#[tokio::test(start_paused = true)]
async fn refused_keys_are_given_up_once_and_others_are_left_alone() {
    let (refreshing, source) = refreshing([Step::Keys(3_600)]);
    let first = refreshing.provide().await.unwrap();
    assert!(refreshing.give_up(&first));
    let second = refreshing.provide().await.unwrap();
    // A second caller who was refused with the first keys.
    assert!(refreshing.give_up(&first));
    assert_eq!(key(&refreshing).await, "ASIA2");
    assert!(!refreshing.give_up(&second), "too soon");
    assert_eq!(key(&refreshing).await, "ASIA2");
    pass(15).await;
    assert!(refreshing.give_up(&second));
    assert_eq!(key(&refreshing).await, "ASIA3");
    assert_eq!(source.asked(), [0, 0, 15]);
}
