//! A journal's month as a scope.

use std::fmt;

use super::{AnswerDigest, DueReason, Month};
use crate::config::JournalLevel;

/// A journal's month: what one complete answer, or several windows together, cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct JournalScope {
    pub(crate) level: JournalLevel,
    /// The office, broker company or chain.
    pub(crate) id: i64,
    pub(crate) month: Month,
}

impl JournalScope {
    /// The scope's part in the store: with the id it says which month of whom is meant.
    pub(crate) fn part(&self) -> String {
        format!("{}/{}", self.level, self.month)
    }

    /// The scope of an id and a part.
    pub(crate) fn of(id: i64, part: &str) -> Option<JournalScope> {
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
pub(crate) fn level_of(word: &str) -> Option<JournalLevel> {
    [JournalLevel::Offices, JournalLevel::BrokerCompanies, JournalLevel::Chain]
        .into_iter()
        .find(|level| level.to_string() == word)
}

/// The table of the revenue journals' lines,
pub(crate) const REVENUE: &str = "revenue_journals";

/// and that of the platform's own sums of them.
pub(crate) const REVENUE_SUMS: &str = "revenue_journal_sums";

/// A month that is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DueMonth {
    pub(crate) table: String,
    pub(crate) scope: JournalScope,
    /// Why.
    pub(crate) reason: DueReason,
    /// It was read completely before.
    pub(crate) complete: bool,
    /// As many days as the service was found to answer at once; `None`: all of them.
    pub(crate) known_days: Option<u32>,
    /// More days than that may be tried.
    pub(crate) may_be_larger: bool,
    /// So many days are asked at once.
    pub(crate) window_days: Option<u32>,
    /// Which lines the last complete reading brought.
    pub(crate) digest: Option<String>,
    /// That was after the month's end, and nothing calls for another proof: a round number of lines that comes again
    /// is all of them.
    pub(crate) is_proven: bool,
    /// The answer that the mirrored lines are, in its order.
    pub(crate) mirrored: Option<AnswerDigest>,
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
}
