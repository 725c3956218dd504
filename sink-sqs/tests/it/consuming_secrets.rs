//! Nothing that consumes shows a credential or a payload.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use dispatch_api::{ErrorChain, HostServices, Settlement, Subscription, SubscriptionPlan};
use http::StatusCode;
use serde_json::json;
use sink_sqs::SqsQueue;
use sink_testkit::conformance::Observer;
use sink_testkit::sqs::{Answer, Credentials, Damage, ErrorCode, Fault, Operation, SqsServer};

use crate::consuming::{SECOND, open};

const SECRET: &str = "canarySecretKey";
const TOKEN: &str = "canarySessionToken";
const PAYLOAD: &str = "canaryPayload";

fn assert_clean(shown: &str) {
    for forbidden in [SECRET, TOKEN, PAYLOAD] {
        let found = shown.lines().find(|line| line.contains(forbidden));
        assert_eq!(found, None, "{forbidden}");
    }
}

fn echo() -> Fault {
    let text = format!("{SECRET} and {TOKEN} and {PAYLOAD}");
    let body = json!({"__type": "com.amazonaws.sqs#AccessDenied", "message": text});
    Fault::answer(Answer::json(StatusCode::FORBIDDEN, &body))
}

/// Receives with this fault, and says what failed.
async fn failed_receive(subscription: &Arc<dyn Subscription>) -> String {
    match subscription.receive(NonZeroUsize::MIN).await {
        Ok(deliveries) => format!("{deliveries:?}"),
        Err(error) => format!("{} {error:?}", ErrorChain(&error)),
    }
}

#[tokio::test]
async fn nothing_that_is_told_while_consuming_shows_a_credential_or_a_payload() {
    let observer = Observer::new().without_wire_logs(&["hyper", "h2", "reqwest", "rustls"]);
    let _recording = metrics::set_default_local_recorder(observer.metrics());
    let _listening = observer.listen();
    let server = SqsServer::builder()
        .credentials([Credentials::new("AKID", SECRET).with_session_token(TOKEN)])
        .start()
        .await
        .unwrap();
    let url = server.create_queue("hooks", []).await.unwrap();
    for _ in 0..6 {
        let message = json!({"QueueUrl": url, "MessageBody": PAYLOAD});
        server.call(Operation::SendMessage, message).await.unwrap();
    }
    let builder = SqsQueue::builder(&url, "us-east-1")
        .credentials("AKID", SECRET)
        .session_token(TOKEN)
        .timeout_ms(300)
        .wait(Duration::ZERO)
        .visibility(SECOND);
    let mut shown = format!("{builder:?}");
    let queue = builder.clone().build(&HostServices::new()).unwrap();
    shown.push_str(&format!("{queue:?} {queue:#?}"));
    let subscription = open(builder, &SubscriptionPlan::new()).await.unwrap();
    shown.push_str(&format!("{subscription:?}"));

    for fault in [
        Fault::reset(),
        Fault::truncated(),
        Fault::damaged(Damage::BodyDigestWrong),
        Fault::answer(Answer::html(StatusCode::BAD_GATEWAY)),
        Fault::answer(Answer::error(ErrorCode::InvalidSignature)),
        echo(),
    ] {
        server.fault(Operation::ReceiveMessage, fault);
        shown.push_str(&failed_receive(&subscription).await);
    }
    for (settlement, operation) in [
        (Settlement::Ack, Operation::DeleteMessage),
        (Settlement::Retry, Operation::ChangeMessageVisibility),
        (
            Settlement::RetryAfter(SECOND),
            Operation::ChangeMessageVisibility,
        ),
        (Settlement::Drop, Operation::DeleteMessage),
    ] {
        let delivery = crate::consuming::receive_one(&subscription).await;
        shown.push_str(&format!("{delivery:?} {:?}", delivery.received()));
        server.fault(operation, echo());
        let error = delivery.settle(settlement).await.unwrap_err();
        shown.push_str(&format!("{} {error:?}", ErrorChain(&error)));
    }
    subscription.close().await;

    assert!(shown.contains("AccessDenied"), "the faults were played");
    assert!(observer.text().contains("hooks"), "something was told");
    assert_clean(&shown);
    assert_clean(&observer.everything());
}
