//! What the feeds say goes into the store.

use duckdb::Connection;
use jiff::Timestamp;

use super::polls::Turns;
use crate::error::Result;
use crate::feed::{Committed, Memory, Recalled, SeenPage};
use crate::mirror::{State, Store, Writer};
use crate::scope::{FeedName, FeedState, Late, Mark, Reader};

/// The store as the feeds' memory.
pub(super) struct FeedMemory<'a> {
    pub(crate) store: &'a Store,
    pub(crate) writer: &'a Writer,
    pub(crate) turns: &'a Turns,
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
        let overlay = self.store.overlay();
        self.writer
            .run(move |conn| {
                if let Some(overlay) = overlay {
                    overlay.bring_all(conn)?;
                }
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
                let begun_anew = FeedState { bound: None, cursor: None, next_bound: None, ..kept };
                state.set_feed(name.as_str(), &begun_anew, None)
            })
            .await
    }

    async fn commit(&self, page: SeenPage) -> Result<Committed> {
        let (run_id, overlay) = (self.run_id, self.store.overlay());
        let feed = page.name;
        let committed = self
            .writer
            .run(move |conn| {
                if let Some(overlay) = overlay {
                    let cases: Vec<i64> = page.cases.iter().map(|(id, _)| *id).collect();
                    let contacts: Vec<i64> = page.contacts.iter().map(|c| c.contact_id).collect();
                    overlay.bring(conn, &cases, &contacts, !page.unreadable.is_empty())?;
                }
                commit(conn, run_id, &page)
            })
            .await?;
        self.turns.page(feed);
        Ok(committed)
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
    // Each commit has a number of its own: calls go on meanwhile, and what was sent before this page is
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::config::Config;
    use crate::mirror::Looked;
    use crate::scope::{ContactSeen, UNREADABLE_BELOW, Unreadable};
    use crate::sql::query;
    use crate::ticks::Ticks;

    fn config(folder: &std::path::Path) -> Config {
        let url = "http://127.0.0.1:1/".parse().unwrap();
        Config::for_demo(url, "id", String::from("secret").into(), folder)
    }

    fn page(name: FeedName, rows: &[(i64, i64)]) -> SeenPage {
        let unreadable = rows.iter().filter(|(_, date)| *date < UNREADABLE_BELOW);
        SeenPage {
            name,
            reader: Reader::Poll,
            cases: match name {
                FeedName::Cases => rows.iter().map(|(id, date)| (*id, [Some(*date); 11])).collect(),
                FeedName::Contacts => Vec::new(),
            },
            contacts: match name {
                FeedName::Cases => Vec::new(),
                FeedName::Contacts => rows
                    .iter()
                    .map(|(id, date)| ContactSeen { contact_id: *id, modified: Some(*date) })
                    .collect(),
            },
            unreadable: unreadable
                .map(|(id, _)| Unreadable {
                    id: *id,
                    column: "activity_changed_date",
                    value: None,
                    error: "no date".to_owned(),
                })
                .collect(),
            unnamed: None,
            place: crate::feed::PagePlace {
                state: FeedState::default(),
                lower: Ticks::new(1),
                cursor: Ticks::new(7),
                low_watermark: None,
                unreadable: None,
            },
        }
    }

    /// What polls may change and what is planned by, but for the times at which it was noted.
    fn noted(store: &Store) -> Vec<String> {
        let conn = store.connection().unwrap();
        let mut all = Vec::new();
        for rows in [
            "SELECT * EXCLUDE (moved_at, known_at) FROM sync.seen",
            "SELECT * EXCLUDE moved_at FROM sync.seen_contacts",
            "SELECT * EXCLUDE polled_at FROM sync.feeds",
            "SELECT table_name, id, status, version FROM sync.fetched",
            "SELECT * EXCLUDE (first_at, last_at, resolved_at), resolved_at IS NULL FROM sync.rejects",
            "SELECT * FROM sync.meta WHERE key NOT IN ('hash_key_fingerprint')",
        ] {
            let sql = format!("SELECT r::VARCHAR FROM ({rows}) r ORDER BY ALL");
            all.extend(query(&conn, &sql, |row| row.get::<_, String>(0)).unwrap());
        }
        all
    }

    async fn note(store: &Store, pages: &[SeenPage], gap: Option<FeedName>) {
        let writer = Writer::start(store).unwrap();
        let turns = Turns::default();
        let memory = FeedMemory { store, writer: &writer, turns: &turns, run_id: 1 };
        if let Some(name) = gap {
            memory.gap(name).await.unwrap();
        }
        for page in pages {
            memory.commit(page.clone()).await.unwrap();
        }
        let state = FeedState { bound: Some(5), ..FeedState::default() };
        memory.complete(FeedName::Cases, state, Some("usual".to_owned())).await.unwrap();
        memory.all_are_named(FeedName::Cases, Reader::Poll).await.unwrap();
        if let Some(overlay) = store.overlay() {
            writer.run(move |conn| overlay.settle(conn)).await.unwrap();
        }
        writer.close().await.unwrap();
    }

    /// A store with cases and contacts that were seen and read.
    async fn store(folder: &std::path::Path) {
        let catalog = Catalog::load(None).unwrap();
        let store = Store::open(&config(folder), &catalog).unwrap();
        let cases: Vec<_> = (1..=9).map(|id| (id, 100 + id)).collect();
        note(&store, &[page(FeedName::Cases, &cases), page(FeedName::Contacts, &cases)], None)
            .await;
        let read = "INSERT INTO sync.fetched_scopes BY NAME SELECT t AS table_name, case_id AS id, \
                      '' AS part, 'v' AS version, 'current' AS status, 0 AS mark \
                    FROM sync.seen, (VALUES ('notes'), ('cases')) tables(t); \
                    INSERT INTO sync.fetched_cases BY NAME \
                      SELECT 77 AS case_id, 0 AS coverage, 'current' AS status, 0 AS mark; \
                    UPDATE sync.seen SET dirty = false; UPDATE sync.seen_contacts SET dirty = false";
        store.connection().unwrap().execute_batch(read).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_noted_over_a_store_is_what_would_be_noted_in_it() {
        let catalog = Catalog::load(None).unwrap();
        let moved = page(FeedName::Cases, &[(2, 102), (3, 500), (40, 501)]);
        let again = page(FeedName::Cases, &[(3, 600), (5, UNREADABLE_BELOW - 5)]);
        let contacts = page(FeedName::Contacts, &[(4, 104), (6, 500), (41, 501)]);
        let all = [moved, contacts, again];
        for gap in [None, Some(FeedName::Cases), Some(FeedName::Contacts)] {
            let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let [over, within] = [0, 1].map(|n| config(folders[n].path()));
            store(folders[0].path()).await;
            std::fs::copy(&over.store.path, &within.store.path).unwrap();
            std::fs::copy(
                crate::durable::with_suffix(&over.store.path, ".secrets"),
                crate::durable::with_suffix(&within.store.path, ".secrets"),
            )
            .unwrap();
            let bytes = std::fs::read(&over.store.path).unwrap();
            let Looked { store: laid, differences, .. } = Store::over(&over, &catalog).unwrap();
            assert_eq!(differences, []);
            note(&laid, &all, gap).await;
            let within = Store::open(&within, &catalog).unwrap();
            assert_ne!(noted(&laid), noted(&within), "something is noted");
            note(&within, &all, gap).await;
            assert_eq!(noted(&laid), noted(&within), "after a gap: {gap:?}");
            drop(laid);
            assert!(std::fs::read(&over.store.path).unwrap() == bytes, "the file is as it was");
        }
    }
}
