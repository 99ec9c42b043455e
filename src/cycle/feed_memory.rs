//! What the feeds say goes into the store.

use duckdb::Connection;
use jiff::Timestamp;

use crate::error::Result;
use crate::feed::{Committed, Memory, Recalled, SeenPage};
use crate::mirror::{State, Store, Writer};
use crate::scope::{FeedName, FeedState, Late, Mark, Reader};

/// The store as the feeds' memory.
pub(super) struct FeedMemory<'a> {
    pub(crate) store: &'a Store,
    pub(crate) writer: &'a Writer,
    /// The run that rejects are noted for.
    pub(crate) run_id: i64,
}

/// Where `sync.meta` keeps what is usual between the service's clock and ours.
fn usual_key(name: FeedName) -> String {
    format!("feed_clock_{}", name.as_str())
}

impl Memory for FeedMemory<'_> {
    fn recall(&self, name: FeedName) -> Result<Recalled> {
        let conn = self.store.connection()?;
        let state = State::new(&conn);
        Ok(Recalled {
            state: state.feed(name.as_str())?,
            sequence: state.sequence()?,
            usual: state.meta(&usual_key(name))?,
        })
    }

    fn late(&self, name: FeedName, sequence: i64, bound: i64) -> Result<Late> {
        State::new(&self.store.connection()?).cases().late(name, sequence, bound)
    }

    async fn gap(&self, name: FeedName) -> Result<()> {
        self.writer
            .run(move |conn| {
                let state = State::new(conn);
                match name {
                    FeedName::Cases => {
                        state.stale_marks().everything_is_stale(Mark::Gap)?;
                        // How far back the feed was read is noted anew when a poll is complete.
                        state.cases().forget_feed_reach()?;
                    }
                    FeedName::Contacts => state.stale_marks().contacts_are_stale(Mark::Gap)?,
                }
                // Once: if the feed cannot be read now, the next poll is no further gap.
                let kept = state.feed(name.as_str())?;
                let begun_anew = FeedState { bound: None, cursor: None, ..kept };
                state.set_feed(name.as_str(), &begun_anew, None)
            })
            .await
    }

    async fn commit(&self, page: SeenPage) -> Result<Committed> {
        let run_id = self.run_id;
        self.writer.run(move |conn| commit(conn, run_id, &page)).await
    }

    async fn complete(&self, name: FeedName, kept: FeedState, usual: Option<String>) -> Result<()> {
        self.writer
            .run(move |conn| {
                let state = State::new(conn);
                if let Some(usual) = usual {
                    state.set_meta(&usual_key(name), &usual)?;
                }
                state.set_feed(name.as_str(), &kept, Some(Timestamp::now()))
            })
            .await
    }

    async fn all_are_named(&self, name: FeedName, reader: Reader) -> Result<()> {
        self.writer
            .run(move |conn| {
                State::new(conn).unreadable().all_are_named(name, reader, Timestamp::now())
            })
            .await
    }
}

fn commit(conn: &Connection, run_id: i64, page: &SeenPage) -> Result<Committed> {
    let (state, now, name) = (State::new(conn), Timestamp::now(), page.name);
    // Each page has a number of its own: calls go on meanwhile, and what was sent before this page is
    // committed may be answered with what was there before it.
    let sequence = state.sequence()? + 1;
    let moved = match name {
        FeedName::Cases => state.cases().see_cases(&page.cases, sequence, now)?,
        FeedName::Contacts => state.cases().see_contacts(&page.contacts, sequence, now)?,
    };
    if moved > 0 {
        state.set_sequence(sequence)?;
    }
    let any = !page.cases.is_empty() || !page.contacts.is_empty();
    let new_unreadable = if any {
        state.unreadable().note_unreadable(name, run_id, sequence, &page.unreadable, now)?
    } else {
        0
    };
    if let Some(error) = &page.unnamed {
        state.unreadable().note_nameless(name, page.reader, run_id, error, now)?;
    }
    let low_watermark = page.place.low_watermark(new_unreadable);
    if page.reader == Reader::Poll {
        state.set_feed(name.as_str(), &page.place.state(low_watermark), None)?;
    }
    Ok(Committed { moved, low_watermark })
}
