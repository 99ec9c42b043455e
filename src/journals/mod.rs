//! Journals: months as scopes, the days they are asked in, and when a month counts as closed
//! (contract section 4, "Journals"; section 2, `journals.*`).
//!
//! Months, windows and their queue are pure; [`read`] makes the calls of one month.

mod months;
mod queue;
pub mod read;
mod windows;

use std::fmt;

pub use months::{Month, first_month, months_back};
pub use queue::Queue;
pub use read::MonthRead;
pub use windows::Window;

use crate::config::JournalLevel;

/// A journal's month: what one complete answer, or several windows together, cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JournalScope {
    pub level: JournalLevel,
    /// The office, broker company or chain.
    pub id: i64,
    pub month: Month,
}

impl JournalScope {
    /// The scope's part in the books: with the id it says which month of whom is meant.
    pub fn part(&self) -> String {
        format!("{}/{}", self.level, self.month)
    }

    /// The scope of an id and a part.
    pub fn of(id: i64, part: &str) -> Option<JournalScope> {
        let (level, month) = part.split_once('/')?;
        Some(JournalScope { level: level_of(level)?, id, month: month.parse().ok()? })
    }
}

/// As people read it: `offices/11/2026-10`.
impl fmt::Display for JournalScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.level, self.id, self.month)
    }
}

/// The level that a word of the configuration stands for.
pub fn level_of(word: &str) -> Option<JournalLevel> {
    [JournalLevel::Offices, JournalLevel::BrokerCompanies, JournalLevel::Chain]
        .into_iter()
        .find(|level| level.to_string() == word)
}

/// How a level is written in the path of its calls (reference 4.7).
pub fn path_of(level: JournalLevel) -> &'static str {
    match level {
        JournalLevel::Offices => "Offices",
        JournalLevel::BrokerCompanies => "BrokerCompanies",
        JournalLevel::Chain => "Chain",
    }
}

/// The table of the revenue journals' lines,
pub const REVENUE: &str = "revenue_journals";
/// and that of the platform's own sums of them.
pub const REVENUE_SUMS: &str = "revenue_journal_sums";

/// The kinds of `casemirror journals --kind`, with the tables that each reads.
pub const KINDS: [(&str, &[&str]); 4] = [
    ("case", &["case_journals"]),
    ("depot", &["depot_journals"]),
    ("revenue", &[REVENUE, REVENUE_SUMS]),
    ("settlement", &["settlement_journals"]),
];

/// The tables of these kinds; of none: all.
///
/// # Errors
/// The first kind that does not exist.
pub fn tables_of(kinds: &[String]) -> Result<Vec<String>, String> {
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
    fn a_scope_is_read_back_from_its_part() {
        let scope = JournalScope {
            level: JournalLevel::BrokerCompanies,
            id: 17,
            month: "2026-02".parse().unwrap(),
        };
        assert_eq!(scope.part(), "broker_companies/2026-02");
        assert_eq!(JournalScope::of(17, &scope.part()), Some(scope));
        assert_eq!(scope.to_string(), "broker_companies/17/2026-02");
        assert_eq!(JournalScope::of(17, "2026-02"), None);
    }

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
