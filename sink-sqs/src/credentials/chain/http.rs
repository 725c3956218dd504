//! The HTTP client below the libraries of the sources.

use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use dispatch_api::SinkError;
use http::HeaderMap;

use super::super::unavailable;
use crate::client::{Route, side_client};
use crate::config::Connection;

/// More than any answer of a source of credentials.
const MAX_ANSWER_BYTES: usize = 256 * 1_024;

/// A client of the same making as the one that sends.
#[derive(Clone, Debug)]
pub(super) struct Client {
    inner: reqwest::Client,
}

impl Client {
    /// A client for requests to `origin`.
    pub(super) fn new(config: &Connection, origin: &str, route: Route) -> Result<Self, SinkError> {
        let tls = !origin.starts_with("http://");
        let inner = side_client(config, tls, route).map_err(|problems| {
            unavailable(format!("no connection to {origin} can be made: {problems}"))
        })?;
        Ok(Self { inner })
    }

    /// Sends one request without a body and reads the whole answer.
    pub(super) async fn get(
        &self,
        url: &str,
        headers: HeaderMap,
        within: Duration,
    ) -> Result<(u16, Bytes), reqwest::Error> {
        let request = self.inner.get(url).headers(headers).timeout(within);
        let (status, _, body) = whole(request).await?;
        Ok((status, body))
    }
}

async fn whole(
    request: reqwest::RequestBuilder,
) -> Result<(u16, HeaderMap, Bytes), reqwest::Error> {
    let mut response = request.send().await.map_err(reqwest::Error::without_url)?;
    let status = response.status().as_u16();
    let headers = std::mem::take(response.headers_mut());
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(reqwest::Error::without_url)?
    {
        // What is cut here is read by nobody as an answer.
        let room = MAX_ANSWER_BYTES - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if body.len() == MAX_ANSWER_BYTES {
            break;
        }
    }
    Ok((status, headers, Bytes::from(body)))
}

impl HttpClient for Client {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        _: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(Connector {
            client: self.inner.clone(),
            within: settings.read_timeout(),
        })
    }
}

#[derive(Debug)]
struct Connector {
    client: reqwest::Client,
    within: Option<Duration>,
}

impl HttpConnector for Connector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let client = self.client.clone();
        let within = self.within;
        HttpConnectorFuture::new(async move {
            let request = request
                .try_into_http1x()
                .map_err(|error| ConnectorError::user(error.into()))?;
            let (parts, body) = request.into_parts();
            // No source of credentials is sent a stream.
            let body = body.bytes().unwrap_or_default().to_vec();
            let mut request = client
                .request(parts.method, parts.uri.to_string())
                .headers(parts.headers)
                .body(body);
            if let Some(within) = within {
                request = request.timeout(within);
            }
            let (status, headers, body) =
                whole(request)
                    .await
                    .map_err(|error| match error.is_timeout() {
                        true => ConnectorError::timeout(error.into()),
                        false => ConnectorError::io(error.into()),
                    })?;
            let mut response = http::Response::new(SdkBody::from(body));
            *response.status_mut() = http::StatusCode::from_u16(status)
                .map_err(|error| ConnectorError::user(error.into()))?;
            *response.headers_mut() = headers;
            HttpResponse::try_from(response).map_err(|error| ConnectorError::user(error.into()))
        })
    }
}
