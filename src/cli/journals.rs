//! `casemirror journals`: the journals of a period.

use jiff::Timestamp;

use super::args::Journals;
use super::sync::summary;
use crate::config::{CALENDAR_YEARS, Config};
use crate::cycle::{JournalRequest, Options};
use crate::daemon::{Host, Printer};
use crate::error::{Error, Kind, Result};
use crate::journals::{KINDS, tables_of};
use crate::scope::Month;

/// Refuses a period or a kind that makes no sense.
pub(crate) fn check(args: &Journals, config: &Config) -> Result<()> {
    options(args, current_month(config)).map(drop)
}

pub(crate) async fn execute(args: &Journals, host: &Host, out: &Printer) -> Result<u8> {
    let options = options(args, current_month(host.session.config()))?;
    let ran = host.run("journals", options).await?;
    out.print(&summary(&ran))?;
    Ok(ran.report.exit_status())
}

/// The last month that has begun at the source.
fn current_month(config: &Config) -> Month {
    Month::at(Timestamp::now(), &config.source.time_zone)
}

/// What a run is asked for, checked before anything is touched.
fn options(args: &Journals, current: Month) -> Result<Options> {
    if args.from > args.to {
        return Err(Error::new(
            Kind::Usage,
            format!("--from {} is later than --to {}", args.from, args.to),
        ));
    }
    // A mistyped year would be asked for month by month, and its months stay known.
    if !CALENDAR_YEARS.contains(&args.from.year()) {
        let (first, last) = (CALENDAR_YEARS.start(), CALENDAR_YEARS.end());
        return Err(Error::new(
            Kind::Usage,
            format!("--from {}: must be a day from {first}-01-01 to {last}-12-31", args.from),
        ));
    }
    // What has not begun would be complete, and empty.
    if Month::of(args.to) > current {
        return Err(Error::new(
            Kind::Usage,
            format!(
                "--to {}: journals are read up to the current month, {current}, and not beyond",
                args.to
            ),
        ));
    }
    let only = tables_of(&args.kind).map_err(|unknown| {
        let known = KINDS.map(|(kind, _)| kind).join(", ");
        Error::new(
            Kind::Usage,
            format!("--kind {unknown}: there is no such kind; there are {known}"),
        )
    })?;
    let request = JournalRequest {
        also: Vec::new(),
        from: Month::of(args.from),
        to: Month::of(args.to),
        ids: args.ids.clone(),
        planned: false,
        stays_open: false,
    };
    Ok(Options { only, journals: Some(request), ..Options::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn november() -> Month {
        "2026-11".parse().unwrap()
    }

    fn args(from: &str, to: &str, kind: &[&str]) -> Journals {
        Journals {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            kind: kind.iter().map(|k| (*k).to_owned()).collect(),
            ids: Vec::new(),
        }
    }

    #[test]
    fn a_period_is_widened_to_whole_months() {
        let options = options(&args("2026-01-31", "2026-03-01", &["depot"]), november()).unwrap();
        let request = options.journals.unwrap();
        assert_eq!(
            (request.from.to_string(), request.to.to_string()),
            ("2026-01".into(), "2026-03".into())
        );
        assert_eq!(options.only, ["depot_journals"]);
    }

    #[test]
    fn a_period_ends_with_the_current_month_at_the_latest() {
        assert!(options(&args("2026-11-01", "2026-11-30", &[]), november()).is_ok());
        let beyond = options(&args("2026-11-01", "2026-12-01", &[]), november()).unwrap_err();
        assert_eq!(beyond.kind(), Kind::Usage);
        assert!(beyond.to_string().contains("up to the current month, 2026-11"), "{beyond}");
    }

    #[test]
    fn a_period_begins_where_the_calendar_does_at_the_earliest() {
        assert!(options(&args("1900-01-01", "2026-11-30", &[]), november()).is_ok());
        let before = options(&args("1899-12-31", "2026-11-30", &[]), november()).unwrap_err();
        assert_eq!(before.kind(), Kind::Usage);
        assert!(before.to_string().contains("from 1900-01-01 to 2100-12-31"), "{before}");
    }

    #[test]
    fn a_period_that_runs_backwards_and_an_unknown_kind_are_wrong_usage() {
        let backwards = options(&args("2026-02-01", "2026-01-31", &[]), november()).unwrap_err();
        assert_eq!(backwards.kind(), Kind::Usage);
        let unknown =
            options(&args("2026-01-01", "2026-01-31", &["rent"]), november()).unwrap_err();
        assert!(unknown.to_string().contains("case, depot, revenue, settlement"), "{unknown}");
    }
}
