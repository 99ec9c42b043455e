//! `casemirror verify`: the mirror held against the source.

use super::args::Verify;
use super::output;
use super::sync::summary;
use crate::cycle::Options;
use crate::daemon::{Host, Printer};
use crate::error::Result;
use crate::text::counted;
use crate::verify::{Comparison, Finding, Verified};

pub(crate) async fn execute(args: &Verify, host: &Host, out: &Printer) -> Result<u8> {
    let options = Options { verify: Some(args.sample), ..Options::default() };
    let ran = host.run("verify", options).await?;
    out.print(&summary(&ran))?;
    if let Some(verified) = &ran.verified {
        out.print(&table(verified))?;
    }
    let status = ran.report.exit_status();
    let lacks_control = ran.verified.as_ref().is_some_and(|verified| verified.without_control > 0);
    let stands = ran.verified.as_ref().is_some_and(|verified| verified.standing > 0);
    // What nothing was held against is no agreement, also where nobody wants the control.
    Ok(if status == 0 && (lacks_control || stands) { 3 } else { status })
}

/// Everything that was compared, as a table, and what it comes to.
fn table(verified: &Verified) -> String {
    let mut text = rows(&verified.comparisons);
    for note in &verified.notes {
        text.push_str(&format!("{note}\n"));
    }
    text + &left_out(verified) + &total(verified)
}

/// What differs, and what it comes to: for a run that verified because it was due.
pub(crate) fn differences(verified: &Verified) -> String {
    let found: Vec<Comparison> =
        verified.comparisons.iter().filter(|c| c.finding != Finding::Same).cloned().collect();
    let shown = if found.is_empty() { String::new() } else { rows(&found) };
    format!(
        "verified: {}\n{shown}{}{}",
        counted(verified.comparisons.len(), "comparison"),
        left_out(verified),
        total(verified)
    )
}

fn left_out(verified: &Verified) -> String {
    verified.left_out.iter().map(|what| format!("not compared: {what}\n")).collect()
}

fn rows(comparisons: &[Comparison]) -> String {
    let mut table = output::table(&["what", "source", "mirror", "difference"]);
    for c in comparisons {
        let difference = match &c.finding {
            Finding::Same => String::new(),
            Finding::Different(how) => how.clone(),
            Finding::Unsettled(how) => format!("unsettled ({how})"),
        };
        table.add_row([&c.what, &c.source, &c.mirror, &difference]);
    }
    output::align_numbers(&mut table, 1..4);
    format!("{table}\n")
}

/// The last line: all is well only where everything was compared, and settled.
fn total(verified: &Verified) -> String {
    let (differences, unsettled) = (verified.differences(), verified.unsettled());
    let mut parts = Vec::new();
    match (differences, unsettled, verified.not_compared + verified.standing) {
        (0, 0, 0) => return "the mirror equals the source\n".to_owned(),
        (0, ..) => parts.push("what could be compared equals the source".to_owned()),
        (n, ..) => {
            parts.push(format!("{}, to be read again at the next sync", counted(n, "difference")))
        }
    }
    if unsettled > 0 {
        parts.push(format!("{unsettled} unsettled: something changed each time that it was asked"));
    }
    if verified.not_compared > 0 {
        parts.push(format!("{} could not be compared (see above)", verified.not_compared));
    }
    if verified.standing > 0 {
        parts.push(format!(
            "{} found before and not refuted since: see `casemirror status`",
            counted(verified.standing, "difference")
        ));
    }
    parts.join("; ") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_line(findings: Vec<Finding>, not_compared: usize) -> String {
        let comparison = |finding| Comparison {
            what: "cases".to_owned(),
            source: "2".to_owned(),
            mirror: "1".to_owned(),
            finding,
            subject: "cases".to_owned(),
        };
        let comparisons = findings.into_iter().map(comparison).collect();
        total(&Verified { comparisons, not_compared, ..Verified::default() })
    }

    #[test]
    fn the_last_line_is_no_all_clear_while_an_earlier_difference_stands() {
        assert_eq!(
            total(&Verified { standing: 2, ..Verified::default() }),
            "what could be compared equals the source; 2 differences found before and not refuted since: see \
             `casemirror status`\n"
        );
    }

    #[test]
    fn the_last_line_is_an_all_clear_only_where_everything_was_compared() {
        let unsettled = || Finding::Unsettled("1".to_owned());
        assert_eq!(last_line(vec![Finding::Same], 0), "the mirror equals the source\n");
        assert_eq!(
            last_line(vec![Finding::Same], 2),
            "what could be compared equals the source; 2 could not be compared (see above)\n"
        );
        assert_eq!(
            last_line(vec![Finding::Same, unsettled()], 0),
            "what could be compared equals the source; 1 unsettled: something changed each time \
             that it was asked\n"
        );
        assert_eq!(
            last_line(vec![Finding::Different("1".to_owned()), unsettled()], 3),
            "1 difference, to be read again at the next sync; 1 unsettled: something changed each time \
             that it was asked; 3 could not be compared (see above)\n"
        );
    }
}
