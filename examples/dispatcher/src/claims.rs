//! A claim check in a folder: one file a body.

use std::io;
use std::path::PathBuf;

use async_trait::async_trait;
use bytes::Bytes;
use dispatch_api::{ClaimCheck, ClaimError, ClaimRef, Envelope, HostServices, Outcome, SinkError};
use tokio::fs;
use tokio::io::AsyncWriteExt as _;

/// Stores bodies as `<folder>/<tenant>/<claim id>`, for a folder that host and
/// consumers share.
#[derive(Debug)]
pub struct DirectoryClaimCheck {
    folder: PathBuf,
    services: HostServices,
}

impl DirectoryClaimCheck {
    /// A store in this folder, which is made when the first body comes.
    #[must_use]
    pub fn new(folder: PathBuf, services: HostServices) -> Self {
        Self { folder, services }
    }

    /// A store in the folder of a URL such as `file:///var/lib/dispatcher/claims`; `None` for
    /// any other text.
    #[must_use]
    pub fn at_url(url: &str, services: &HostServices) -> Option<Self> {
        let url = url::Url::parse(url).ok()?;
        let folder = (url.scheme() == "file").then(|| url.to_file_path().ok())??;
        Some(Self::new(folder, services.clone()))
    }

    /// The tenant and the id have no character that could leave the folder.
    fn file(&self, claim: &ClaimRef) -> PathBuf {
        self.folder.join(claim.tenant()).join(claim.id().as_str())
    }

    async fn store(&self, claim: &ClaimRef, body: &Bytes) -> io::Result<()> {
        let file = self.file(claim);
        let folder = self.folder.join(claim.tenant());
        fs::create_dir_all(&folder).await?;
        // Under another name until it is whole and on the disk, so that nobody ever
        // reads half a body.
        let unfinished = file.with_extension("part");
        let mut part = fs::File::create(&unfinished).await?;
        part.write_all(body).await?;
        part.sync_all().await?;
        fs::rename(&unfinished, &file).await?;
        fs::File::open(&folder).await?.sync_all().await
    }
}

#[async_trait]
impl ClaimCheck for DirectoryClaimCheck {
    async fn check_in(&self, envelope: &Envelope) -> Result<ClaimRef, SinkError> {
        let tenant = envelope.tenant_id().unwrap_or("default");
        let claim = ClaimRef::new(tenant, self.services.new_claim_id()).map_err(|error| {
            SinkError::permanent(
                "InvalidClaimTenant",
                "the body is over inline_max_bytes, and the tenant of the hook cannot stand in a \
                 claim reference",
            )
            .with_source(error)
        })?;
        self.store(&claim, envelope.body()).await.map_err(|error| {
            SinkError::transient(
                Outcome::NotStored,
                "ClaimStoreUnavailable",
                format!("cannot store the body under {}", self.folder.display()),
            )
            .with_source(error)
        })?;
        Ok(claim)
    }

    async fn fetch(&self, claim: &ClaimRef) -> Result<Bytes, ClaimError> {
        match fs::read(self.file(claim)).await {
            Ok(body) => Ok(body.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ClaimError::NotFound),
            Err(error) => Err(ClaimError::Unavailable(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dispatch_api::redeem;

    fn envelope(services: &HostServices, tenant: &str) -> Envelope {
        Envelope::new(services.new_envelope_id(), "github", 0, "a large body").with_tenant(tenant)
    }

    #[tokio::test]
    async fn a_body_is_redeemed_as_often_as_wanted_and_checked_by_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let services = HostServices::new();
        let store = DirectoryClaimCheck::new(folder.path().join("claims"), services.clone());
        let envelope = envelope(&services, "acme");
        let claim = store.check_in(&envelope).await.unwrap();
        assert_eq!(claim.tenant(), "acme");
        for _ in 0..2 {
            let body = redeem(&store, &claim, envelope.sha256()).await.unwrap();
            assert_eq!(&*body, b"a large body");
        }
        let wrong = "0".repeat(64);
        let error = redeem(&store, &claim, &wrong).await.unwrap_err();
        assert!(matches!(error, ClaimError::Integrity));
    }

    #[tokio::test]
    async fn a_swept_body_is_not_found_and_not_retried() {
        let folder = tempfile::tempdir().unwrap();
        let services = HostServices::new();
        let store = DirectoryClaimCheck::new(folder.path().to_owned(), services.clone());
        let claim = ClaimRef::new("acme", services.new_claim_id()).unwrap();
        let error = store.fetch(&claim).await.unwrap_err();
        assert!(matches!(error, ClaimError::NotFound));
        assert!(!error.is_retryable());
    }

    #[tokio::test]
    async fn a_tenant_that_no_reference_can_name_is_refused_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let services = HostServices::new();
        let store = DirectoryClaimCheck::new(folder.path().to_owned(), services.clone());
        let error = store
            .check_in(&envelope(&services, "../other"))
            .await
            .unwrap_err();
        assert_eq!(error.code(), "InvalidClaimTenant");
    }
}
