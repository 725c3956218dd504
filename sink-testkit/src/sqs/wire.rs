//! Reading requests: JSON types are taken at their word.

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::error::{ErrorCode, ServiceError};

/// A JSON object. A plain derived struct would also read a list of its members' values.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Map::deserialize(deserializer)?;
        T::deserialize(Value::Object(members))
            .map(Self)
            .map_err(D::Error::custom)
    }
}

/// Reads a request body.
pub(crate) fn parse_body(body: &[u8]) -> Result<Map<String, Value>, ServiceError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(serialization("the body must be a JSON object")),
        Err(error) => Err(serialization(format!("the body is not JSON: {error}"))),
    }
}

/// Reads the members of a request that an operation knows; others are ignored.
pub(crate) fn parse_input<T: DeserializeOwned>(
    members: Map<String, Value>,
) -> Result<T, ServiceError> {
    T::deserialize(Value::Object(members)).map_err(|error| serialization(error.to_string()))
}

fn serialization(message: impl Into<String>) -> ServiceError {
    ServiceError::new(ErrorCode::Serialization, message)
}
