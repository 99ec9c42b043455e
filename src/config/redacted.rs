//! The configuration as text, key by key and without its secret.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use jiff::tz::TimeZone;

use super::{Config, HistoryTables};

impl Config {
    /// Every key with its effective value: what a caller and the daemon compare
    /// (docs/architecture.md, "Commands"), and what may be logged. The secret is the word `set`,
    /// however it was given; what is off or not set is the empty text. Equal texts mean equal
    /// behaviour.
    pub(crate) fn redacted_keys(&self) -> BTreeMap<String, String> {
        let Config {
            source,
            feed,
            limits,
            bootstrap,
            store,
            publish,
            schedule,
            journals,
            reconcile,
            processing_bases,
            resources,
            history,
            privacy,
            serve,
            origins: _,
        } = self;
        let keys = [
            ("source.base_url", source.base_url.to_string()),
            ("source.client_id", source.client_id.clone()),
            ("source.client_secret", "set".to_owned()),
            ("source.time_zone", zone(&source.time_zone)),
            ("source.search_delay", duration(source.search_delay)),
            ("source.doubt", duration(source.doubt)),
            ("source.ca_file", path(source.ca_file.as_deref())),
            ("feed.style", feed.style.to_string()),
            ("feed.calls", feed.calls.to_string()),
            ("feed.per", duration(feed.per)),
            ("feed.poll", duration(feed.poll)),
            ("feed.contacts_poll", duration(feed.contacts_poll.unwrap_or_default())),
            ("feed.overlap", duration(feed.overlap)),
            ("limits.requests_per_second", limits.requests_per_second.to_string()),
            ("limits.concurrency", limits.concurrency.to_string()),
            ("limits.timeout", duration(limits.timeout)),
            ("limits.journal_timeout", duration(limits.journal_timeout)),
            ("limits.answer_bytes", size(limits.answer_bytes)),
            ("limits.answer_records", limits.answer_records.to_string()),
            ("bootstrap.since", optional(bootstrap.since)),
            ("store.path", path(Some(&store.path))),
            ("store.memory_limit", store.memory_limit.clone()),
            ("store.threads", store.threads.unwrap_or_default().to_string()),
            ("publish.database", path(Some(&publish.database))),
            ("publish.parquet", path(publish.parquet.as_deref())),
            ("publish.min_interval", duration(publish.min_interval)),
            ("publish.parquet_interval", duration(publish.parquet_interval)),
            ("publish.keep_snapshots", publish.keep_snapshots.to_string()),
            ("publish.keep_for", duration(publish.keep_for)),
            ("schedule.reference", schedule.reference.to_string()),
            ("schedule.journals", schedule.journals.to_string()),
            ("schedule.journals_recheck", schedule.journals_recheck.to_string()),
            ("schedule.reconcile", schedule.reconcile.to_string()),
            ("schedule.verify", schedule.verify.to_string()),
            ("schedule.time_zone", zone(&schedule.time_zone)),
            ("journals.level", journals.level.to_string()),
            ("journals.ids", list(&journals.ids)),
            ("journals.since", optional(journals.since)),
            ("journals.trailing_months", journals.trailing_months.to_string()),
            ("journals.close_day", journals.close_day.to_string()),
            ("journals.recheck_months", journals.recheck_months.to_string()),
            ("reconcile.reread", reconcile.reread.to_string()),
            ("reconcile.max_removed", reconcile.max_removed.to_string()),
            ("processing_bases.since", processing_bases.since.to_string()),
            ("resources.disable", list(&resources.disable)),
            ("resources.dir", path(resources.dir.as_deref())),
            (
                "history.tables",
                match &history.tables {
                    HistoryTables::All => "all".to_owned(),
                    HistoryTables::These(tables) => list(tables),
                },
            ),
            ("privacy.identifiers", privacy.identifiers.to_string()),
            ("privacy.contact_details", privacy.contact_details.to_string()),
            ("serve.listen", optional(serve.listen)),
            ("serve.webhooks", optional(serve.webhooks)),
            ("serve.public_url", optional(serve.public_url.as_ref())),
        ];
        keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

fn duration(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// In the largest unit that says it exactly.
fn size(bytes: u64) -> String {
    let units =
        [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    let exact = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    exact.map_or_else(|| format!("{bytes}B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

fn path(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |path| path.display().to_string())
}

fn zone(zone: &TimeZone) -> String {
    zone.iana_name().unwrap_or_default().to_owned()
}

fn optional(value: Option<impl Display>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn list(items: &[impl Display]) -> String {
    let items: Vec<String> = items.iter().map(ToString::to_string).collect();
    format!("[{}]", items.join(", "))
}
