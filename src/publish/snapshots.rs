//! The folder of the snapshots: names, what a killed process left, what is kept
//! (docs/architecture.md, "Published means finished").

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::durable::{self, Access, Replacement};
use crate::error::{self, Result};

/// `2026-11-20T020000`: without the colons that some file systems refuse.
const TIME_FORMAT: &str = "%Y-%m-%dT%H%M%S";

/// Where the snapshots of `root` are.
pub(super) fn folder(root: &Path) -> PathBuf {
    root.join("snapshots")
}

/// The link to the newest snapshot.
pub(super) fn latest(root: &Path) -> PathBuf {
    root.join("latest")
}

/// Makes the folder, and removes what an earlier process left unfinished in it.
pub(super) fn prepare(root: &Path) -> Result<()> {
    let folder = folder(root);
    durable::make_shared_folder(&folder)?;
    durable::remove_stale_of(&latest(root))?;
    tell_what_stays(durable::remove_stale_in(&folder));
    Ok(())
}

/// What is not needed any more and cannot be removed takes its space; that is no reason to publish nothing.
fn tell_what_stays(removed: Result<()>) {
    if let Err(error) = removed {
        tracing::warn!(
            reason = error.chain(),
            "an old snapshot cannot be removed, and takes its space; whoever owns it may have to"
        );
    }
}

/// Of two names of snapshots that of the later one.
pub(crate) fn later_of(one: Option<String>, other: Option<String>) -> Option<String> {
    let key = |id: &Option<String>| id.as_deref().and_then(parse_id);
    if key(&other) > key(&one) { other } else { one }
}

/// The name of a snapshot taken at this time: `2026-11-20T020000Z`, or with `-2`, `-3` … when there
/// is one of that second, which `taken` says.
pub(super) fn free_id(taken_at: Timestamp, taken: impl Fn(&str) -> bool) -> String {
    let base = format!("{}Z", taken_at.strftime(TIME_FORMAT));
    if !taken(&base) {
        return base;
    }
    (2..).map(|n| format!("{base}-{n}")).find(|id| !taken(id)).unwrap_or(base) // The numbers do not end before the file system does.
}

/// Whether a snapshot of this name was made, where the last one was called `last`: of one second the numbers go on.
pub(super) fn is_used(id: &str, last: &str) -> bool {
    matches!((parse_id(id), parse_id(last)), (Some((at, number)), Some((last_at, last_number)))
        if at == last_at && number <= last_number)
}

/// Whether there is a snapshot of this name.
pub(super) fn is_there(root: &Path, id: &str) -> bool {
    folder(root).join(id).exists()
}

/// When the snapshot of this name was taken, and which of that second it is.
pub(super) fn parse_id(id: &str) -> Option<(Timestamp, u32)> {
    let (time, rest) = id.split_once('Z')?;
    let number = match rest.strip_prefix('-') {
        Some(number) => number.parse().ok().filter(|n| *n >= 2)?,
        None if rest.is_empty() => 1,
        None => return None,
    };
    let time = DateTime::strptime(TIME_FORMAT, time).ok()?;
    Some((time.to_zoned(TimeZone::UTC).ok()?.timestamp(), number))
}

/// The snapshot that `latest` shows; `None` where there is none.
pub(crate) fn current(root: &Path) -> Option<String> {
    let latest = latest(root);
    let link = fs::read_link(&latest).ok().filter(|_| latest.exists())?;
    Some(link.file_name()?.to_str()?.to_owned())
}

/// Whether `latest` is as [`point_latest_to`] makes it, wherever its snapshot has gone.
pub(super) fn is_link_to_one(latest: &Path) -> bool {
    let Ok(link) = fs::read_link(latest) else { return false };
    let Ok(name) = link.strip_prefix("snapshots") else { return false };
    name.to_str().is_some_and(|id| parse_id(id).is_some())
}

/// The folders of the snapshots that are there, the newest first.
pub(super) fn newest_first(root: &Path) -> Result<Vec<PathBuf>> {
    if !folder(root).is_dir() {
        return Ok(Vec::new());
    }
    let mut all = all(root)?;
    all.sort_by(|a, b| b.cmp(a));
    Ok(all.into_iter().map(|(_, name)| folder(root).join(name)).collect())
}

/// Removes a snapshot that no reader was led to.
pub(super) fn take_back(root: &Path, id: &str) {
    tell_what_stays(durable::remove_at_once(&folder(root).join(id)));
}

/// Points `latest` to a snapshot, in one step.
pub(super) fn point_latest_to(root: &Path, id: &str) -> Result<()> {
    let link = Replacement::of(&latest(root))?;
    // Relative, so that the folder can be moved or served from elsewhere.
    std::os::unix::fs::symlink(Path::new("snapshots").join(id), link.path())
        .map_err(|e| error::io("create", link.path(), e))?;
    link.finish(Access::AsCreated)
}

/// Removes the snapshots that are neither among the newest `keep` nor younger than `keep_for`.
/// `current` always stays; what has no name of ours is left alone. What cannot be removed is told.
pub(super) fn remove_old(
    root: &Path,
    current: &str,
    now: Timestamp,
    keep: usize,
    keep_for: Duration,
) -> Result<()> {
    tell_what_stays(remove(root, current, expired(all(root)?, now, keep, keep_for)));
    Ok(())
}

/// Removes all snapshots but this one: all that can be, and the first that cannot is an error.
pub(super) fn remove_all_but(root: &Path, current: &str) -> Result<()> {
    remove(root, current, all(root)?.into_iter().map(|(_, name)| name).collect())
}

fn remove(root: &Path, current: &str, names: Vec<String>) -> Result<()> {
    let others = names.iter().filter(|name| *name != current);
    let removed = others.map(|name| durable::remove_at_once(&folder(root).join(name)));
    // Each is tried.
    removed.fold(Ok(()), Result::and)
}

/// The snapshots that are there.
fn all(root: &Path) -> Result<Vec<((Timestamp, u32), String)>> {
    let folder = folder(root);
    let failed = |e| error::io("list", &folder, e);
    let mut all = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().into_string()
            && let Some(key) = parse_id(&name)
        {
            all.push((key, name));
        }
    }
    Ok(all)
}

/// Which snapshots are to go: pure, so that it can be tested without waiting.
pub(super) fn expired(
    mut all: Vec<((Timestamp, u32), String)>,
    now: Timestamp,
    keep: usize,
    keep_for: Duration,
) -> Vec<String> {
    // Those that a clock that was ahead has named stay until their time has come, and take no other's place.
    all.retain(|((taken_at, _), _)| *taken_at <= now);
    all.sort_by(|a, b| b.cmp(a));
    all.into_iter()
        .skip(keep)
        .filter(|((taken_at, _), _)| {
            Duration::try_from(now.duration_since(*taken_at)).is_ok_and(|age| age > keep_for)
        })
        .map(|(_, name)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_tells_its_second_and_its_number() {
        assert_eq!(free_id(at("2026-11-20T02:00:00.75Z"), |_| false), "2026-11-20T020000Z");
        assert_eq!(parse_id("2026-11-20T020000Z"), Some((at("2026-11-20T02:00:00Z"), 1)));
        assert_eq!(parse_id("2026-11-20T020000Z-12"), Some((at("2026-11-20T02:00:00Z"), 12)));
        for other in ["2026-11-20", "2026-11-20T020000Z-1", "2026-11-20T020000Zx", "lost+found", ""]
        {
            assert_eq!(parse_id(other), None, "{other}");
        }
    }

    #[test]
    fn what_the_last_one_was_called_is_used_whatever_there_is_of_it() {
        let used = |id| is_used(id, "2026-11-20T020000Z-2");
        assert!(used("2026-11-20T020000Z") && used("2026-11-20T020000Z-2"));
        assert!(!used("2026-11-20T020000Z-3") && !used("2026-11-20T020001Z"));
        assert!(!used("2026-11-20T015959Z"), "the clock was set back");
    }

    #[test]
    fn of_two_names_the_later_one_is_used_up() {
        let later = |one: &str, other: &str| {
            let given = |id: &str| Some(id.to_owned()).filter(|id| !id.is_empty());
            later_of(given(one), given(other)).unwrap_or_default()
        };
        let (first, second) = ("2026-11-20T020000Z", "2026-11-20T020000Z-2");
        for (one, other) in [(first, second), (second, first), ("", second), (second, "")] {
            assert_eq!(later(one, other), second);
        }
        assert_eq!(later(second, "2026-11-20T020000Z-10"), "2026-11-20T020000Z-10");
        assert_eq!(later(second, "no name"), second);
    }

    #[test]
    fn a_second_snapshot_in_a_second_gets_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let time = at("2026-11-20T02:00:00Z");
        for expected in ["2026-11-20T020000Z", "2026-11-20T020000Z-2", "2026-11-20T020000Z-3"] {
            let id = free_id(time, |id| is_there(dir.path(), id));
            assert_eq!(id, expected);
            fs::create_dir_all(folder(dir.path()).join(id)).unwrap();
        }
    }

    #[test]
    fn a_snapshot_goes_only_when_it_is_neither_new_nor_young() {
        let names = [
            "2026-11-20T010000Z",
            "2026-11-20T020000Z-2",
            "2026-11-20T020000Z-10",
            "2026-11-20T020000Z",
            "2026-11-20T030000Z",
        ];
        let all = || names.iter().map(|n| (parse_id(n).unwrap(), (*n).to_owned())).collect();
        let hour = Duration::from_secs(3600);
        let now = at("2026-11-20T03:30:00Z");
        assert_eq!(
            expired(all(), now, 2, hour),
            ["2026-11-20T020000Z-2", "2026-11-20T020000Z", "2026-11-20T010000Z"]
        );
        assert_eq!(expired(all(), now, 0, 2 * hour), ["2026-11-20T010000Z"]);
        assert_eq!(expired(all(), now, 7, Duration::ZERO), [""; 0]);
        // One is of a clock that was ahead: it is kept, and in nobody's place.
        assert_eq!(
            expired(all(), at("2026-11-20T02:30:00Z"), 1, Duration::ZERO),
            ["2026-11-20T020000Z-2", "2026-11-20T020000Z", "2026-11-20T010000Z"]
        );
        assert_eq!(expired(all(), at("2026-11-19T00:00:00Z"), 0, Duration::ZERO), [""; 0]);
    }
}
