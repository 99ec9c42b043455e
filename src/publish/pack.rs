//! The pack of a closed month: what a controller keeps of it, in `closings/<month>/` of `publish.parquet`
//! (docs/finance.md).
//!
//! The same tables three times: as Parquet, as CSV, and as sheets of one workbook. Lines and annotations
//! are those of the moment when their month was closed, whatever became of them since; what became of
//! them is in the restatements and the statement. Equal content gives equal bytes, and a file whose bytes
//! are equal is not written again. Nothing here is ever removed.

use std::fs;
use std::path::{Path, PathBuf};

use duckdb::Connection;
use jiff::tz::TimeZone;

use super::bucket::{Bucket, PACKS, Written};
use super::database::open_published;
use super::owner::published_by;
use super::workbook;
use super::{Root, Stop};
use crate::catalog::{Catalog, EXTRA_COLUMN, Group, JOURNAL_COLUMNS, LINE_NUMBER, Resource};
use crate::config::JournalLevel;
use crate::durable::{self, Access, Replacement};
use crate::error::{self, Result};
use crate::mirror::BY_CLOSE_DAY;
use crate::scope::{Month, REVENUE, REVENUE_SUMS};
use crate::sql::{self, db, from_micros};

/// Which month to write, and where.
#[derive(Debug, Clone)]
pub(crate) struct PackTarget<'a> {
    /// The published database: the pack shows what readers see.
    pub(crate) database: &'a Path,
    /// `publish.parquet`.
    pub(crate) root: &'a Root,
    pub(crate) level: JournalLevel,
    pub(crate) month: Month,
    /// Below the folder of all packs: `2026-10`, or `2026-10/chain` where another level of the month was closed first.
    pub(crate) folder: String,
    /// Rows of this level are in `main`.
    pub(crate) is_mirrored: bool,
    /// Zone of the workbook's times: Excel knows none.
    pub(crate) zone: &'a TimeZone,
}

/// One table of the pack.
struct Sheet {
    name: String,
    /// Its rows in their order.
    query: String,
}

/// Writes the pack of a month as far as it is closed; returns where it is.
///
/// # Errors
/// `Kind::DiskFull`, `Kind::Io`, `Kind::Store`, `Kind::ObjectStore`: every file is the old or the new one,
/// whole. `Kind::Cancelled` by `stop`.
pub(crate) fn write_pack(
    catalog: &Catalog,
    target: &PackTarget<'_>,
    stop: &Stop,
) -> Result<String> {
    let conn = open_published(target.database)?;
    match target.root {
        Root::Folder(root) => {
            let folder = packs(root).join(&target.folder);
            durable::make_shared_folder(&folder)?;
            durable::remove_stale_in(&folder)?;
            write_files(&conn, catalog, target, |name, write| put(&folder.join(name), write))?;
            Ok(folder.display().to_string())
        }
        Root::Bucket(bucket) => {
            let spool = Replacement::of(bucket.spool())?;
            durable::make_private_folder(spool.path())
                .map_err(|e| error::io("create the folder", spool.path(), e))?;
            let folder = format!("{PACKS}/{}", target.folder);
            let mut files = Vec::new();
            write_files(&conn, catalog, target, |name, write| {
                let path = spool.path().join(name);
                write(&path)?;
                files.push(Written { path, name: format!("{folder}/{name}") });
                Ok(())
            })?;
            // Last: from then on the connection reaches no file.
            let (bucket, store_id) = (bucket.clone(), published_by(&conn)?);
            let address = bucket.address_of(&folder);
            Bucket::run(stop, async move {
                bucket.put_where_different(&store_id, &folder, files).await
            })?;
            Ok(address)
        }
    }
}

/// Hands `put` the name of each file, and what writes it to a path.
fn write_files(
    conn: &Connection,
    catalog: &Catalog,
    target: &PackTarget<'_>,
    mut put: impl FnMut(&str, &dyn Fn(&Path) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let sheets = sheets(catalog, target);
    for sheet in &sheets {
        let rows = &sheet.query;
        for (extension, format) in
            [("parquet", "FORMAT parquet, COMPRESSION zstd"), ("csv", "FORMAT csv, HEADER")]
        {
            put(&format!("{}.{extension}", sheet.name), &|path| {
                let sql = format!("COPY ({rows}) TO {} ({format})", sql::path(path)?);
                conn.execute_batch(&sql)
                    .map_err(|e| db(&format!("cannot write {}.{extension}", sheet.name), e))
            })?;
        }
    }
    put(&format!("closing-{}.xlsx", target.month), &|path| {
        workbook::write(path, target.zone, |workbook| {
            workbook.created_at(last_closed(conn, target)?)?;
            for sheet in &sheets {
                workbook.add(conn, &sheet.name, &sheet.query)?;
            }
            Ok(())
        })
    })
}

/// The months that there are packs of.
///
/// # Errors
/// `Kind::Io`, `Kind::ObjectStore`; `Kind::Cancelled` by `stop`.
pub(crate) fn packed_months(root: &Root, stop: &Stop) -> Result<Vec<Month>> {
    let root = match root {
        Root::Folder(root) => root,
        Root::Bucket(bucket) => {
            let bucket = bucket.clone();
            let objects = Bucket::run(stop, async move { bucket.list(PACKS).await })?;
            let names = objects.keys().filter_map(|name| name.split('/').nth(1));
            let mut months: Vec<Month> = names.filter_map(|name| name.parse().ok()).collect();
            months.dedup();
            return Ok(months);
        }
    };
    let folder = packs(root);
    let failed = |e| error::io("list", &folder, e);
    let mut months = Vec::new();
    match fs::read_dir(&folder) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(failed)?.file_name();
                months.extend(name.to_str().and_then(|name| name.parse::<Month>().ok()));
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    Ok(months)
}

fn packs(root: &Path) -> PathBuf {
    root.join(PACKS)
}

/// Writes a file beside its place and puts it there, unless its bytes are there already.
fn put(target: &Path, write: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    let file = Replacement::of(target)?;
    write(file.path())?;
    if same_bytes(file.path(), target)? { Ok(()) } else { file.finish(Access::ReadOnly) }
}

fn same_bytes(one: &Path, other: &Path) -> Result<bool> {
    let read = |path: &Path| fs::read(path).map_err(|e| error::io("read", path, e));
    let length = |path: &Path| fs::metadata(path).ok().map(|data| data.len());
    Ok(length(one) == length(other) && read(one)? == read(other)?)
}

/// When the last of what is in the pack was closed.
fn last_closed(conn: &Connection, target: &PackTarget<'_>) -> Result<Option<jiff::Timestamp>> {
    let sql = format!("SELECT max(epoch_us(closed_at)) FROM report.closings WHERE {}", of(target));
    let micros = conn.query_row(&sql, [], |row| row.get(0));
    Ok(from_micros(micros.map_err(|e| db("cannot read the closings", e))?))
}

/// What people look at first comes first.
fn sheets(catalog: &Catalog, target: &PackTarget<'_>) -> Vec<Sheet> {
    let of = of(target);
    let report = |name: &str, columns: &str, order: &str| Sheet {
        name: name.to_owned(),
        query: format!("SELECT {columns} FROM report.{name} WHERE {of} ORDER BY {order}"),
    };
    let reconciliation = if target.is_mirrored {
        // When it was read moves every night, and is no content.
        report("journal_reconciliation", "* EXCLUDE (read_at)", "journal_id")
    } else {
        reconciliation_as_closed(catalog, &of)
    };
    let mut sheets = vec![
        reconciliation,
        report("journal_statement", "*", "journal, journal_id"),
        Sheet {
            name: "closings".to_owned(),
            query: format!(
                "SELECT c.*, s.forced_over FROM report.closings c JOIN sync.closings s \
                   USING (journal, journal_level, journal_id, journal_month, closed_at) \
                 WHERE {of} ORDER BY journal, journal_id, closed_at"
            ),
        },
        report(
            "journal_restatements",
            "*",
            "journal, journal_id, changed_at, line_key, line_id, change, column_name, before, after",
        ),
    ];
    for resource in catalog.resources() {
        let Group::Journal(journal) = &resource.group else { continue };
        if journal.line_key.is_none() {
            continue;
        }
        sheets.push(as_closed(resource, &resource.table, &of));
        for notes in catalog.children(&resource.table) {
            sheets.push(as_closed(notes, &resource.table, &of));
        }
        if resource.table == REVENUE && !target.is_mirrored {
            let sums = catalog.get(REVENUE_SUMS);
            sheets.extend(sums.map(|sums| sums_as_closed(sums, &of)));
        } else if resource.table == REVENUE {
            sheets.push(Sheet {
                name: REVENUE_SUMS.to_owned(),
                query: format!(
                    "SELECT * EXCLUDE (_synced_at, {EXTRA_COLUMN}) FROM main.{REVENUE_SUMS} \
                     WHERE {of} AND journal_id IN (SELECT journal_id FROM report.closings \
                       WHERE {of} AND journal = '{REVENUE}') \
                     ORDER BY journal_id"
                ),
            });
        }
    }
    sheets
}

/// The reconciliation of a level that is not mirrored any more, which the report knows nothing of: what was closed,
/// against the platform's sums of then.
fn reconciliation_as_closed(catalog: &Catalog, of: &str) -> Sheet {
    // Without the table that it is about, nothing was closed.
    let none = || "SELECT * FROM report.closings WHERE false".to_owned();
    let closed = |table: &str| {
        catalog.get(table).map_or_else(none, |resource| as_closed(resource, REVENUE, of).query)
    };
    let notes = catalog.children(REVENUE).next().map_or_else(
        || "SELECT *, 0 AS payment_change FROM report.closings WHERE false".to_owned(),
        |notes| as_closed(notes, REVENUE, of).query,
    );
    let scope = JOURNAL_COLUMNS.join(", ");
    Sheet {
        name: "journal_reconciliation".to_owned(),
        query: format!(
            "WITH closed AS (SELECT {scope}, lines, payment FROM report.closings \
               WHERE {of} AND journal = '{REVENUE}' \
               QUALIFY row_number() OVER (PARTITION BY {scope} ORDER BY closed_at DESC) = 1), \
             prices AS (SELECT {scope}, sum(purchase_price) AS purchase_price FROM ({lines}) GROUP BY ALL), \
             notes AS (SELECT {scope}, sum(payment_change) AS payment_change FROM ({notes}) GROUP BY ALL), \
             sums AS ({sums}), \
             months AS (SELECT c.journal_month, c.journal_level, c.journal_id, \
                 coalesce(o.name, g.name, k.name) AS name, c.lines, c.payment, \
                 coalesce(n.payment_change, 0)::DECIMAL(38,2) AS payment_change, \
                 s.total_payment AS platform_sum, s.total_purchase_price AS platform_price, \
                 coalesce(p.purchase_price, 0) AS purchase_price \
               FROM closed c LEFT JOIN prices p USING ({scope}) LEFT JOIN notes n USING ({scope}) \
                 LEFT JOIN sums s USING ({scope}) \
                 LEFT JOIN main.offices o ON c.journal_level = 'offices' AND o.id = c.journal_id \
                 LEFT JOIN sync.journal_scopes g \
                   ON g.journal_level = c.journal_level AND g.journal_id = c.journal_id \
                 LEFT JOIN main.contacts k ON k.id = c.journal_id) \
             SELECT journal_month, journal_level, journal_id, name, lines, payment, payment_change, platform_sum, \
               CASE WHEN platform_sum NOT IN (payment, payment + payment_change) \
                 THEN platform_sum - payment - payment_change \
                 ELSE platform_price - purchase_price END AS difference, \
               CASE WHEN difference IS NULL OR payment IS NULL THEN 'no_control' \
                 WHEN difference = 0 THEN 'matches' ELSE 'differs' END AS status \
             FROM months ORDER BY journal_id",
            lines = closed(REVENUE),
            sums =
                catalog.get(REVENUE_SUMS).map_or_else(none, |sums| sums_as_closed(sums, of).query),
        ),
    }
}

/// SQL for the rows of the month.
fn of(target: &PackTarget<'_>) -> String {
    format!(
        "journal_level = {} AND journal_month = DATE {}",
        sql::text(&target.level.to_string()),
        sql::text(&target.month.first().to_string())
    )
}

/// The rows that a journal's table had when each scope of it was last closed: what was opened again since is evidence
/// still. What no version is kept of is left out: the number of a line, which moves with the answers, and volatile columns.
fn as_closed(resource: &Resource, journal: &str, of: &str) -> Sheet {
    versions_at_closing(
        resource,
        (journal, of),
        "WHERE c.closed_at >= x.since AND (x.until IS NULL OR c.closed_at < x.until)",
    )
}

/// The sums that were read for what was closed. What closes by itself does so as its lines are committed, and its sum is
/// asked for after that, in the same run; there may be an older one, of older lines. What is closed by hand has its sum.
fn sums_as_closed(sums: &Resource, of: &str) -> Sheet {
    /// In microseconds. The next night's sum, which may be that of other lines, comes later.
    const LONGEST_ROUND: i64 = 12 * 3600 * 1_000_000;
    let key =
        sums.key.iter().map(|c| format!("x.{}", sql::ident(c))).collect::<Vec<_>>().join(", ");
    let after = "epoch_us(x.since) - epoch_us(c.closed_at)";
    versions_at_closing(
        sums,
        (REVENUE, of),
        &format!(
            "WHERE (x.until IS NULL OR c.closed_at < x.until) \
               AND (c.closed_at >= x.since OR c.closed_by = '{BY_CLOSE_DAY}') \
             QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {after} > {LONGEST_ROUND}, \
               CASE WHEN {after} > {LONGEST_ROUND} THEN {after} ELSE -({after}) END) = 1"
        ),
    )
}

/// Of the versions `x` of a table those that are chosen for the last closing `c` of their month.
fn versions_at_closing(resource: &Resource, (journal, of): (&str, &str), chosen: &str) -> Sheet {
    let kept = resource.columns.iter().filter(|c| !c.volatile && c.name != LINE_NUMBER);
    let columns: Vec<&str> = kept.map(|c| c.name.as_str()).collect();
    let key = resource.key.iter().map(|c| format!("x.{}", sql::ident(c)));
    let listed = |alias: &str| {
        let all = columns.iter().map(|c| format!("{alias}.{}", sql::ident(c)));
        all.collect::<Vec<_>>().join(", ")
    };
    let table = sql::ident(&resource.table);
    Sheet {
        name: resource.table.clone(),
        query: format!(
            "SELECT {listed} FROM ( \
               SELECT *, _synced_at AS since, NULL::TIMESTAMPTZ AS until FROM main.{table} \
                 WHERE {of} \
               UNION ALL BY NAME \
               SELECT * EXCLUDE (_change), _valid_from AS since, _valid_to AS until \
                 FROM history.{table} WHERE {of}) x \
             JOIN (SELECT journal_level, journal_id, journal_month, max(closed_at) AS closed_at, \
                     arg_max(closed_by, closed_at) AS closed_by \
                     FROM report.closings WHERE journal = {journal} GROUP BY ALL) c ON {same} \
             {chosen} ORDER BY {key}",
            listed = listed("x"),
            journal = sql::text(journal),
            same = JOURNAL_COLUMNS.map(|c| format!("c.{c} = x.{c}")).join(" AND "),
            key = key.collect::<Vec<_>>().join(", "),
        ),
    }
}
