//! Mirrors of journals, edits in them, and what readers see of it.

use casemirror::sandbox::{Act, Journal, JournalEdit, Options};
use duckdb::Connection;

use super::follow::lines;
pub(crate) use super::follow::{UNTHROTTLED as FEED, unthrottled as options};
use super::{World, shown};

/// The office whose journals are edited.
pub(crate) const OFFICE: i64 = 11;

/// A month so many months ago, as `yyyy-mm`. Two months ago is always closed.
pub(crate) fn month(ago: i32) -> String {
    let first = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().months(ago);
    first.strftime("%Y-%m").to_string()
}

/// A mirror whose journals begin so many months ago.
pub(crate) fn mirrored(options: Options, months: i32, more: &str) -> World {
    let world = World::with(options);
    world.journals_since(&format!("{}-01", month(months)));
    world.configure(&format!("{FEED}{more}"));
    world.bootstrap();
    world
}

/// Reads a month again, as `casemirror journals` does.
pub(crate) fn read_again(world: &World, month: &str) -> String {
    let (from, to) = (format!("{month}-01"), format!("{month}-28"));
    let output = world.run(&["journals", "--from", &from, "--to", &to]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Edits a journal of [`OFFICE`].
pub(crate) fn edit(
    world: &World,
    month: &str,
    journal: Journal,
    edit: JournalEdit,
    line: Option<usize>,
) {
    let act = Act::Journal { journal, office_id: OFFICE, month: month.to_owned(), edit, line };
    world.sandbox.act(&act).unwrap();
}

/// Rows of a query, as one line of text each; what is NULL is left out.
pub(crate) fn rows(conn: &Connection, sql: &str) -> Vec<String> {
    let sql = format!("SELECT concat_ws(' | ', COLUMNS(*)::VARCHAR) FROM ({sql})");
    let sql = sql.replace("COLUMNS(*)::VARCHAR", "*COLUMNS(*)");
    let mut statement = conn.prepare(&sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// All restatements: journal, change, column, before, after.
pub(crate) fn restatements(world: &World) -> Vec<String> {
    rows(
        &world.store(),
        "SELECT journal, change, column_name, before, after FROM report.journal_restatements \
         ORDER BY ALL",
    )
}

/// The query of the guide whose empty answer is the all clear.
pub(crate) fn not_clear(world: &World) -> Vec<String> {
    let guide = include_str!("../../docs/finance.md");
    let query = guide
        .split("```sql\n")
        .filter_map(|text| text.split_once("```").map(|(query, _)| query))
        .find(|query| query.contains("report.journal_coverage") && query.contains("UNION ALL"))
        .unwrap();
    let query = query.trim().trim_end_matches(';');
    lines(&world.published(), &format!("SELECT journal, status FROM ({query})"))
}
