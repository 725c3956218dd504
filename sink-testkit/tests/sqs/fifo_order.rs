//! FIFO queues: order under everything at once.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use sink_testkit::sqs::Operation;

use crate::support::fifo;

#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Receive(usize),
    Delete(usize),
    Hide(usize, u32),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize).prop_map(Step::Send),
        3 => (1..4usize).prop_map(Step::Receive),
        3 => (0..8usize).prop_map(Step::Delete),
        1 => (0..8usize, 0..60u32).prop_map(|(which, seconds)| Step::Hide(which, seconds)),
        1 => (1..40u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A message is never delivered while one before it in its group is stored and was not delivered in the
    /// same answer before it.
    #[test]
    fn no_message_overtakes_another_of_its_group(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let outcome: Result<(), TestCaseError> = runtime.block_on(async {
            let (server, _) = fifo().await;
            let call = async |operation: Operation, mut request: Value| {
                request["QueueUrl"] = "q.fifo".into();
                server.call(operation, request).await
            };
            let mut count = 0;
            let mut handles: Vec<Value> = Vec::new();
            for step in steps {
                match step {
                    Step::Send(group) => {
                        count += 1;
                        let request = json!({
                            "MessageBody": format!("{count:04}"),
                            "MessageGroupId": format!("g{group}"),
                            "MessageDeduplicationId": count.to_string(),
                        });
                        call(Operation::SendMessage, request).await.unwrap();
                    }
                    Step::Receive(maximum) => {
                        let before = server.messages("q.fifo").unwrap();
                        let request = json!({ "MaxNumberOfMessages": maximum });
                        let answer = call(Operation::ReceiveMessage, request).await.unwrap();
                        let mut by_group: BTreeMap<String, Vec<String>> = BTreeMap::new();
                        for message in answer["Messages"].as_array().into_iter().flatten() {
                            let body = message["Body"].as_str().unwrap();
                            let stored = before.iter().find(|stored| stored.body == body).unwrap();
                            by_group
                                .entry(stored.group_id.clone().unwrap())
                                .or_default()
                                .push(body.to_owned());
                            handles.push(message["ReceiptHandle"].clone());
                        }
                        for (group, delivered) in by_group {
                            let in_order: Vec<String> = before
                                .iter()
                                .filter(|stored| stored.group_id.as_ref() == Some(&group))
                                .map(|stored| stored.body.clone())
                                .take(delivered.len())
                                .collect();
                            prop_assert_eq!(delivered, in_order);
                        }
                    }
                    Step::Delete(which) => {
                        if let Some(handle) = handles.get(which) {
                            let _ = call(Operation::DeleteMessage, json!({ "ReceiptHandle": handle })).await;
                        }
                    }
                    Step::Hide(which, seconds) => {
                        if let Some(handle) = handles.get(which) {
                            let request = json!({ "ReceiptHandle": handle, "VisibilityTimeout": seconds });
                            let _ = call(Operation::ChangeMessageVisibility, request).await;
                        }
                    }
                    Step::Wait(seconds) => server.clock().advance(Duration::from_secs(seconds)),
                }
                let now = handles.len();
                if now > 8 {
                    handles.drain(..now - 8);
                }
            }
            Ok(())
        });
        outcome?;
    }
}
