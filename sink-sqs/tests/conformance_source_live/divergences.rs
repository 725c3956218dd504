//! Where an emulator does otherwise than the service. A case that is listed and passes
//! fails the run, as one does that fails and is not listed.

use sink_testkit::conformance::Divergence;

pub(crate) fn of(emulator: &str, mode: &str) -> Vec<Divergence> {
    let is_fifo = mode.starts_with("fifo");
    let known: &[Divergence] = match emulator {
        "fauxqs" if is_fifo => FAUXQS_FIFO,
        _ => &[],
    };
    known.to_vec()
}

const ONE_OF_A_GROUP: &str = "fauxqs hands out one message of a group at a time, where the \
    service answers a receive with as many as were asked for";

const FAUXQS_FIFO: &[Divergence] = &[Divergence {
    case: "receive_matches_what_was_sent",
    reason: ONE_OF_A_GROUP,
}];
