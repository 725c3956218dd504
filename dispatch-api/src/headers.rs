//! Which headers of a hook travel with its message.

use std::borrow::Cow;

use crate::envelope::HeaderField;

/// Names that are never forwarded, whatever a host configures: credentials, and
/// headers that belong to one connection or describe the original body.
const NEVER: [&str; 14] = [
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
];

/// Every name that begins so is never forwarded either.
const NEVER_PREFIX: &str = "x-ankusa-";

/// Which headers are forwarded.
///
/// Whatever the choice, `authorization`, `proxy-authorization`, `cookie`,
/// `x-api-key`, the headers of one connection (`host`, `connection`,
/// `keep-alive`, `transfer-encoding`, `te`, `trailer`, `upgrade`, `expect`),
/// `content-length`, `content-type` (a field of its own in the message) and
/// every name that begins with `x-ankusa-` stay behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderForwarding {
    /// All headers but those that never are.
    #[default]
    Default,
    /// These names, in any letter case, less those that never are. An empty
    /// list forwards nothing.
    Only(Vec<String>),
}

impl HeaderForwarding {
    /// Forwards nothing.
    #[must_use]
    pub const fn none() -> Self {
        Self::Only(Vec::new())
    }

    /// The headers to forward: names in lower case, values of a repeated name
    /// joined by `, ` in order of arrival.
    #[must_use]
    pub fn apply<'a>(&self, headers: &'a [HeaderField]) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        let mut forwarded: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        if *self == Self::none() {
            return forwarded;
        }
        forwarded.reserve(headers.len());
        for header in headers {
            let name = lower_case(header.name());
            if !self.allows(&name) {
                continue;
            }
            match forwarded.iter_mut().find(|(known, _)| *known == name) {
                Some((_, value)) => {
                    let joined = value.to_mut();
                    joined.push_str(", ");
                    joined.push_str(header.value());
                }
                None => forwarded.push((name, Cow::Borrowed(header.value()))),
            }
        }
        forwarded
    }

    fn allows(&self, lower_case_name: &str) -> bool {
        if NEVER.binary_search(&lower_case_name).is_ok()
            || lower_case_name.starts_with(NEVER_PREFIX)
        {
            return false;
        }
        match self {
            Self::Default => true,
            Self::Only(names) => names
                .iter()
                .any(|name| name.eq_ignore_ascii_case(lower_case_name)),
        }
    }
}

fn lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&str, &str)]) -> Vec<HeaderField> {
        fields
            .iter()
            .map(|(name, value)| HeaderField::new(*name, *value))
            .collect()
    }

    fn forward(forwarding: &HeaderForwarding, fields: &[(&str, &str)]) -> Vec<(String, String)> {
        forwarding
            .apply(&headers(fields))
            .into_iter()
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect()
    }

    fn pairs(fields: &[(&str, &str)]) -> Vec<(String, String)> {
        fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_list_of_names_that_never_travel_is_sorted_for_its_search() {
        assert!(NEVER.is_sorted());
    }

    #[test]
    fn names_are_lowered_and_repeats_joined_in_order_of_arrival() {
        assert_eq!(
            forward(
                &HeaderForwarding::Default,
                &[("X-Multi", "b"), ("Accept", "*/*"), ("x-multi", "a")]
            ),
            pairs(&[("x-multi", "b, a"), ("accept", "*/*")])
        );
    }

    #[test]
    fn credentials_connection_headers_and_our_own_prefix_never_travel() {
        let mut all: Vec<(&str, &str)> = NEVER.iter().map(|name| (*name, "v")).collect();
        all.push(("AUTHORIZATION", "v"));
        all.push(("X-Ankusa-Id", "v"));
        all.push(("x-ankusa-", "v"));
        assert_eq!(forward(&HeaderForwarding::Default, &all), pairs(&[]));
        let listed =
            HeaderForwarding::Only(all.iter().map(|(name, _)| (*name).to_owned()).collect());
        assert_eq!(forward(&listed, &all), pairs(&[]));
    }

    #[test]
    fn a_list_forwards_the_named_ones_in_any_case() {
        let only = HeaderForwarding::Only(vec!["X-GitHub-Event".to_owned()]);
        assert_eq!(
            forward(&only, &[("x-github-EVENT", "push"), ("accept", "*/*")]),
            pairs(&[("x-github-event", "push")])
        );
    }

    #[test]
    fn an_empty_list_forwards_nothing() {
        assert_eq!(
            forward(&HeaderForwarding::none(), &[("accept", "*/*")]),
            pairs(&[])
        );
    }
}
