//! Where an emulator does otherwise than the service. A case that is listed and passes
//! fails the run, as one does that fails and is not listed.

use sink_testkit::conformance::Divergence;

pub(crate) fn of(emulator: &str, mode: &str) -> Vec<Divergence> {
    let is_fifo = mode.starts_with("fifo");
    let (cases, reason): (&[&'static str], _) = match emulator {
        "moto" if is_fifo => (MOTO_FIFO, ONE_AFTER_ANOTHER),
        "fauxqs" if is_fifo => (FAUXQS_FIFO, ONE_OF_A_GROUP),
        _ => (&[], ""),
    };
    cases
        .iter()
        .map(|case| Divergence { case, reason })
        .collect()
}

const ONE_AFTER_ANOTHER: &str = "moto ends the holds of one receive one after another, so that \
    the first message is taken again and blocks the others of its group";

const MOTO_FIFO: &[&str] = &[
    "receive_sent_at_is_the_brokers",
    "drop_leaves_its_neighbours",
    "unsettled_delivery_of_a_closed_subscription_comes_back",
];

const ONE_OF_A_GROUP: &str = "fauxqs hands out one message of a group at a time, where the \
    service answers a receive with as many as were asked for";

const FAUXQS_FIFO: &[&str] = &[
    "receive_matches_what_was_sent",
    "receive_undecodable_is_delivered_as_it_is",
    "receive_sent_at_is_the_brokers",
    "ack_consumes_for_good",
    "ack_out_of_order_is_safe",
    "ack_leaves_its_neighbours",
    "drop_leaves_its_neighbours",
    "unsettled_delivery_of_a_closed_subscription_comes_back",
];
