//! An object store in memory whose calls can be made to fail.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path as Key;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
    UploadPart,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing was done.
    Refused,
    /// It was done, and nobody heard of it.
    AnswerLost,
}

type Act = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    calls: u32,
    /// Which call fails; 0: none.
    fails: u32,
    fault: Option<Fault>,
    failed: bool,
    removals_are_refused: bool,
    written: Vec<String>,
    before_taking: Option<Act>,
    before_placing: Option<Act>,
    /// It writes what it is told to, whatever is there.
    knows_no_conditions: bool,
}

#[derive(Clone)]
pub(super) struct Faulty {
    inner: Arc<InMemory>,
    state: Arc<Mutex<State>>,
}

impl Faulty {
    pub(super) fn new() -> Faulty {
        Faulty { inner: Arc::default(), state: Arc::default() }
    }

    pub(super) fn inner(&self) -> &InMemory {
        &self.inner
    }

    /// The `nth` call from here on fails; 0: none does.
    pub(super) fn fail_at(&self, nth: u32, fault: Fault) {
        let mut state = self.state.lock().unwrap();
        (state.calls, state.fails, state.fault, state.failed) = (0, nth, Some(fault), false);
    }

    /// Since [`Faulty::fail_at`].
    pub(super) fn calls(&self) -> u32 {
        self.state.lock().unwrap().calls
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().unwrap().failed
    }

    pub(super) fn refuse_removals(&self) {
        self.state.lock().unwrap().removals_are_refused = true;
    }

    /// What was written, in order.
    pub(super) fn written(&self) -> Vec<String> {
        self.state.lock().unwrap().written.clone()
    }

    /// Happens when somebody is about to write an object that must be new.
    pub(super) fn before_taking(&self, act: Act) {
        self.state.lock().unwrap().before_taking = Some(act);
    }

    /// Happens when somebody is about to replace what readers begin with.
    pub(super) fn before_placing(&self, act: Act) {
        self.state.lock().unwrap().before_placing = Some(act);
    }

    pub(super) fn know_no_conditions(&self) {
        self.state.lock().unwrap().knows_no_conditions = true;
    }

    /// Counts a call, and says how it fails.
    fn fault(&self) -> Option<Fault> {
        let mut state = self.state.lock().unwrap();
        state.calls += 1;
        let fails = state.calls == state.fails;
        state.failed |= fails;
        state.fault.filter(|_| fails)
    }

    /// One call.
    async fn call<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.fault() {
            Some(Fault::Refused) => Err(broken()),
            Some(Fault::AnswerLost) => work.await.and(Err(broken())),
            None => work.await,
        }
    }
}

fn broken() -> Error {
    Error::Generic { store: "Faulty", source: "as a test wants it".into() }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Key,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let act = {
            let mut state = self.state.lock().unwrap();
            match &opts.mode {
                PutMode::Create => state.before_taking.take(),
                PutMode::Update(_) => state.before_placing.take(),
                PutMode::Overwrite => None,
            }
        };
        if let Some(act) = act {
            // It works on the same object store, and blocks: not one of the threads that it needs itself.
            tokio::task::spawn_blocking(act).await.unwrap();
        }
        if opts.mode != PutMode::Overwrite && self.state.lock().unwrap().knows_no_conditions {
            return Err(object_store::Error::NotImplemented {
                operation: "a condition".to_owned(),
                implementer: "test".to_owned(),
            });
        }
        let written = async {
            let written = self.inner.put_opts(location, payload, opts).await?;
            self.state.lock().unwrap().written.push(location.to_string());
            Ok(written)
        };
        self.call(written).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Key,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.call(self.inner.put_multipart_opts(location, opts)).await?;
        Ok(Box::new(Parts { inner, faulty: self.clone() }))
    }

    async fn get_opts(&self, location: &Key, options: GetOptions) -> Result<GetResult> {
        self.call(self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(&self, location: &Key, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.call(self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Key>>,
    ) -> BoxStream<'static, Result<Key>> {
        let refused = self.state.lock().unwrap().removals_are_refused;
        match self.fault() {
            Some(Fault::Refused) => stream::iter([Err(broken())]).boxed(),
            _ if refused => stream::iter([Err(broken())]).boxed(),
            Some(Fault::AnswerLost) => {
                self.inner.delete_stream(locations).map(|_| Err(broken())).boxed()
            }
            None => self.inner.delete_stream(locations),
        }
    }

    fn list(&self, prefix: Option<&Key>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.fault() {
            Some(_) => stream::iter([Err(broken())]).boxed(),
            None => self.inner.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Key>) -> Result<ListResult> {
        self.call(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Key, to: &Key, options: CopyOptions) -> Result<()> {
        self.call(self.inner.copy_opts(from, to, options)).await
    }
}

#[derive(Debug)]
struct Parts {
    inner: Box<dyn MultipartUpload>,
    faulty: Faulty,
}

#[async_trait]
impl MultipartUpload for Parts {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let part = self.inner.put_part(data);
        let faulty = self.faulty.clone();
        Box::pin(async move { faulty.call(part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let faulty = self.faulty.clone();
        faulty.call(self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
