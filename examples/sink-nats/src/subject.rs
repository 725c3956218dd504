//! Subjects: the template, and what becomes of tenants and sources in it.

use std::fmt::Write as _;
use std::sync::Arc;

use dispatch_api::{Envelope, SinkError, unknown};

/// The longest subject in bytes. A server closes the connection on a line over its
/// `max_control_line`, 4096 by default, and the line also holds the inbox and two sizes.
pub(crate) const MAX_SUBJECT_BYTES: usize = 2_048;

/// A subject whose tokens may be placeholders.
///
/// A placeholder is a whole token and what it stands for never holds a separator, so that
/// two envelopes have the same subject only if they agree on every placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubjectTemplate {
    text: Arc<str>,
    tokens: Vec<Token>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Literal(String),
    TenantId,
    SourceId,
}

impl SubjectTemplate {
    /// Reads a template; `{{` and `}}` stand for the braces themselves.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let tokens = text
            .split('.')
            .map(Token::parse)
            .collect::<Result<Vec<_>, _>>()?;
        if let Some(Token::Literal(first)) = tokens.first()
            && (first.starts_with('$') || first.starts_with("_INBOX"))
        {
            return Err(
                "begins like a subject of the server's own: expected a subject that a \
                        stream of yours takes"
                    .to_owned(),
            );
        }
        let shortest: usize = tokens
            .iter()
            .map(|token| match token {
                Token::Literal(literal) => literal.len() + 1,
                Token::TenantId | Token::SourceId => 2,
            })
            .sum();
        if shortest > MAX_SUBJECT_BYTES {
            return Err(format!("expected at most {MAX_SUBJECT_BYTES} bytes"));
        }
        Ok(Self {
            text: Arc::from(text),
            tokens,
        })
    }

    /// The template as it was written, to be kept.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The template as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The subject of one envelope.
    ///
    /// # Errors
    ///
    /// `Permanent`, code `InvalidSubject`, when it would be too long for a server.
    pub(crate) fn expand(&self, envelope: &Envelope) -> Result<String, SinkError> {
        let mut subject = String::with_capacity(self.text.len() + 32);
        for (index, token) in self.tokens.iter().enumerate() {
            if index > 0 {
                subject.push('.');
            }
            match token {
                Token::Literal(literal) => subject.push_str(literal),
                Token::TenantId => {
                    push_token(&mut subject, envelope.tenant_id().unwrap_or_default());
                }
                Token::SourceId => push_token(&mut subject, envelope.source_id()),
            }
        }
        if subject.len() > MAX_SUBJECT_BYTES {
            return Err(SinkError::permanent(
                "InvalidSubject",
                format!(
                    "the subject has {} bytes, over the maximum of {MAX_SUBJECT_BYTES}: a tenant \
                     or source is too long for it",
                    subject.len()
                ),
            ));
        }
        Ok(subject)
    }
}

impl Token {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "{tenant_id}" => return Ok(Self::TenantId),
            "{source_id}" => return Ok(Self::SourceId),
            "" => {
                return Err(
                    "holds an empty token: expected tokens joined by single dots".to_owned(),
                );
            }
            _ => {}
        }
        if let Some(name) = text
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            && !name.contains(['{', '}'])
        {
            return Err(unknown("placeholder", name, ["tenant_id", "source_id"]));
        }
        let literal = text.replace("{{", "\u{0}").replace("}}", "\u{1}");
        if literal.contains(['{', '}']) {
            return Err(
                "holds a placeholder or brace inside a token: a placeholder is a whole \
                        token, so that no tenant can be taken for another; write `{{` or `}}` for \
                        a brace itself"
                    .to_owned(),
            );
        }
        if text.contains(['*', '>']) {
            return Err("holds a wildcard: messages are published to one subject".to_owned());
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("holds white space or a control character".to_owned());
        }
        Ok(Self::Literal(
            literal.replace('\u{0}', "{").replace('\u{1}', "}"),
        ))
    }
}

/// Appends a value as one token: letters, digits and most punctuation marks as they are,
/// everything else, by UTF-8 byte, as `%` and two hex digits; nothing at all as `%`.
///
/// Different values make different tokens: `%` itself is always written as `%25`.
fn push_token(subject: &mut String, value: &str) {
    if value.is_empty() {
        subject.push('%');
    }
    for byte in value.bytes() {
        if byte.is_ascii_graphic() && !b".*>$%".contains(&byte) {
            subject.push(char::from(byte));
        } else {
            let _ = write!(subject, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const ID: &str = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901";

    fn subject(template: &str, tenant: Option<&str>, source: &str) -> String {
        let mut envelope = Envelope::new(ID.parse().unwrap(), source, 0, "{}");
        if let Some(tenant) = tenant {
            envelope = envelope.with_tenant(tenant);
        }
        SubjectTemplate::parse(template)
            .unwrap()
            .expand(&envelope)
            .unwrap()
    }

    #[test]
    fn placeholders_stand_for_the_tenant_and_the_source() {
        assert_eq!(
            subject("hooks.{tenant_id}.{source_id}", Some("acme"), "git-hub_1"),
            "hooks.acme.git-hub_1"
        );
        assert_eq!(subject("hooks.acme", Some("x"), "y"), "hooks.acme");
        assert_eq!(subject("a{{b}}.c", None, "y"), "a{b}.c");
        assert_eq!(
            subject("hooks.{source_id}", None, "ankusa:lifecycle"),
            "hooks.ankusa:lifecycle"
        );
    }

    #[test]
    fn a_value_stays_one_token_whatever_it_holds() {
        for (tenant, token) in [
            ("a.b", "a%2Eb"),
            ("*", "%2A"),
            (">", "%3E"),
            ("a b", "a%20b"),
            ("a\r\nPUB x", "a%0D%0APUB%20x"),
            ("\u{0}", "%00"),
            ("$SYS", "%24SYS"),
            ("é", "%C3%A9"),
            ("\u{a0}", "%C2%A0"),
            ("100%", "100%25"),
            ("", "%"),
        ] {
            assert_eq!(
                subject("hooks.{tenant_id}", Some(tenant), "s"),
                format!("hooks.{token}"),
                "{tenant:?}"
            );
        }
    }

    #[test]
    fn different_tenants_never_share_a_subject() {
        let nasty = [
            "", "%", "%25", "a", "a.b", "a%2Eb", "a%2eb", ".", "*", ">", " ", "A", "é", "\u{0}",
            "%00",
        ];
        let mut owners = HashMap::new();
        for tenant in nasty {
            for source in nasty {
                let subject = subject("{tenant_id}.{source_id}", Some(tenant), source);
                assert_eq!(subject.split('.').count(), 2, "{subject}");
                assert!(!subject.contains(['*', '>', ' ', '\0']), "{subject}");
                assert_eq!(owners.insert(subject, (tenant, source)), None);
            }
        }
    }

    #[test]
    fn a_template_that_could_mix_tenants_up_or_reach_beyond_is_refused() {
        for (template, problem) in [
            ("hooks.{tenant_id}-{source_id}", "inside a token"),
            ("hooks.x{tenant_id}", "inside a token"),
            ("hooks.{tenant}", "unknown placeholder `tenant`"),
            ("hooks.*", "wildcard"),
            ("hooks.>", "wildcard"),
            ("hooks..a", "empty token"),
            (".hooks", "empty token"),
            ("hooks.", "empty token"),
            ("hooks a", "white space"),
            ("$JS.API.x", "server's own"),
            ("_INBOX.x", "server's own"),
        ] {
            let found = SubjectTemplate::parse(template).unwrap_err();
            assert!(found.contains(problem), "{template}: {found}");
        }
    }

    #[test]
    fn a_subject_that_would_break_the_connection_is_refused_and_not_quoted() {
        let template = SubjectTemplate::parse("hooks.{source_id}").unwrap();
        let envelope = |length| Envelope::new(ID.parse().unwrap(), "s".repeat(length), 0, "{}");
        assert_eq!(template.expand(&envelope(2_042)).unwrap().len(), 2_048);
        let error = template.expand(&envelope(2_043)).unwrap_err();
        assert_eq!(error.code(), "InvalidSubject");
        assert!(!error.to_string().contains("ss"), "{error}");
    }
}
