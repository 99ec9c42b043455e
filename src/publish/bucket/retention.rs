//! Which objects go: pure, so that it can be tested without waiting.
//!
//! A snapshot names objects of those before it. So what goes with a snapshot is its manifest, and of its files
//! those that no snapshot names that stays. What a killed process has uploaded has no manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Object;
use super::found::{SNAPSHOTS, manifest_of};
use crate::publish::snapshots;

/// Objects without a manifest may be under way until they are older than this.
const UNFINISHED_FOR: SignedDuration = SignedDuration::from_hours(6);

/// What stays and what may go, before it is known which objects are named.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Snapshots that stay.
    pub(super) kept: Vec<String>,
    /// Manifests that go, before the files: what has no manifest is no snapshot.
    pub(super) manifests: Vec<String>,
    /// Files that go where no snapshot names them that stays.
    pub(super) files: Vec<String>,
}

/// What is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    pub(super) snapshots: usize,
    pub(super) younger_than: Duration,
    /// The newest snapshot alone: the earlier ones hold what was erased.
    pub(super) newest_alone: bool,
}

/// `objects`: all of all snapshots; `current`: the snapshot that was just written.
pub(super) fn plan(
    objects: &BTreeMap<String, Object>,
    current: &str,
    now: Timestamp,
    keep: Keep,
) -> Plan {
    let ids: BTreeSet<&str> = objects.keys().filter_map(|name| id_of(name)).collect();
    let is_finished = |id: &&str| *id == current || objects.contains_key(&manifest_of(id));
    let finished: Vec<_> = ids
        .iter()
        .copied()
        .filter(is_finished)
        .filter_map(|id| Some((snapshots::parse_id(id)?, id.to_owned())))
        .collect();
    let expired: BTreeSet<String> = if keep.newest_alone {
        finished.iter().map(|(_, id)| id.clone()).filter(|id| id != current).collect()
    } else {
        let expired = snapshots::expired(finished.clone(), now, keep.snapshots, keep.younger_than);
        expired.into_iter().filter(|id| id != current).collect()
    };
    let mut plan = Plan::default();
    for (_, id) in finished {
        if !expired.contains(&id) {
            plan.kept.push(id);
        }
    }
    for (name, object) in objects {
        let Some(id) = id_of(name).filter(|id| snapshots::parse_id(id).is_some()) else { continue };
        if plan.kept.iter().any(|kept| kept == id) {
            continue;
        }
        let is_under_way = !expired.contains(id)
            && !keep.newest_alone
            && now.duration_since(object.modified_at) < UNFINISHED_FOR;
        if *name == manifest_of(id) {
            plan.manifests.push(name.clone());
        } else if !is_under_way {
            plan.files.push(name.clone());
        }
    }
    plan
}

/// The snapshot in whose folder an object is.
fn id_of(name: &str) -> Option<&str> {
    let (folder, rest) = name.split_once('/')?;
    let (id, _) = rest.split_once('/')?;
    (folder == SNAPSHOTS).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn objects(all: &[(&str, &str)]) -> BTreeMap<String, Object> {
        let object = |time: &str| Object { bytes: 1, modified_at: at(time) };
        all.iter().map(|(name, time)| (format!("snapshots/{name}"), object(time))).collect()
    }

    const KEEP: Keep =
        Keep { snapshots: 1, younger_than: Duration::from_secs(3600), newest_alone: false };

    fn three() -> BTreeMap<String, Object> {
        objects(&[
            ("2026-11-20T010000Z/manifest.json", "2026-11-20T01:00:00Z"),
            ("2026-11-20T010000Z/cases/data.parquet", "2026-11-20T01:00:00Z"),
            // Killed before its manifest, long ago and just now.
            ("2026-11-20T020000Z/cases/data.parquet", "2026-11-20T02:00:00Z"),
            ("2026-11-20T113000Z/cases/data.parquet", "2026-11-20T11:30:00Z"),
            ("2026-11-20T120000Z/manifest.json", "2026-11-20T12:00:00Z"),
            ("2026-11-20T120000Z/cases/data.parquet", "2026-11-20T12:00:00Z"),
            ("notes/mine.txt", "2020-01-01T00:00:00Z"),
        ])
    }

    #[test]
    fn what_is_expired_goes_and_what_is_unfinished_when_it_is_old() {
        let plan = plan(&three(), "2026-11-20T120000Z", at("2026-11-20T12:00:00Z"), KEEP);
        assert_eq!(plan.kept, ["2026-11-20T120000Z"]);
        assert_eq!(plan.manifests, ["snapshots/2026-11-20T010000Z/manifest.json"]);
        assert_eq!(
            plan.files,
            [
                "snapshots/2026-11-20T010000Z/cases/data.parquet",
                "snapshots/2026-11-20T020000Z/cases/data.parquet"
            ]
        );
    }

    #[test]
    fn what_is_young_or_among_the_newest_stays() {
        for keep in [
            Keep { snapshots: 2, ..KEEP },
            Keep { younger_than: Duration::from_secs(86_400), ..KEEP },
        ] {
            let plan = plan(&three(), "2026-11-20T120000Z", at("2026-11-20T12:00:00Z"), keep);
            assert_eq!(plan.kept, ["2026-11-20T010000Z", "2026-11-20T120000Z"], "{keep:?}");
            assert_eq!(plan.manifests, [""; 0]);
            assert_eq!(plan.files, ["snapshots/2026-11-20T020000Z/cases/data.parquet"]);
        }
    }

    #[test]
    fn where_values_were_erased_all_goes_but_the_newest_snapshot() {
        let keep = Keep { snapshots: 9, newest_alone: true, ..KEEP };
        let plan = plan(&three(), "2026-11-20T120000Z", at("2026-11-20T12:00:00Z"), keep);
        assert_eq!(plan.kept, ["2026-11-20T120000Z"]);
        assert_eq!((plan.manifests.len(), plan.files.len()), (1, 3));
        assert!(!plan.files.iter().any(|name| name.contains("notes")), "what is not ours stays");
    }

    #[test]
    fn the_newest_snapshot_stays_whatever_the_clock_says() {
        let now = at("2027-01-01T00:00:00Z");
        let plan = plan(&three(), "2026-11-20T010000Z", now, KEEP);
        assert!(plan.kept.contains(&"2026-11-20T010000Z".to_owned()), "{plan:?}");
    }
}
