//! The API's records, built from the world: one function per record, used for the wire, for
//! filters, and for the canonical state alike.

pub(crate) mod bookkeeping;
pub(crate) mod case_row;
pub(crate) mod conditions;
pub(crate) mod consents;
pub(crate) mod contact;
pub(crate) mod dossier;
pub(crate) mod economy;
pub(crate) mod journal;
pub(crate) mod on_case;
pub(crate) mod registers;
pub(crate) mod sale_row;
pub(crate) mod staff;
