//! Queue URLs: how they are made, and which of them this server answers to.

use std::net::SocketAddr;

use super::error::{ErrorCode, ServiceError, queue_does_not_exist};

/// Where a server can be reached, and in whose name.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) account: String,
    pub(crate) region: String,
}

impl Site {
    pub(crate) fn endpoint(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // Nobody can connect to "any address"; the loopback is one of them.
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("http://{address}")
    }

    pub(crate) fn queue_url(&self, name: &str) -> String {
        format!("{}/{}/{name}", self.endpoint(), self.account)
    }

    pub(crate) fn queue_arn(&self, name: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{name}", self.region, self.account)
    }

    /// The name of the queue in an ARN of this region and account.
    pub(crate) fn name_in_arn<'a>(&self, arn: &'a str) -> Option<&'a str> {
        arn.strip_prefix(self.queue_arn("").as_str())
            .filter(|name| !name.is_empty())
    }

    /// The name of the queue that a request means. `host` is the request's own `Host`.
    pub(crate) fn name_in_url<'a>(
        &self,
        url: Option<&'a str>,
        host: Option<&str>,
    ) -> Result<&'a str, ServiceError> {
        let url = url
            .filter(|url| !url.is_empty())
            .ok_or_else(queue_does_not_exist)?;
        if !url.contains('/') {
            return Ok(url);
        }
        let (authority, path) = url
            .strip_prefix("http://")
            .and_then(|rest| rest.split_once('/'))
            .ok_or_else(invalid_address)?;
        if !self.is_ours(authority, host) {
            return Err(invalid_address());
        }
        match path.split_once('/') {
            Some((account, name)) if !name.is_empty() && !name.contains('/') => {
                if account == self.account {
                    Ok(name)
                } else {
                    Err(queue_does_not_exist())
                }
            }
            _ => Err(invalid_address()),
        }
    }

    /// The name of the queue in the path of a request; the outer option is for paths of no kind we know.
    pub(crate) fn name_in_path<'a>(&self, path: &'a str) -> Option<Option<&'a str>> {
        if path == "/" {
            return Some(None);
        }
        let name = path
            .strip_prefix('/')?
            .strip_prefix(self.account.as_str())?
            .strip_prefix('/')?;
        (!name.is_empty() && !name.contains('/')).then_some(Some(name))
    }

    fn is_ours(&self, authority: &str, host: Option<&str>) -> bool {
        let ip = self.address.ip();
        if authority == self.address.to_string() {
            return true;
        }
        if ip.is_unspecified() && host == Some(authority) {
            return true;
        }
        let loopback = authority.rsplit_once(':').is_some_and(|(name, port)| {
            matches!(name, "127.0.0.1" | "localhost" | "[::1]")
                && port == self.address.port().to_string()
        });
        loopback && (ip.is_loopback() || ip.is_unspecified())
    }
}

fn invalid_address() -> ServiceError {
    ServiceError::new(
        ErrorCode::InvalidAddress,
        "the queue URL is not one of this endpoint",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site() -> Site {
        Site {
            address: "127.0.0.1:9324".parse().unwrap(),
            account: "000000000000".into(),
            region: "us-east-1".into(),
        }
    }

    #[test]
    fn a_queue_is_meant_by_its_url_on_any_loopback_name_or_by_its_bare_name() {
        for url in [
            "http://127.0.0.1:9324/000000000000/q",
            "http://localhost:9324/000000000000/q",
            "http://[::1]:9324/000000000000/q",
            "q",
        ] {
            assert_eq!(site().name_in_url(Some(url), None), Ok("q"), "{url}");
        }
    }

    #[test]
    fn a_missing_or_empty_url_or_one_of_another_account_means_no_queue() {
        for url in [None, Some(""), Some("http://127.0.0.1:9324/111111111111/q")] {
            let error = site().name_in_url(url, None).unwrap_err();
            assert_eq!(error.code(), ErrorCode::QueueDoesNotExist, "{url:?}");
        }
    }

    #[test]
    fn a_url_of_another_host_port_scheme_or_shape_is_an_invalid_address() {
        for url in [
            "http://sqs.eu-west-1.amazonaws.com/000000000000/q",
            "http://127.0.0.1:9325/000000000000/q",
            "http://127.0.0.1/000000000000/q",
            "https://127.0.0.1:9324/000000000000/q",
            "http://127.0.0.1:9324/q",
            "http://127.0.0.1:9324/000000000000/q/",
            "http://127.0.0.1:9324",
            "/000000000000/q",
        ] {
            let error = site().name_in_url(Some(url), None).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidAddress, "{url}");
        }
    }

    #[test]
    fn a_server_on_every_address_answers_to_the_name_it_was_called_by() {
        let site = Site {
            address: "0.0.0.0:9324".parse().unwrap(),
            ..site()
        };
        let url = Some("http://sqs.test:9324/000000000000/q");
        assert_eq!(site.name_in_url(url, Some("sqs.test:9324")), Ok("q"));
        assert!(site.name_in_url(url, Some("other:9324")).is_err());
        assert_eq!(site.endpoint(), "http://127.0.0.1:9324");
    }
}
