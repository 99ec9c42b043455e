//! What a comparison asks for where everything is the same at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use duckdb::Connection;

use super::turns::tables_in_turn;
use super::{MOST_AGAIN, SAMPLE, totals, whole};
use crate::catalog::Resource;
use crate::config::Config;
use crate::cycle::IDS_PER_CALL;
use crate::error::Result;
use crate::mirror::State;
use crate::scope::{Month, Place, REVENUE, REVENUE_SUMS};

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asks {
    /// Numbers of cases: one call each.
    pub(crate) counts: u64,
    /// Sums of months: one call each.
    pub(crate) sums: u64,
    /// Months of journals without a sum, read line by line.
    pub(crate) months: u64,
    /// Cases read whole, and those of which something differed. Which ones is left to chance, so that what they cost is an estimate wherever
    /// there are more.
    pub(crate) cases: u64,
    pub(crate) sample_calls: u64,
}

impl Asks {
    /// By the store on `conn`, with the months of revenue that are read before.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn of(
        conn: &Connection,
        config: &Config,
        active: &[Arc<Resource>],
        months: &BTreeSet<(i64, Month)>,
    ) -> Result<Asks> {
        let state = State::new(conn);
        let is_read = |table: &str| active.iter().any(|resource| resource.table == table);
        let counts = [Place::Cases, Place::Projects]
            .into_iter()
            .filter(|place| is_read(place.table()))
            .map(totals::counts)
            .sum();
        let mut sums = 0;
        if is_read(REVENUE) && is_read(REVENUE_SUMS) {
            let known = state.months().known_months(REVENUE, config.journals.level)?;
            let complete = known.iter().filter(|(_, complete)| **complete).map(|(month, _)| month);
            sums = complete.chain(months).collect::<BTreeSet<_>>().len() as u64;
        }
        let in_turn: Vec<String> =
            tables_in_turn(active).into_iter().map(|r| r.table.clone()).collect();
        let level = config.journals.level;
        let months =
            state.verifications().months_in_turn(&in_turn, level, is_read(REVENUE_SUMS))?.len()
                as u64;
        let chosen = state.verifications().chosen_cases(SAMPLE, MOST_AGAIN)?;
        let mut scopes: BTreeMap<String, u64> = BTreeMap::new();
        for scope in whole::scopes(conn, config, active, &chosen.all())? {
            if chosen.has(&scope) {
                *scopes.entry(scope.0).or_default() += 1;
            }
        }
        let calls = |resource: &Arc<Resource>| {
            let scopes = scopes.get(&resource.table).copied().unwrap_or(0);
            if whole::is_search(&resource.table) {
                scopes.div_ceil(IDS_PER_CALL as u64)
            } else {
                scopes * resource.calls_per_scope()
            }
        };
        let sample_calls = active.iter().map(calls).sum();
        Ok(Asks { counts, sums, months, cases: chosen.all().len() as u64, sample_calls })
    }
}
