//! What the broker promises, asked over its wire.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use super::*;
use crate::reference::source::{EntryAnswer, HoldChange};

const PLACE: &str = "work";
const HOLD: Duration = Duration::from_secs(30);

fn broker(kind: PlaceKind) -> Arc<QueueBroker> {
    let broker = Arc::new(QueueBroker::new());
    broker.create(PLACE, kind);
    broker.create("dead", kind);
    broker
}

fn put(broker: &QueueBroker, bodies: &[(&str, Option<&str>)]) {
    let messages: Vec<RawMessage> = bodies
        .iter()
        .map(|(body, key)| {
            let message = RawMessage::new((*body).to_owned());
            match key {
                Some(key) => message.with_key(key),
                None => message,
            }
        })
        .collect();
    assert!(broker.put(PLACE, &messages));
}

async fn call(wire: &Arc<dyn QueueWire>, call: QueueCall) -> Result<QueueReply, WireError> {
    let (key_id, secret) = KEYS[0];
    wire.call(QueueRequest {
        place: PLACE.to_owned(),
        group: "workers".to_owned(),
        key_id: key_id.to_owned(),
        proof: proof(key_id, secret),
        call,
    })
    .await
}

async fn receive(wire: &Arc<dyn QueueWire>, max: usize) -> Vec<QueueMessage> {
    let receive = ReceiveCall {
        max,
        wait: Duration::from_secs(1),
        hold: HOLD,
        number: 0,
        unanswered: Vec::new(),
    };
    match call(wire, QueueCall::Receive(receive)).await.unwrap() {
        QueueReply::Messages { messages, .. } => messages,
        other => unreachable!("a receive is answered with messages, not {other:?}"),
    }
}

async fn answer(wire: &Arc<dyn QueueWire>, one: QueueCall) -> EntryAnswer {
    match call(wire, one).await.unwrap() {
        QueueReply::Answers(mut answers) => answers.remove(0),
        other => unreachable!("a settlement is answered by entry, not {other:?}"),
    }
}

async fn ack(wire: &Arc<dyn QueueWire>, message: &QueueMessage) -> EntryAnswer {
    answer(wire, QueueCall::Ack(vec![message.handle.clone()])).await
}

fn changes(message: &QueueMessage, seconds: u64) -> Vec<HoldChange> {
    vec![HoldChange {
        handle: message.handle.clone(),
        time: Duration::from_secs(seconds),
    }]
}

async fn give_back(wire: &Arc<dyn QueueWire>, message: &QueueMessage, after: u64) -> EntryAnswer {
    answer(wire, QueueCall::Return(changes(message, after))).await
}

fn bodies(messages: &[QueueMessage]) -> Vec<String> {
    let bodies = messages.iter();
    bodies
        .map(|message| String::from_utf8_lossy(&message.body).into_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_handle_is_good_until_the_message_is_handed_out_again() {
    let broker = broker(PlaceKind::Plain);
    let wire = broker.connect();
    put(&broker, &[("a", None)]);
    let first = receive(&wire, 1).await.remove(0);
    assert_eq!(first.receives, 1);
    tokio::time::sleep(HOLD).await;
    let second = receive(&wire, 1).await.remove(0);
    assert_eq!((&second.id, second.receives), (&first.id, 2));
    assert_eq!(ack(&wire, &first).await, EntryAnswer::Gone);
    assert_eq!(give_back(&wire, &first, 0).await, EntryAnswer::Gone);
    assert_eq!(ack(&wire, &second).await, EntryAnswer::Done);
    assert_eq!(ack(&wire, &second).await, EntryAnswer::Gone);
    assert_eq!(broker.unsettled(PLACE, "workers"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_hold_ends_twelve_hours_after_the_receive_at_the_latest() {
    let broker = broker(PlaceKind::Plain);
    let wire = broker.connect();
    put(&broker, &[("a", None)]);
    let held = receive(&wire, 1).await.remove(0);
    let longest = 12 * 3_600;
    let extend = |seconds| QueueCall::Extend(changes(&held, seconds));
    let too_long = EntryAnswer::Failed("HoldTooLong".to_owned());
    assert_eq!(answer(&wire, extend(longest + 1)).await, too_long);
    assert_eq!(answer(&wire, extend(longest)).await, EntryAnswer::Done);
    assert_eq!(broker.in_hand(PLACE, "workers"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_waits_while_one_of_it_is_held_or_delayed_and_comes_back_in_order() {
    let broker = broker(PlaceKind::Ordered);
    let wire = broker.connect();
    put(
        &broker,
        &[("a1", Some("a")), ("a2", Some("a")), ("b1", Some("b"))],
    );
    let first = receive(&wire, 1).await;
    assert_eq!(bodies(&first), ["a1"]);
    assert_eq!(bodies(&receive(&wire, 10).await), ["b1"]);
    assert_eq!(give_back(&wire, &first[0], 5).await, EntryAnswer::Done);
    assert!(receive(&wire, 10).await.is_empty());
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(bodies(&receive(&wire, 10).await), ["a1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_reached_the_cap_goes_to_the_dead_letter_place_once_it_is_back() {
    let broker = broker(PlaceKind::Plain);
    let wire = broker.connect();
    let policy = RedrivePolicy {
        max_attempts: 2,
        dead_letter: "dead".to_owned(),
    };
    let set = call(&wire, QueueCall::SetRedrive(policy)).await;
    assert_eq!(set, Ok(QueueReply::Done));
    put(&broker, &[("a", None)]);
    for _ in 0..2 {
        let held = receive(&wire, 1).await.remove(0);
        assert!(broker.stored("dead").is_empty());
        assert_eq!(give_back(&wire, &held, 0).await, EntryAnswer::Done);
    }
    let dead = broker.stored("dead");
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].body, "a");
    assert_eq!(broker.unsettled(PLACE, "workers"), 0);
    assert!(receive(&wire, 1).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_receive_that_waits_is_woken_by_a_message_and_ends_when_its_wait_is_over() {
    let broker = broker(PlaceKind::Plain);
    let wire = broker.connect();
    let begun = Instant::now();
    assert!(receive(&wire, 1).await.is_empty());
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    let waiting = tokio::spawn({
        let wire = Arc::clone(&wire);
        async move { receive(&wire, 1).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let put_at = Instant::now();
    put(&broker, &[("a", None)]);
    assert_eq!(bodies(&waiting.await.unwrap()), ["a"]);
    assert_eq!(put_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn every_group_has_the_backlog_and_what_comes_later() {
    let broker = broker(PlaceKind::Plain);
    put(&broker, &[("a", None)]);
    let wire = broker.connect();
    let held = receive(&wire, 10).await.remove(0);
    assert_eq!(ack(&wire, &held).await, EntryAnswer::Done);
    put(&broker, &[("b", None)]);
    assert_eq!(broker.unsettled(PLACE, "workers"), 1);
    assert_eq!(broker.unsettled(PLACE, "others"), 2);
    assert_eq!(broker.stored(PLACE).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_log_commits_what_has_nothing_open_before_it_and_goes_back_there_when_opened() {
    let broker = broker(PlaceKind::Log);
    let wire = broker.connect();
    put(&broker, &[("1", None), ("2", None), ("3", None)]);
    let held = receive(&wire, 10).await;
    assert_eq!(ack(&wire, &held[0]).await, EntryAnswer::Done);
    assert_eq!(ack(&wire, &held[2]).await, EntryAnswer::Done);
    assert_eq!(broker.unsettled(PLACE, "workers"), 2);
    tokio::time::sleep(Duration::from_secs(24 * 3_600)).await;
    assert!(receive(&wire, 10).await.is_empty());
    let reopened = broker.connect();
    let opened = call(&reopened, QueueCall::Open).await;
    assert_eq!(opened, Ok(QueueReply::Done));
    assert_eq!(bodies(&receive(&reopened, 10).await), ["2", "3"]);
    assert_eq!(ack(&wire, &held[1]).await, EntryAnswer::Gone);
}

#[tokio::test(start_paused = true)]
async fn an_expired_hold_gives_the_message_to_the_next_who_asks() {
    let broker = broker(PlaceKind::Plain);
    let wire = broker.connect();
    put(&broker, &[("a", None)]);
    let first = receive(&wire, 1).await.remove(0);
    assert_eq!(broker.in_hand(PLACE, "workers"), 1);
    broker.expire(PLACE);
    assert_eq!(broker.in_hand(PLACE, "workers"), 0);
    let extend = QueueCall::Extend(changes(&first, 30));
    assert_eq!(answer(&wire, extend).await, EntryAnswer::Gone);
    let second = receive(&wire, 1).await.remove(0);
    assert_eq!(ack(&wire, &first).await, EntryAnswer::Gone);
    assert_eq!(ack(&wire, &second).await, EntryAnswer::Done);
}

#[tokio::test(start_paused = true)]
async fn a_restart_breaks_every_connection_once_and_keeps_what_is_stored() {
    let broker = broker(PlaceKind::Plain);
    let wire = broker.connect();
    put(&broker, &[("a", None)]);
    broker.restart();
    assert_eq!(call(&wire, QueueCall::Open).await, Err(WireError::Lost));
    assert_eq!(bodies(&receive(&wire, 1).await), ["a"]);
}
