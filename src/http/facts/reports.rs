//! What is counted from all rows: signed cases, and what of the journals is there.

use std::collections::BTreeMap;

use duckdb::Connection;

use crate::error::Result;
use crate::mirror::State;
use crate::scope::Month;
use crate::sql::{db, query};

/// Months that are shown.
const MONTHS: i32 = 24;

/// What is counted from all rows.
#[derive(Default)]
pub(in crate::http) struct Reports {
    pub(in crate::http) signed: Vec<Signed>,
    pub(in crate::http) coverage: Coverage,
    /// Months that are closed, and how many of them changed since.
    pub(in crate::http) closed: (i64, i64),
}

/// Signed cases of a month.
pub(in crate::http) struct Signed {
    /// `2026-10`.
    pub(in crate::http) month: String,
    /// `None`: not known, as in the report.
    pub(in crate::http) cases: Option<i64>,
}

impl Signed {
    /// The last months, up to the last one of which the report tells. A month that it leaves out had none.
    fn of(report: &BTreeMap<Month, Option<i64>>) -> Vec<Signed> {
        let (Some((first, _)), Some((last, _))) =
            (report.first_key_value(), report.last_key_value())
        else {
            return Vec::new();
        };
        let months = (0..MONTHS).rev().map(|ago| last.plus(-ago)).filter(|month| month >= first);
        months
            .map(|month| Signed {
                month: month.to_string(),
                cases: report.get(&month).copied().unwrap_or(Some(0)),
            })
            .collect()
    }
}

/// What of the journals is there.
#[derive(Default)]
pub(in crate::http) struct Coverage {
    /// `2026-10`, in order.
    pub(in crate::http) months: Vec<String>,
    pub(in crate::http) scopes: Vec<Scope>,
}

/// An office, a broker company or a chain, with a status for each month of [`Coverage::months`].
pub(in crate::http) struct Scope {
    pub(in crate::http) name: String,
    pub(in crate::http) months: Vec<Option<MonthStatus>>,
}

/// The worst of all journals of a scope's month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::http) struct MonthStatus {
    pub(in crate::http) status: String,
    /// Which journals have it, where not all have.
    pub(in crate::http) journals: Option<String>,
}

impl Reports {
    /// # Errors
    /// Those of reading the store.
    pub(in crate::http) fn collect(conn: &Connection) -> Result<Reports> {
        let signed = State::new(conn).verifications().signed_by_month()?;
        let closed = conn
            .query_row(
                "SELECT count(*), count(*) FILTER (WHERE restatements > 0) FROM report.journal_statement",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .map_err(|e| db("cannot count the closed months", e))?;
        Ok(Reports { signed: Signed::of(&signed), coverage: Coverage::collect(conn)?, closed })
    }
}

/// Scope, its name, month, worst status, and which journals have it.
type MonthRow = (i64, Option<String>, String, String, Option<String>);

impl Coverage {
    /// How many months have each status, the most frequent first.
    pub(in crate::http) fn counts(&self) -> Vec<(&str, usize)> {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for month in self.scopes.iter().flat_map(|scope| &scope.months).flatten() {
            match counts.iter_mut().find(|(status, _)| *status == month.status) {
                Some((_, count)) => *count += 1,
                None => counts.push((&month.status, 1)),
            }
        }
        counts.sort_by_key(|(status, count)| (std::cmp::Reverse(*count), *status));
        counts
    }

    fn collect(conn: &Connection) -> Result<Coverage> {
        // The worst first; one that is not known here is worse than all.
        let rows: Vec<MonthRow> = query(
            conn,
            &format!(
                "WITH ranked AS ( \
                   SELECT *, coalesce(list_position(['failing', 'doubted', 'incomplete', 'missing', \
                     'forbidden', 'absent', 'open', 'complete'], status), 0) AS rank \
                   FROM report.journal_coverage \
                   WHERE status NOT IN ('disabled', 'gone') AND journal_month >= \
                     (SELECT max(journal_month) - INTERVAL {} MONTH FROM report.journal_coverage)), \
                 worst AS (SELECT *, min(rank) OVER (PARTITION BY journal_id, journal_month) AS worst \
                   FROM ranked) \
                 SELECT journal_id, any_value(name), strftime(journal_month, '%Y-%m'), \
                   arg_min(status, rank), CASE WHEN count(*) FILTER (rank > worst) > 0 \
                     THEN string_agg(journal, ', ' ORDER BY journal) FILTER (rank = worst) END \
                 FROM worst GROUP BY journal_id, journal_month ORDER BY journal_id, journal_month",
                MONTHS - 1
            ),
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)),
        )?;
        let mut months: Vec<String> = rows.iter().map(|(_, _, month, ..)| month.clone()).collect();
        months.sort();
        months.dedup();
        let mut coverage = Coverage { months, scopes: Vec::new() };
        let mut last = None;
        for (id, name, month, status, journals) in rows {
            if last != Some(id) {
                last = Some(id);
                let name = name.unwrap_or_else(|| id.to_string());
                coverage.scopes.push(Scope { name, months: vec![None; coverage.months.len()] });
            }
            let at = coverage.months.binary_search(&month).ok();
            if let (Some(scope), Some(at)) = (coverage.scopes.last_mut(), at) {
                scope.months[at] = Some(MonthStatus { status, journals });
            }
        }
        Ok(coverage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_that_the_report_does_not_know_is_none_and_one_that_it_leaves_out_had_none() {
        let month = |text: &str| text.parse::<Month>().unwrap();
        let report =
            [(month("2026-01"), Some(3)), (month("2026-03"), None), (month("2026-04"), Some(5))];
        let signed = |report: &[(Month, Option<i64>)]| -> Vec<(String, Option<i64>)> {
            let shown = Signed::of(&report.iter().copied().collect());
            shown.into_iter().map(|signed| (signed.month, signed.cases)).collect()
        };
        let row = |month: &str, cases| (month.to_owned(), cases);
        let all = [
            row("2026-01", Some(3)),
            row("2026-02", Some(0)),
            row("2026-03", None),
            row("2026-04", Some(5)),
        ];
        assert_eq!(signed(&report), all);
        assert_eq!(signed(&[]), []);
        let many = signed(&[(month("2020-01"), Some(1)), (month("2026-04"), Some(5))]);
        assert_eq!((many.len(), many[0].0.as_str()), (24, "2024-05"));
    }
}
