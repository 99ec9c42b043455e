//! The lines of one window of a month, and what they are worth beside those of its halves (pure).

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::telling::Telling;
use crate::scope::Window;
use crate::text::hex;

/// By what a line is known again: all that is written of it, or what [`Telling`] takes of it.
pub(super) type LineMark = [u8; 32];

/// Pages of services are round: a positive multiple of this may be cut off.
const ROUND: usize = 100;

/// The lines of one window.
pub(super) struct Part {
    pub(super) window: Window,
    pub(super) records: Vec<Bytes>,
    /// One of each record.
    pub(super) marks: Vec<LineMark>,
    /// Pages that brought some of them: each shows another moment.
    pub(super) pages: usize,
    pub(super) complete: bool,
    /// All its lines are of one day, as far as its halves tell: there is nothing smaller to ask for.
    pub(super) of_one_day: bool,
}

impl Part {
    /// It has as many lines as a service may give at once.
    pub(super) fn is_round(&self) -> bool {
        !self.records.is_empty() && self.records.len().is_multiple_of(ROUND)
    }

    pub(super) fn bytes(&self) -> usize {
        self.records.iter().map(Bytes::len).sum()
    }
}

/// What a window that was answered whole is worth beside its halves. Where they add up to it, it takes
/// their place; where they have more, it was as many as the service gives at once. Where it has a line
/// that they lack, neither is known to be all.
pub(super) fn compared(mut whole: Part, mut halves: Vec<Part>, telling: &Telling) -> Vec<Part> {
    let one = std::slice::from_ref(&whole);
    let (mut of_whole, mut of_halves) = (marks(one), marks(&halves));
    if of_whole != of_halves {
        (of_whole, of_halves) = (telling.marks(one), telling.marks(&halves));
    }
    if halves.iter().all(|part| part.complete) && of_whole == of_halves {
        let lines = whole.records.len();
        whole.of_one_day = halves.iter().any(|half| half.of_one_day && half.records.len() == lines);
        return vec![whole];
    }
    let mut left = of_halves.into_iter().peekable();
    let is_within = of_whole.iter().all(|mark| {
        while left.next_if(|other| other < mark).is_some() {}
        left.next_if_eq(mark).is_some()
    });
    if !is_within {
        halves.iter_mut().for_each(|part| part.complete = false);
    }
    halves
}

/// What a pass over the parts of a month brought, without the lines.
pub(super) struct Pass {
    marks: Vec<LineMark>,
    telling: Vec<LineMark>,
}

impl Pass {
    pub(super) fn of(parts: &[Part], telling: &Telling) -> Pass {
        Pass { marks: marks(parts), telling: telling.marks(parts) }
    }

    /// Whether these are the same lines, in whatever order.
    pub(super) fn brought(&self, parts: &[Part], telling: &Telling) -> bool {
        self.marks == marks(parts) || self.telling == telling.marks(parts)
    }
}

pub(super) fn mark(line: &Bytes) -> LineMark {
    Sha256::digest(line).into()
}

/// The lines as they are written, in whatever order: equal ones are as many.
pub(super) fn marks(parts: &[Part]) -> Vec<LineMark> {
    let mut marks: Vec<LineMark> = parts.iter().flat_map(|part| part.marks.clone()).collect();
    marks.sort_unstable();
    marks
}

/// One name for the lines, in whatever order.
pub(super) fn digest_of(parts: &[Part]) -> String {
    let mut hash = Sha256::new();
    for mark in marks(parts) {
        hash.update(mark);
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(lines: &[&'static str]) -> Part {
        let window = "2026-10".parse::<crate::scope::Month>().unwrap().window();
        let records: Vec<Bytes> =
            lines.iter().map(|line| Bytes::from_static(line.as_bytes())).collect();
        let marks = records.iter().map(mark).collect();
        Part { window, records, marks, pages: 1, complete: true, of_one_day: false }
    }

    fn telling() -> Telling {
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let children = catalog.children("case_journals").map(AsRef::as_ref);
        Telling::of(catalog.get("case_journals").unwrap(), children)
    }

    /// How many lines a window and its halves come to, and whether they are all.
    fn shown(whole: &[&'static str], halves: [&[&'static str]; 2]) -> (usize, bool) {
        let parts = compared(part(whole), halves.map(part).into(), &telling());
        let lines = parts.iter().map(|part| part.records.len()).sum();
        (lines, parts.iter().all(|part| part.complete))
    }

    #[test]
    fn halves_have_to_add_up_to_what_was_answered_whole() {
        assert_eq!(shown(&["a", "b", "b"], [&["b"], &["b", "a"]]), (3, true));
        assert_eq!(shown(&["a", "b"], [&["a", "b"], &["c"]]), (3, true), "a limit cut the whole");
        assert_eq!(shown(&["a", "b", "c"], [&["a"], &[]]), (1, false), "lines are missing");
        assert_eq!(shown(&["b", "b"], [&["b"], &["c"]]), (2, false), "equal lines are two");
    }

    #[test]
    fn a_window_has_the_lines_of_one_day_where_the_other_half_has_none() {
        let of_one_day = |first: &[&'static str], second: &[&'static str]| {
            let whole = [first, second].concat();
            let halves = [first, second].map(|lines| Part { of_one_day: true, ..part(lines) });
            compared(part(&whole), halves.into(), &telling())[0].of_one_day
        };
        assert!(of_one_day(&["a", "b"], &[]));
        assert!(of_one_day(&[], &["a", "b"]));
        assert!(!of_one_day(&["a"], &["b"]));
        let longer = [part(&["a"]), part(&[])];
        let several = compared(part(&["a"]), longer.into(), &telling());
        assert!(!several[0].of_one_day, "of several days");
    }

    const LINE: &str = r#"{"CaseReferralKey": "k", "Address": "Storgata 1", "CaseStatus": "Open",
        "Annotations": [{"Annotation": "a", "AnnotationDate": null}, {"Annotation": "b"}]}"#;
    /// In all that says what it is, it is the other one.
    const SAME: &str = r#"{"Annotations": [{"Annotation": "b"}, {"New": 2, "Annotation": "a"}],
        "New": 1, "CaseStatus": "Sold", "Address": "Storgata 1", "CaseReferralKey": "k"}"#;

    #[test]
    fn what_is_no_content_of_a_line_may_move_between_two_readings() {
        assert_eq!(shown(&[LINE, "a"], [&[SAME], &["a"]]), (2, true));
        let before = Pass::of(&[part(&[LINE, "a"])], &telling());
        assert!(before.brought(&[part(&["a"]), part(&[SAME])], &telling()));
        assert!(!before.brought(&[part(&["a"]), part(&[SAME, SAME])], &telling()), "they are two");
    }

    #[rstest::rstest]
    #[case("Storgata 1", "Storgata 2")]
    #[case(r#"{"Annotation": "b"}"#, r#"{"Annotation": "c"}"#)]
    #[case(r#", {"Annotation": "b"}"#, "")]
    #[case(r#"{"Annotation": "b"}"#, r#"{"Annotation": "b"}, {"Annotation": "b"}"#)]
    #[case(r#""AnnotationDate": null"#, r#""AnnotationDate": "2026-01-01""#)]
    fn what_is_content_of_a_line_tells_two_readings_apart(#[case] from: &str, #[case] to: &str) {
        let other: &'static str = LINE.replace(from, to).leak();
        assert_ne!(other, LINE);
        assert!(!Pass::of(&[part(&[LINE])], &telling()).brought(&[part(&[other])], &telling()));
    }
}
