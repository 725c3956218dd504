//! A panic in a sink is one failed delivery, and the host lives on.

use async_trait::async_trait;
use dispatch_api::{
    DeliveryContext, DrainReport, Envelope, EnvelopeId, ErrorClass, Guarantees, InFlight, Outcome,
    Receipt, Sink, SinkError, deliver_contained,
};
use tokio::time::Instant;

/// Panics for every body that says so, before and after its first await.
#[derive(Debug, Default)]
struct Fragile(InFlight);

#[async_trait]
impl Sink for Fragile {
    async fn deliver(
        &self,
        envelope: &Envelope,
        _: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _guard = self.0.enter()?;
        assert_ne!(&**envelope.body(), b"early", "canary-payload");
        tokio::task::yield_now().await;
        assert_ne!(&**envelope.body(), b"late", "canary-payload");
        Ok(Receipt::new())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(false)
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        self.0.drain(deadline).await
    }
}

#[tokio::test]
async fn a_panic_before_or_after_an_await_is_a_transient_error_of_unknown_outcome() {
    let sink = Fragile::default();
    let id = EnvelopeId::v7(0, &[0; 10]);
    for body in ["early", "late"] {
        let envelope = Envelope::new(id, "github", 0, body);
        let error = deliver_contained(&sink, &envelope, &DeliveryContext::direct())
            .await
            .unwrap_err();
        assert_eq!(error.class(), ErrorClass::Transient);
        assert_eq!(error.outcome(), Outcome::Unknown);
        assert_eq!(error.code(), "SinkPanicked");
        assert!(!format!("{error} {error:?}").contains("canary-payload"));
    }
    let envelope = Envelope::new(id, "github", 0, "fine");
    deliver_contained(&sink, &envelope, &DeliveryContext::direct())
        .await
        .expect("the sink works on");
    assert_eq!(sink.drain(Instant::now()).await, DrainReport::new(0, 0));
}
