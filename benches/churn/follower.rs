//! The mirror: cycles and publishing of the program's own, on one open store.

use std::path::Path;
use std::sync::Arc;

use casemirror::catalog::Catalog;
use casemirror::config::Config;
use casemirror::cycle::{Cycle, MonthsUnderWay, Notifier, Options, Parts, Polls, Run, Signals};
use casemirror::decode::{Context, Privacy};
use casemirror::mirror::{Loader, RunLog, Settings, Store, Writer};
use casemirror::progress::Progress;
use casemirror::publish::{self, Frozen, SnapshotInfo, Stop, Targets};
use casemirror::source::{Client, StoredLedger};
use duckdb::Connection;
use jiff::Timestamp;
use tokio::runtime::{Handle, Runtime};

use crate::brokerage::Brokerage;
use crate::layout::{Fresh, Layout};

pub(crate) struct Follower {
    config: Arc<Config>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    conn: Connection,
    loader: Loader,
    polls: Polls,
    run_id: i64,
    runtime: Handle,
}

impl Follower {
    /// A store with everything that the source has.
    pub(crate) fn start(
        brokerage: &Brokerage,
        folder: &Path,
        history: bool,
        runtime: &Runtime,
    ) -> Follower {
        let _in_runtime = runtime.enter();
        let catalog = Arc::new(Catalog::load(None).expect("the built-in resource files are valid"));
        let config = Arc::new(config(brokerage, folder, history));
        let store = Arc::new(Store::open(&config, &catalog).expect("a store can be made"));
        let conn = store.connection().expect("another connection");
        let run_id = RunLog::new(&conn).start_run("bench").expect("the store is open");
        let writer = Writer::start(&store).expect("a writer");
        let ledger = StoredLedger::open(&config, store.connection().expect("another"));
        let ledger = Arc::new(ledger.expect("a ledger"));
        let client = Client::new(&config.source, &config.feed, &config.limits, ledger);
        // A year of removals in an hour is more than the guard takes.
        let settings = Settings::new(&config, &catalog, true);
        let loader = writer.loader(settings, run_id).expect("a loader");
        let polls = Polls {
            config: Arc::clone(&config),
            store: Arc::clone(&store),
            writer,
            client: client.expect("a client"),
            turns: Arc::default(),
            notifier: Notifier::default(),
        };
        let runtime = runtime.handle().clone();
        let follower = Follower { config, catalog, store, conn, loader, polls, run_id, runtime };
        follower.run(Options::default());
        follower.publish();
        follower
    }

    /// Follows what has changed and publishes it.
    pub(crate) fn follow(&self) {
        self.cycle();
        self.publish();
    }

    /// Follows what has changed.
    pub(crate) fn cycle(&self) {
        // With tables named it runs no schedule, whatever the real clock says.
        let only = self.catalog.names().into_iter().map(str::to_owned).collect();
        self.run(Options { only, allow_removals: true, ..Options::default() });
    }

    fn run(&self, options: Options) {
        let parts = Parts {
            config: Arc::clone(&self.config),
            catalog: Arc::clone(&self.catalog),
            store: Arc::clone(&self.store),
            writer: self.loader.clone(),
            polls: self.polls.clone(),
            context: Context {
                zone: self.config.source.time_zone.clone(),
                privacy: Privacy::new(&self.config.privacy, [7; 32]),
                disabled: self.config.resources.disable.as_slice().into(),
                generation: 1,
            },
            progress: Progress::silent(),
            run_id: self.run_id,
            signals: Signals::none(),
            months: MonthsUnderWay::default(),
        };
        let run = Run::new(parts, options);
        let report = self.runtime.block_on(Cycle::new(&run).run()).expect("the cycle ends well");
        assert!(report.problems.is_empty(), "{}", report.problems.join("\n"));
    }

    /// As the daemon does: the log is worked into the store's file, and that is copied.
    fn publish(&self) {
        let info = SnapshotInfo {
            taken_at: Timestamp::now(),
            watermark: None,
            complete: false,
            store_id: "bench".to_owned(),
            state: String::new(),
            erasure: None,
            last_id: None,
            uploaded: None,
        };
        let targets =
            Targets { database: Some(&self.config.publish.database), parquet: None, views: None };
        let file = (self.store.file().expect("the store is a file"), self.store.bounds());
        let reading = self.store.connection().expect("another connection");
        let begun =
            publish::begin(&targets, info, None, &Stop::default()).expect("there are folders");
        // Nothing is committed between cycles.
        let frozen = Frozen::with_file(&self.conn, reading, file, begun).expect("a frozen state");
        publish::publish(frozen, &targets, &Stop::default(), &Progress::silent())
            .expect("it is published");
    }

    pub(crate) fn published_bytes(&self) -> u64 {
        self.config.publish.database.metadata().expect("it is published").len()
    }

    pub(crate) fn layout(&self) -> Layout {
        Layout::of(&self.conn, &self.config.store.path)
    }

    /// A new store with the same rows.
    pub(crate) fn fresh_copy(&self) -> Fresh {
        Fresh::of(&self.conn, &self.config.store.path.with_extension("new"))
    }
}

fn config(brokerage: &Brokerage, folder: &Path, history: bool) -> Config {
    // A simulated day takes seconds, so that feeds overlap by one.
    let text = format!(
        "[source]\nbase_url = \"{}\"\nclient_id = \"{}\"\nclient_secret = \"{}\"\n\
         search_delay = \"0s\"\n[feed]\nledger = \"feed-calls\"\ncalls = 10000\n\
         per = \"1s\"\noverlap = \"1s\"\n\
         [limits]\nrequests_per_second = 10000\n[publish]\nparquet = \"\"\n\
         [history]\ntables = {}\n",
        brokerage.base_url,
        brokerage.client_id,
        brokerage.client_secret,
        if history { "\"all\"" } else { "[]" },
    );
    let path = folder.join("casemirror.toml");
    std::fs::write(&path, text).expect("the configuration can be written");
    Config::load(&path, &[], |_| None).expect("it is valid")
}
