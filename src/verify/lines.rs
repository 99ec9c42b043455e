//! Which lines of a journal's month differ, and in which column (pure).

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::mirror::Line;

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
    let mut equal: HashMap<&[(String, String)], VecDeque<&Line>> = HashMap::new();
    for line in mirror {
        equal.entry(&line.cells).or_default().push_back(line);
    }
    let other = |line: &&Line| {
        equal.get_mut(line.cells.as_slice()).is_none_or(|twins| twins.pop_front().is_none())
    };
    let mut asked: Vec<&Line> = source.iter().filter(other).collect();
    let mut own: Vec<&Line> = equal.into_values().flatten().collect();
    own.sort_by_key(|line| line.number);
    let mut pairs = Vec::new();
    pair(&mut asked, &mut own, &mut pairs, |a, b| a.key.is_some() && a.key == b.key);
    pair(&mut asked, &mut own, &mut pairs, |a, b| a.number == b.number);
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

/// Moves lines that belong together into `pairs`.
fn pair<'l>(
    asked: &mut Vec<&'l Line>,
    own: &mut Vec<&'l Line>,
    pairs: &mut Vec<(&'l Line, &'l Line)>,
    together: impl Fn(&Line, &Line) -> bool,
) {
    asked.retain(|line| match own.iter().position(|other| together(line, other)) {
        Some(at) => {
            pairs.push((line, own.remove(at)));
            false
        }
        None => true,
    });
}

fn name(line: &Line) -> String {
    match &line.key {
        Some(key) => format!("line {} ({key})", line.number),
        None => format!("line {}", line.number),
    }
}

fn cells(source: &Line, mirror: &Line) -> Vec<LineDifference> {
    let mut columns: BTreeMap<&str, (Option<&str>, Option<&str>)> = BTreeMap::new();
    for (column, value) in &source.cells {
        columns.entry(column).or_default().0 = Some(value);
    }
    for (column, value) in &mirror.cells {
        columns.entry(column).or_default().1 = Some(value);
    }
    columns
        .into_iter()
        .filter(|(_, (source, mirror))| source != mirror)
        .map(|(column, (a, b))| LineDifference {
            line: name(source),
            column: Some(column.to_owned()),
            source: a.map(str::to_owned),
            mirror: b.map(str::to_owned),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: i64, key: Option<&str>, payment: &str) -> Line {
        let cells = vec![
            ("key".to_owned(), key.unwrap_or_default().to_owned()),
            ("payment".to_owned(), payment.to_owned()),
        ];
        Line { number, key: key.map(str::to_owned), cells }
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
    fn a_line_without_key_is_paired_by_its_place_and_one_too_many_is_a_line() {
        let source = [line(1, None, "1"), line(2, Some("B"), "1")];
        let mirror = [line(1, None, "3"), line(2, Some("B"), "1"), line(3, Some("B"), "1")];
        assert_eq!(told(&source, &mirror), ["line 1 payment: 1 / 3", "line 3 (B) :  / a line"]);
    }
}
