//! The `Retry-After` header, whatever a server writes into it.

use std::time::{Duration, SystemTime};

use dispatch_api::RETRY_AFTER_CEILING;

/// The pause that a `Retry-After` header asks for: seconds, also fractional, or an
/// HTTP date, which is over once it is past. At most [`RETRY_AFTER_CEILING`];
/// none for a value that is neither.
pub(crate) fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    // Words such as `inf` and `nan` are numbers to Rust, and negative ones no pause.
    if value.starts_with(|c: char| c.is_ascii_digit()) {
        let seconds: f64 = value.parse().ok()?;
        let seconds = seconds.min(RETRY_AFTER_CEILING.as_secs_f64());
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let pause = until.duration_since(now).unwrap_or_default();
    Some(pause.min(RETRY_AFTER_CEILING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn parsed(value: &str) -> Option<Duration> {
        // 2026-11-30T12:00:00Z
        parse(value, UNIX_EPOCH + Duration::from_secs(1_796_040_000))
    }

    #[test]
    fn whole_and_fractional_seconds_are_read() {
        assert_eq!(parsed("7"), Some(Duration::from_secs(7)));
        assert_eq!(parsed(" 0.25 "), Some(Duration::from_millis(250)));
        assert_eq!(parsed("0"), Some(Duration::ZERO));
    }

    #[test]
    fn a_date_is_read_against_the_hosts_clock() {
        assert_eq!(
            parsed("Mon, 30 Nov 2026 12:00:30 GMT"),
            Some(Duration::from_secs(30))
        );
        assert_eq!(
            parsed("Mon, 30 Nov 2020 12:00:00 GMT"),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn hostile_values_end_at_the_ceiling_or_are_no_pause() {
        for value in [
            "1e30",
            "1e400",
            "99999999999999999999",
            "Fri, 31 Dec 9999 23:59:59 GMT",
        ] {
            assert_eq!(parsed(value), Some(RETRY_AFTER_CEILING), "{value}");
        }
        for value in [
            "", "-1", "-0", "nan", "NaN", "inf", "+5", "7s", "1,5", "soon",
        ] {
            assert_eq!(parsed(value), None, "{value}");
        }
    }
}
