//! How far the host's clock is from the service's.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};
use tokio::time::Instant;

/// A signature may be this much out of date, and less than the service accepts: what is
/// within is no reason to be refused.
const TOLERATED: Duration = Duration::from_secs(240);

/// An exchange that took longer says nothing about clocks.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(900);

/// What is added to the host's clock to sign by the service's.
#[derive(Debug, Default)]
pub(super) struct Skew {
    /// In milliseconds.
    offset: AtomicI64,
}

impl Skew {
    /// The service's time when the host's is `now`, as far as is known.
    pub(super) fn apply(&self, now: SystemTime) -> SystemTime {
        shifted(now, self.offset.load(Ordering::Relaxed))
    }

    fn set(&self, offset: i64) {
        self.offset.store(offset, Ordering::Relaxed);
    }
}

/// When a request was signed, by every clock that is asked about it later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signed {
    /// The time in the signature.
    pub(super) at: SystemTime,
    /// The host's time.
    pub(super) wall: SystemTime,
    pub(super) instant: Instant,
}

impl Signed {
    /// Whether a signature of this moment would be accepted where this one was refused
    /// for its time; what the answer says of the clocks is remembered in `skew`.
    ///
    /// Each request is judged by its own signing time: of ten that are refused together
    /// the first corrects the clock, and the other nine are sent again as well.
    pub(super) fn was_out_of_date(
        &self,
        headers: &HeaderMap,
        now: SystemTime,
        skew: &Skew,
    ) -> bool {
        // One of the two clocks stands still while the host sleeps.
        let by_wall = now.duration_since(self.wall).unwrap_or_default();
        let took = by_wall.max(self.instant.elapsed());
        let measured = date_of(headers).filter(|_| {
            // A cache's answer is of another time.
            !headers.contains_key(header::AGE) && took <= LONGEST_EXCHANGE
        });
        match measured {
            Some(date) => {
                let middle = took / 2;
                if apart(date, self.at + middle) <= TOLERATED {
                    return false;
                }
                skew.set(millis_between(self.wall + middle, date));
                true
            }
            // Signed, and sent much later.
            None => took > TOLERATED,
        }
    }
}

fn date_of(headers: &HeaderMap) -> Option<SystemTime> {
    let date = headers.get(header::DATE)?.to_str().ok()?;
    httpdate::parse_http_date(date).ok()
}

fn apart(one: SystemTime, other: SystemTime) -> Duration {
    one.duration_since(other)
        .unwrap_or_else(|error| error.duration())
}

fn millis_between(from: SystemTime, to: SystemTime) -> i64 {
    let millis = |duration: Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    match to.duration_since(from) {
        Ok(ahead) => millis(ahead),
        Err(behind) => -millis(behind.duration()),
    }
}

fn shifted(time: SystemTime, millis: i64) -> SystemTime {
    let by = Duration::from_millis(millis.unsigned_abs());
    let shifted = match millis < 0 {
        true => time.checked_sub(by),
        false => time.checked_add(by),
    };
    shifted.unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    /// 2026-11-30T12:00:00Z, by the host's clock.
    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_796_040_000)
    }

    fn signed(at: SystemTime) -> Signed {
        Signed {
            at,
            wall: noon(),
            instant: Instant::now(),
        }
    }

    fn headers(date: Option<SystemTime>, age: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(date) = date {
            let date = httpdate::fmt_http_date(date);
            headers.insert(header::DATE, date.parse().unwrap());
        }
        if age {
            headers.insert(header::AGE, "0".parse().unwrap());
        }
        headers
    }

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_measured_in_both_directions_and_against_the_middle_of_the_exchange() {
        for (date, took, expected) in [
            (noon() + minutes(20), minutes(0), noon() + minutes(20)),
            (noon() - minutes(20), minutes(0), noon() - minutes(20)),
            (noon() + minutes(20), minutes(2), noon() + minutes(19)),
        ] {
            let skew = Skew::default();
            let out =
                signed(noon()).was_out_of_date(&headers(Some(date), false), noon() + took, &skew);
            assert!(out);
            assert_eq!(skew.apply(noon()), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn four_minutes_are_no_reason_and_change_nothing() {
        let skew = Skew::default();
        for date in [noon() + minutes(4), noon() - minutes(4)] {
            assert!(!signed(noon()).was_out_of_date(&headers(Some(date), false), noon(), &skew));
        }
        assert_eq!(skew.apply(noon()), noon());
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_or_slow_answer_is_not_trusted() {
        let skew = Skew::default();
        let far = Some(noon() + minutes(60));
        assert!(!signed(noon()).was_out_of_date(&headers(far, true), noon(), &skew));
        // Too slow to measure by, and reason enough for a fresh signature.
        assert!(signed(noon()).was_out_of_date(&headers(far, false), noon() + minutes(16), &skew));
        assert!(signed(noon()).was_out_of_date(&headers(None, false), noon() + minutes(6), &skew));
        assert!(!signed(noon()).was_out_of_date(&headers(None, false), noon(), &skew));
        assert_eq!(skew.apply(noon()), noon());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_judged_by_the_time_in_its_own_signature() {
        let skew = Skew::default();
        let date = headers(Some(noon() + minutes(20)), false);
        assert!(signed(noon()).was_out_of_date(&date, noon(), &skew));
        assert!(signed(noon()).was_out_of_date(&date, noon(), &skew));
        let corrected = signed(skew.apply(noon()));
        assert!(!corrected.was_out_of_date(&date, noon(), &skew));
    }
}
