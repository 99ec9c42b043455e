//! Journals: months as scopes, the days they are asked in, and when a month counts as closed
//! (docs/architecture.md, "Journals").
//!
//! Months, windows and their exploration are pure; [`read`] makes the calls of one month.

mod exploration;
mod part;
mod proof;
pub(crate) mod read;
mod telling;
mod under_way;

use crate::scope::{REVENUE, REVENUE_SUMS};

pub(crate) use exploration::{Exploration, is_more};
pub(crate) use read::MonthRead;
pub(crate) use under_way::Gate;
pub use under_way::MonthsUnderWay;

use crate::config::JournalLevel;

/// How a level is written in the path of its calls (reference 4.7).
pub(crate) fn path_of(level: JournalLevel) -> &'static str {
    match level {
        JournalLevel::Offices => "Offices",
        JournalLevel::BrokerCompanies => "BrokerCompanies",
        JournalLevel::Chain => "Chain",
    }
}

/// The kinds of `casemirror journals --kind`, with the tables that each reads.
pub(crate) const KINDS: [(&str, &[&str]); 4] = [
    ("case", &["case_journals"]),
    ("depot", &["depot_journals"]),
    ("revenue", &[REVENUE, REVENUE_SUMS]),
    ("settlement", &["settlement_journals"]),
];

/// The tables of these kinds; of none: all.
///
/// # Errors
/// The first kind that does not exist.
pub(crate) fn tables_of(kinds: &[String]) -> Result<Vec<String>, String> {
    if let Some(unknown) = kinds.iter().find(|kind| !KINDS.iter().any(|(name, _)| name == kind)) {
        return Err(unknown.clone());
    }
    Ok(KINDS
        .iter()
        .filter(|(name, _)| kinds.is_empty() || kinds.iter().any(|kind| kind == name))
        .flat_map(|(_, tables)| tables.iter().map(|table| (*table).to_owned()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revenue_brings_its_sums_and_no_kind_means_all() {
        assert_eq!(
            tables_of(&["revenue".to_owned()]).unwrap(),
            ["revenue_journals", "revenue_journal_sums"]
        );
        assert_eq!(tables_of(&[]).unwrap().len(), 5);
        assert_eq!(tables_of(&["rent".to_owned()]), Err("rent".to_owned()));
    }
}
