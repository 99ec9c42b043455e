//! The offices' journals: what each of them says in each month of two years (field notes,
//! "Journals"). A month is made anew from the seed whenever it is read, until somebody edits it.

mod edit;
mod line;
mod month;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::super::wire::Ticks;
use super::World;
use super::dice::Dice;
use super::people::{Basis, CHAIN_ID};
pub use edit::JournalEdit;
pub(crate) use line::{Annotation, Line};
pub(crate) use month::{Month, day_start};

/// Months of journals before the one in which the world's life begins.
const MONTHS_BEFORE: i32 = 23;

/// One of the four journals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Journal {
    CaseJournals,
    DepotJournals,
    RevenueJournals,
    SettlementJournals,
}

impl Journal {
    pub const ALL: [Journal; 4] = [
        Journal::CaseJournals,
        Journal::DepotJournals,
        Journal::RevenueJournals,
        Journal::SettlementJournals,
    ];

    /// The last segment of its path.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Journal::CaseJournals => "CaseJournals",
            Journal::DepotJournals => "DepotJournals",
            Journal::RevenueJournals => "RevenueJournals",
            Journal::SettlementJournals => "SettlementJournals",
        }
    }

    /// The table that a mirror keeps it in.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Journal::CaseJournals => "case_journals",
            Journal::DepotJournals => "depot_journals",
            Journal::RevenueJournals => "revenue_journals",
            Journal::SettlementJournals => "settlement_journals",
        }
    }

    /// The table of its lines' annotations, where they have some.
    pub(crate) fn annotations(self) -> Option<&'static str> {
        match self {
            Journal::CaseJournals => Some("case_journal_annotations"),
            Journal::RevenueJournals => Some("revenue_journal_annotations"),
            Journal::DepotJournals | Journal::SettlementJournals => None,
        }
    }
}

/// Whose journals are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Offices,
    BrokerCompanies,
    Chain,
}

impl Level {
    pub(crate) const ALL: [Level; 3] = [Level::Offices, Level::BrokerCompanies, Level::Chain];

    /// The segment of the path before the id.
    pub(crate) fn segment(self) -> &'static str {
        match self {
            Level::Offices => "Offices",
            Level::BrokerCompanies => "BrokerCompanies",
            Level::Chain => "Chain",
        }
    }

    /// As settings and mirrors name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Level::Offices => "offices",
            Level::BrokerCompanies => "broker_companies",
            Level::Chain => "chain",
        }
    }
}

/// Lines of one office, by journal and month.
type Place = (Journal, i64, Month);

/// All journals of all offices.
#[derive(Debug, Clone)]
pub(crate) struct Journals {
    /// Lines of the revenue journal per office and month; None: in proportion to the cases.
    lines: Option<usize>,
    /// Months that differ from what the seed gives.
    edited: BTreeMap<Place, Arc<Vec<Line>>>,
    /// Chance of their own, so that journals disturb nothing else in the world.
    dice: Dice,
    /// Lines that were added since the world began.
    added: i64,
}

impl Journals {
    pub(crate) fn new(seed: u64, lines: Option<usize>) -> Journals {
        Journals {
            lines,
            edited: BTreeMap::new(),
            dice: Dice::new(seed ^ 0x10C5, u64::MAX),
            added: 0,
        }
    }

    /// The first month that has lines.
    pub(crate) fn first_month(basis: &Basis) -> Month {
        Month::of(basis.origin).plus(-MONTHS_BEFORE)
    }

    /// The lines of one office and month, in order.
    fn month(&self, basis: &Basis, place: Place) -> Arc<Vec<Line>> {
        match self.edited.get(&place) {
            Some(lines) => lines.clone(),
            None => Arc::new(line::of_seed(basis, self.lines, place)),
        }
    }

    /// What some offices' journal says of a period, in order, with the office of each line. `until`
    /// is the first instant behind it.
    pub(crate) fn read(
        &self,
        basis: &Basis,
        journal: Journal,
        offices: &[i64],
        (from, until): (Ticks, Ticks),
    ) -> Vec<(i64, Line)> {
        let last = Month::of(Ticks(until.0 - 1)).min(self.last_month(basis));
        let mut month = Month::of(from).max(Journals::first_month(basis));
        let mut found = Vec::new();
        while month <= last {
            for office in offices {
                let lines = self.month(basis, (journal, *office, month));
                let within = lines.iter().filter(|line| from <= line.at && line.at < until);
                found.extend(within.map(|line| (*office, line.clone())));
            }
            month = month.plus(1);
        }
        // Stable: the lines of an office stay in their order.
        found.sort_by_key(|(office, line)| (line.at, *office));
        found
    }

    /// The last month that can have lines.
    fn last_month(&self, basis: &Basis) -> Month {
        let edited = self.edited.keys().map(|(_, _, month)| *month).max();
        edited.map_or(Month::of(basis.origin), |month| month.max(Month::of(basis.origin)))
    }
}

impl World {
    /// The ids of a level that have journals, in order.
    pub(crate) fn journal_ids(&self, level: Level) -> Vec<i64> {
        let mut ids: Vec<i64> = match level {
            Level::Offices => self.offices.keys().copied().collect(),
            Level::BrokerCompanies => self.offices.values().map(|office| office.company).collect(),
            Level::Chain => vec![CHAIN_ID],
        };
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// The offices whose lines make up the journals of an id; none where there is no such id.
    pub(crate) fn journal_offices(&self, level: Level, id: i64) -> Vec<i64> {
        self.offices
            .values()
            .filter(|office| match level {
                Level::Offices => office.id == id,
                Level::BrokerCompanies => office.company == id,
                Level::Chain => id == CHAIN_ID,
            })
            .map(|office| office.id)
            .collect()
    }
}
