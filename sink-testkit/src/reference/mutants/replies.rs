//! Mutants of replies.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dispatch_api::{ErrorClass, RETRY_AFTER_CEILING, Receipt, SinkError};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::tools::{answering, as_stored, calling, delivering, remade, replying};
use super::{Mutant, Seam};
use crate::reference::broker::error_reply;
use crate::reference::reply::Results;
use crate::reference::{ReferenceSink, Reply, WireError};

type Answered = Result<Reply, WireError>;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant::new(
        "ThrottleIsTransient",
        "does not pause for a throttle",
        "throttle_maps_to_retry_after",
        "expected retry_after; observed transient",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.class() {
                    ErrorClass::RetryAfter(_) => {
                        remade(&error, ErrorClass::Transient, error.outcome())
                    }
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "HintDropped",
        "pauses for its own time whatever the destination asks for",
        "retry_after_hint_parsed_in_all_forms",
        "the hint `7`: expected a pause of 7s",
        Seam::Wire(|inner, _| {
            replying(inner, |_, reply| {
                reply.map(|reply| Reply {
                    retry_after: None,
                    ..reply
                })
            })
        }),
    ),
    Mutant::new(
        "SecondsOnly",
        "reads a hint of seconds and no date",
        "retry_after_hint_parsed_in_all_forms",
        "GMT`: expected a pause of 60s to 90s",
        Seam::Wire(|inner, _| {
            replying(inner, |_, reply| {
                reply.map(|reply| Reply {
                    retry_after: reply.retry_after.filter(|hint| !hint.contains(':')),
                    ..reply
                })
            })
        }),
    ),
    Mutant::new(
        "SleepsForYears",
        "takes a hint as it is, however long",
        "retry_after_hint_hostile_values_clamped",
        "the hint `1e30`: expected a pause of at most a day",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| {
                answer.map_err(|error| match error.class() {
                    ErrorClass::RetryAfter(pause) if pause >= RETRY_AFTER_CEILING => {
                        let pause = ErrorClass::RetryAfter(Duration::MAX);
                        remade(&error, pause, error.outcome())
                    }
                    _ => error,
                })
            })
        }),
    ),
    Mutant::new(
        "NoDeadline",
        "does not look at the host's deadline",
        "deadline_bounds_deliver",
        "the deadline: expected an end within",
        Seam::Sink(|inner, _| {
            delivering(inner, |inner, envelope, ctx| {
                Box::pin(async move {
                    let late = Instant::now() + Duration::from_secs(3_600);
                    inner.deliver(&envelope, &ctx.with_deadline(late)).await
                })
            })
        }),
    ),
    Mutant::new(
        "TimeoutPoisonsPool",
        "delivers nothing more once it ran out of time",
        "deadline_bounds_deliver",
        "the delivery after the deadline: expected Ok",
        Seam::Sink(|inner, _| {
            let is_poisoned = Arc::new(AtomicBool::new(false));
            answering(inner, move |_, answer| {
                if answer
                    .as_ref()
                    .is_err_and(|error| error.code() == "Timeout")
                {
                    is_poisoned.store(true, Ordering::SeqCst);
                    return answer;
                }
                match is_poisoned.load(Ordering::SeqCst) {
                    true => Err(SinkError::transient(
                        dispatch_api::Outcome::Unknown,
                        "PoolPoisoned",
                        "a connection is broken",
                    )),
                    false => answer,
                }
            })
        }),
    ),
    Mutant::new(
        "NoTimeout",
        "waits for as long as it likes",
        "timeout_bounds_deliver",
        "the time limit: expected an end within",
        Seam::Build(|options, _, honest| {
            let mut options = options.clone();
            options["timeout_ms"] = 60_000.into();
            honest(&options)
        }),
    ),
    Mutant::new(
        "StatusOnly",
        "takes every reply with a good status for a success",
        "garbage_success_reply_is_error",
        "a success of Empty: expected an error; observed Ok",
        Seam::Wire(|inner, _| {
            replying(inner, |request, reply| {
                let mut reply = reply?;
                let is_odd = serde_json::from_slice::<Results>(&reply.body).is_err();
                if reply.status == 200 && is_odd {
                    let mut results = Results::default();
                    results.stored.extend(request.entries.iter().map(as_stored));
                    reply.body = results.to_body();
                }
                Ok(reply)
            })
        }),
    ),
    Mutant::new(
        "InventsId",
        "makes an id where the destination names none",
        "a_reply_without_an_id_invents_none",
        "the receipt: expected no id",
        Seam::Sink(|inner, _| {
            answering(inner, |_, answer| match answer {
                Err(error) if error.code() == "UnexpectedReply" => {
                    Ok(Receipt::new().with_provider_id("unknown"))
                }
                answer => answer,
            })
        }),
    ),
    Mutant::new(
        "ParseFailureIsPermanent",
        "gives a message up when it does not understand an error",
        "non_protocol_error_body_is_transient",
        "a foreign error of status 500: expected a class that is retried",
        Seam::Wire(|inner, _| {
            replying(inner, |_, reply| {
                let reply = reply?;
                let is_json = serde_json::from_slice::<serde_json::Value>(&reply.body).is_ok();
                Ok(match reply.status {
                    200..=399 => reply,
                    _ if is_json => reply,
                    _ => error_reply(400, "MessageTooLarge", ""),
                })
            })
        }),
    ),
    Mutant::new(
        "PageInError",
        "quotes what it got instead of a reply",
        "a_foreign_page_is_not_quoted",
        "expected nothing of the page",
        Seam::Sink(|_, parts| {
            let page: Arc<Mutex<String>> = Arc::default();
            let seen = Arc::clone(&page);
            let wire = replying(parts.wire, move |_, reply| {
                if let Ok(reply) = &reply {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    *seen = String::from_utf8_lossy(&reply.body).into_owned();
                }
                reply
            });
            let sink = ReferenceSink::new(parts.config, wire, &parts.services);
            answering(Arc::new(sink), move |_, answer| {
                answer.map_err(|error| {
                    let page = page.lock().unwrap_or_else(PoisonError::into_inner);
                    error.with_source(std::io::Error::other(page.clone()))
                })
            })
        }),
    ),
    Mutant::new(
        "FollowsWithCredentials",
        "sends the request to wherever the reply points",
        "redirect_is_reported_not_followed",
        "requests at the other host: expected 0",
        Seam::Wire(|inner, _| {
            calling(inner, |inner, mut request| {
                Box::pin(async move {
                    let reply = inner.call(request.clone()).await?;
                    match reply.location.clone() {
                        Some(host) => {
                            request.host = host;
                            inner.call(request).await
                        }
                        None => Ok(reply),
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "FirstReplyWins",
        "takes the next reply for its own, whosever it is",
        "a_late_reply_answers_nobody_else",
        "after a late reply: expected Ok",
        Seam::Wire(|inner, _| {
            let replies: Arc<(Mutex<VecDeque<Answered>>, Notify)> = Arc::default();
            calling(inner, move |inner, request| {
                let replies = Arc::clone(&replies);
                Box::pin(async move {
                    let arriving = Arc::clone(&replies);
                    tokio::spawn(async move {
                        let reply = inner.call(request).await;
                        let mut queue = arriving.0.lock().unwrap_or_else(PoisonError::into_inner);
                        queue.push_back(reply);
                        arriving.1.notify_one();
                    });
                    loop {
                        let next = {
                            let mut queue =
                                replies.0.lock().unwrap_or_else(PoisonError::into_inner);
                            queue.pop_front()
                        };
                        match next {
                            Some(reply) => return reply,
                            None => replies.1.notified().await,
                        }
                    }
                })
            })
        }),
    ),
    Mutant::new(
        "PanicsOnOddReply",
        "panics when a reply is not what it expects",
        "a_reply_never_makes_the_sink_panic",
        "odd reply 0: expected an answer; observed a panic",
        Seam::Wire(|inner, _| {
            replying(inner, |_, reply| {
                let reply = reply?;
                if serde_json::from_slice::<serde_json::Value>(&reply.body).is_err() {
                    std::panic::resume_unwind(Box::new("not JSON"));
                }
                Ok(reply)
            })
        }),
    ),
];
