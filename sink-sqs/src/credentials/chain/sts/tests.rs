use super::*;
use crate::config::SqsSinkConfig;
use crate::credentials::OptionsThenEnvironment;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use std::sync::{Arc, Mutex};

/// Notes where requests go, and answers none.
#[derive(Clone, Debug, Default)]
struct Noting(Arc<Mutex<Vec<String>>>);

impl HttpConnector for Noting {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.0.lock().unwrap().push(request.uri().to_owned());
        HttpConnectorFuture::ready(Err(ConnectorError::user("noted".into())))
    }
}

/// Where a sink of this region asks for a role.
async fn asked_at(region: &str, environment: &'static [(&str, &str)]) -> String {
    let services = HostServices::new().with_environment(move |name| {
        let (_, value) = environment.iter().find(|(set, _)| *set == name)?;
        Some((*value).to_owned())
    });
    let sink = SqsSinkConfig::builder("http://127.0.0.1:1/0/hooks", region)
        .build(&services)
        .unwrap();
    let chain = Chain {
        at_hand: OptionsThenEnvironment::new(None, &services),
        config: sink.connection().clone(),
        services,
    };
    let noting = Noting::default();
    let connector = noting.clone();
    let http = http_client_fn(move |_, _| SharedHttpConnector::new(connector.clone()));
    let config = config(&chain)
        .unwrap()
        .retry_config(RetryConfig::disabled())
        .http_client(http);
    aws_sdk_sts::Client::from_conf(config.build())
        .assume_role_with_web_identity()
        .role_arn("arn:aws:iam::123456789012:role/r")
        .role_session_name("session")
        .web_identity_token("token")
        .send()
        .await
        .unwrap_err();
    noting.0.lock().unwrap().concat()
}

#[tokio::test]
async fn the_endpoint_is_the_regions_own() {
    for (region, endpoint) in [
        ("us-east-1", "https://sts.us-east-1.amazonaws.com/"),
        ("us-west-2", "https://sts.us-west-2.amazonaws.com/"),
        ("cn-north-1", "https://sts.cn-north-1.amazonaws.com.cn/"),
        ("us-gov-west-1", "https://sts.us-gov-west-1.amazonaws.com/"),
    ] {
        assert_eq!(asked_at(region, &[]).await, endpoint);
    }
}

#[tokio::test]
async fn the_environment_can_name_another_endpoint() {
    let environment = &[(ENDPOINT, "http://127.0.0.1:9/sts")];
    assert_eq!(
        asked_at("us-west-2", environment).await,
        "http://127.0.0.1:9/sts/"
    );
}
