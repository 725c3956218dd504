//! What must not compile, and what its message says.

#[test]
fn a_source_that_delays_takes_no_sink_for_copies_and_a_delivery_is_settled_once() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile_fail/*.rs");
}
