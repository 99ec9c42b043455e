//! Reading parts of cases whole.

use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray};
use arrow::datatypes::Int64Type;
use duckdb::Connection;
use futures::future::BoxFuture;

use crate::catalog::Resource;
use crate::config::Config;
use crate::cycle::{may_be_too_many, scopes_of, since};
use crate::decode::{Decoded, Load};
use crate::error::{Error, Kind, Result};
use crate::extract::{Extractor, Found};
use crate::mirror::State;
use crate::scope::{Place, Version};

/// A table and the case it is read of.
pub(super) type Scope = (String, i64);

/// What one task asks for.
#[derive(Debug)]
pub(super) enum Ask {
    Scope(Arc<Resource>, i64),
    /// Many ids in one call.
    Search(Arc<Resource>, Place, Vec<i64>),
}

/// What came of it.
pub(super) enum Answer {
    Scope(Scope, Result<Load>),
    Search(Arc<Resource>, Result<Found>),
    /// Of the search so many ids may be too many.
    TooMany(Arc<Resource>, Place, Vec<i64>),
}

impl Ask {
    /// The table that is asked for.
    pub(crate) fn resource(&self) -> &Resource {
        match self {
            Ask::Scope(resource, _) | Ask::Search(resource, ..) => resource,
        }
    }

    /// Makes the calls.
    pub(crate) fn send(self, extractor: &Extractor) -> BoxFuture<'static, Answer> {
        let extractor = extractor.clone();
        match self {
            Ask::Scope(resource, id) => Box::pin(async move {
                let version = Version::Known(String::new());
                let read = extractor.scope(&resource, id, None, version.clone(), None).await;
                let load = match read {
                    // Nothing is there, and nothing may be mirrored.
                    Err(error) if error.kind() == Kind::NotFound => {
                        extractor.nothing(&resource, id, version)
                    }
                    read => read,
                };
                Answer::Scope((resource.table.clone(), id), load)
            }),
            Ask::Search(resource, place, ids) => Box::pin(async move {
                // Nothing of it is loaded, so that the number of the last poll does not matter.
                let found = extractor.search_ids(&resource, place, &ids, 0).await;
                match found {
                    Err(error) if may_be_too_many(&ids, &error) => {
                        // Where one alone is refused too, and it is not of that one, it is not their number.
                        let mut refused = error;
                        for id in ids.first().into_iter().chain(ids.last()) {
                            match extractor.search_ids(&resource, place, &[*id], 0).await {
                                Ok(_) => return Answer::TooMany(resource, place, ids),
                                Err(error) => refused = error,
                            }
                        }
                        Answer::Search(resource, Err(refused))
                    }
                    found => Answer::Search(resource, found),
                }
            }),
        }
    }
}

/// Whether a table has the rows of a search.
pub(super) fn is_search(table: &str) -> bool {
    table == Place::Cases.table() || table == Place::Projects.table()
}

/// Everything that is read of these cases, by the store on `conn`.
pub(super) fn scopes(
    conn: &Connection,
    config: &Config,
    active: &[Arc<Resource>],
    ids: &[i64],
) -> Result<Vec<Scope>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let cases = State::new(conn).verifications().cases(ids)?;
    let scopes = scopes_of(conn, &cases, active, since(config)?)?;
    // What stays when it has passed is no difference, and what another table gives may not be known.
    let whole = |table: &str| {
        let resource = active.iter().find(|resource| resource.table == table);
        resource.is_some_and(|r| r.lookup.is_none() && r.stays_after.is_none())
    };
    Ok(scopes
        .into_iter()
        .filter(|(table, _)| table != Place::Contacts.table() && whole(table))
        .collect())
}

/// The row of one id out of an answer of a search.
pub(super) fn only(decoded: &Decoded, resource: &Arc<Resource>, id: i64) -> Result<Decoded> {
    let broken = |e| Error::caused(Kind::Internal, "the rows of a search cannot be told apart", e);
    let key = decoded.rows.schema().index_of(&resource.key[0]).map_err(broken)?;
    let ids = decoded.rows.column(key).as_primitive::<Int64Type>();
    let own: BooleanArray = ids.iter().map(|own| Some(own == Some(id))).collect();
    let rows = arrow::compute::filter_record_batch(&decoded.rows, &own).map_err(broken)?;
    Ok(Decoded {
        resource: Arc::clone(resource),
        rows,
        rejects: Vec::new(),
        drift: Vec::new(),
        without_key: false,
        learned: Vec::new(),
        list: decoded.list,
        children: Vec::new(),
    })
}
