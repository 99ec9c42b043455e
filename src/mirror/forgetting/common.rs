//! Texts that are everybody's: what a column that is about no person says, as that of an office or a town. A detail of
//! somebody's that is the same tells nothing of who has it.

use std::collections::BTreeSet;

use duckdb::Connection;

use super::{PLACES, of};
use crate::catalog::Catalog;
use crate::decode::{Entry, Forgotten};
use crate::error::Result;
use crate::sql::{self, query};

/// What the values of such columns are known by, each as a whole.
///
/// # Errors
/// Those of the store.
pub(super) fn entries(
    conn: &Connection,
    catalog: &Catalog,
    list: &Forgotten,
) -> Result<BTreeSet<Entry>> {
    let mut all = BTreeSet::new();
    for resource in catalog.resources() {
        for column in resource.columns.iter().filter(|c| resource.is_of_no_person(c)) {
            let name = sql::ident(&column.name);
            let each = if column.kind.list { format!("unnest({name})") } else { name };
            for place in PLACES {
                let texts = format!("SELECT DISTINCT {each} FROM {}", of(place, resource));
                let texts: Vec<Option<String>> = query(conn, &texts, |row| row.get(0))?;
                all.extend(texts.iter().flatten().flat_map(|text| list.known_by(text)));
            }
        }
    }
    Ok(all)
}
