//! What did not fit of one answer.

use std::collections::BTreeMap;

use super::Reject;

/// Rejects of a table that are told one by one of an answer. What reports leave open hangs on them, so that
/// none may go unsaid: of the others each column is told once.
const MOST_REJECTS: usize = 10_000;
/// The key of some record that is not known, in `sync.rejects`.
const SOME_RECORD: &str = "#";

/// The rejects of one table.
#[derive(Default)]
pub(super) struct Rejects {
    told: Vec<Reject>,
    /// Those beyond [`MOST_REJECTS`], by column.
    more: BTreeMap<Option<String>, MoreRejects>,
}

/// Rejects that are not told one by one.
struct MoreRejects {
    /// The id of the scope that all of them belong to.
    scope: Option<i64>,
    count: usize,
}

impl Rejects {
    /// Adds one.
    pub(super) fn push(&mut self, reject: Reject) {
        if self.told.len() < MOST_REJECTS {
            self.told.push(reject);
            return;
        }
        let more =
            self.more.entry(reject.column).or_insert(MoreRejects { scope: reject.scope, count: 0 });
        more.count += 1;
        more.scope = more.scope.filter(|scope| reject.scope == Some(*scope));
    }

    /// A record is gone, and what was wrong with it too.
    pub(super) fn forget(&mut self, record_key: &str) {
        self.told.retain(|reject| reject.record_key != record_key);
    }

    /// All of them: those beyond [`MOST_REJECTS`] as one per column.
    pub(super) fn all(self, table: &str) -> Vec<Reject> {
        let more = self.more.into_iter().map(|(column, MoreRejects { scope, count })| Reject {
            table: table.to_owned(),
            scope,
            record_key: SOME_RECORD.to_owned(),
            column,
            value: None,
            error: format!(
                "{count} more do not fit, beyond the first {MOST_REJECTS} of the answer"
            ),
        });
        self.told.into_iter().chain(more).collect()
    }
}
