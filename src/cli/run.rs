//! `casemirror run`: the daemon.

use std::os::unix::process::CommandExt;
use std::process;
use std::time::Duration;

use jiff::Timestamp;

use super::args::Command;
use super::opening;
use crate::config::Config;
use crate::daemon;
use crate::error::{Error, Kind, Result};
use crate::failpoint;
use crate::mirror::Writing;
use crate::progress::Progress;
use crate::session::Session;

/// Tells the process that takes the place of this one when that was, in seconds since 1970.
const REOPENED: &str = "_CASEMIRROR_REOPENED";
/// What happens again so soon does not go away by opening the store once more.
const LEAST_BETWEEN: Duration = Duration::from_secs(3600);

pub(crate) async fn run(config: Config, quiet: bool) -> Result<u8> {
    let store = config.store.path.clone();
    let progress = Progress::logged(quiet);
    let open = || Session::open(config.clone(), Writing::Applying, progress.clone());
    let (session, interrupts) = match opening::open(&store, open).await {
        Ok(opened) => opened,
        // A daemon that is told to stop has ended well, whatever it was doing.
        Err(error) if error.kind() == Kind::Cancelled => {
            tracing::info!("{error}");
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    if let Some(left) = failpoint::memory_left() {
        session.store().limit_memory(&left)?;
    }
    match daemon::run::<Command>(session, interrupts, begins_anew).await {
        Err(error) if error.kind() == Kind::StoreDown && begins_anew() => Err(begin_anew(error)),
        ended => ended.map(|()| 0),
    }
}

/// Whether a process that has lost its store is begun anew now.
fn begins_anew() -> bool {
    let earlier = std::env::var(REOPENED).ok().and_then(|text| text.parse().ok());
    // It is not there any more where another version has taken its place.
    let is_there = std::env::current_exe().is_ok_and(|program| program.exists());
    is_there && may_begin_anew(earlier, Timestamp::now())
}

/// Begins this process anew, once in a while: in one that has lost DuckDB nobody knows which parts of it
/// still hold the file. Returns only where that is not done, with the error that is to end the process.
fn begin_anew(error: Error) -> Error {
    tracing::warn!(
        reason = error.chain(),
        "the store is opened once more, in a process begun anew"
    );
    let Ok(program) = std::env::current_exe() else { return error };
    let failed = process::Command::new(program)
        .args(std::env::args_os().skip(1))
        .env(REOPENED, Timestamp::now().as_second().to_string())
        .exec();
    tracing::warn!("this process cannot be begun anew: {failed}");
    error
}

fn may_begin_anew(earlier: Option<i64>, now: Timestamp) -> bool {
    let earlier = earlier.and_then(|seconds| Timestamp::from_second(seconds).ok());
    earlier.is_none_or(|earlier| now.duration_since(earlier).unsigned_abs() >= LEAST_BETWEEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_begun_anew_once_in_an_hour() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        assert!(may_begin_anew(None, now));
        assert!(!may_begin_anew(Some(1_800_000_000 - 3599), now));
        assert!(may_begin_anew(Some(1_800_000_000 - 3600), now));
        assert!(may_begin_anew(Some(1_900_000_000), now), "a clock that was set");
        assert!(may_begin_anew(Some(i64::MAX), now));
    }
}
