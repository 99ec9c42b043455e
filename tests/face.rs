//! What the daemon shows of itself over HTTP (contract, section 8).

use std::sync::Mutex;

use duckdb::Connection;
use serde_json::Value;

use crate::support::follow::assert_status;
use crate::support::web::{ask, found, get, page_of, sample};
use crate::support::{World, shown};

/// Where the page is unless somebody chooses another address.
const USUAL: &str = "127.0.0.1:8640";
/// One test at a time has it.
static AT_THE_USUAL: Mutex<()> = Mutex::new(());

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
    let policy = "content-security-policy: default-src 'none'; style-src 'sha256-";
    assert!(page.head.contains(policy) && !page.head.contains("unsafe"), "{}", page.head);
    assert!(page.body.contains("http-equiv=\"refresh\""), "it asks again");
    assert!(!get(&address, "/?refresh=off").body.contains("http-equiv"), "unless it is not to");
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
    daemon.stop();
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
    // The usual address, too: somebody else may have it already.
    let _turn = AT_THE_USUAL.lock();
    let _usual = std::net::TcpListener::bind(USUAL);
    for address in [address.as_str(), USUAL] {
        let output = world.run(&["--set", &format!("serve.listen={address}"), "run"]);
        assert_eq!(output.status.code(), Some(1), "{}", shown(&output));
        let said = shown(&output);
        assert!(said.contains(&format!("cannot listen to {address} (serve.listen)")), "{said}");
        assert_eq!(world.sandbox.stats().feed.calls, 0);
    }
}

#[test]
fn without_a_chosen_address_a_taken_one_is_no_reason_to_stop() {
    let world = World::unthrottled(3);
    let _turn = AT_THE_USUAL.lock();
    let _usual = std::net::TcpListener::bind(USUAL);
    let mut run = world.command(&["run"]);
    run.env_remove("CASEMIRROR_SERVE__LISTEN");
    let mut daemon = world.start_as_daemon(run);
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    daemon.wait_until("it says so, and goes on", || {
        log().contains("there is no status page") && log().contains("the mirror follows the source")
    });
    daemon.stop();
}

#[test]
fn what_readers_have_is_what_was_published_while_publishing_fails() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let (id, taken_at): (String, i64) = world
        .published()
        .query_row(
            "SELECT snapshot_id, epoch_us(taken_at) // 1_000_000 FROM report.snapshot",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    world.configure_eager("");
    // The name that it is written under, beside its own, is too long for the file system.
    let database = format!("publish.database=data/{}.duckdb", "x".repeat(240));
    let mut daemon = world.start_daemon_with(&["--set", &database]);
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    let address = page_of(&mut daemon, log);
    let metrics = || get(&address, "/metrics").body;
    daemon.wait_until("publishing fails", || {
        let failed = "casemirror_publishes_total{result=\"failed\"}";
        found(&metrics(), failed).is_some_and(|failed| failed >= 1.0)
    });
    // What is said for a while may have been collected before.
    let polled = "casemirror_feed_last_poll_timestamp_seconds{feed=\"cases\"}";
    let before = found(&metrics(), polled).unwrap_or_default();
    let mut now = metrics();
    daemon.wait_until("it is collected anew", || {
        now = metrics();
        found(&now, polled).is_some_and(|polled| polled > before)
    });
    let shown = sample(&now, "casemirror_published_timestamp_seconds");
    assert_eq!(shown as i64, taken_at);
    let page = get(&address, "/").body;
    assert!(page.contains(&id), "{page}");
    // It is a problem until it succeeds, whatever else is well.
    assert!(sample(&now, "casemirror_problems") >= 1.0);
    let status: Value = serde_json::from_str(&get(&address, "/api/status").body).unwrap();
    assert!(status["published_behind_since"].is_string(), "{status}");
    let problems = status["problems"].to_string();
    assert!(
        problems.contains("publish.database: ") && problems.contains(" is behind since "),
        "{problems}"
    );
    daemon.stop();
    assert_status(&world.run(&["status", "--set", &database]), 3);
    // What is published elsewhere now is not behind.
    world.sync();
    assert_status(&world.run(&["status"]), 0);
}

#[test]
fn neither_failures_nor_a_restart_move_the_time_of_a_success_and_what_is_wrong_is_said() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let polled = "casemirror_feed_last_poll_timestamp_seconds{feed=\"cases\"}";
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    let address = page_of(&mut daemon, log);
    daemon.wait_until_idle();
    daemon.wait_until("it was polled", || found(&get(&address, "/metrics").body, polled).is_some());
    daemon.stop();

    // A source that is gone, and a daemon that has never reached it.
    let gone =
        ["--set", "source.base_url=http://127.0.0.1:9/", "--set", "resources.disable=[\"notes\"]"];
    let before: i64 = stored(
        &world,
        "SELECT max(epoch_us(polled_at)) // 1000000 FROM sync.feeds WHERE feed = 'cases'",
    );
    let mut daemon = world.start_daemon_with(&gone);
    let address = page_of(&mut daemon, log);
    let ready = || get(&address, "/readyz");
    daemon.wait_until("it says what is wrong", || {
        ready().body.contains("not polled completely yet: ")
    });
    assert_eq!(ready().status, 503);
    let metrics = get(&address, "/metrics").body;
    assert_eq!(sample(&metrics, "casemirror_ready").to_string(), "0");
    assert_eq!(sample(&metrics, polled).to_string(), before.to_string());
    let page = get(&address, "/").body;
    assert!(page.contains("Something needs attention"), "{page}");
    assert!(page.contains("not polled completely yet: "), "{page}");
    daemon.stop();
}

fn stored(world: &World, sql: &str) -> i64 {
    let store = Connection::open(world.path("data/store.duckdb")).unwrap();
    store.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_store_that_takes_nothing_is_not_ready_and_is_when_there_is_room_again() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let world = World::unthrottled(6);
    world.bootstrap();
    world.configure_eager("");
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    let mut daemon = world.start_daemon_on_a_disk();
    let address = page_of(&mut daemon, log);
    let ready = || get(&address, "/readyz");
    daemon.wait_until("it is ready", || ready().status == 200);

    let daemons = Pid::from_raw(daemon.id() as i32);
    let files_of = |bytes| {
        prlimit(daemons, Resource::Fsize, Rlimit { current: bytes, maximum: None }).unwrap();
    };
    files_of(Some(0));
    daemon.wait_until("it is not ready", || {
        let answer = ready();
        answer.status == 503 && answer.body.contains("the store does not work: ")
    });
    // A store that DuckDB has given up cannot be read either until it is opened anew.
    let metric = |name| {
        let answer = get(&address, "/metrics");
        (answer.status == 200).then(|| sample(&answer.body, name))
    };
    daemon.wait_until("the metrics say so", || metric("casemirror_ready") == Some(0.0));
    daemon.wait_until("it is a problem", || metric("casemirror_problems") > Some(0.0));
    daemon.wait_until("status says so", || {
        let status = world.run(&["status"]);
        status.status.code() == Some(3) && shown(&status).contains("the store does not work: ")
    });
    files_of(None);
    daemon.wait_until("it is ready again", || ready().status == 200);
    daemon.stop();
}
