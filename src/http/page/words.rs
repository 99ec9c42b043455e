//! Times and numbers as people read them.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

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
