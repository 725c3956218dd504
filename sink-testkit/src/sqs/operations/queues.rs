//! Operations on queues as a whole.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Call, Output};
use crate::sqs::clock::Timestamp;
use crate::sqs::error::{ErrorCode, ServiceError, invalid_parameter, queue_does_not_exist};
use crate::sqs::limits::{COOL_DOWN, FIFO_ENDING, is_queue_name};
use crate::sqs::queue_attributes::QueueAttributes;
use crate::sqs::state::State;
use crate::sqs::wire::parse_input;

/// Queues of one page of a list.
const PAGE: std::ops::RangeInclusive<i64> = 1..=1_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Create {
    queue_name: Option<String>,
    attributes: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GetUrl {
    queue_name: Option<String>,
    #[serde(rename = "QueueOwnerAWSAccountId")]
    owner: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct List {
    queue_name_prefix: Option<String>,
    max_results: Option<i64>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Named {
    queue_url: Option<String>,
}

pub(super) fn create(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Create = parse_input(members)?;
    let name = input.queue_name.unwrap_or_default();
    let attributes = input.attributes.unwrap_or_default();
    let url = create_queue(state, &name, &attributes, call.now)?;
    Ok(Output::Json(json!({ "QueueUrl": url })))
}

/// Makes a queue, or finds the one that is there already with these attributes.
pub(crate) fn create_queue(
    state: &mut State,
    name: &str,
    attributes: &BTreeMap<String, String>,
    now: Timestamp,
) -> Result<String, ServiceError> {
    if !is_queue_name(name) {
        return Err(invalid_parameter(
            "a queue's name is 1 to 80 letters, digits, hyphens and underscores, with .fifo behind \
             them for a FIFO queue",
        ));
    }
    let is_fifo = attributes.contains_key("FifoQueue");
    if is_fifo != name.ends_with(FIFO_ENDING) {
        return Err(invalid_parameter(
            "a FIFO queue has a name that ends in .fifo and the attribute FifoQueue, other queues have neither",
        ));
    }
    let wanted = QueueAttributes::new(is_fifo).with(attributes)?;
    if let Some(queue) = state.queues.get(name) {
        let same = queue.attributes.with(attributes)? == queue.attributes;
        return if same {
            Ok(state.site.queue_url(name))
        } else {
            Err(ServiceError::new(
                ErrorCode::QueueNameExists,
                format!("a queue named {name} exists with other attributes"),
            ))
        };
    }
    if state.was_deleted_recently(name, now) {
        return Err(ServiceError::new(
            ErrorCode::QueueDeletedRecently,
            "a queue of this name was deleted less than 60 seconds ago",
        ));
    }
    state.check_redrive(name, &wanted)?;
    state.insert_queue(name, wanted, now);
    Ok(state.site.queue_url(name))
}

pub(super) fn get_url(
    state: &mut State,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: GetUrl = parse_input(members)?;
    let name = input
        .queue_name
        .filter(|name| !name.is_empty())
        .ok_or_else(|| invalid_parameter("QueueName must be given"))?;
    let is_ours = input.owner.is_none_or(|owner| owner == state.site.account);
    if !is_ours || !state.queues.contains_key(&name) {
        return Err(queue_does_not_exist());
    }
    Ok(Output::Json(
        json!({ "QueueUrl": state.site.queue_url(&name) }),
    ))
}

pub(super) fn list(state: &mut State, members: Map<String, Value>) -> Result<Output, ServiceError> {
    let input: List = parse_input(members)?;
    let page = input.max_results.unwrap_or(*PAGE.end());
    if !PAGE.contains(&page) {
        return Err(invalid_parameter("MaxResults must be between 1 and 1000"));
    }
    if input.next_token.is_some() && input.max_results.is_none() {
        return Err(invalid_parameter("NextToken goes with MaxResults"));
    }
    let last = input.next_token.as_deref().map(read_token).transpose()?;
    let prefix = input.queue_name_prefix.unwrap_or_default();
    let from = last.as_ref().map_or(Unbounded, Excluded);
    let mut names = state
        .queues
        .range::<String, _>((from, Unbounded))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(&prefix));
    let page = usize::try_from(page).unwrap_or_default();
    let shown: Vec<&String> = names.by_ref().take(page).collect();
    let mut answer = Map::new();
    // Without MaxResults there is no second page to ask for.
    if input.max_results.is_some()
        && names.next().is_some()
        && let Some(last) = shown.last()
    {
        answer.insert("NextToken".into(), STANDARD.encode(last).into());
    }
    if !shown.is_empty() {
        let urls: Vec<String> = shown
            .into_iter()
            .map(|name| state.site.queue_url(name))
            .collect();
        answer.insert("QueueUrls".into(), urls.into());
    }
    Ok(Output::Json(answer.into()))
}

pub(super) fn purge(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Named = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    let queue = state.queue(&name, call.now)?;
    let too_soon = queue
        .purged_at
        .is_some_and(|at| call.now.since(at) < COOL_DOWN);
    if too_soon {
        return Err(ServiceError::new(
            ErrorCode::PurgeQueueInProgress,
            "the queue was purged less than 60 seconds ago",
        ));
    }
    queue.purge(call.now);
    Ok(Output::Void)
}

pub(super) fn delete(
    state: &mut State,
    call: Call<'_>,
    members: Map<String, Value>,
) -> Result<Output, ServiceError> {
    let input: Named = parse_input(members)?;
    let name = call.queue_name(state, input.queue_url.as_deref())?;
    state.remove_queue(&name, call.now);
    Ok(Output::Void)
}

fn read_token(token: &str) -> Result<String, ServiceError> {
    STANDARD
        .decode(token)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or_else(|| invalid_parameter("NextToken is not one that a list gave"))
}
