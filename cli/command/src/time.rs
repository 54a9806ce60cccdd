//! Times as people write and read them: points in time that files claim, and spans in options.

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

/// What every clock can be set forward by.
const TIME_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// A span of time as people write it, in which something can be done.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    match parse_age(text)? {
        Duration::ZERO => Err(
            "a time must be greater than zero; leave the option out for no limit, or write 500ms, 10s, 2min"
                .to_owned(),
        ),
        time => Ok(time),
    }
}

/// The same where no time at all makes sense, too.
pub fn parse_age(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write a number and a unit: 500ms, 10s, 2min"))?;
    if time > TIME_MAX {
        return Err(
            "no clock goes that far; write 100years at most, or leave the option out".to_owned()
        );
    }
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_no_clock_can_count_are_refused() {
        for text in ["584542046090years", "18446744073709551615s", "101years"] {
            assert!(parse_time(text).unwrap_err().contains("100years"), "{text}");
        }
        assert!(
            parse_age("0s").is_ok() && parse_time("0s").is_err() && parse_time("100years").is_ok()
        );
    }

    /// Guarantee: heap/hostile-content
    #[test]
    fn every_number_of_seconds_can_be_shown() {
        assert_eq!(show_time(0), "1970-01-01T00:00:00Z");
        assert_eq!(show_time(LAST_UNIX_S), "9999-12-31T23:59:59Z");
        for absurd in [LAST_UNIX_S + 1, i64::MAX as u64, 1 << 63, u64::MAX] {
            assert!(show_time(absurd).contains(&absurd.to_string()), "{}", show_time(absurd));
        }
    }
}
