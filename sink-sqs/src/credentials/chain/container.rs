//! The endpoint that a container's orchestrator names in the environment.
//!
//! The library's own source reads the process's environment alone, never the host's.

use std::net::IpAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};
use tokio::time::sleep;
use url::{Host, Url};

use super::super::unavailable;
use super::{Chain, Looked, document, http as client, invalid};
use crate::client::Route;

const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";

/// Where the relative form starts from.
const ORIGIN: &str = "http://169.254.170.2";

/// The addresses that plain http may go to, beside the host's own.
const LINK_LOCAL: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

const ONE_TRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 3;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// The keys that the endpoint hands out.
pub(super) async fn load(chain: &Chain) -> Looked {
    let services = &chain.services;
    let url = match (services.env(RELATIVE), services.env(FULL)) {
        (Some(path), _) if path.starts_with('/') => parse(&format!("{ORIGIN}{path}"), RELATIVE)?,
        (Some(_), _) => {
            return Err(invalid(format!(
                "the environment's {RELATIVE} is refused: expected a path that starts with /"
            )));
        }
        (None, Some(url)) => parse(&url, FULL)?,
        (None, None) => return Ok(Err(format!("{RELATIVE} and {FULL} are not set"))),
    };
    let client = client::Client::new(&chain.config, url.as_str(), Route::Direct)?;
    let mut attempt = 1;
    loop {
        // Read again for every try: it is replaced while it is in use.
        let headers = headers(chain).await?;
        let (why, is_final) = match client.get(url.as_str(), headers, ONE_TRY).await {
            Ok((200, body)) => match document::read(&body, "container") {
                Ok(credentials) => return Ok(Ok(credentials)),
                Err(why) => (why, false),
            },
            Ok((status, _)) => (format!("it answers the status {status}"), status < 500),
            Err(error) if error.is_timeout() => ("no answer in time".to_owned(), false),
            Err(_) => ("no answer".to_owned(), false),
        };
        if is_final || attempt == TRIES {
            let origin = url.origin().ascii_serialization();
            return Err(unavailable(format!(
                "the container's endpoint {origin} gives no credentials: {why}"
            )));
        }
        sleep(BETWEEN_TRIES * attempt).await;
        attempt += 1;
    }
}

/// A URL that the container's token may be sent to.
fn parse(text: &str, name: &str) -> Result<Url, dispatch_api::SinkError> {
    let url = Url::parse(text.trim()).ok().filter(|url| {
        let own = |address: IpAddr| {
            address.is_loopback() || LINK_LOCAL.contains(&address.to_string().as_str())
        };
        match (url.scheme(), url.host()) {
            ("https", Some(_)) => true,
            ("http", Some(Host::Ipv4(address))) => own(address.into()),
            ("http", Some(Host::Ipv6(address))) => own(address.into()),
            ("http", Some(Host::Domain(name))) => name == "localhost",
            _ => false,
        }
    });
    url.ok_or_else(|| {
        invalid(format!(
            "the environment's {name} is refused: expected an https URL, or an http URL of the \
             host itself, {}",
            LINK_LOCAL.join(" or ")
        ))
    })
}

async fn headers(chain: &Chain) -> Result<HeaderMap, dispatch_api::SinkError> {
    let token = match chain.services.env(TOKEN_FILE) {
        Some(path) => match tokio::fs::read_to_string(&path).await {
            Ok(token) => Some((TOKEN_FILE, token.trim_end().to_owned())),
            Err(error) => {
                return Err(unavailable(format!(
                    "the file that {TOKEN_FILE} names cannot be read: {error}"
                )));
            }
        },
        None => chain.services.env(TOKEN).map(|token| (TOKEN, token)),
    };
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if let Some((name, token)) = token {
        let mut value = HeaderValue::from_str(&token).map_err(|_| {
            invalid(format!(
                "the token of {name} is refused: expected one line that a header can carry"
            ))
        })?;
        value.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, value);
    }
    Ok(headers)
}
