//! Points in time that files claim, for people: a file can claim any number of seconds.

use std::time::{Duration, UNIX_EPOCH};

/// The last second of the year 9999, as far as dates are written with four digits of the year.
const LAST_UNIX_S: u64 = 253_402_300_799;

/// A time in seconds since 1970: as RFC 3339, or as the number where no date has it.
pub fn show_time(unix_s: u64) -> String {
    if unix_s > LAST_UNIX_S {
        return format!("after the year 9999 ({unix_s} s since 1970: no clock set that)");
    }
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_s)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_seconds_can_be_shown() {
        assert_eq!(show_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(show_time(LAST_UNIX_S), "9999-12-31T23:59:59Z");
        for absurd in [LAST_UNIX_S + 1, i64::MAX as u64, 1 << 63, u64::MAX] {
            assert!(show_time(absurd).contains(&absurd.to_string()), "{}", show_time(absurd));
        }
    }
}
