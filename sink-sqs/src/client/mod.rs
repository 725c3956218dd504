//! One signed POST, and what came back.

mod signing;
mod skew;
mod transport;

use std::sync::Arc;

use bytes::Bytes;
use dispatch_api::{HostServices, Outcome, Problems, SinkError};
use tokio::time::{Instant, timeout_at};
use url::Url;

use self::signing::{Signer, Unsigned};
use self::skew::{Signed, Skew};
use self::transport::{MAX_ANSWER_BYTES, Received, Sending, Transport, TransportError};
#[cfg(feature = "default-chain")]
pub(crate) use self::transport::{Route, side_client};
use crate::answer::{Answer, code_of_refusal, request_id};
use crate::config::Connection;
use crate::credentials::{Credentials, ProvideCredentials, identity_of, provider_of};

/// Sends requests over one connection setting. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    transport: Arc<Transport>,
    endpoint: Url,
    region: String,
    limit: Arc<str>,
    max_answer_bytes: usize,
    credentials: Arc<dyn ProvideCredentials>,
    signer: Arc<Signer>,
    services: HostServices,
    skew: Arc<Skew>,
    identity: String,
    keys: String,
}

/// A complete answer, and the credentials that asked for it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) answer: Answer,
    pub(crate) credentials: Credentials,
}

impl Client {
    /// A client of these settings. Needs no network.
    ///
    /// # Errors
    ///
    /// Certificates that cannot be read, and a system without any.
    pub(crate) fn new(config: &Connection, services: &HostServices) -> Result<Self, Problems> {
        let transport = Transport::shared(config, services)?;
        let keys = identity_of(config, services).to_hex();
        Ok(Self {
            endpoint: config.endpoint_url().clone(),
            region: config.region().to_owned(),
            limit: format!(
                "timeout_ms is {}, and the delivery's deadline can be sooner",
                config.timeout().as_millis()
            )
            .into(),
            max_answer_bytes: MAX_ANSWER_BYTES,
            credentials: provider_of(config, services),
            signer: Arc::default(),
            identity: format!(
                "{} {} {:?} {} {keys}",
                config.endpoint(),
                config.region(),
                config.timeout(),
                transport.identity(),
            ),
            keys,
            transport,
            services: services.clone(),
            skew: Arc::default(),
        })
    }

    /// The same client, for requests whose deadline has another reason: `limit` says it in an
    /// error's text, such as `timeout_ms is 5000`.
    pub(crate) fn limited_by(&self, limit: &str) -> Self {
        Self {
            limit: limit.into(),
            ..self.clone()
        }
    }

    /// The same client, for answers of up to so many bytes.
    pub(crate) fn with_answers_of(&self, max_bytes: usize) -> Self {
        Self {
            max_answer_bytes: max_bytes,
            ..self.clone()
        }
    }

    /// What tells this client's requests from another's: where they go, over which
    /// connections, with whose keys. Holds no secret.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// What tells whose keys sign. Holds no secret.
    pub(crate) fn keys(&self) -> &str {
        &self.keys
    }

    /// Sends one request and reads the whole answer by `deadline`.
    ///
    /// It is signed and sent once more when its signature or its credentials were refused
    /// and others can be had. That repeats nothing: a request is refused so before it is
    /// carried out, and nothing of it was stored.
    ///
    /// # Errors
    ///
    /// Everything but a complete answer, whatever its status.
    pub(crate) async fn call(
        &self,
        target: &'static str,
        body: Vec<u8>,
        deadline: Instant,
    ) -> Result<Exchange, SinkError> {
        let body = Bytes::from(body);
        let credentials = match timeout_at(deadline, self.credentials.provide()).await {
            Ok(provided) => provided?,
            Err(_) => return Err(self.no_credentials_yet()),
        };
        let (first, signed) = self
            .attempt(target, body.clone(), credentials, deadline)
            .await?;
        match self.remedy(&first, &signed, deadline).await {
            Some(credentials) => {
                let (second, _) = self.attempt(target, body, credentials, deadline).await?;
                Ok(second)
            }
            None => Ok(first),
        }
    }

    /// The credentials with which the request may be accepted, if it was refused for its
    /// signature's sake and something can be done about it.
    async fn remedy(
        &self,
        refused: &Exchange,
        signed: &Signed,
        deadline: Instant,
    ) -> Option<Credentials> {
        let Exchange {
            answer,
            credentials,
        } = refused;
        match code_of_refusal(answer)? {
            "InvalidSignature" | "RequestExpired" | "RequestTimeTooSkewed" | "AuthFailure" => {
                let now = self.services.now();
                signed
                    .was_out_of_date(&answer.headers, now, &self.skew)
                    .then(|| credentials.clone())
            }
            "ExpiredToken" | "UnrecognizedClient" | "InvalidAccessKeyId" => {
                if !self.credentials.give_up(credentials) {
                    return None;
                }
                let provided = timeout_at(deadline, self.credentials.provide());
                let others = provided.await.ok()?.ok()?;
                (others.fingerprint() != credentials.fingerprint()).then_some(others)
            }
            _ => None,
        }
    }

    async fn attempt(
        &self,
        target: &'static str,
        body: Bytes,
        credentials: Credentials,
        deadline: Instant,
    ) -> Result<(Exchange, Signed), SinkError> {
        let sending = Sending::default();
        let exchange = self.exchange(target, body, credentials, &sending);
        match timeout_at(deadline, exchange).await {
            Ok(result) => result,
            Err(_) => Err(self.timed_out(&sending)),
        }
    }

    async fn exchange(
        &self,
        target: &'static str,
        body: Bytes,
        credentials: Credentials,
        sending: &Sending,
    ) -> Result<(Exchange, Signed), SinkError> {
        // Signed last, so that no waiting makes the signature old.
        let wall = self.services.now();
        let signed = Signed {
            at: self.skew.apply(wall),
            wall,
            instant: Instant::now(),
        };
        let headers = self.signer.headers(
            &Unsigned {
                url: self.endpoint.as_str(),
                region: &self.region,
                target,
                body: &body,
                time: signed.at,
            },
            &credentials,
        )?;
        let received = self
            .transport
            .post(
                &self.endpoint,
                headers,
                body,
                sending,
                self.max_answer_bytes,
            )
            .await
            .map_err(|error| self.failed(error, sending))?;
        let Received {
            status,
            headers,
            body,
        } = received;
        let exchange = Exchange {
            answer: Answer {
                status,
                headers,
                body,
            },
            credentials,
        };
        Ok((exchange, signed))
    }

    fn no_credentials_yet(&self) -> SinkError {
        SinkError::transient(
            Outcome::NotStored,
            "CredentialsUnavailable",
            format!(
                "no credentials in time: their sources are still being asked; {}",
                self.limit
            ),
        )
    }

    fn failed(&self, error: TransportError, sending: &Sending) -> SinkError {
        let outcome = outcome(sending);
        match error {
            TransportError::NoAnswer(error) if error.is_timeout() => {
                self.timed_out(sending).with_source(error)
            }
            TransportError::NoAnswer(error) if error.is_connect() => SinkError::transient(
                Outcome::NotStored,
                "ConnectFailed",
                format!(
                    "no connection to {}: check endpoint and the queue's URL, the network, and \
                     http.proxy and http.root_certificates where they are set",
                    self.shown_endpoint()
                ),
            )
            .with_source(error),
            TransportError::NoAnswer(error) => SinkError::transient(
                outcome,
                "ConnectionLost",
                format!(
                    "the connection to {} broke off before an answer",
                    self.shown_endpoint()
                ),
            )
            .with_source(error),
            TransportError::Cut(received, error) if error.is_timeout() => {
                with_identity(self.timed_out(sending), &received).with_source(error)
            }
            TransportError::Cut(received, error) => with_identity(
                SinkError::transient(
                    Outcome::Unknown,
                    "ConnectionLost",
                    format!(
                        "the connection to {} broke off within the answer",
                        self.shown_endpoint()
                    ),
                ),
                &received,
            )
            .with_source(error),
            TransportError::TooLong(received) => with_identity(
                SinkError::transient(
                    Outcome::Unknown,
                    "UnexpectedReply",
                    format!(
                        "the answer is longer than {} bytes, so it is not the service's: check \
                         endpoint",
                        self.max_answer_bytes
                    ),
                ),
                &received,
            ),
        }
    }

    fn timed_out(&self, sending: &Sending) -> SinkError {
        let missing = match sending.began() {
            false => "connection to",
            true => "complete answer from",
        };
        SinkError::transient(
            outcome(sending),
            "Timeout",
            format!(
                "no {missing} {} in time: {}",
                self.shown_endpoint(),
                self.limit
            ),
        )
    }

    fn shown_endpoint(&self) -> &str {
        self.endpoint.as_str().trim_end_matches('/')
    }
}

fn outcome(sending: &Sending) -> Outcome {
    match sending.began() {
        false => Outcome::NotStored,
        true => Outcome::Unknown,
    }
}

fn with_identity(error: SinkError, received: &Received) -> SinkError {
    let error = error.with_status(received.status);
    match request_id(&received.headers) {
        Some(id) => error.with_request_id(id),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SqsSinkConfig, SqsSinkConfigBuilder};

    fn identity(change: impl FnOnce(SqsSinkConfigBuilder) -> SqsSinkConfigBuilder) -> String {
        let services = HostServices::new().with_environment(|_| None);
        let builder = SqsSinkConfig::builder("http://127.0.0.1:1/0/hooks", "us-east-1");
        let config = change(builder).build(&services).unwrap();
        Client::new(config.connection(), &services)
            .unwrap()
            .identity()
            .to_owned()
    }

    #[test]
    fn clients_with_other_keys_have_another_identity_that_shows_none() {
        let keys = |b: SqsSinkConfigBuilder| b.credentials("AKID", "canary");
        let mut identities = vec![
            identity(|b| b),
            identity(keys),
            identity(|b| keys(b).session_token("canary")),
        ];
        #[cfg(feature = "default-chain")]
        {
            let role = |b: SqsSinkConfigBuilder| keys(b).assume_role(ROLE);
            const ROLE: &str = "arn:aws:iam::123456789012:role/canary";
            identities.extend([
                identity(|b| b.profile("canary")),
                identity(role),
                identity(|b| b.assume_role(ROLE)),
                identity(|b| role(b).external_id("canary")),
                identity(|b| role(b).session_name("canary")),
                identity(|b| role(b).external_id("canary").session_name("canary")),
            ]);
            assert_eq!(identity(role), identity(role));
        }
        assert!(!identities.concat().contains("canary"));
        let count = identities.len();
        identities.sort();
        identities.dedup();
        assert_eq!(identities.len(), count);
    }
}
