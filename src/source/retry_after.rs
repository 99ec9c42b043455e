//! How long a refusal, or an answer that announces one, asks to wait (field notes, "Refusals").

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// How long to wait after a refusal that does not say (field notes).
pub(super) const UNSAID: Duration = Duration::from_millis(3_500);

/// What `X-RateLimit-Reset` means is not certain, so a day is the longest it is believed; what it
/// would say beyond that is a unit we misread. `Retry-After` is certain and has no such limit.
const LONGEST_RESET: Duration = Duration::from_secs(86_400);

/// Numbers from here on are seconds since 1970 (2001 and later), not seconds from now ...
const SMALLEST_EPOCH_SECONDS: i64 = 1_000_000_000;
/// ... and from here on milliseconds since 1970.
const SMALLEST_EPOCH_MILLIS: i64 = 1_000_000_000_000;

/// The server's `Date`.
pub(super) fn server_date(headers: &HeaderMap) -> Option<Timestamp> {
    http_date(headers.get(DATE)?.to_str().ok()?)
}

/// How long no further call should be made after an answer of `status` with these headers, as it
/// came in at `now`: everything that is said is obeyed, the longest wins. `None`: nothing is asked.
pub(super) fn asked_wait(status: u16, headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    // Differences to the server's own clock are right even when ours is not.
    let server_now = server_date(headers).unwrap_or(now);
    let refused = matches!(status, 429 | 503);
    let used_up = text("x-ratelimit-remaining")
        .and_then(|remaining| remaining.parse::<f64>().ok())
        .is_some_and(|remaining| remaining <= 0.0);

    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| retry_after(text.trim(), server_now));
    // What cannot be read asks for a wait all the same.
    let is_unreadable = headers.contains_key(RETRY_AFTER) && retry_after.is_none();
    let reset = text("x-ratelimit-reset")
        .filter(|_| refused || used_up)
        .and_then(|text| reset(text, server_now));
    let delayed = text("x-ratelimit-delayed-by-milliseconds")
        .and_then(|text| text.parse::<f64>().ok())
        .and_then(|milliseconds| Duration::try_from_secs_f64(milliseconds / 1e3).ok());
    let said = [retry_after, reset, delayed].into_iter().flatten().max();
    match said {
        Some(wait) if wait > Duration::ZERO => Some(wait),
        _ if status == 429 || used_up || (refused && is_unreadable) => Some(UNSAID),
        _ => None,
    }
}

/// Seconds, or an HTTP date.
fn retry_after(text: &str, server_now: Timestamp) -> Option<Duration> {
    seconds(text).or_else(|| Some(until(http_date(text)?, server_now)))
}

/// The end of the window: a date, seconds or milliseconds since 1970, or seconds from now.
fn reset(text: &str, server_now: Timestamp) -> Option<Duration> {
    let wait = match text.parse::<i64>() {
        Ok(number) if number >= SMALLEST_EPOCH_MILLIS => {
            until(Timestamp::from_millisecond(number).ok()?, server_now)
        }
        Ok(number) if number >= SMALLEST_EPOCH_SECONDS => {
            until(Timestamp::from_second(number).ok()?, server_now)
        }
        _ => match seconds(text) {
            Some(wait) => wait,
            None => until(text.parse().ok().or_else(|| http_date(text))?, server_now),
        },
    };
    Some(wait.min(LONGEST_RESET))
}

fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// From the server's now until `instant`; none where it is past. Both are cut to seconds, so one more
/// is waited.
fn until(instant: Timestamp, server_now: Timestamp) -> Duration {
    let left: SignedDuration = instant.duration_since(server_now);
    Duration::try_from(left).map(|left| left + Duration::from_secs(1)).unwrap_or_default()
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, and the two older forms.
///
/// What is not quite a date of HTTP (a weekday that is not that day's, a day of one digit, `+0000`) is
/// read as a date of mail: refusing it would lose the wait that is asked for.
fn http_date(text: &str) -> Option<Timestamp> {
    static OF_MAIL: jiff::fmt::rfc2822::DateTimeParser =
        jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    let of_http = httpdate::parse_http_date(text).ok();
    let of_http = of_http.and_then(|date| Timestamp::try_from(date).ok());
    of_http.or_else(|| OF_MAIL.parse_timestamp(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::{HeaderName, HeaderValue};
    use rstest::rstest;

    const NOW: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
                (name, HeaderValue::from_str(value).unwrap())
            })
            .collect()
    }

    #[rstest]
    #[case::nothing_said(429, &[], Some(3_500))]
    #[case::seconds(429, &[("Retry-After", "17")], Some(17_000))]
    #[case::a_date(429, &[("Retry-After", "Tue, 14 Nov 2023 22:13:50 GMT")], Some(31_000))]
    #[case::the_server_s_clock_counts(429, &[("Retry-After", "Tue, 14 Nov 2023 22:13:50 GMT"),
        ("Date", "Tue, 14 Nov 2023 22:13:40 GMT")], Some(11_000))]
    #[case::a_day(429, &[("Retry-After", "172800")], Some(172_800_000))]
    #[case::unavailable(503, &[("Retry-After", "2")], Some(2_000))]
    #[case::unavailable_unsaid(503, &[], None)]
    #[case::unavailable_unreadable(503, &[("Retry-After", "soon")], Some(3_500))]
    #[case::unavailable_no_longer(503, &[("Retry-After", "Tue, 14 Nov 2023 22:13:00 GMT")], None)]
    #[case::quiet_and_unreadable(200, &[("Retry-After", "soon")], None)]
    #[case::a_date_of_rfc_850(429, &[("Retry-After", "Tuesday, 14-Nov-23 22:13:50 GMT")],
        Some(31_000))]
    #[case::a_date_of_asctime(429, &[("Retry-After", "Tue Nov 14 22:13:50 2023")], Some(31_000))]
    #[case::a_wrong_weekday(429, &[("Retry-After", "Mon, 14 Nov 2023 22:13:50 GMT")],
        Some(31_000))]
    #[case::a_date_of_mail(429, &[("Retry-After", "14 Nov 2023 23:13:50 +0100")], Some(31_000))]
    #[case::reset_from_now(429, &[("X-RateLimit-Reset", "12")], Some(12_000))]
    #[case::reset_epoch(429, &[("X-RateLimit-Reset", "1700000020")], Some(21_000))]
    #[case::reset_millis(429, &[("X-RateLimit-Reset", "1700000020000")], Some(21_000))]
    #[case::reset_date(429, &[("X-RateLimit-Reset", "2023-11-14T22:13:50Z")], Some(31_000))]
    #[case::reset_past(429, &[("X-RateLimit-Reset", "1600000020")], Some(3_500))]
    #[case::reset_absurd(429, &[("X-RateLimit-Reset", "900000000")], Some(86_400_000))]
    #[case::the_longest_wins(429, &[("X-RateLimit-Reset", "12"), ("Retry-After", "5")],
        Some(12_000))]
    #[case::garbage(429, &[("Retry-After", "soon"), ("X-RateLimit-Reset", "-")], Some(3_500))]
    #[case::plenty_left(200, &[("X-RateLimit-Remaining", "4"), ("X-RateLimit-Reset", "12")], None)]
    #[case::used_up(200, &[("X-RateLimit-Remaining", "0"), ("X-RateLimit-Reset", "12")],
        Some(12_000))]
    #[case::used_up_unsaid(200, &[("X-RateLimit-Remaining", "0")], Some(3_500))]
    #[case::held_back(200, &[("X-RateLimit-Delayed-By-Milliseconds", "1500")], Some(1_500))]
    #[case::not_held_back(200, &[("X-RateLimit-Delayed-By-Milliseconds", "0")], None)]
    #[case::quiet(200, &[], None)]
    fn what_is_said_is_obeyed_in_full(
        #[case] status: u16,
        #[case] said: &[(&str, &str)],
        #[case] milliseconds: Option<u64>,
    ) {
        let wait = asked_wait(status, &headers(said), NOW);
        assert_eq!(wait, milliseconds.map(Duration::from_millis));
    }

    #[test]
    fn the_server_s_date_is_read() {
        let headers = headers(&[("Date", "Sun, 06 Nov 1994 08:49:37 GMT")]);
        assert_eq!(server_date(&headers), Some(Timestamp::constant(784_111_777, 0)));
    }
}
