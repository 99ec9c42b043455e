//! The journals' rows, by scope and month.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use super::super::record::Value;
use super::super::records::journal;
use super::super::world::World;
use super::super::world::journals::{Journal, Journals, Level, Month};
use super::super::world::people::{Basis, Office};
use super::Wanted;

/// The tables of the journals.
pub(crate) const TABLES: &[&str] = &[
    "case_journals",
    "case_journal_annotations",
    "depot_journals",
    "revenue_journals",
    "revenue_journal_annotations",
    "revenue_journal_sums",
    "settlement_journals",
];

/// The journals as they are at one moment.
pub(crate) struct Snapshot {
    basis: Arc<Basis>,
    journals: Journals,
    offices: BTreeMap<i64, Office>,
    /// Each id of the level, with its offices.
    scopes: Vec<(i64, Vec<i64>)>,
    last: Month,
}

impl Snapshot {
    pub(crate) fn take(world: &World, level: Level) -> Snapshot {
        let ids = world.journal_ids(level).into_iter();
        Snapshot {
            basis: world.basis.clone(),
            journals: world.journals.clone(),
            offices: world.offices().map(|office| (office.id, office.clone())).collect(),
            scopes: ids.map(|id| (id, world.journal_offices(level, id))).collect(),
            last: Month::of(world.now()),
        }
    }

    /// Hands out the rows of all wanted tables. A month without lines has a sum, which is zero.
    pub(crate) fn rows(&self, wanted: Wanted<'_>, put: &mut impl FnMut(&str, Vec<Json>)) {
        for (id, offices) in &self.scopes {
            let first = Journals::first_month(&self.basis);
            let mut month = wanted.since.map_or(first, |since| since.max(first));
            while month <= self.last {
                let keys = [
                    ("journal_level", Value::from(wanted.level.name())),
                    ("journal_id", Value::Int(*id)),
                    ("journal_month", month.first_day().to_string().into()),
                ];
                for kind in Journal::ALL {
                    self.month(wanted, kind, offices, month, &keys, put);
                }
                month = month.plus(1);
            }
        }
    }

    fn month(
        &self,
        wanted: Wanted<'_>,
        kind: Journal,
        offices: &[i64],
        month: Month,
        keys: &[(&'static str, Value)],
        put: &mut impl FnMut(&str, Vec<Json>),
    ) {
        let sums = "revenue_journal_sums";
        let is_summed = kind == Journal::RevenueJournals && wanted.has(sums);
        let annotations = kind.annotations().filter(|table| wanted.has(table));
        if !wanted.has(kind.table()) && !is_summed && annotations.is_none() {
            return;
        }
        let period = (month.start(), month.end());
        let lines = self.journals.read(&self.basis, kind, offices, period);
        if is_summed {
            put(sums, vec![journal::sum(lines.iter().map(|(_, line)| line)).canonical(keys)]);
        }
        let mut rows = Vec::new();
        let mut children = Vec::new();
        for (number, (office, line)) in (1_i64..).zip(&lines) {
            let mut keys = keys.to_vec();
            keys.push(("line_number", Value::Int(number)));
            if wanted.has(kind.table())
                && let Some(office) = self.offices.get(office)
            {
                rows.push(journal::line(&self.basis, kind, office, line).canonical(&keys));
            }
            for (position, one) in (1_i64..).zip(line.annotations.iter().flatten()) {
                let mut keys = keys.clone();
                keys.push(("position", Value::Int(position)));
                children.push(journal::annotation(kind, one).canonical(&keys));
            }
        }
        put(kind.table(), rows);
        if let Some(table) = annotations {
            put(table, children);
        }
    }
}
