//! From the service's error codes, in all their spellings, to what a caller may do.

mod table;

use self::table::TABLE;

/// What a code means for the caller, before a pause is worked out.
///
/// The class follows the code, then the HTTP status; the sender/receiver half of
/// `x-amzn-query-error` never decides, because throttles count as the sender's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Permanent,
    Config,
    Throttled,
    Transient,
}

/// The code of an error whose name the table does not know. The name itself is
/// in the text: a code fits a metric label, and a service can invent names.
pub(crate) const UNKNOWN_CODE: &str = "ServiceError";

/// What the table says about one error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) code: &'static str,
    pub(crate) kind: Kind,
    pub(crate) hint: &'static str,
}

/// Judges an error by the spellings of its code, the most trusted first, and the
/// HTTP status: of the answer, or 200 for an entry of a batch.
pub(crate) fn classify<'a>(spellings: impl IntoIterator<Item = &'a str>, status: u16) -> Verdict {
    let known = spellings
        .into_iter()
        .find_map(|spelling| lookup(normalise(spelling)));
    let verdict = known.unwrap_or(Verdict {
        code: UNKNOWN_CODE,
        kind: Kind::Transient,
        hint: "the service answered with a code that this sink does not know",
    });
    // A row that is transient for want of a better class knows less than the status.
    if verdict.kind == Kind::Transient && is_throttle_status(status) {
        return Verdict {
            kind: Kind::Throttled,
            ..verdict
        };
    }
    verdict
}

/// Whether a status asks for a pause by itself.
pub(crate) const fn is_throttle_status(status: u16) -> bool {
    matches!(status, 429 | 503)
}

/// A code without namespace, documentation link, legacy prefix and `Exception`.
pub(crate) fn normalise(spelling: &str) -> &str {
    let code = spelling
        .split_once(':')
        .map_or(spelling, |(code, _link)| code);
    let code = code
        .rsplit_once('#')
        .map_or(code, |(_namespace, code)| code);
    let code = code.trim();
    let code = code.strip_prefix("AWS.SimpleQueueService.").unwrap_or(code);
    code.strip_suffix("Exception").unwrap_or(code)
}

fn lookup(code: &str) -> Option<Verdict> {
    TABLE
        .iter()
        .find(|row| row.code == code || row.aliases.contains(&code))
        .map(|row| Verdict {
            code: row.code,
            kind: row.kind,
            hint: row.hint,
        })
}

#[cfg(test)]
mod tests {
    use super::table::Row;
    use super::*;
    use std::collections::BTreeSet;

    use Kind::{Config, Permanent, Throttled, Transient};

    /// Every code of the service's model and of its documentation, as it is written
    /// there, with the class that a send gets.
    #[rustfmt::skip]
    const GOLDEN: &[(&str, &str, Kind)] = &[
        ("QueueDoesNotExist", "QueueDoesNotExist", Config),
        ("NonExistentQueue", "QueueDoesNotExist", Config),
        ("AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", Config),
        ("InvalidMessageContents", "InvalidMessageContents", Permanent),
        ("BatchRequestTooLong", "BatchRequestTooLong", Transient),
        ("BatchEntryIdsNotDistinct", "BatchEntryIdsNotDistinct", Transient),
        ("EmptyBatchRequest", "EmptyBatchRequest", Transient),
        ("InvalidBatchEntryId", "InvalidBatchEntryId", Transient),
        ("TooManyEntriesInBatchRequest", "TooManyEntriesInBatchRequest", Transient),
        ("UnsupportedOperation", "UnsupportedOperation", Transient),
        ("InvalidAttributeName", "InvalidAttributeName", Permanent),
        ("InvalidAttributeValue", "InvalidAttributeValue", Permanent),
        ("InvalidIdFormat", "InvalidIdFormat", Transient),
        ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", Transient),
        ("MessageNotInflight", "MessageNotInflight", Transient),
        ("InvalidAddress", "InvalidAddress", Transient),
        ("InvalidSecurity", "InvalidSecurity", Transient),
        ("OverLimit", "OverLimit", Transient),
        ("RequestThrottled", "RequestThrottled", Throttled),
        ("KmsThrottled", "KmsThrottled", Throttled),
        ("KMS.ThrottlingException", "KmsThrottled", Throttled),
        ("KmsAccessDenied", "KmsAccessDenied", Transient),
        ("KMS.AccessDeniedException", "KmsAccessDenied", Transient),
        ("KmsDisabled", "KmsDisabled", Transient),
        ("KMS.DisabledException", "KmsDisabled", Transient),
        ("KmsInvalidKeyUsage", "KmsInvalidKeyUsage", Transient),
        ("KMS.InvalidKeyUsageException", "KmsInvalidKeyUsage", Transient),
        ("KmsInvalidState", "KmsInvalidState", Transient),
        ("KMS.InvalidStateException", "KmsInvalidState", Transient),
        ("KmsNotFound", "KmsNotFound", Transient),
        ("KMS.NotFoundException", "KmsNotFound", Transient),
        ("KmsOptInRequired", "KmsOptInRequired", Transient),
        ("KMS.OptInRequired", "KmsOptInRequired", Transient),
        ("QueueNameExists", "QueueNameExists", Transient),
        ("QueueAlreadyExists", "QueueNameExists", Transient),
        ("QueueDeletedRecently", "QueueDeletedRecently", Transient),
        ("PurgeQueueInProgress", "PurgeQueueInProgress", Transient),
        ("ResourceNotFoundException", "ResourceNotFound", Transient),
        ("InvalidParameterValueException", "InvalidParameterValue", Permanent),
        ("InvalidParameterValue", "InvalidParameterValue", Permanent),
        ("MissingRequiredParameterException", "MissingRequiredParameter", Permanent),
        ("MissingParameter", "MissingRequiredParameter", Permanent),
        ("UnknownOperationException", "UnknownOperation", Transient),
        ("InvalidAction", "UnknownOperation", Transient),
        ("SerializationException", "Serialization", Transient),
        ("MalformedInput", "Serialization", Transient),
        ("AccessDeniedException", "AccessDenied", Config),
        ("AccessDenied", "AccessDenied", Config),
        ("UnrecognizedClientException", "UnrecognizedClient", Config),
        ("InvalidClientTokenId", "UnrecognizedClient", Config),
        ("InvalidAccessKeyId", "InvalidAccessKeyId", Config),
        ("InvalidSignatureException", "InvalidSignature", Config),
        ("SignatureDoesNotMatch", "InvalidSignature", Config),
        ("IncompleteSignatureException", "IncompleteSignature", Config),
        ("MissingAuthenticationToken", "IncompleteSignature", Config),
        ("MissingAuthenticationTokenException", "IncompleteSignature", Config),
        ("ExpiredTokenException", "ExpiredToken", Transient),
        ("ExpiredToken", "ExpiredToken", Transient),
        ("InternalFailure", "InternalFailure", Transient),
        ("InternalError", "InternalFailure", Transient),
        ("ServiceUnavailable", "ServiceUnavailable", Throttled),
        ("RequestEntityTooLargeException", "RequestEntityTooLarge", Transient),
        ("OptInRequired", "OptInRequired", Transient),
        ("NotAuthorized", "NotAuthorized", Transient),
        ("RequestExpired", "RequestExpired", Transient),
        ("ValidationError", "ValidationError", Transient),
        ("RequestTimeout", "RequestTimeout", Transient),
        ("RequestTimeoutException", "RequestTimeout", Transient),
        ("AuthFailure", "AuthFailure", Transient),
        ("RequestTimeTooSkewed", "RequestTimeTooSkewed", Transient),
        ("Throttling", "Throttling", Throttled),
        ("ThrottlingException", "Throttling", Throttled),
        ("ThrottledException", "Throttling", Throttled),
        ("RequestThrottledException", "RequestThrottled", Throttled),
        ("TooManyRequestsException", "Throttling", Throttled),
        ("ProvisionedThroughputExceededException", "Throttling", Throttled),
        ("TransactionInProgressException", "Throttling", Throttled),
        ("RequestLimitExceeded", "Throttling", Throttled),
        ("BandwidthLimitExceeded", "Throttling", Throttled),
        ("LimitExceededException", "Throttling", Throttled),
        ("SlowDown", "Throttling", Throttled),
        ("PriorRequestNotComplete", "Throttling", Throttled),
        ("EC2ThrottledException", "Throttling", Throttled),
    ];

    fn spellings(name: &str) -> Vec<String> {
        let bare = name.strip_prefix("AWS.SimpleQueueService.").unwrap_or(name);
        let bare = bare.strip_suffix("Exception").unwrap_or(bare);
        let mut spellings = vec![
            name.to_owned(),
            bare.to_owned(),
            format!("{bare}Exception"),
            format!("com.amazonaws.sqs#{name}"),
            format!("com.amazon.coral.service#{bare}Exception"),
            format!("com.amazon.coral.availability#{bare}Exception"),
            format!("AWS.SimpleQueueService.{bare}"),
            format!("com.amazonaws.sqs#AWS.SimpleQueueService.{bare}"),
        ];
        for index in 0..spellings.len() {
            spellings.push(format!(
                "{}:http://internal.example/doc#x",
                spellings[index]
            ));
        }
        spellings
    }

    #[test]
    fn every_code_in_every_spelling_has_the_golden_class() {
        for &(name, code, kind) in GOLDEN {
            for spelling in spellings(name) {
                for status in [200, 400, 403, 404, 413, 500] {
                    let verdict = classify([spelling.as_str()], status);
                    assert_eq!((verdict.code, verdict.kind), (code, kind), "{spelling}");
                }
            }
        }
    }

    #[test]
    fn every_row_of_the_table_is_in_the_golden_list() {
        let golden: BTreeSet<&str> = GOLDEN.iter().map(|(_, code, _)| *code).collect();
        let rows: BTreeSet<&str> = TABLE.iter().map(|row| row.code).collect();
        assert_eq!(rows, golden);
        assert_eq!(rows.len(), TABLE.len(), "a code has two rows");
    }

    #[test]
    fn the_readme_has_every_row() {
        let readme = include_str!("../../README.md");
        for Row {
            code, kind, hint, ..
        } in TABLE
        {
            let (class, outcome) = match kind {
                Permanent => ("permanent", "not stored"),
                Config => ("config", "not stored"),
                Throttled => ("retry after", "by status"),
                Transient if *code == "InternalFailure" => ("transient", "unknown"),
                Transient => ("transient", "by status"),
            };
            let row = format!("| `{code}` | {class} | {outcome} | {hint} |");
            assert!(readme.contains(&row), "{row}");
        }
    }

    #[test]
    fn no_name_stands_in_two_rows() {
        let mut seen = BTreeSet::new();
        for row in TABLE {
            for name in row.aliases.iter().chain([&row.code]) {
                assert!(seen.insert(name), "{name}");
                assert_eq!(normalise(name), *name, "a row is written normalised");
            }
        }
    }

    #[test]
    fn hints_are_lower_case_without_a_final_dot() {
        for row in TABLE {
            assert!(row.hint.starts_with(|c: char| c.is_lowercase()), "{row:?}");
            assert!(!row.hint.ends_with('.'), "{row:?}");
        }
    }

    #[test]
    fn a_known_fallback_decides_when_the_first_spelling_is_unknown() {
        let verdict = classify(["Sender", "AWS.SimpleQueueService.NonExistentQueue"], 400);
        assert_eq!(verdict.code, "QueueDoesNotExist");
        let verdict = classify(["AccessDeniedException", "InvalidAction"], 403);
        assert_eq!(verdict.code, "AccessDenied", "the first known one decides");
    }

    #[test]
    fn an_unknown_code_is_transient_under_one_stable_name() {
        for spelling in ["", "Exception", "BrandNew", "com.amazonaws.sqs#"] {
            let verdict = classify([spelling], 400);
            assert_eq!((verdict.code, verdict.kind), (UNKNOWN_CODE, Transient));
        }
    }

    #[test]
    fn statuses_429_and_503_ask_for_a_pause_unless_the_code_knows_better() {
        for status in [429, 503] {
            assert_eq!(classify(["BrandNew"], status).kind, Throttled);
            assert_eq!(classify(["InternalFailure"], status).kind, Throttled);
            assert_eq!(classify(["AccessDenied"], status).kind, Config);
            assert_eq!(classify(["InvalidMessageContents"], status).kind, Permanent);
        }
    }
}
