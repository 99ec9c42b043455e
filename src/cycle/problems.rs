//! What a run left undone, in words.

use super::Run;
use crate::error::Result;
use crate::mirror::{FEED_TABLES, ResourceRow, RunLog, State, is_asked};
use crate::scope::{REVENUE, TableStatus};

/// What is not as it should be at the end of a run; `controls`: what the journals' control totals say.
///
/// # Errors
/// Those of the store.
pub(super) fn of(run: &Run, controls: Vec<String>) -> Result<Vec<String>> {
    let conn = run.store.connection()?;
    let log = RunLog::new(&conn);
    let rows = State::new(&conn).statuses().all()?;
    let asked: Vec<&str> = run
        .catalog
        .resources()
        .iter()
        .filter(|r| run.options.asks_for(r) && is_asked(r, &rows))
        .map(|r| r.table.as_str())
        .collect();
    let mut problems = Vec::new();
    if !run.options.is_partial() {
        problems.extend(State::new(&conn).standings().listing_problem()?);
    }
    // What a table is failing for are other cases, unless these failed too.
    let whole = run.options.cases.is_empty();
    // Whose journals there are was typed.
    let is_named = run.options.journals.as_ref().is_some_and(|asked| !asked.ids.is_empty());
    let fails = |row: &&ResourceRow| match is_named {
        true => row.own_status() == TableStatus::Failing,
        false => row.brings_nothing(&rows),
    };
    for table in asked.iter().filter(|_| whole) {
        let Some(row) = rows.get(*table).filter(fails) else {
            continue;
        };
        let why = row.reason.as_deref().unwrap_or_default();
        problems.push(failing_text(table, why));
    }
    // The feeds are asked in every run.
    let asked: Vec<&str> = asked.into_iter().chain(FEED_TABLES).collect();
    let search_delay = run.config.source.search_delay;
    // That all were not listed says nothing of some.
    let listing = !run.options.is_partial();
    for (table, (count, error)) in
        log.failed_scopes(&asked, (&run.options.cases, listing), search_delay)?
    {
        problems.push(failed_text(&table, count, &error));
    }
    for (table, count) in log.open_rejects(&asked, &run.options.cases)? {
        let s = if count == 1 { "" } else { "s" };
        problems.push(format!("{table}: {count} open reject{s}, see sync.rejects"));
    }
    if whole && asked.contains(&REVENUE) {
        problems.extend(controls);
    }
    Ok(problems)
}

const IS_FAILING: &str = " is failing: ";
const FAILED: &str = " failed and will be tried again: ";

/// What is said of a table of which nothing could be read.
pub(crate) fn failing_text(table: &str, why: &str) -> String {
    format!("{table}{IS_FAILING}{why}")
}

/// The table of which one of the two texts here tells that it could not be read, and why.
pub(crate) fn table_and_cause(problem: &str) -> Option<(&str, &str)> {
    let is_table = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let failing = problem.split_once(IS_FAILING);
    let failed = || {
        let (table, rest) = problem.split_once(": ")?;
        let (scopes, why) = rest.split_once(FAILED)?;
        scopes.starts_with(|c: char| c.is_ascii_digit()).then_some((table, why))
    };
    failing
        .filter(|(table, _)| is_table(table))
        .or_else(failed)
        .filter(|(table, _)| is_table(table))
}

/// What is said of a table of which scopes failed.
pub(crate) fn failed_text(table: &str, count: i64, error: &str) -> String {
    if FEED_TABLES.contains(&table) {
        return error.to_owned();
    }
    let s = if count == 1 { "" } else { "s" };
    format!("{table}: {count} scope{s}{FAILED}{error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_and_cause_are_read_back_from_what_is_said() {
        let why = "GET /api/Notes failed: notes is failing: it is";
        for said in [
            failing_text("costs", why),
            failed_text("costs", 1, why),
            failed_text("costs", 12, why),
        ] {
            assert_eq!(table_and_cause(&said), Some(("costs", why)), "{said}");
        }
        for other in ["costs: 3 open rejects, see sync.rejects", "the run of it is failing: no", ""]
        {
            assert_eq!(table_and_cause(other), None, "{other}");
        }
    }
}
