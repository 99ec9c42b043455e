//! Cron expressions in their zone: when a schedule is due (pure).

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::{Error, Kind, Result};

/// The first time after `last` at which the expression fires.
///
/// # Errors
/// `Kind::Config` when it never does.
pub fn next(cron: &Cron, zone: &TimeZone, last: Timestamp) -> Result<Timestamp> {
    cron.find_next_occurrence(&last.to_zoned(zone.clone()), false)
        .map(|at| at.timestamp())
        .map_err(|e| Error::caused(Kind::Config, format!("the schedule {cron} never fires"), e))
}

/// Whether it fired after `last`, up to and including `now`.
pub fn due(cron: &Cron, zone: &TimeZone, last: Timestamp, now: Timestamp) -> Result<bool> {
    Ok(next(cron, zone, last)? <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_that_was_missed_is_due_once() {
        let cron: Cron = "15 4 * * *".parse().unwrap();
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let last = at("2026-11-20T03:15:00Z");
        assert!(!due(&cron, &zone, last, at("2026-11-21T03:14:59Z")).unwrap());
        assert!(due(&cron, &zone, last, at("2026-11-21T03:15:00Z")).unwrap());
        assert!(due(&cron, &zone, last, at("2026-12-24T00:00:00Z")).unwrap());
        let noted = at("2026-12-24T00:00:00Z");
        assert!(!due(&cron, &zone, noted, at("2026-12-24T00:00:01Z")).unwrap());
    }
}
