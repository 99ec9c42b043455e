//! How a list is paged and when it is complete (docs/architecture.md, "Completeness"): one state
//! machine for every list, without connection or clock. [`super::listing`] drives it.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// The `$top` that is tried first.
pub(crate) const FIRST_TOP: u32 = 1_000;
/// The smallest `$top` that is tried: the documented default (reference 8).
const SMALLEST_TOP: u32 = 100;
/// Pages of services are round: a length that is a positive multiple of this may be one.
const ROUND: usize = 100;

/// Why a list is not known to be complete.
const MOVED: &str = "records came or went while the list was paged";

/// How a list can be walked through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    /// By an integer field that the list is ordered by: `field ge last + 1`. Where the service does
    /// not go along (it ignores the filter or the order), by `$skip` from there on.
    Keyset,
    /// By `$skip`.
    Skip,
    /// No paging is documented: asked without `$top`.
    Undocumented,
}

/// What tells two records of a list apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sameness {
    /// Their key: a key that comes again on a later page is the same record.
    Key,
    /// Nothing: two lines can be equal and are still two.
    Lines,
}

/// One call of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ask {
    pub(crate) top: Option<u32>,
    pub(crate) skip: Option<u64>,
    /// The smallest value of the keyset's field.
    pub(crate) from_key: Option<i64>,
}

/// What is known of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Of its key, or of the whole line.
    pub(crate) fingerprint: u128,
    /// The keyset's field.
    pub(crate) key: Option<i64>,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Ask(Ask),
    Finished(Verdict),
}

/// Whether a list was read completely: proven, not assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Complete,
    /// Why it is not known to be complete. Such an answer inserts and updates, and never deletes.
    Incomplete(&'static str),
}

/// What a page brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Taken {
    /// For each record of the page, whether it is to be kept: it did not come on an earlier page.
    pub(crate) keep: Vec<bool>,
    pub(crate) next: Next,
}

/// The state of one walk through a list.
#[derive(Debug)]
pub(crate) struct Pager {
    walk: Walk,
    sameness: Sameness,
    top: Option<u32>,
    /// Whether `top` is known to be taken by this endpoint.
    settled: bool,
    pages: usize,
    /// How often each fingerprint was kept.
    kept: HashMap<u128, usize, RandomState>,
    /// How many different records were kept; of lines, how many lines.
    length: u64,
    /// A record came twice in one page: it may stand in the place of one that did not come.
    doubled: bool,
    count: Option<u64>,
    /// Records came or went while the list was paged.
    moved: bool,
    last_key: Option<i64>,
    /// The first and the last record that were kept.
    first: Option<u128>,
    last: Option<u128>,
    /// The most records that a page had.
    longest: usize,
    /// What the page that is asked for by `$skip` begins with where nothing moved: the last record that came.
    joint: Option<u128>,
    /// A page began with its joint and brought more: the service knows `$skip`.
    knows_skip: bool,
    /// No page has a joint: the service may count `$skip` in whole pages, or a record stands elsewhere than its number says.
    has_no_joints: bool,
    /// The `$top` that was in use when an answer was too large.
    cut_from: Option<u32>,
}

impl Pager {
    /// A walk from the beginning. `accepted`: the `$top` the endpoint is known to take, if any is
    /// known (`Some(None)`: it takes none).
    pub(crate) fn new(walk: Walk, sameness: Sameness, accepted: Option<Option<u32>>) -> Self {
        let top = match walk {
            Walk::Undocumented => None,
            Walk::Keyset | Walk::Skip => accepted.unwrap_or(Some(FIRST_TOP)),
        };
        Pager {
            walk,
            sameness,
            top,
            settled: accepted.is_some() || walk == Walk::Undocumented,
            pages: 0,
            kept: HashMap::default(),
            length: 0,
            doubled: false,
            count: None,
            moved: false,
            last_key: None,
            first: None,
            last: None,
            longest: 0,
            joint: None,
            knows_skip: false,
            has_no_joints: false,
            cut_from: None,
        }
    }

    /// The first call.
    pub(crate) fn first(&self) -> Ask {
        Ask { top: self.top, skip: None, from_key: None }
    }

    /// How many pages are still to come if they are as long as those that came; 0 where the service does
    /// not say how many records there are.
    pub(crate) fn pages_left(&self) -> u64 {
        let (Some(count), Ok(pages)) = (self.count, u64::try_from(self.pages)) else { return 0 };
        let per_page = (self.length / pages.max(1)).max(1);
        count.saturating_sub(self.length).div_ceil(per_page)
    }

    /// How many different records have been kept.
    #[cfg(test)]
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The call was answered 400. The first page is asked again with half the `$top`, down to 100,
    /// then without; `None` when a smaller page is no way out.
    pub(crate) fn refused(&mut self) -> Option<Ask> {
        if self.settled || self.pages > 0 {
            return None;
        }
        self.top = match self.top? {
            top if top > SMALLEST_TOP => Some((top / 2).max(SMALLEST_TOP)),
            _ => None,
        };
        Some(self.first())
    }

    /// The answer of this call was larger than what is read: the same from the same place with a
    /// quarter of the `$top`; `None` where there is none that could be smaller.
    pub(crate) fn too_large(&mut self, ask: Ask) -> Option<Ask> {
        let top = ask.top.filter(|top| *top > 1)?;
        self.cut_from.get_or_insert(top);
        if top == 2 && self.joint.take().is_some() {
            // The record behind the joint, alone.
            self.top = Some(1);
            return Some(Ask { top: self.top, skip: ask.skip.map(|skip| skip + 1), ..ask });
        }
        let least = if self.joint.is_some() { 2 } else { 1 };
        self.top = Some((top / 4).max(least));
        Some(Ask { top: self.top, ..ask })
    }

    /// A page has come that was asked for in part: the next may be twice as large, up to what is taken. One
    /// large record must not make all pages behind it small.
    pub(crate) fn larger(&mut self, ask: Ask) -> Ask {
        if let (Some(whole), Some(top)) = (self.cut_from, self.top) {
            self.top = Some(top.saturating_mul(2).min(whole));
        }
        Ask { top: self.top, ..ask }
    }

    /// The `$top` that the service has taken, whether or not its answer was too large.
    pub(crate) fn accepted_top(&self) -> Option<u32> {
        self.cut_from.or(self.top)
    }

    /// Whether a first page of so many lines is known to be all: then nobody asks whether they come again.
    pub(crate) fn is_whole(&self, lines: usize, count: Option<u64>) -> bool {
        let is_first = self.pages == 0 && self.sameness == Sameness::Lines;
        is_first && lines > 0 && self.ends(lines, lines, lines as u64, count)
    }

    /// A page has come: its records in order, and `Count` where the answer said it.
    pub(crate) fn take(&mut self, marks: &[Mark], count: Option<u64>) -> Taken {
        let first = self.pages == 0;
        self.pages += 1;
        self.settled = true;
        if first {
            self.count = count;
        } else if self.walk != Walk::Keyset && count.is_some() && count != self.count {
            // Rows came or went: those behind them stand on other pages than before. (In a keyset
            // walk `Count` is that of the rest.)
            self.moved = true;
        }
        let repeated = self.repeated(marks);
        let joined = self.joined(marks, &repeated);
        match repeated {
            Repeated::Nothing => self.keep(marks, vec![true; marks.len()]),
            Repeated::Some(keep) => {
                // A record that comes again behind the joint moves all behind it by one.
                let again = keep.iter().filter(|keep| !**keep).count();
                self.has_no_joints |= again > usize::from(joined == Joined::Yes);
                self.keep(marks, keep)
            }
            Repeated::Everything if joined == Joined::No => {
                // It ignores `$skip`, or counts it in whole pages: what stands behind all that came decides.
                Taken { keep: vec![false; marks.len()], next: self.next_by_skip() }
            }
            Repeated::Everything => {
                let next = match self.walk {
                    // It ignores the filter. What came may be all: `$skip` looks.
                    Walk::Keyset => self.go_on_by_skip(),
                    // It ignores `$skip`, and what came first may be a part.
                    Walk::Skip | Walk::Undocumented
                        if joined != Joined::Yes && self.is_full_part(marks.len()) =>
                    {
                        let why = "the service repeats a page that was asked for in parts";
                        Next::Finished(Verdict::Incomplete(why))
                    }
                    // It ignores `$skip`, so what came first was all.
                    Walk::Skip | Walk::Undocumented => Next::Finished(self.proven_by_look()),
                };
                Taken { keep: vec![false; marks.len()], next }
            }
            Repeated::Unclear => {
                let verdict =
                    Verdict::Incomplete("the service repeats most of the lines of a page");
                Taken { keep: vec![false; marks.len()], next: Next::Finished(verdict) }
            }
        }
    }

    fn keep(&mut self, marks: &[Mark], keep: Vec<bool>) -> Taken {
        for (mark, _) in marks.iter().zip(&keep).filter(|(_, keep)| **keep) {
            let times = self.kept.entry(mark.fingerprint).or_default();
            *times += 1;
            // The same record twice is evidence of one.
            if *times == 1 || self.sameness == Sameness::Lines {
                self.length += 1;
            } else {
                self.doubled = true;
            }
            self.first.get_or_insert(mark.fingerprint);
            self.last = Some(mark.fingerprint);
        }
        Taken { keep, next: self.next(marks) }
    }

    /// What comes after a page that brought something new, or nothing at all.
    fn next(&mut self, marks: &[Mark]) -> Next {
        let length = marks.len();
        if length == 0 {
            let verdict = match self.count {
                Some(count) if self.pages == 1 && count > 0 => {
                    Verdict::Incomplete("Count tells of records, and none came")
                }
                _ => self.proven_by_look(),
            };
            return Next::Finished(verdict);
        }
        let different = match self.sameness {
            Sameness::Key => {
                marks.iter().map(|mark| mark.fingerprint).collect::<HashSet<_, RandomState>>().len()
            }
            Sameness::Lines => length,
        };
        let ends = self.ends(length, different, self.length, self.count);
        self.longest = self.longest.max(length);
        if ends {
            return Next::Finished(self.unmoved());
        }
        match self.walk {
            // What did not come can stand before the last key.
            Walk::Keyset if self.doubled => self.go_on_by_skip(),
            Walk::Keyset => self.next_by_key(marks),
            Walk::Skip | Walk::Undocumented => self.next_by_skip(),
        }
    }

    /// Whether a page of so many records, of which so many are different, is the last of a list of which so many
    /// have come and that has `count`, if it says so.
    fn ends(&self, records: usize, different: usize, came: u64, count: Option<u64>) -> bool {
        let top = self.top.map(|top| usize::try_from(top).unwrap_or(usize::MAX));
        let does_not_page = self.cut_from.is_none() && top.is_some_and(|top| different > top);
        // A page of this many records, or of this many different ones, may be one that was cut.
        let may_be_cut =
            |records: usize| top.is_some_and(|top| records >= top) || records.is_multiple_of(ROUND);
        let short = !may_be_cut(records) && !may_be_cut(different);
        // In a keyset walk it is that of the first page: meanwhile a record may have come, and the last one be behind
        // a full page.
        let is_full = records >= self.longest || top.is_some_and(|top| records >= top);
        if self.walk == Walk::Keyset && self.pages > 1 && is_full {
            return false;
        }
        // A count that is smaller than what came contradicts itself, and proves nothing.
        match count.filter(|count| came <= *count) {
            Some(count) => came == count,
            None => !self.doubled && (short || does_not_page),
        }
    }

    /// Whether a page of so many records is as long as a part that was asked for because more was too large.
    fn is_full_part(&self, records: usize) -> bool {
        self.cut_from.is_some() && self.top.is_none_or(|top| records as u64 >= u64::from(top))
    }

    fn next_by_key(&mut self, marks: &[Mark]) -> Next {
        let Some(key) = marks.last().and_then(|mark| mark.key) else {
            return self.go_on_by_skip();
        };
        if !marks.is_sorted_by_key(|mark| mark.key) || self.last_key.is_some_and(|last| key <= last)
        {
            return self.go_on_by_skip();
        }
        self.last_key = Some(key);
        match key.checked_add(1) {
            Some(from_key) => {
                Next::Ask(Ask { top: self.top, skip: None, from_key: Some(from_key) })
            }
            None => Next::Finished(Verdict::Complete),
        }
    }

    /// The keyset does not carry: `$skip` looks behind what came
    /// (docs/architecture.md, "Completeness"), and its pages are the next ones.
    fn go_on_by_skip(&mut self) -> Next {
        self.walk = Walk::Skip;
        self.next_by_skip()
    }

    /// The next page begins with the last record that came: where a record before it left meanwhile, one would be
    /// on neither page, and another in its place on two where one came.
    fn next_by_skip(&mut self) -> Next {
        // Where a record stands is not known when one came twice, nor are lines told apart.
        let stands = self.sameness == Sameness::Key
            && !(self.doubled || self.moved || self.has_no_joints || self.top == Some(1));
        self.joint = self.last.filter(|_| stands);
        let skip = self.length - u64::from(self.joint.is_some());
        Next::Ask(Ask { top: self.top, skip: Some(skip), from_key: None })
    }

    /// Whether a page begins with its joint. Where it does not, what that says of the service, or of the list, is
    /// noted.
    fn joined(&mut self, marks: &[Mark], repeated: &Repeated) -> Joined {
        let Some(joint) = self.joint.take() else { return Joined::NotAsked };
        let begins_with = marks.first().map(|mark| mark.fingerprint);
        let is_all_and_more = begins_with == self.first && marks.len() as u64 > self.length;
        match repeated {
            _ if begins_with == Some(joint) => {
                self.knows_skip |= marks.len() > 1;
                return Joined::Yes;
            }
            Repeated::Everything => self.has_no_joints = true,
            // It ignores `$skip`, and some came meanwhile.
            Repeated::Some(_) if is_all_and_more => self.has_no_joints = true,
            // Nothing for whatever `$skip` may be the service's way to say that there is no more.
            _ => self.moved |= begins_with.is_some() || self.knows_skip,
        }
        Joined::No
    }

    /// A look behind the end brought nothing, or the same again. That proves the end, unless `Count`
    /// speaks of more.
    fn proven_by_look(&self) -> Verdict {
        match self.count {
            Some(count) if self.length < count => {
                Verdict::Incomplete("the service gives fewer records than its Count")
            }
            _ => self.unmoved(),
        }
    }

    fn unmoved(&self) -> Verdict {
        if self.moved { Verdict::Incomplete(MOVED) } else { Verdict::Complete }
    }

    /// Which records of a page came on earlier pages.
    fn repeated(&self, marks: &[Mark]) -> Repeated {
        if self.kept.is_empty() || marks.is_empty() {
            return Repeated::Nothing;
        }
        match self.sameness {
            Sameness::Key => {
                let keep: Vec<bool> =
                    marks.iter().map(|mark| !self.kept.contains_key(&mark.fingerprint)).collect();
                match keep.iter().filter(|keep| **keep).count() {
                    0 => Repeated::Everything,
                    new if new == keep.len() => Repeated::Nothing,
                    _ => Repeated::Some(keep),
                }
            }
            Sameness::Lines => {
                let mut left = self.kept.clone();
                let known = marks
                    .iter()
                    .filter(|mark| match left.get_mut(&mark.fingerprint) {
                        Some(times) if *times > 0 => {
                            *times -= 1;
                            true
                        }
                        _ => false,
                    })
                    .count();
                let whole_list = marks.len() as u64 == self.length;
                if known == marks.len() && whole_list {
                    Repeated::Everything
                } else if known * 2 >= marks.len() {
                    Repeated::Unclear
                } else {
                    // Lines that are equal to earlier ones and are still others.
                    Repeated::Nothing
                }
            }
        }
    }
}

/// Whether a page begins with the last record of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joined {
    NotAsked,
    Yes,
    No,
}

enum Repeated {
    Nothing,
    Some(Vec<bool>),
    Everything,
    /// Lines have no key: whether these are the earlier ones again cannot be told.
    Unclear,
}
