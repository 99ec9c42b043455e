//! What is written is read, and nothing else is taken for it.

use std::cell::RefCell;
use std::path::PathBuf;

use super::*;

const SECRET: &[u8] = b"hash_key = \"secret\"\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("x.backup")
    }

    /// A backup of a store of so many bytes; returns it and the store.
    fn backup(&self, bytes: usize) -> (Vec<u8>, Vec<u8>) {
        let store: Vec<u8> = (0..bytes).map(|n| (n * n % 253) as u8).collect();
        let beside = Beside { secrets: Some(SECRET.to_vec()), ledger: Some(b"calls\n".to_vec()) };
        let file = File::create(self.path()).unwrap();
        let archive = Archive::begin(file, &about(), &beside).unwrap();
        archive.end(store.as_slice(), bytes as u64).unwrap();
        (std::fs::read(self.path()).unwrap(), store)
    }

    fn read(&self, backup: &[u8]) -> Result<(About, Beside, Vec<u8>)> {
        std::fs::write(self.path(), backup).unwrap();
        let store = self.0.path().join("store");
        let begun = RefCell::new(false);
        let (about, beside) =
            super::read(&self.path(), File::open(self.path()).unwrap(), |_, _| {
                begun.replace(true);
                Ok((File::create(&store).unwrap(), store.clone()))
            })?;
        assert!(begun.into_inner());
        Ok((about, beside, std::fs::read(store).unwrap()))
    }
}

fn about() -> About {
    About {
        program_version: "1.2.3".to_owned(),
        taken_at: "2026-11-24T21:00:00.5Z".parse().unwrap(),
        store_id: "a".repeat(32),
        store_format: 7,
        rows: 12,
        earlier_versions: 3,
        closed_months: 2,
    }
}

fn replaced(backup: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = memchr::memmem::find(backup, from.as_bytes()).unwrap();
    [&backup[..at], to.as_bytes(), &backup[at + from.len()..]].concat()
}

#[test]
fn a_full_disk_is_told_with_the_file_that_was_to_be_written() {
    let place = Place::new();
    place.backup(3);
    let file = File::open(place.path()).unwrap();
    let refused = super::read(&place.path(), file, |_, _| {
        let full = PathBuf::from("/dev/full");
        Ok((File::options().write(true).open(&full).unwrap(), full))
    });
    let Err(refused) = refused else { panic!("nothing can be written there") };
    assert_eq!(refused.kind(), Kind::DiskFull);
    assert!(refused.chain().contains("cannot write /dev/full"), "{}", refused.chain());
}

#[test]
fn what_was_written_is_read_byte_by_byte() {
    let place = Place::new();
    for bytes in [0, 1, 512, 3 * AT_ONCE + 5] {
        let (backup, store) = place.backup(bytes);
        let (said, beside, read) = place.read(&backup).unwrap();
        assert_eq!(said, about());
        assert_eq!(beside.secrets.as_deref(), Some(SECRET));
        assert_eq!(beside.ledger.as_deref(), Some(&b"calls\n"[..]));
        assert!(read == store, "{bytes} bytes");
    }
    let file = File::create(place.path()).unwrap();
    let archive = Archive::begin(file, &about(), &Beside::default()).unwrap();
    archive.end(&b"store"[..], 5).unwrap();
    let (_, beside, read) = place.read(&std::fs::read(place.path()).unwrap()).unwrap();
    assert!(beside.secrets.is_none() && beside.ledger.is_none());
    assert_eq!(read, b"store");
}

#[test]
fn a_store_that_is_shorter_than_it_was_makes_no_backup() {
    let file = tempfile::tempfile().unwrap();
    let archive = Archive::begin(file, &about(), &Beside::default()).unwrap();
    let error = archive.end(&b"store"[..], 6).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn one_that_is_cut_off_anywhere_is_refused() {
    let place = Place::new();
    let (backup, _) = place.backup(3_000);
    // The archive ends with two empty blocks, and is filled up behind them.
    let sums = memchr::memmem::rfind(&backup, SUMS.as_bytes()).unwrap();
    let mut looked = 0;
    for length in (0..sums + 512 + 100).step_by(37) {
        let error = place.read(&backup[..length]).err();
        let kind = error.unwrap_or_else(|| panic!("{length} bytes are believed")).kind();
        assert!([Kind::Usage, Kind::Io].contains(&kind), "{length}: {kind:?}");
        looked += 1;
    }
    assert!(looked > 50, "{looked}");
}

#[test]
fn one_of_which_any_byte_was_changed_is_refused_or_says_the_same() {
    let place = Place::new();
    let (backup, store) = place.backup(3_000);
    let mut refused = 0;
    for at in (0..backup.len()).step_by(29) {
        let mut changed = backup.clone();
        changed[at] ^= 1;
        match place.read(&changed) {
            Err(error) => {
                assert!([Kind::Usage, Kind::Io].contains(&error.kind()), "{at}: {error}");
                refused += 1;
            }
            // What fills up blocks says nothing.
            Ok((said, beside, read)) => {
                assert_eq!((said, read), (about(), store.clone()), "{at}");
                assert_eq!(beside.secrets.as_deref(), Some(SECRET), "{at}");
                assert_eq!(changed[at], 1, "{at}");
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn other_files_are_no_backups() {
    let place = Place::new();
    let mut of_others = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    of_others.append_data(&mut header, "casemirror-backup.json", &b"{}"[..]).unwrap();
    let of_others = of_others.into_inner().unwrap();
    for other in [&b""[..], b"garbage", &[0; 2_000], &[b'x'; 5_000], &of_others] {
        let error = place.read(other).err().unwrap();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
        assert!(error.to_string().contains("is no backup that casemirror has made"), "{error}");
    }
}

#[test]
fn one_of_a_later_layout_says_by_which_version_it_was_made() {
    let place = Place::new();
    let (backup, _) = place.backup(10);
    let later = replaced(&backup, "\"casemirror_backup\": 1,", "\"casemirror_backup\": 2,");
    let error = place.read(&later).err().unwrap();
    assert_eq!(error.kind(), Kind::StoreNewer);
    assert!(error.to_string().contains("casemirror 1.2.3"), "{error}");
}
