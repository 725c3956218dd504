//! Where an emulator does otherwise than the service. A case that is listed and passes
//! fails the run, as one does that fails and is not listed.

use sink_testkit::conformance::Divergence;

pub(crate) fn of(emulator: &str, mode: &str) -> Vec<Divergence> {
    let is_fifo = mode.starts_with("fifo");
    let (cases, reason): (&[&'static str], _) = match emulator {
        "fauxqs" if is_fifo => (FAUXQS_FIFO, ONE_OF_A_GROUP),
        _ => (&[], ""),
    };
    cases
        .iter()
        .map(|case| Divergence { case, reason })
        .collect()
}

const ONE_OF_A_GROUP: &str = "fauxqs hands out one message of a group at a time, where the \
    service answers a receive with as many as were asked for";

const FAUXQS_FIFO: &[&str] = &[
    "receive_matches_what_was_sent",
    "receive_undecodable_is_delivered_as_it_is",
    "ack_consumes_for_good",
    "ack_out_of_order_is_safe",
    "ack_leaves_its_neighbours",
];
