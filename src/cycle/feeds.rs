//! The change feeds within a cycle: polled at its beginning, and read again behind the polls with the
//! nightly reconciliation (contract section 4).

use std::time::Duration;

use super::Cycle;
use crate::error::{Error, Kind, Result};
use crate::mirror::State;
use crate::source::FeedName;

/// So much of the feeds is read again when the cases are listed.
pub const REREAD: Duration = Duration::from_secs(48 * 3600);

impl Cycle {
    /// Reads the last two days of the feeds again: the source's commit order is not its clock's, and
    /// what appeared behind the polls is seen now. How late it came is kept, because `feed.overlap`
    /// should be longer than that.
    pub(super) async fn look_for_late_rows(&mut self) -> Result<()> {
        self.progress.step("reading the change feeds once more");
        let mut feeds = vec![FeedName::Cases];
        if self.polls.follows_contacts()? {
            feeds.push(FeedName::Contacts);
        }
        for name in feeds {
            let reread = match self.polls.reread(name, REREAD).await {
                Ok(reread) => reread,
                Err(error) if name == FeedName::Contacts && !ends_the_run(&error) => {
                    self.problem(error.chain());
                    continue;
                }
                Err(error) => return Err(error),
            };
            if reread.late > 0 {
                tracing::warn!(
                    feed = name.as_str(),
                    rows = reread.late,
                    latest = ?reread.latest,
                    "rows appeared in the feed behind its polls; feed.overlap should be longer"
                );
            }
            let told = format!("{} rows, at most {} s late", reread.late, reread.latest.as_secs());
            let key = format!("late_rows_{}", name.as_str());
            self.writer.run(move |conn| State::new(conn).set_meta(&key, &told)).await?;
        }
        Ok(())
    }

    pub(super) async fn poll_feeds(&mut self) -> Result<()> {
        self.progress.step("asking the change feeds");
        self.report.cases_moved += self.polls.poll(FeedName::Cases).await?.moved;
        match self.polls.poll_contacts().await {
            Ok(polled) => self.report.contacts_moved += polled.map_or(0, |polled| polled.moved),
            Err(error) if ends_the_run(&error) => return Err(error),
            // Cases are followed on; contacts catch up when their feed answers.
            Err(error) => self.problem(error.chain()),
        }
        Ok(())
    }
}

/// Whether nothing else can be read after this either.
fn ends_the_run(error: &Error) -> bool {
    matches!(
        error.kind(),
        Kind::Credentials
            | Kind::Tls
            | Kind::Unreachable
            | Kind::Store
            | Kind::DiskFull
            | Kind::Cancelled
            | Kind::Internal
    )
}
