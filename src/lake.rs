//! The lake: the published mirror as DuckLake tables that any number of readers share (docs/lake.md).
//!
//! The store and the throttle stay on one machine; what is carried to the lake is the published file, which
//! nothing changes while it is open. All of it happens in a process of its own, `casemirror lake publish`:
//! DuckDB's extensions and their network clients are never loaded into the daemon, so that a crash of theirs
//! costs one publishing, and a hang ends with the process.
//!
//! A publishing is one transaction of the lake. It makes each table equal to the published one ([`carry`]), and
//! puts a row that says what the lake now shows ([`shown`]) beside them. So a reader sees all of a snapshot or
//! none of it, and what a crash interrupts is begun again from what the lake says of itself.

mod attaching;
mod carry;
mod child;
mod comments;
mod differing;
mod engine;
mod errand;
mod extensions;
mod keeping;
mod lease;
mod publishing;
mod secrets;
mod shown;
mod standing;
mod state;
mod tables;
mod tenants;
mod views;

pub(crate) use child::{Ended, run as run_child};
pub(crate) use errand::Errand;
pub(crate) use extensions::{check as check_extensions, install};
pub(crate) use lease::serve as serve_lease;
pub(crate) use publishing::{Carried, publish};
pub(crate) use standing::Standing;
pub(crate) use tenants::{is_script, script as views_of_tenants};
