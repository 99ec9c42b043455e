//! What is published as the sources of a dbt project: `casemirror schema --format dbt`, and the project in
//! `examples/dbt` over it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use casemirror::sandbox::Act;
use duckdb::Connection;
use serde_json::Value;

use crate::readers::environment;
use crate::support::{World, follow, one, open_read_only, shown};

/// A world with the example's project beside its mirror.
struct Project {
    world: World,
    /// The programs of the environment.
    bin: PathBuf,
}

impl Project {
    fn new() -> Option<Project> {
        let bin = environment("dbt")?;
        let world = World::unthrottled(12);
        // The watermark follows the newest change until one has been seen as it happens.
        world.sandbox.act(&Act::Tick { events: 5 }).unwrap();
        copy(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/dbt")), &world.path("dbt"));
        fs::create_dir(world.path("resources")).unwrap();
        fs::write(world.path("resources/oddities.toml"), odd_table()).unwrap();
        let own = "[resources]\ndir = \"resources\"\ndisable = [\"oddities\"]\n";
        world.configure(&format!("{}{own}", follow::UNTHROTTLED));
        Some(Project { world, bin })
    }

    /// The sources as the command writes them, for the mirror's configuration as it is.
    fn write_sources(&self) {
        let output = self.world.run(&["schema", "--format", "dbt"]);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
        fs::write(self.world.path("dbt/models/casemirror.yml"), output.stdout).unwrap();
    }

    /// Runs dbt where nothing outside can be reached.
    fn dbt(&self, args: &[&str]) -> Output {
        let mut command = Command::new(self.bin.join("dbt"));
        command.current_dir(self.world.path("dbt")).args(args);
        command.args(["--profiles-dir", "."]);
        command.env("MIRROR_DATABASE", self.world.path("data/casemirror.duckdb"));
        command.env("DO_NOT_TRACK", "1");
        for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            command.env(proxy, "http://127.0.0.1:1");
        }
        command.output().unwrap()
    }

    fn artifact(&self, name: &str) -> Value {
        let file = self.world.path(&format!("dbt/target/{name}"));
        serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
    }

    /// The results of the last `dbt source freshness`: table and status.
    fn freshness(&self) -> Vec<(String, String)> {
        let results = self.artifact("sources.json")["results"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        results.iter().map(|result| (text(&result["unique_id"]), text(&result["status"]))).collect()
    }

    /// The models say what the reports say. dbt needs their file for itself: it is closed again.
    fn assert_models(&self) {
        let models = open_read_only(&self.world.path("dbt/models.duckdb"));
        let published = self.world.published();
        for (model, same) in [
            (
                "SELECT sum(signed_cases)::BIGINT FROM signed_cases_per_month",
                "SELECT sum(signed_cases)::BIGINT FROM report.signed_cases",
            ),
            (
                "SELECT (sum(total_cost) * 100)::BIGINT FROM total_cost_per_office",
                "SELECT (sum(total_cost) * 100)::BIGINT FROM report.total_cost WHERE office_id IS NOT NULL",
            ),
            (
                "SELECT sum(matching)::BIGINT FROM journal_reconciliation",
                "SELECT count(*) FROM report.journal_reconciliation WHERE status = 'matches'",
            ),
        ] {
            let of_source = one::<i64>(&published, same);
            assert!(of_source > 0, "{same}");
            assert_eq!(one::<i64>(&models, model), of_source, "{model}");
        }
    }

    fn builds(&self) {
        let build = self.dbt(&["build"]);
        assert!(build.status.success(), "{}", shown(&build));
        let results = self.artifact("run_results.json");
        let results = results["results"].as_array().unwrap();
        // Three models; a test for each key.
        assert!(results.len() > 100, "{}", results.len());
        for result in results {
            let status = result["status"].as_str().unwrap();
            assert!(["success", "pass"].contains(&status), "{result}");
        }
        self.assert_models();
    }

    fn is_fresh(&self) {
        let fresh = self.dbt(&["source", "freshness"]);
        assert!(fresh.status.success(), "{}", shown(&fresh));
        let tables = casemirror::catalog::Catalog::load(None).unwrap().names().len();
        let found = self.freshness();
        // Events are as old as what they tell of.
        assert_eq!(
            found.len(),
            tables - 1 + 2,
            "every table but one, one of our own, and the whole"
        );
        assert!(found.iter().all(|(_, status)| status == "pass"), "{found:?}");
    }

    fn has_any_comment_as_it_is(&self) {
        let manifest = self.artifact("manifest.json");
        let source = &manifest["sources"]["source.casemirror.casemirror.oddities"];
        assert_eq!(source["description"], MEANT);
        assert_eq!(source["columns"]["order"]["description"], MEANT);
    }

    /// Puts another file in the published one's place; what is published is written by nobody.
    fn damage(&self) {
        let damaged = self.world.path("damaged.duckdb");
        fs::copy(self.world.path("data/casemirror.duckdb"), &damaged).unwrap();
        fs::set_permissions(&damaged, Permissions::from_mode(0o600)).unwrap();
        let conn = Connection::open(&damaged).unwrap();
        let ago = |hours| {
            let at = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
            format!("TIMESTAMPTZ '{at}'")
        };
        let checked = |hours, table| {
            let at = ago(hours);
            format!("UPDATE sync.freshness SET last_checked = {at} WHERE table_name = '{table}'")
        };
        let never = |table| {
            format!("UPDATE sync.freshness SET last_checked = NULL WHERE table_name = '{table}'")
        };
        let damage = [
            "INSERT INTO main.costs SELECT * FROM main.costs LIMIT 1".to_owned(),
            checked(29, "offices"),
            checked(29, "costs"),
            checked(54, "cases"),
            never("notes"),
            never("file_tags"),
            "UPDATE sync.resources SET status = 'forbidden' WHERE table_name = 'file_tags'"
                .to_owned(),
            format!("UPDATE sync.snapshot SET watermark = {}", ago(4)),
        ];
        conn.execute_batch(&damage.join("; ")).unwrap();
        conn.close().map_err(|(_, e)| e).unwrap();
        fs::rename(&damaged, self.world.path("data/casemirror.duckdb")).unwrap();
    }

    fn sees_the_damage(&self) {
        let test = self.dbt(&["test", "--select", "source:casemirror.costs"]);
        assert_eq!(test.status.code(), Some(1), "{}", shown(&test));
        let results = self.artifact("run_results.json");
        let failed: Vec<&str> = results["results"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|result| result["status"] != "pass")
            .map(|result| result["unique_id"].as_str().unwrap())
            .collect();
        assert_eq!(failed.len(), 1, "{failed:?}");
        assert!(failed[0].contains("unique_casemirror_costs"), "{failed:?}");

        let tables = ["cases", "costs", "file_tags", "notes", "offices"];
        let mut select: Vec<String> =
            tables.iter().map(|table| format!("source:casemirror.{table}")).collect();
        select.push("source:casemirror_report.snapshot".to_owned());
        let mut args = vec!["source", "freshness", "--select"];
        args.extend(select.iter().map(String::as_str));
        let stale = self.dbt(&args);
        assert_eq!(stale.status.code(), Some(1), "{}", shown(&stale));
        let mut found = self.freshness();
        found.sort();
        let expected = [
            ("casemirror.cases", "error"),
            // What is read when a case changes may be older than what has a schedule.
            ("casemirror.costs", "pass"),
            // It was never read, and is not given.
            ("casemirror.file_tags", "pass"),
            ("casemirror.notes", "error"),
            ("casemirror.offices", "warn"),
            ("casemirror_report.snapshot", "warn"),
        ];
        let expected = expected
            .map(|(table, status)| (format!("source.casemirror.{table}"), status.to_owned()));
        assert_eq!(found, expected);
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        // What somebody has run by hand stays where it is.
        if ["target", "logs"].iter().any(|name| entry.file_name() == *name) {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A text with whatever YAML, SQL and Jinja make something of, as a resource file has it.
const ODD: &str =
    "it's \\\"so\\\": # {{ no }} {% jinja %} {# at #} all - ø \\u0085 \\u2028 \\t \\\\ |";
/// The same as it is meant.
const MEANT: &str = "it's \"so\": # {{ no }} {% jinja %} {# at #} all - ø \u{85} \u{2028} \t \\ |";

/// A table that the source does not have and nobody asks for, whose key is a word of SQL.
fn odd_table() -> String {
    format!(
        "table = \"oddities\"\ncomment = \"{ODD}\"\nkey = [\"order\"]\npermissions = []\ngroup = \"list\"\n\
         schedule = \"reference\"\n\
         [read]\nmethod = \"GET\"\npath = \"/api/Oddities\"\nanswer = \"list\"\npaging = \"none\"\n\
         [[column]]\nfield = \"Order\"\ntype = \"int\"\ncomment = \"{ODD}\"\n"
    )
}

/// One test, because dbt takes its time to read a project.
#[test]
fn the_example_is_green_over_a_published_mirror_and_red_over_a_damaged_one() {
    let Some(project) = Project::new() else { return };
    project.world.sync();
    project.write_sources();
    project.builds();
    project.is_fresh();
    project.has_any_comment_as_it_is();
    project.damage();
    project.sees_the_damage();
}
