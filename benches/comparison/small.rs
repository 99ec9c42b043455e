//! What a small brokerage's mirror costs day by day.

use std::time::Duration;

use casemirror::sandbox::{Act, Facet, Options, Sandbox};

use crate::mirror::Mirror;
use crate::table::Table;

const CASES: usize = 200;
const CHANGES: usize = 10;

/// Measures the first run, ten changes, and what looks only.
pub(crate) fn compare() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    let sandbox = runtime.block_on(Sandbox::start(options(CASES))).expect("the sandbox starts");
    let (id, secret) = (sandbox.client_id(), sandbox.client_secret());
    let mirror = Mirror::new(sandbox.base_url(), (&id, &secret), "");
    let mut table = Table::new(&format!("a mirror of {CASES} cases, all tables"));
    table.row("first sync", &mirror.run(&["sync"]), 0);
    for case_id in sandbox.case_ids().into_iter().take(CHANGES) {
        change(&sandbox, case_id);
    }
    table.row(&format!("sync of {CHANGES} changed cases"), &mirror.run(&["sync"]), 0);
    table.row("sync, nothing changed", &mirror.run(&["sync"]), 0);
    table.row("status", &mirror.run(&["status"]), 0);
}

/// A still brokerage that is asked as often as anybody likes.
pub(crate) fn options(cases: usize) -> Options {
    Options {
        cases,
        gzip: false,
        feed_calls: 100_000,
        feed_per: Duration::from_secs(1),
        ..Options::default()
    }
}

/// Something happens in a case.
pub(crate) fn change(sandbox: &Sandbox, case_id: i64) {
    let act = Act::Change { case_id: Some(case_id), facet: Facet::Description, at: None };
    sandbox.act(&act).expect("the sandbox knows its cases");
}
