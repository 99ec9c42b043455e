//! `casemirror journals`: the journals of a period.

use super::args::Journals;
use super::sync::summary;
use crate::cycle::{JournalRequest, Options};
use crate::daemon::{Host, Printer};
use crate::error::{Error, Kind, Result};
use crate::journals::{KINDS, Month, tables_of};

/// Refuses a period or a kind that makes no sense.
pub fn check(args: &Journals) -> Result<()> {
    options(args).map(drop)
}

pub async fn execute(args: &Journals, host: &Host, out: &Printer) -> Result<u8> {
    let ran = host.run("journals", options(args)?).await?;
    out.print(&summary(&ran))?;
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
        planned: false,
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
