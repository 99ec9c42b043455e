//! What Prometheus makes of the metrics, the alert rules and the dashboard (`packaging`).

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::web::{get, page_of};
use crate::support::{World, shown};

const RULES: &str = "packaging/prometheus/casemirror.rules.yml";
const DASHBOARD: &str = "packaging/grafana/casemirror.json";

fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(in_project(path)).unwrap()
}

/// Whether Prometheus' programs are installed; the gate installs them.
fn has_prometheus() -> bool {
    let found = Command::new("promtool").arg("--version").output().is_ok();
    let required = std::env::var_os("CASEMIRROR_REQUIRE_PROMTOOL").is_some();
    assert!(found || !required, "promtool is missing (Debian: prometheus)");
    if !found {
        eprintln!("not checked: promtool is not installed (Debian: prometheus)");
    }
    found
}

#[test]
fn the_alert_rules_fire_for_a_fault_each_and_for_nothing_else() {
    if !has_prometheus() {
        return;
    }
    for args in
        [["check", "rules", "casemirror.rules.yml"], ["test", "rules", "casemirror.tests.yml"]]
    {
        let mut command = Command::new("promtool");
        command.args(args).current_dir(in_project("packaging/prometheus"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
    }
}

/// Every metric that rules and dashboard ask for is one that there is.
#[test]
fn rules_and_dashboard_name_metrics_that_there_are() {
    let known = read("src/http/metrics.rs");
    let operations = read("docs/operations.md");
    let names = |text: &str| {
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names = words.filter(|word| word.starts_with("casemirror_")).map(str::to_owned);
        names.collect::<std::collections::BTreeSet<_>>()
    };
    for file in [RULES, DASHBOARD] {
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
}

/// A Prometheus that scrapes one address every second; ended when it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn over(scraped: &str, folder: &Path) -> Server {
        let config = folder.join("prometheus.yml");
        let rules = in_project(RULES);
        std::fs::write(
            &config,
            format!(
                "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n\
                 rule_files: [{}]\n\
                 scrape_configs:\n  - job_name: casemirror\n    static_configs: [{{ targets: [\"{scraped}\"] }}]\n",
                rules.display()
            ),
        )
        .unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("prometheus.log")).unwrap())
            .spawn()
            .unwrap();
        Server { child, address }
    }

    /// What it says to a question; `None` while it is not there yet.
    fn data(&self, path: &str) -> Option<Value> {
        std::net::TcpStream::connect(&self.address).ok()?;
        let answer: Value = serde_json::from_str(&get(&self.address, path).body).ok()?;
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        Some(answer["data"].clone())
    }

    /// The samples that a query comes to.
    fn query(&self, query: &str) -> Vec<Value> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.data(&format!("/api/v1/query?query={escaped}"));
        data.map_or_else(Vec::new, |data| data["result"].as_array().unwrap().clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_prometheus_reads_the_metrics_answers_the_whole_dashboard_and_fires_no_rule() {
    if !has_prometheus() {
        return;
    }
    let world = World::unthrottled(6);
    world.bootstrap();
    let verified = world.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(0), "{}", shown(&verified));
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    let address = page_of(&mut daemon, log);
    daemon.wait_until_idle();
    // Something is published, and asked, while it is looked at.
    assert_eq!(world.run(&["sync", "--full"]).status.code(), Some(0));
    check_metrics(&get(&address, "/metrics").body);

    let prometheus = Server::over(&address, world.folder.path());
    daemon.wait_until("it was scraped twice", || {
        !prometheus.query("changes(up[1m]) == 0 and count_over_time(up[1m]) > 2").is_empty()
            && !prometheus.query("up == 1").is_empty()
    });
    let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let targets = dashboard["panels"].as_array().unwrap().iter();
    let queries: Vec<&str> = targets
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(queries.len() > 10);
    for query in queries {
        // Of a mirror that is well nothing waits, and no table is down.
        let is_empty = query.contains("== 0") || query.contains("> 0");
        let samples = prometheus.query(query);
        assert_eq!(samples.is_empty(), is_empty, "{query}: {samples:?}");
    }
    let rules = prometheus.data("/api/v1/rules").unwrap();
    let rules = rules["groups"][0]["rules"].as_array().unwrap();
    assert!(rules.len() > 5);
    for rule in rules {
        assert_eq!((&rule["health"], &rule["state"]), (&"ok".into(), &"inactive".into()), "{rule}");
    }
    daemon.stop();
}

/// Prometheus' own check of names, types and help texts.
fn check_metrics(metrics: &str) {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut check = command.stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
}
