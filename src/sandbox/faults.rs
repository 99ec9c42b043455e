//! Faults by vocabulary: scripted disturbances of single calls, ordered by tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::spoil::Spoil;

/// Which calls a fault befalls, and what happens to them.
///
/// ```json
/// {"method": "GET", "path": "/api/Cases/*/Activities", "query": "$skip", "nth": 2, "count": 1,
///  "fault": {"kind": "refuse", "status": 503, "headers": {"Retry-After": "1"}, "body": "{}"}}
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Only calls with this method; `DELIVER` is for deliveries to subscribers, whose path is the
    /// event type, and the query a part of the body. `lose_answer` has a delivery made once more,
    /// `drop` sends nothing, `refuse` answers in the subscriber's place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path below the base path; `*` stands for any text, slashes included.
    pub path: String,
    /// Only calls whose decoded query contains this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// The first of the matching calls that is hit, from 1.
    #[serde(default = "first")]
    pub nth: u64,
    /// How many matching calls are hit from there on; none given: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    pub fault: Fault,
}

/// The method of rules that are for deliveries.
const DELIVER: &str = "DELIVER";

fn first() -> u64 {
    1
}

/// What happens to a call.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Refused before anything is done.
    Refuse {
        status: u16,
        #[serde(default)]
        headers: HashMap<String, String>,
        #[serde(default)]
        body: String,
    },
    /// The answer comes this much later.
    Delay { ms: u64 },
    /// The answer's headers and the first `bytes` of its body come (half of it where none is
    /// given), then the connection is closed.
    CutOff {
        #[serde(default)]
        bytes: Option<usize>,
    },
    /// The work is done, but the answer has this body instead.
    Garbage {
        body: String,
        #[serde(default)]
        status: Option<u16>,
        #[serde(default)]
        content_type: Option<String>,
    },
    /// The work is done, and the answer is changed: `{"kind": "spoil", "how": "drop_record"}`.
    Spoil { how: Spoil },
    /// The work is done, and these are the bytes of the whole answer, after which the connection is
    /// closed: `{"kind": "raw", "answer": "HTTP/1.0 200 OK\r\n\r\n"}`.
    Raw { answer: String },
    /// The work is done, the connection is closed without an answer.
    LoseAnswer,
    /// The connection is closed before anything is done.
    Drop,
    /// The list endpoint ignores all OData parameters and answers with everything.
    IgnorePaging,
    /// The list endpoint reads `$top` and `$skip` only.
    SkipOnly,
    /// The list endpoint takes no larger `$top` than this.
    MaxTop { top: usize },
    /// Refused as by a web server that takes no query longer than these bytes.
    MaxQuery { bytes: usize, status: u16 },
    /// The call waits until [`Faults::release`] names it: before the answer is computed, or with
    /// the computed answer in hand.
    Hold { name: String, when: When },
}

/// When a held call waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Before,
    After,
}

/// How a test has changed a list endpoint's paging for one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Twist {
    pub(crate) ignore_paging: bool,
    pub(crate) skip_only: bool,
    pub(crate) max_top: Option<usize>,
}

/// All that befalls one call, in the order in which the rules were added.
#[derive(Debug, Clone, Default)]
pub(crate) struct Verdict {
    pub(crate) faults: Vec<Fault>,
}

impl Verdict {
    /// Whether an answer is wanted as its records are, not compressed.
    pub(crate) fn spoils(&self) -> bool {
        self.faults.iter().any(|fault| matches!(fault, Fault::Spoil { .. }))
    }

    /// The call's paging.
    pub(crate) fn twist(&self) -> Twist {
        let mut twist = Twist::default();
        for fault in &self.faults {
            match fault {
                Fault::IgnorePaging => twist.ignore_paging = true,
                Fault::SkipOnly => twist.skip_only = true,
                Fault::MaxTop { top } => twist.max_top = Some(*top),
                _ => {}
            }
        }
        twist
    }
}

/// The scripted faults and the calls that are being held. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    next_id: u64,
    rules: Vec<Script>,
    holds: HashMap<String, Gate>,
}

#[derive(Debug)]
struct Script {
    id: u64,
    rule: Rule,
    seen: u64,
    hit: u64,
}

/// A gate that held calls wait at.
#[derive(Debug, Clone)]
struct Gate {
    held: Arc<watch::Sender<usize>>,
    open: Arc<watch::Sender<bool>>,
}

impl Gate {
    fn new() -> Gate {
        Gate { held: Arc::new(watch::Sender::new(0)), open: Arc::new(watch::Sender::new(false)) }
    }
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a rule and answers its id.
    pub(crate) fn add(&self, rule: Rule) -> u64 {
        let mut inner = self.lock();
        inner.next_id += 1;
        let id = inner.next_id;
        if let Fault::Hold { name, .. } = &rule.fault {
            inner.holds.insert(name.clone(), Gate::new());
        }
        inner.rules.push(Script { id, rule, seen: 0, hit: 0 });
        id
    }

    /// Removes a rule; what it holds stays held until released.
    pub(crate) fn remove(&self, id: u64) {
        self.lock().rules.retain(|script| script.id != id);
    }

    /// Removes all rules and releases everything.
    pub(crate) fn clear(&self) {
        let mut inner = self.lock();
        inner.rules.clear();
        for (_, gate) in inner.holds.drain() {
            gate.open.send_replace(true);
        }
    }

    /// How many calls each rule has hit, by the id it was given.
    pub(crate) fn hits(&self) -> Vec<(u64, u64)> {
        self.lock().rules.iter().map(|script| (script.id, script.hit)).collect()
    }

    /// Lets all calls go that wait under this name, and holds no more under it.
    pub(crate) fn release(&self, name: &str) {
        let mut inner = self.lock();
        inner.rules.retain(
            |script| !matches!(&script.rule.fault, Fault::Hold { name: n, .. } if n == name),
        );
        if let Some(gate) = inner.holds.remove(name) {
            gate.open.send_replace(true);
        }
    }

    /// Waits until at least one call is held under this name. False where nothing is held within
    /// the time, or no rule holds under that name.
    pub(crate) async fn wait_until_held(&self, name: &str, at_most: Duration) -> bool {
        let Some(gate) = self.lock().holds.get(name).cloned() else { return false };
        let mut held = gate.held.subscribe();
        tokio::time::timeout(at_most, held.wait_for(|count| *count > 0)).await.is_ok()
    }

    /// Waits where a hold of this name stands, until it is released.
    pub(crate) async fn hold(&self, name: &str) {
        let Some(gate) = self.lock().holds.get(name).cloned() else { return };
        let mut open = gate.open.subscribe();
        gate.held.send_modify(|count| *count += 1);
        // The sender lives in `gate`, so waiting ends only when it is opened.
        let _ = open.wait_for(|is_open| *is_open).await;
    }

    /// What befalls this call; counts it.
    pub(crate) fn judge(&self, method: &str, path: &str, query: &str) -> Verdict {
        let decoded = percent_encoding::percent_decode_str(query).decode_utf8_lossy();
        self.judge_by(|rule| {
            rule.method.as_deref().is_none_or(|m| m.eq_ignore_ascii_case(method))
                && glob(&rule.path, path)
                && rule.query.as_deref().is_none_or(|part| decoded.contains(part))
                && !matches!(rule.fault, Fault::MaxQuery { bytes, .. } if query.len() <= bytes)
        })
    }

    /// What befalls this attempt of a delivery; counts it. Only rules with the method [`DELIVER`]
    /// are for deliveries.
    pub(crate) fn judge_delivery(&self, event_type: &str, body: &str) -> Verdict {
        self.judge_by(|rule| {
            rule.method.as_deref().is_some_and(|m| m.eq_ignore_ascii_case(DELIVER))
                && glob(&rule.path, event_type)
                && rule.query.as_deref().is_none_or(|part| body.contains(part))
        })
    }

    fn judge_by(&self, is_hit: impl Fn(&Rule) -> bool) -> Verdict {
        let mut inner = self.lock();
        let mut faults = Vec::new();
        for script in &mut inner.rules {
            let rule = &script.rule;
            if !is_hit(rule) {
                continue;
            }
            script.seen += 1;
            let last = rule.count.map_or(u64::MAX, |count| rule.nth.saturating_add(count));
            if script.seen >= rule.nth && script.seen < last {
                script.hit += 1;
                faults.push(rule.fault.clone());
            }
        }
        Verdict { faults }
    }
}

/// Whether the path fits the pattern, in which `*` stands for any text.
fn glob(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((head, rest)) => path.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).any(|at| tail.is_char_boundary(at) && glob(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(path: &str, nth: u64, count: Option<u64>) -> Rule {
        Rule {
            method: Some("GET".to_owned()),
            path: path.to_owned(),
            query: None,
            nth,
            count,
            fault: Fault::LoseAnswer,
        }
    }

    #[test]
    fn a_pattern_matches_with_stars() {
        assert!(glob("/api/Cases/*/Roles", "/api/Cases/17/Roles"));
        assert!(glob("*", "/anything"));
        assert!(!glob("/api/Cases/*/Roles", "/api/Cases/17/Activities"));
    }

    #[test]
    fn a_rule_hits_from_the_nth_call_on_and_count_times() {
        let faults = Faults::default();
        let id = faults.add(rule("/a", 2, Some(2)));
        let hits: Vec<usize> = (0..5).map(|_| faults.judge("GET", "/a", "").faults.len()).collect();
        assert_eq!(hits, [0, 1, 1, 0, 0]);
        assert!(faults.judge("POST", "/a", "").faults.is_empty());
        assert_eq!(faults.hits(), [(id, 2)]);
    }

    #[test]
    fn a_rule_is_read_from_json() {
        let text = r#"{"path": "/x", "fault": {"kind": "hold", "name": "slow", "when": "after"}}"#;
        let rule: Rule = serde_json::from_str(text).unwrap();
        assert!(matches!(rule.fault, Fault::Hold { when: When::After, .. }));
        assert_eq!((rule.nth, rule.count), (1, None));
    }

    #[tokio::test]
    async fn a_held_call_goes_on_when_it_is_released() {
        let faults = Faults::default();
        faults.add(Rule {
            fault: Fault::Hold { name: "slow".to_owned(), when: When::Before },
            ..rule("/a", 1, None)
        });
        let waiting = tokio::spawn({
            let faults = faults.clone();
            async move { faults.hold("slow").await }
        });
        assert!(faults.wait_until_held("slow", Duration::from_secs(5)).await);
        faults.release("slow");
        waiting.await.unwrap();
    }
}
