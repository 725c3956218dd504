//! The sink itself.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use dispatch_api::{
    Admission, DeliveryContext, Description, DrainReport, Envelope, Guarantees, HostServices,
    InFlight, Ordering, Outcome, Receipt, Sink, SinkError, throttle_after,
};
use rdkafka::error::RDKafkaErrorCode as Code;
use rdkafka::producer::future_producer::{Delivery, DeliveryFuture};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument as _;

use crate::classify;
use crate::config::KafkaSinkConfig;
use crate::producer::{Producer, Producers};
use crate::record::Record;
use crate::telemetry::Telemetry;

/// Sends deliveries to one topic, and waits for the brokers' acknowledgement of each.
pub struct KafkaSink {
    config: KafkaSinkConfig,
    producers: Producers,
    services: HostServices,
    telemetry: Telemetry,
    in_flight: InFlight,
}

impl KafkaSink {
    /// A sink of this configuration. Needs neither a network nor a runtime: the first
    /// delivery connects.
    #[must_use]
    pub fn new(config: KafkaSinkConfig, services: &HostServices) -> Self {
        Self {
            producers: Producers::new(config.clone()),
            telemetry: Telemetry::new(config.topic()),
            config,
            services: services.clone(),
            in_flight: InFlight::new(),
        }
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &KafkaSinkConfig {
        &self.config
    }

    /// The moment by which a delivery that starts now has to be answered.
    fn deadline(&self, ctx: &DeliveryContext) -> Result<Instant, SinkError> {
        let now = Instant::now();
        let own = now + self.config.timeout();
        match ctx.deadline() {
            None => Ok(own),
            Some(deadline) if deadline > now => Ok(own.min(deadline)),
            Some(_) => Err(SinkError::transient(
                Outcome::NotStored,
                "DeadlinePassed",
                "the delivery's deadline was over before it began",
            )),
        }
    }

    fn pause(&self, ctx: &DeliveryContext) -> Duration {
        throttle_after(ctx.attempt_number(), self.services.draw())
    }

    async fn send(
        &self,
        record: &Record,
        ctx: &DeliveryContext,
        deadline: Instant,
    ) -> Result<Receipt, SinkError> {
        // A producer can be beyond repair without anyone's fault. What it does not take
        // goes to the next.
        for _ in 0..2 {
            let producer = self.producers.ready(deadline).await?;
            match producer.send(record) {
                Ok(delivery) => return self.answer(&producer, delivery, ctx, deadline).await,
                Err(code) => {
                    let fatal = producer.fatal();
                    let code = fatal.unwrap_or(code);
                    if fatal.is_none() || classify::is_config(code) {
                        return Err(classify::failed(
                            code,
                            self.config.topic(),
                            false,
                            self.pause(ctx),
                        ));
                    }
                    producer.give_up();
                }
            }
        }
        Err(classify::failed(
            Code::Fatal,
            self.config.topic(),
            false,
            Duration::ZERO,
        ))
    }

    async fn answer(
        &self,
        producer: &Arc<Producer>,
        delivery: DeliveryFuture,
        ctx: &DeliveryContext,
        deadline: Instant,
    ) -> Result<Receipt, SinkError> {
        let Ok(answered) = timeout_at(deadline, delivery).await else {
            producer.doubt_topic();
            return Err(classify::timeout());
        };
        let code = match answered {
            Ok(Ok(delivery)) => return Ok(self.receipt(&delivery)),
            Ok(Err((error, _))) => error.rdkafka_error_code().unwrap_or(Code::Fail),
            // The client ended with its sink.
            Err(_) => Code::PurgeInflight,
        };
        if let Some(fatal) = producer.fatal() {
            producer.give_up();
            let code = match classify::is_config(fatal) {
                true => fatal,
                false => code,
            };
            return Err(classify::failed(
                code,
                self.config.topic(),
                true,
                self.pause(ctx),
            ));
        }
        match code {
            Code::MessageTimedOut => {
                // The client tells an unknown topic only later than this.
                producer.doubt_topic();
                let looked = timeout_at(deadline, producer.find_topic(deadline)).await;
                if let Ok(Err(error)) = looked
                    && matches!(error.class(), dispatch_api::ErrorClass::Config)
                    && error.code() != "AuthenticationFailed"
                {
                    return Err(error);
                }
            }
            code if classify::is_config(code) => producer.doubt_topic(),
            _ => {}
        }
        Err(classify::failed(
            code,
            self.config.topic(),
            true,
            self.pause(ctx),
        ))
    }

    fn receipt(&self, delivery: &Delivery) -> Receipt {
        let topic = self.config.topic();
        let Delivery {
            partition, offset, ..
        } = delivery;
        match offset {
            // The brokers had the message already and do not say where.
            i64::MIN..=-1 => Receipt::new(),
            _ => Receipt::new()
                .with_provider_id(format!("{topic}/{partition}/{offset}"))
                .with_sequence(offset.to_string()),
        }
    }
}

#[async_trait]
impl Sink for KafkaSink {
    async fn deliver(
        &self,
        envelope: &Envelope,
        ctx: &DeliveryContext,
    ) -> Result<Receipt, SinkError> {
        let _running = self.in_flight.enter()?;
        let deadline = self.deadline(ctx)?;
        let record = Record::plan(&self.config, envelope, ctx)?;
        let began = Instant::now();
        let span = self.telemetry.span();
        let answer = self
            .send(&record, ctx, deadline)
            .instrument(span.clone())
            .await;
        self.telemetry.answered(began.elapsed(), &answer, &span);
        answer
    }

    fn admission(&self) -> Admission {
        Admission::SelfLimited
    }

    fn inline_max_bytes(&self) -> Option<NonZeroUsize> {
        Some(self.config.inline_max_bytes())
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(self.durable())
            .with_ordering(Ordering::PerKeyWhenAwaited)
            .with_max_message_bytes(self.config.max_message_bytes())
    }

    fn describe(&self) -> Option<Description> {
        Some(Description::new(
            "kafka",
            self.config.brokers().join(","),
            self.config.topic(),
        ))
    }

    async fn drain(&self, deadline: Instant) -> DrainReport {
        let (report, ()) = tokio::join!(
            self.in_flight.drain(deadline),
            self.producers.flush(deadline)
        );
        report
    }
}

impl fmt::Debug for KafkaSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSink")
            .field("config", &self.config)
            .field("in_flight", &self.in_flight.count())
            .finish_non_exhaustive()
    }
}
