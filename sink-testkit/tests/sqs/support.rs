//! A client that shares no code with the server: reqwest sends, aws-sigv4 signs.

use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use sink_testkit::sqs::{Clock, SqsServer};

#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) endpoint: String,
    pub(crate) path: String,
    pub(crate) access_key: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
    pub(crate) region: String,
    pub(crate) service: String,
    /// Signs by the server's clock, so that a test that moves it need not care.
    clock: Clock,
    /// Signs by this time instead.
    pub(crate) time: Option<SystemTime>,
}

impl Client {
    pub(crate) fn of(server: &SqsServer) -> Self {
        Self {
            http: reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .unwrap(),
            endpoint: server.endpoint(),
            path: "/".into(),
            access_key: "test".into(),
            secret: "test".into(),
            token: None,
            region: "us-east-1".into(),
            service: "sqs".into(),
            clock: server.clock().clone(),
            time: None,
        }
    }

    /// A request as the signer leaves it, for tests that spoil it before it is sent.
    pub(crate) fn signed(&self, operation: &str, body: &str) -> reqwest::Request {
        let url = format!("{}{}", self.endpoint, self.path);
        let target = format!("AmazonSQS.{operation}");
        let headers = [
            ("content-type", "application/x-amz-json-1.0"),
            ("x-amz-target", target.as_str()),
            ("x-amzn-query-mode", "true"),
        ];
        let identity = Credentials::new(
            &self.access_key,
            &self.secret,
            self.token.clone(),
            None,
            "test",
        )
        .into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&self.region)
            .name(&self.service)
            .time(self.time.unwrap_or_else(|| self.clock.now()))
            .settings(SigningSettings::default())
            .build()
            .unwrap()
            .into();
        let signable = SignableRequest::new(
            "POST",
            &url,
            headers.into_iter(),
            SignableBody::Bytes(body.as_bytes()),
        )
        .unwrap();
        let (instructions, _) = sign(signable, &parameters).unwrap().into_parts();
        let mut request = self.http.post(&url).body(body.to_owned()).build().unwrap();
        let signed = instructions.headers().chain(headers);
        for (name, value) in signed {
            request.headers_mut().insert(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        request
    }

    pub(crate) async fn send(&self, request: reqwest::Request) -> Result<Reply, reqwest::Error> {
        let response = self.http.execute(request).await?;
        Ok(Reply {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?.to_vec(),
        })
    }

    pub(crate) async fn try_call(
        &self,
        operation: &str,
        body: Value,
    ) -> Result<Reply, reqwest::Error> {
        self.send(self.signed(operation, &body.to_string())).await
    }

    pub(crate) async fn call(&self, operation: &str, body: Value) -> Reply {
        self.try_call(operation, body).await.unwrap()
    }

    /// Calls about one queue, by its bare name.
    pub(crate) async fn on(&self, queue: &str, operation: &str, mut body: Value) -> Reply {
        body["QueueUrl"] = queue.into();
        self.call(operation, body).await
    }

    /// Sends a text to a standard queue.
    pub(crate) async fn put(&self, queue: &str, body: &str) -> Value {
        self.on(queue, "SendMessage", json!({ "MessageBody": body }))
            .await
            .ok()
    }

    /// Sends a text to a FIFO queue, with itself as its deduplication id.
    pub(crate) async fn put_fifo(&self, queue: &str, group: &str, body: &str) -> Value {
        let request = json!({
            "MessageBody": body,
            "MessageGroupId": group,
            "MessageDeduplicationId": body,
        });
        self.on(queue, "SendMessage", request).await.ok()
    }

    /// Receives up to ten messages, with all they have.
    pub(crate) async fn take(&self, queue: &str) -> Vec<Value> {
        self.take_some(queue, 10).await
    }

    pub(crate) async fn take_some(&self, queue: &str, maximum: u32) -> Vec<Value> {
        let request = json!({
            "MaxNumberOfMessages": maximum,
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        });
        let answer = self.on(queue, "ReceiveMessage", request).await.ok();
        answer["Messages"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) async fn delete(&self, queue: &str, message: &Value) -> Reply {
        let request = json!({ "ReceiptHandle": message["ReceiptHandle"] });
        self.on(queue, "DeleteMessage", request).await
    }

    pub(crate) async fn hide(&self, queue: &str, message: &Value, seconds: i64) -> Reply {
        let request = json!({
            "ReceiptHandle": message["ReceiptHandle"],
            "VisibilityTimeout": seconds,
        });
        self.on(queue, "ChangeMessageVisibility", request).await
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The body of an answer that must be a good one.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    /// The status, the type and the older code of an error.
    pub(crate) fn error(&self) -> (u16, String, String) {
        (
            self.status,
            self.json()["__type"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            self.header("x-amzn-query-error").to_owned(),
        )
    }

    #[track_caller]
    pub(crate) fn assert_error(&self, status: u16, type_name: &str, query_error: &str) {
        assert_eq!(
            self.error(),
            (status, type_name.to_owned(), query_error.to_owned())
        );
    }

    #[track_caller]
    pub(crate) fn assert_invalid_parameter(&self) {
        self.assert_error(
            400,
            "com.amazon.coral.service#InvalidParameterValueException",
            "InvalidParameterValue;Sender",
        );
    }

    #[track_caller]
    pub(crate) fn assert_missing_parameter(&self) {
        self.assert_error(
            400,
            "com.amazon.coral.service#MissingRequiredParameterException",
            "MissingParameter;Sender",
        );
    }

    #[track_caller]
    pub(crate) fn assert_no_queue(&self) {
        self.assert_error(
            400,
            "com.amazonaws.sqs#QueueDoesNotExist",
            "AWS.SimpleQueueService.NonExistentQueue;Sender",
        );
    }
}

/// A server with a standard queue `q`, and a client for it.
pub(crate) async fn standard() -> (SqsServer, Client) {
    let server = SqsServer::start().await.unwrap();
    server.create_queue("q", []).await.unwrap();
    let client = Client::of(&server);
    (server, client)
}

/// A server with a FIFO queue `q.fifo`, and a client for it.
pub(crate) async fn fifo() -> (SqsServer, Client) {
    let server = SqsServer::start().await.unwrap();
    server
        .create_queue("q.fifo", [("FifoQueue", "true")])
        .await
        .unwrap();
    let client = Client::of(&server);
    (server, client)
}

pub(crate) fn bodies(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["Body"].as_str().unwrap())
        .collect()
}
