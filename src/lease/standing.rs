//! How the lease stands, as the store remembers it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Whose the feeds are, as this host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Ours.
    Held,
    /// Nobody's: no lease can be held there, and who is configured for them asks.
    Unguarded,
    /// Ours, as soon as what others had under way is over.
    Settling,
    /// Another host's.
    Others,
    /// The register cannot be reached, and somebody else may ask.
    Unknown,
    /// Given back by this host.
    Released,
}

/// Kept in the store as JSON, so that `status` knows of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Of the register.
    pub(crate) place: String,
    pub(crate) state: State,
    /// Who holds it, where that is known.
    pub(crate) holder: Option<String>,
    /// Since when it is so.
    pub(crate) since: Timestamp,
    /// Why the register could not be reached. It holds no secret.
    pub(crate) error: Option<String>,
}

impl State {
    /// Whether this host may ask the feeds.
    pub(crate) fn may_ask(self) -> bool {
        match self {
            State::Held | State::Unguarded => true,
            State::Settling | State::Others | State::Unknown | State::Released => false,
        }
    }
}

impl Standing {
    /// Key of `sync.meta`.
    pub(crate) const KEY: &str = "lease";

    /// As the store has it, where it has it.
    pub(crate) fn parse(text: Option<&str>) -> Option<Standing> {
        serde_json::from_str(text?).ok()
    }

    /// As the store keeps it.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether both say the same, but for since when, and in which words the register was not reached.
    pub(crate) fn says_as(&self, other: &Standing) -> bool {
        let said = |s: &Standing| (s.place.clone(), s.state, s.holder.clone(), s.error.is_some());
        said(self) == said(other)
    }

    /// What a person has to know of it; `None`: the feeds are asked from here, as they should be.
    pub(crate) fn problem(&self) -> Option<String> {
        let holder = self.holder.as_deref().unwrap_or("another host");
        let why = self.error.as_deref().unwrap_or("it was not reached yet");
        let (place, since) = (&self.place, self.since);
        match (self.state, &self.error) {
            (State::Held, None) | (State::Unguarded | State::Settling | State::Released, _) => None,
            (State::Held, Some(error)) => Some(format!(
                "the lease of the change feeds in {place} cannot be reached since {since}; no other host is known \
                 here, so that they are asked all the same: {error}"
            )),
            (State::Others, _) => Some(format!(
                "the change feeds are asked by {holder}, which holds the lease in {place}, as seen since {since}: one \
                 host at a time asks them"
            )),
            (State::Unknown, _) => Some(format!(
                "the change feeds are not asked since {since}, because another host may ask them: the lease in \
                 {place} cannot be read: {why}"
            )),
        }
    }

    /// What nobody but a person can take care of.
    pub(crate) fn caution(&self) -> Option<String> {
        (self.state == State::Unguarded).then(|| {
            format!(
                "the change feeds are asked without a lease: where {} is, nothing can be written on a condition; no \
                 other host may be configured to ask them",
                self.place
            )
        })
    }

    /// What waits for its time.
    pub(crate) fn waits(&self) -> Option<String> {
        (self.state == State::Settling).then(|| {
            format!(
                "the lease of the change feeds was taken at {}: they are asked when what another host may have sent is over",
                self.since
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_and_tells_only_what_is_not_as_it_should_be() {
        let standing = |state, error: Option<&str>| Standing {
            place: "here".to_owned(),
            state,
            holder: Some("db7 (process 1)".to_owned()),
            since: Timestamp::UNIX_EPOCH,
            error: error.map(str::to_owned),
        };
        let held = standing(State::Held, None);
        assert_eq!(Standing::parse(Some(&held.text())), Some(held.clone()));
        assert_eq!(Standing::parse(Some("nonsense")), None);
        assert_eq!(held.problem(), None);
        assert_eq!(standing(State::Released, Some("gone")).problem(), None);
        let told = standing(State::Others, None).problem().unwrap();
        assert!(told.contains("asked by db7 (process 1)"), "{told}");
        for state in [State::Held, State::Unknown] {
            let told = standing(state, Some("no route")).problem().unwrap();
            assert!(told.ends_with("no route"), "{told}");
        }
        let later = Standing { since: Timestamp::MAX, ..held.clone() };
        assert!(held.says_as(&later) && !held.says_as(&standing(State::Unknown, None)));
        let (one, other) =
            (standing(State::Held, Some("one")), standing(State::Held, Some("other")));
        assert!(one.says_as(&other) && !one.says_as(&held));
    }
}
