//! What the daemon shows of itself over HTTP (contract, section 8).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use duckdb::Connection;
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::{World, shown};

/// An answer of the daemon.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

/// Where the status page is, as the log says.
fn page_of(daemon: &mut Daemon<'_>, log: impl Fn() -> String) -> String {
    let address = || {
        let log = log();
        let (_, rest) = log.split_once("page=\"http://")?;
        rest.split_once("/\"").map(|(address, _)| address.to_owned())
    };
    daemon.wait_until("the page is served", || address().is_some());
    address().unwrap()
}

fn ask(address: &str, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path)
}

/// The samples of a scrape: what stands before a value, and the value.
fn sample(metrics: &str, name: &str) -> f64 {
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn page_health_metrics_and_status_say_the_same_of_a_mirror_that_is_well() {
    let world = World::unthrottled(12);
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    let address = page_of(&mut daemon, log);
    // With no row yet, too.
    assert_eq!(get(&address, "/").status, 200);
    assert_eq!(get(&address, "/metrics").status, 200);
    daemon.wait_until_idle();
    // What was collected a moment ago is said for a while.
    daemon.wait_until("the page says that all is well", || {
        get(&address, "/").body.contains("The mirror is complete and in step")
    });

    assert_eq!(get(&address, "/healthz").status, 200);
    let ready = get(&address, "/readyz");
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));

    let page = get(&address, "/");
    assert_eq!(page.status, 200);
    assert!(page.head.contains("content-security-policy: default-src 'none'"), "{}", page.head);
    assert!(!page.body.contains("<script"), "it needs none");

    let own: Value = serde_json::from_str(&get(&address, "/api/status").body).unwrap();
    let typed: Value = serde_json::from_slice(&world.run(&["status", "--json"]).stdout).unwrap();
    let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(&own), fields(&typed));
    let metrics = get(&address, "/metrics");
    assert_eq!(metrics.status, 200);
    let tables = typed["tables"].as_array().unwrap();
    assert!(tables.len() > 40);
    for table in tables {
        let name = table["table"].as_str().unwrap();
        assert!(page.body.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}");
        let rows = sample(&metrics.body, &format!("casemirror_rows{{table=\"{name}\"}}"));
        assert_eq!(rows.to_string(), table["rows"].to_string(), "{name}");
    }
    assert_eq!(sample(&metrics.body, "casemirror_ready").to_string(), "1");
    assert_eq!(sample(&metrics.body, "casemirror_complete").to_string(), "1");
    assert!(sample(&metrics.body, "casemirror_calls_total{result=\"2xx\"}") > 10.0);
    let polled = "casemirror_feed_last_poll_timestamp_seconds{feed=\"cases\"}";
    assert!(sample(&metrics.body, polled) > 1.7e9);
    let secret = world.sandbox.client_secret().to_owned();
    for answer in [&page, &metrics] {
        assert!(!answer.body.contains(&secret));
    }

    assert_eq!(get(&address, "/nothing").status, 404);
    assert_eq!(ask(&address, "POST", "/").status, 405);
    check_metrics(&metrics.body);
    daemon.stop();
}

/// Prometheus' own check of names, types and help texts.
fn check_metrics(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Some(command) = with_promtool(&mut command) else { return };
    let mut check = command.stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
}

/// The command, where promtool is installed; the gate installs it.
fn with_promtool(command: &mut Command) -> Option<&mut Command> {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    let required = std::env::var_os("CASEMIRROR_REQUIRE_PROMTOOL").is_some();
    assert!(found || !required, "promtool is missing (Debian: prometheus)");
    if !found {
        eprintln!("not checked: promtool is not installed (Debian: prometheus)");
    }
    found.then_some(command)
}

#[test]
fn the_alert_rules_fire_for_a_fault_each_and_for_nothing_else() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/prometheus");
    for args in
        [["check", "rules", "casemirror.rules.yml"], ["test", "rules", "casemirror.tests.yml"]]
    {
        let mut command = Command::new("promtool");
        let Some(command) = with_promtool(command.args(args).current_dir(&folder)) else { return };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
    }
}

/// Every metric that rules and dashboard ask for is one that there is.
#[test]
fn rules_and_dashboard_name_metrics_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let known = read("src/http/metrics.rs");
    let operations = read("docs/operations.md");
    let names = |text: &str| {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names = words.filter(|word| word.starts_with("casemirror_")).map(str::to_owned);
        names.collect::<std::collections::BTreeSet<_>>()
    };
    for file in ["packaging/prometheus/casemirror.rules.yml", "packaging/grafana/casemirror.json"] {
        let asked = names(&read(file));
        assert!(asked.len() > 5, "{file}");
        for name in asked {
            let base = name.strip_suffix("_bucket").unwrap_or(&name);
            assert!(known.contains(&format!("\"{base}\"")), "{file}: {name}");
        }
    }
    for name in names(&known) {
        assert!(operations.contains(&format!("`{name}`")), "{name} is not in docs/operations.md");
    }
    let _: Value = serde_json::from_str(&read("packaging/grafana/casemirror.json")).unwrap();
}

#[test]
fn what_comes_from_the_platform_is_text_on_the_page() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let evil = "<script>alert(1)</script>\u{1b}[31m";
    Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(&format!(
            "UPDATE sync.journal_scopes SET name = '{evil}'; UPDATE main.offices SET name = '{evil}'; \
             INSERT INTO sync.failures (table_name, id, attempts, first_at, next_at, kind, error) \
               VALUES ('costs', 1, 1, now(), make_timestamp(4000000000000000), 'server', '500: {evil}'); \
             INSERT INTO sync.verifications (run_id, verified_at, what, source, mirror, difference, standing) \
               VALUES (1, now(), 'cost of {evil}', 'Ola Nordmann', 'y', 'z', true);"
        ))
        .unwrap();
    let mut daemon = world.start_daemon();
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    let address = page_of(&mut daemon, log);
    let page = get(&address, "/");
    assert_eq!(page.status, 200, "{}", page.body);
    assert!(page.body.contains("The mirror differs from the source"), "{}", page.body);
    assert!(page.body.contains("&lt;script&gt;alert(1)"), "{}", page.body);
    assert!(!page.body.contains("<script") && !page.body.contains('\u{1b}'), "{}", page.body);
    assert!(!page.body.contains("Ola Nordmann"), "values stay in sync.verifications");
    daemon.stop();
}

#[test]
fn an_address_that_somebody_has_chosen_must_be_free() {
    let world = World::unthrottled(3);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = world.run(&["--set", &format!("serve.listen={address}"), "run"]);
    assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
    let said = shown(&output);
    assert!(said.contains(&format!("cannot listen to {address} (serve.listen)")), "{said}");
    assert_eq!(world.sandbox.stats().feed.calls, 0);
}
