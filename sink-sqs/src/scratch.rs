//! Room to write a message in before it goes into its request.

use std::cell::RefCell;

/// The most that a thread keeps between two messages. Larger ones are rare.
const KEPT: usize = 256 * 1_024;

/// A message's text, and the same as a JSON string.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) text: String,
    pub(crate) quoted: String,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch { text: String::new(), quoted: String::new() })
    };
}

/// Lends this thread's room, which is empty.
///
/// What waits in a batch is allocated next to each other when nothing as large comes
/// and goes in between; a room that stays keeps the heap whole, and costs no allocation.
pub(crate) fn with_scratch<T>(write: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            scratch.text.clear();
            scratch.quoted.clear();
            let written = write(&mut scratch);
            if scratch.quoted.capacity() > KEPT {
                *scratch = Scratch::default();
            }
            written
        }
        // Somebody's grouping function plans another message meanwhile.
        Err(_) => write(&mut Scratch::default()),
    })
}
