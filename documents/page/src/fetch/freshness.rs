//! The freshness of an answer: how long it is used without asking again (RFC 9111), for a cache of
//! one user.
//!
//! Nothing is guessed: an answer that does not say how long it is good is asked for again each
//! time.

use std::time::{Duration, SystemTime};

use blitz_traits::net::http::{HeaderValue, Request, Response, StatusCode};
use http_cache_semantics::{CacheOptions, CachePolicy};

use crate::fetch::Headers;

/// Digits of a number of seconds that makes sense.
const AGE_DIGITS_MAX: usize = 10;
/// The status of an answer with bytes.
pub(crate) const FOUND: u16 = 200;

/// Whether it may be shown without asking, at `now`, having been said at `at` with this status.
pub(crate) fn is_fresh(status: u16, headers: &Headers, at: SystemTime, now: SystemTime) -> bool {
    // A clock that was set back says nothing; nor does an age that no sum can hold, or several.
    let is_age = |age: &str| {
        age.len() <= AGE_DIGITS_MAX && age.bytes().all(|letter| letter.is_ascii_digit())
    };
    let age_is_sound = headers.get("age").is_none_or(is_age);
    // With a `*` more than the request decided on it, so it answers no other request.
    let varies = headers.get("vary").is_some_and(|list| list.split(',').any(|of| of.trim() == "*"));
    now >= at
        && age_is_sound
        && !varies
        && policy(status, headers, at).time_to_live(now) > Duration::ZERO
}

/// Whether it may be kept.
pub(crate) fn may_be_kept(headers: &Headers) -> bool {
    policy(FOUND, headers, SystemTime::UNIX_EPOCH).is_storable()
}

/// Whether it must not be shown without asking even when no server answers.
pub(crate) fn must_ask(headers: &Headers) -> bool {
    let directives = headers.get("cache-control").unwrap_or_default().split(',');
    directives.map(str::trim).any(|directive| {
        directive.eq_ignore_ascii_case("must-revalidate")
            || directive.eq_ignore_ascii_case("no-cache")
    })
}

/// What a redirect says of itself that holds for what is found by it, too.
pub(crate) fn restrictions(redirect: &Headers) -> Vec<&'static str> {
    let said = redirect.get("cache-control").unwrap_or_default();
    let name_of =
        |directive: &'_ str| directive.split('=').next().unwrap_or_default().trim().to_owned();
    let names: Vec<String> = said.split(',').map(name_of).collect();
    let is_said = |word: &&str| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    ["no-store", "no-cache", "must-revalidate"].into_iter().filter(is_said).collect()
}

fn policy(status: u16, headers: &Headers, at: SystemTime) -> CachePolicy {
    let request = Request::new(());
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    for (name, value) in headers.iter() {
        // Directives are not told apart by case.
        let value =
            if name == "cache-control" { value.to_ascii_lowercase() } else { value.to_owned() };
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().append(name, value);
        }
    }
    // What will never change is not told of: for how long it is good says `max-age`.
    let options = CacheOptions {
        shared: false,
        cache_heuristic: 0.0,
        immutable_min_time_to_live: Duration::ZERO,
        ..CacheOptions::default()
    };
    CachePolicy::new_options(&request, &response, at, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh_for(fields: &[(&str, &str)]) -> u64 {
        let mut headers = Headers::default();
        fields.iter().for_each(|(name, value)| headers.add(name, value));
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let is_fresh_at = |status: u16, seconds: u64| {
            is_fresh(status, &headers, at, at + Duration::from_secs(seconds))
        };
        assert!(
            !is_fresh(FOUND, &headers, at, at - Duration::from_secs(1)),
            "the clock was set back"
        );
        let of = |status: u16| {
            (0..2_000).step_by(100).take_while(|seconds| is_fresh_at(status, *seconds)).count()
                as u64
                * 100
        };
        assert!(
            [404, 410].iter().all(|status| of(*status) == of(FOUND)),
            "that there is nothing is an answer, too"
        );
        of(FOUND)
    }

    /// A response is fresh only as long as it says; no lifetime is guessed.
    ///
    /// Guarantee: pages/servers
    #[test]
    fn answer_is_fresh_as_long_as_it_says() {
        assert_eq!(fresh_for(&[("Cache-Control", "max-age=1000")]), 1_000);
        assert_eq!(fresh_for(&[("Cache-Control", "private, Max-Age=1000"), ("Age", "600")]), 400);
        assert_eq!(fresh_for(&[("Cache-Control", "immutable")]), 0);
        assert_eq!(fresh_for(&[("Cache-Control", "max-age=1000, no-cache")]), 0);
        assert_eq!(
            fresh_for(&[("Cache-Control", "max-age=1000"), ("Cache-Control", "no-store")]),
            0
        );
        assert_eq!(fresh_for(&[("Cache-Control", "max-age=1000"), ("Vary", "*")]), 0);
        assert_eq!(fresh_for(&[("Cache-Control", "max-age=1000"), ("Vary", "Accept, *")]), 0);
        assert_eq!(fresh_for(&[("Cache-Control", "max-age=1000"), ("Vary", "Accept")]), 1_000);
        let twice = [("Cache-Control", "max-age=1000"), ("Age", "500"), ("Age", "500")];
        assert_eq!(fresh_for(&twice), 0, "nobody knows which");
        assert_eq!(fresh_for(&[("Cache-Control", "max-age=1000"), ("Age", &"9".repeat(30))]), 0);
        let dates = [
            ("Date", "Tue, 14 Nov 2023 22:13:20 GMT"),
            ("Expires", "Tue, 14 Nov 2023 22:23:20 GMT"),
        ];
        assert_eq!(fresh_for(&dates), 600);
        assert_eq!(fresh_for(&[("Expires", "0")]), 0);
        assert_eq!(
            fresh_for(&[("Last-Modified", "Tue, 14 Nov 2000 22:13:20 GMT")]),
            0,
            "nothing is guessed"
        );
        assert_eq!(fresh_for(&[]), 0);
    }

    /// Guarantee: pages/servers
    #[test]
    fn words_without_sense_are_no_end_of_the_program() {
        let values = [
            "",
            "-1",
            "18446744073709551615",
            "99999999999999999999999",
            "9999999999",
            "max-age",
            "max-age=",
            "\"",
            "max-age=18446744073709551615",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "Sat, 01 Jan 0000 00:00:00 GMT",
            "*",
            ",,,=,",
            "\u{e9}",
        ];
        for name in crate::fetch::NAMES {
            for value in values {
                for beside in ["max-age=5", "public"] {
                    assert!(fresh_for(&[("cache-control", beside), (name, value)]) <= 2_000);
                }
            }
        }
    }

    /// Guarantee: pages/no-store
    #[test]
    fn what_is_not_to_be_kept_is_told_apart() {
        let of = |value: &str| {
            let mut headers = Headers::default();
            headers.add("cache-control", value);
            (may_be_kept(&headers), must_ask(&headers))
        };
        assert_eq!(of("no-store"), (false, false));
        assert_eq!(of("max-age=5, No-Store"), (false, false));
        assert_eq!(of("private, must-revalidate"), (true, true));
        assert_eq!(of("no-cache"), (true, true));
        assert_eq!(of("max-age=5"), (true, false));
    }
}
