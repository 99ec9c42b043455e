//! The first run of a mirror, made once for all tests that begin with the same one.
//!
//! A brokerage that nothing happened to is what its options and the beginning of its life make of it:
//! two such sandboxes answer alike, and the mirror of the one is the mirror of the other. So what the
//! first run left is kept and unpacked for the next test that asks for it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use casemirror::sandbox::{Act, Control, Options, Outcome, Rule, Sandbox};
use duckdb::Connection;
use jiff::Timestamp;

use super::World;

/// Sandboxes that start within the same so many seconds have one origin. Months begin and schedules
/// fall due between two of these spans, not within one.
const SPAN_SECONDS: i64 = 300;

/// What first runs have left, by all that they depend on.
static KEPT: Mutex<BTreeMap<String, Arc<OnceLock<Kept>>>> = Mutex::new(BTreeMap::new());

/// The origin of the sandboxes that start now.
pub(super) fn origin() -> Timestamp {
    static LAST: Mutex<Option<Timestamp>> = Mutex::new(None);
    let span = |at: Timestamp| at.as_second().div_euclid(SPAN_SECONDS);
    let now = Timestamp::now();
    let mut last = LAST.lock().unwrap();
    match *last {
        Some(origin) if span(origin) == span(now) => origin,
        _ => *last.insert(now),
    }
}

/// A sandbox that knows whether a test has done something to it.
pub(crate) struct Watched {
    sandbox: Sandbox,
    /// As it was started.
    options: String,
    touched: Cell<bool>,
}

impl Watched {
    pub(super) async fn start(options: Options) -> Watched {
        let origin = options.origin.is_none().then(origin);
        let text = origin.map(|origin| format!("{origin:.7}"));
        let options = Options { origin: text.or(options.origin), ..options };
        let shown = format!("{options:?}");
        let sandbox = Sandbox::start(options).await.unwrap();
        if let Some(origin) = origin {
            let passed = Timestamp::now().duration_since(origin).as_millis();
            sandbox.control(Control::Advance { ms: u64::try_from(passed).unwrap() });
        }
        Watched { sandbox, options: shown, touched: Cell::new(false) }
    }

    /// As [`Sandbox::act`].
    pub(crate) fn act(&self, act: &Act) -> Result<Outcome, String> {
        self.touched.set(true);
        self.sandbox.act(act)
    }

    /// As [`Sandbox::control`].
    pub(crate) fn control(&self, control: Control) {
        self.touched.set(true);
        self.sandbox.control(control);
    }

    /// As [`Sandbox::fault`].
    pub(crate) fn fault(&self, rule: Rule) -> u64 {
        self.touched.set(true);
        self.sandbox.fault(rule)
    }

    fn is_untouched(&self) -> bool {
        !self.touched.get() && self.sandbox.stats().calls == 0
    }
}

impl Deref for Watched {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.sandbox
    }
}

impl World {
    /// The first run of a mirror, done and complete, for tests about what comes after it: as
    /// [`World::sync`], or a copy of what that left in a world with the same options and settings. The
    /// sandbox has counted no calls either way.
    ///
    /// For a world that nothing was done to: the brokerage is as it began, and no file lies beside the
    /// configuration.
    pub(crate) fn bootstrap(&self) {
        assert!(
            self.sandbox.is_untouched(),
            "another world has not seen what was done to this one"
        );
        let files = std::fs::read_dir(self.folder.path()).unwrap().count();
        assert_eq!(files, 1, "the configuration is all that another world has");
        let slot = KEPT.lock().unwrap().entry(self.all_it_depends_on()).or_default().clone();
        let mut is_first = false;
        let kept = slot.get_or_init(|| {
            is_first = true;
            self.sync();
            Kept::of(self)
        });
        if !is_first {
            kept.unpack(self);
        }
        self.sandbox.reset_stats();
    }

    fn all_it_depends_on(&self) -> String {
        let configuration = std::fs::read_to_string(self.path("casemirror.toml")).unwrap();
        let configuration = configuration.replace(self.sandbox.base_url(), "");
        let mut environment = self.environment();
        // Of this world alone, and missing at its beginning: what it should hold, the store remembers.
        environment.retain(|(name, _)| *name != "CASEMIRROR_FEED__LEDGER");
        format!("{}\n{configuration}\n{environment:?}", self.sandbox.options)
    }
}

/// The folder `data` after a first run.
struct Kept {
    base_url: String,
    entries: Vec<Entry>,
    /// What is in the files, one after the other. It has no name, and is gone with the process.
    contents: File,
}

/// A path within the folder, and what is there.
struct Entry {
    path: PathBuf,
    is: Is,
}

enum Is {
    Folder,
    Link(PathBuf),
    File { at: u64, bytes: usize, permissions: Permissions },
}

impl Kept {
    fn of(world: &World) -> Kept {
        let mut kept = Kept {
            base_url: world.sandbox.base_url().to_owned(),
            entries: Vec::new(),
            contents: tempfile::tempfile().unwrap(),
        };
        let mut end = 0;
        kept.add(&world.path("data"), Path::new(""), &mut end);
        kept
    }

    /// Adds a folder and all that is in it.
    fn add(&mut self, folder: &Path, path: &Path, end: &mut u64) {
        self.entries.push(Entry { path: path.to_owned(), is: Is::Folder });
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (from, path) = (entry.path(), path.join(entry.file_name()));
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                self.add(&from, &path, end);
                continue;
            }
            let is = if kind.is_symlink() {
                Is::Link(std::fs::read_link(from).unwrap())
            } else {
                let permissions = entry.metadata().unwrap().permissions();
                let contents = std::fs::read(from).unwrap();
                self.contents.write_all(&contents).unwrap();
                let at = *end;
                *end += u64::try_from(contents.len()).unwrap();
                Is::File { at, bytes: contents.len(), permissions }
            };
            self.entries.push(Entry { path, is });
        }
    }

    /// Puts it into another world's folder, as a mirror of that world's sandbox.
    fn unpack(&self, world: &World) {
        for entry in &self.entries {
            let to = world.path("data").join(&entry.path);
            match &entry.is {
                Is::Folder => std::fs::create_dir(to).unwrap(),
                Is::Link(target) => std::os::unix::fs::symlink(target, to).unwrap(),
                Is::File { at, bytes, permissions } => {
                    let mut contents = vec![0; *bytes];
                    self.contents.read_exact_at(&mut contents, *at).unwrap();
                    std::fs::write(&to, contents).unwrap();
                    std::fs::set_permissions(&to, permissions.clone()).unwrap();
                }
            }
        }
        // The store knows where it was filled from, and would ask whose data is there.
        let store = Connection::open(world.path("data/store.duckdb")).unwrap();
        let moved = store.execute(
            "UPDATE sync.meta SET value = replace(value, ?, ?) \
             WHERE key = 'origin' AND starts_with(value, ?)",
            [&*self.base_url, world.sandbox.base_url(), &*self.base_url],
        );
        assert_eq!(moved.unwrap(), 1);
    }
}
