//! Where an emulator does otherwise than the service. A case that is listed and passes
//! fails the run, as one does that fails and is not listed.

use sink_testkit::conformance::Divergence;

pub(crate) fn of(emulator: &str, mode: &str) -> Vec<Divergence> {
    let is_fifo = mode.starts_with("fifo");
    let known: &[Divergence] = match emulator {
        "moto" if is_fifo => MOTO_FIFO,
        "fauxqs" => FAUXQS,
        _ => &[],
    };
    known.to_vec()
}

const MOTO_FIFO: &[Divergence] = &[Divergence {
    case: "the_receipt_of_a_repeat_names_the_first",
    reason: "moto answers a repeat with a new message id, the service with that of the first",
}];

const BEYOND_THE_BASIC_PLANE: &str =
    "fauxqs refuses characters beyond U+FFFF, which the service takes";

const FAUXQS: &[Divergence] = &[
    Divergence {
        case: "header_values_beyond_ascii",
        reason: BEYOND_THE_BASIC_PLANE,
    },
    Divergence {
        case: "metadata_beyond_ascii",
        reason: BEYOND_THE_BASIC_PLANE,
    },
    Divergence {
        case: "size_multibyte_counts_bytes",
        reason: BEYOND_THE_BASIC_PLANE,
    },
];
