//! Makes one table of the lake equal to the published one, within the transaction of the publishing.
//!
//! What differs is found by comparing what the lake has with what is published, and not by what is thought to have
//! changed since: whatever was interrupted before, and whatever clock was set, the lake is equal afterwards. What is
//! compared is a row's identity and the columns that move with every change of it ([`Table::moving`]), so that only
//! these are read from the lake's files; and a table, or a month, whose change counter stands is not looked at.

use serde::{Deserialize, Serialize};

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
    Anew { columns_differ: bool },
    /// What differs is written. `months`: only in these, `yyyy-mm`; all where it is `None`.
    Differences { months: Option<Vec<String>> },
}

impl Way {
    /// For a table of which the lake says `before`; `there` are its columns in the lake, names and types, if it is
    /// there.
    pub(super) fn of(
        table: &Table,
        before: Option<&TableState>,
        there: Option<&Vec<(String, String)>>,
    ) -> Way {
        let Some(there) = there else { return Way::New };
        let own = table.columns.iter().map(|c| (c.name.as_str(), c.kind.as_str()));
        let columns_differ =
            !own.eq(there.iter().map(|(name, kind)| (name.as_str(), kind.as_str())));
        let Some(before) = before.filter(|before| !columns_differ && before.mark == table.mark)
        else {
            return Way::Anew { columns_differ };
        };
        let (Some(then), Some(now)) = (&before.changes, &table.changes) else {
            return Way::Differences { months: None };
        };
        if then == now {
            return Way::Nothing;
        }
        if !table.has_months || then.get("") != now.get("") {
            return Way::Differences { months: None };
        }
        let parts = then.keys().chain(now.keys()).filter(|part| then.get(*part) != now.get(*part));
        let mut months: Vec<String> = parts.cloned().collect();
        months.sort();
        months.dedup();
        Way::Differences { months: Some(months) }
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
            Way::Anew { columns_differ: true } => {
                let lake = table.within(LAKE);
                let removed = engine
                    .one("count rows of the lake", &format!("SELECT count(*) FROM {lake}"))?;
                engine.run("replace a table of the lake", &format!("DROP TABLE {lake}"))?;
                create(engine, table)?;
                let mut rows = insert(engine, table, "")?;
                rows.removed = i64::unsigned_abs(removed);
                Ok(rows)
            }
            Way::Anew { columns_differ: false } => {
                let removed = delete(engine, table, "")?;
                let mut rows = insert(engine, table, "")?;
                rows.removed = removed;
                Ok(rows)
            }
            Way::Differences { months } => differences(engine, table, months.as_deref()),
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

/// Writes the rows that differ.
fn differences(engine: &Engine, table: &Table, months: Option<&[String]>) -> Result<Rows> {
    if table.only_grows
        && let Some(rows) = appended(engine, table)?
    {
        return Ok(rows);
    }
    let identity = sql::idents(table.identity.iter().map(String::as_str));
    let compared: Vec<&str> =
        table.identity.iter().chain(&table.moving).map(String::as_str).collect();
    let (compared, among) = (sql::idents(compared), months.map_or(String::new(), within_months));
    engine.run(
        &format!("compare {} with the lake", table.path()),
        &format!(
            "CREATE OR REPLACE TEMP TABLE different AS \
             SELECT DISTINCT {identity} FROM (\
               SELECT {compared}, sum(n) FROM (\
                 SELECT {compared}, 1 AS n FROM {} {among} \
                 UNION ALL SELECT {compared}, -1 AS n FROM {} {among}) \
               GROUP BY {compared} HAVING sum(n) <> 0)",
            table.within(PUBLISHED),
            table.within(LAKE)
        ),
    )?;
    let count = "SELECT count(*) FROM temp.different";
    if engine.one::<i64>("count what differs", count)? == 0 {
        return Ok(Rows::default());
    }
    let equals = if table.is_key { "=" } else { "IS NOT DISTINCT FROM" };
    let same: Vec<String> = table
        .identity
        .iter()
        .map(|column| format!("t.{0} {equals} d.{0}", sql::ident(column)))
        .collect();
    let same = same.join(" AND ");
    let removed = delete(engine, table, &format!("USING temp.different AS d WHERE {same}"))?;
    let mut rows = insert(engine, table, &format!("SEMI JOIN temp.different AS d ON {same}"))?;
    rows.removed = removed;
    Ok(rows)
}

/// Where nothing but later rows were added to a table since, writes those. The lake's rows and the later ones are all
/// that there are, or it is `None`, and the whole is compared.
fn appended(engine: &Engine, table: &Table) -> Result<Option<Rows>> {
    let (lake, published) = (table.within(LAKE), table.within(PUBLISHED));
    let last: Option<i64> =
        engine.one("read the lake", &format!("SELECT epoch_us(max(_valid_to)) FROM {lake}"))?;
    let later = last.map_or("true".to_owned(), |last| format!("epoch_us(_valid_to) > {last}"));
    let is_all: bool = engine.one(
        &format!("compare {} with the lake", table.path()),
        &format!(
            "SELECT (SELECT count(*) FROM {lake}) + (SELECT count(*) FROM {published} WHERE {later}) \
               = (SELECT count(*) FROM {published})"
        ),
    )?;
    is_all.then(|| insert(engine, table, &format!("WHERE {later}"))).transpose()
}

fn within_months(months: &[String]) -> String {
    let days = months.iter().map(|month| format!("DATE {}", sql::text(&format!("{month}-01"))));
    format!("WHERE journal_month IN ({})", days.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lake::tables::Column;

    fn counters(parts: &[(&str, i64)]) -> Option<BTreeMap<String, i64>> {
        Some(parts.iter().map(|(part, counter)| ((*part).to_owned(), *counter)).collect())
    }

    fn table(changes: Option<BTreeMap<String, i64>>) -> Table {
        let column = |name: &str, kind: &str| Column {
            name: name.to_owned(),
            kind: kind.to_owned(),
            comment: None,
        };
        Table {
            schema: "main".to_owned(),
            name: "revenue_journals".to_owned(),
            columns: vec![column("id", "BIGINT"), column("journal_month", "DATE")],
            comment: None,
            identity: vec!["id".to_owned()],
            is_key: true,
            moving: Vec::new(),
            only_grows: false,
            has_months: true,
            mark: "mark".to_owned(),
            changes,
        }
    }

    #[test]
    fn only_counters_that_stand_let_a_table_or_a_month_be_left_alone() {
        let columns: Vec<(String, String)> =
            [("id", "BIGINT"), ("journal_month", "DATE")].map(|(n, k)| (n.into(), k.into())).into();
        let before = |mark: &str, changes| TableState { mark: mark.to_owned(), changes };
        let way = |now, before: Option<&TableState>| Way::of(&table(now), before, Some(&columns));
        let then = before("mark", counters(&[("", 1), ("2026-10", 4), ("2026-11", 5)]));
        let months = |months: &[&str]| Way::Differences {
            months: Some(months.iter().map(|month| (*month).to_owned()).collect()),
        };
        for (now, expected) in [
            (counters(&[("", 1), ("2026-10", 4), ("2026-11", 5)]), Way::Nothing),
            (counters(&[("", 1), ("2026-10", 9), ("2026-11", 5)]), months(&["2026-10"])),
            (counters(&[("", 1), ("2026-11", 5), ("2026-12", 1)]), months(&["2026-10", "2026-12"])),
            // What belongs to no month moved: it may be in any.
            (
                counters(&[("", 2), ("2026-10", 9), ("2026-11", 5)]),
                Way::Differences { months: None },
            ),
            (None, Way::Differences { months: None }),
        ] {
            assert_eq!(way(now.clone(), Some(&then)), expected, "{now:?}");
        }
        let same = counters(&[("", 1)]);
        let anew = Way::Anew { columns_differ: false };
        assert_eq!(way(same.clone(), Some(&before("other", same.clone()))), anew);
        assert_eq!(way(same.clone(), None), anew, "the lake does not say how it came to its rows");
        let wider = [columns.clone(), vec![("more".into(), "BIGINT".into())]].concat();
        let known = before("mark", same.clone());
        assert_eq!(
            Way::of(&table(same.clone()), Some(&known), Some(&wider)),
            Way::Anew { columns_differ: true }
        );
        assert_eq!(Way::of(&table(same), Some(&known), None), Way::New);
    }
}
