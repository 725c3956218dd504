//! When to try again.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::error::ErrorClass;

/// The longest pause that a destination can ask for: one day.
pub const RETRY_AFTER_CEILING: Duration = Duration::from_secs(24 * 60 * 60);

const THROTTLE_BASE: Duration = Duration::from_millis(500);
const THROTTLE_CAP: Duration = Duration::from_secs(20);

/// A draw in [0, 1), by which pauses are jittered.
///
/// A value outside is taken as the nearer end, and a NaN as 0, so that no draw can
/// make a pause negative or endless.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw(f64);

impl Draw {
    /// A draw of this value.
    #[must_use]
    pub fn new(value: f64) -> Self {
        Self(if value.is_nan() {
            0.0
        } else {
            value.clamp(0.0, 1.0)
        })
    }

    fn of(self, whole: Duration) -> Duration {
        whole.mul_f64(self.0)
    }
}

/// How long a throttled message waits when the destination names no time: a
/// full-jitter draw, between nothing and a window that starts at 500 ms and
/// doubles with the attempt up to 20 s.
///
/// Full jitter spreads the callers that were throttled together over the whole
/// window.
#[must_use]
pub fn throttle_after(attempt: NonZeroU32, draw: Draw) -> Duration {
    draw.of(exponential(THROTTLE_BASE, THROTTLE_CAP, attempt))
}

/// `base` doubled for every attempt after the first, never over `cap`.
pub(crate) fn exponential(base: Duration, cap: Duration, attempt: NonZeroU32) -> Duration {
    let doublings = attempt.get() - 1;
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    base.saturating_mul(factor).min(cap)
}

/// The retry policy of a host: capped exponential, with jitter.
///
/// The defaults give a message 84 attempts over about six hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryPolicy {
    /// The pause after the first attempt. Default 100 ms.
    pub base: Duration,
    /// The longest pause of the policy's own. Default 300 s.
    pub max: Duration,
    /// How many attempts a message gets, the first included. Default 84.
    pub max_attempts: NonZeroU32,
    /// Whether pauses are spread by up to a fifth either way, so that messages
    /// that failed together do not return together. Default true.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            base: Duration::from_millis(100),
            max: Duration::from_secs(300),
            max_attempts: NonZeroU32::new(84).expect("84 is not zero"),
            jitter: true,
        }
    }
}

impl RetryPolicy {
    /// The pause before the attempt after `attempt`, which failed with `class`;
    /// `None` when the message is to be dead-lettered.
    ///
    /// A pause that the destination asks for is never undercut: the longer of it
    /// and the policy's own counts, jitter only adds to it, and it ends at
    /// [`RETRY_AFTER_CEILING`].
    #[must_use]
    pub fn pause(&self, attempt: NonZeroU32, class: ErrorClass, draw: Draw) -> Option<Duration> {
        if !class.is_retryable() || attempt >= self.max_attempts {
            return None;
        }
        let own = self.own_pause(attempt, draw);
        Some(match class {
            ErrorClass::RetryAfter(asked) => {
                let asked = asked.min(RETRY_AFTER_CEILING);
                let spread = if self.jitter {
                    draw.of(asked / 5)
                } else {
                    Duration::ZERO
                };
                own.max((asked + spread).min(RETRY_AFTER_CEILING))
            }
            _ => own,
        })
    }

    fn own_pause(&self, attempt: NonZeroU32, draw: Draw) -> Duration {
        let pause = exponential(self.base, self.max, attempt);
        if !self.jitter {
            return pause;
        }
        // 0.8 to 1.2 of the pause, so that the average stays the policy's.
        let spread = draw.of(pause / 5).saturating_mul(2);
        (pause - pause / 5).saturating_add(spread).min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn plain() -> RetryPolicy {
        RetryPolicy {
            jitter: false,
            ..RetryPolicy::default()
        }
    }

    fn draws() -> impl Iterator<Item = Draw> {
        (0..1_000).map(|step| Draw::new(f64::from(step) / 1_000.0))
    }

    #[test]
    fn pauses_double_up_to_the_cap() {
        let pause = |number| {
            plain()
                .pause(attempt(number), ErrorClass::Transient, Draw::new(0.5))
                .unwrap()
        };
        assert_eq!(pause(1), Duration::from_millis(100));
        assert_eq!(pause(2), Duration::from_millis(200));
        assert_eq!(pause(12), Duration::from_millis(204_800));
        assert_eq!(pause(13), Duration::from_secs(300));
        assert_eq!(pause(83), Duration::from_secs(300));
    }

    #[test]
    fn the_defaults_spread_84_attempts_over_about_six_hours() {
        let total: Duration = (1..84)
            .map(|number| {
                plain()
                    .pause(attempt(number), ErrorClass::Transient, Draw::new(0.5))
                    .unwrap()
            })
            .sum();
        assert_eq!(total.as_secs() / 60, 361);
    }

    #[test]
    fn any_attempt_number_saturates() {
        let policy = RetryPolicy {
            max_attempts: NonZeroU32::MAX,
            ..RetryPolicy::default()
        };
        for number in [31, 32, 33, 64, 1_000, u32::MAX - 1] {
            let pause = policy
                .pause(attempt(number), ErrorClass::Transient, Draw::new(0.99))
                .unwrap();
            assert_eq!(pause, Duration::from_secs(300), "attempt {number}");
            assert!(throttle_after(attempt(number), Draw::new(0.99)) < THROTTLE_CAP);
        }
    }

    #[test]
    fn the_longest_durations_saturate_too() {
        let policy = RetryPolicy {
            base: Duration::MAX,
            max: Duration::MAX,
            ..RetryPolicy::default()
        };
        for draw in [0.0, 0.5, 1.0] {
            let pause = policy.pause(attempt(1), ErrorClass::Transient, Draw::new(draw));
            assert!(pause.unwrap() >= Duration::MAX / 5 * 3, "{draw}");
        }
        assert!(throttle_after(attempt(u32::MAX), Draw::new(1.0)) <= THROTTLE_CAP);
    }

    #[test]
    fn the_last_attempt_is_followed_by_none() {
        let pause = |number| plain().pause(attempt(number), ErrorClass::Transient, Draw::new(0.0));
        assert!(pause(83).is_some());
        assert_eq!(pause(84), None);
        assert_eq!(pause(u32::MAX), None);
    }

    #[test]
    fn permanent_and_config_errors_get_no_second_attempt() {
        for class in [ErrorClass::Permanent, ErrorClass::Config] {
            assert_eq!(plain().pause(attempt(1), class, Draw::new(0.0)), None);
        }
    }

    #[test]
    fn a_requested_pause_is_never_undercut() {
        let asked = ErrorClass::RetryAfter(Duration::from_secs(120));
        for draw in draws() {
            let pause = RetryPolicy::default()
                .pause(attempt(9), asked, draw)
                .unwrap();
            assert!(pause >= Duration::from_secs(120), "{draw:?} gave {pause:?}");
            assert!(pause <= Duration::from_secs(144), "{draw:?} gave {pause:?}");
        }
    }

    #[test]
    fn the_policy_wins_over_a_shorter_request() {
        let asked = ErrorClass::RetryAfter(Duration::from_millis(1));
        assert_eq!(
            plain().pause(attempt(13), asked, Draw::new(0.0)),
            Some(Duration::from_secs(300))
        );
    }

    #[test]
    fn a_request_for_years_ends_after_a_day() {
        let asked = ErrorClass::RetryAfter(Duration::MAX);
        for draw in draws() {
            assert_eq!(
                RetryPolicy::default().pause(attempt(1), asked, draw),
                Some(RETRY_AFTER_CEILING)
            );
        }
    }

    #[test]
    fn jitter_stays_within_a_fifth_and_under_the_cap() {
        for draw in draws() {
            let pause = RetryPolicy::default()
                .pause(attempt(2), ErrorClass::Transient, draw)
                .unwrap();
            assert!(pause >= Duration::from_millis(160) && pause <= Duration::from_millis(240));
        }
    }

    #[test]
    fn a_throttled_message_draws_from_the_whole_window() {
        assert_eq!(throttle_after(attempt(1), Draw::new(0.0)), Duration::ZERO);
        assert_eq!(
            throttle_after(attempt(3), Draw::new(0.5)),
            Duration::from_secs(1)
        );
    }

    #[test]
    fn a_draw_out_of_range_is_brought_into_it() {
        assert_eq!(Draw::new(f64::NAN), Draw::new(0.0));
        assert_eq!(Draw::new(-3.0), Draw::new(0.0));
        assert_eq!(Draw::new(f64::INFINITY), Draw::new(1.0));
    }
}
