//! Message group ids: where they come from, and what SQS takes.

use std::fmt;
use std::sync::Arc;

use dispatch_api::{Envelope, unknown};

/// The most characters of a group id or a deduplication id.
pub(crate) const ID_MAX_CHARS: usize = 128;

type GroupFn = dyn Fn(&Envelope) -> String + Send + Sync;

/// Where a message's group id comes from.
#[derive(Clone)]
pub(crate) enum Grouping {
    /// No group id: a standard queue without `message_group_id`.
    None,
    /// `tenant/source`: a FIFO queue without `message_group_id`.
    TenantAndSource,
    /// The option `message_group_id`.
    Template(Template),
    /// A closure of the program's own.
    With(Arc<GroupFn>),
}

impl Grouping {
    pub(crate) fn group_id(&self, envelope: &Envelope) -> Option<String> {
        match self {
            Self::None => None,
            Self::TenantAndSource => {
                let tenant = envelope.tenant_id().unwrap_or_default();
                Some(format!("{tenant}/{}", envelope.source_id()))
            }
            Self::Template(template) => Some(template.expand(envelope)),
            Self::With(group) => Some(group(envelope)),
        }
    }
}

impl fmt::Debug for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::TenantAndSource => f.write_str("TenantAndSource"),
            Self::Template(template) => f.debug_tuple("Template").field(template).finish(),
            Self::With(_) => f.write_str("With(closure)"),
        }
    }
}

/// A group id with placeholders, such as `{tenant_id}/{source_id}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    TenantId,
    SourceId,
}

impl Template {
    /// Reads a template; `{{` and `}}` stand for the braces themselves.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        const LONE: &str = "a lone brace: write `{tenant_id}` or `{source_id}`, and `{{` or `}}` \
                            for a brace itself";
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let from_brace = &rest[at..];
            if let Some(after) = from_brace.strip_prefix("{{") {
                literal.push('{');
                rest = after;
            } else if let Some(after) = from_brace.strip_prefix("}}") {
                literal.push('}');
                rest = after;
            } else if let Some(inside) = from_brace.strip_prefix('{')
                && let Some((name, after)) = inside.split_once('}')
            {
                let placeholder = match name {
                    "tenant_id" => Piece::TenantId,
                    "source_id" => Piece::SourceId,
                    _ if name.contains('{') => return Err(LONE.to_owned()),
                    _ => return Err(unknown("placeholder", name, ["tenant_id", "source_id"])),
                };
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(placeholder);
                rest = after;
            } else {
                return Err(LONE.to_owned());
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal));
        }
        let template = Self(pieces);
        template.check_literals()?;
        Ok(template)
    }

    /// Everything that no envelope can change.
    fn check_literals(&self) -> Result<(), String> {
        let mut length = 0;
        for piece in &self.0 {
            if let Piece::Literal(literal) = piece {
                length += literal.chars().count();
                if let Some(refused) = literal.chars().find(|c| !c.is_ascii_graphic()) {
                    return Err(Fault::Character(refused).to_string());
                }
            }
        }
        match length {
            0..=ID_MAX_CHARS => Ok(()),
            _ => Err(Fault::Long(length).to_string()),
        }
    }

    fn expand(&self, envelope: &Envelope) -> String {
        let mut id = String::new();
        for piece in &self.0 {
            id.push_str(match piece {
                Piece::Literal(literal) => literal,
                Piece::TenantId => envelope.tenant_id().unwrap_or_default(),
                Piece::SourceId => envelope.source_id(),
            });
        }
        id
    }
}

/// What is wrong with a group id or a deduplication id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Empty,
    Long(usize),
    Character(char),
}

/// Checks a group id or a deduplication id, which follow one rule.
pub(crate) fn check_id(id: &str) -> Result<(), Fault> {
    if id.is_empty() {
        return Err(Fault::Empty);
    }
    if let Some(refused) = id.chars().find(|c| !c.is_ascii_graphic()) {
        return Err(Fault::Character(refused));
    }
    match id.len() {
        1..=ID_MAX_CHARS => Ok(()),
        length => Err(Fault::Long(length)),
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Empty => f.write_str("it is empty")?,
            Self::Long(length) => write!(f, "it has {length} characters")?,
            Self::Character(c) => write!(f, "it holds U+{:04X}", u32::from(c))?,
        }
        f.write_str(
            "; expected 1 to 128 letters, digits and ASCII punctuation marks, without a space",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(tenant: Option<&str>) -> Envelope {
        let id = "0199f3a0-4c11-7b2e-9d10-6f2a7c55e901".parse().unwrap();
        let envelope = Envelope::new(id, "harbor", 0, "{}");
        match tenant {
            Some(tenant) => envelope.with_tenant(tenant),
            None => envelope,
        }
    }

    #[test]
    fn the_default_group_is_tenant_and_source() {
        let group = |tenant| Grouping::TenantAndSource.group_id(&envelope(tenant));
        assert_eq!(group(Some("quay-7")).as_deref(), Some("quay-7/harbor"));
        assert_eq!(group(None).as_deref(), Some("/harbor"));
    }

    #[test]
    fn placeholders_are_filled_and_doubled_braces_are_braces() {
        for (template, expected) in [
            ("{tenant_id}/{source_id}", "quay-7/harbor"),
            ("{source_id}", "harbor"),
            ("a-{tenant_id}-b", "a-quay-7-b"),
            ("{{{source_id}}}", "{harbor}"),
            ("all", "all"),
        ] {
            let template = Template::parse(template).unwrap();
            assert_eq!(template.expand(&envelope(Some("quay-7"))), expected);
        }
    }

    #[test]
    fn an_unknown_placeholder_is_answered_with_the_nearest_known_one() {
        let problem = Template::parse("{tenat_id}").unwrap_err();
        assert!(
            problem.contains("did you mean `tenant_id`"),
            "problem: {problem}"
        );
        assert!(Template::parse("{}").is_err());
    }

    #[test]
    fn a_lone_brace_is_refused() {
        for text in [
            "{",
            "}",
            "a{tenant_id",
            "tenant_id}",
            "{tenant_id}}",
            "{a{tenant_id}",
        ] {
            let problem = Template::parse(text).unwrap_err();
            assert!(problem.starts_with("a lone brace"), "{text}: {problem}");
        }
    }

    #[test]
    fn a_constant_that_sqs_refuses_is_found_at_build() {
        assert!(Template::parse("two words").unwrap_err().contains("U+0020"));
        assert!(Template::parse("é").unwrap_err().contains("U+00E9"));
        assert!(Template::parse(&"g".repeat(128)).is_ok());
        assert!(
            Template::parse(&"g".repeat(129))
                .unwrap_err()
                .contains("129 characters")
        );
    }

    #[test]
    fn every_printable_ascii_character_but_the_space_is_taken() {
        for byte in 0..=0x7f_u8 {
            let id = char::from(byte).to_string();
            assert_eq!(
                check_id(&id).is_ok(),
                (0x21..=0x7e).contains(&byte),
                "{byte:#x}"
            );
        }
    }

    #[test]
    fn an_id_has_1_to_128_characters() {
        assert_eq!(check_id(""), Err(Fault::Empty));
        assert_eq!(check_id(&"i".repeat(128)), Ok(()));
        assert_eq!(check_id(&"i".repeat(129)), Err(Fault::Long(129)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_template_or_a_problem(text in "[{}a_d-nt ]{0,30}|.{0,20}") {
            if let Ok(template) = Template::parse(&text) {
                template.expand(&envelope(None));
            }
        }
    }
}
