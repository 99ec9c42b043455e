//! Answers become rows: JSON text in, Arrow record batches out, value by value.
//!
//! A *value* that does not fit its column leaves it NULL, stays in `_extra` and is noted; the row is
//! loaded. A *record* without a usable key is rejected whole (docs/architecture.md, "Values").
//! Unknown fields go to `_extra` and are reported as drift. Privacy is applied here, before
//! anything is stored.

mod builder;
mod canonical;
mod catching_up;
mod cut;
mod decoder;
mod forgotten;
mod hashes;
mod learned;
mod load;
mod privacy;
mod reading;
mod record;
mod rejects;
mod rewrite;
mod slots;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use arrow::array::RecordBatch;
use jiff::tz::TimeZone;

pub use decoder::Decoder;
pub(crate) use forgotten::{Cleared, Entry, FORGOTTEN, Forgotten, Part};
pub(crate) use learned::{Learned, Telling};
pub(crate) use load::{Load, LoadKind, LoadedScope};
pub use privacy::Privacy;
pub(crate) use reading::Reading;
pub(crate) use rewrite::Classes;
pub(crate) use value::decimal_text;

use crate::catalog::Resource;
use crate::error::{Error, Kind, Result};

/// What every decoder of a run needs to know.
#[derive(Debug, Clone)]
pub struct Context {
    /// Zone of date-times without offset (`source.time_zone`).
    pub zone: TimeZone,
    pub privacy: Privacy,
    /// Tables that are not mirrored (`resources.disable`): of a record's list that is one's, nothing is
    /// read.
    pub disabled: Arc<[String]>,
    /// Counts how often columns were defined anew in this store: what an answer was decoded to before is not
    /// what is mirrored.
    pub generation: i64,
}

/// A value, or a whole record, that did not fit (`sync.rejects`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reject {
    pub(crate) table: String,
    /// The id of the scope that the record belongs to, where it says so; of several records the one of all.
    pub(crate) scope: Option<i64>,
    /// Key values joined by `/`; `#n` for the n-th record of an answer when it has no key; `#` for records
    /// that are not told one by one.
    pub(crate) record_key: String,
    /// `None`: the record was rejected whole.
    pub(crate) column: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) error: String,
}

/// A field that no column takes (`sync.drift`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Drift {
    pub(crate) table: String,
    pub(crate) field: String,
    pub(crate) example: Option<String>,
}

/// The rows of some answers.
#[derive(Debug)]
pub struct Decoded {
    pub(crate) resource: Arc<Resource>,
    pub rows: RecordBatch,
    pub(crate) rejects: Vec<Reject>,
    pub(crate) drift: Vec<Drift>,
    /// A record came without a usable key: its scope must delete nothing.
    pub(crate) without_key: bool,
    /// What rows about forgotten persons said that was not kept out elsewhere.
    pub(crate) learned: Vec<Learned>,
    /// The generation of the list of forgotten persons that it was decoded with ([`Forgotten::generation`]).
    pub(crate) list: u64,
    pub(crate) children: Vec<Decoded>,
}

impl Decoded {
    /// Adds what another page of the same table said.
    ///
    /// # Errors
    /// `Kind::Internal`: the two are not of one table.
    pub(crate) fn join(&mut self, other: Decoded) -> Result<()> {
        let schema = self.rows.schema();
        self.rows = arrow::compute::concat_batches(&schema, [&self.rows, &other.rows])
            .map_err(|e| Error::caused(Kind::Internal, "two pages do not fit together", e))?;
        self.rejects.extend(other.rejects);
        self.drift.extend(other.drift);
        self.without_key |= other.without_key;
        self.learned.extend(other.learned);
        self.list = self.list.min(other.list);
        for (own, others) in self.children.iter_mut().zip(other.children) {
            own.join(others)?;
        }
        Ok(())
    }

    /// Memory that the rows take, children included.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.get_array_memory_size() + self.children.iter().map(Decoded::bytes).sum::<usize>()
    }

    /// Whether any record, here or in a child table, came without a usable key.
    pub(crate) fn any_without_key(&self) -> bool {
        self.without_key || self.children.iter().any(Decoded::any_without_key)
    }

    /// Whether every record and value fitted, children's included.
    pub(crate) fn is_clean(&self) -> bool {
        self.rejects.is_empty() && !self.without_key && self.children.iter().all(Decoded::is_clean)
    }

    /// All rejects, children's included.
    pub(crate) fn all_rejects(&self) -> Vec<Reject> {
        let mut all = self.rejects.clone();
        for child in &self.children {
            all.extend(child.all_rejects());
        }
        all
    }

    /// All that was learned, children's included.
    pub(crate) fn all_learned(&self) -> Vec<&Learned> {
        let of_children = self.children.iter().flat_map(Decoded::all_learned);
        self.learned.iter().chain(of_children).collect()
    }

    /// All drift, children's included.
    pub(crate) fn all_drift(&self) -> Vec<Drift> {
        let mut all = self.drift.clone();
        for child in &self.children {
            all.extend(child.all_drift());
        }
        all
    }
}

/// A path parameter's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Param {
    Int(i64),
    Text(String),
}

impl fmt::Display for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Param::Int(i) => i.fmt(f),
            Param::Text(t) => t.fmt(f),
        }
    }
}

/// Path parameters by the name of their column.
pub type Params = BTreeMap<String, Param>;

#[cfg(test)]
mod tests;
