//! `casemirror close`: closing months of the journals by hand (docs/finance.md).

use std::fmt::Write as _;

use jiff::Timestamp;

use super::args::Close;
use super::output;
use super::sync::summary;
use crate::config::{CALENDAR_YEARS, Config};
use crate::cycle::{JournalRequest, Options};
use crate::daemon::{Host, Printer};
use crate::error::{Error, Kind, Result};
use crate::journals::{KINDS, tables_of};
use crate::mirror::{ClosingMonth, MonthOf};
use crate::scope::{Month, REVENUE, REVENUE_SUMS};
use crate::session::{NOTHING_LISTED, ToClose};

/// The command as the user who runs this process typed it.
pub(super) fn typed_by_user(args: &Close) -> Result<Close> {
    let by = whoami::username()
        .map_err(|e| Error::caused(Kind::Io, "cannot tell which system user this is", e))?;
    Ok(Close { by, ..args.clone() })
}

/// Refuses a month that has not ended, and a kind that does not exist.
pub(super) fn check(args: &Close, config: &Config) -> Result<()> {
    let current = Month::at(Timestamp::now(), &config.source.time_zone);
    meant(args, config, current).map(drop)
}

/// Which months are meant.
fn meant(args: &Close, config: &Config, current: Month) -> Result<MonthOf> {
    let usage = |text: String| Error::new(Kind::Usage, text);
    let month: Month = args.month.parse().map_err(|_| {
        usage(format!("--month {}: expected a month as yyyy-mm, such as 2026-10", args.month))
    })?;
    // A mistyped year would be asked for, and stay known.
    if !CALENDAR_YEARS.contains(&month.first().year()) {
        let (first, last) = (CALENDAR_YEARS.start(), CALENDAR_YEARS.end());
        return Err(usage(format!("--month {month}: must be from {first}-01 to {last}-12")));
    }
    if month >= current {
        return Err(usage(format!(
            "--month {month}: it has not ended; the last month that has is {}",
            current.plus(-1)
        )));
    }
    let mut journals = tables_of(&args.kind).map_err(|unknown| {
        let known = KINDS.map(|(kind, _)| kind).join(", ");
        usage(format!("--kind {unknown}: there is no such kind; there are {known}"))
    })?;
    journals.retain(|table| table != REVENUE_SUMS);
    Ok(MonthOf { level: config.journals.level, month, journals, ids: args.ids.clone() })
}

pub(super) async fn execute(args: &Close, host: &Host, out: &Printer) -> Result<u8> {
    let session = &host.session;
    let current = Month::at(Timestamp::now(), &session.config().source.time_zone);
    let of = meant(args, session.config(), current)?;
    if args.reopen {
        let opened = session.reopen_months(&of).await?;
        if opened == 0 {
            return Err(Error::new(Kind::Usage, format!("{}: nothing of it is closed", of.month)));
        }
        out.print(&format!("{}: {opened} opened again; the closings are kept\n", of.month))?;
        return Ok(0);
    }

    // What somebody asks for by name is to be closed or told why not.
    let (is_named, began) = (!args.kind.is_empty(), Timestamp::now());
    let known = session.closing_months(&of)?;
    // Who is gone is asked when somebody names the office.
    let to_read = |month: &&ClosingMonth| {
        let is_meant = month.status != "gone" || !of.ids.is_empty();
        is_meant && judge(month, is_named).may_be_closed()
    };
    let to_read: Vec<i64> = known.iter().filter(to_read).map(|month| month.id).collect();
    if known.is_empty() || !to_read.is_empty() {
        let request = JournalRequest {
            from: of.month,
            to: of.month,
            ids: of.ids.clone(),
            // Offices that journals.ids does not name are closed too where their months are here.
            also: to_read,
            planned: false,
        };
        let mut only = of.journals.clone();
        if only.iter().any(|table| table == REVENUE) {
            only.push(REVENUE_SUMS.to_owned());
        }
        let options = Options { only, journals: Some(request), ..Options::default() };
        out.print(&summary(&host.run("close", options).await?))?;
    }
    let months = session.closing_months(&of)?;
    let judged: Vec<(ClosingMonth, Judged)> = months
        .into_iter()
        .map(|month| (month.clone(), judge_read(&month, is_named, began)))
        .collect();
    out.print(&table(&judged))?;

    let status = judged.iter().filter_map(|(_, judged)| judged.exit_status()).max();
    if let (Some(status), false) = (status, args.force) {
        out.print("nothing is closed: see above; --force closes what was read all the same\n")?;
        return Ok(status);
    }
    let to_close: Vec<ToClose> = judged
        .iter()
        .filter(|(_, judged)| matches!(judged, Judged::Good | Judged::Bad { read: true, .. }))
        .map(|(month, judged)| ToClose {
            journal: month.journal.clone(),
            id: month.id,
            forced_over: judged.problem().map(str::to_owned),
        })
        .collect();
    let never_read = judged.iter().any(|(_, j)| matches!(j, Judged::Bad { read: false, .. }));
    let closed = session.close_months(&of, to_close, &args.by).await?;
    let already = judged.iter().filter(|(_, j)| matches!(j, Judged::Closed(_))).count();
    // Closed it is, whatever becomes of the pack.
    out.print(&format!("{}\n", outcome(&of.month.to_string(), closed, already, &args.by)))?;
    if session.config().publish.parquet.is_some() && !session.has_listed()? {
        out.print(&format!("no pack yet: {NOTHING_LISTED}; the same command writes it then\n"))?;
        return Ok(3);
    }
    match session.write_pack(&of).await? {
        Some(place) => out.print(&format!("pack {place}\n"))?,
        None => out.print("no pack: publish.parquet is off\n")?,
    }
    Ok(if never_read { 3 } else { 0 })
}

/// What was closed, in a line.
fn outcome(month: &str, closed: usize, already: usize, by: &str) -> String {
    let are = if already == 1 { "is" } else { "are" };
    match (closed, already) {
        (0, 0) => format!("{month}: nothing to close"),
        (0, _) => format!("{month}: nothing to close; {already} {are} closed already"),
        (_, 0) => format!("{month}: {closed} closed by {by}"),
        (_, _) => format!("{month}: {closed} closed by {by}; {already} {are} closed already"),
    }
}

/// Whether a month can be closed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judged {
    Closed(String),
    Good,
    /// The source no longer knows whose month it would be, and there is nothing of it.
    Gone,
    /// The journal is switched off, may not be read, or is not there: which of them.
    NotRead(String),
    Bad {
        problem: String,
        status: u8,
        /// There is something that could be closed.
        read: bool,
    },
}

impl Judged {
    fn exit_status(&self) -> Option<u8> {
        match self {
            Judged::Bad { status, .. } => Some(*status),
            Judged::Closed(_) | Judged::Good | Judged::Gone | Judged::NotRead(_) => None,
        }
    }

    fn problem(&self) -> Option<&str> {
        match self {
            Judged::Bad { problem, .. } => Some(problem),
            Judged::Closed(_) | Judged::Good | Judged::Gone | Judged::NotRead(_) => None,
        }
    }

    /// Whether reading the month once more may let it be closed.
    fn may_be_closed(&self) -> bool {
        match self {
            Judged::Good | Judged::Gone | Judged::Bad { .. } => true,
            Judged::Closed(_) | Judged::NotRead(_) => false,
        }
    }
}

/// A month is good when it was read completely just now, and its control agrees where it has one. A journal that is not
/// read at all is no failure (docs/architecture.md, "Commands"), unless it `is_named`.
fn judge(month: &ClosingMonth, is_named: bool) -> Judged {
    let bad = |problem: &str, status| Judged::Bad {
        problem: problem.to_owned(),
        status,
        read: month.was_read,
    };
    if let Some((at, by)) = &month.closed {
        return Judged::Closed(format!("closed {} by {by}", at.strftime("%Y-%m-%d")));
    }
    match (month.status.as_str(), month.sum_matches) {
        ("complete", Some(false)) if month.without_control => {
            bad("the platform's sum is no control of it", 3)
        }
        ("complete", Some(false)) => bad("its lines do not add up to the platform's sum", 4),
        ("complete", None) if month.journal == REVENUE => {
            bad("the platform's sum could not be read", 3)
        }
        ("complete", _) if month.rejects > 0 => {
            bad("values of it did not fit (sync.rejects), and are missing", 3)
        }
        ("complete", _) => Judged::Good,
        ("gone", _) if !month.was_read => Judged::Gone,
        (status @ ("disabled" | "forbidden" | "absent"), _) if !is_named => {
            Judged::NotRead(status.to_owned())
        }
        (status, _) => bad(status, 3),
    }
}

/// The same of a month that this command read, or should have read, since it began.
fn judge_read(month: &ClosingMonth, is_named: bool, began: Timestamp) -> Judged {
    match judge(month, is_named) {
        Judged::Good if month.sent_at.is_none_or(|sent_at| sent_at < began) => Judged::Bad {
            problem: "it could not be read now".to_owned(),
            status: 3,
            read: month.was_read,
        },
        judged => judged,
    }
}

fn table(judged: &[(ClosingMonth, Judged)]) -> String {
    let mut table = output::table(&["journal", "id", "name", "lines", "state"]);
    for (month, judged) in judged {
        let state = match judged {
            Judged::Closed(how) => how,
            Judged::Good => "complete",
            Judged::Gone => "gone",
            Judged::NotRead(why) => why,
            Judged::Bad { problem, .. } => problem,
        };
        table.add_row([
            &month.journal,
            &month.id.to_string(),
            month.name.as_deref().unwrap_or_default(),
            &month.lines.to_string(),
            state,
        ]);
    }
    output::align_numbers(&mut table, 1..2);
    output::align_numbers(&mut table, 3..4);
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = writeln!(text, "{table}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month(journal: &str, status: &str, sum_matches: Option<bool>) -> ClosingMonth {
        ClosingMonth {
            journal: journal.to_owned(),
            id: 11,
            name: None,
            lines: 3,
            was_read: true,
            status: status.to_owned(),
            sum_matches,
            without_control: false,
            sent_at: None,
            rejects: 0,
            closed: None,
        }
    }

    #[test]
    fn only_what_is_complete_and_adds_up_is_closed() {
        let status = |journal, status, sum| {
            judge(&month(journal, status, sum), true).exit_status().unwrap_or(0)
        };
        assert_eq!(status("revenue_journals", "complete", Some(true)), 0);
        assert_eq!(status("revenue_journals", "complete", Some(false)), 4);
        assert_eq!(status("revenue_journals", "complete", None), 3, "no control is no agreement");
        assert_eq!(status("depot_journals", "complete", None), 0, "it has no control");
        for bad in ["open", "missing", "incomplete", "failing", "doubted", "forbidden", "gone"] {
            assert_eq!(status("depot_journals", bad, None), 3, "{bad}");
        }
    }

    #[test]
    fn what_was_not_read_by_the_command_or_did_not_fit_is_not_closed() {
        let began: Timestamp = "2026-11-10T03:15:00Z".parse().unwrap();
        let depot = month("depot_journals", "complete", None);
        let read_at = |seconds| ClosingMonth {
            sent_at: Some(began + jiff::SignedDuration::from_secs(seconds)),
            ..depot.clone()
        };
        let status = |month| judge_read(&month, false, began).exit_status();
        assert_eq!(status(read_at(0)), None);
        assert_eq!((status(read_at(-1)), status(depot.clone())), (Some(3), Some(3)));
        let rejected = ClosingMonth { rejects: 1, ..read_at(0) };
        assert_eq!(status(rejected), Some(3));
        let differs = ClosingMonth {
            rejects: 1,
            sent_at: Some(began),
            ..month("revenue_journals", "complete", Some(false))
        };
        assert_eq!(status(differs), Some(4), "the worse is told");
    }

    #[test]
    fn a_month_of_an_office_that_was_gone_before_it_is_no_reason_to_refuse() {
        let gone = ClosingMonth { was_read: false, ..month("depot_journals", "gone", None) };
        assert_eq!(judge(&gone, false), Judged::Gone);
    }

    #[test]
    fn a_journal_that_is_not_read_keeps_no_other_from_being_closed() {
        for status in ["disabled", "forbidden", "absent"] {
            let month = month("depot_journals", status, None);
            let judged = judge(&month, false);
            assert_eq!(judged, Judged::NotRead(status.to_owned()));
            assert!(judged.exit_status().is_none() && !judged.may_be_closed());
            assert_eq!(judge(&month, true).exit_status(), Some(3), "it was asked for by name");
        }
    }

    #[test]
    fn a_sum_that_is_known_to_mean_something_else_is_no_difference() {
        let off = month("revenue_journals", "complete", Some(false));
        let no_control = ClosingMonth { without_control: true, ..off.clone() };
        let status = |month| judge(&month, false).exit_status();
        assert_eq!((status(off), status(no_control)), (Some(4), Some(3)));
    }

    #[test]
    fn what_was_closed_before_is_told_apart_from_what_is_closed_now() {
        assert_eq!(outcome("2026-10", 24, 0, "kari"), "2026-10: 24 closed by kari");
        let none = "2026-10: nothing to close; 24 are closed already";
        assert_eq!(outcome("2026-10", 0, 24, "kari"), none);
        let some = "2026-10: 3 closed by kari; 1 is closed already";
        assert_eq!(outcome("2026-10", 3, 1, "kari"), some);
    }

    #[test]
    fn what_is_closed_is_not_judged_again() {
        let closed = ClosingMonth {
            closed: Some(("2026-11-10T03:15:00Z".parse().unwrap(), "close_day".to_owned())),
            ..month("revenue_journals", "failing", Some(false))
        };
        assert_eq!(
            judge(&closed, false),
            Judged::Closed("closed 2026-11-10 by close_day".to_owned())
        );
    }
}
