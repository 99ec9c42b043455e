//! Times and numbers as people read them.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use url::Url;

use crate::text::printable;

/// Times in a zone, seen from an instant.
pub(super) struct Times<'f> {
    pub(super) zone: &'f TimeZone,
    pub(super) now: Timestamp,
}

impl Times<'_> {
    /// `2026-11-24 21:05:00 CET`.
    pub(super) fn text(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }

    /// `21:00`, of an hour.
    pub(super) fn hour(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%H:%M").to_string()
    }

    /// The instant.
    pub(super) fn at(&self, at: Timestamp) -> Markup {
        html! { time datetime=(at) { (self.text(at)) } }
    }

    /// How long ago that is; the instant itself for who points at it.
    pub(super) fn ago(&self, at: Option<Timestamp>) -> Markup {
        html! {
            @match at {
                Some(at) => time datetime=(at) title=(self.text(at)) { (how_long_ago(self.now.duration_since(at))) },
                None => span.quiet { "never" },
            }
        }
    }

    /// How long it has been so; the instant itself for who points at it.
    pub(super) fn lasting(&self, since: Timestamp) -> Markup {
        let lasts = how_long(self.now.duration_since(since));
        html! { time datetime=(since) title=(self.text(since)) { (lasts) } }
    }

    /// As [`Times::ago`], of a text of the status.
    pub(super) fn ago_text(&self, at: Option<&str>) -> Markup {
        self.ago(at.and_then(parsed))
    }
}

/// An instant of the status.
pub(super) fn parsed(at: &str) -> Option<Timestamp> {
    at.parse().ok()
}

/// `40 s ago`, `3 h ago`.
fn how_long_ago(time: SignedDuration) -> String {
    match time.as_secs() {
        ..2 => "now".to_owned(),
        _ => format!("{} ago", how_long(time)),
    }
}

/// `40 s`, `3 h`.
pub(super) fn how_long(time: SignedDuration) -> String {
    match time.as_secs() {
        s @ ..120 => format!("{} s", s.max(0)),
        s @ 120..7_200 => format!("{} min", s / 60),
        s @ 7_200..172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}

/// `12,345`.
pub(super) fn grouped(number: impl TryInto<u64>) -> String {
    indicatif::HumanCount(number.try_into().unwrap_or(0)).to_string()
}

/// `1.2 GiB`.
pub(super) fn bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

/// What follows an address in what is said of a call that failed.
const BEHIND_ADDRESS: &str = " failed (";

/// A text whose web addresses are cut to their path: host and query are the same each time, or say little. One
/// without a path stays.
pub(super) fn without_hosts(text: &str) -> String {
    let (mut short, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = ["https://", "http://"].iter().filter_map(|s| rest.find(s)).min() {
        let (before, from) = rest.split_at(at);
        let address = &from[..length_of_address(from)];
        let path = Url::parse(address).ok().map(|url| url.path().to_owned());
        short.push_str(before);
        short.push_str(path.as_deref().filter(|path| *path != "/").unwrap_or(address));
        rest = &from[address.len()..];
    }
    short + rest
}

/// An address ends with its word, but for what ends a sentence. Queries are shown with their blanks: where one has
/// any, it ends where is said what became of the call.
fn length_of_address(text: &str) -> usize {
    let word = text.split(char::is_whitespace).next().unwrap_or(text);
    let with_blanks =
        text.find(BEHIND_ADDRESS).filter(|end| word.contains('?') && *end > word.len());
    let other = |end: &usize| ["https://", "http://"].iter().any(|s| text[1..*end].contains(s));
    match with_blanks.filter(|end| !other(end)) {
        Some(end) => end,
        None => word.trim_end_matches(|c: char| ":;,.)\"'".contains(c)).len(),
    }
}

/// A text of the platform's, or one that may have some of it: it cannot change how what is around it is shown.
pub(super) fn foreign(text: &str) -> Markup {
    html! { bdi { (printable(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_zone() {
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        let now = "2026-07-01T10:00:00Z".parse().unwrap();
        let times = Times { zone: &zone, now };
        assert_eq!(times.text(now), "2026-07-01 12:00:00 CEST");
        let ago = times.ago(parsed("2026-01-01T23:30:00Z")).into_string();
        assert_eq!(
            ago,
            "<time datetime=\"2026-01-01T23:30:00Z\" title=\"2026-01-02 00:30:00 CET\">180 days ago</time>"
        );
        assert_eq!(times.ago(None).into_string(), "<span class=\"quiet\">never</span>");
    }

    #[test]
    fn addresses_are_cut_to_their_path_and_the_rest_of_a_text_stays() {
        let text = "GET https://host:8443/api/Cases?$filter=Id%20eq%203&$top=50: 500  from \
                    (http://a/b/c?d#e), at http://a/ or s3://b/c and \n nothing";
        assert_eq!(
            without_hosts(text),
            "GET /api/Cases: 500  from (/b/c), at http://a/ or s3://b/c and \n nothing"
        );
        assert_eq!(without_hosts("http://["), "http://[");
        let text = "GET http://a/api/Cases?$orderby=Id asc&$top=5 failed (attempt 1 of 5): 500 of http://a/b?c d";
        assert_eq!(without_hosts(text), "GET /api/Cases failed (attempt 1 of 5): 500 of /b d");
        let text = "see http://a/b?c and GET http://a/d?e f failed (attempt 1 of 5)";
        assert_eq!(without_hosts(text), "see /b and GET /d failed (attempt 1 of 5)");
    }

    #[test]
    fn how_long_ago_is_short() {
        let all = [-5, 1, 2, 119, 120, 7_199, 7_200, 172_799, 172_800];
        let all = all.map(|seconds| how_long_ago(SignedDuration::from_secs(seconds)));
        let expected = [
            "now",
            "now",
            "2 s ago",
            "119 s ago",
            "2 min ago",
            "119 min ago",
            "2 h ago",
            "47 h ago",
            "2 days ago",
        ];
        assert_eq!(all, expected);
    }
}
