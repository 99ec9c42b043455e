//! Progress of long work: a bar on a terminal, a log line now and then elsewhere.
//!
//! Whoever makes calls, commits rows or works something off tells it here. It is shown while a [`Step`] is
//! under way, so that a daemon that only asks its feeds says nothing.

mod told;

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[cfg(test)]
pub(crate) use told::Counts;
pub(crate) use told::Now;
use told::Told;

/// Two lines: on the first what is done, on the second what came of it.
const TEMPLATE: &str = "{spinner} {wide_msg} {bar:24} {pos}/{len}\n  {prefix}";

/// What long work tells of itself. Clones share it.
#[derive(Debug, Clone)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    shown: Shown,
    state: Mutex<State>,
}

/// Where it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nowhere,
    InLog,
    OnTerminal,
}

#[derive(Debug)]
struct State {
    told: Told,
    /// Only while a step is under way.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Shows itself on stderr where that is a terminal, in the log elsewhere.
    pub(crate) fn new(quiet: bool) -> Progress {
        Progress::shown(match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Shown::Nowhere,
            (false, true) => Shown::OnTerminal,
            (false, false) => Shown::InLog,
        })
    }

    /// Shows itself in the log, wherever that goes: of a daemon, which is never done.
    pub(crate) fn logged(quiet: bool) -> Progress {
        let shown = if quiet { Shown::Nowhere } else { Shown::InLog };
        Progress::telling(shown, Told::of_daemon(Instant::now()))
    }

    /// Shows nothing.
    pub fn silent() -> Progress {
        Progress::shown(Shown::Nowhere)
    }

    fn shown(shown: Shown) -> Progress {
        Progress::telling(shown, Told::new(Instant::now()))
    }

    fn telling(shown: Shown, told: Told) -> Progress {
        let state = Mutex::new(State { told, bar: None });
        Progress { shared: Arc::new(Shared { shown, state }) }
    }

    /// A run begins: what earlier ones did and planned is over.
    pub(crate) fn begin(&self) -> Step {
        self.update(|told, _| told.begin());
        self.step("looking for what is due")
    }

    /// What is being done until the step is dropped. Of several the latest is shown.
    pub(crate) fn step(&self, what: &str) -> Step {
        let id = self.update(|told, now| told.step(what, now));
        Step { progress: self.clone(), id }
    }

    /// The same of what may be done while a run is at another step, such as publishing.
    pub(crate) fn step_beside(&self, what: &str) -> Step {
        let id = self.update(|told, now| told.step_beside(what, now));
        Step { progress: self.clone(), id }
    }

    /// Shows what another process does for this one, until that is dropped.
    pub(crate) fn shown_for_another(&self) -> Another {
        Another { progress: self.clone() }
    }

    /// So much is to be done, as far as is known now. What is not done when the share is dropped is no
    /// longer planned.
    pub(crate) fn share(&self, units: u64) -> Share {
        let run = self.update(|told, _| {
            told.counts.planned += units;
            told.run()
        });
        Share { progress: self.clone(), run, left: units }
    }

    /// So many more rows came.
    pub(crate) fn rows(&self, rows: u64) {
        self.update(|told, _| told.counts.rows += rows);
    }

    /// So many of the rows that came are in the store.
    pub(crate) fn committed(&self, rows: u64) {
        self.update(|told, _| told.counts.committed += rows);
    }

    /// One more call goes out.
    pub(crate) fn called(&self) {
        self.update(|told, _| told.counts.calls += 1);
    }

    /// What is being done, if anything is.
    pub(crate) fn now(&self) -> Option<Now> {
        self.update(|told, now| told.now(now))
    }

    #[cfg(test)]
    pub(crate) fn counts(&self) -> Counts {
        self.update(|told, _| told.counts)
    }

    fn update<T>(&self, change: impl FnOnce(&mut Told, Instant) -> T) -> T {
        let now = Instant::now();
        // What is in it is whole whatever ended a thread that held it.
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let came = change(&mut state.told, now);
        match self.shared.shown {
            Shown::Nowhere => {}
            Shown::InLog => {
                let line = state.told.line(now);
                // Whoever writes the log may wait for a reader of it.
                drop(state);
                if let Some(line) = line {
                    line.log();
                }
            }
            Shown::OnTerminal => state.show(now, terminal_bar),
        }
        came
    }
}

impl State {
    fn show(&mut self, now: Instant, new_bar: impl FnOnce() -> ProgressBar) {
        let Some(told) = self.told.now(now) else {
            if let Some(bar) = self.bar.take() {
                bar.finish_and_clear();
            }
            return;
        };
        let bar = self.bar.get_or_insert_with(new_bar);
        bar.set_length(told.counts.planned);
        bar.set_position(told.counts.done);
        bar.set_prefix(told.words());
        bar.set_message(told.what);
    }
}

fn terminal_bar() -> ProgressBar {
    let bar = bar_on(ProgressDrawTarget::stderr());
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn bar_on(target: ProgressDrawTarget) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), target);
    // The template is a constant of ours; without it the bar has its default looks.
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

/// Something that is being done.
#[derive(Debug)]
#[must_use = "it is over when it is dropped"]
pub(crate) struct Step {
    progress: Progress,
    id: u64,
}

impl Drop for Step {
    fn drop(&mut self) {
        self.progress.update(|told, _| told.end(self.id));
    }
}

/// What another process does for this one, which does nothing itself meanwhile.
#[derive(Debug)]
#[must_use = "it is over when it is dropped"]
pub(crate) struct Another {
    progress: Progress,
}

impl Another {
    /// It is doing this now, or nothing that is known.
    pub(crate) fn is(&mut self, doing: Option<Now>) {
        self.progress.update(|told, now| told.another_does(doing, now));
    }
}

impl Drop for Another {
    fn drop(&mut self) {
        self.is(None);
    }
}

/// A part of what is planned, of which less or more may be done in the end.
#[derive(Debug)]
#[must_use = "nothing of it is planned when it is dropped"]
pub(crate) struct Share {
    progress: Progress,
    /// What a run planned is over when another begins.
    run: u64,
    left: u64,
}

impl Share {
    /// So much more of it is done.
    pub(crate) fn done(&mut self, units: u64) {
        let units = units.min(self.left);
        self.left -= units;
        self.update(|told| told.counts.done += units);
    }

    /// So much of it is left to be done.
    pub(crate) fn expect(&mut self, units: u64) {
        let before = std::mem::replace(&mut self.left, units);
        self.update(|told| told.replan(before, units));
    }

    fn update(&self, change: impl FnOnce(&mut Told)) {
        self.progress.update(|told, _| {
            if told.run() == self.run {
                change(told);
            }
        });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.expect(0);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use indicatif::TermLike;

    use super::*;

    /// All that was ever written to a terminal, in order.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl Screen {
        fn write(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
    }

    impl TermLike for Screen {
        fn width(&self) -> u16 {
            80
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, text: &str) -> io::Result<()> {
            self.write(&format!("{text}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.write(text)
        }
        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_terminal_shows_step_units_rows_calls_and_time_left() {
        let (screen, begun) = (Screen::default(), Instant::now());
        let mut told = Told::new(begun);
        let id = told.step("listing cases", begun);
        told.counts.planned = 50;
        told.counts.done = 10;
        (told.counts.rows, told.counts.committed, told.counts.calls) = (12_300, 9_000, 431);
        let mut state = State { told, bar: None };
        let shown = screen.clone();
        let minute = begun + Duration::from_secs(60);
        state.show(minute, || bar_on(ProgressDrawTarget::term_like(Box::new(shown))));
        let text = screen.0.lock().unwrap().clone();
        for part in [
            "listing cases",
            "10/50",
            "12,300 rows, 9,000 committed, 431 calls, about 4 minutes left of this step",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        state.told.end(id);
        state.show(minute, || unreachable!("nothing is under way"));
        assert!(state.bar.is_none());
    }

    #[test]
    fn what_another_process_does_is_shown_as_what_this_one_does_until_it_is_over() {
        let progress = Progress::silent();
        let doing = Now { what: "listing cases".to_owned(), ..Now::default() };
        let mut another = progress.shown_for_another();
        another.is(Some(doing.clone()));
        assert_eq!(progress.now(), Some(doing.clone()));
        another.is(None);
        assert_eq!(progress.now(), None);
        another.is(Some(doing));
        drop(another);
        assert_eq!(progress.now(), None);
    }

    #[test]
    fn what_of_a_share_is_not_done_is_planned_no_longer() {
        let progress = Progress::silent();
        let _other = progress.share(1);
        let mut share = progress.share(10);
        share.done(3);
        share.expect(20);
        assert_eq!((progress.counts().done, progress.counts().planned), (3, 24));
        share.done(30);
        drop(share);
        assert_eq!((progress.counts().done, progress.counts().planned), (23, 24));
        drop(progress.share(5));
        assert_eq!(progress.counts().planned, 24);
    }

    #[test]
    fn a_share_of_an_earlier_run_says_nothing_of_the_next() {
        let progress = Progress::silent();
        let mut share = progress.share(10);
        let _run = progress.begin();
        let _other = progress.share(2);
        share.done(4);
        drop(share);
        assert_eq!((progress.counts().done, progress.counts().planned), (0, 2));
    }
}
