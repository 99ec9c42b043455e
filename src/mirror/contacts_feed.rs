//! Whether the source has a change feed of contacts for us, as far as was found out (docs/architecture.md, "What is
//! due").

use super::state::State;
use crate::error::Result;

/// Key of `sync.meta`.
const META: &str = "contacts_feed";

/// What is known of the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContactsFeed {
    /// Nothing speaks against it.
    Open,
    /// It is not there for us, and is not asked until the permissions are next read.
    Closed,
    /// It was closed, is tried again, and has not answered yet.
    Reopened,
}

impl ContactsFeed {
    /// As it stands in the store.
    const NAMES: [(ContactsFeed, &str); 3] = [
        (ContactsFeed::Open, "untried"),
        (ContactsFeed::Closed, "absent"),
        (ContactsFeed::Reopened, "reopened"),
    ];

    /// When the permissions were read: what was closed is tried again.
    pub(crate) fn tried_again(self) -> ContactsFeed {
        match self {
            ContactsFeed::Open => ContactsFeed::Open,
            ContactsFeed::Closed | ContactsFeed::Reopened => ContactsFeed::Reopened,
        }
    }
}

impl State<'_> {
    /// What is known of the contacts feed.
    pub(crate) fn contacts_feed(&self) -> Result<ContactsFeed> {
        let kept = self.meta(META)?;
        let known = ContactsFeed::NAMES.iter().find(|(_, name)| kept.as_deref() == Some(name));
        Ok(known.map_or(ContactsFeed::Open, |(feed, _)| *feed))
    }

    pub(crate) fn set_contacts_feed(&self, feed: ContactsFeed) -> Result<()> {
        let name = ContactsFeed::NAMES.iter().find(|(of, _)| *of == feed);
        self.set_meta(META, name.map_or("", |(_, name)| *name))
    }
}
