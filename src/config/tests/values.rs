//! What a setting may be, and what is said where it is not.

use std::os::unix::fs::PermissionsExt;

use super::*;

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
      DIR/casemirror.toml:16: journals.close_day = 31: must be a whole number from 0 to 28
      DIR/casemirror.toml:17: journals.ids = [3, 3]: must be a list of ids, each a whole number above zero and there once, such as [3, 17]
      environment variable CASEMIRROR_STORE_PATH: store_path: there is no such key; did you mean CASEMIRROR_STORE__PATH?
      environment variable CASEMIRROR_STORE__MEMORY_LIMIT: store.memory_limit = "lots": must be a size of at least 64MB in DuckDB's notation, such as "400MB" or "1GB"
      command line: client_id: there is no such key; did you mean source.client_id?
      command line: reconcile.max_removed = 2: must be a number from 0 to 1, such as 0.02 for two in a hundred
    "#);
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
    "must be a duration from 100ms to 7 days, such as \"90s\", \"10m\" or \"2h 30m\", or \"0s\" for off"
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
#[case("publish", "parquet = \"data/store.duckdb\"", "must be another file than store.path")]
#[case(
    "publish",
    "database = \"x/../data/./store.duckdb\"",
    "must be another file than store.path"
)]
#[case(
    "publish",
    "parquet = \"data/casemirror.duckdb\"",
    "must be another file than publish.database"
)]
#[case("feed", "ledger = \"data/store.duckdb\"", "must be another file than store.path")]
#[case("store", "path = \"~/store.duckdb\"", "must name the folder itself: ~ stands for none here")]
#[case("lake", "data = \"lake\"", "lake.catalog must be set, too: there is no lake without it")]
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
#[case(
    "schedule",
    "verify = \"0 6 * * Mon#2\"",
    "the weekday \"Mon#2\" is not understood; allowed are *, names (Sun, Mon, Tue, Wed, Thu, Fri, Sat), ranges such as Mon-Fri, steps such as */2 or Mon-Fri/2, and lists of these"
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
#[case("resources", "dir = 12", "must be a path, as a text in quotes")]
#[case("journals", "trailing_months = 0", "must be a whole number from 1 to 120")]
#[case("journals", "close_day = 29", "must be a whole number from 0 to 28")]
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
#[case("0 6 * * */2")]
#[case("0 6 * * Mon-Sat/2")]
#[case("0 6 29 2 *")]
fn a_cron_expression_may_use_names_and_steps(#[case] expression: &str) {
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

#[test]
fn tables_that_the_catalog_does_not_have_are_named_with_their_place() {
    let folder = Folder::with(&format!(
        "{REQUIRED}[resources]\ndisable = [\"cases\", \"activites\"]\n[history]\ntables = [\"xyz\"]\n"
    ));
    let text = folder.refusal(&[], &[("feed.poll", "soon")]);
    insta::assert_snapshot!(text, @r#"
    the configuration is refused for 3 reasons:
      DIR/casemirror.toml:6: resources.disable = ["cases", "activites"]: there is no table "activites"; did you mean "activities"?
      DIR/casemirror.toml:8: history.tables = ["xyz"]: there is no table "xyz"; `casemirror schema` lists them
      command line: feed.poll = "soon": must be a duration from 100ms to 1day, such as "90s", "10m" or "2h 30m"
    "#);
    // Which tables there are is known only where the resource files are right.
    let layers = Layers::defaults().file(&folder.path()).unwrap();
    layers.read(Scope::Whole, |_| None).unwrap();
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
fn what_is_dangerous_is_told_and_allowed() {
    let text = |base: &str, secret: &str| {
        format!("[source]\nbase_url = \"{base}\"\nclient_id = \"x\"\n{secret}\n")
    };
    let folder = Folder::with("");
    let cautions = |content: String, mode: u32| {
        folder.write("casemirror.toml", &content);
        let set = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(), set).unwrap();
        folder.load(&[], &[]).unwrap().cautions().join("\n")
    };
    let inline = "client_secret = \"hunter2\"";
    for base in
        ["https://api.example.com/", "http://127.0.0.1:9/", "http://localhost:9/", "http://[::1]/"]
    {
        assert_eq!(cautions(text(base, inline), 0o600), "", "{base}");
    }
    let told = cautions(text("http://api.example.com/", inline), 0o644);
    for words in ["travel unencrypted", "casemirror.toml holds source.client_secret", "mode 0644"] {
        assert!(told.contains(words), "{told}");
    }
    assert!(!told.contains("hunter2"), "{told}");
    let from = |day: &str| {
        let section = |name: &str| format!("[{name}]\nsince = \"{day}\"\n");
        let keys = ["journals", "bootstrap", "processing_bases"].map(section).concat();
        cautions(text("https://api.example.com/", inline) + &keys, 0o600)
    };
    assert_eq!(from("2024-03-01"), "");
    for key in ["journals.since", "bootstrap.since", "processing_bases.since"] {
        assert!(from("2099-01-01").contains(&format!("{key} = 2099-01-01 lies in the future")));
    }
    folder.write("key", "hunter2");
    let mine = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(folder.0.path().join("key"), mine).unwrap();
    for keys in [
        "[lake]\ncatalog = \"postgres:host=db password=hunter2\"\ndata = \"lake\"\n",
        "[alert]\nurl = \"https://alerts.example.com/hunter2\"\n",
    ] {
        let told = cautions(text("https://x/", "client_secret_file = \"key\"") + keys, 0o644);
        assert!(told.contains("casemirror.toml holds") && !told.contains("hunter2"), "{told}");
    }
    let open = "[lake]\ncatalog = \"postgresql://me@db/lake\"\ndata = \"lake\"\n";
    let key = "client_secret_file = \"key\"";
    assert_eq!(cautions(text("https://x/", key) + open, 0o644), "");
    // Of a secret that stands elsewhere the mode of that file counts.
    folder.write("secret", "hunter2");
    let file = folder.0.path().join("secret");
    for (mode, words) in [(0o600, ""), (0o640, "secret holds source.client_secret")] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let told = cautions(text("https://x/", "client_secret_file = \"secret\""), 0o644);
        assert!(told.contains(words) && told.is_empty() == words.is_empty(), "{told}");
    }
}

#[test]
fn the_store_is_a_file_of_which_duckdb_keeps_the_name_and_a_link_to_it_is_followed() {
    let folder = Folder::with(REQUIRED);
    std::fs::create_dir(folder.0.path().join("disk")).unwrap();
    let refusal = |key: &str, value: &str| folder.refusal(&[], &[(key, value)]);
    assert!(refusal("store.path", "disk").contains("must be a file, and DIR/disk is a folder"));
    for key in ["store.path", "publish.database", "publish.views", "lake.catalog"] {
        let said = refusal(key, "what?/x.duckdb");
        assert!(said.contains("must have no ? in it") && said.contains(key), "{said}");
    }
    for (key, file) in [
        ("store.path", "history.duckdb"),
        ("publish.database", "Report.v2.duckdb"),
        ("publish.views", ".sync"),
    ] {
        let said = refusal(key, file);
        assert!(said.contains("must have another name than") && said.contains(file), "{said}");
    }
    for file in ["main.duckdb", "reports.duckdb", "report/x.duckdb", "x.report.duckdb"] {
        assert!(folder.load(&[], &[("publish.database", file)]).is_ok(), "{file}");
    }
    let link = folder.0.path().join("link.duckdb");
    folder.write("disk/sync.duckdb", "");
    std::os::unix::fs::symlink("disk/sync.duckdb", &link).unwrap();
    assert!(refusal("store.path", "link.duckdb").contains("must have another name than sync"));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("disk/real.duckdb", &link).unwrap();
    assert!(refusal("store.path", "link.duckdb").contains("link.duckdb is a link: No such file"));
    folder.write("disk/real.duckdb", "");
    let config = folder.load(&[], &[("store.path", "link.duckdb")]).unwrap();
    let real = folder.0.path().canonicalize().unwrap().join("disk/real.duckdb");
    assert_eq!(config.store.path, real);
    folder.write("link.duckdb.secrets", "left");
    let said = refusal("store.path", "link.duckdb");
    assert!(said.contains("move DIR/link.duckdb.secrets to"), "{said}");
    folder.write("disk/real.duckdb.secrets", "there");
    folder.load(&[], &[("store.path", "link.duckdb")]).unwrap();
}

#[test]
fn a_limit_of_many_days_is_told_in_days() {
    let folder = Folder::with("[publish]\nkeep_for = \"11000 days\"\n");
    let text = folder.refusal(&[], &[]);
    assert!(text.contains("must be a duration from 0s to 3650 days, such as"), "{text}");
}

/// What begins as an address does where one may stand is a path elsewhere, and kept apart as any other.
#[test]
fn a_path_with_a_colon_is_a_path_to_the_rules_that_hold_files_apart() {
    let both =
        "[store]\npath = \"s3:/m/store.duckdb\"\n[publish]\ndatabase = \"s3:/m/store.duckdb\"";
    let error = Folder::with(&format!("{REQUIRED}{both}")).load(&[], &[]).unwrap_err().chain();
    assert!(error.contains("must be another file than store.path"), "{error}");
}
