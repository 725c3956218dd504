//! A certificate for the server, which its clients are told to trust.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Failure;

/// A directory with a certificate of 127.0.0.1 and its key, removed at the end.
#[derive(Debug)]
pub(crate) struct Certificate {
    directory: PathBuf,
}

impl Certificate {
    pub(crate) fn create() -> Result<Self, Failure> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let name = format!("benchmark-tls-{}", std::process::id());
        let created = Self {
            directory: std::env::temp_dir().join(name),
        };
        std::fs::create_dir_all(&created.directory)?;
        std::fs::write(certificate(&created.directory), cert.pem())?;
        std::fs::write(key(&created.directory), signing_key.serialize_pem())?;
        Ok(created)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes a client trust the certificate, whatever it is written in: rustls and the
    /// SDK for Rust, botocore, Node.
    pub(crate) fn trust(&self, client: &mut Command) {
        for variable in ["SSL_CERT_FILE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"] {
            client.env(variable, certificate(&self.directory));
        }
    }
}

impl Drop for Certificate {
    fn drop(&mut self) {
        // A directory that is gone is what is wanted.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What takes connections with the certificate in `directory`.
pub(crate) fn acceptor(directory: &Path) -> Result<TlsAcceptor, Failure> {
    let certificate = CertificateDer::from_pem_file(certificate(directory))?;
    let key = PrivateKeyDer::from_pem_file(key(directory))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificate(directory: &Path) -> PathBuf {
    directory.join("certificate.pem")
}

fn key(directory: &Path) -> PathBuf {
    directory.join("key.pem")
}
