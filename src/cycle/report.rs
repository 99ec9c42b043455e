//! What a cycle did.

use crate::mirror::Outcome;

/// What a cycle did.
#[derive(Debug, Clone, Default)]
pub struct Report {
    pub(crate) run_id: i64,
    pub outcome: Outcome,
    pub(crate) cases_moved: u64,
    pub(crate) contacts_moved: u64,
    /// What is not as it should be, in words; empty when the cycle is complete.
    pub problems: Vec<String>,
    pub(crate) calls: u64,
    /// What polls up to this number moved has been planned.
    pub(crate) handled: i64,
    /// It was asked to end before everything that can be done was done.
    pub(crate) interrupted: bool,
    /// Something that was due could not be done completely, and is due still.
    pub(crate) undone: bool,
    /// `schedule.verify` fell due. A cycle does not verify: who runs it does.
    pub(crate) verify_due: bool,
    /// In how much the mirror differs from the source, where the two were compared.
    pub(crate) differences: usize,
}

impl Report {
    /// Something is not as it should be.
    pub(crate) fn problem(&mut self, text: String) {
        if !self.problems.contains(&text) {
            self.problems.push(text);
        }
    }

    /// Adds what a later cycle of the same job did.
    pub(crate) fn continue_with(&mut self, later: Report) {
        self.run_id = later.run_id;
        self.outcome.add(&later.outcome);
        self.cases_moved += later.cases_moved;
        self.contacts_moved += later.contacts_moved;
        self.calls += later.calls;
        self.problems = later.problems;
        self.handled = later.handled;
        self.interrupted = later.interrupted;
        self.undone = later.undone;
        self.verify_due = later.verify_due;
        self.differences = self.differences.max(later.differences);
    }

    /// 4 when the mirror differs from the source, else 3 when something is incomplete, else 0
    /// (docs/architecture.md, "Commands").
    pub(crate) fn exit_status(&self) -> u8 {
        match self.differences {
            0 if self.problems.is_empty() => 0,
            0 => 3,
            _ => 4,
        }
    }
}
