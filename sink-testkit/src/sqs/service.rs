//! One request, from its headers to its answer.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, DATE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use serde_json::Value;

use super::answer::{Answer, REQUEST_ID};
use super::departure::Departure;
use super::entry_fault::EntryFaults;
use super::error::{ErrorCode, ServiceError};
use super::fault::{Delivery, Fault};
use super::limits::MAX_REQUEST_BYTES;
use super::operation::Operation;
use super::operations::{self, Call, Output};
use super::record::RecordedRequest;
use super::server::stopped;
use super::shared::{self, Shared};
use super::signature::SignedRequest;
use super::wire;

/// Answers a request, or says how its connection ends instead.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Departure> {
    let (head, body) = request.into_parts();
    let body = read(body).await?;
    let exchange = Exchange::new(Arc::clone(shared), connection, head, body);
    let delivered = if exchange.operation() == Some(Operation::ReceiveMessage) {
        // A receive whose client is gone must not take what another could have.
        exchange.run().await
    } else {
        // What has reached the service is done, whether its client waits for the answer or not.
        let mut stop = shared.stop().subscribe();
        let task = tokio::spawn(async move {
            tokio::select! {
                delivered = exchange.run() => delivered,
                () = stopped(&mut stop) => Err(Departure::Reset),
            }
        });
        task.await.unwrap_or(Err(Departure::Reset))
    };
    match delivered {
        // Not even the connection ends.
        Err(Departure::Silence) => std::future::pending().await,
        delivered => delivered,
    }
}

/// A request that has come in whole, with the fault to play at it.
struct Exchange {
    shared: Arc<Shared>,
    connection: u64,
    head: Parts,
    body: Result<Bytes, ServiceError>,
    target: Target,
    fault: Option<Fault>,
    /// Its number in the record.
    number: u64,
}

impl Exchange {
    fn new(
        shared: Arc<Shared>,
        connection: u64,
        head: Parts,
        body: Result<Bytes, ServiceError>,
    ) -> Self {
        let target = Target::read(&shared, &head);
        let bytes = body.clone().unwrap_or_default();
        let fault = target.operation().and_then(|operation| {
            let message_of = |queue: &str, handle: &str| shared.state().message_of(queue, handle);
            shared.faults().next(operation, &bytes, &message_of)
        });
        let number = shared.records().push(RecordedRequest {
            operation: target.operation(),
            line: format!("{} {}", head.method, head.uri),
            headers: head.headers.clone(),
            body: bytes,
            status: None,
            carried_out: false,
            faulted: fault.is_some(),
            connection,
            at: shared.clock.now(),
        });
        Self {
            shared,
            connection,
            head,
            body,
            target,
            fault,
            number,
        }
    }

    fn operation(&self) -> Option<Operation> {
        self.target.operation()
    }

    async fn run(self) -> Result<Response<Full<Bytes>>, Departure> {
        let shared = &self.shared;
        let faulted = self.fault.is_some();
        let fault = self.fault.clone().unwrap_or_else(Fault::normal);
        for pause in &fault.before {
            pause.pass().await;
        }
        let (answer, carried_out) = if fault.stores {
            self.carry_out(&fault).await
        } else {
            // Never shown: such a fault puts something else in its place.
            (Answer::not_found(), false)
        };
        shared
            .records()
            .update(self.number, |request| request.carried_out = carried_out);
        for pause in &fault.after {
            pause.pass().await;
        }
        let delivered = deliver(shared, fault.delivery, answer);
        let status = match &delivered {
            Ok(response) => Some(response.status().as_u16()),
            Err(departure) => departure.status(),
        };
        shared
            .records()
            .update(self.number, |request| request.status = status);
        shared::log(self.operation(), status, self.connection, faulted);
        delivered
    }

    /// Carries the operation out, and says whether that went well.
    async fn carry_out(&self, fault: &Fault) -> (Answer, bool) {
        let body = match &self.body {
            Ok(body) => body,
            Err(error) => return (Answer::from_error(error), false),
        };
        let result = match &self.target {
            Target::NotFound => return (Answer::not_found(), false),
            Target::Unknown => Err(ServiceError::new(
                ErrorCode::UnknownOperation,
                "the request names no operation of this protocol",
            )),
            Target::Operation {
                operation,
                path_queue,
            } => {
                let path_queue = path_queue.as_deref();
                self.call(*operation, path_queue, body, &fault.entries)
                    .await
            }
        };
        match result {
            Ok(mut output) => {
                if let Output::Json(Value::Object(answer)) = &mut output {
                    for change in &fault.changes {
                        change.apply(answer);
                    }
                }
                (Answer::from_output(&output), true)
            }
            Err(error) => (Answer::from_error(&error), false),
        }
    }

    async fn call(
        &self,
        operation: Operation,
        path_queue: Option<&str>,
        body: &Bytes,
        entry_faults: &EntryFaults,
    ) -> Result<Output, ServiceError> {
        self.shared.authenticate(SignedRequest {
            method: self.head.method.as_str(),
            path: self.head.uri.path(),
            headers: &self.head.headers,
            body,
        })?;
        let members = wire::parse_body(body)?;
        let call = Call {
            now: self.shared.now(),
            host: text(&self.head.headers, HOST.as_str()),
            path_queue,
            entry_faults,
        };
        operations::run(&self.shared, operation, call, members).await
    }
}

/// Reads a body whole. What is too much is read too, within reason, so that the client gets to see the answer.
async fn read(mut body: Incoming) -> Result<Result<Bytes, ServiceError>, Departure> {
    let mut bytes = BytesMut::new();
    let mut too_much = 0;
    while let Some(frame) = body.frame().await {
        // The client went away in the middle of its request.
        let frame = frame.map_err(|_| Departure::Reset)?;
        let data = frame.into_data().unwrap_or_default();
        if bytes.len() + data.len() <= MAX_REQUEST_BYTES {
            bytes.extend_from_slice(&data);
        } else {
            too_much += data.len();
        }
        if too_much > MAX_REQUEST_BYTES {
            break;
        }
    }
    if too_much == 0 {
        Ok(Ok(bytes.freeze()))
    } else {
        Ok(Err(ServiceError::new(
            ErrorCode::RequestEntityTooLarge,
            format!("a request body is at most {MAX_REQUEST_BYTES} bytes long"),
        )))
    }
}

/// What a request is for.
enum Target {
    NotFound,
    Operation {
        operation: Operation,
        /// The queue it was posted to, when not to `/`.
        path_queue: Option<String>,
    },
    Unknown,
}

impl Target {
    const fn operation(&self) -> Option<Operation> {
        match self {
            Self::Operation { operation, .. } => Some(*operation),
            Self::NotFound | Self::Unknown => None,
        }
    }

    fn read(shared: &Shared, head: &Parts) -> Self {
        let path_queue = match shared.site.name_in_path(head.uri.path()) {
            Some(path_queue) if head.method == Method::POST && head.uri.query().is_none() => {
                path_queue.map(str::to_owned)
            }
            _ => return Self::NotFound,
        };
        let exists = path_queue
            .as_ref()
            .is_none_or(|name| shared.state().queues.contains_key(name));
        if !exists {
            return Self::NotFound;
        }
        let operation = text(&head.headers, "x-amz-target").and_then(Operation::from_target);
        match operation.filter(|_| is_json_protocol(&head.headers)) {
            Some(operation) => Self::Operation {
                operation,
                path_queue,
            },
            None => Self::Unknown,
        }
    }
}

/// Other content types belong to other protocols of the service.
fn is_json_protocol(headers: &HeaderMap) -> bool {
    let media_type = text(headers, CONTENT_TYPE.as_str())
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    media_type
        .trim()
        .eq_ignore_ascii_case("application/x-amz-json-1.0")
}

fn deliver(
    shared: &Shared,
    delivery: Delivery,
    answer: Answer,
) -> Result<Response<Full<Bytes>>, Departure> {
    let answer = complete(shared, answer);
    match delivery {
        Delivery::Reset => Err(Departure::Reset),
        Delivery::Silence => Err(Departure::Silence),
        Delivery::Cut => Err(Departure::cut(&answer)),
        Delivery::CutChunks => Err(Departure::cut_chunks(&answer)),
        Delivery::CloseAfter => Err(Departure::whole(&answer)),
        Delivery::Normal => Ok(response(answer)),
        Delivery::Replaced(replacement) => Ok(response(complete(shared, replacement))),
    }
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

/// Adds the headers that every answer has, where a test did not set its own.
fn complete(shared: &Shared, mut answer: Answer) -> Answer {
    let headers = &mut answer.headers;
    if let Some(date) = shared.date()
        && let Ok(date) = HeaderValue::from_str(&date)
    {
        headers.entry(DATE).or_insert(date);
    }
    if answer.has_request_id
        && let Ok(id) = HeaderValue::from_str(&shared.request_id())
    {
        headers.entry(REQUEST_ID).or_insert(id);
    }
    answer
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
