//! Root certificates, and their absence.

use dispatch_api::HostServices;
use sink_sqs::{SqsSink, SqsSinkConfig};

use crate::bench::run_again;

/// Set in the environment of the run that has no root certificates.
const ROOTLESS: &str = "SINK_SQS_TEST_WITHOUT_ROOTS";

fn build(queue_url: &str) -> Result<SqsSink, String> {
    let services = HostServices::new();
    let config = SqsSinkConfig::builder(queue_url, "us-east-1")
        .build(&services)
        .unwrap();
    SqsSink::new(config, &services).map_err(|problems| problems.to_string())
}

#[test]
fn a_system_without_root_certificates_is_a_problem_for_https_and_none_for_http() {
    if std::env::var_os(ROOTLESS).is_some() {
        let problem = build("https://sqs.us-east-1.amazonaws.com/123456789012/hooks").unwrap_err();
        assert!(
            problem.starts_with("http.root_certificates: no usable root certificates"),
            "{problem}"
        );
        assert!(problem.contains("SSL_CERT_FILE"), "{problem}");
        build("http://127.0.0.1:4566/000000000000/hooks").unwrap();
        return;
    }
    run_again(
        concat!(
            "certificates::",
            "a_system_without_root_certificates_is_a_problem_for_https_and_none_for_http"
        ),
        &[(ROOTLESS, "1"), ("SSL_CERT_FILE", "/dev/null")],
    );
}
