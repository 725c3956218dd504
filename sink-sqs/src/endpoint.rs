//! Queue URLs and the hosts of the service.

use url::Url;

/// Suffixes of the service's hosts by partition, single and dual stack. A longer
/// suffix stands before one that it ends in.
const SUFFIXES: [&str; 10] = [
    "amazonaws.com.cn",
    "api.amazonwebservices.com.cn",
    "amazonaws.com",
    "amazonaws.eu",
    "api.amazonwebservices.eu",
    "api.aws",
    "c2s.ic.gov",
    "sc2s.sgov.gov",
    "cloud.adc-e.uk",
    "csp.hci.ic.gov",
];

const EXAMPLE: &str =
    "expected a URL such as https://sqs.us-east-1.amazonaws.com/123456789012/hooks";

/// A queue's URL, as the service knows it, and what can be read from it.
#[derive(Clone, Debug)]
pub(crate) struct QueueUrl {
    text: String,
    url: Url,
    name: String,
}

impl QueueUrl {
    /// Reads a queue URL; slashes at its end do not count.
    ///
    /// # Errors
    ///
    /// What is wrong with it. The text is never part of that.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().trim_end_matches('/');
        let url = parse_http_url(text, EXAMPLE)?;
        let name = match url.path().rsplit('/').next() {
            Some(name) if !name.is_empty() => name.to_owned(),
            _ => return Err(format!("it names no queue: {EXAMPLE}")),
        };
        if !is_queue_name(&name) {
            return Err(
                "its last part is not a queue name: expected 1 to 80 letters, digits, `-` and \
                 `_`, with `.fifo` at the end of a FIFO queue's"
                    .to_owned(),
            );
        }
        Ok(Self {
            text: text.to_owned(),
            url,
            name,
        })
    }

    /// The URL as it was written, less slashes at the end.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a FIFO queue, whose names alone have this ending.
    pub(crate) fn is_fifo(&self) -> bool {
        self.name.ends_with(".fifo")
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// The URL's origin, where requests go unless an endpoint is configured.
    pub(crate) fn endpoint(&self) -> Url {
        let mut endpoint = self.url.clone();
        endpoint.set_path("/");
        endpoint
    }
}

/// Reads an endpoint: scheme, host and port.
///
/// # Errors
///
/// What is wrong with it. The text is never part of that.
pub(crate) fn parse_endpoint(text: &str) -> Result<Url, String> {
    const EXAMPLE: &str = "expected scheme, host and port only, such as http://127.0.0.1:4566";
    let url = parse_http_url(text.trim(), EXAMPLE)?;
    if url.path().trim_matches('/').is_empty() {
        let mut url = url;
        url.set_path("/");
        Ok(url)
    } else {
        Err(format!("it has a path: {EXAMPLE}"))
    }
}

/// Reads a URL that may hold neither credentials nor a query.
pub(crate) fn parse_http_url(text: &str, example: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| example.to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("its scheme is neither http nor https: {example}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(
            "it holds user information (`user:password@`), which is not accepted in a URL"
                .to_owned(),
        );
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(format!("it has a query or a fragment: {example}"));
    }
    Ok(url)
}

pub(crate) fn is_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(".fifo").unwrap_or(name);
    (1..=80).contains(&name.len())
        && !stem.is_empty()
        && stem
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// Where the service is in a region; none where its hosts have other names.
pub(crate) fn regional_endpoint(region: &str) -> Option<Url> {
    let suffix = match region.split('-').next()? {
        "cn" => "amazonaws.com.cn",
        "us" if region.starts_with("us-iso") => return None,
        "us" | "eu" | "ap" | "sa" | "ca" | "me" | "af" | "il" | "mx" => "amazonaws.com",
        _ => return None,
    };
    if region.starts_with("eu-isoe") || region.starts_with("eusc") {
        return None;
    }
    Url::parse(&format!("https://sqs.{region}.{suffix}/")).ok()
}

/// The region of a host of the service; none for any other host.
pub(crate) fn aws_region(url: &Url) -> Option<&str> {
    let host = url.host_str()?.trim_end_matches('.');
    SUFFIXES.iter().find_map(|suffix| {
        let labels = host.strip_suffix(suffix)?.strip_suffix('.')?;
        region_of_labels(labels, *suffix == "amazonaws.com")
    })
}

/// The region that a host's name shows, also where it only imitates the service's.
pub(crate) fn region_hint(url: &Url) -> Option<&str> {
    aws_region(url).or_else(|| {
        let host = url.host_str()?;
        let region = match host.split_once('.')? {
            ("sqs" | "sqs-fips", rest) => rest.split('.').next()?,
            (region, rest) if rest.starts_with("queue.") => region,
            _ => return None,
        };
        is_region_like(region).then_some(region)
    })
}

fn region_of_labels(labels: &str, is_default_partition: bool) -> Option<&str> {
    if labels == "queue" && is_default_partition {
        return Some("us-east-1");
    }
    let region = if let Some(region) = labels
        .strip_prefix("sqs.")
        .or_else(|| labels.strip_prefix("sqs-fips."))
    {
        region
    } else if let Some(region) = labels.strip_suffix(".queue") {
        region
    } else {
        let (endpoint, region) = labels.strip_suffix(".vpce")?.split_once(".sqs.")?;
        if !endpoint.starts_with("vpce-") {
            return None;
        }
        region
    };
    (!region.is_empty() && !region.contains('.')).then_some(region)
}

/// Letters, hyphens and a digit at the end, as in `eu-west-1`.
fn is_region_like(label: &str) -> bool {
    label.contains('-')
        && label.ends_with(|c: char| c.is_ascii_digit())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_region_of_every_form_of_host_is_known() {
        for (host, region) in [
            ("sqs.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("SQS.EU-WEST-1.AMAZONAWS.COM", Some("eu-west-1")),
            ("sqs.eu-west-1.amazonaws.com.", Some("eu-west-1")),
            ("sqs.eu-west-1.amazonaws.com:443", Some("eu-west-1")),
            ("sqs-fips.us-east-2.amazonaws.com", Some("us-east-2")),
            ("sqs.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("sqs.eu-west-1.api.aws", Some("eu-west-1")),
            ("sqs-fips.us-east-1.api.aws", Some("us-east-1")),
            ("sqs.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            (
                "sqs.cn-northwest-1.api.amazonwebservices.com.cn",
                Some("cn-northwest-1"),
            ),
            ("sqs.eusc-de-east-1.amazonaws.eu", Some("eusc-de-east-1")),
            (
                "sqs.eusc-de-east-1.api.amazonwebservices.eu",
                Some("eusc-de-east-1"),
            ),
            ("sqs.us-iso-east-1.c2s.ic.gov", Some("us-iso-east-1")),
            ("sqs.us-isob-east-1.sc2s.sgov.gov", Some("us-isob-east-1")),
            ("sqs.eu-isoe-west-1.cloud.adc-e.uk", Some("eu-isoe-west-1")),
            (
                "sqs.us-isof-south-1.csp.hci.ic.gov",
                Some("us-isof-south-1"),
            ),
            ("eu-west-1.queue.amazonaws.com", Some("eu-west-1")),
            ("queue.amazonaws.com", Some("us-east-1")),
            (
                "vpce-0a1b2c-d3e4f5.sqs.us-east-1.vpce.amazonaws.com",
                Some("us-east-1"),
            ),
            (
                "vpce-0a1b2c-d3e4f5.sqs.cn-north-1.vpce.amazonaws.com.cn",
                Some("cn-north-1"),
            ),
            ("127.0.0.1:4566", None),
            ("[::1]:4566", None),
            ("localhost", None),
            ("sqs.us-east-1.localhost.localstack.cloud", None),
            ("sns.us-east-1.amazonaws.com", None),
            ("sqs.a.b.amazonaws.com", None),
            ("sqs.us-east-1.amazonaws.com.example.org", None),
            ("sqs.us-east-1.notamazonaws.com", None),
            ("other.sqs.us-east-1.vpce.amazonaws.com", None),
        ] {
            let url = Url::parse(&format!("https://{host}/123456789012/hooks")).unwrap();
            assert_eq!(aws_region(&url), region, "{host}");
        }
    }

    #[test]
    fn a_hint_is_also_taken_from_hosts_that_imitate_the_service() {
        let hint = |url: &str| region_hint(&Url::parse(url).unwrap()).map(ToOwned::to_owned);
        assert_eq!(
            hint("http://sqs.us-east-1.localhost.localstack.cloud:4566/0/q").as_deref(),
            Some("us-east-1")
        );
        assert_eq!(
            hint("http://eu-west-1.queue.localhost.localstack.cloud:4566/0/q").as_deref(),
            Some("eu-west-1")
        );
        assert_eq!(hint("http://sqs.internal/0/q"), None);
        assert_eq!(hint("http://127.0.0.1:4566/0/q"), None);
    }

    #[test]
    fn slashes_at_the_end_do_not_count_and_the_ending_tells_fifo() {
        for text in [
            "https://sqs.us-east-1.amazonaws.com/123456789012/hooks.fifo",
            "https://sqs.us-east-1.amazonaws.com/123456789012/hooks.fifo/",
            " https://sqs.us-east-1.amazonaws.com/123456789012/hooks.fifo// ",
        ] {
            let queue = QueueUrl::parse(text).unwrap();
            assert!(queue.is_fifo());
            assert_eq!(queue.name(), "hooks.fifo");
            assert_eq!(
                queue.as_str(),
                "https://sqs.us-east-1.amazonaws.com/123456789012/hooks.fifo"
            );
        }
        let standard = QueueUrl::parse("http://localhost:9324/queue/hooks_fifo").unwrap();
        assert!(!standard.is_fifo());
        assert_eq!(standard.endpoint().as_str(), "http://localhost:9324/");
    }

    #[test]
    fn a_url_that_cannot_be_a_queue_is_refused_without_being_echoed() {
        for text in [
            "hooks",
            "canary",
            "ftp://canary.example/1/hooks",
            "https://canary:canary@sqs.us-east-1.amazonaws.com/1/hooks",
            "https://canary@sqs.us-east-1.amazonaws.com/1/hooks",
            "https://sqs.us-east-1.amazonaws.com",
            "https://sqs.us-east-1.amazonaws.com/",
            "https://sqs.us-east-1.amazonaws.com/1/hooks?canary=1",
            "https://sqs.us-east-1.amazonaws.com/1/hooks#canary",
            "https://sqs.us-east-1.amazonaws.com/1/canary.standard",
            "https://sqs.us-east-1.amazonaws.com/1/.fifo",
            "https://",
        ] {
            let problem = QueueUrl::parse(text).unwrap_err();
            assert!(!problem.contains("canary"), "{text}: {problem}");
        }
        let long = format!("https://sqs.us-east-1.amazonaws.com/1/{}", "q".repeat(81));
        assert!(QueueUrl::parse(&long).is_err());
        assert!(QueueUrl::parse(&long[..long.len() - 1]).is_ok());
    }

    #[test]
    fn a_region_s_own_endpoint_belongs_to_it() {
        for region in ["us-east-1", "eu-west-3", "cn-north-1", "us-gov-west-1"] {
            let endpoint = regional_endpoint(region).unwrap();
            assert_eq!(aws_region(&endpoint), Some(region));
        }
        for unknown in ["us-iso-east-1", "eusc-de-east-1", "moon-1"] {
            assert_eq!(regional_endpoint(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn an_endpoint_is_an_origin() {
        assert_eq!(
            parse_endpoint("http://127.0.0.1:4566/").unwrap().as_str(),
            "http://127.0.0.1:4566/"
        );
        assert!(parse_endpoint("http://127.0.0.1:4566/000000000000/q").is_err());
        assert!(parse_endpoint("http://u:p@127.0.0.1:4566").is_err());
        assert!(parse_endpoint("127.0.0.1:4566").is_err());
    }
}
