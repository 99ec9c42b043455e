//! What is allowed for each key: one function per section, then the rules between keys.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use crate::error::Result;

use super::layers::Layers;
use super::reader::Reader;
use super::violation;
use super::{
    Bootstrap, Config, Feed, History, HistoryTables, Journals, Limits, Privacy, ProcessingBases,
    Publish, Reconcile, Resources, Schedule, Serve, Source, Store,
};

/// What the template has in the place of the required values.
const PLACEHOLDERS: &[(&str, &str)] = &[
    ("source.base_url", "<address of the API>"),
    ("source.client_id", "<client id>"),
    ("source.client_secret", "<client secret>"),
];

/// A secret is a line of text; a larger file is some other file.
const LARGEST_SECRET_BYTES: u64 = 64 * 1024;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Intervals below it would be a busy loop.
const SHORTEST: Duration = Duration::from_millis(100);

/// Which keys are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All.
    Whole,
    /// All but those that are needed to log in, which are not looked at.
    Offline,
}

/// Reads every section, so that all violations are found, and only then makes the whole.
///
/// # Errors
///
/// Those found in the layers before, and all found here, in one error.
pub(super) fn read(layers: Layers, scope: Scope) -> Result<Config> {
    let mut reader = Reader::new(layers);
    let config = sections(&mut reader, scope);
    let (origins, violations) = reader.finish();
    violation::refuse_any(violations)?;
    let config = config.expect("a value is missing only where a violation has been noted");
    Ok(Config { origins, ..config })
}

fn sections(r: &mut Reader, scope: Scope) -> Option<Config> {
    let source = source(r, scope);
    let feed = feed(r);
    let limits = limits(r);
    let bootstrap = r.optional("bootstrap.since", Reader::day).map(|since| Bootstrap { since });
    let store = store(r);
    let publish = publish(r);
    let schedule = schedule(r, source.as_ref());
    let journals = journals(r);
    let reconcile = reconcile(r);
    let processing_bases = r.day("processing_bases.since").map(|since| ProcessingBases { since });
    let resources = resources(r);
    let history = history(r);
    let privacy = privacy(r);
    let serve = serve(r);
    different_paths(r, store.as_ref(), publish.as_ref());
    Some(Config {
        source: source?,
        feed: feed?,
        limits: limits?,
        bootstrap: bootstrap?,
        store: store?,
        publish: publish?,
        schedule: schedule?,
        journals: journals?,
        reconcile: reconcile?,
        processing_bases: processing_bases?,
        resources: resources?,
        history: history?,
        privacy: privacy?,
        serve: serve?,
        origins: BTreeMap::new(),
    })
}

fn source(r: &mut Reader, scope: Scope) -> Option<Source> {
    let time_zone = r.time_zone("source.time_zone");
    let search_delay = r.duration("source.search_delay", Duration::ZERO..=DAY);
    let doubt = r.duration("source.doubt", Duration::ZERO..=DAY);
    if scope == Scope::Offline {
        return Some(Source {
            // The top-level domain `invalid` is reserved for names that lead nowhere (RFC 2606).
            base_url: Url::parse("http://source.invalid/").expect("it is a valid address"),
            client_id: String::new(),
            client_secret: SecretString::default(),
            time_zone: time_zone?,
            search_delay: search_delay?,
            doubt: doubt?,
            ca_file: None,
        });
    }
    let base_url = unless_placeholder(r, "source.base_url", Reader::web_address);
    let client_id = unless_placeholder(r, "source.client_id", |r, key| {
        r.text(key, "must be the client id that the platform has given you")
    });
    let client_secret = client_secret(r);
    let ca_file = r.optional("source.ca_file", |r, key| {
        r.existing_path(key, "must name a PEM file that exists", Path::is_file)
    });
    Some(Source {
        base_url: base_url?,
        client_id: client_id?,
        client_secret: client_secret?,
        time_zone: time_zone?,
        search_delay: search_delay?,
        doubt: doubt?,
        ca_file: ca_file?,
    })
}

fn unless_placeholder<T>(
    r: &mut Reader,
    key: &str,
    read: impl FnOnce(&mut Reader, &str) -> Option<T>,
) -> Option<T> {
    let placeholder = PLACEHOLDERS.iter().find(|(name, _)| *name == key);
    if placeholder.is_some_and(|(_, text)| r.is_word(key, text)) {
        r.refuse(
            key,
            "is still what `casemirror init` has written: put your own value in its place",
        );
        return None;
    }
    read(r, key)
}

/// The secret itself or the first line of the file that holds it; never both.
fn client_secret(r: &mut Reader) -> Option<SecretString> {
    let (inline, file) = ("source.client_secret", "source.client_secret_file");
    match (r.is_set(inline), r.is_set(file)) {
        (true, true) => {
            let other = r.origin(inline);
            r.refuse(file, format!("{inline} is set, too ({other}); only one of them may be"));
            None
        }
        (false, true) => {
            let path = r.path(file)?;
            match read_secret(&path) {
                Ok(secret) => Some(secret),
                Err(problem) => {
                    r.refuse(file, format!("{}: {problem}", path.display()));
                    None
                }
            }
        }
        (_, false) => unless_placeholder(r, inline, |r, key| {
            r.text(
                key,
                "must be the client secret that the platform has given you, unless \
                 source.client_secret_file names a file that holds it",
            )
        })
        .map(SecretString::from),
    }
}

/// The content of a secret file without the line end that editors put there.
fn read_secret(path: &Path) -> Result<SecretString, String> {
    let length = std::fs::metadata(path).map_err(|error| format!("cannot read it: {error}"))?.len();
    if length > LARGEST_SECRET_BYTES {
        return Err(format!("has {length} bytes, which is no client secret"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if secret.contains('\n') {
        return Err("has more than one line".to_owned());
    }
    Ok(SecretString::from(secret))
}

fn feed(r: &mut Reader) -> Option<Feed> {
    let style = r.choice("feed.style");
    let calls = r.integer("feed.calls", 1..=10_000);
    let per = r.duration("feed.per", SHORTEST..=DAY);
    let poll = r.duration("feed.poll", SHORTEST..=DAY);
    let contacts_poll = r.duration_or_off("feed.contacts_poll", SHORTEST..=7 * DAY);
    let overlap = r.duration("feed.overlap", Duration::ZERO..=7 * DAY);
    Some(Feed {
        style: style?,
        calls: calls?,
        per: per?,
        poll: poll?,
        contacts_poll: contacts_poll?,
        overlap: overlap?,
    })
}

fn limits(r: &mut Reader) -> Option<Limits> {
    let requests_per_second = r.integer("limits.requests_per_second", 1..=10_000);
    let concurrency = r.integer("limits.concurrency", 1..=64);
    let timeout = r.duration("limits.timeout", SHORTEST..=HOUR);
    let journal_timeout = r.duration("limits.journal_timeout", SHORTEST..=6 * HOUR);
    let answer_bytes = r.bytes("limits.answer_bytes");
    let answer_records = r.integer("limits.answer_records", 1..=u32::MAX);
    Some(Limits {
        requests_per_second: requests_per_second?,
        concurrency: concurrency?,
        timeout: timeout?,
        journal_timeout: journal_timeout?,
        answer_bytes: answer_bytes?,
        answer_records: answer_records?,
    })
}

fn store(r: &mut Reader) -> Option<Store> {
    let path = r.path("store.path");
    let memory_limit = r.memory_size("store.memory_limit");
    let threads = r.integer::<usize>("store.threads", 0..=1024);
    Some(Store {
        path: path?,
        memory_limit: memory_limit?,
        threads: Some(threads?).filter(|threads| *threads > 0),
    })
}

fn publish(r: &mut Reader) -> Option<Publish> {
    let database = r.path("publish.database");
    let parquet = r.optional("publish.parquet", Reader::path);
    let min_interval = r.duration("publish.min_interval", Duration::ZERO..=DAY);
    let parquet_interval = r.duration("publish.parquet_interval", Duration::ZERO..=7 * DAY);
    let keep_snapshots = r.integer("publish.keep_snapshots", 1..=10_000);
    let keep_for = r.duration("publish.keep_for", Duration::ZERO..=3650 * DAY);
    Some(Publish {
        database: database?,
        parquet: parquet?,
        min_interval: min_interval?,
        parquet_interval: parquet_interval?,
        keep_snapshots: keep_snapshots?,
        keep_for: keep_for?,
    })
}

fn schedule(r: &mut Reader, source: Option<&Source>) -> Option<Schedule> {
    let reference = r.cron("schedule.reference");
    let journals = r.cron("schedule.journals");
    let journals_recheck = r.cron("schedule.journals_recheck");
    let reconcile = r.cron("schedule.reconcile");
    let verify = r.cron("schedule.verify");
    let time_zone = r.optional("schedule.time_zone", Reader::time_zone);
    Some(Schedule {
        reference: reference?,
        journals: journals?,
        journals_recheck: journals_recheck?,
        reconcile: reconcile?,
        verify: verify?,
        time_zone: match time_zone? {
            Some(time_zone) => time_zone,
            None => source?.time_zone.clone(),
        },
    })
}

fn journals(r: &mut Reader) -> Option<Journals> {
    let level = r.choice("journals.level");
    let ids = r.ids("journals.ids");
    let since = r.optional("journals.since", Reader::day);
    let trailing_months = r.integer("journals.trailing_months", 1..=120);
    let close_day = r.integer("journals.close_day", 1..=28);
    let recheck_months = r.integer("journals.recheck_months", 0..=1200);
    Some(Journals {
        level: level?,
        ids: ids?,
        since: since?,
        trailing_months: trailing_months?,
        close_day: close_day?,
        recheck_months: recheck_months?,
    })
}

fn reconcile(r: &mut Reader) -> Option<Reconcile> {
    let reread = r.choice("reconcile.reread");
    let max_removed = r.share("reconcile.max_removed");
    Some(Reconcile { reread: reread?, max_removed: max_removed? })
}

fn resources(r: &mut Reader) -> Option<Resources> {
    let disable =
        r.names("resources.disable", "must be a list of table names, such as [\"notes\"]");
    let dir = r.optional("resources.dir", |r, key| {
        r.existing_path(key, "must name a folder that exists", Path::is_dir)
    });
    Some(Resources { disable: disable?, dir: dir? })
}

fn history(r: &mut Reader) -> Option<History> {
    let key = "history.tables";
    let tables = if r.is_word(key, "all") {
        Some(HistoryTables::All)
    } else {
        r.names(key, "must be \"all\" or a list of table names, such as [\"cases\", \"costs\"]")
            .map(HistoryTables::These)
    };
    tables.map(|tables| History { tables })
}

fn privacy(r: &mut Reader) -> Option<Privacy> {
    let identifiers = r.choice("privacy.identifiers");
    let contact_details = r.choice("privacy.contact_details");
    Some(Privacy { identifiers: identifiers?, contact_details: contact_details? })
}

fn serve(r: &mut Reader) -> Option<Serve> {
    let listen = r.optional("serve.listen", Reader::listen_address);
    let webhooks = r.optional("serve.webhooks", Reader::listen_address);
    let public_url = r.optional("serve.public_url", Reader::web_address);
    // Port 0 asks the system for a free one, so two of them never meet.
    if let (Some(Some(page)), Some(Some(own))) = (listen, webhooks)
        && page == own
        && page.port() != 0
    {
        r.refuse("serve.webhooks", "must be another address than serve.listen");
    }
    if let (Some(None), Some(Some(_))) = (webhooks, &public_url) {
        r.refuse("serve.public_url", "serve.webhooks must be set, too: nothing would answer there");
    }
    Some(Serve { listen: listen?, webhooks: webhooks?, public_url: public_url? })
}

/// The store, the published file and the snapshots must not overwrite each other.
fn different_paths(r: &mut Reader, store: Option<&Store>, publish: Option<&Publish>) {
    let Some(publish) = publish else { return };
    if store.is_some_and(|store| store.path == publish.database) {
        r.refuse("publish.database", "must be another file than store.path");
    }
    let Some(parquet) = &publish.parquet else { return };
    if *parquet == publish.database || store.is_some_and(|store| store.path == *parquet) {
        r.refuse(
            "publish.parquet",
            "must be a folder, and store.path and publish.database are files",
        );
    }
}
