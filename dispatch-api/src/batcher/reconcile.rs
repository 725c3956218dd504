//! From a reply that may say anything to one answer an entry.

use super::Answer;
use crate::error::{Outcome, SinkError};

/// Collects what a reply says about the entries of one request.
///
/// However the reply looks, [`Reconciliation::finish`] gives exactly one answer to each
/// entry that was sent: what was said of it, if that was said once; `Transient` and
/// `Unknown` if nothing was said (`BatchEntryMissing`) or more than one thing
/// (`BatchEntryContradicted`). What is said of entries that were not sent counts as
/// foreign and harms nobody.
#[derive(Debug)]
pub struct Reconciliation {
    said: Vec<Said>,
    foreign: usize,
}

#[derive(Debug)]
enum Said {
    Nothing,
    Once(Answer),
    MoreThanOnce,
}

impl Reconciliation {
    /// Nothing was said yet about a request of this many entries.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        Self {
            said: (0..entries).map(|_| Said::Nothing).collect(),
            foreign: 0,
        }
    }

    /// Notes what the reply says of the entry at `index`; `None` for an id that no entry
    /// has.
    pub fn note(&mut self, index: Option<usize>, answer: Answer) {
        match index.and_then(|index| self.said.get_mut(index)) {
            None => self.foreign += 1,
            Some(said) => {
                *said = match said {
                    Said::Nothing => Said::Once(answer),
                    Said::Once(_) | Said::MoreThanOnce => Said::MoreThanOnce,
                };
            }
        }
    }

    /// How often the reply spoke of entries that were not sent.
    #[must_use]
    pub fn foreign(&self) -> usize {
        self.foreign
    }

    /// One answer an entry, in the order of the request.
    #[must_use]
    pub fn finish(self) -> Vec<Answer> {
        self.said
            .into_iter()
            .map(|said| match said {
                Said::Once(answer) => answer,
                Said::Nothing => Err(SinkError::transient(
                    Outcome::Unknown,
                    "BatchEntryMissing",
                    "the answer to the batch does not mention this entry",
                )),
                Said::MoreThanOnce => Err(SinkError::transient(
                    Outcome::Unknown,
                    "BatchEntryContradicted",
                    "the answer to the batch mentions this entry more than once",
                )),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Receipt;

    fn code(answer: &Answer) -> &str {
        match answer {
            Ok(_) => "ok",
            Err(error) => error.code(),
        }
    }

    fn failed() -> Answer {
        Err(SinkError::permanent("InvalidMessageContents", "refused"))
    }

    #[test]
    fn each_entry_gets_one_answer_whatever_was_said() {
        let mut reply = Reconciliation::new(6);
        reply.note(Some(5), Ok(Receipt::new()));
        reply.note(Some(1), failed());
        reply.note(Some(2), Ok(Receipt::new()));
        reply.note(Some(2), failed());
        reply.note(Some(3), Ok(Receipt::new()));
        reply.note(Some(3), Ok(Receipt::new()));
        reply.note(Some(3), Ok(Receipt::new()));
        reply.note(Some(6), Ok(Receipt::new()));
        reply.note(None, failed());
        assert_eq!(reply.foreign(), 2);
        let answers = reply.finish();
        assert_eq!(
            answers.iter().map(code).collect::<Vec<_>>(),
            [
                "BatchEntryMissing",
                "InvalidMessageContents",
                "BatchEntryContradicted",
                "BatchEntryContradicted",
                "BatchEntryMissing",
                "ok",
            ]
        );
    }
}
