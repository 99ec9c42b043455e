//! A year of month ends in virtual time: the sandbox's clock is put forward, and the program runs under
//! `libfaketime`. Months are closed, booked into afterwards and read through nights in which the source
//! is wrong; what the reports say of them is held against the sandbox's own books.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use casemirror::sandbox::{Act, Control, Fault, Journal, JournalEdit, Level, Options, Spoil};
use jiff::civil::Date;
use jiff::{Span, Timestamp, ToSpan};

use crate::readers::python;
use crate::support::follow::assert_status;
use crate::support::journals::{FEED, OFFICE, options, rows};
use crate::support::scripted::{fault, garbage, refuse};
use crate::support::{World, shown};

const ORIGIN: &str = "2025-01-20T11:00:00Z";
/// It is closed down in the middle of May.
const CLOSED_DOWN: i64 = 14;
/// Another office comes out of it in September.
const SPLIT: i64 = 12;
/// It is closed by hand, before its day comes.
const BY_HAND: &str = "2025-06";

/// Journal, office and month.
type Scope = (String, i64, String);

/// What a month of a journal comes to; the payment in ten-thousandths of a krone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Figures {
    lines: i64,
    payment: i128,
}

/// What readers saw at an instant.
struct Seen {
    at: Timestamp,
    rows: BTreeMap<String, Vec<String>>,
}

struct Year {
    world: World,
    started: Instant,
    skipped: Cell<Duration>,
    /// What closed months were when they were closed,
    closed: RefCell<BTreeMap<Scope, Figures>>,
    /// and what they last were at the source.
    last: RefCell<BTreeMap<Scope, Figures>>,
    seen: RefCell<Vec<Seen>>,
}

/// Where the environment of DuckDB 1.5 has the library.
fn libfaketime() -> Option<PathBuf> {
    let environment = python("1.5")?.parent()?.parent()?.to_owned();
    let versions = std::fs::read_dir(environment.join("lib")).unwrap();
    let library = "site-packages/libfaketime/vendor/libfaketime/src/libfaketime.so.1";
    let found = versions.map(|entry| entry.unwrap().path().join(library)).find(|p| p.exists());
    Some(found.expect("the environment of the tests has libfaketime"))
}

/// An amount as text in ten-thousandths, exactly.
fn exact(amount: &str) -> i128 {
    let (sign, digits) = amount.strip_prefix('-').map_or((1, amount), |digits| (-1, digits));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    assert!(part.len() <= 4, "{amount}");
    sign * format!("{whole}{part:0<4}").parse::<i128>().unwrap()
}

impl Year {
    fn begin(library: PathBuf) -> Year {
        let world = World::with(Options {
            origin: Some(ORIGIN.to_owned()),
            journal_lines: Some(20),
            ..options(12)
        });
        // It is compared by hand at the end of each month, and not in every night besides.
        world.configure(&format!("{FEED}[schedule]\nverify = \"15 6 1 1 *\"\n"));
        world.journals_since("2025-01-01");
        world.retry_at_once();
        world.fake_time(library);
        let year = Year {
            world,
            started: Instant::now(),
            skipped: Cell::default(),
            closed: RefCell::default(),
            last: RefCell::default(),
            seen: RefCell::default(),
        };
        year.go_to(ORIGIN.parse().unwrap());
        year
    }

    fn now(&self) -> Timestamp {
        ORIGIN.parse::<Timestamp>().unwrap() + self.started.elapsed() + self.skipped.get()
    }

    /// Puts both clocks forward.
    fn go_to(&self, at: Timestamp) {
        let ahead = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        self.skipped.set(self.skipped.get() + ahead);
        let ms = u64::try_from(ahead.as_millis()).unwrap();
        self.world.sandbox.control(Control::Advance { ms });
        self.world.set_clock(self.now().duration_since(Timestamp::now()));
    }

    /// Five in the morning of a day, when the schedules of the night are due.
    fn night_of(&self, day: Date) {
        self.go_to(day.at(4, 0, 0, 0).in_tz("UTC").unwrap().timestamp());
    }

    fn edit(&self, journal: Journal, office_id: i64, month: &str, edit: JournalEdit) {
        let act = Act::Journal { journal, office_id, month: month.to_owned(), edit, line: None };
        self.world.sandbox.act(&act).unwrap();
    }

    fn offices(&self) -> Vec<i64> {
        let state = self.world.sandbox.tables(&["offices"]);
        let offices = state["tables"]["offices"].as_array().unwrap().iter();
        offices.map(|office| office["id"].as_i64().unwrap()).collect()
    }

    /// Every office books something into the month.
    fn book(&self, month: &str) {
        for office in self.offices() {
            for journal in Journal::ALL {
                self.edit(journal, office, month, JournalEdit::Appended);
                self.edit(journal, office, month, JournalEdit::Late);
            }
            self.edit(Journal::RevenueJournals, office, month, JournalEdit::Annotated);
            self.edit(Journal::RevenueJournals, office, month, JournalEdit::Doubled);
        }
    }

    /// Months that are closed are booked into all the same.
    fn book_late(&self, months: [&str; 2]) {
        for month in months {
            self.edit(Journal::RevenueJournals, OFFICE, month, JournalEdit::Late);
            self.edit(Journal::RevenueJournals, SPLIT, month, JournalEdit::Amount);
            self.edit(Journal::DepotJournals, SPLIT, month, JournalEdit::Removed);
            self.edit(Journal::CaseJournals, OFFICE, month, JournalEdit::Inserted);
        }
    }

    /// The sandbox's own books: every month of every journal up to now.
    fn at_source(&self, last: &str) -> BTreeMap<Scope, Figures> {
        let mut all: BTreeMap<Scope, Figures> = BTreeMap::new();
        let journals = ["case", "depot", "revenue", "settlement"].map(|j| format!("{j}_journals"));
        for office in self.offices() {
            for journal in &journals {
                let mut month: Date = "2025-01-01".parse().unwrap();
                while month.strftime("%Y-%m").to_string().as_str() <= last {
                    let name = month.strftime("%Y-%m").to_string();
                    all.insert((journal.clone(), office, name), Figures::default());
                    month += 1.month();
                }
            }
        }
        let tables = journals.each_ref().map(String::as_str);
        let state = self.world.sandbox.journal_tables(Level::Offices, Some("2025-01"), &tables);
        for journal in &journals {
            for row in state["tables"][journal].as_array().unwrap() {
                let month = row["journal_month"].as_str().unwrap()[..7].to_owned();
                let scope = (journal.clone(), row["journal_id"].as_i64().unwrap(), month);
                // Months before the mirror's first, and the one under way.
                let Some(figures) = all.get_mut(&scope) else { continue };
                figures.lines += 1;
                if let Some(payment) = row.get("payment").filter(|payment| !payment.is_null()) {
                    figures.payment += exact(payment.to_string().trim_matches('"'));
                }
            }
        }
        all
    }

    /// The program has closed the month just now: it is frozen as the source's books have it.
    fn is_closed(&self, month: &str, by: &str) {
        let source = self.at_source(month);
        let of_month = source.iter().filter(|((_, _, m), _)| m == month);
        let expected: BTreeMap<Scope, Figures> = of_month.map(|(s, f)| (s.clone(), *f)).collect();
        let closings = format!(
            "SELECT journal, journal_id, '{month}' AS month, lines, payment::VARCHAR FROM report.closings \
             WHERE journal_month = '{month}-01' AND reopened_at IS NULL AND closed_by {by}"
        );
        assert_eq!(self.figures(&closings), expected, "closings of {month}");
        self.closed.borrow_mut().extend(expected);
    }

    /// Rows of scope, lines and payment.
    fn figures(&self, sql: &str) -> BTreeMap<Scope, Figures> {
        let published = self.world.published();
        let mut statement = published.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            let payment: Option<String> = row.get(4)?;
            let figures = Figures {
                lines: row.get(3)?,
                payment: payment.map_or(0, |payment| exact(&payment)),
            };
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), figures))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// The statement says of every closed month what it was and what it is, and so does the report on
    /// revenue.
    fn states_what_is(&self, month: &str) {
        self.last.borrow_mut().extend(self.at_source(month));
        let last = self.last.borrow();
        let of = |of: &str| {
            format!(
                "SELECT journal, journal_id, strftime(journal_month, '%Y-%m'), {of}_lines, \
                   {of}_payment::VARCHAR FROM report.journal_statement"
            )
        };
        assert_eq!(self.figures(&of("closed")), *self.closed.borrow(), "as closed");
        let current: BTreeMap<Scope, Figures> =
            self.closed.borrow().keys().map(|scope| (scope.clone(), last[scope])).collect();
        assert_eq!(self.figures(&of("current")), current, "as they are in {month}");
        let revenue = format!(
            "SELECT 'revenue_journals', journal_id, strftime(month, '%Y-%m'), lines, \
               payment::VARCHAR FROM report.revenue_by_month WHERE month <= '{month}-01'"
        );
        let expected =
            last.iter().filter(|((journal, ..), f)| journal == "revenue_journals" && f.lines > 0);
        let expected: BTreeMap<Scope, Figures> = expected.map(|(s, f)| (s.clone(), *f)).collect();
        assert_eq!(self.figures(&revenue), expected, "revenue in {month}");
        let off = "SELECT count(*) FROM report.journal_statement WHERE net_payment IS DISTINCT FROM \
                   current_payment - closed_payment OR restatements = 0 AND net_payment <> 0";
        assert_eq!(rows(&self.world.published(), off), ["0"]);
    }

    /// The tables and reports that are compared with what they were; `{}` takes `main.` or the macro.
    fn readings(at: Option<Timestamp>) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for table in ["revenue_journals", "revenue_journal_annotations", "depot_journals"] {
            let from = match at {
                None => format!("main.{table}"),
                Some(at) => format!("report.journals_as_of('{table}', '{at}')"),
            };
            // A line that only moves makes no version.
            let columns = "* EXCLUDE (line_number)";
            all.push((table.to_owned(), format!("SELECT {columns} FROM {from}")));
        }
        for report in ["signed_cases", "total_cost"] {
            let from = match at {
                None => format!("report.{report}"),
                Some(at) => format!("report.{report}_as_of('{at}')"),
            };
            all.push((report.to_owned(), format!("SELECT * FROM {from}")));
        }
        all
    }

    fn read(&self, at: Option<Timestamp>) -> BTreeMap<String, Vec<String>> {
        let published = self.world.published();
        let mut all = BTreeMap::new();
        for (name, sql) in Year::readings(at) {
            let text = format!("SELECT r::VARCHAR FROM ({sql}) r ORDER BY 1");
            let mut statement = published.prepare(&text).unwrap();
            let found = statement.query_map([], |row| row.get(0)).unwrap();
            all.insert(name, found.map(Result::unwrap).collect());
        }
        all
    }

    fn remember(&self) {
        self.seen.borrow_mut().push(Seen { at: self.now(), rows: self.read(None) });
    }
}

/// A night in which the journals are answered wrongly, each month in another way.
fn wrong_nights() -> [Fault; 12] {
    [
        refuse(404),
        garbage("[]"),
        Fault::Spoil { how: Spoil::EmptyBody },
        refuse(403),
        Fault::Raw { answer: "HTTP/1.0 200 OK\r\n\r\n".to_owned() },
        Fault::Spoil { how: Spoil::Truncate },
        Fault::Drop,
        Fault::CutOff { bytes: None },
        Fault::Spoil { how: Spoil::WrongShape },
        garbage(r#"{"Message":"An error has occurred."}"#),
        refuse(500),
        Fault::Spoil { how: Spoil::Html },
    ]
}

#[test]
fn twelve_month_ends_are_to_the_øre_what_the_sources_books_say() {
    let Some(library) = libfaketime() else { return };
    let year = Year::begin(library);
    let mut first: Date = "2025-01-01".parse().unwrap();
    for night in wrong_nights() {
        let name = |back: i32| (first - Span::new().months(back)).strftime("%Y-%m").to_string();
        let month = name(0);
        // In the month: bookings, and some into months that are closed.
        year.night_of(first + 19.days());
        year.book(&month);
        if first.month() > 2 {
            year.book_late([&name(1), &name(2)]);
        }
        if month == "2025-05" {
            year.world.sandbox.act(&Act::CloseOffice { office_id: CLOSED_DOWN }).unwrap();
        }
        if month == "2025-09" {
            let split = Act::SplitOffice { office_id: SPLIT };
            let new = year.world.sandbox.act(&split).unwrap().ids[0];
            // Its months before are read too, and closed without a line.
            let before = year.at_source(&name(1)).into_iter().filter(|((_, id, _), _)| *id == new);
            year.closed.borrow_mut().extend(before);
            year.book(&month);
        }
        // The first 404 of an office that was closed down says nothing yet.
        let output = year.world.run(&["sync"]);
        let expected = if month == "2025-05" { 3 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{month}: {}", shown(&output));

        // It ends, with bookings of the last day; then the source is wrong for a night.
        let next = first + 1.month();
        year.night_of(next);
        year.book(&month);
        assert_status(&year.world.run(&["sync"]), 0);
        if month == BY_HAND {
            assert_status(&year.world.run(&["close", "--month", &month]), 0);
            year.is_closed(&month, "<> 'close_day'");
        }
        let before = year.read(None);
        year.night_of(next + 1.day());
        year.world.sandbox.fault(fault("/api/Offices/*/*Journals*", None, night.clone()));
        let output = year.world.run(&["sync"]);
        // What is not permitted is no failure of the run; report.journal_coverage says it.
        let forbidden = matches!(night, Fault::Refuse { status: 403, .. });
        let expected = if forbidden { 0 } else { 3 };
        assert_eq!(output.status.code(), Some(expected), "{month} {night:?}: {}", shown(&output));
        assert_eq!(year.read(None), before, "{month} {night:?}");
        year.world.sandbox.clear_faults();

        // It is closed.
        year.night_of(next + 11.days());
        assert_status(&year.world.run(&["sync"]), 0);
        if month != BY_HAND {
            year.is_closed(&month, "= 'close_day'");
        }
        year.states_what_is(&month);
        assert_status(&year.world.run(&["verify"]), 0);
        year.remember();
        first = next;
    }
    let restated = "SELECT count(DISTINCT journal_month) FROM report.journal_statement \
                    WHERE restatements > 0";
    assert_eq!(rows(&year.world.published(), restated), ["11"]);
    let gone = format!(
        "SELECT DISTINCT status FROM report.journal_coverage WHERE journal_id = {CLOSED_DOWN} \
         AND journal_month >= '2025-05-01'"
    );
    assert_eq!(rows(&year.world.published(), &gone), ["gone"]);
    for seen in year.seen.borrow().iter() {
        let now = year.read(Some(seen.at));
        for (name, rows) in &seen.rows {
            assert_eq!(now[name], *rows, "{name} as of {}", seen.at);
        }
    }
}
