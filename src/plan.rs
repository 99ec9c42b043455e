//! What is stale: seen against fetched, decided from values alone.
//!
//! *Never fetched*, *unknown* (the feed has not reported the case), *null* and *an instant* are four
//! states, and any difference makes stale (docs/architecture.md, "Seen and fetched"). A resource's dates are kept as a
//! *version*, a text that is equal when and only when they are.

use crate::scope::{Reason, Stale};
use std::collections::HashMap;
use std::sync::Arc;

use crate::catalog::{Group, Refresh, Resource};
use crate::scope::{CaseState, FetchStatus, Fetched, Place, Standing, UNKNOWN, is_unreadable};

/// The version of a case's dates for a refresh rule.
pub(crate) fn version_of(case: &CaseState, refresh: &Refresh) -> String {
    if !case.reported {
        return UNKNOWN.to_owned();
    }
    match refresh {
        Refresh::None => String::new(),
        Refresh::Any => case.any_version.clone(),
        Refresh::Dates(change_dates) => change_dates
            .iter()
            .map(|f| case.dates[*f as usize].map_or_else(|| "null".to_owned(), |t| t.to_string()))
            .collect::<Vec<_>>()
            .join(","),
    }
}

/// Whether a scope fetched like this is stale for dates with this version.
pub(crate) fn why_stale(fetched: Option<&Fetched>, version: &str, now_us: i64) -> Option<Reason> {
    let Some(fetched) = fetched else { return Some(Reason::New) };
    match fetched.status {
        FetchStatus::Current if fetched.version.as_deref() == Some(version) => {}
        FetchStatus::Current
        | FetchStatus::Moved
        | FetchStatus::Suspect
        | FetchStatus::Unreadable => return Some(Reason::Changed),
        FetchStatus::Incomplete | FetchStatus::Held => return Some(Reason::Incomplete),
        FetchStatus::Lagging => return Some(Reason::Lagging),
        FetchStatus::Asked(mark) => return Some(Reason::Asked(mark)),
    }
    if fetched.again_at.is_some_and(|at| at <= now_us) {
        return Some(Reason::SearchDelay);
    }
    None
}

/// What of a case is stale and may be fetched now, and whether anything else of it has to wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CasePlan {
    pub(crate) stale: Vec<Stale>,
    /// Stale, but waiting for its backoff or left out of this run.
    pub(crate) waiting: Vec<Stale>,
}

/// What the plan may look at beside the case itself.
pub(crate) struct Inputs<'a> {
    /// The tables that are fetched in this run: enabled and permitted.
    pub(crate) resources: &'a [Arc<Resource>],
    pub(crate) fetched: &'a HashMap<(String, i64), Fetched>,
    /// Scopes that webhooks named, each with the number of the last hint.
    pub(crate) hints: &'a HashMap<(String, i64), i64>,
    /// Failed scopes: when they may be tried again, in microseconds.
    pub(crate) failures: &'a HashMap<(String, i64), i64>,
    /// Values of the columns that `[condition]`s look at, by table and column.
    pub(crate) values: &'a HashMap<(String, String), HashMap<i64, Option<String>>>,
    /// The path parameters that `[lookup]` asks for, by the table that is read with them.
    pub(crate) lookups: &'a HashMap<String, HashMap<i64, String>>,
    /// `bootstrap.since`, where it is set.
    pub(crate) since: Option<&'a Since>,
    /// Tables chosen with `--only`; empty: all.
    pub(crate) only: &'a [String],
    pub(crate) now_us: i64,
}

/// `bootstrap.since`, and what is known of cases that the feed has not reported; ticks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Since {
    /// The first instant of that day at the source.
    pub(crate) day: i64,
    /// How far back the feed has been read completely: what it did not report was not modified since.
    pub(crate) reach: Option<i64>,
    /// Of cases that the feed has not reported, the newest date that their search row shows.
    pub(crate) newest: HashMap<i64, i64>,
}

impl Since {
    /// Whether a case counts as modified since the day. What cannot be told counts as modified: a row
    /// too many is no wrong number.
    fn lets_through(&self, case: &CaseState) -> bool {
        if case.reported {
            return case.dates[0]
                .is_none_or(|modified| modified >= self.day || is_unreadable(modified));
        }
        if self.reach.is_some_and(|reach| reach <= self.day) {
            return false;
        }
        self.newest.get(&case.case_id).is_none_or(|newest| *newest >= self.day)
    }
}

/// Plans one case.
pub(crate) fn plan_case(case: &CaseState, inputs: &Inputs<'_>) -> CasePlan {
    let mut plan = CasePlan::default();
    for resource in inputs.resources {
        if !applies(case, resource, inputs) {
            continue;
        }
        let version = version_of(case, &resource.refresh);
        let key = (resource.table.clone(), case.case_id);
        let fetched = inputs.fetched.get(&key);
        let hint = inputs.hints.get(&key).copied();
        let reason = why_stale(fetched, &version, inputs.now_us);
        let Some(reason) = reason.or(hint.map(|_| Reason::Hinted)) else { continue };
        let mirrored =
            fetched.filter(|_| reason.believes_the_mirror()).and_then(|fetched| fetched.digest);
        let lookup = match &resource.lookup {
            None => None,
            // Where it is not known there is nothing to ask.
            Some(_) => match inputs.lookups.get(&resource.table).and_then(|g| g.get(&case.case_id))
            {
                Some(value) => Some(value.clone()),
                None => continue,
            },
        };
        let table = resource.table.clone();
        let stale = Stale { table, id: case.case_id, version, lookup, reason, mirrored, hint };
        let backing_off = inputs.failures.get(&key).is_some_and(|next| *next > inputs.now_us);
        let left_out = !inputs.only.is_empty() && !inputs.only.contains(&resource.table);
        if backing_off || left_out {
            plan.waiting.push(stale);
        } else {
            plan.stale.push(stale);
        }
    }
    postpone_conditioned(&mut plan, inputs);
    plan
}

/// Whether a case is asked for a resource with a `[condition]` is known when what it looks at is read: until
/// then it waits. (Rows of searches are read before anything is planned.)
fn postpone_conditioned(plan: &mut CasePlan, inputs: &Inputs<'_>) {
    let condition = |table: &str| {
        let resource = inputs.resources.iter().find(|r| r.table == table && r.group == Group::Case);
        resource.and_then(|r| r.condition.as_ref())
    };
    let of_case =
        |table: &str| inputs.resources.iter().any(|r| r.table == table && r.group == Group::Case);
    let read: Vec<String> = plan
        .stale
        .iter()
        .filter(|stale| of_case(&stale.table))
        .map(|stale| stale.table.clone())
        .collect();
    let (postponed, stale) = std::mem::take(&mut plan.stale)
        .into_iter()
        .partition(|stale| condition(&stale.table).is_some_and(|on| read.contains(&on.table)));
    plan.stale = stale;
    plan.waiting.extend::<Vec<Stale>>(postponed);
}

fn applies(case: &CaseState, resource: &Resource, inputs: &Inputs<'_>) -> bool {
    match resource.group {
        // A case is in one search; one that no search showed yet is asked in the first.
        Group::Ids => Place::parse(&resource.table).is_some_and(|place| {
            let is_read = |place: Place| inputs.resources.iter().any(|r| r.table == place.table());
            place == case.place.unwrap_or_else(|| Place::first(is_read))
        }),
        Group::Case => {
            if inputs.since.is_some_and(|since| !since.lets_through(case)) {
                return false;
            }
            let Some(condition) = &resource.condition else { return true };
            let known = inputs.values.get(&(condition.table.clone(), condition.column.clone()));
            match known.and_then(|values| values.get(&case.case_id)) {
                Some(value) => value.as_ref().is_some_and(|value| condition.values.contains(value)),
                // A hidden case has no row to look at: what was asked of it before is followed on.
                None => {
                    let key = (resource.table.clone(), case.case_id);
                    case.state == Some(Standing::Hidden)
                        && (inputs.fetched.contains_key(&key) || inputs.failures.contains_key(&key))
                }
            }
        }
        Group::List | Group::ForEach(_) | Group::Child(_) | Group::Events | Group::Journal(_) => {
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::ChangeDate;

    fn case(reported: bool, dates: [Option<i64>; 11]) -> CaseState {
        CaseState {
            case_id: 17,
            reported,
            dates,
            any_version: format!("{dates:?}"),
            moved: 1,
            place: Some(Place::Cases),
            state: Some(Standing::Found),
            rereading: false,
        }
    }

    /// What is known where nothing is.
    #[derive(Default)]
    struct Nothing {
        fetched: HashMap<(String, i64), Fetched>,
        scopes: HashMap<(String, i64), i64>,
        values: HashMap<(String, String), HashMap<i64, Option<String>>>,
        lookups: HashMap<String, HashMap<i64, String>>,
    }

    impl Nothing {
        fn of<'a>(&'a self, resources: &'a [Arc<Resource>]) -> Inputs<'a> {
            Inputs {
                resources,
                fetched: &self.fetched,
                hints: &self.scopes,
                failures: &self.scopes,
                values: &self.values,
                lookups: &self.lookups,
                since: None,
                only: &[],
                now_us: 0,
            }
        }
    }

    fn fetched(version: &str) -> Fetched {
        Fetched {
            version: Some(version.into()),
            status: FetchStatus::Current,
            complete: true,
            again_at: None,
            fetched_at: 0,
            digest: None,
        }
    }

    #[test]
    fn never_fetched_unknown_null_and_an_instant_are_four_states() {
        let rule = Refresh::Dates(vec![ChangeDate::ActivityChanged]);
        let mut dates = [None; 11];
        let unknown = version_of(&case(false, dates), &rule);
        let null = version_of(&case(true, dates), &rule);
        dates[ChangeDate::ActivityChanged as usize] = Some(5);
        let instant = version_of(&case(true, dates), &rule);
        let states = [None, Some(fetched(&unknown)), Some(fetched(&null)), Some(fetched(&instant))];
        for (i, was) in states.iter().enumerate() {
            for (n, now) in [&unknown, &null, &instant].into_iter().enumerate() {
                let stale = why_stale(was.as_ref(), now, 0).is_some();
                assert_eq!(stale, i != n + 1, "{was:?} against {now}");
            }
        }
    }

    #[test]
    fn a_date_that_goes_backwards_makes_stale_too() {
        assert_eq!(why_stale(Some(&fetched("7")), "6", 0), Some(Reason::Changed));
    }

    #[test]
    fn the_second_search_waits_for_its_time() {
        let again = Fetched { again_at: Some(100), ..fetched("6") };
        assert_eq!(why_stale(Some(&again), "6", 99), None);
        assert_eq!(why_stale(Some(&again), "6", 100), Some(Reason::SearchDelay));
    }

    #[test]
    fn one_moved_date_makes_only_its_resources_stale() {
        let nothing = Nothing::default();
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let mut dates = [Some(1); 11];
        let before = case(true, dates);
        let resources = catalog.resources();
        let mut all = HashMap::new();
        for r in resources {
            all.insert((r.table.clone(), 17), fetched(&version_of(&before, &r.refresh)));
        }
        dates[ChangeDate::TransactionChanged as usize] = Some(2);
        let values = HashMap::from([(
            ("cases".to_owned(), "assignment_type".to_owned()),
            HashMap::from([(17, Some("Sale".to_owned()))]),
        )]);
        let inputs = Inputs { fetched: &all, values: &values, ..nothing.of(resources) };
        assert_eq!(plan_case(&before, &inputs), CasePlan::default());
        let plan = plan_case(&case(true, dates), &inputs);
        let stale: Vec<&str> = plan.stale.iter().map(|s| s.table.as_str()).collect();
        let expected: Vec<&str> = resources
            .iter()
            .filter(|r| match &r.refresh {
                // What hangs on another table is asked for once that is read.
                Refresh::Any => r.table != "projects" && r.condition.is_none(),
                Refresh::Dates(d) => d.contains(&ChangeDate::TransactionChanged),
                Refresh::None => false,
            })
            .map(|r| r.table.as_str())
            .collect();
        assert_eq!(stale, expected);
        assert!(stale.contains(&"entries") && !stale.contains(&"activities"));
    }

    #[test]
    fn a_hint_makes_its_scope_stale_and_another_reason_answers_it_too() {
        let nothing = Nothing::default();
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let case = case(true, [Some(1); 11]);
        let mut all = HashMap::new();
        for r in catalog.resources() {
            all.insert((r.table.clone(), 17), fetched(&version_of(&case, &r.refresh)));
        }
        all.remove(&("notes".to_owned(), 17));
        let named = [("activities", 17), ("notes", 17), ("costs", 18)];
        let hints: HashMap<(String, i64), i64> =
            named.iter().map(|(table, id)| ((String::from(*table), *id), 7)).collect();
        let inputs = Inputs { fetched: &all, hints: &hints, ..nothing.of(catalog.resources()) };
        let mut stale: Vec<(String, Reason, Option<i64>)> = plan_case(&case, &inputs)
            .stale
            .into_iter()
            .map(|stale| (stale.table, stale.reason, stale.hint))
            .collect();
        stale.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(
            stale,
            [
                ("activities".to_owned(), Reason::Hinted, Some(7)),
                ("notes".to_owned(), Reason::New, Some(7)),
            ]
        );
    }

    #[test]
    fn what_failed_waits_and_what_is_left_out_stays_pending() {
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let failures = HashMap::from([(("entries".to_owned(), 17), 50)]);
        let mut inputs = Inputs {
            resources: catalog.resources(),
            fetched: &HashMap::new(),
            hints: &HashMap::new(),
            failures: &failures,
            values: &HashMap::new(),
            lookups: &HashMap::new(),
            since: None,
            only: &[],
            now_us: 49,
        };
        let case = case(true, [Some(1); 11]);
        let waits = |plan: &CasePlan, table: &str| plan.waiting.iter().any(|s| s.table == table);
        assert!(waits(&plan_case(&case, &inputs), "entries"));
        inputs.now_us = 50;
        assert!(!waits(&plan_case(&case, &inputs), "entries"));
        let only = ["activities".to_owned()];
        inputs.only = &only;
        let plan = plan_case(&case, &inputs);
        assert_eq!(plan.stale.len(), 1);
        assert!(waits(&plan, "entries"));
    }

    #[test]
    fn a_case_that_no_search_showed_is_looked_for_in_one_that_is_read() {
        let nothing = Nothing::default();
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let asked = |place, without: &str| {
            let resources: Vec<Arc<Resource>> =
                catalog.resources().iter().filter(|r| r.table != without).cloned().collect();
            let inputs = nothing.of(&resources);
            let case = CaseState { place, ..case(true, [Some(1); 11]) };
            let stale = plan_case(&case, &inputs).stale.into_iter().map(|stale| stale.table);
            stale.filter(|table| Place::parse(table).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(asked(None, ""), ["cases"]);
        assert_eq!(asked(None, "projects"), ["cases"]);
        assert_eq!(asked(None, "cases"), ["projects"]);
        assert_eq!(asked(Some(Place::Projects), "cases"), ["projects"]);
        assert_eq!(asked(Some(Place::Cases), "cases"), [""; 0], "its row stays as it is");
    }

    #[test]
    fn cases_modified_before_the_first_day_get_only_their_search_row() {
        let nothing = Nothing::default();
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let only_searched = |case: CaseState, since: Since| {
            let inputs = Inputs { since: Some(&since), ..nothing.of(catalog.resources()) };
            let plan = plan_case(&case, &inputs);
            plan.stale.iter().map(|s| s.table.as_str()).eq(["cases"])
        };
        let reported = |modified| case(true, [modified; 11]);
        let day = |day| Since { day, ..Since::default() };
        assert!(only_searched(reported(Some(1)), day(2)));
        assert!(!only_searched(reported(Some(2)), day(2)));
        assert!(!only_searched(reported(None), day(2)));
        // A case that the feed never reported.
        let unreported = || case(false, [None; 11]);
        let newest = |at| Since { newest: HashMap::from([(17, at)]), ..day(5) };
        assert!(only_searched(unreported(), Since { reach: Some(5), ..day(5) }));
        assert!(only_searched(unreported(), newest(4)));
        assert!(!only_searched(unreported(), newest(5)));
        assert!(!only_searched(unreported(), Since { reach: Some(6), ..day(5) }));
    }

    #[test]
    fn a_hidden_case_is_followed_on_in_what_was_asked_of_it_before() {
        let nothing = Nothing::default();
        let catalog = crate::catalog::Catalog::load(None).unwrap();
        let hidden = CaseState { state: Some(Standing::Hidden), ..case(true, [Some(1); 11]) };
        let asks = |fetched: &HashMap<(String, i64), Fetched>| {
            let inputs = Inputs { fetched, ..nothing.of(catalog.resources()) };
            let plan = plan_case(&hidden, &inputs);
            plan.stale.iter().any(|stale| stale.table == "resale_information")
        };
        assert!(!asks(&HashMap::new()));
        assert!(asks(&HashMap::from([(("resale_information".to_owned(), 17), fetched("old"))])));
    }
}
