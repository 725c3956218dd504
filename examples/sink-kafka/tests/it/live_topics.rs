//! What the suite on real brokers leaves there. The mock cluster neither creates nor deletes a
//! topic when it is asked to, so that what it would be asked is looked at.

#[path = "../conformance/topics.rs"]
#[allow(dead_code, reason = "shared with the suites")]
mod topics;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::mocking::MockCluster;
use rdkafka::types::RDKafkaErrorCode;
use sink_testkit::conformance::FixtureError;

use self::topics::Topics;

/// Topics at no brokers.
fn topics() -> Arc<Topics> {
    Topics::at(String::new(), Duration::ZERO)
}

/// What the brokers would be asked to delete, request by request.
fn asked(topics: &Topics) -> Vec<Vec<String>> {
    let mut asked = Vec::new();
    let deleted = topics.delete_by(|names| {
        asked.push(names.iter().map(|name| (*name).to_owned()).collect());
        Ok(names.iter().map(|name| Ok((*name).to_owned())).collect())
    });
    deleted.unwrap();
    asked
}

#[test]
fn the_topics_that_a_run_made_are_deleted_once_and_no_others() {
    let topics = topics();
    for topic in ["run-a", "run-b"] {
        let created = topics.create_by(topic, || Ok(vec![Ok(topic.to_owned())]));
        created.unwrap();
    }
    let others = || {
        let exists = RDKafkaErrorCode::TopicAlreadyExists;
        Ok(vec![Err(("hooks".to_owned(), exists))])
    };
    let error = topics.create_by("hooks", others).unwrap_err();
    assert!(error.to_string().starts_with("create hooks: "), "{error}");
    assert_eq!(asked(&topics), [["run-a", "run-b"]]);
    assert!(asked(&topics).is_empty());
}

#[test]
fn a_topic_whose_creation_nobody_answered_is_deleted_too() {
    let topics = topics();
    let silent = || Err(FixtureError::new("no answer"));
    topics.create_by("run-a", silent).unwrap_err();
    assert_eq!(asked(&topics), [["run-a"]]);
}

#[test]
fn many_topics_are_deleted_by_the_hundred() {
    let topics = topics();
    for number in 0..250 {
        let name = format!("run-{number:03}");
        topics.create_by(&name, || Ok(Vec::new())).unwrap();
    }
    let requests: Vec<usize> = asked(&topics).iter().map(Vec::len).collect();
    assert_eq!(requests, [100, 100, 50]);
}

#[test]
fn what_is_left_is_named_and_what_was_never_there_is_not() {
    let topics = topics();
    for topic in ["run-a", "run-b", "run-c"] {
        topics.create_by(topic, || Ok(Vec::new())).unwrap();
    }
    let left = topics.delete_by(|_| {
        Ok(vec![
            Ok("run-a".to_owned()),
            Err((
                "run-b".to_owned(),
                RDKafkaErrorCode::TopicAuthorizationFailed,
            )),
            Err((
                "run-c".to_owned(),
                RDKafkaErrorCode::UnknownTopicOrPartition,
            )),
        ])
    });
    let text = left.unwrap_err().to_string();
    assert!(
        text.starts_with("run-b (") && !text.contains("run-c"),
        "{text}"
    );
}

#[test]
fn a_run_that_made_nothing_asks_nobody() {
    assert_eq!(topics().gone_after(ExitCode::SUCCESS), ExitCode::SUCCESS);
    assert_eq!(topics().gone_after(ExitCode::FAILURE), ExitCode::FAILURE);
}

#[test]
fn topics_that_cannot_be_deleted_fail_the_run() {
    let mock = MockCluster::new(1).unwrap();
    let topics = Topics::at(mock.bootstrap_servers(), Duration::from_secs(1));
    topics.create("run-a", 1).unwrap_err();
    assert_eq!(topics.gone_after(ExitCode::SUCCESS), ExitCode::FAILURE);
}
