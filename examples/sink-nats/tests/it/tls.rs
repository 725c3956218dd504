//! Encrypted connections.

use dispatch_api::{Outcome, Sink as _};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;

use crate::support::server::NatsServer;
use crate::support::{ctx, envelope, parts, sink};

#[tokio::test]
async fn a_server_is_trusted_by_the_configured_root_alone_and_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).display().to_string();
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_certificate = root.self_signed(&root_key).unwrap();
    let issuer = Issuer::new(root, root_key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &issuer)
        .unwrap();
    std::fs::write(path("root.pem"), root_certificate.pem()).unwrap();
    std::fs::write(path("server.pem"), certificate.pem()).unwrap();
    std::fs::write(path("server.key"), key.serialize_pem()).unwrap();
    let configuration = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\" }}",
        path("server.pem"),
        path("server.key")
    );
    let Some(server) = NatsServer::start(&configuration) else {
        return;
    };
    let trusting = json!({"tls": {"root_certificates": [path("root.pem")]}});
    let port = server.port();
    let trusted = sink(&format!("localhost:{port}"), &trusting);
    let error = trusted.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error).2, "NoStream", "connected and asked");

    let refused = ("transient", Outcome::NotStored, "ConnectFailed");
    let misnamed = sink(&format!("127.0.0.1:{port}"), &trusting);
    let error = misnamed.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), refused);
    let untrusting = sink(&format!("tls://localhost:{port}"), &json!({}));
    let error = untrusting.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error), refused);
}

#[tokio::test]
async fn with_root_certificates_nothing_is_sent_to_a_server_without_encryption() {
    let server = crate::fake::FakeServer::start([]).await;
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root.pem");
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(Vec::new())
        .unwrap()
        .self_signed(&key)
        .unwrap();
    std::fs::write(&root, certificate.pem()).unwrap();
    let options = json!({"tls": {"root_certificates": [root]}, "token": "t", "timeout_ms": 1_000});
    let sink = sink(&server.address(), &options);
    let error = sink.deliver(&envelope(), &ctx()).await.unwrap_err();
    assert_eq!(parts(&error).2, "ConnectFailed");
    assert_eq!(server.connects().len(), 0);
}
