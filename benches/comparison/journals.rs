//! A million lines of the revenue journal, read twice.

use crate::mirror::Mirror;
use crate::pages::Server;
use crate::table::Table;

/// Months that are read: whole ones, of two years.
const MONTHS: i32 = 24;
/// How many offices the sandbox has at least.
const OFFICES: usize = 6;

/// Measures both readings.
pub(crate) fn compare(lines: usize) {
    let server = Server::start(20, lines.div_ceil(OFFICES * MONTHS as usize));
    let end = jiff::Zoned::now().date().first_of_month() - jiff::Span::new().days(1);
    let start = end.first_of_month() - jiff::Span::new().months(MONTHS - 1);
    let mirror = || {
        let since = format!("[journals]\nsince = \"{start}\"\n");
        let mirror = Mirror::new(&server.base_url, server.credentials(), &since);
        // Nothing is published before the cases are listed.
        mirror.run(&["sync", "--only", "cases"]);
        mirror
    };
    let (from, to) = (start.to_string(), end.to_string());
    let read = ["journals", "--kind", "revenue", "--from", &from, "--to", &to];
    // The server has all answers then.
    mirror().run(&read);

    let mirror = mirror();
    let first = mirror.run(&read);
    let rows = mirror.rows("revenue_journals");
    let mut table = Table::new(&format!("{rows} lines of the revenue journal, {MONTHS} months"));
    table.row("casemirror journals, the first time, published", &first, rows);
    table.row("the same again, nothing has changed", &mirror.run(&read), rows);
}
