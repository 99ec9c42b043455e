//! Progress of long work: a bar on a terminal, a log line now and then elsewhere.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Between two log lines, where there is no terminal.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// What long work tells of itself. Clones share it.
#[derive(Clone)]
pub struct Progress {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    bar: Option<ProgressBar>,
    silent: bool,
    done: u64,
    planned: u64,
    rows: u64,
    calls: u64,
    step: String,
    logged: Instant,
}

impl Progress {
    /// Shows itself on stderr where that is a terminal, in the log elsewhere.
    pub(crate) fn new(quiet: bool) -> Progress {
        Progress::with(std::io::stderr().is_terminal() && !quiet, quiet)
    }

    /// Shows itself in the log, wherever that goes: of a daemon, which is never done.
    pub(crate) fn logged(quiet: bool) -> Progress {
        Progress::with(false, quiet)
    }

    fn with(terminal: bool, quiet: bool) -> Progress {
        let bar = terminal.then(|| {
            let bar = ProgressBar::new(0);
            let template = "{spinner} {wide_msg} {bar:24} {pos}/{len} {eta}";
            // The template is a constant of ours; without it the bar has its default looks.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress {
            shared: Arc::new(Mutex::new(Shared {
                bar,
                silent: quiet,
                done: 0,
                planned: 0,
                rows: 0,
                calls: 0,
                step: String::new(),
                logged: Instant::now(),
            })),
        }
    }

    /// Shows nothing.
    pub fn silent() -> Progress {
        Progress::new(true)
    }

    /// A cycle begins: what earlier ones did and planned is over.
    pub(crate) fn begin(&self) {
        self.update(|shared| {
            (shared.done, shared.planned, shared.rows, shared.calls) = (0, 0, 0, 0);
        });
    }

    /// What is done, what was planned, and the rows that came.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        (shared.done, shared.planned, shared.rows)
    }

    /// What is being done now.
    pub(crate) fn step(&self, what: &str) {
        self.update(|shared| what.clone_into(&mut shared.step));
    }

    /// So much more is to be done.
    pub(crate) fn more(&self, units: u64) {
        self.update(|shared| shared.planned += units);
    }

    /// So much more is done.
    pub(crate) fn done(&self, units: u64) {
        self.update(|shared| shared.done += units);
    }

    /// So many more rows came.
    pub(crate) fn rows(&self, rows: u64) {
        self.update(|shared| shared.rows += rows);
    }

    /// So many calls were made in all.
    pub(crate) fn calls(&self, calls: u64) {
        self.update(|shared| shared.calls = calls);
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.update(|shared| {
            if let Some(bar) = shared.bar.take() {
                bar.finish_and_clear();
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut Shared)) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut shared);
        if let Some(bar) = &shared.bar {
            bar.set_length(shared.planned);
            bar.set_position(shared.done);
            bar.set_message(format!(
                "{} ({} rows, {} calls)",
                shared.step, shared.rows, shared.calls
            ));
        } else if !shared.silent && shared.logged.elapsed() > LOG_EVERY {
            shared.logged = Instant::now();
            tracing::info!(
                done = shared.done,
                planned = shared.planned,
                rows = shared.rows,
                calls = shared.calls,
                "{}",
                shared.step
            );
        }
    }
}
