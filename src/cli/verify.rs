//! `casemirror verify`: the mirror held against the source.

use super::args::Verify;
use super::output;
use super::sync::summary;
use crate::cycle::Options;
use crate::daemon::{Host, Printer};
use crate::error::Result;
use crate::verify::{Comparison, Finding, Verified};

pub async fn execute(args: &Verify, host: &Host, out: &Printer) -> Result<u8> {
    let options = Options { verify: Some(args.sample), ..Options::default() };
    let ran = host.run("verify", options).await?;
    out.print(&summary(&ran))?;
    if let Some(verified) = &ran.report.verified {
        out.print(&table(verified))?;
    }
    Ok(ran.report.exit_status())
}

/// Everything that was compared, as a table, and what it comes to.
fn table(verified: &Verified) -> String {
    let mut text = rows(&verified.comparisons);
    for note in &verified.notes {
        text.push_str(&format!("{note}\n"));
    }
    text + &total(verified)
}

/// What differs, and what it comes to: for a run that verified because it was due.
pub fn differences(verified: &Verified) -> String {
    let found: Vec<Comparison> =
        verified.comparisons.iter().filter(|c| c.difference().is_some()).cloned().collect();
    let shown = if found.is_empty() { String::new() } else { rows(&found) };
    format!("verified: {} comparisons\n{shown}{}", verified.comparisons.len(), total(verified))
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

fn total(verified: &Verified) -> String {
    match (verified.differences(), verified.unsettled()) {
        (0, 0) => "the mirror equals the source\n".to_owned(),
        (0, n) => format!("the mirror equals the source; {n} comparisons are unsettled\n"),
        (n, 0) => format!("{n} differences; they are read again at the next sync\n"),
        (n, m) => {
            format!("{n} differences, {m} unsettled; they are read again at the next sync\n")
        }
    }
}
