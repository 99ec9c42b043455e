use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::*;
use crate::source::boot::{BootClock, BootTime, SystemBootClock};
use crate::source::feed_calls::Ended;
use crate::source::feed_calls::Rule;
use crate::source::ledger::Ledger;

const WINDOW: Duration = Duration::from_secs(600);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state/casemirror/user.feed-calls")
    }

    fn file(&self) -> Arc<LedgerFile> {
        Arc::new(LedgerFile::at(&self.path(), 3).unwrap())
    }

    fn ledger(&self) -> Ledger {
        let rule = Rule { limit: 3, window: WINDOW, longest_hold: WINDOW };
        let clock = Arc::new(SystemBootClock::new());
        Ledger::open(self.file(), rule, Duration::from_secs(60), clock).unwrap()
    }

    fn calls(&self) -> Vec<FeedCall> {
        let mut calls = Vec::new();
        let look = &mut |known: &[FeedCall]| {
            calls = known.to_vec();
            Vec::new()
        };
        self.file().update(look).unwrap();
        calls
    }
}

fn call(id: i64, process: &str) -> FeedCall {
    let clock = SystemBootClock::new();
    FeedCall {
        id,
        feed: FeedName::Contacts,
        by: Caller { process: process.to_owned(), ledger: 1, number: 1 },
        boot_id: clock.boot_id().to_owned(),
        sent_at: Timestamp::now(),
        sent: clock.now(),
        patience: Duration::from_secs(60),
        end: None,
    }
}

async fn answered(ledger: &Ledger) -> bool {
    match ledger.begin(FeedName::Cases).await.unwrap() {
        Some(permit) => permit.answered(200, Duration::ZERO).await.is_ok(),
        None => false,
    }
}

#[tokio::test]
async fn all_who_share_a_file_share_one_limit() {
    let place = Place::new();
    // As many as there are stores of one API user: a removed store's, a copy's, a third one.
    let ledgers = [place.ledger(), place.ledger(), place.ledger()];
    let mut went = Vec::new();
    for ledger in ledgers.iter().cycle().take(6) {
        went.push(answered(ledger).await);
    }
    assert_eq!(went, [true, true, true, false, false, false]);
    assert!(!answered(&place.ledger()).await, "one that is opened later");
    let ids: Vec<i64> = place.calls().iter().map(|call| call.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(place.calls().iter().all(|call| call.end.is_some()));
}

#[tokio::test]
async fn a_call_under_way_counts_for_the_others_until_its_process_ends() {
    let place = Place::new();
    let mine = process::this();
    for (id, process) in [(1, mine.as_str()), (2, mine.as_str()), (3, "1/1/elsewhere")] {
        let sent = Change::Sent(call(id, process));
        place.file().update(&mut |_| vec![sent.clone()]).unwrap();
    }
    let ledger = place.ledger();
    assert!(!answered(&ledger).await);
    assert!(place.calls().iter().all(|call| call.end.is_none()), "they may still live");
    // Killed: the process of that number was another one.
    let (pid, _) = mine.split_once('/').unwrap();
    let (_, namespace) = mine.rsplit_once('/').unwrap();
    let gone = format!("{pid}/1/{namespace}");
    place.file().update(&mut |_| vec![Change::Sent(call(4, &gone))]).unwrap();
    drop(ledger);
    place.ledger();
    let ended: Vec<bool> = place.calls().iter().map(|call| call.end.is_some()).collect();
    assert_eq!(ended, [false, false, false, true]);
}

/// As the daemon does that has lost its database: its number stays, and nobody ends the calls that were under way.
#[tokio::test]
async fn what_a_process_left_open_that_began_itself_anew_is_over_when_nobody_can_wait_for_it() {
    let place = Place::new();
    let mine = process::this();
    let young = call(1, &mine);
    let old = FeedCall {
        patience: Duration::ZERO,
        sent: BootTime::from_nanos(-86_400_000_000_000),
        ..call(2, &mine)
    };
    for sent in [young, old] {
        place.file().update(&mut |_| vec![Change::Sent(sent.clone())]).unwrap();
    }
    place.ledger();
    let ended: Vec<bool> = place.calls().iter().map(|call| call.end.is_some()).collect();
    assert_eq!(ended, [false, true]);
}

#[tokio::test]
async fn a_file_that_is_removed_is_made_again_by_who_remembers_it() {
    let place = Place::new();
    let ledger = place.ledger();
    assert!(answered(&ledger).await && answered(&ledger).await);
    fs::remove_file(place.path()).unwrap();
    assert!(answered(&ledger).await);
    assert!(!answered(&place.ledger()).await);
    assert_eq!(place.calls().len(), 3);
}

#[tokio::test]
async fn a_line_that_was_cut_off_is_none() {
    let place = Place::new();
    assert!(answered(&place.ledger()).await);
    let whole = fs::read(place.path()).unwrap();
    fs::write(place.path(), [&whole[..], b"{\"ended\":{\"id\":1,\"bo"].concat()).unwrap();
    assert_eq!(place.calls().len(), 1);
    assert!(answered(&place.ledger()).await);
    assert_eq!(place.calls().len(), 2);
    assert!(fs::read(place.path()).unwrap().starts_with(&whole));
}

#[tokio::test]
async fn what_cannot_be_read_holds_the_feed_for_a_whole_window_and_is_kept_whole() {
    let place = Place::new();
    assert!(answered(&place.ledger()).await);
    let line = fs::read(place.path()).unwrap();
    let damaged = [[&line[..], b"x\n", b"rest"].concat(), [&line[..], b"rest"].concat()];
    for (before, name) in damaged.iter().zip([".unreadable", ".unreadable-2"]) {
        fs::write(place.path(), before).unwrap();
        assert!(!answered(&place.ledger()).await);
        assert_eq!(place.calls().len(), 3);
        let aside = durable::with_suffix(&place.path(), name);
        assert_eq!(&fs::read(&aside).unwrap(), before);
        assert_eq!(fs::metadata(aside).unwrap().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_file_that_is_no_ledger_is_refused_and_stays() {
    let place = Place::new();
    fs::create_dir_all(place.path().parent().unwrap()).unwrap();
    for other in ["[source]\nclient_id = \"me\"\n", "secret", "{\"sent\":1}\n", "\0\0x", "{}"] {
        fs::write(place.path(), other).unwrap();
        let refused = place.file().update(&mut |_| Vec::new()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Config, "{other:?}");
        assert!(refused.to_string().contains("is no ledger of feed calls"), "{refused}");
        assert_eq!(fs::read_to_string(place.path()).unwrap(), other);
    }
    assert_eq!(
        fs::read_dir(place.path().parent().unwrap()).unwrap().count(),
        1,
        "nothing beside it"
    );
    // A crash before the first line was whole.
    for ours in ["", "\0\0\0", "{\"se", "{\"sent\":{\"id\":1,"] {
        fs::write(place.path(), ours).unwrap();
        assert!(place.calls().is_empty(), "{ours:?}");
        assert_eq!(fs::read(place.path()).unwrap(), b"", "{ours:?}");
    }
}

#[test]
fn a_file_that_grew_large_keeps_what_counts_and_the_newest() {
    let place = Place::new();
    let gone = SystemBootClock::new().boot_id().to_owned();
    fs::create_dir_all(place.path().parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(place.0.path().join("elsewhere"), place.path()).unwrap();
    place.file().update(&mut |_| vec![Change::Sent(call(1, "under way"))]).unwrap();
    let many: Vec<Change> = (2..=2_000)
        .flat_map(|id| {
            let ended = Ended {
                boot_id: gone.clone(),
                at: Timestamp::now(),
                time: BootTime::from_nanos(id),
                status: Some(200),
                retry_after: Duration::ZERO,
            };
            [Change::Sent(call(id, "")), Change::Ended(id, ended)]
        })
        .collect();
    place.file().update(&mut |_| many.clone()).unwrap();
    let ids: Vec<i64> = place.calls().iter().map(|call| call.id).collect();
    assert_eq!(ids.len(), KEPT + 1);
    assert_eq!((ids[0], ids[1], ids[KEPT]), (1, 1_501, 2_000));
    assert_eq!(place.calls()[KEPT].end.as_ref().unwrap().time, BootTime::from_nanos(2_000));
    let linked = fs::symlink_metadata(place.path()).unwrap().is_symlink();
    assert!(linked, "it was a link");
    let mode = fs::metadata(place.path()).unwrap().mode() & 0o777;
    assert_eq!(mode, 0o600);
    assert_eq!(sent_and_ended(&fs::read(place.path()).unwrap()), (KEPT + 1, KEPT));
}

/// Lines of the file, none of which is of another kind.
fn sent_and_ended(ledger: &[u8]) -> (usize, usize) {
    let lines: Vec<&str> = std::str::from_utf8(ledger).unwrap().lines().collect();
    let of = |kind: &str| lines.iter().filter(|line| line.starts_with(kind)).count();
    let found = (of("{\"sent\""), of("{\"ended\""));
    assert_eq!(found.0 + found.1, lines.len());
    found
}

/// Calls from `first` on that have all ended, as lines of the file.
fn calls_from(first: i64, count: i64) -> Vec<Change> {
    let ended = |id| Ended {
        boot_id: String::from("boot"),
        at: Timestamp::now(),
        time: BootTime::from_nanos(id),
        status: Some(200),
        retry_after: Duration::ZERO,
    };
    let calls = first..first + count;
    calls.flat_map(|id| [Change::Sent(call(id, "")), Change::Ended(id, ended(id))]).collect()
}

#[test]
fn a_file_that_is_made_shorter_stays_the_file_of_all_who_may_write_it() {
    let place = Place::new();
    let folder = place.path().parent().unwrap().to_owned();
    fs::create_dir_all(&folder).unwrap();
    fs::write(place.path(), "").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o666)).unwrap();
    let before = fs::metadata(place.path()).unwrap();
    // Of another process, that has it open and waits for its turn.
    let open = fs::File::open(place.path()).unwrap();
    place.file().update(&mut |_| calls_from(1, 2_000)).unwrap();
    let after = fs::metadata(place.path()).unwrap();
    assert_eq!(place.calls().len(), KEPT);
    assert_eq!(after.len(), open.metadata().unwrap().len());
    let file = |of: &fs::Metadata| (of.dev(), of.ino(), of.uid(), of.gid(), of.mode() & 0o777);
    assert_eq!(file(&after), file(&before));
    assert_eq!(after.mode() & 0o777, 0o666);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1, "nothing was made beside it");
}

#[test]
fn a_crash_while_the_file_is_made_shorter_loses_no_call() {
    let place = Place::new();
    let ledger = place.file();
    ledger.update(&mut |_| vec![Change::Sent(call(1, "under way"))]).unwrap();
    ledger.update(&mut |_| calls_from(2, 20)).unwrap();
    let calls = place.calls();
    let before = fs::read(place.path()).unwrap();
    let from = start_of(&before, 15).unwrap();
    let expected: Vec<FeedCall> =
        calls.iter().filter(|call| call.id == 1 || call.id >= 15).cloned().collect();
    ledger.begin_at(&mut ledger.locked().unwrap(), from, &expected[..1]).unwrap();
    let marked = fs::read(place.path()).unwrap();
    assert!(marked.starts_with(&before));
    for cut in before.len()..marked.len() {
        fs::write(place.path(), &marked[..cut]).unwrap();
        assert_eq!(place.calls(), calls, "{cut} of {} bytes of the line", marked.len());
    }
    let kept = text(&as_changes(&expected)).unwrap();
    assert!(kept.len() < from);
    for written in (0..=kept.len()).step_by(7) {
        let half = [&kept.as_bytes()[..written], &marked[written..]].concat();
        fs::write(place.path(), half).unwrap();
        assert_eq!(place.calls(), expected, "{written} bytes were written");
    }
    // It is a ledger as any other: it grows, and is made shorter.
    ledger.update(&mut |_| calls_from(22, 2_000)).unwrap();
    let ids: Vec<i64> = place.calls().iter().map(|call| call.id).collect();
    assert_eq!((ids.len(), ids[0], ids[1], ids[KEPT]), (KEPT + 1, 1, 1_522, 2_021));
    assert_eq!(sent_and_ended(&fs::read(place.path()).unwrap()), (KEPT + 1, KEPT));
}

/// A file that cannot be made shorter, with nothing that could be made beside it.
#[cfg(target_os = "linux")]
fn sealed() -> (fs::File, PathBuf) {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
    use std::os::fd::AsRawFd;
    let file = fs::File::from(memfd_create("ledger", MemfdFlags::ALLOW_SEALING).unwrap());
    fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

#[cfg(target_os = "linux")]
#[test]
fn calls_go_on_where_the_file_cannot_be_made_shorter() {
    let (_open, path) = sealed();
    let ledger = LedgerFile::at(&path, 3).unwrap();
    for turn in 0..3 {
        ledger.update(&mut |_| calls_from(1 + turn * 2_000, 2_000)).unwrap();
        assert!(ledger.has_told.load(Ordering::Relaxed));
        let mut ids = Vec::new();
        let look = &mut |known: &[FeedCall]| {
            ids = known.iter().map(|call| call.id).collect();
            Vec::new()
        };
        ledger.update(look).unwrap();
        let last = (turn + 1) * 2_000;
        assert_eq!((ids[0], ids[KEPT - 1], ids.len()), (last - 499, last, KEPT));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_read_nor_kept_beside_the_file_holds_the_feed_and_stays_in_it() {
    use std::io::Write;
    let (mut open, path) = sealed();
    let ledger = LedgerFile::at(&path, 3).unwrap();
    ledger.update(&mut |_| calls_from(1, 1)).unwrap();
    let before = fs::read(&path).unwrap();
    open.seek(SeekFrom::End(0)).unwrap();
    open.write_all(b"rest").unwrap();
    let mut calls = Vec::new();
    let look = &mut |known: &[FeedCall]| {
        calls = known.to_vec();
        Vec::new()
    };
    ledger.update(look).unwrap();
    let made_by: Vec<&str> = calls.iter().map(|call| call.by.process.as_str()).collect();
    assert_eq!(made_by, ["", "", ""], "as many as fill a window, of nobody");
    assert!(fs::read(&path).unwrap().starts_with(&[&before[..], b"rest\n"].concat()));
}

#[test]
fn the_usual_place_is_the_users_own() {
    let url = |text: &str| Url::parse(text).unwrap();
    let one = usual_place(&url("https://HOST.example.com:443/api/"), "me").unwrap();
    assert_eq!(one, usual_place(&url("https://host.example.com/api/"), "me").unwrap());
    assert_ne!(one, usual_place(&url("https://host.example.com/api/"), "you").unwrap());
    assert!(one.parent().unwrap().ends_with("casemirror"), "{}", one.display());
}

#[test]
fn the_usual_place_is_the_same_for_a_service_and_for_commands_that_its_user_types() {
    let folder = |variables: &[(&str, &str)]| {
        state_folder(|name| {
            let value = variables.iter().find(|(of, _)| *of == name);
            value.map(|(_, value)| OsString::from(value))
        })
    };
    let typed = [("HOME", "/var/lib/casemirror")];
    let service = [("HOME", "/var/lib/casemirror"), ("STATE_DIRECTORY", "/var/lib/casemirror")];
    assert_eq!(folder(&typed).unwrap(), Path::new("/var/lib/casemirror/.local/state"));
    assert_eq!(folder(&service), folder(&typed));
    assert_eq!(folder(&service[1..]).unwrap(), Path::new("/var/lib/casemirror"));
    assert_eq!(folder(&[("XDG_STATE_HOME", "/x"), service[0]]).unwrap(), Path::new("/x"));
    assert_eq!(folder(&[("HOME", "")]), None);
}
