//! The API's records, built from the world: one function per record, used for the wire, for
//! filters, and for the canonical state alike.

pub mod bookkeeping;
pub mod case_row;
pub mod conditions;
pub mod consents;
pub mod contact;
pub mod dossier;
pub mod economy;
pub mod journal;
pub mod on_case;
pub mod registers;
pub mod sale_row;
pub mod staff;
