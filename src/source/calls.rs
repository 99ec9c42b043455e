//! The counts of `sync.calls`: what was asked of the source, per endpoint.

use crate::progress::Progress;
use crate::scope::CallStats;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Counts calls; shared by everything that sends.
#[derive(Debug)]
pub(super) struct CallCounts {
    endpoints: Mutex<BTreeMap<Arc<str>, CallStats>>,
    progress: Progress,
}

impl CallCounts {
    /// None was sent yet; each is told as progress.
    pub(super) fn new(progress: Progress) -> CallCounts {
        CallCounts { endpoints: Mutex::default(), progress }
    }

    pub(super) fn sent(&self, endpoint: &Arc<str>, again: bool) {
        self.update(endpoint, |stats| {
            stats.calls += 1;
            stats.retries += u64::from(again);
        });
        self.progress.called();
    }

    /// A call ended, with this status where there was an answer.
    pub(super) fn ended(
        &self,
        endpoint: &Arc<str>,
        status: Option<u16>,
        bytes: usize,
        time: Duration,
    ) {
        let result = match status {
            Some(200..300) => "2xx",
            Some(300..400) => "3xx",
            Some(400..500) => "4xx",
            Some(500..600) => "5xx",
            _ => "failed",
        };
        metrics::counter!("casemirror_calls_total", "result" => result).increment(1);
        metrics::counter!("casemirror_received_bytes_total").increment(bytes as u64);
        metrics::histogram!("casemirror_call_seconds").record(time);
        self.update(endpoint, |stats| {
            stats.bytes += bytes as u64;
            stats.time += time;
        });
    }

    pub(super) fn refused(&self, endpoint: &Arc<str>) {
        self.update(endpoint, |stats| stats.refusals += 1);
    }

    /// All counts since they were last taken, in order of the endpoints.
    pub(super) fn take(&self) -> Vec<CallStats> {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *endpoints).into_values().collect()
    }

    fn update(&self, endpoint: &Arc<str>, change: impl FnOnce(&mut CallStats)) {
        let mut endpoints = self.endpoints.lock().unwrap_or_else(PoisonError::into_inner);
        let stats = endpoints.entry(Arc::clone(endpoint)).or_insert_with(|| CallStats {
            endpoint: Arc::clone(endpoint),
            calls: 0,
            retries: 0,
            refusals: 0,
            bytes: 0,
            time: Duration::ZERO,
        });
        change(stats);
    }
}
