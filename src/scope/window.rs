//! The days that one call for a journal asks for.

use std::fmt;

use jiff::Span;
use jiff::civil::Date;

/// Whole days, both included (field notes, Journals).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) from: Date,
    pub(crate) to: Date,
}

impl Window {
    /// How many days it has.
    pub(crate) fn days(self) -> u32 {
        let span = self.from.until(self.to).map_or(0, |span| span.get_days());
        u32::try_from(span).unwrap_or(0) + 1
    }

    /// Its two halves, the first one the longer where they differ; `None` of a single day.
    pub(crate) fn halves(self) -> Option<[Window; 2]> {
        let days = self.days();
        if days < 2 {
            return None;
        }
        let first = self.from.saturating_add(Span::new().days(i64::from(days.div_ceil(2) - 1)));
        let second = first.tomorrow().ok()?;
        Some([Window { from: self.from, to: first }, Window { from: second, to: self.to }])
    }

    /// The window in parts of at most so many days, halved like [`Window::halves`]: what was found out
    /// for one month serves the next, whatever its length.
    pub(crate) fn parts(self, most_days: u32) -> Vec<Window> {
        match self.halves() {
            Some(halves) if self.days() > most_days.max(1) => {
                halves.into_iter().flat_map(|half| half.parts(most_days)).collect()
            }
            _ => vec![self],
        }
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Month;
    use super::*;

    fn whole(month: &str) -> Window {
        month.parse::<Month>().unwrap().window()
    }

    #[test]
    fn halves_cover_the_window_once() {
        for month in ["2026-01", "2026-02", "2024-02", "2026-04"] {
            let window = whole(month);
            let [first, second] = window.halves().unwrap();
            assert_eq!((first.from, second.to), (window.from, window.to));
            assert_eq!(first.to.tomorrow().unwrap(), second.from);
            assert_eq!(first.days() + second.days(), window.days());
        }
        let day = Window { from: whole("2026-01").from, to: whole("2026-01").from };
        assert_eq!((day.days(), day.halves()), (1, None));
    }

    #[test]
    fn parts_are_as_large_as_allowed_down_to_days() {
        assert_eq!(whole("2026-01").parts(31), [whole("2026-01")]);
        assert_eq!(whole("2026-01").parts(1).len(), 31);
        for days in 1..40 {
            let parts = whole("2026-03").parts(days);
            assert!(parts.iter().all(|part| part.days() <= days));
            assert_eq!(parts.iter().map(|part| part.days()).sum::<u32>(), 31);
            assert!(parts.windows(2).all(|two| two[0].to.tomorrow().unwrap() == two[1].from));
        }
    }
}
