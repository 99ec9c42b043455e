//! What was called: counters per endpoint, a bounded log, and what must never happen.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::throttle::Throttle;

/// Calls that the log keeps.
const LOG_LENGTH: usize = 20_000;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub method: String,
    /// The route's pattern, such as `/api/Cases/{case_id}/Roles`; empty for unknown paths.
    pub template: String,
    pub path: String,
    pub query: String,
    /// 0 where the connection was closed without an answer.
    pub status: u16,
    /// When it arrived, at 100 ns.
    pub at: String,
}

/// Counters of one endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    pub method: String,
    pub template: String,
    pub calls: u64,
    /// Calls by status, as text.
    pub(crate) statuses: BTreeMap<String, u64>,
}

/// The calls to both feeds together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedStats {
    pub calls: u64,
    /// Arrivals that were too many for their window.
    pub violations: u64,
    pub most_in_window: u64,
}

/// Everything that is counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// All calls to the API, the token endpoint included.
    pub calls: u64,
    pub endpoints: Vec<Endpoint>,
    pub feed: FeedStats,
    /// Calls that change data, or would have if they had not been refused.
    pub writes: u64,
    /// Reads that change the source, or return what must not be read, as `METHOD path?query`.
    pub never_to_do: Vec<String>,
    /// The latest calls, the oldest first.
    pub log: Vec<Call>,
}

impl Report {
    /// Calls of a method and route pattern.
    pub fn of(&self, method: &str, template: &str) -> u64 {
        let same = |e: &&Endpoint| e.method == method && e.template == template;
        self.endpoints.iter().find(same).map_or(0, |endpoint| endpoint.calls)
    }
}

/// The counters behind a [`Report`].
#[derive(Debug, Default)]
pub(crate) struct Stats {
    calls: u64,
    endpoints: BTreeMap<(String, String), Endpoint>,
    writes: u64,
    never_to_do: Vec<String>,
    log: VecDeque<Call>,
}

impl Stats {
    pub(crate) fn note(&mut self, call: Call) {
        self.calls += 1;
        self.writes += u64::from(changes_data(&call));
        if is_never_to_do(&call) {
            self.never_to_do.push(format!("{} {}?{}", call.method, call.path, call.query));
        }
        let key = (call.template.clone(), call.method.clone());
        let endpoint = self.endpoints.entry(key).or_insert_with(|| Endpoint {
            method: call.method.clone(),
            template: call.template.clone(),
            ..Endpoint::default()
        });
        endpoint.calls += 1;
        *endpoint.statuses.entry(call.status.to_string()).or_default() += 1;
        if self.log.len() >= LOG_LENGTH {
            self.log.pop_front();
        }
        self.log.push_back(call);
    }

    pub(crate) fn report(&self, throttle: &Throttle) -> Report {
        let (calls, violations, most_in_window) = throttle.counts();
        Report {
            calls: self.calls,
            endpoints: self.endpoints.values().cloned().collect(),
            feed: FeedStats { calls, violations, most_in_window },
            writes: self.writes,
            never_to_do: self.never_to_do.clone(),
            log: self.log.iter().cloned().collect(),
        }
    }
}

/// Whether the call is no read: of the POSTs only the token and the searches are.
fn changes_data(call: &Call) -> bool {
    match call.method.as_str() {
        "GET" | "HEAD" | "OPTIONS" => false,
        "POST" => {
            !(call.path == "/authtoken"
                || call.path.starts_with("/api/Search/Advanced")
                || call.path.ends_with("/Directory/Search")
                || call.path.ends_with("/Relations/Contacts/Extended"))
        }
        // A control total that is asked with a body.
        "PUT" => !call.path.ends_with("/RevenueJournals/Sum"),
        _ => true,
    }
}

/// The field notes' "reads that change the source: never do these".
fn is_never_to_do(call: &Call) -> bool {
    let path = call.path.to_ascii_lowercase();
    let publications = path.starts_with("/api/cases/") && path.ends_with("/publications");
    path.ends_with("/fullidentitynumber")
        || path.ends_with("/estimatedcosts/true")
        || (publications && !call.query.contains("returnOnlyExisting=true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, path: &str, query: &str) -> Call {
        Call {
            method: method.to_owned(),
            template: String::new(),
            path: path.to_owned(),
            query: query.to_owned(),
            status: 200,
            at: String::new(),
        }
    }

    #[test]
    fn reads_that_change_the_source_are_noted() {
        assert!(is_never_to_do(&call("GET", "/api/Cases/7/Publications", "")));
        assert!(!is_never_to_do(&call(
            "GET",
            "/api/Cases/7/Publications",
            "returnOnlyExisting=true"
        )));
        assert!(is_never_to_do(&call("GET", "/api/Persons/7/FullIdentityNumber", "")));
        assert!(is_never_to_do(&call("GET", "/api/Conditions/Cases/7/EstimatedCosts/true", "")));
    }

    #[test]
    fn searches_are_reads_and_drafts_are_not() {
        assert!(!changes_data(&call("POST", "/api/Search/AdvancedContactSearch", "")));
        assert!(!changes_data(&call("POST", "/authtoken", "")));
        assert!(changes_data(&call(
            "POST",
            "/api/Integrations/Bookkeeping/Cases/1/EntryDrafts",
            ""
        )));
        assert!(changes_data(&call("PATCH", "/api/Conditions/Properties/1/Costs/2/Buyer", "")));
    }
}
