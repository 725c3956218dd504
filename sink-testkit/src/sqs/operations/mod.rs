//! What each operation does.

mod batch;
mod delete;
mod queue_attributes;
mod queues;
mod receive;
mod send;
mod visibility;

use serde_json::{Map, Value};

use super::clock::Timestamp;
use super::entry_fault::EntryFaults;
use super::error::{ServiceError, queue_does_not_exist};
use super::operation::Operation;
use super::shared::Shared;
use super::state::State;

pub(crate) use queues::create_queue;

/// What is known of a call beside its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) now: Timestamp,
    /// The request's `Host`.
    pub(crate) host: Option<&'a str>,
    /// The queue that the request was posted to, when not to `/`.
    pub(crate) path_queue: Option<&'a str>,
    pub(crate) entry_faults: &'a EntryFaults,
}

/// What an operation answers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Output {
    Json(Value),
    /// 200 with no bytes at all.
    Void,
}

/// Carries an operation out.
pub(crate) async fn run(
    shared: &Shared,
    operation: Operation,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    if operation == Operation::ReceiveMessage {
        return receive::receive_message(shared, call, members).await;
    }
    let output = {
        let state = &mut *shared.state();
        match operation {
            Operation::ChangeMessageVisibility => {
                visibility::change_message_visibility(state, call, members)
            }
            Operation::ChangeMessageVisibilityBatch => {
                visibility::change_message_visibility_batch(state, call, members)
            }
            Operation::CreateQueue => queues::create(state, call, members),
            Operation::DeleteMessage => delete::delete_message(state, call, members),
            Operation::DeleteMessageBatch => delete::delete_message_batch(state, call, members),
            Operation::DeleteQueue => queues::delete(state, call, members),
            Operation::GetQueueAttributes => queue_attributes::get(state, call, members),
            Operation::GetQueueUrl => queues::get_url(state, members),
            Operation::ListQueues => queues::list(state, members),
            Operation::PurgeQueue => queues::purge(state, call, members),
            Operation::ReceiveMessage => Ok(Output::Void),
            Operation::SendMessage => send::send_message(state, call, members),
            Operation::SendMessageBatch => send::send_message_batch(state, call, members),
            Operation::SetQueueAttributes => queue_attributes::set(state, call, members),
        }
    };
    shared.announce();
    output
}

impl Call<'_> {
    /// The queue that a request is about. It exists.
    fn queue_name(self, state: &State, url: Option<&str>) -> Result<String, ServiceError> {
        let name = state.site.name_in_url(url, self.host)?;
        let posted_elsewhere = self.path_queue.is_some_and(|posted_to| posted_to != name);
        if posted_elsewhere || !state.queues.contains_key(name) {
            return Err(queue_does_not_exist());
        }
        Ok(name.to_owned())
    }
}
