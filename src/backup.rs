//! What cannot be fetched again, in one file: taken while the store is in use, and made a store again
//! (docs/operations.md, "Keeping a copy").
//!
//! The history, closings and restatements, the names of journal lines, the instants that rows were written
//! at, and the list of forgotten persons are all over the store: so the backup has the whole of it, as it was
//! committed at one moment, with the secrets and the feed's ledger beside it.

mod archive;
mod restore;
mod take;

pub(crate) use archive::About;
pub(crate) use restore::{Restored, restore};
pub(crate) use take::{Pinning, Taken, check_new, identity_of, resolved, take, take_alone};
