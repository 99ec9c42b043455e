//! `casemirror close`: closing months of the journals by hand (docs/finance.md).

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::tz::TimeZone;

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
pub(super) fn typed_by_user(args: &Close) -> Close {
    // A container's user may have no name.
    let by = whoami::username()
        .unwrap_or_else(|_| format!("uid {}", rustix::process::geteuid().as_raw()));
    Close { by, ..args.clone() }
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
        host.goes_on()?;
        let opened = session.reopen_months(&of).await?;
        if opened == 0 {
            return Err(Error::new(Kind::Usage, format!("{}: nothing of it is closed", of.month)));
        }
        // Opened it is, whatever becomes of what shows it.
        out.print(&format!("{}: {opened} opened again; the closings are kept\n", of.month))?;
        session.publish_closings().await?;
        if session.config().publish.parquet.is_none() || session.has_listed()? {
            tell_pack(session.write_pack(&of).await?, out)?;
        }
        return Ok(0);
    }

    let began = Timestamp::now();
    let judge = Judge {
        names_journals: !args.kind.is_empty(),
        names_ids: !of.ids.is_empty(),
        zone: &session.config().source.time_zone,
    };
    let known = session.closing_months(&of)?;
    // Who is gone is asked when somebody names the office.
    let to_read = |month: &&ClosingMonth| {
        let is_meant = month.status != GONE || judge.names_ids;
        is_meant && judge.of(month).may_be_closed()
    };
    let to_read: Vec<i64> = known.iter().filter(to_read).map(|month| month.id).collect();
    if session.lacks_months(&of, &known)? || !to_read.is_empty() {
        let request = JournalRequest {
            from: of.month,
            to: of.month,
            ids: of.ids.clone(),
            // Offices that journals.ids does not name are closed too where their months are here.
            also: to_read,
            planned: false,
            // What does not add up must not be closed by the reading that is to find it.
            stays_open: true,
        };
        let mut only = of.journals.clone();
        if only.iter().any(|table| table == REVENUE) {
            only.push(REVENUE_SUMS.to_owned());
        }
        let options = Options { only, journals: Some(request), ..Options::default() };
        out.print(&summary(&host.run("close", options).await?))?;
    }
    let months = session.closing_months(&of)?;
    let judged: Vec<(ClosingMonth, Judged)> =
        months.into_iter().map(|month| (month.clone(), judge.of_read(&month, began))).collect();
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
    // Nobody is to find closed what they have stopped.
    host.goes_on()?;
    let closed = session.close_months(&of, to_close, &args.by).await?;
    let already = judged.iter().filter(|(_, j)| matches!(j, Judged::Closed(_))).count();
    // Closed it is, whatever becomes of what shows it.
    out.print(&format!("{}\n", outcome(&of.month.to_string(), closed, already, &args.by)))?;
    session.publish_closings().await?;
    if session.config().publish.parquet.is_some() && !session.has_listed()? {
        out.print(&format!("no pack yet: {NOTHING_LISTED}; the same command writes it then\n"))?;
        return Ok(3);
    }
    tell_pack(session.write_pack(&of).await?, out)?;
    Ok(if never_read { 3 } else { 0 })
}

fn tell_pack(place: Option<String>, out: &Printer) -> Result<()> {
    match place {
        Some(place) => out.print(&format!("pack {place}\n")),
        None => out.print("no pack: publish.parquet is off\n"),
    }
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
    /// The source no longer knows whose month it is, and what is here of it, if anything, is not the whole month. Nobody
    /// can read it any more, so that it keeps no other from being closed.
    Gone(String),
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
            Judged::Closed(_) | Judged::Good | Judged::Gone(_) | Judged::NotRead(_) => None,
        }
    }

    fn problem(&self) -> Option<&str> {
        match self {
            Judged::Bad { problem, .. } => Some(problem),
            Judged::Closed(_) | Judged::Good | Judged::Gone(_) | Judged::NotRead(_) => None,
        }
    }

    /// Whether reading the month once more may let it be closed.
    fn may_be_closed(&self) -> bool {
        match self {
            Judged::Good | Judged::Gone(_) | Judged::Bad { .. } => true,
            Judged::Closed(_) | Judged::NotRead(_) => false,
        }
    }
}

/// Status of `report.journal_coverage`: the source no longer knows the office.
const GONE: &str = "gone";

/// What decides whether a month can be closed, beside the month.
struct Judge<'a> {
    /// What somebody asks for by name is to be closed or told why not.
    names_journals: bool,
    /// The same of offices.
    names_ids: bool,
    /// Zone of the days that are told.
    zone: &'a TimeZone,
}

impl Judge<'_> {
    /// A month is good when it was read completely just now, and its control agrees where it has one. A journal that is
    /// not read at all is no failure (docs/architecture.md, "Commands"), unless it is named.
    fn of(&self, month: &ClosingMonth) -> Judged {
        if let Some((at, by)) = &month.closed {
            let day = at.to_zoned(self.zone.clone()).date();
            return Judged::Closed(format!("closed {day} by {by}"));
        }
        match month.status.as_str() {
            "complete" => judge_content(month),
            // It was read whole while it could be. What is wrong with it nobody can mend.
            GONE if month.is_whole => match judge_content(month) {
                Judged::Bad { problem, .. } if !self.names_ids => {
                    Judged::Gone(format!("gone, and {problem}: not closed"))
                }
                judged => judged,
            },
            GONE if !month.was_read => Judged::Gone(GONE.to_owned()),
            GONE if !self.names_ids => Judged::Gone(
                "gone, and not read whole after the month's end: not closed".to_owned(),
            ),
            GONE => bad(month, "gone, and not read whole after the month's end", 3),
            status @ ("disabled" | "forbidden" | "absent") if !self.names_journals => {
                Judged::NotRead(status.to_owned())
            }
            status => bad(month, status, 3),
        }
    }

    /// The same of a month that this command read, or should have read, since it began.
    fn of_read(&self, month: &ClosingMonth, began: Timestamp) -> Judged {
        match self.of(month) {
            // Nobody can read it now.
            Judged::Good if month.status == GONE => Judged::Good,
            Judged::Good if month.sent_at.is_none_or(|sent_at| sent_at < began) => {
                bad(month, "it could not be read now", 3)
            }
            judged => judged,
        }
    }
}

/// A month that was read whole: the worst is told.
fn judge_content(month: &ClosingMonth) -> Judged {
    match month.sum_matches {
        Some(false) if month.without_control => {
            bad(month, "the platform's sum is no control of it", 3)
        }
        Some(false) => bad(month, "its lines do not add up to the platform's sum", 4),
        _ if month.rejects > 0 => {
            bad(month, "values of it did not fit (sync.rejects), and are missing", 3)
        }
        None if month.lacks_annotations => bad(
            month,
            "the platform's sum cannot be compared: annotations of the lines are not mirrored",
            3,
        ),
        None if month.journal == REVENUE => bad(month, "the platform's sum could not be read", 3),
        _ => Judged::Good,
    }
}

fn bad(month: &ClosingMonth, problem: &str, status: u8) -> Judged {
    Judged::Bad { problem: problem.to_owned(), status, read: month.was_read }
}

fn table(judged: &[(ClosingMonth, Judged)]) -> String {
    let mut table = output::table(&["journal", "id", "name", "lines", "state"]);
    for (month, judged) in judged {
        let state = match judged {
            Judged::Closed(how) => how,
            Judged::Good => "complete",
            Judged::Gone(how) => how,
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

    fn judge(month: &ClosingMonth, names_journals: bool) -> Judged {
        Judge { names_journals, names_ids: false, zone: &TimeZone::UTC }.of(month)
    }

    fn judge_read(month: &ClosingMonth, began: Timestamp) -> Judged {
        Judge { names_journals: false, names_ids: false, zone: &TimeZone::UTC }
            .of_read(month, began)
    }

    fn month(journal: &str, status: &str, sum_matches: Option<bool>) -> ClosingMonth {
        ClosingMonth {
            journal: journal.to_owned(),
            id: 11,
            name: None,
            lines: 3,
            was_read: true,
            is_whole: false,
            status: status.to_owned(),
            sum_matches,
            without_control: false,
            lacks_annotations: false,
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
        for bad in ["open", "missing", "incomplete", "failing", "doubted", "forbidden"] {
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
        let status = |month| judge_read(&month, began).exit_status();
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
        assert_eq!(judge(&gone, false), Judged::Gone("gone".to_owned()));
    }

    #[test]
    fn a_month_of_an_office_that_is_gone_is_judged_by_its_last_reading() {
        let in_part = month("revenue_journals", "gone", Some(true));
        let whole = |sum_matches| ClosingMonth { is_whole: true, sum_matches, ..in_part.clone() };
        let began = Timestamp::now();
        assert_eq!(judge_read(&whole(Some(true)), began), Judged::Good, "it cannot be read now");
        for bad in [whole(Some(false)), whole(None), in_part.clone()] {
            let judged = judge_read(&bad, began);
            assert!(matches!(judged, Judged::Gone(_)), "it keeps no other month from being closed");
        }
        let named = Judge { names_journals: false, names_ids: true, zone: &TimeZone::UTC };
        let named = |month: &ClosingMonth| named.of_read(month, began).exit_status();
        assert_eq!(named(&whole(Some(false))), Some(4), "it was asked for");
        assert_eq!((named(&whole(None)), named(&in_part)), (Some(3), Some(3)));
    }

    #[test]
    fn why_a_sum_is_not_known_is_told() {
        let unknown = month("revenue_journals", "complete", None);
        let problem = |month: &ClosingMonth| judge(month, false).problem().unwrap().to_owned();
        assert!(problem(&unknown).contains("could not be read"));
        let rejected = ClosingMonth { rejects: 1, ..unknown.clone() };
        assert!(problem(&rejected).contains("did not fit"));
        let unnoted = ClosingMonth { lacks_annotations: true, ..unknown };
        assert!(problem(&unnoted).contains("annotations of the lines are not mirrored"));
    }

    #[test]
    fn the_day_of_a_closing_is_the_sources() {
        let closed = ClosingMonth {
            closed: Some(("2026-11-09T23:30:00Z".parse().unwrap(), "kari".to_owned())),
            ..month("depot_journals", "complete", None)
        };
        let oslo = TimeZone::get("Europe/Oslo").unwrap();
        let judge = Judge { names_journals: false, names_ids: false, zone: &oslo };
        assert_eq!(judge.of(&closed), Judged::Closed("closed 2026-11-10 by kari".to_owned()));
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
