//! Which lines of a journal's month differ, in which column, and how that is told (pure).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use super::{Comparison, Finding, amount, hundredths};
use crate::catalog::{Group, Resource};
use crate::mirror::{Cells, Line};
use crate::scope::JournalScope;

/// Cells that are named of one month.
const MOST_NAMED: usize = 50;

/// A cell, or a whole line, that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineDifference {
    /// `line 3 (R-17)`: its place, in the source where it is there, and its key.
    pub(crate) line: String,
    /// `None`: the whole line.
    pub(crate) column: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) mirror: Option<String>,
}

/// Pairs the lines of both sides: equal ones first, because two lines can be equal and are still two;
/// then by their own key, in order; then by place. What is left has no counterpart.
pub(crate) fn differences(source: &[Line], mirror: &[Line]) -> Vec<LineDifference> {
    let mut equal: HashMap<Content<'_>, VecDeque<&Line>> = HashMap::new();
    for line in mirror {
        equal.entry(content(line)).or_default().push_back(line);
    }
    let mut asked = Vec::new();
    for line in source {
        if equal.get_mut(&content(line)).and_then(VecDeque::pop_front).is_none() {
            asked.push(line);
        }
    }
    let mut own: Vec<&Line> = equal.into_values().flatten().collect();
    own.sort_by_key(|line| line.number);
    let mut pairs = Vec::new();
    let (asked, own) = pair(asked, own, &mut pairs, |line| line.key.as_deref());
    let (asked, own) = pair(asked, own, &mut pairs, |line| Some(line.number));
    let mut all: Vec<(i64, Vec<LineDifference>)> = Vec::new();
    for (a, b) in pairs {
        all.push((a.number, cells(a, b)));
    }
    let here = || Some("a line".to_owned());
    for (line, source, mirror) in asked
        .into_iter()
        .map(|line| (line, here(), None))
        .chain(own.into_iter().map(|line| (line, None, here())))
    {
        let whole = LineDifference { line: name(line), column: None, source, mirror };
        all.push((line.number, vec![whole]));
    }
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().flat_map(|(_, differences)| differences).collect()
}

/// What makes lines equal: their cells, and those of their annotations as a set.
type Content<'l> = (&'l Cells, Vec<&'l Cells>);

fn content(line: &Line) -> Content<'_> {
    (&line.cells, line.notes.iter().map(|note| &note.cells).collect())
}

/// Moves lines of one key into `pairs`, in order; returns those that are left of both sides. A line without a key has
/// no counterpart.
fn pair<'l, K: Hash + Eq>(
    asked: Vec<&'l Line>,
    own: Vec<&'l Line>,
    pairs: &mut Vec<(&'l Line, &'l Line)>,
    key: impl Fn(&'l Line) -> Option<K>,
) -> (Vec<&'l Line>, Vec<&'l Line>) {
    let mut by_key: HashMap<K, VecDeque<&Line>> = HashMap::new();
    let mut left = Vec::new();
    for line in own {
        match key(line) {
            Some(key) => by_key.entry(key).or_default().push_back(line),
            None => left.push(line),
        }
    }
    let mut alone = Vec::new();
    for line in asked {
        match key(line).and_then(|key| by_key.get_mut(&key)?.pop_front()) {
            Some(other) => pairs.push((line, other)),
            None => alone.push(line),
        }
    }
    left.extend(by_key.into_values().flatten());
    left.sort_by_key(|line| line.number);
    (alone, left)
}

/// The cells of a line and of its annotations, these as `annotations[n].column`.
fn named(line: &Line) -> impl Iterator<Item = (String, &str)> {
    let own = line.cells.iter().map(|(column, value)| (column.to_string(), &**value));
    let of_notes = line.notes.iter().flat_map(|note| {
        note.cells.iter().map(|(column, value)| (format!("{}.{column}", note.name), &**value))
    });
    own.chain(of_notes)
}

fn name(line: &Line) -> String {
    match &line.key {
        Some(key) => format!("line {} ({key})", line.number),
        None => format!("line {}", line.number),
    }
}

fn cells(source: &Line, mirror: &Line) -> Vec<LineDifference> {
    let mut columns: BTreeMap<String, (Option<&str>, Option<&str>)> = BTreeMap::new();
    for (column, value) in named(source) {
        columns.entry(column).or_default().0 = Some(value);
    }
    for (column, value) in named(mirror) {
        columns.entry(column).or_default().1 = Some(value);
    }
    columns
        .into_iter()
        .filter(|(_, (source, mirror))| source != mirror)
        .map(|(column, (a, b))| LineDifference {
            line: name(source),
            column: Some(column),
            source: a.map(str::to_owned),
            mirror: b.map(str::to_owned),
        })
        .collect()
}

/// What is shown of lines that differ in a month.
pub(super) fn rows_of(
    month: &str,
    subject: &str,
    differences: Vec<LineDifference>,
) -> Vec<Comparison> {
    let none = || "NULL".to_owned();
    let row = |difference: LineDifference| {
        let at = format!("{month}: {}", difference.line);
        Comparison {
            what: match &difference.column {
                Some(column) => format!("{at} {column}"),
                None => at,
            },
            finding: Finding::Different(match (&difference.source, &difference.mirror) {
                (Some(a), Some(b)) => match (hundredths(a), hundredths(b)) {
                    (Some(a), Some(b)) => amount(a - b),
                    _ => "differs".to_owned(),
                },
                _ => "differs".to_owned(),
            }),
            source: difference.source.unwrap_or_else(none),
            mirror: difference.mirror.unwrap_or_else(none),
            subject: subject.to_owned(),
        }
    };
    differences.into_iter().take(MOST_NAMED).map(row).collect()
}

/// The column with a line's own key, of a journal that has one.
pub(super) fn line_key(resource: &Resource) -> Option<&str> {
    match &resource.group {
        Group::Journal(journal) => journal.line_key.as_deref(),
        _ => None,
    }
}

/// `revenue Sentrum (offices/11) 2026-03`.
pub(super) fn month_name(journal: &str, name: Option<&str>, scope: JournalScope) -> String {
    let JournalScope { level, id, month } = scope;
    match name {
        Some(name) => format!("{journal} {name} ({level}/{id}) {month}"),
        None => format!("{journal} {level}/{id} {month}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::Note;

    fn line(number: i64, key: Option<&str>, payment: &str) -> Line {
        let cells = vec![
            ("key".into(), key.unwrap_or_default().into()),
            ("payment".into(), payment.into()),
        ];
        Line { number, key: key.map(str::to_owned), cells, notes: Vec::new() }
    }

    fn told(source: &[Line], mirror: &[Line]) -> Vec<String> {
        differences(source, mirror)
            .into_iter()
            .map(|d| {
                let [source, mirror] = [d.source, d.mirror].map(Option::unwrap_or_default);
                format!("{} {}: {source} / {mirror}", d.line, d.column.unwrap_or_default())
            })
            .collect()
    }

    #[test]
    fn one_altered_cell_is_named_among_equal_lines_with_one_key() {
        let source = [line(1, Some("A"), "1"), line(2, Some("A"), "1"), line(3, Some("A"), "2")];
        let mirror = [line(1, Some("A"), "1"), line(2, Some("A"), "9"), line(3, Some("A"), "2")];
        assert_eq!(told(&source, &mirror), ["line 2 (A) payment: 1 / 9"]);
        assert!(differences(&source, &source).is_empty());
    }

    #[test]
    fn annotations_are_a_set_whatever_their_order_in_the_answer() {
        let with = |notes: &[(i64, &str)]| {
            let note = |(n, text): &(i64, &str)| Note {
                name: format!("annotations[{n}]"),
                cells: vec![("text".into(), (*text).into())],
            };
            Line { notes: notes.iter().map(note).collect(), ..line(1, Some("A"), "1") }
        };
        // In the order of their contents, as they are read.
        let (one, other) = (with(&[(1, "a"), (2, "b")]), with(&[(2, "a"), (1, "b")]));
        assert_eq!(told(std::slice::from_ref(&one), &[other]), Vec::<String>::new());
        let changed = with(&[(1, "a"), (2, "c")]);
        assert_eq!(told(&[one], &[changed]), ["line 1 (A) annotations[2].text: b / c"]);
    }

    #[test]
    fn a_line_without_key_is_paired_by_its_place_and_one_too_many_is_a_line() {
        let source = [line(1, None, "1"), line(2, Some("B"), "1")];
        let mirror = [line(1, None, "3"), line(2, Some("B"), "1"), line(3, Some("B"), "1")];
        assert_eq!(told(&source, &mirror), ["line 1 payment: 1 / 3", "line 3 (B) :  / a line"]);
    }
}
