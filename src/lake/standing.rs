//! How the lake stands, as the store remembers it: what it shows, and what is wrong with it.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::publishing::Carried;
use crate::error::Error;

/// Kept in the store as JSON, so that `status` and the next process know of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// See [`super::Errand::place`].
    place: String,
    /// The snapshot that the lake shows, and when it was taken.
    pub(crate) snapshot_id: Option<String>,
    pub(crate) taken_at: Option<Timestamp>,
    /// Which erasure from the store was the last before it; `None` where that is not known.
    #[serde(default)]
    pub(super) erasures: Option<String>,
    /// When it was last made, or found, equal to what was published.
    pub(crate) succeeded_at: Option<Timestamp>,
    /// Since when nothing could be carried to it, and why not. The text holds no secret.
    pub(crate) failing_since: Option<Timestamp>,
    /// When it was tried the last time, where that failed.
    pub(crate) failed_at: Option<Timestamp>,
    pub(crate) error: Option<String>,
    pub(crate) failures: u64,
}

impl Standing {
    /// Key of `sync.meta`.
    pub(crate) const KEY: &str = "lake";

    /// As the store has it; nothing is known where there is none, or where it is that of a lake in another place.
    pub(crate) fn parse(text: Option<&str>, place: &str) -> Standing {
        let known = text.and_then(|text| serde_json::from_str::<Standing>(text).ok());
        let of_place = known.filter(|known| known.place == place);
        of_place.unwrap_or_else(|| Standing { place: place.to_owned(), ..Standing::default() })
    }

    /// As the store keeps it.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// After a publishing that went well.
    pub(crate) fn succeed(&self, carried: &Carried, now: Timestamp) -> Standing {
        Standing {
            place: self.place.clone(),
            snapshot_id: Some(carried.snapshot_id.clone()),
            taken_at: Some(carried.taken_at),
            erasures: Some(carried.erasures.clone()),
            succeeded_at: Some(now),
            ..Standing::default()
        }
    }

    /// After one that failed.
    pub(crate) fn fail(self, error: &Error, now: Timestamp) -> Standing {
        Standing {
            failing_since: self.failing_since.or(Some(now)),
            failed_at: Some(now),
            error: Some(error.chain()),
            failures: self.failures + 1,
            ..self
        }
    }

    /// For how long it has failed, as far as it was tried.
    pub(crate) fn failed_for(&self) -> Option<SignedDuration> {
        Some(self.failed_at?.duration_since(self.failing_since?))
    }

    /// How far it is behind the published snapshot of this id; nothing where it shows just that, or where nothing was
    /// ever carried to it and it is not known since when it should be.
    pub(crate) fn behind(&self, published: Option<&str>, now: Timestamp) -> Option<Duration> {
        if published.is_none() || self.snapshot_id.as_deref() == published {
            return Some(Duration::ZERO);
        }
        let since = self.taken_at.or(self.failing_since)?;
        // Whatever the clock did since: none is not behind.
        let behind = now.duration_since(since).try_into().unwrap_or_default();
        Some(Duration::max(behind, Duration::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn failures_keep_their_beginning_and_what_the_lake_shows_and_success_ends_them() {
        let carried =
            Carried { snapshot_id: "one".to_owned(), taken_at: at(100), ..Carried::default() };
        let well = Standing::parse(None, "here").succeed(&carried, at(110));
        assert_eq!(well.behind(Some("one"), at(500)), Some(Duration::ZERO));
        assert_eq!(well.behind(Some("two"), at(500)), Some(Duration::from_secs(400)));
        let set_back = well.behind(Some("two"), at(50));
        assert_eq!(
            set_back,
            Some(Duration::from_secs(1)),
            "it shows another snapshot all the same"
        );
        let error = Error::new(Kind::Lake, "no way");
        let failing = well.fail(&error, at(200)).fail(&error, at(300));
        assert_eq!(failing.failing_since, Some(at(200)));
        assert_eq!(failing.failed_for(), Some(SignedDuration::from_secs(100)));
        assert_eq!((failing.failures, failing.snapshot_id.as_deref()), (2, Some("one")));
        assert_eq!(Standing::parse(Some(&failing.text()), "here"), failing);
        assert_eq!(Standing::parse(Some(&failing.text()), "there"), Standing::parse(None, "there"));
        let again = failing.succeed(&carried, at(400));
        assert_eq!((again.failing_since, again.failed_for()), (None, None));
        assert_eq!(again.error, None);
        assert_eq!(Standing::parse(Some("nonsense"), ""), Standing::default());
        assert_eq!(Standing::default().behind(Some("two"), at(1)), None);
    }
}
