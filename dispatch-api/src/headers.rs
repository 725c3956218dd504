//! Which headers of a hook travel with its message.

use std::borrow::Cow;
use std::collections::HashMap;

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

/// Up to so many headers of one hook are compared with each other.
const COMPARED_AT_MOST: usize = 16;

/// Every name that begins so is never forwarded either.
const NEVER_PREFIX: &str = "x-ankusa-";

/// Which headers are forwarded.
///
/// Whatever the choice, `authorization`, `proxy-authorization`, `cookie`,
/// `x-api-key`, the headers of one connection (`host`, `connection`,
/// `keep-alive`, `transfer-encoding`, `te`, `trailer`, `upgrade`, `expect`),
/// `content-length`, `content-type` (a field of its own in the message), every name
/// that begins with `x-ankusa-`, and every name that is no token (RFC 9110, section
/// 5.1) and so may be one of these in disguise, stay behind.
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
        // Few headers are compared one by one; of many, a hostile sender's, each is found
        // by its hash.
        let mut places: Option<HashMap<Cow<'a, str>, usize>> =
            (headers.len() > COMPARED_AT_MOST).then(|| HashMap::with_capacity(headers.len()));
        for header in headers {
            let Some(name) = lower_case(header.name()) else {
                continue;
            };
            if !self.allows(&name) {
                continue;
            }
            let place = match &places {
                Some(places) => places.get(&name).copied(),
                None => forwarded.iter().position(|(earlier, _)| *earlier == name),
            };
            match place {
                Some(place) => {
                    let joined = forwarded[place].1.to_mut();
                    joined.push_str(", ");
                    joined.push_str(header.value());
                }
                None => {
                    if let Some(places) = &mut places {
                        places.insert(name.clone(), forwarded.len());
                    }
                    forwarded.push((name, Cow::Borrowed(header.value())));
                }
            }
        }
        forwarded
    }

    fn allows(&self, lower_case_name: &str) -> bool {
        if NEVER.contains(&lower_case_name) || lower_case_name.starts_with(NEVER_PREFIX) {
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

/// Whether a text is a header's name: a token of RFC 9110, section 5.1.
#[must_use]
pub fn is_header_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| LOWERED[usize::from(byte)] != 0)
}

/// Every byte that a header's name may hold in lower case, and 0 for any other.
static LOWERED: [u8; 256] = {
    let mut lowered = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            lowered[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    let marks = b"!#$%&'*+-.^_`|~";
    let mut place = 0;
    while place < marks.len() {
        lowered[marks[place] as usize] = marks[place];
        place += 1;
    }
    lowered
};

/// A header's name in lower case; none for what is no name.
fn lower_case(name: &str) -> Option<Cow<'_, str>> {
    let (mut is_name, mut is_lower) = (!name.is_empty(), true);
    for byte in name.bytes() {
        let lowered = LOWERED[usize::from(byte)];
        is_name &= lowered != 0;
        is_lower &= lowered == byte;
    }
    is_name.then(|| match is_lower {
        true => Cow::Borrowed(name),
        false => Cow::Owned(name.to_ascii_lowercase()),
    })
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
    fn a_credential_in_disguise_does_not_travel() {
        for name in [
            "authorization ",
            " cookie",
            "x-api-key:",
            "authorization\u{0}",
            "",
            "ä",
        ] {
            assert_eq!(
                forward(&HeaderForwarding::Default, &[(name, "secret")]),
                pairs(&[]),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_hundred_thousand_headers_are_joined_by_name() {
        let many: Vec<HeaderField> = (0..100_000)
            .map(|number| HeaderField::new(format!("x-{}", number % 50_000), "v"))
            .collect();
        let forwarded = HeaderForwarding::Default.apply(&many);
        assert_eq!(forwarded.len(), 50_000);
        assert!(forwarded.iter().all(|(_, value)| value == "v, v"));
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
