//! Where settings come from: defaults, file, environment, command line.

use super::*;
use crate::config::LakeData;

#[test]
fn the_required_keys_are_enough_and_all_others_have_the_documented_defaults() {
    let folder = Folder::with(REQUIRED);
    let config = folder.load(&[], &[]).unwrap();
    let shown: Vec<String> = config
        .compared_keys(&salt())
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}").trim_end().to_owned())
        .collect();
    let shown = shown
        .join("\n")
        .replace(&folder.0.path().display().to_string(), "DIR")
        .replace(&salt().digest("s3cret"), "DIGEST");
    insta::assert_snapshot!(shown, @r"
    alert.heartbeat =
    alert.url =
    bootstrap.since =
    feed.calls = 6
    feed.contacts_poll = 1m
    feed.ledger =
    feed.overlap = 10m
    feed.per = 30s
    feed.poll = 10s
    feed.style = odata
    history.tables = all
    journals.close_day = 10
    journals.ids = []
    journals.level = offices
    journals.recheck_months = 24
    journals.since =
    journals.trailing_months = 3
    lake.catalog =
    lake.data =
    lake.interval = 5m
    lake.keep_for = 30days
    lake.schema = main
    lake.secret_file =
    limits.answer_bytes = 256MB
    limits.answer_records = 2000000
    limits.concurrency = 4
    limits.journal_timeout = 10m
    limits.requests_per_second = 10
    limits.retry_after = 1h
    limits.timeout = 1m
    privacy.contact_details = keep
    privacy.identifiers = hash
    processing_bases.since = 2018-01-01
    publish.database = DIR/data/casemirror.duckdb
    publish.keep_for = 2h
    publish.keep_snapshots = 7
    publish.min_interval = 1m
    publish.parquet = DIR/data/parquet
    publish.parquet_interval = 15m
    publish.views = DIR/data/casemirror-views.duckdb
    publish.views_root =
    reconcile.max_removed = 0.02
    reconcile.reread = changed
    resources.dir =
    resources.disable = []
    schedule.journals = 15 3 * * *
    schedule.journals_recheck = 15 5 * * Sun
    schedule.reconcile = 15 4 * * *
    schedule.reference = 15 1 * * *
    schedule.time_zone = Europe/Oslo
    schedule.verify = 15 6 * * *
    serve.listen = 127.0.0.1:8640
    serve.public_url =
    serve.webhooks =
    source.base_url = https://api.example.com/
    source.ca_file =
    source.client_id = id
    source.client_secret = DIGEST
    source.doubt = 10m
    source.search_delay = 30s
    source.time_zone = Europe/Oslo
    store.memory_limit = 1GB
    store.path = DIR/data/store.duckdb
    store.threads = 0
    ");
}

#[test]
fn paths_are_relative_to_the_file_wherever_they_were_set() {
    let folder = Folder::with(&format!("{REQUIRED}[store]\npath = \"a.duckdb\"\n"));
    let config = folder
        .load(
            &[("CASEMIRROR_PUBLISH__DATABASE", "b.duckdb")],
            &[("publish.parquet", "/elsewhere/parquet")],
        )
        .unwrap();
    assert_eq!(config.store.path, folder.0.path().join("a.duckdb"));
    assert_eq!(config.publish.database, folder.0.path().join("b.duckdb"));
    assert_eq!(
        config.publish.parquet,
        Some(ParquetRoot::Folder(PathBuf::from("/elsewhere/parquet")))
    );
}

#[test]
fn the_environment_goes_before_the_file_and_the_command_line_before_both() {
    let folder =
        Folder::with(&format!("{REQUIRED}[feed]\ncalls = 2\npoll = \"2s\"\nper = \"20s\"\n"));
    let config = folder
        .load(
            &[("CASEMIRROR_FEED__POLL", "3s"), ("CASEMIRROR_FEED__PER", "30s"), ("PATH", "/bin")],
            &[("feed.per", "39s"), ("feed.per", "40s")],
        )
        .unwrap();
    assert_eq!(config.feed.calls, 2);
    assert_eq!(config.feed.poll, Duration::from_secs(3));
    assert_eq!(config.feed.per, Duration::from_secs(40));
    assert_eq!(config.origin("feed.poll"), "environment variable CASEMIRROR_FEED__POLL");
    assert_eq!(config.origin("feed.per"), "command line");
    assert_eq!(config.origin("feed.overlap"), "default");
    assert!(config.origin("feed.calls").ends_with("casemirror.toml:6"));
}

#[test]
fn texts_from_the_environment_take_the_type_of_their_key() {
    let folder = Folder::with(REQUIRED);
    let config = folder
        .load(
            &[
                // Looks like a number, and must not lose its zeros.
                ("CASEMIRROR_SOURCE__CLIENT_SECRET", "00123"),
                ("CASEMIRROR_SOURCE__CLIENT_ID", "true"),
                ("CASEMIRROR_JOURNALS__IDS", "3, 17"),
                ("CASEMIRROR_RESOURCES__DISABLE", r#"["notes", "costs"]"#),
                ("CASEMIRROR_HISTORY__TABLES", "cases"),
                ("CASEMIRROR_RECONCILE__MAX_REMOVED", "1"),
                ("CASEMIRROR_STORE__THREADS", "2"),
            ],
            &[],
        )
        .unwrap();
    assert_eq!(config.source.client_secret.expose_secret(), "00123");
    assert_eq!(config.source.client_id, "true");
    assert_eq!(config.journals.ids, [3, 17]);
    assert_eq!(config.resources.disable, ["notes", "costs"]);
    assert_eq!(config.history.tables, HistoryTables::These(vec!["cases".to_owned()]));
    assert_eq!(config.reconcile.max_removed, 1.0);
    assert_eq!(config.store.threads, Some(2));
}

#[test]
fn what_can_be_off_is_off_when_it_is_empty_or_zero() {
    let config = load(&format!(
        "{REQUIRED}[publish]\nparquet = \"\"\n[serve]\nlisten = \"\"\n\
         [feed]\ncontacts_poll = \"0s\"\n[history]\ntables = []\n"
    ));
    assert_eq!(config.publish.parquet, None);
    assert_eq!(config.serve.listen, None);
    assert_eq!(config.feed.contacts_poll, None);
    assert_eq!(config.history.tables, HistoryTables::These(Vec::new()));
}

#[test]
fn a_day_may_be_written_with_or_without_quotes() {
    let config = load(&format!(
        "{REQUIRED}[bootstrap]\nsince = 2024-03-01\n[journals]\nsince = \"2023-01-01\"\n"
    ));
    assert_eq!(config.bootstrap.since, Some(jiff::civil::date(2024, 3, 1)));
    assert_eq!(config.journals.since, Some(jiff::civil::date(2023, 1, 1)));
}

#[test]
fn the_schedules_zone_is_the_sources_unless_it_is_set() {
    let file = format!("{REQUIRED}time_zone = \"Europe/London\"\n");
    assert_eq!(load(&file).schedule.time_zone.iana_name(), Some("Europe/London"));
    let config = load(&format!("{file}[schedule]\ntime_zone = \"UTC\"\n"));
    assert_eq!(config.schedule.time_zone.iana_name(), Some("UTC"));
}

#[test]
fn the_base_address_keeps_its_path_and_ends_in_a_slash() {
    for written in ["example.com/gateway/v1", "example.com/gateway/v1/", "EXAMPLE.com/gateway/v1//"]
    {
        let config = load(&REQUIRED.replace("api.example.com", written));
        assert_eq!(config.source.base_url.as_str(), "https://example.com/gateway/v1/");
    }
    let config = load(&REQUIRED.replace("api.example.com", "example.com/gateway/v1"));
    let url = config.source.base_url.join("api/User").unwrap();
    assert_eq!(url.as_str(), "https://example.com/gateway/v1/api/User");
}

#[test]
fn the_template_is_refused_until_it_is_filled_in() {
    let text = Folder::with(&TEMPLATE).refusal(&[], &[]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused for 3 reasons:
      DIR/casemirror.toml:13: source.base_url = "<address of the API>": is still what `casemirror init` has written: put your own value in its place
      DIR/casemirror.toml:17: source.client_id = "<client id>": is still what `casemirror init` has written: put your own value in its place
      DIR/casemirror.toml:18: source.client_secret: is still what `casemirror init` has written: put your own value in its place
    "#);
}

#[test]
fn no_key_of_the_template_is_without_a_comment() {
    let mut current = "";
    for key in keys::KEYS {
        let (section, _) = key.path();
        // Later keys of a section may share the comment of the one before.
        assert!(section == current || !key.comment.is_empty(), "{} has none", key.name);
        current = section;
    }
}

#[test]
fn the_templates_comments_are_the_defaults_and_leave_no_key_out() {
    let filled = TEMPLATE
        .replace("<address of the API>", "https://api.example.com")
        .replace("<client id>", "id")
        .replace("<client secret>", "s3cret");
    let uncommented: String = filled
        .lines()
        .map(|line| match line.strip_prefix('#') {
            // A setting follows its `#` at once, an explanation after a space.
            Some(setting) if setting.starts_with(|c: char| c.is_ascii_lowercase()) => setting,
            _ => line,
        })
        .flat_map(|line| [line, "\n"])
        .collect();
    let folder = Folder::with(&uncommented);
    let config = folder.load(&[], &[]).unwrap();
    for key in keys::KEYS {
        assert_ne!(config.origin(key.name), "default", "{} is not in the template", key.name);
    }
    folder.write("casemirror.toml", REQUIRED);
    assert_eq!(
        config.compared_keys(&salt()),
        folder.load(&[], &[]).unwrap().compared_keys(&salt())
    );
}

#[test]
fn a_syntax_error_is_placed_without_quoting_the_line() {
    let folder =
        Folder::with("[source]\nclient_id = \"id\"\nclient_secret = \"s3cret\n[feed]\ncalls = \n");
    let text = folder.refusal(&[], &[]);
    assert!(!text.contains("s3cret"), "{text}");
    insta::assert_snapshot!(text, @r#"
    the configuration is refused for 2 reasons:
      DIR/casemirror.toml:3:24: this is not TOML: invalid basic string, expected `"`
      DIR/casemirror.toml:5:9: this is not TOML: string values must be quoted, expected literal string
    "#);
}

#[test]
fn a_key_that_stands_twice_is_a_syntax_error() {
    let text = Folder::with("[feed]\ncalls = 1\ncalls = 2\n").refusal(&[], &[]);
    assert!(text.contains("casemirror.toml:3:1: this is not TOML: duplicate key"), "{text}");
}

#[test]
fn a_missing_file_is_named_with_the_way_to_one() {
    let error = Config::load(Path::new("/nowhere/casemirror.toml"), &[], |_| None).unwrap_err();
    assert_eq!(
        (error.kind(), error.chain().as_str()),
        (
            Kind::Config,
            "there is no configuration file /nowhere/casemirror.toml: `casemirror init \
             /nowhere/casemirror.toml` writes one to fill in"
        )
    );
}

#[test]
fn variables_of_the_test_suite_and_of_kubernetes_are_no_settings() {
    let folder = Folder::with(REQUIRED);
    let foreign = [
        ("CASEMIRROR_TEST_PYTHON", "python"),
        ("CASEMIRROR_REQUIRE_PYTHON", "1"),
        ("CASEMIRROR_REQUIRE_PROMTOOL", "1"),
        ("CASEMIRROR_REQUIRE_POSTGRES", "1"),
        ("CASEMIRROR_SERVICE_HOST", "10.0.0.1"),
        ("CASEMIRROR_SERVICE_PORT_HTTP", "8640"),
        ("CASEMIRROR_PORT", "tcp://10.0.0.1:8640"),
        ("CASEMIRROR_PORT_8640_TCP_ADDR", "10.0.0.1"),
        ("CASEMIRROR_WEBHOOKS_SERVICE_HOST", "10.0.0.2"),
        ("CASEMIRROR_WEBHOOKS_PORT", "tcp://10.0.0.2:8641"),
        ("CASEMIRROR_WEBHOOKS_PORT_8641_TCP", "tcp://10.0.0.2:8641"),
        ("CASEMIRROR_STATUS_PAGE_SERVICE_PORT_HTTP", "8640"),
    ];
    folder.load(&foreign, &[]).unwrap();
    for misspelt in ["CASEMIRROR_FEED_POLL", "CASEMIRROR_SERVE__PORT", "CASEMIRROR_EXPORT_TO"] {
        let text = folder.load(&[(misspelt, "1")], &[]).unwrap_err().chain();
        assert!(text.contains("there is no such key"), "{misspelt}: {text}");
    }
}

#[test]
fn offline_commands_need_no_credentials_but_obey_the_rest() {
    let folder = Folder::with("[source]\nclient_secret_file = \"unreadable\"\n[feed]\ncalls = 0\n");
    let layers = Layers::defaults().file(&folder.path()).unwrap();
    let text = layers.read(Scope::Offline, |_| None).unwrap_err().chain();
    assert_eq!(violations(&text).len(), 1, "{text}");
    folder.write("casemirror.toml", "[publish]\ndatabase = \"mine.duckdb\"\n");
    let config = Config::load_offline(Some(&folder.path()), &[], |_| None).unwrap();
    assert_eq!(config.publish.database, folder.0.path().join("mine.duckdb"));
    assert_eq!(config.source.base_url.host_str(), Some("source.invalid"));
    // The catalog, with its password, may be in the environment of the service alone.
    folder.write("casemirror.toml", "[lake]\ndata = \"lake\"\n");
    assert!(!Config::load_offline(Some(&folder.path()), &[], |_| None).unwrap().has_lake());
}

#[test]
fn the_demo_writes_into_its_folder_and_is_quick() {
    let config = Config::for_demo(
        Url::parse("http://127.0.0.1:9/base").unwrap(),
        "id",
        SecretString::from("s3cret"),
        Path::new("/demo"),
    );
    let keys = config.compared_keys(&salt());
    assert_eq!(keys["source.base_url"], "http://127.0.0.1:9/base/");
    assert_eq!(keys["limits.requests_per_second"], "2000");
    assert_eq!(keys["source.search_delay"], "1s");
    assert_eq!(keys["feed.calls"], "6");
    for path in ["store.path", "publish.database", "publish.parquet"] {
        assert_eq!(Path::new(&keys[path]).parent(), Some(Path::new("/demo")), "{path}");
    }
}

#[test]
fn a_text_in_quotes_is_what_it_is_in_the_file_wherever_it_was_set() {
    let folder = Folder::with(REQUIRED);
    let config = folder
        .load(
            &[("CASEMIRROR_STORE__PATH", "'a \"b\".duckdb'")],
            &[("publish.parquet", "\"\""), ("source.client_id", "it's")],
        )
        .unwrap();
    assert_eq!(config.publish.parquet, None);
    assert!(config.store.path.ends_with("a \"b\".duckdb"), "{}", config.store.path.display());
    assert_eq!(config.source.client_id, "it's");
}

#[test]
fn the_views_are_off_with_the_snapshots_unless_somebody_wants_them() {
    let off = [("publish.parquet", "")];
    let folder = Folder::with(REQUIRED);
    assert_eq!(folder.load(&[], &off).unwrap().publish.views, None);
    // The configuration that `init` writes has every default.
    let sample = format!("{REQUIRED}[publish]\nviews = \"data/casemirror-views.duckdb\"\n");
    assert_eq!(Folder::with(&sample).load(&[], &off).unwrap().publish.views, None);
    let other = format!("{REQUIRED}[publish]\nviews = \"views.duckdb\"\n");
    let refused = Folder::with(&other).refusal(&[], &off);
    assert!(refused.contains("publish.parquet must be set, too"), "{refused}");
}

#[test]
fn snapshots_go_to_a_folder_or_to_an_address_that_holds_no_key() {
    let parquet = |value: &str| load_with(&[("publish.parquet", value)]);
    let config = parquet("s3://mirror/team/x/").unwrap();
    assert_eq!(config.publish.parquet.as_ref().unwrap().to_string(), "s3://mirror/team/x");
    assert_eq!(config.publish.views, None, "there is no folder to show");
    assert_eq!(config.compared_keys(&salt())["publish.parquet"], "s3://mirror/team/x");
    let folder = parquet("s3").unwrap().publish.parquet.unwrap();
    assert!(folder.folder().unwrap().ends_with("s3"), "a name without :// is a path");

    for value in [
        "s3://key:s3cret@mirror/x",
        "s3://mirror/x?key=s3cret",
        "http://mirror/x",
        "s3:/mirror/x",
        "gs:mirror",
    ] {
        let refused = parquet(value).unwrap_err().to_string();
        assert!(refused.contains("publish.parquet"), "{refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    let views = [("publish.parquet", "gs://mirror"), ("publish.views", "mine.duckdb")];
    let refused = load_with(&views).unwrap_err().to_string();
    assert!(refused.contains("publish.parquet must be a folder, too"), "{refused}");
}

#[test]
fn the_lakes_data_go_to_a_place_of_their_own_and_no_address_with_a_key_is_shown() {
    let load = |catalog: &str, data: &str, parquet: &str| {
        load_with(&[("lake.catalog", catalog), ("lake.data", data), ("publish.parquet", parquet)])
    };
    let file = "data/lake.ducklake";
    let config = load(file, "s3://lake/oslo/", "s3://lake/parquet").unwrap();
    let Some(LakeData::Bucket(url)) = &config.lake.data else { panic!("{:?}", config.lake.data) };
    assert_eq!(url.to_string(), "s3://lake/oslo");
    for (catalog, data, parquet, rule) in [
        (file, "s3://key:s3cret@lake/x", "", "must hold no credentials"),
        (file, "gs://lake/x", "", "must be a folder, or \"s3://bucket/path\""),
        (
            file,
            "s3://lake/parquet/x",
            "s3://lake/parquet",
            "must be another place than publish.parquet",
        ),
        (file, "s3://lake", "s3://lake/parquet", "must be another place than publish.parquet"),
        (file, "data/parquet/x", "data/parquet", "must be another place than publish.parquet"),
        (file, "data", "data/parquet", "must be another place than publish.parquet"),
        (file, "", "", "must be set, too, where lake.catalog is"),
        (file, "data/lake.ducklake", "", "must be another file than lake.catalog"),
        ("data/store.duckdb", "data/lake", "", "must be another file than store.path"),
        ("data/store.duckdb.wal", "data/lake", "", "must be another file than store.path"),
        (
            "postgres:host=db password=my s3cret",
            "data/lake",
            "",
            "must be as PostgreSQL's libpq reads it",
        ),
        (
            "postgres://me:s3cret@[db/lake",
            "data/lake",
            "",
            "must be as PostgreSQL's libpq reads it",
        ),
        (
            "mysql://me:s3cret@db/lake",
            "data/lake",
            "",
            "must be \"postgres:...\" or the path of a DuckDB file",
        ),
        // A connection without `postgres:` is no name of a file.
        ("host=db dbname=lake password=s3cret", "data/lake", "", "must begin with \"postgres:\""),
        ("password=my s3cret", "data/lake", "", "must begin with \"postgres:\""),
        ("postgresql:host=db password=s3cret", "data/lake", "", "must begin with \"postgres:\""),
        ("postgresql:/me:s3cret@db/lake", "data/lake", "", "must begin with \"postgres:\""),
        ("Postgres:me:s3cret@db/lake", "data/lake", "", "must begin with \"postgres:\""),
        ("s3:/lake/x", "data/lake", "", "must be \"postgres:...\" or the path of a DuckDB file"),
        (file, "s3:/lake/x", "", "must be a folder, or \"s3://bucket/path\""),
        (file, "gs:/lake/x", "", "must be a folder, or \"s3://bucket/path\""),
    ] {
        let refused = load(catalog, data, parquet).unwrap_err().chain();
        assert!(refused.contains(rule), "{catalog} {data} {parquet}: {refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
    }
}

/// It would be replaced or removed with what lies beside it.
#[test]
fn nothing_that_is_written_lies_in_what_is_replaced() {
    for (key, path, owner) in [
        ("publish.database", "data/store.duckdb.tmp/a/x.duckdb", "store.path"),
        ("publish.database", "p/latest/x.duckdb", "publish.parquet"),
        ("publish.views", "p/../p/snapshots/x.duckdb", "publish.parquet"),
        ("store.path", "p/closings/x.duckdb", "publish.parquet"),
    ] {
        let refused = load_with(&[("publish.parquet", "p"), (key, path)]).unwrap_err().chain();
        assert!(refused.contains(&format!("which {owner} replaces")), "{key} {path}: {refused}");
    }
    load_with(&[("publish.parquet", "p"), ("publish.database", "p/x.duckdb")]).unwrap();
}

/// The required keys and these on the command line.
fn load_with(overrides: &[(&str, &str)]) -> Result<Config> {
    Folder::with(REQUIRED).load(&[], overrides)
}
