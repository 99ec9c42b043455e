//! `casemirror journals`: the journals of a period.

use super::args::Journals;
use super::print;
use super::sync::{one_run, summary};
use crate::config::Config;
use crate::cycle::{JournalRequest, Options};
use crate::error::{Error, Kind, Result};
use crate::journals::{KINDS, Month, tables_of};
use crate::progress::Progress;
use crate::session::Session;

pub async fn run(config: Config, args: &Journals, quiet: bool) -> Result<u8> {
    let options = options(args)?;
    let session = Session::open(config, Progress::new(quiet))?;
    let ran = one_run(&session, "journals", options).await?;
    print(&summary(&ran))?;
    Ok(ran.report.exit_status())
}

/// What a run is asked for, checked before anything is touched.
fn options(args: &Journals) -> Result<Options> {
    if args.from > args.to {
        return Err(Error::new(
            Kind::Usage,
            format!("--from {} is later than --to {}", args.from, args.to),
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
        from: Month::of(args.from),
        to: Month::of(args.to),
        ids: args.ids.clone(),
    };
    Ok(Options { only, journals: Some(request), ..Options::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let options = options(&args("2026-01-31", "2026-03-01", &["depot"])).unwrap();
        let request = options.journals.unwrap();
        assert_eq!(
            (request.from.to_string(), request.to.to_string()),
            ("2026-01".into(), "2026-03".into())
        );
        assert_eq!(options.only, ["depot_journals"]);
    }

    #[test]
    fn a_period_that_runs_backwards_and_an_unknown_kind_are_wrong_usage() {
        let backwards = options(&args("2026-02-01", "2026-01-31", &[])).unwrap_err();
        assert_eq!(backwards.kind(), Kind::Usage);
        let unknown = options(&args("2026-01-01", "2026-01-31", &["rent"])).unwrap_err();
        assert!(unknown.to_string().contains("case, depot, revenue, settlement"), "{unknown}");
    }
}
