//! The JSON document in which a container's endpoint and an instance's metadata hand out
//! keys.

use std::collections::HashMap;
use std::time::SystemTime;

use aws_smithy_types::date_time::{DateTime, Format};
use serde_json::Value;

use super::super::Credentials;

/// The keys in a document, or what is wrong with it. Its text is never shown.
pub(super) fn read(document: &[u8], provider: &'static str) -> Result<Credentials, String> {
    let members: HashMap<String, Value> =
        serde_json::from_slice(document).map_err(|_| "its answer is no JSON object".to_owned())?;
    let members: HashMap<String, Value> = members
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect();
    let text = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| members.get(*name)?.as_str())
            .filter(|text| !text.is_empty())
    };
    if let Some(code) = text(&["code"])
        && code != "Success"
    {
        return Err(format!("it answers the code {}", super::printable(code)));
    }
    let required = |names: &[&str]| {
        text(names).ok_or_else(|| format!("its answer has no {}", names.join(" or ")))
    };
    let end = match text(&["expiration", "expiresat"]) {
        None => None,
        Some(end) => Some(
            DateTime::from_str(end, Format::DateTimeWithOffset)
                .ok()
                .and_then(|end| SystemTime::try_from(end).ok())
                .ok_or("its answer's expiration is no time")?,
        ),
    };
    Credentials::handed_out(
        required(&["accesskeyid"])?,
        required(&["secretaccesskey"])?,
        text(&["token", "sessiontoken"]),
        end,
        provider,
    )
    .map_err(|error| error.text().to_owned())
}
