//! Faults of single entries of a batch, played.

use serde_json::{Value, json};
use sink_testkit::sqs::{Damage, EntryFault, EntrySelector, Fault, Operation};

use crate::support::{standard, stored};

const MD5_OF_A: &str = "0cc175b9c0f1b6a831c399e269772661";
const WRONG: &str = "00000000000000000000000000000000";

/// A batch of the texts, with their places as ids.
fn batch(texts: &[&str]) -> Value {
    let entries: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| json!({ "Id": index.to_string(), "MessageBody": text }))
        .collect();
    json!({ "Entries": entries })
}

fn ids(answer: &Value, list: &str) -> Vec<String> {
    let entries = answer[list].as_array().cloned().unwrap_or_default();
    entries
        .iter()
        .map(|entry| entry["Id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn one_entry_fails_and_the_others_are_stored() {
    let (server, client) = standard().await;
    server.fault(
        Operation::SendMessageBatch,
        Fault::entry(
            EntrySelector::body(|body| body == "b"),
            EntryFault::failed("InternalError", false),
        ),
    );
    let answer = client
        .on("q", "SendMessageBatch", batch(&["a", "b", "c"]))
        .await
        .ok();
    assert_eq!(ids(&answer, "Successful"), ["0", "2"]);
    assert_eq!(ids(&answer, "Failed"), ["1"]);
    assert_eq!(answer["Failed"][0]["Code"], "InternalError");
    assert_eq!(answer["Failed"][0]["SenderFault"], false);
    assert_eq!(stored(&server, "q"), ["a", "c"]);
}

#[tokio::test]
async fn one_entry_is_missing_from_both_lists_stored_or_not() {
    let (server, client) = standard().await;
    for (fault, expected) in [
        (EntryFault::missing(), vec!["a"]),
        (EntryFault::missing_after_storing(), vec!["a", "a", "b"]),
    ] {
        server.fault(
            Operation::SendMessageBatch,
            Fault::entry(EntrySelector::index(1), fault),
        );
        let answer = client
            .on("q", "SendMessageBatch", batch(&["a", "b"]))
            .await
            .ok();
        assert_eq!(ids(&answer, "Successful"), ["0"]);
        assert_eq!(ids(&answer, "Failed"), [] as [&str; 0]);
        assert_eq!(stored(&server, "q"), expected);
    }
}

#[tokio::test]
async fn an_entry_is_repeated_or_in_both_lists_or_joined_by_a_foreign_one_or_out_of_order() {
    let (server, client) = standard().await;
    let play = async |fault: Fault| {
        server.fault(Operation::SendMessageBatch, fault);
        let answer = client
            .on("q", "SendMessageBatch", batch(&["a", "b"]))
            .await
            .ok();
        (ids(&answer, "Successful"), ids(&answer, "Failed"))
    };
    let list = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    let first = EntrySelector::index(0);
    assert_eq!(
        play(Fault::entry(first.clone(), EntryFault::repeated())).await,
        (list(&["0", "0", "1"]), list(&[]))
    );
    assert_eq!(
        play(Fault::entry(
            first,
            EntryFault::in_both_lists("InternalError", false)
        ))
        .await,
        (list(&["0", "1"]), list(&["0"]))
    );
    assert_eq!(
        play(Fault::foreign_entry("x")).await,
        (list(&["0", "1", "x"]), list(&[]))
    );
    assert_eq!(
        play(Fault::reversed()).await,
        (list(&["1", "0"]), list(&[]))
    );
    assert_eq!(stored(&server, "q").len(), 8);
}

#[tokio::test]
async fn entries_can_be_damaged_one_by_one() {
    let (server, client) = standard().await;
    let fault = Fault::entry(
        EntrySelector::index(0),
        EntryFault::damaged(Damage::BodyDigestWrong),
    )
    .and_entry(
        EntrySelector::index(1),
        EntryFault::damaged(Damage::MessageIdMissing),
    );
    server.fault(Operation::SendMessageBatch, fault);
    let answer = client
        .on("q", "SendMessageBatch", batch(&["a", "a", "a"]))
        .await
        .ok();
    let entries = answer["Successful"].as_array().unwrap();
    assert_eq!(entries[0]["MD5OfMessageBody"], WRONG);
    assert_eq!(entries[1]["MD5OfMessageBody"], MD5_OF_A);
    assert_eq!(entries[1]["MessageId"], Value::Null);
    assert!(entries[2]["MessageId"].is_string());
}

#[tokio::test]
async fn an_entry_of_a_delete_batch_fails_and_its_message_stays() {
    let (server, client) = standard().await;
    client.put("q", "a").await;
    let message = client.take("q").await.remove(0);
    server.fault(
        Operation::DeleteMessageBatch,
        Fault::entry(
            EntrySelector::all(),
            EntryFault::failed("InternalError", false),
        ),
    );
    let request = json!({ "Entries": [{ "Id": "x", "ReceiptHandle": message["ReceiptHandle"] }] });
    let answer = client.on("q", "DeleteMessageBatch", request).await.ok();
    assert_eq!(ids(&answer, "Failed"), ["x"]);
    assert_eq!(answer.get("Successful"), None);
    assert_eq!(stored(&server, "q"), ["a"]);
}

#[tokio::test]
async fn an_entry_of_a_receipt_handle_is_chosen_by_the_body_of_its_message() {
    let (server, client) = standard().await;
    for text in ["a", "b"] {
        client.put("q", text).await;
    }
    let taken = client
        .on("q", "ReceiveMessage", json!({ "MaxNumberOfMessages": 10 }))
        .await
        .ok();
    let taken = taken["Messages"].as_array().unwrap();
    let entries: Vec<Value> = taken
        .iter()
        .map(|message| json!({ "Id": message["Body"], "ReceiptHandle": message["ReceiptHandle"] }))
        .collect();
    server.fault(
        Operation::DeleteMessageBatch,
        Fault::entry(
            EntrySelector::message(|body| body == "b"),
            EntryFault::failed("InternalError", false),
        ),
    );
    // One without it passes.
    for (entries, failed) in [(&entries[..1], 0), (&entries[..], 1)] {
        let request = json!({ "Entries": entries });
        let answer = client.on("q", "DeleteMessageBatch", request).await.ok();
        assert_eq!(ids(&answer, "Failed").len(), failed);
    }
    assert_eq!(stored(&server, "q"), ["b"]);
}
