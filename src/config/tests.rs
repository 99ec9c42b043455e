//! The configuration as its users meet it: what loads, and what is said when it does not.

use std::ffi::OsString;

use rstest::rstest;
use secrecy::ExposeSecret;

use super::*;
use crate::error::Kind;

/// The smallest file that loads.
const REQUIRED: &str = "[source]\nbase_url = \"https://api.example.com\"\nclient_id = \"id\"\n\
                        client_secret = \"s3cret\"\n";

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(file: &str) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("casemirror.toml", file);
        folder
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("casemirror.toml")
    }

    fn load(&self, environment: &[(&str, &str)], overrides: &[(&str, &str)]) -> Result<Config> {
        let environment = environment.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let overrides: Vec<(String, String)> =
            overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Layers::defaults()
            .file(&self.path())?
            .environment(environment)
            .overrides(&overrides)
            .read(Scope::Whole)
    }

    /// The error's text, with the folder written as `DIR`.
    fn refusal(&self, environment: &[(&str, &str)], overrides: &[(&str, &str)]) -> String {
        let error = self.load(environment, overrides).expect_err("must be refused");
        assert_eq!(error.kind(), Kind::Config);
        assert_eq!(error.kind().exit_status(), 2);
        error.chain().replace(&self.0.path().display().to_string(), "DIR")
    }
}

fn load(file: &str) -> Config {
    Folder::with(file).load(&[], &[]).unwrap()
}

/// The lines after the first, one per violation.
fn violations(text: &str) -> Vec<&str> {
    text.lines().skip(1).map(str::trim).collect()
}

#[test]
fn the_required_keys_are_enough_and_all_others_have_the_contracts_defaults() {
    let folder = Folder::with(REQUIRED);
    let config = folder.load(&[], &[]).unwrap();
    let shown: Vec<String> = config
        .redacted_keys()
        .into_iter()
        .map(|(key, value)| format!("{key} = {value}").trim_end().to_owned())
        .collect();
    let shown = shown.join("\n").replace(&folder.0.path().display().to_string(), "DIR");
    insta::assert_snapshot!(shown, @r"
    bootstrap.since =
    feed.calls = 6
    feed.contacts_poll = 1m
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
    limits.concurrency = 4
    limits.journal_timeout = 10m
    limits.requests_per_second = 10
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
    reconcile.max_removed = 0.02
    reconcile.reread = changed
    resources.dir =
    resources.disable = []
    schedule.journals = 15 3 * * *
    schedule.journals_recheck = 15 5 * * 0
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
    source.client_secret = set
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
    assert_eq!(config.publish.parquet, Some(PathBuf::from("/elsewhere/parquet")));
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
    let config = load(&REQUIRED.replace("api.example.com", "example.com/gateway/v1"));
    assert_eq!(config.source.base_url.as_str(), "https://example.com/gateway/v1/");
    let url = config.source.base_url.join("api/User").unwrap();
    assert_eq!(url.as_str(), "https://example.com/gateway/v1/api/User");
}

#[test]
fn all_violations_are_reported_at_once_with_their_places() {
    let folder = Folder::with(
        r#"serve = 3
[source]
base_url = "ftp://api.example.com"
client_secert = "hunter2"
time_zone = "Europe/Olso"

[feed]
calls = "6"
pol = "10s"
per = "a while"

[limit]
concurrency = 4

[journals]
close_day = 31
ids = [3, 3]
"#,
    );
    let text = folder.refusal(
        &[("CASEMIRROR_STORE_PATH", "x"), ("CASEMIRROR_STORE__MEMORY_LIMIT", "lots")],
        &[("reconcile.max_removed", "2"), ("client_id", "x")],
    );
    assert!(!text.contains("hunter2"), "{text}");
    insta::assert_snapshot!(text, @r#"
    the configuration is refused for 16 reasons:
      DIR/casemirror.toml: source.client_id is missing: it must be the client id that the platform has given you
      DIR/casemirror.toml: source.client_secret is missing: it must be the client secret that the platform has given you, unless source.client_secret_file names a file that holds it
      DIR/casemirror.toml:1: serve: must be a section, written as [serve]
      DIR/casemirror.toml:3: source.base_url = "ftp://api.example.com": must be an address such as "https://api.example.com/", with http or https
      DIR/casemirror.toml:4: source.client_secert: there is no such key; did you mean source.client_secret?
      DIR/casemirror.toml:5: source.time_zone = "Europe/Olso": must be the name of a time zone, such as "Europe/Oslo" or "UTC"
      DIR/casemirror.toml:8: feed.calls = "6": must be a whole number from 1 to 10000
      DIR/casemirror.toml:9: feed.pol: there is no such key; did you mean feed.poll?
      DIR/casemirror.toml:10: feed.per = "a while": must be a duration from 100ms to 1day, such as "90s", "10m" or "2h 30m"
      DIR/casemirror.toml:13: limit.concurrency: there is no such key; did you mean limits.concurrency?
      DIR/casemirror.toml:16: journals.close_day = 31: must be a whole number from 1 to 28
      DIR/casemirror.toml:17: journals.ids = [3, 3]: must be a list of ids, each a whole number above zero and there once, such as [3, 17]
      environment variable CASEMIRROR_STORE_PATH: store_path: there is no such key; did you mean CASEMIRROR_STORE__PATH?
      environment variable CASEMIRROR_STORE__MEMORY_LIMIT: store.memory_limit = "lots": must be a size of at least 64MB in DuckDB's notation, such as "400MB" or "1GB"
      command line: client_id: there is no such key; did you mean source.client_id?
      command line: reconcile.max_removed = 2: must be a number from 0 to 1, such as 0.02 for two in a hundred
    "#);
}

#[test]
fn the_template_is_refused_until_it_is_filled_in() {
    let text = Folder::with(TEMPLATE).refusal(&[], &[]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused for 3 reasons:
      DIR/casemirror.toml:13: source.base_url = "<address of the API>": is still what `casemirror init` has written: put your own value in its place
      DIR/casemirror.toml:17: source.client_id = "<client id>": is still what `casemirror init` has written: put your own value in its place
      DIR/casemirror.toml:18: source.client_secret: is still what `casemirror init` has written: put your own value in its place
    "#);
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
    assert_eq!(config.redacted_keys(), folder.load(&[], &[]).unwrap().redacted_keys());
}

/// One wrong value at a time: section and line of the file, and what is said about it.
#[rstest]
#[case(
    "source",
    "search_delay = \"-1s\"",
    "must be a duration from 0s to 1day, such as \"90s\", \"10m\" or \"2h 30m\""
)]
#[case(
    "source",
    "ca_file = \"missing.pem\"",
    "must name a PEM file that exists, and DIR/missing.pem is none"
)]
#[case("feed", "style = \"rest\"", "must be one of \"odata\", \"from_date\"")]
#[case("feed", "calls = 0", "must be a whole number from 1 to 10000")]
#[case("feed", "calls = 2.5", "must be a whole number from 1 to 10000")]
#[case("feed", "calls = 99999999999999999999", "must be a whole number from 1 to 10000")]
#[case(
    "feed",
    "per = 30",
    "must be a duration from 100ms to 1day, such as \"90s\", \"10m\" or \"2h 30m\""
)]
#[case(
    "feed",
    "poll = \"0s\"",
    "must be a duration from 100ms to 1day, such as \"90s\", \"10m\" or \"2h 30m\""
)]
#[case(
    "feed",
    "contacts_poll = true",
    "must be a duration from 100ms to 7days, such as \"90s\", \"10m\" or \"2h 30m\", or \"0s\" for off"
)]
#[case("limits", "requests_per_second = 10001", "must be a whole number from 1 to 10000")]
#[case("limits", "concurrency = 65", "must be a whole number from 1 to 64")]
#[case(
    "bootstrap",
    "since = \"2024-02-30\"",
    "must be a day from 1900-01-01 to 2100-12-31, written yyyy-mm-dd"
)]
#[case(
    "bootstrap",
    "since = 2024-01-01T10:00:00",
    "must be a day from 1900-01-01 to 2100-12-31, written yyyy-mm-dd"
)]
#[case("store", "path = \"\"", "must be a path")]
#[case(
    "store",
    "memory_limit = \"1\"",
    "must be a size of at least 64MB in DuckDB's notation, such as \"400MB\" or \"1GB\""
)]
#[case(
    "store",
    "memory_limit = \"1MB\"",
    "must be a size of at least 64MB in DuckDB's notation, such as \"400MB\" or \"1GB\""
)]
#[case(
    "store",
    "memory_limit = \"80%\"",
    "must be a size of at least 64MB in DuckDB's notation, such as \"400MB\" or \"1GB\""
)]
#[case("publish", "database = \"data/store.duckdb\"", "must be another file than store.path")]
#[case(
    "publish",
    "parquet = \"data/store.duckdb\"",
    "must be a folder, and store.path and publish.database are files"
)]
#[case("publish", "keep_snapshots = 0", "must be a whole number from 1 to 10000")]
#[case(
    "schedule",
    "journals = \"15 3 * * 0\"",
    "weekdays are written by name (Sun, Mon, Tue, Wed, Thu, Fri, Sat), because not all programs number them alike"
)]
#[case(
    "schedule",
    "journals = \"0 15 3 * * Mon-5\"",
    "weekdays are written by name (Sun, Mon, Tue, Wed, Thu, Fri, Sat), because not all programs number them alike"
)]
#[case(
    "schedule",
    "verify = \"@daily\"",
    "must be a cron expression of five fields (minute, hour, day, month, weekday), such as \"15 3 * * *\""
)]
#[case("schedule", "verify = \"0 0 30 Feb *\"", "never comes true: there is no such day")]
#[case(
    "schedule",
    "time_zone = \"Mars\"",
    "must be the name of a time zone, such as \"Europe/Oslo\" or \"UTC\""
)]
#[case(
    "journals",
    "ids = [3, 0]",
    "must be a list of ids, each a whole number above zero and there once, such as [3, 17]"
)]
#[case("journals", "trailing_months = 0", "must be a whole number from 1 to 120")]
#[case("journals", "close_day = 29", "must be a whole number from 1 to 28")]
#[case(
    "reconcile",
    "max_removed = nan",
    "must be a number from 0 to 1, such as 0.02 for two in a hundred"
)]
#[case(
    "reconcile",
    "max_removed = -0.1",
    "must be a number from 0 to 1, such as 0.02 for two in a hundred"
)]
#[case(
    "processing_bases",
    "since = \"\"",
    "must be a day from 1900-01-01 to 2100-12-31, written yyyy-mm-dd"
)]
#[case("resources", "disable = \"notes\"", "must be a list of table names, such as [\"notes\"]")]
#[case(
    "resources",
    "dir = \"casemirror.toml\"",
    "must name a folder that exists, and DIR/casemirror.toml is none"
)]
#[case(
    "history",
    "tables = \"some\"",
    "must be \"all\" or a list of table names, such as [\"cases\", \"costs\"]"
)]
#[case("privacy", "identifiers = \"mask\"", "must be one of \"keep\", \"hash\", \"drop\"")]
#[case(
    "serve",
    "listen = \"localhost:8640\"",
    "must be a numeric address and a port, such as \"127.0.0.1:8640\", or \"\" for off"
)]
#[case("serve", "webhooks = \"127.0.0.1:8640\"", "must be another address than serve.listen")]
#[case(
    "serve",
    "public_url = \"https://mirror.example.com\"",
    "serve.webhooks must be set, too: nothing would answer there"
)]
fn a_value_that_is_not_allowed_is_refused_with_the_rule(
    #[case] section: &str,
    #[case] line: &str,
    #[case] rule: &str,
) {
    let text =
        Folder::with(&format!("{REQUIRED}\n[{section}]\n{line}\n").replace("\n[source]", ""))
            .refusal(&[], &[]);
    let found = violations(&text);
    let key = line.split(' ').next().unwrap();
    let place = if section == "source" { 6 } else { 7 };
    assert_eq!(found.len(), 1, "{text}");
    assert!(
        found[0].starts_with(&format!("DIR/casemirror.toml:{place}: {section}.{key} = ")),
        "{text}"
    );
    assert!(found[0].ends_with(&format!(": {rule}")), "{text}");
}

#[rstest]
#[case("15 3 * * *")]
#[case("0 15 3 * * *")]
#[case("*/10 * * * Mon-Fri")]
#[case("0 6 * * MON#2")]
#[case("0 6 * * */2")]
#[case("0 6 * * Mon-Sat/12")]
#[case("0 6 29 2 *")]
fn a_cron_expression_may_use_names_steps_and_counts(#[case] expression: &str) {
    load(&format!("{REQUIRED}[schedule]\nverify = \"{expression}\"\n"));
}

#[rstest]
#[case("400MB", true)]
#[case("1.5 GiB", true)]
#[case("2 gigabytes", true)]
#[case("none", false)]
#[case("-1", false)]
#[case("1.2.3GB", false)]
#[case("99999999TB", false)]
fn a_memory_limit_is_what_duckdb_understands(#[case] size: &str, #[case] is_allowed: bool) {
    let folder = Folder::with(REQUIRED);
    assert_eq!(folder.load(&[], &[("store.memory_limit", size)]).is_ok(), is_allowed);
}

#[rstest]
#[case("https://user:pa55@example.com")]
#[case("https://example.com/?key=pa55")]
#[case("https://pa55@exa mple.com")]
fn an_address_that_may_hold_a_secret_is_not_shown(#[case] address: &str) {
    let text = Folder::with(REQUIRED).refusal(&[], &[("source.base_url", address)]);
    assert!(text.contains("command line: source.base_url: must"), "{text}");
    assert!(!text.contains("pa55"), "{text}");
}

#[test]
fn the_secret_of_a_file_loses_its_line_end_and_nothing_else() {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"secret\""),
    );
    folder.write("secret", " s3 cret \r\n");
    assert_eq!(folder.load(&[], &[]).unwrap().source.client_secret.expose_secret(), " s3 cret ");
}

#[rstest]
#[case::empty("\n", "DIR/secret: is empty")]
#[case::two_lines("hunter2\nhunter3\n", "DIR/secret: has more than one line")]
fn a_secret_file_that_holds_no_secret_is_named(#[case] content: &str, #[case] problem: &str) {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"secret\""),
    );
    folder.write("secret", content);
    let text = folder.refusal(&[], &[]);
    assert!(violations(&text)[0].ends_with(problem), "{text}");
    assert!(!text.contains("hunter"), "{text}");
}

#[test]
fn a_secret_file_that_cannot_be_read_is_named() {
    let folder = Folder::with(
        &REQUIRED.replace("client_secret = \"s3cret\"", "client_secret_file = \"none\""),
    );
    let text = folder.refusal(&[], &[]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused:
      DIR/casemirror.toml:4: source.client_secret_file = "none": DIR/none: cannot read it: No such file or directory (os error 2)
    "#);
}

#[test]
fn only_one_kind_of_secret_may_be_set() {
    let folder = Folder::with(REQUIRED);
    let text = folder.refusal(&[("CASEMIRROR_SOURCE__CLIENT_SECRET_FILE", "secret")], &[]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused:
      environment variable CASEMIRROR_SOURCE__CLIENT_SECRET_FILE: source.client_secret_file = "secret": source.client_secret is set, too (DIR/casemirror.toml:4); only one of them may be
    "#);
    // An empty value in a higher layer takes it away again.
    assert!(folder.load(&[("CASEMIRROR_SOURCE__CLIENT_SECRET_FILE", "")], &[]).is_ok());
}

#[test]
fn a_secret_of_the_wrong_type_is_not_shown() {
    let text = Folder::with(&REQUIRED.replace("\"s3cret\"", "20011")).refusal(&[], &[]);
    assert!(text.contains("casemirror.toml:4: source.client_secret: must be"), "{text}");
    assert!(!text.contains("20011"), "{text}");
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
    let error = Config::load(Path::new("/nowhere/casemirror.toml"), &[]).unwrap_err();
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
        ("CASEMIRROR_SERVICE_HOST", "10.0.0.1"),
        ("CASEMIRROR_SERVICE_PORT_HTTP", "8640"),
        ("CASEMIRROR_PORT", "tcp://10.0.0.1:8640"),
        ("CASEMIRROR_PORT_8640_TCP_ADDR", "10.0.0.1"),
    ];
    folder.load(&foreign, &[]).unwrap();
}

#[test]
fn offline_commands_need_no_credentials_but_obey_the_rest() {
    let folder = Folder::with("[source]\nclient_secret_file = \"unreadable\"\n[feed]\ncalls = 0\n");
    let layers = Layers::defaults().file(&folder.path()).unwrap();
    let text = layers.read(Scope::Offline).unwrap_err().chain();
    assert_eq!(violations(&text).len(), 1, "{text}");
    folder.write("casemirror.toml", "[publish]\ndatabase = \"mine.duckdb\"\n");
    let config = Config::load_offline(Some(&folder.path()), &[]).unwrap();
    assert_eq!(config.publish.database, folder.0.path().join("mine.duckdb"));
    assert_eq!(config.source.base_url.host_str(), Some("source.invalid"));
}

#[test]
fn tables_that_the_catalog_does_not_have_are_named_with_their_place() {
    let folder = Folder::with(&format!(
        "{REQUIRED}[resources]\ndisable = [\"cases\", \"activites\"]\n[history]\ntables = [\"xyz\"]\n"
    ));
    let config = folder.load(&[], &[]).unwrap();
    config.check_tables(&["cases", "activites", "xyz"]).unwrap();
    let error = config.check_tables(&["cases", "activities"]).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
    let text = error.chain().replace(&folder.0.path().display().to_string(), "DIR");
    insta::assert_snapshot!(text, @r#"
    the configuration is refused for 2 reasons:
      DIR/casemirror.toml:6: resources.disable: there is no table "activites"; did you mean "activities"?
      DIR/casemirror.toml:8: history.tables: there is no table "xyz"
    "#);
}

#[test]
fn the_polls_of_both_feeds_together_keep_within_the_throttle() {
    let mut feed = load(REQUIRED).feed;
    assert_eq!(feed.poll_interval(), Duration::from_secs(10));
    assert_eq!(feed.contacts_interval(), Some(Duration::from_secs(60)));
    // Twelve calls in 30 s would be made, six are allowed: both become twice as slow.
    feed.poll = Duration::from_secs(5);
    feed.contacts_poll = Some(Duration::from_secs(5));
    assert_eq!(feed.poll_interval(), Duration::from_secs(10));
    assert_eq!(feed.contacts_interval(), Some(Duration::from_secs(10)));
    feed.contacts_poll = None;
    feed.poll = Duration::from_secs(1);
    assert_eq!(feed.poll_interval(), Duration::from_secs(5));
    assert_eq!(feed.contacts_interval(), None);
}

#[test]
fn the_demo_writes_into_its_folder_and_is_quick() {
    let config = Config::for_demo(
        Url::parse("http://127.0.0.1:9/base").unwrap(),
        "id",
        SecretString::from("s3cret"),
        Path::new("/demo"),
    );
    let keys = config.redacted_keys();
    assert_eq!(keys["source.base_url"], "http://127.0.0.1:9/base/");
    assert_eq!(keys["limits.requests_per_second"], "2000");
    assert_eq!(keys["source.search_delay"], "1s");
    assert_eq!(keys["feed.calls"], "6");
    for path in ["store.path", "publish.database", "publish.parquet"] {
        assert_eq!(Path::new(&keys[path]).parent(), Some(Path::new("/demo")), "{path}");
    }
}

#[test]
fn no_text_made_of_a_configuration_holds_the_secret() {
    let config = load(REQUIRED);
    assert!(!format!("{config:?}").contains("s3cret"));
    let keys = config.redacted_keys();
    assert_eq!(keys["source.client_secret"], "set");
    assert!(keys.values().all(|value| !value.contains("s3cret")));
}

#[test]
fn the_redacted_keys_leave_no_key_out() {
    let folder = Folder::with(REQUIRED);
    let before = folder.load(&[], &[]).unwrap().redacted_keys();
    let named: Vec<&str> = before.keys().map(String::as_str).collect();
    let expected: Vec<&str> = {
        let mut names: Vec<&str> = keys::KEYS.iter().map(|key| key.name).collect();
        // The file is one of two ways to give the secret, and stands as `client_secret`.
        names.retain(|name| *name != "source.client_secret_file");
        names.sort_unstable();
        names
    };
    assert_eq!(named, expected);
}
