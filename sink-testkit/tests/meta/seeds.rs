//! Random numbers that can be had again.

use sink_testkit::conformance::{Case, check_eq, run_case};
use sink_testkit::reference::ReferenceAdapter;

use crate::ledger::ledger;
use crate::process::run;
use crate::subject::{Does, MODE, Subject, own_case};

/// Fails, and says what it drew.
fn draws() -> Case {
    own_case(|context| {
        Box::pin(async move {
            let drawn: Vec<usize> = (0..4).map(|_| context.random(1_000_000)).collect();
            check_eq("what was drawn", &Vec::new(), &drawn)
        })
    })
}

pub(crate) fn a_seed_gives_the_same_random_numbers() {
    let adapter = Subject::shared(Does::Nothing);
    let profile = ReferenceAdapter::profile(MODE);
    let of_seed = |seed| run_case(&adapter, &profile, &draws(), seed);
    assert_eq!(of_seed(7), of_seed(7));
    assert_eq!(of_seed(7).seed, 7);
    assert_ne!(of_seed(7).reason, of_seed(8).reason);
}

pub(crate) fn a_failure_prints_its_seed_and_fails_alike_with_it() {
    let case = "a_burst_of_callers_loses_nothing";
    let ledger = ledger(&[(case, "passed")]);
    let first = run("fails-every-other", &ledger, &[case], &[]);
    assert!(!first.is_success, "{}", first.text);
    let mut lines = first.text.lines();
    let seed = lines.find_map(|line| line.strip_prefix("seed: CONFORMANCE_SEED="));
    let variables = [("CONFORMANCE_SEED", seed.unwrap())];
    let again = run("fails-every-other", &ledger, &[case], &variables);
    let shown = |text: &str| {
        let lines = text.lines().filter(|line| !line.contains("finished in"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(shown(&first.text), shown(&again.text));
}

pub(crate) fn a_seed_that_is_no_number_is_refused() {
    for seed in ["", "seven", "-1", "99999999999999999999"] {
        let variables = [("CONFORMANCE_SEED", seed)];
        let ended = run("honest", &ledger(&[]), &["no_such_case"], &variables);
        assert!(!ended.is_success, "{}", ended.text);
        assert_eq!(
            ended.text,
            "CONFORMANCE_SEED has to be a number from 0 to 18446744073709551615\n"
        );
    }
}
