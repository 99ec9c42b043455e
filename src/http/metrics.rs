//! Metrics for Prometheus. Counters are counted where things happen, from the start of the process on; what
//! is so now is asked of the store at each scrape. docs/operations.md says of each how to read it.

use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::facts::Facts;
use crate::error::{Error, Kind, Result};
use crate::scope::FeedName;
use crate::status::Table;

/// Between two times at which what was counted is taken in.
const UPKEEP: Duration = Duration::from_secs(60);
/// Seconds of a call; the slowest endpoints take minutes.
const CALL_SECONDS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];

/// All that is counted in this process.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// From here on what happens is counted.
    ///
    /// # Errors
    /// `Internal`.
    pub(crate) fn install() -> Result<Metrics> {
        static INSTALLED: OnceLock<PrometheusHandle> = OnceLock::new();
        if let Some(handle) = INSTALLED.get() {
            return Ok(Metrics { handle: handle.clone() });
        }
        let recorder = recorder()?;
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|e| Error::caused(Kind::Internal, "cannot count", e))?;
        describe();
        for result in ["2xx", "3xx", "4xx", "5xx", "failed"] {
            counter!("casemirror_calls_total", "result" => result).absolute(0);
        }
        counter!("casemirror_received_bytes_total").absolute(0);
        // From zero, so that the first of a kind is an increase.
        for outcome in ["ok", "incomplete", "different", "failed", "interrupted"] {
            counter!("casemirror_runs_total", "outcome" => outcome).absolute(0);
        }
        for change in ["inserted", "updated", "deleted"] {
            counter!("casemirror_rows_changed_total", "change" => change).absolute(0);
        }
        for (kind, result) in
            ["webhook", "domain_event"].into_iter().flat_map(|k| [(k, "kept"), (k, "refused")])
        {
            counter!("casemirror_webhooks_total", "kind" => kind, "result" => result).absolute(0);
        }
        for result in ["ok", "failed"] {
            counter!("casemirror_publishes_total", "result" => result).absolute(0);
            counter!("casemirror_lake_publishes_total", "result" => result).absolute(0);
            counter!("casemirror_uploads_total", "result" => result).absolute(0);
        }
        Ok(Metrics { handle: INSTALLED.get_or_init(|| handle).clone() })
    }

    /// Takes in what was counted, for ever: where nobody asks for it, it would pile up.
    pub(super) async fn keep_up(self) -> Result<()> {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }

    /// In Prometheus' text format.
    pub(super) fn render(&self, facts: &Facts) -> String {
        // What is so now is said anew each time: of what is no longer so nothing is left.
        let now = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&now, || {
            describe();
            set(facts);
        });
        self.handle.run_upkeep();
        now.handle().render() + &self.handle.render()
    }
}

fn recorder() -> Result<PrometheusRecorder> {
    let builder = PrometheusBuilder::new()
        .set_buckets(CALL_SECONDS)
        .map_err(|e| Error::caused(Kind::Internal, "cannot count", e))?;
    Ok(builder.build_recorder())
}

/// Name, unit of what it is about, and what it says. All metrics are here.
const METRICS: &[(&str, &str)] = &[
    ("casemirror_build_info", "1, with the program's version"),
    ("casemirror_start_timestamp_seconds", "when this process began"),
    ("casemirror_collected_timestamp_seconds", "when what is so now was collected from the store"),
    (
        "casemirror_ready",
        "1 where /readyz says so: both feeds were polled completely lately, and the store works",
    ),
    (
        "casemirror_feed_last_poll_timestamp_seconds",
        "when a change feed was last polled completely",
    ),
    ("casemirror_feed_window_calls", "calls of the throttle's window up to now"),
    ("casemirror_feed_window_allowed", "calls that a window may have: feed.calls"),
    (
        "casemirror_calls_held_until_timestamp_seconds",
        "until when the platform wants no call at all; 0: it does not say",
    ),
    (
        "casemirror_feed_held_until_timestamp_seconds",
        "until when the platform wants no feed call; 0: it does not say",
    ),
    (
        "casemirror_watermark_timestamp_seconds",
        "every change up to here is in, but for what is pending",
    ),
    ("casemirror_complete", "1 where every scope that is asked for has been fetched once"),
    ("casemirror_problems", "what is not as it should be; `casemirror status` names it"),
    ("casemirror_differences", "differences to the source that no later verification found gone"),
    (
        "casemirror_verified_timestamp_seconds",
        "when the mirror was last compared with the source, and every control could be read",
    ),
    (
        "casemirror_unbelieved_answers",
        "answers that are not believed yet: doubted, or held back by the guard",
    ),
    ("casemirror_restatements", "changes within closed months, in the last 30 days"),
    ("casemirror_restated_timestamp_seconds", "when something last changed within a closed month"),
    ("casemirror_published_timestamp_seconds", "when what readers have was taken"),
    (
        "casemirror_parquet_behind_since_timestamp_seconds",
        "since when publish.parquet lacks a snapshot that could not go there; no sample: it does not",
    ),
    ("casemirror_rows", "rows of a table"),
    (
        "casemirror_table_up",
        "1 where a table is read and answers, 0 where it fails or is forbidden",
    ),
    ("casemirror_last_change_timestamp_seconds", "when a row of a table last changed here"),
    ("casemirror_last_checked_timestamp_seconds", "when any part of a table was last read"),
    ("casemirror_pending_scopes", "scopes of a table that wait to be fetched"),
    ("casemirror_rejects", "values of a table that do not fit their column"),
    ("casemirror_store_bytes", "size of the store's file"),
    ("casemirror_disk_free_bytes", "room on the store's disk"),
    ("casemirror_disk_bytes", "size of the store's disk"),
    (
        "casemirror_calls_total",
        "calls to the platform, by what came of them: 2xx to 5xx, or failed",
    ),
    ("casemirror_call_seconds", "how long calls took"),
    ("casemirror_received_bytes_total", "bytes of answers, unpacked"),
    ("casemirror_runs_total", "runs that ended, by their outcome"),
    ("casemirror_rows_changed_total", "rows that runs have inserted, updated and deleted"),
    ("casemirror_publishes_total", "publishings, by their result"),
    ("casemirror_publish_seconds", "how long publishing took"),
    ("casemirror_uploads_total", "Parquet snapshots for an object store, by their result"),
    ("casemirror_lake_publishes_total", "publishings to the lake, by their result"),
    (
        "casemirror_lake_last_success_timestamp_seconds",
        "when the lake was last made, or found, equal to what is published",
    ),
    (
        "casemirror_lake_behind_seconds",
        "how old the lake's snapshot is where it is not the published one, else 0",
    ),
    (
        "casemirror_lease_held",
        "1 where this host may ask the change feeds, 0 where another one does or may",
    ),
    ("casemirror_webhooks_total", "deliveries to serve.webhooks, by kind and result"),
    ("casemirror_webhook_last_timestamp_seconds", "when the last webhook was kept"),
];

fn describe() {
    for (name, text) in METRICS {
        let (name, text) = (*name, *text);
        if name.ends_with("_total") {
            metrics::describe_counter!(name, text);
        } else if ["casemirror_call_seconds", "casemirror_publish_seconds"].contains(&name) {
            metrics::describe_histogram!(name, text);
        } else {
            metrics::describe_gauge!(name, text);
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Counts stay far below 2^53.
fn count(n: impl TryInto<i64>) -> f64 {
    n.try_into().unwrap_or(i64::MAX) as f64
}

/// A gauge that says when something last went well.
pub(super) fn set_instant(name: &'static str, at: Timestamp) {
    gauge!(name).set(seconds(at));
}

fn seconds(at: Timestamp) -> f64 {
    count(at.as_second())
}

fn parsed(at: Option<&str>) -> Option<f64> {
    at.and_then(|at| at.parse::<Timestamp>().ok()).map(seconds)
}

/// What is so now. An instant that is not known has no sample, and one that failures do not move.
fn set(facts: &Facts) {
    let flag = |is: bool| if is { 1.0 } else { 0.0 };
    gauge!("casemirror_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    gauge!("casemirror_start_timestamp_seconds").set(seconds(facts.started));
    gauge!("casemirror_collected_timestamp_seconds").set(seconds(facts.at));
    gauge!("casemirror_ready").set(flag(facts.is_ready));
    for (feed, last) in facts.last_polls {
        let name = FeedName::as_str(feed);
        if let Some(at) = last {
            gauge!("casemirror_feed_last_poll_timestamp_seconds", "feed" => name).set(seconds(at));
        }
    }
    gauge!("casemirror_feed_window_calls").set(count(facts.window.calls));
    gauge!("casemirror_feed_window_allowed").set(f64::from(facts.window.allowed));
    let status = &facts.status;
    for (name, until) in [
        ("casemirror_feed_held_until_timestamp_seconds", &status.feeds_held_until),
        ("casemirror_calls_held_until_timestamp_seconds", &status.calls_held_until),
    ] {
        gauge!(name).set(parsed(until.as_deref()).unwrap_or_default());
    }
    gauge!("casemirror_complete").set(flag(status.complete));
    gauge!("casemirror_problems").set(count(status.problems.len()));
    gauge!("casemirror_restatements").set(count(facts.restated.changes));
    if let Some(at) = facts.restated.last {
        gauge!("casemirror_restated_timestamp_seconds").set(seconds(at));
    }
    gauge!("casemirror_store_bytes").set(count(facts.store_bytes));
    if let Some(at) = parsed(status.watermark.as_deref()) {
        gauge!("casemirror_watermark_timestamp_seconds").set(at);
    }
    let standing = status.verified.as_ref().map_or(0, |verified| verified.standing.len());
    gauge!("casemirror_differences").set(count(standing));
    if let Some(at) = facts.verified_whole {
        gauge!("casemirror_verified_timestamp_seconds").set(seconds(at));
    }
    let unbelieved = &facts.unbelieved;
    for (why, answers) in [("doubted", unbelieved.doubted), ("held", unbelieved.held)] {
        gauge!("casemirror_unbelieved_answers", "reason" => why).set(count(answers));
    }
    if let Some(snapshot) = &facts.snapshot {
        gauge!("casemirror_published_timestamp_seconds").set(seconds(snapshot.taken_at));
    }
    if let Some(at) = parsed(status.parquet_behind_since.as_deref()) {
        gauge!("casemirror_parquet_behind_since_timestamp_seconds").set(at);
    }
    if let Some(lake) = &status.lake {
        if let Some(at) = parsed(lake.succeeded_at.as_deref()) {
            gauge!("casemirror_lake_last_success_timestamp_seconds").set(at);
        }
        if let Some(behind) = lake.behind_seconds {
            gauge!("casemirror_lake_behind_seconds").set(count(behind));
        }
    }
    if let Some(lease) = &status.lease {
        gauge!("casemirror_lease_held").set(if lease.state.may_ask() { 1.0 } else { 0.0 });
    }
    if let Some(disk) = &facts.disk {
        gauge!("casemirror_disk_free_bytes").set(count(disk.free));
        gauge!("casemirror_disk_bytes").set(count(disk.size));
    }
    status.tables.iter().for_each(set_table);
}

fn set_table(table: &Table) {
    let name = || table.table.clone();
    gauge!("casemirror_rows", "table" => name()).set(count(table.rows));
    gauge!("casemirror_pending_scopes", "table" => name()).set(count(table.pending));
    gauge!("casemirror_rejects", "table" => name()).set(count(table.open_rejects()));
    // What is switched off, or what the platform does not have, is neither.
    let up = match table.status {
        "ok" => Some(1.0),
        "failing" | "forbidden" => Some(0.0),
        _ => None,
    };
    if let Some(up) = up {
        gauge!("casemirror_table_up", "table" => name()).set(up);
    }
    if let Some(at) = parsed(table.last_change.as_deref()) {
        gauge!("casemirror_last_change_timestamp_seconds", "table" => name()).set(at);
    }
    if let Some(at) = parsed(table.last_checked.as_deref()) {
        gauge!("casemirror_last_checked_timestamp_seconds", "table" => name()).set(at);
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::well;
    use super::*;

    #[test]
    fn what_is_no_longer_so_is_no_metric_and_what_is_counted_begins_at_0() {
        let metrics = Metrics::install().unwrap();
        let mut facts = well();
        let name = facts.status.tables[0].table.clone();
        let up = format!("casemirror_table_up{{table=\"{name}\"}}");
        facts.status.tables[0].status = "failing";
        assert!(metrics.render(&facts).contains(&format!("{up} 0\n")));
        facts.status.tables[0].status = "absent";
        let text = metrics.render(&facts);
        assert!(!text.contains(&up), "{text}");
        let collected =
            format!("casemirror_collected_timestamp_seconds {}\n", facts.at.as_second());
        assert!(text.contains(&collected), "{text}");
        for name in
            ["casemirror_runs_total{outcome=\"different\"} ", "casemirror_received_bytes_total "]
        {
            assert!(text.contains(name), "{text}");
        }
        // Each has one help text and one type, whichever recorder it is of.
        for (name, _) in METRICS {
            let helped = text.matches(&format!("# HELP {name} ")).count();
            let typed = text.matches(&format!("# TYPE {name} ")).count();
            let has_samples = text.lines().any(|line| line.starts_with(name));
            assert!(helped <= 1 && helped == typed, "{name}: {text}");
            assert!(has_samples || helped == 0, "{name}: {text}");
        }
    }
}
