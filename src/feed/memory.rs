//! What the feeds' readings need remembered. The cycle keeps it in the store.

use std::future::Future;

use crate::error::Result;
use crate::scope::{CaseDates, ContactSeen, FeedName, FeedState, Late, Reader, Unreadable};
use crate::ticks::Ticks;

/// What was kept of a feed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recalled {
    pub(crate) state: FeedState,
    /// The number of the last page that moved something.
    pub(crate) sequence: i64,
    /// What is usual between the service's clock and ours, as [`Memory::complete`] was given it.
    pub(crate) usual: Option<String>,
}

/// A page as it is committed: what it said, and how far the reading has come with it.
#[derive(Debug, Clone)]
pub(crate) struct SeenPage {
    pub(crate) name: FeedName,
    pub(crate) reader: Reader,
    /// The rows; of the contacts' feed there are no cases, and the other way round.
    pub(crate) cases: Vec<(i64, CaseDates)>,
    pub(crate) contacts: Vec<ContactSeen>,
    /// Dates that cannot be read.
    pub(crate) unreadable: Vec<Unreadable>,
    /// The first record that names no case or contact: what is wrong with it.
    pub(crate) unnamed: Option<String>,
    pub(crate) place: PagePlace,
}

/// How far a reading has come, in a transaction that may learn that it has come less far.
#[derive(Debug, Clone)]
pub(crate) struct PagePlace {
    /// How far the feed was read before the page.
    pub(crate) state: FeedState,
    /// Where the reading began.
    pub(crate) lower: Ticks,
    /// Where it goes on behind the page.
    pub(crate) cursor: Ticks,
    /// The earliest date from which a row has to be asked for again: of the page, and when it is committed of those before,
    pub(crate) low_watermark: Option<Ticks>,
    /// and that of the page's rows with a date that cannot be read.
    pub(crate) unreadable: Option<Ticks>,
}

impl PagePlace {
    /// The low watermark after the page, of which so many unreadable dates are new: each is asked for once
    /// more, in case it was the answer and not the row. After that it is what the source has.
    pub(crate) fn low_watermark(&self, new_unreadable: u64) -> Option<Ticks> {
        let again = self.unreadable.filter(|_| new_unreadable > 0);
        again.into_iter().chain(self.low_watermark).min()
    }

    /// How far a poll has come. One that is cut off goes on before a row that it has to ask for again.
    pub(crate) fn state(&self, low_watermark: Option<Ticks>) -> FeedState {
        let cursor =
            low_watermark.map_or(self.cursor, |low_watermark| self.cursor.min(low_watermark));
        let moves = cursor > self.lower;
        FeedState {
            cursor: if moves { Some(cursor.get()) } else { self.state.cursor },
            ..self.state.clone()
        }
    }
}

/// What committing a page came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Committed {
    /// Rows that were new or had moved.
    pub(crate) moved: u64,
    /// See [`PagePlace::low_watermark`].
    pub(crate) low_watermark: Option<Ticks>,
}

/// Where what the feeds say is kept. What a method that writes has returned from is durable.
pub(crate) trait Memory: Sync {
    /// What is kept of a feed.
    ///
    /// # Errors
    /// Those of the store.
    fn recall(&self, name: FeedName) -> Result<Recalled>;

    /// Rows that pages after number `sequence` moved though their dates lie before `bound`, in ticks.
    ///
    /// # Errors
    /// Those of the store.
    fn late(&self, name: FeedName, sequence: i64, bound: i64) -> Result<Late>;

    /// The feed cannot tell what happened since the last complete poll: all that hangs on it is stale.
    fn gap(&self, name: FeedName) -> impl Future<Output = Result<()>> + Send;

    /// Commits a page and how far the reading has come with it, in one transaction.
    fn commit(&self, page: SeenPage) -> impl Future<Output = Result<Committed>> + Send;

    /// A poll is complete: its bound and what is usual between the clocks, in one transaction.
    fn complete(
        &self,
        name: FeedName,
        state: FeedState,
        usual: Option<String>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// A reading met no record that names nobody.
    fn all_are_named(
        &self,
        name: FeedName,
        reader: Reader,
    ) -> impl Future<Output = Result<()>> + Send;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Ticks {
        Ticks::new(seconds * 10_000_000)
    }

    fn place(cursor: i64, low_watermark: Option<i64>, unreadable: Option<i64>) -> PagePlace {
        PagePlace {
            state: FeedState::default(),
            lower: at(100),
            cursor: at(cursor),
            low_watermark: low_watermark.map(at),
            unreadable: unreadable.map(at),
        }
    }

    #[test]
    fn a_poll_goes_on_before_what_it_has_to_ask_for_again() {
        let cursor = |place: &PagePlace, new| place.state(place.low_watermark(new)).cursor;
        assert_eq!(cursor(&place(500, None, None), 0), Some(at(500).get()));
        assert_eq!(cursor(&place(500, Some(300), None), 0), Some(at(300).get()));
        assert_eq!(cursor(&place(500, None, Some(400)), 1), Some(at(400).get()));
        assert_eq!(cursor(&place(500, None, Some(400)), 0), Some(at(500).get()), "known");
        assert_eq!(cursor(&place(500, Some(100), None), 0), None, "it begins where it began");
    }
}
