//! The cases by which a search and its mirror are apart, and what is known of each (pure).

use std::collections::{BTreeSet, HashMap};

use super::{Finding, Step, decide, excess};
use crate::mirror::CaseMoved;
use crate::scope::{CaseState, Standing};

/// The source's cases, and the mirror's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sides<'a> {
    pub(crate) source: &'a BTreeSet<i64>,
    pub(crate) mirror: &'a BTreeSet<i64>,
}

impl Sides<'_> {
    pub(crate) fn differing(self) -> Vec<i64> {
        self.source.symmetric_difference(self.mirror).copied().collect()
    }
}

/// What the store says of cases that differ.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Pending, failed or rejected.
    pub(crate) undecided: BTreeSet<i64>,
    pub(crate) moves: HashMap<i64, CaseMoved>,
    pub(crate) cases: HashMap<i64, CaseState>,
    /// The feed cannot be read: which of them moved nobody has told.
    pub(crate) is_untold: bool,
}

/// Cases that are apart, by what may be the reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differing {
    /// The mirror knows that it is not as the source has it.
    pub(crate) left_out: BTreeSet<i64>,
    /// They may have moved, and nobody can tell.
    pub(crate) untold: BTreeSet<i64>,
    /// Moved since the source was asked.
    pub(crate) moved: BTreeSet<i64>,
    /// Cases leave the searches, and come back, without a word of the feed: the mirror learns of it
    /// when they are listed.
    pub(crate) unlisted: BTreeSet<i64>,
    /// Nothing explains it.
    pub(crate) certain: BTreeSet<i64>,
}

impl Differing {
    /// Sorts what is differing. `sequence`: the last page of a feed before the source was asked; `listed`:
    /// the cases were listed to find out about these.
    pub(crate) fn of(
        sides: Sides<'_>,
        known: &Known,
        sequence: i64,
        listed: &BTreeSet<i64>,
    ) -> Differing {
        let mut differing = Differing::default();
        for id in sides.differing() {
            let hidden = |case: &CaseState| case.state == Some(Standing::Hidden);
            let unannounced = sides.mirror.contains(&id) || known.cases.get(&id).is_none_or(hidden);
            let moved = known.moves.get(&id).is_some_and(|moved| moved.sequence > sequence);
            let of = match () {
                () if known.undecided.contains(&id) => &mut differing.left_out,
                () if moved => &mut differing.moved,
                () if unannounced && !listed.contains(&id) => &mut differing.unlisted,
                () if known.is_untold => &mut differing.untold,
                () => &mut differing.certain,
            };
            of.insert(id);
        }
        differing
    }

    /// What would be a difference if it were apart once more.
    pub(crate) fn suspected(&self) -> BTreeSet<i64> {
        self.certain.union(&self.unlisted).copied().collect()
    }

    /// What is a difference: apart `before`, and nothing explains it.
    pub(crate) fn confirmed(&self, before: &BTreeSet<i64>) -> BTreeSet<i64> {
        self.certain.intersection(before).copied().collect()
    }

    /// What comes of it after the source was asked so many times.
    pub(crate) fn step(&self, asked: u32, before: &BTreeSet<i64>) -> Step {
        let open = self.moved.len() + self.unlisted.len() + self.certain.len();
        decide(asked, open == 0, self.confirmed(before).is_empty())
    }

    /// The figures, without the cases that are apart and do not count, and what they come to. `None`
    /// while it is open.
    pub(crate) fn found(
        &self,
        sides: Sides<'_>,
        step: Step,
        before: &BTreeSet<i64>,
    ) -> Option<(i64, i64, Finding)> {
        let counted = match step {
            Step::Again => return None,
            Step::Same => BTreeSet::new(),
            Step::Different => self.confirmed(before),
            Step::Unsettled => self.suspected().union(&self.moved).copied().collect(),
        };
        let figure = |side: &BTreeSet<i64>, other: &BTreeSet<i64>| {
            let count = side.iter().filter(|id| other.contains(id) || counted.contains(id)).count();
            i64::try_from(count).unwrap_or(i64::MAX)
        };
        let source = figure(sides.source, sides.mirror);
        let mirror = figure(sides.mirror, sides.source);
        let how = || {
            let lacking = counted.intersection(sides.source).count();
            match excess(source, mirror) {
                // As many are lacking as there are too many.
                none if none == "0" => format!("{lacking} lacking, {lacking} too many"),
                by => by,
            }
        };
        let finding = match step {
            Step::Same | Step::Again => Finding::Same,
            Step::Different => Finding::Different(how()),
            Step::Unsettled => Finding::Unsettled(how()),
        };
        Some((source, mirror, finding))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ids: impl IntoIterator<Item = i64>) -> BTreeSet<i64> {
        ids.into_iter().collect()
    }

    fn case(case_id: i64, state: Standing) -> (i64, CaseState) {
        let case = CaseState {
            case_id,
            reported: true,
            dates: [Some(1); 11],
            any_version: String::new(),
            moved: 1,
            place: None,
            state: Some(state),
            rereading: false,
        };
        (case_id, case)
    }

    fn known() -> Known {
        Known {
            undecided: set([1]),
            moves: HashMap::from([(2, CaseMoved { sequence: 8, at: None })]),
            cases: (1..=6)
                .map(|id| case(id, if id == 3 { Standing::Hidden } else { Standing::Found }))
                .collect(),
            is_untold: false,
        }
    }

    #[test]
    fn what_is_known_of_one_case_does_not_hide_another() {
        let (source, mirror) = (set([1, 2, 3, 4, 7, 9]), set([6, 9]));
        let sides = Sides { source: &source, mirror: &mirror };
        let differing = Differing::of(sides, &known(), 7, &set([]));
        assert_eq!((&differing.left_out, &differing.moved), (&set([1]), &set([2])));
        // Hidden and back, gone from the search, never heard of: a listing tells.
        assert_eq!(differing.unlisted, set([3, 6, 7]));
        assert_eq!(differing.certain, set([4]));
        let listed = Differing::of(sides, &known(), 7, &set([3, 6, 7]));
        assert_eq!(listed.certain, set([3, 4, 6, 7]));
        // Where the feed cannot be read, each of them may have moved.
        let untold = Known { is_untold: true, ..known() };
        let differing = Differing::of(sides, &untold, 7, &set([3, 6, 7]));
        assert_eq!((differing.suspected(), differing.untold), (set([]), set([3, 4, 6, 7])));
    }

    #[test]
    fn only_what_is_apart_twice_is_a_difference_and_only_that_is_counted() {
        let (source, mirror) = (set([1, 2, 4, 9]), set([9]));
        let sides = Sides { source: &source, mirror: &mirror };
        let differing = Differing::of(sides, &known(), 7, &set([]));
        assert_eq!(differing.step(2, &set([])), Step::Again);
        let before = differing.suspected();
        assert_eq!(differing.step(3, &before), Step::Different);
        let found = differing.found(sides, Step::Different, &before);
        assert_eq!(found, Some((2, 1, Finding::Different("1".to_owned()))));
        let found = differing.found(sides, Step::Unsettled, &before);
        assert_eq!(found, Some((3, 1, Finding::Unsettled("2".to_owned()))));
    }

    #[test]
    fn what_is_left_out_alone_is_no_difference() {
        let (source, mirror) = (set([1, 9]), set([9]));
        let sides = Sides { source: &source, mirror: &mirror };
        let differing = Differing::of(sides, &known(), 7, &set([]));
        assert_eq!(differing.step(2, &set([])), Step::Same);
        assert_eq!(differing.found(sides, Step::Same, &set([])), Some((1, 1, Finding::Same)));
    }

    #[test]
    fn as_many_lacking_as_too_many_is_a_difference_in_words() {
        let (source, mirror) = (set([4, 9]), set([5, 9]));
        let sides = Sides { source: &source, mirror: &mirror };
        let differing = Differing::of(sides, &known(), 7, &set([5]));
        let found = differing.found(sides, Step::Different, &set([4, 5]));
        let how = Finding::Different("1 lacking, 1 too many".to_owned());
        assert_eq!(found, Some((2, 2, how)));
    }
}
