//! Pages on their way into the memory, while the reading asks for the next ones.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};

use super::memory::{Committed, Memory, SeenPage};
use crate::error::Result;
use crate::ticks::Ticks;

/// Bytes of rows that wait for one commit. At the feeds' usual throttle one page waits; where calls come faster than
/// commits, a commit of many pages costs little more than that of one.
const MOST_WAITING: usize = 1 << 20; // 1 MiB

/// One commit at a time, in the order in which the pages came; those that come meanwhile are committed together. What
/// still waits when this is dropped is asked for again.
pub(super) struct Commits<'m, M> {
    memory: &'m M,
    under_way: Option<Commit<'m>>,
    /// What is committed next: of one page, or of several joined.
    waiting: Option<SeenPage>,
    /// The low watermark after the last commit: of all pages up to it.
    low_watermark: Option<Ticks>,
    /// What was committed and is not taken yet.
    done: Vec<Committed>,
}

type Commit<'m> = Pin<Box<dyn Future<Output = Result<Committed>> + Send + 'm>>;

impl<'m, M: Memory> Commits<'m, M> {
    pub(super) fn new(memory: &'m M) -> Commits<'m, M> {
        Commits { memory, under_way: None, waiting: None, low_watermark: None, done: Vec::new() }
    }

    /// What was committed since this was asked last.
    pub(super) fn take_done(&mut self) -> Vec<Committed> {
        std::mem::take(&mut self.done)
    }

    /// Orders that a page is committed. Returns at once, unless too much waits already, or what waits and the page cannot
    /// be committed as one.
    ///
    /// # Errors
    /// Those of [`Memory::commit`].
    pub(super) async fn add(&mut self, page: SeenPage) -> Result<()> {
        let mut page = page;
        while let Some(waiting) = self.waiting.take() {
            let (joined, apart) = joined(waiting, page);
            self.waiting = Some(joined);
            match apart {
                None => return Ok(()),
                Some(apart) => page = apart,
            }
            self.one().await?;
        }
        self.waiting = Some(page);
        self.begin();
        Ok(())
    }

    /// Waits for a call, and commits meanwhile.
    ///
    /// # Errors
    /// Those of [`Memory::commit`], once the call has ended: what was asked is answered for.
    pub(super) async fn beside<T>(&mut self, call: impl Future<Output = T>) -> Result<T> {
        let mut call = pin!(call);
        while let Some(commit) = &mut self.under_way {
            tokio::select! {
                biased;
                answer = &mut call => return Ok(answer),
                committed = commit => {
                    if let Err(error) = self.ended(committed) {
                        call.await;
                        return Err(error);
                    }
                }
            }
        }
        Ok(call.await)
    }

    /// Waits until all is committed.
    ///
    /// # Errors
    /// Those of [`Memory::commit`].
    pub(super) async fn finish(&mut self) -> Result<()> {
        while self.under_way.is_some() {
            self.one().await?;
        }
        Ok(())
    }

    /// Waits for the commit that is under way.
    async fn one(&mut self) -> Result<()> {
        match &mut self.under_way {
            Some(commit) => {
                let committed = commit.await;
                self.ended(committed)
            }
            None => Ok(()),
        }
    }

    fn ended(&mut self, committed: Result<Committed>) -> Result<()> {
        self.under_way = None;
        let committed = committed?;
        self.low_watermark = committed.low_watermark;
        self.done.push(committed);
        self.begin();
        Ok(())
    }

    /// Begins to commit what waits, where nothing is under way.
    fn begin(&mut self) {
        if self.under_way.is_some() {
            return;
        }
        if let Some(mut page) = self.waiting.take() {
            // A page knows of its own rows alone.
            let known = self.low_watermark.into_iter().chain(page.place.low_watermark).min();
            page.place.low_watermark = known;
            self.under_way = Some(Box::pin(self.memory.commit(page)));
        }
    }
}

/// Two pages in a row as one, where that says the same as one after the other: all their records can be read, and what
/// both have is the same in both, as the row is that the second was asked from. Else the second is returned apart.
fn joined(mut first: SeenPage, second: SeenPage) -> (SeenPage, Option<SeenPage>) {
    let is_clean = |page: &SeenPage| page.unreadable.is_empty() && page.unnamed.is_none();
    if is_clean(&first) && is_clean(&second) {
        let cases = new_rows(&first.cases, &second.cases, |(id, _)| *id);
        let contacts = new_rows(&first.contacts, &second.contacts, |contact| contact.contact_id);
        if let (Some(cases), Some(contacts)) = (cases, contacts) {
            first.cases.extend(cases);
            first.contacts.extend(contacts);
            first.place = second.place;
            return (first, None);
        }
    }
    (first, Some(second))
}

/// The rows of `second` that `first` does not have; `None` where both have one of another content, or are too many.
fn new_rows<R: PartialEq + Clone>(
    first: &[R],
    second: &[R],
    id: impl Fn(&R) -> i64,
) -> Option<Vec<R>> {
    if (first.len() + second.len()) * size_of::<R>() > MOST_WAITING {
        return None;
    }
    let there: HashMap<i64, &R> = first.iter().map(|row| (id(row), row)).collect();
    if there.len() < first.len() {
        return None;
    }
    let mut new = Vec::with_capacity(second.len());
    for row in second {
        match there.get(&id(row)) {
            None => new.push(row.clone()),
            Some(known) if **known == *row => {}
            Some(_) => return None,
        }
    }
    Some(new)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::Semaphore;

    use super::super::memory::{PagePlace, Recalled};
    use super::*;
    use crate::error::{Error, Kind};
    use crate::scope::{ContactSeen, FeedName, FeedState, Late, Reader, Unreadable};

    /// Keeps what it is given, each when the test lets it.
    struct Kept {
        pages: Mutex<Vec<SeenPage>>,
        may_go: Semaphore,
    }

    impl Memory for Kept {
        fn recall(&self, _: FeedName) -> Result<Recalled> {
            unreachable!("no reading begins")
        }

        fn late(&self, _: FeedName, _: i64, _: i64) -> Result<Late> {
            unreachable!("nothing is read again")
        }

        async fn gap(&self, _: FeedName) -> Result<()> {
            unreachable!("nothing is missed")
        }

        async fn commit(&self, page: SeenPage) -> Result<Committed> {
            let Ok(permit) = self.may_go.acquire().await else {
                return Err(Error::new(Kind::Store, "the store is gone"));
            };
            permit.forget();
            let moved = (page.cases.len() + page.contacts.len()) as u64;
            let low_watermark = page.place.low_watermark(page.unreadable.len() as u64);
            self.pages.lock().unwrap().push(page);
            Ok(Committed { moved, low_watermark })
        }

        async fn complete(&self, _: FeedName, _: FeedState, _: Option<String>) -> Result<()> {
            unreachable!("no poll is complete")
        }

        async fn all_are_named(&self, _: FeedName, _: Reader) -> Result<()> {
            unreachable!("no reading ends")
        }
    }

    fn at(seconds: i64) -> Ticks {
        Ticks::new(seconds * 10_000_000)
    }

    /// Of contacts and the seconds at which they were modified.
    fn page(rows: impl IntoIterator<Item = (i64, i64)>) -> SeenPage {
        let contacts: Vec<ContactSeen> = rows
            .into_iter()
            .map(|(id, seconds)| ContactSeen { contact_id: id, modified: Some(at(seconds).get()) })
            .collect();
        let cursor = Ticks::new(contacts.last().and_then(|row| row.modified).unwrap_or(0));
        SeenPage {
            name: FeedName::Contacts,
            reader: Reader::Poll,
            cases: Vec::new(),
            contacts,
            unreadable: Vec::new(),
            unnamed: None,
            place: PagePlace {
                state: FeedState::default(),
                lower: at(1),
                cursor,
                low_watermark: None,
                unreadable: None,
            },
        }
    }

    /// What is committed of pages that all come while the first one is: ids, cursors and low watermarks in seconds.
    async fn committed(pages: Vec<SeenPage>) -> Vec<(Vec<i64>, i64, Option<i64>)> {
        let kept = Kept { pages: Mutex::default(), may_go: Semaphore::new(0) };
        let seconds = |ticks: Ticks| ticks.get() / 10_000_000;
        let all = async {
            let mut commits = Commits::new(&kept);
            for page in pages {
                commits.add(page).await.unwrap();
            }
            commits.finish().await.unwrap();
            commits.take_done().len()
        };
        let let_go = async {
            // All that can be added without a commit is.
            tokio::task::yield_now().await;
            kept.may_go.add_permits(100);
        };
        let (done, ()) = tokio::join!(all, let_go);
        let kept = kept.pages.into_inner().unwrap();
        assert_eq!(done, kept.len(), "each is told once");
        kept.iter()
            .map(|page| {
                let ids = page.contacts.iter().map(|contact| contact.contact_id).collect();
                (ids, seconds(page.place.cursor), page.place.low_watermark.map(seconds))
            })
            .collect()
    }

    #[tokio::test]
    async fn what_comes_during_a_commit_is_committed_together() {
        let pages =
            vec![page([(1, 10), (2, 20)]), page([(2, 20), (3, 30)]), page([(3, 30), (4, 40)])];
        let all = committed(pages).await;
        assert_eq!(all, [(vec![1, 2], 20, None), (vec![2, 3, 4], 40, None)]);
    }

    #[tokio::test]
    async fn a_record_that_has_changed_between_two_pages_is_committed_twice() {
        let pages = vec![page([(1, 10)]), page([(2, 20), (3, 30)]), page([(2, 40)])];
        let all = committed(pages).await;
        assert_eq!(all, [(vec![1], 10, None), (vec![2, 3], 30, None), (vec![2], 40, None)]);
        // Of two rows of one page nobody knows which holds.
        let pages = vec![page([(1, 10)]), page([(2, 20), (2, 30)]), page([(2, 20)])];
        assert_eq!(committed(pages).await.len(), 3);
    }

    #[tokio::test]
    async fn so_much_waits_and_no_more() {
        let row = |id: usize| (i64::try_from(id).unwrap(), i64::try_from(id).unwrap());
        let most = MOST_WAITING / size_of::<ContactSeen>();
        let pages = vec![
            page([row(0)]),
            page((1..=most / 2).map(row)),
            page((most / 2 + 1..=most).map(row)),
            page([row(most + 1)]),
        ];
        let rows: Vec<usize> = committed(pages).await.iter().map(|(ids, ..)| ids.len()).collect();
        assert_eq!(rows, [1, most, 1]);
    }

    #[tokio::test]
    async fn what_is_to_be_asked_for_again_holds_back_the_pages_that_came_meanwhile() {
        let mut damaged = page([(1, 10), (2, 20)]);
        damaged.place.unreadable = Some(at(5));
        damaged.unreadable = vec![Unreadable {
            id: 2,
            column: "modified_date",
            value: None,
            error: "no date".to_owned(),
        }];
        let nameless = SeenPage { unnamed: Some("no id".to_owned()), ..page([(4, 40)]) };
        let pages = vec![damaged.clone(), page([(3, 30)]), nameless, damaged];
        let all = committed(pages).await;
        let watermarks: Vec<_> = all.iter().map(|(_, _, watermark)| *watermark).collect();
        assert_eq!(watermarks, [None, Some(5), Some(5), Some(5)], "none is joined");
    }

    #[tokio::test]
    async fn a_call_is_waited_for_where_a_commit_fails_beside_it() {
        let kept = Kept { pages: Mutex::default(), may_go: Semaphore::new(0) };
        let mut commits = Commits::new(&kept);
        commits.add(page([(1, 10)])).await.unwrap();
        assert_eq!(
            commits.beside(async { 7 }).await.unwrap(),
            7,
            "it does not wait for the commit"
        );
        let mut has_ended = false;
        let call = async {
            kept.may_go.close();
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            has_ended = true;
        };
        assert_eq!(commits.beside(call).await.unwrap_err().kind(), Kind::Store);
        assert!(has_ended);
    }
}
