//! Listening to panics on the thread of a case.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::panic;
use std::sync::Once;

thread_local! {
    /// What panics of this thread said, while somebody listens.
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Takes what the panic hook would print on this thread, until it is dropped.
///
/// The first one in a process installs the hook that does it; panics that nobody listens to
/// go on to the hook before it.
#[derive(Debug)]
pub(super) struct Panics {
    before: Option<String>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Panics {
    pub(super) fn listen() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            let others = panic::take_hook();
            panic::set_hook(Box::new(move |said| {
                // This one ends the process: nobody will ask what was said.
                let is_last = said
                    .payload_as_str()
                    .is_some_and(|text| text.contains("in a destructor during cleanup"));
                let is_heard = HEARD.try_with(|heard| {
                    let mut heard = heard.try_borrow_mut().ok();
                    let text = heard.as_mut().and_then(|heard| heard.as_mut());
                    text.is_some_and(|text| writeln!(text, "{said}").is_ok())
                });
                if is_last || !is_heard.unwrap_or(false) {
                    others(said);
                }
            }));
        });
        Self {
            before: HEARD.replace(Some(String::new())),
            _of_this_thread: PhantomData,
        }
    }

    /// Everything that was said so far.
    pub(super) fn text(&self) -> String {
        HEARD.with_borrow(|heard| heard.clone().unwrap_or_default())
    }
}

impl Drop for Panics {
    fn drop(&mut self) {
        HEARD.set(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_heard_while_somebody_listens_on_its_thread() {
        let panics = Panics::listen();
        let ended = panic::catch_unwind(|| assert_eq!(1, 2, "on purpose"));
        assert!(ended.is_err());
        let elsewhere = std::thread::spawn(|| {
            let own = Panics::listen();
            let _ = panic::catch_unwind(|| assert_eq!(3, 4, "elsewhere"));
            own.text()
        });
        assert!(
            elsewhere
                .join()
                .is_ok_and(|said| said.contains("elsewhere"))
        );
        let said = panics.text();
        assert!(
            said.contains("on purpose") && said.contains("panics.rs"),
            "{said}"
        );
        assert!(!said.contains("elsewhere"), "{said}");
    }
}
