//! The source: a sandbox in a process of its own, and what happens in it.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use casemirror::sandbox::{Act, Control, Facet, Options, Sandbox};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::runtime::Runtime;

/// Lines of the revenue journal per office and month: this bench is about cases.
const JOURNAL_LINES: usize = 10;
/// What happens to cases: rows change, come and go, about as many of each, so that there are as many in
/// the end.
const FACETS: [Facet; 20] = [
    Facet::Activity,
    Facet::ActivityEdited,
    Facet::ActivityEdited,
    Facet::ActivityRemoved,
    Facet::Description,
    Facet::Description,
    Facet::RoleAdded,
    Facet::RoleRemoved,
    Facet::Cost,
    Facet::Cost,
    Facet::CostAdded,
    Facet::CostRemoved,
    Facet::Attachment,
    Facet::AttachmentRemoved,
    Facet::Note,
    Facet::NoteEdited,
    Facet::NoteRemoved,
    Facet::EstimatedCosts,
    Facet::Information,
    Facet::SaleText,
];
/// A server's `Date` has whole seconds.
const DATE_SKEW_MS: i64 = 2_000;
/// Of so many changed cases one is deleted, and another one is new.
const ONE_LEAVES_OF: usize = 100;

/// Starts the sandbox, prints where it is, and serves until it is killed.
pub(crate) fn serve(cases: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime starts").block_on(async {
        let options = Options {
            cases,
            gzip: false,
            feed_calls: 1_000_000,
            feed_per: Duration::from_secs(1),
            token_lifetime: Duration::from_secs(86_400),
            journal_lines: Some(JOURNAL_LINES),
            ..Options::default()
        };
        let sandbox = Sandbox::start(options).await.expect("the sandbox starts");
        // Answers are as far behind a change as a search needs to know of it, so that none is asked twice.
        sandbox.control(Control::DateSkew { ms: DATE_SKEW_MS });
        let (id, secret) = (sandbox.client_id(), sandbox.client_secret());
        let ids: Vec<String> = sandbox.case_ids().iter().map(i64::to_string).collect();
        println!("{} {id} {secret} {}", sandbox.base_url(), ids.join(","));
        std::future::pending::<()>().await;
    });
}

/// The sandbox's process, which ends with this value.
pub(crate) struct Brokerage {
    pub(crate) base_url: String,
    pub(crate) client_id: String,
    pub(crate) client_secret: String,
    process: Child,
    http: reqwest::Client,
    runtime: tokio::runtime::Handle,
    cases: Vec<i64>,
    random: StdRng,
    changed: usize,
}

impl Drop for Brokerage {
    fn drop(&mut self) {
        // It has nothing to lose.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Brokerage {
    pub(crate) fn start(cases: usize, runtime: &Runtime) -> Brokerage {
        let program = std::env::current_exe().expect("a running program has a path");
        let mut process = Command::new(program)
            .args(["--part", "serve", "--cases", &cases.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the bench runs itself");
        let mut line = String::new();
        let stdout = process.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints its address");
        let [base_url, client_id, client_secret, ids] =
            line.split_whitespace().collect::<Vec<_>>()[..]
        else {
            panic!("the sandbox has not started: {line:?}");
        };
        // An error only says that there is a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Brokerage {
            base_url: base_url.to_owned(),
            client_id: client_id.to_owned(),
            client_secret: client_secret.to_owned(),
            process,
            http: reqwest::Client::new(),
            runtime: runtime.handle().clone(),
            cases: ids.split(',').map(|id| id.parse().expect("an id")).collect(),
            random: StdRng::seed_from_u64(1),
            changed: 0,
        }
    }

    /// Something happens to so many cases.
    pub(crate) fn change(&mut self, cases: usize) {
        let mut places = BTreeSet::new();
        while places.len() < cases.min(self.cases.len()) {
            places.insert(self.random.random_range(0..self.cases.len()));
        }
        // The last ones first: a case that leaves gives its place to the last of all.
        for place in places.into_iter().rev() {
            self.changed += 1;
            let case_id = self.cases[place];
            if self.changed.is_multiple_of(ONE_LEAVES_OF) {
                self.cases.swap_remove(place);
                self.act(&Act::DeleteCase { case_id });
                let new = self.act(&Act::NewCase { project: false, assignment: None });
                self.cases.extend(new);
                continue;
            }
            let facet = FACETS[self.random.random_range(0..FACETS.len())];
            for facet in [facet, Facet::Nothing] {
                self.act(&Act::Change { case_id: Some(case_id), facet, at: None });
            }
        }
    }

    /// Returns the ids of the cases concerned; none where there was nothing to do it to.
    fn act(&self, act: &Act) -> Vec<i64> {
        let body = serde_json::to_vec(act).expect("an act is JSON");
        let sent = self.http.post(format!("{}/sandbox/act", self.base_url)).body(body).send();
        let answer = self.runtime.block_on(async {
            let answer = sent.await.expect("the sandbox answers");
            answer.bytes().await.expect("with all of its answer")
        });
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap_or_default();
        let ids = answer["case_ids"].as_array().cloned().unwrap_or_default();
        ids.iter().filter_map(serde_json::Value::as_i64).collect()
    }
}
