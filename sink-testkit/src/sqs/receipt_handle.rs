//! Receipt handles: text that only the queue that gave it out understands.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// What a handle says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ReceiptHandle {
    /// The queue, told apart from others of the same name before and after.
    pub(crate) queue: u64,
    /// The message's place in that queue.
    pub(crate) arrival: u64,
    /// The receive.
    pub(crate) number: u64,
}

impl ReceiptHandle {
    pub(crate) fn encode(self, key: u64) -> String {
        let mut bytes = Vec::with_capacity(48);
        bytes.extend(self.queue.to_be_bytes());
        bytes.extend(self.arrival.to_be_bytes());
        bytes.extend(self.number.to_be_bytes());
        let seal = seal(&bytes, key);
        bytes.extend(seal);
        STANDARD.encode(bytes)
    }

    /// Reads a handle; nothing when this server never made it.
    pub(crate) fn decode(text: &str, key: u64) -> Option<Self> {
        let bytes = STANDARD.decode(text).ok()?;
        let (content, given) = bytes.split_at_checked(24)?;
        if given != seal(content, key) {
            return None;
        }
        let number = |at: usize| -> Option<u64> {
            Some(u64::from_be_bytes(
                content.get(at..at + 8)?.try_into().ok()?,
            ))
        };
        Some(Self {
            queue: number(0)?,
            arrival: number(8)?,
            number: number(16)?,
        })
    }
}

/// Keeps a handle that was cut, altered or made up from being taken for a real one.
fn seal(content: &[u8], key: u64) -> [u8; 24] {
    let digest = Sha256::new()
        .chain_update(key.to_be_bytes())
        .chain_update(content)
        .finalize();
    let mut seal = [0; 24];
    seal.copy_from_slice(&digest[..24]);
    seal
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HANDLE: ReceiptHandle = ReceiptHandle {
        queue: 1,
        arrival: 2,
        number: 3,
    };

    #[test]
    fn a_handle_comes_back_as_it_was() {
        assert_eq!(ReceiptHandle::decode(&HANDLE.encode(9), 9), Some(HANDLE));
    }

    #[test]
    fn a_handle_of_another_server_is_unknown() {
        assert_eq!(ReceiptHandle::decode(&HANDLE.encode(9), 8), None);
    }

    proptest! {
        #[test]
        fn any_other_text_is_no_handle(text in "\\PC{0,80}") {
            prop_assert_eq!(ReceiptHandle::decode(&text, 9), None);
        }
    }
}
