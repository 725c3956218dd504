//! Room to write a message in before it is escaped into its request.

use std::cell::RefCell;

/// The most that a thread keeps between two messages. Larger ones are rare.
const KEPT: usize = 256 * 1_024;

thread_local! {
    static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Lends this thread's room.
///
/// What waits in a batch is allocated next to each other when nothing as large comes
/// and goes in between; a room that stays keeps the heap whole, and costs no allocation.
pub(crate) fn with_scratch<T>(write: impl FnOnce(&mut String) -> T) -> T {
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => {
            scratch.clear();
            let written = write(&mut scratch);
            if scratch.capacity() > KEPT {
                *scratch = String::new();
            }
            written
        }
        // Somebody's grouping function plans another message meanwhile.
        Err(_) => write(&mut String::new()),
    })
}
