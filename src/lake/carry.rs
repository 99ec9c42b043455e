//! Makes one table of the lake equal to the published one, within the transaction of the publishing.
//!
//! What differs is found by comparing what the lake has with what is published ([`super::differing`]), so that whatever
//! was interrupted before, and whatever clock was set, the lake is equal afterwards. A table, or a month, whose change
//! counter stands is not looked at. Where the store has noted whose rows each change since wrote, only those are, until
//! house is kept.

use serde::{Deserialize, Serialize};

use super::differing::{self, Among, Differing};
use super::engine::{Engine, LAKE, PUBLISHED};
use super::shown::TableState;
use super::tables::Table;
use crate::error::Result;
use crate::sql;

/// Rows that were written and taken out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rows {
    pub(crate) written: u64,
    pub(crate) removed: u64,
}

impl Rows {
    pub(super) fn add(&mut self, other: Rows) {
        self.written += other.written;
        self.removed += other.removed;
    }

    /// Whether there were any.
    pub(super) fn any(self) -> bool {
        self.written + self.removed > 0
    }
}

/// What has to be done with a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is as it should be.
    Nothing,
    /// The lake does not have it.
    New,
    /// It has other columns, or none of its rows can be told to be as they were.
    Anew,
    /// What differs among these rows is written.
    Differences(Among),
    /// Rows were only added to what the lake has of this store: those are written. Where they are not all, what differs
    /// among these.
    Later(Among),
}

impl Way {
    /// For a table of which the lake says `before`; `there` are its columns in the lake, names and types, if it is
    /// there. `whole`: whose rows were written is not believed.
    pub(super) fn of(
        table: &Table,
        before: Option<&TableState>,
        there: Option<&Vec<(String, String)>>,
        whole: bool,
    ) -> Way {
        let Some(there) = there else { return Way::New };
        let own = table.columns.iter().map(|c| (c.name.as_str(), c.kind.as_str()));
        let columns_differ =
            !own.eq(there.iter().map(|(name, kind)| (name.as_str(), kind.as_str())));
        let Some(before) = before.filter(|before| !columns_differ && before.mark == table.mark)
        else {
            return Way::Anew;
        };
        let (Some(then), Some(now)) = (&before.changes, &table.changes) else {
            return Way::Differences(Among::All);
        };
        let differences = |among| {
            // Only numbers of rows are compared. In a store that was put back, or a lake that somebody else wrote to, they
            // can be right by chance.
            if table.only_grows && !whole && table.knows(before) {
                return Way::Later(among);
            }
            Way::Differences(among)
        };
        // In a store that was put back to an earlier state another change may have the same number.
        let is_unchanged = then == now && before.last_change.as_ref() == table.last_change();
        if is_unchanged && !(whole && before.is_partly_compared) {
            return Way::Nothing;
        }
        // Whose earlier versions were taken out is not noted.
        if !whole
            && !table.only_grows
            && let Some(changes) = table.noted_since(before)
        {
            return Way::Differences(Among::Changes(changes));
        }
        if !table.has_months || then.get("") != now.get("") {
            return differences(Among::All);
        }
        let parts = then.keys().chain(now.keys()).filter(|part| then.get(*part) != now.get(*part));
        let mut months: Vec<String> = parts.cloned().collect();
        months.sort();
        months.dedup();
        differences(Among::Months(months))
    }

    /// Whether rows are left that were not compared since the table was `before`, or not even then.
    pub(super) fn compares_partly(&self, before: Option<&TableState>) -> bool {
        match self {
            Way::Differences(Among::Changes(_)) | Way::Later(_) => true,
            Way::Nothing => before.is_some_and(|before| before.is_partly_compared),
            _ => false,
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// `Lake`.
    pub(super) fn go(&self, engine: &Engine, table: &Table) -> Result<Rows> {
        match self {
            Way::Nothing => Ok(Rows::default()),
            Way::New => {
                create(engine, table)?;
                insert(engine, table, "")
            }
            Way::Anew => {
                let lake = table.within(LAKE);
                let removed = engine
                    .one("count rows of the lake", &format!("SELECT count(*) FROM {lake}"))?;
                // Of a table that stays DuckLake keeps the smallest and largest values that ever stood in it,
                // erased ones too.
                engine.run("replace a table of the lake", &format!("DROP TABLE {lake}"))?;
                create(engine, table)?;
                let mut rows = insert(engine, table, "")?;
                rows.removed = i64::unsigned_abs(removed);
                Ok(rows)
            }
            Way::Differences(among) => differences(engine, table, among),
            Way::Later(among) => match appended(engine, table)? {
                Some(rows) => Ok(rows),
                None => differences(engine, table, among),
            },
        }
    }
}

fn create(engine: &Engine, table: &Table) -> Result<()> {
    let lake = table.within(LAKE);
    let columns: Vec<String> =
        table.columns.iter().map(|c| format!("{} {}", sql::ident(&c.name), c.kind)).collect();
    let doing = format!("make {} in the lake", table.path());
    engine.run(&doing, &format!("CREATE TABLE {lake} ({})", columns.join(", ")))?;
    if table.has_months {
        engine.run(&doing, &format!("ALTER TABLE {lake} SET PARTITIONED BY (journal_month)"))?;
    }
    Ok(())
}

fn insert(engine: &Engine, table: &Table, condition: &str) -> Result<Rows> {
    let columns = table.all_columns();
    let written = engine.write(
        &format!("write {} to the lake", table.path()),
        &format!(
            "INSERT INTO {} ({columns}) SELECT {columns} FROM {} AS t {condition}",
            table.within(LAKE),
            table.within(PUBLISHED)
        ),
    )?;
    Ok(Rows { written, removed: 0 })
}

fn delete(engine: &Engine, table: &Table, condition: &str) -> Result<u64> {
    engine.write(
        &format!("write {} to the lake", table.path()),
        &format!("DELETE FROM {} AS t {condition}", table.within(LAKE)),
    )
}

/// Writes all rows, in the place of those that are there.
fn anew(engine: &Engine, table: &Table) -> Result<Rows> {
    let removed = delete(engine, table, "")?;
    let mut rows = insert(engine, table, "")?;
    rows.removed = removed;
    Ok(rows)
}

/// Writes the rows that differ.
fn differences(engine: &Engine, table: &Table, among: &Among) -> Result<Rows> {
    match engine.comparing(|| differing::find(engine, table, among))? {
        Some(differing) => replace(engine, table, differing),
        None => Ok(Rows::default()),
    }
}

/// Takes out the rows that the lake should not have and writes those that it lacks, by their numbers. Where a number
/// means no row, or more than one, all rows are written anew.
fn replace(engine: &Engine, table: &Table, differing: Differing) -> Result<Rows> {
    let (gone, come) = (differing::GONE, differing::COME);
    let mut rows = Rows::default();
    if differing.gone > 0 {
        // Nothing but the numbers is read.
        let gone = format!("USING {gone} AS d WHERE t.rowid = d._number");
        rows.removed = engine.comparing(|| delete(engine, table, &gone))?;
    }
    if differing.come > 0 {
        rows.written =
            insert(engine, table, &format!("SEMI JOIN {come} AS d ON t.rowid = d._number"))?
                .written;
    }
    if (rows.removed, rows.written) != (differing.gone, differing.come) {
        return anew(engine, table);
    }
    Ok(rows)
}

/// Where nothing but later rows were added to a table since, writes those. The lake's rows and the later ones are all
/// that there are, or it is `None`, and the whole is compared.
fn appended(engine: &Engine, table: &Table) -> Result<Option<Rows>> {
    let (lake, published) = (table.within(LAKE), table.within(PUBLISHED));
    let last: Option<i64> =
        engine.one("read the lake", &format!("SELECT epoch_us(max(_valid_to)) FROM {lake}"))?;
    // As an instant, so that DuckDB leaves alone what is all earlier.
    let later = sql::from_micros(last)
        .map_or("true".to_owned(), |last| format!("_valid_to > {}", sql::instant(last)));
    let is_all: bool = engine.one(
        &format!("compare {} with the lake", table.path()),
        &format!(
            "SELECT (SELECT count(*) FROM {lake}) + (SELECT count(*) FROM {published} WHERE {later}) \
               = (SELECT count(*) FROM {published})"
        ),
    )?;
    is_all.then(|| insert(engine, table, &format!("WHERE {later}"))).transpose()
}

#[cfg(test)]
mod tests;
