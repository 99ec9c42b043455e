//! What a month of a journal holds, as one digest: by it a closing says for ever what was closed.
//!
//! The digest is made here and not by DuckDB, whose SHA-256 and texts of rows took a fifth of a first
//! reading's time: from the rows as they were decoded where just these are mirrored now, and else from the
//! rows of one month at a time.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int64Type, TimeUnit, TimestampMicrosecondType,
};
use duckdb::{Connection, params};
use sha2::{Digest, Sha256};

use super::lines::telling;
use crate::catalog::{LINE_ID, Resource};
use crate::decode::{Decoded, decimal_text};
use crate::error::{Error, Kind, Result};
use crate::scope::JournalScope;
use crate::sql::{self, db};
use crate::text::hex;

/// The column of a journal's lines that is added up.
pub(super) const PAYMENT: &str = "payment";

/// What a month holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MonthContent {
    pub(super) lines: u64,
    /// The sum of the payments as a decimal text; `None` for journals without such a column.
    pub(super) payment: Option<String>,
    /// SHA-256, in hexadecimal digits, over all fields of all lines and their annotations, whatever their
    /// order. The digest of a line has its fields in the order of the resource file, so that it is another
    /// one by another file.
    pub(super) sha256: String,
}

impl MonthContent {
    /// Of rows as they are decoded, or as DuckDB gives them.
    ///
    /// # Errors
    /// `Internal`: a column is missing, or of a kind that no column has.
    fn of(
        lines: &Resource,
        rows: &[RecordBatch],
        notes: Option<(&Resource, &[RecordBatch])>,
    ) -> Result<MonthContent> {
        let mut notes = match notes {
            Some((resource, rows)) => digests(resource, rows, |_, _| ())?,
            None => Vec::new(),
        };
        notes.sort_unstable();
        let of_line = |line: i64, digest: &mut Sha256| {
            let from = notes.partition_point(|(of, _)| *of < line);
            for (_, note) in notes[from..].iter().take_while(|(of, _)| *of == line) {
                digest.update(note);
            }
        };
        let mut marks: Vec<[u8; 32]> =
            digests(lines, rows, of_line)?.into_iter().map(|(_, mark)| mark).collect();
        marks.sort_unstable();
        let mut whole = Sha256::new();
        for mark in &marks {
            whole.update(mark);
        }
        Ok(MonthContent {
            lines: marks.len() as u64,
            payment: sum(lines, rows)?,
            sha256: hex(&whole.finalize()),
        })
    }

    /// Of an answer's rows.
    ///
    /// # Errors
    /// As [`MonthContent::of`].
    pub(super) fn decoded(decoded: &Decoded) -> Result<MonthContent> {
        let rows = std::slice::from_ref(&decoded.rows);
        let notes = decoded.children.first();
        let notes = notes.map(|notes| (&*notes.resource, std::slice::from_ref(&notes.rows)));
        MonthContent::of(&decoded.resource, rows, notes)
    }

    /// Of the rows that are mirrored.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) fn mirrored(
        conn: &Connection,
        lines: &Resource,
        notes: Option<&Resource>,
        month: &JournalScope,
    ) -> Result<MonthContent> {
        let rows = select(conn, lines, month)?;
        let notes = notes.map(|notes| Ok((notes, select(conn, notes, month)?))).transpose()?;
        MonthContent::of(lines, &rows, notes.as_ref().map(|(notes, rows)| (*notes, &rows[..])))
    }
}

fn select(
    conn: &Connection,
    resource: &Resource,
    month: &JournalScope,
) -> Result<Vec<RecordBatch>> {
    let failed = |e| db(&format!("cannot read a month of {}", resource.table), e);
    let mut statement = conn
        .prepare(&format!(
            "SELECT {} FROM main.{} WHERE journal_level = ? AND journal_id = ? \
               AND journal_month = ?::DATE",
            sql::idents(telling(resource).chain([LINE_ID])),
            sql::ident(&resource.table)
        ))
        .map_err(failed)?;
    let of = params![month.level.to_string(), month.id, month.month.first().to_string()];
    Ok(statement.query_arrow(of).map_err(failed)?.collect())
}

/// One digest of each row, with the line that it is of. `with` adds what else belongs to a line.
fn digests(
    resource: &Resource,
    rows: &[RecordBatch],
    with: impl Fn(i64, &mut Sha256),
) -> Result<Vec<(i64, [u8; 32])>> {
    let mut digests = Vec::with_capacity(rows.iter().map(RecordBatch::num_rows).sum());
    let mut text = Vec::new();
    for batch in rows {
        let ids = column(resource, batch, LINE_ID)?
            .as_primitive_opt::<Int64Type>()
            .ok_or_else(|| unknown(resource, &DataType::Int64))?;
        let columns: Vec<&dyn Array> =
            telling(resource).map(|name| column(resource, batch, name)).collect::<Result<_>>()?;
        for row in 0..batch.num_rows() {
            text.clear();
            for column in &columns {
                push(*column, row, &mut text)
                    .ok_or_else(|| unknown(resource, column.data_type()))?;
            }
            let mut digest = Sha256::new_with_prefix(&text);
            with(ids.value(row), &mut digest);
            digests.push((ids.value(row), digest.finalize().into()));
        }
    }
    Ok(digests)
}

/// Adds one cell, so that different cells never make the same bytes. `None`: no column has such a type.
fn push(cells: &dyn Array, row: usize, to: &mut Vec<u8>) -> Option<()> {
    if cells.is_null(row) {
        to.push(0);
        return Some(());
    }
    to.push(1);
    let mut push_bytes = |bytes: &[u8]| {
        to.extend((bytes.len() as u64).to_le_bytes());
        to.extend(bytes);
    };
    match cells.data_type() {
        DataType::Utf8 => push_bytes(cells.as_string::<i32>().value(row).as_bytes()),
        // DuckDB gives these as texts.
        DataType::FixedSizeBinary(_) => {
            let id = uuid::Uuid::from_slice(cells.as_fixed_size_binary().value(row)).ok()?;
            push_bytes(id.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).as_bytes());
        }
        DataType::Boolean => to.push(u8::from(cells.as_boolean().value(row))),
        DataType::Int64 => to.extend(cells.as_primitive::<Int64Type>().value(row).to_le_bytes()),
        DataType::Decimal128(_, _) => {
            to.extend(cells.as_primitive::<Decimal128Type>().value(row).to_le_bytes());
        }
        DataType::Date32 => to.extend(cells.as_primitive::<Date32Type>().value(row).to_le_bytes()),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            to.extend(cells.as_primitive::<TimestampMicrosecondType>().value(row).to_le_bytes());
        }
        DataType::List(_) => {
            let items = cells.as_list::<i32>().value(row);
            to.extend((items.len() as u64).to_le_bytes());
            for item in 0..items.len() {
                push(&items, item, to)?;
            }
        }
        _ => return None,
    }
    Some(())
}

/// The payments of the rows, added up exactly.
fn sum(resource: &Resource, rows: &[RecordBatch]) -> Result<Option<String>> {
    let Some(scalar) = resource.column(PAYMENT).map(|column| column.kind.scalar) else {
        return Ok(None);
    };
    let Some(scale) = scalar.scale() else { return Ok(None) };
    let mut sum: i128 = 0;
    for batch in rows {
        let payments = column(resource, batch, PAYMENT)?;
        let payments = payments
            .as_primitive_opt::<Decimal128Type>()
            .ok_or_else(|| unknown(resource, payments.data_type()))?;
        // Of at most 18 digits each: no number of lines comes near the end of 128 bits.
        sum += payments.iter().flatten().sum::<i128>();
    }
    Ok(Some(decimal_text(sum, scale)))
}

fn column<'a>(resource: &Resource, rows: &'a RecordBatch, name: &str) -> Result<&'a dyn Array> {
    rows.column_by_name(name).map(AsRef::as_ref).ok_or_else(|| {
        Error::new(Kind::Internal, format!("rows of {} have no {name}", resource.table))
    })
}

fn unknown(resource: &Resource, kind: &DataType) -> Error {
    let what = format!("rows of {} have a column of the type {kind}", resource.table);
    Error::new(Kind::Internal, what)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray, Int64Array,
        ListBuilder, StringArray, StringBuilder, TimestampMicrosecondArray,
    };
    use jiff::tz::TimeZone;
    use serde_json::json;

    use super::*;
    use crate::catalog::Catalog;
    use crate::config::{self, PrivacyMode};
    use crate::decode::{Context, Decoder, Param, Params, Privacy};

    fn bytes(cells: &dyn Array) -> Vec<Vec<u8>> {
        let of_row = |row| {
            let mut bytes = Vec::new();
            push(cells, row, &mut bytes).unwrap();
            bytes
        };
        (0..cells.len()).map(of_row).collect()
    }

    #[test]
    fn different_cells_of_any_type_are_different_and_equal_ones_equal() {
        let mut lists = ListBuilder::new(StringBuilder::new());
        for items in
            [None, Some(vec![]), Some(vec![None]), Some(vec![Some("")]), Some(vec![Some(""), None])]
        {
            match items {
                Some(items) => lists.append_value(items),
                None => lists.append_null(),
            }
        }
        let columns: [ArrayRef; 7] = [
            Arc::new(StringArray::from(vec![None, Some(""), Some("a"), Some("aa")])),
            Arc::new(Int64Array::from(vec![None, Some(0), Some(1), Some(-1)])),
            Arc::new(BooleanArray::from(vec![None, Some(false), Some(true)])),
            Arc::new(Decimal128Array::from(vec![None, Some(0), Some(100), Some(-100)])),
            Arc::new(Date32Array::from(vec![None, Some(0), Some(20_000)])),
            Arc::new(TimestampMicrosecondArray::from(vec![None, Some(0), Some(1)])),
            Arc::new(lists.finish()),
        ];
        for cells in columns {
            let once = bytes(&cells);
            assert_eq!(once, bytes(&cells));
            let different: std::collections::BTreeSet<_> = once.iter().collect();
            assert_eq!(different.len(), cells.len(), "{cells:?}");
        }
    }

    #[test]
    fn a_guid_is_the_same_as_it_is_decoded_and_as_duckdb_gives_it() {
        let text = "0189f7ea-ae2c-7809-8aeb-b819cf5e9e7f";
        let guid = uuid::Uuid::parse_str(text).unwrap();
        let decoded = FixedSizeBinaryArray::try_from_iter([guid.as_bytes()].into_iter()).unwrap();
        assert_eq!(bytes(&decoded), bytes(&StringArray::from(vec![text])));
    }

    fn content(lines: &[serde_json::Value]) -> MonthContent {
        let catalog = Catalog::load(None).unwrap();
        let resource = catalog.get("revenue_journals").unwrap();
        let privacy =
            config::Privacy { identifiers: PrivacyMode::Hash, contact_details: PrivacyMode::Keep };
        let context = Context {
            zone: TimeZone::UTC,
            privacy: Privacy::new(&privacy, [7; 32]),
            disabled: Arc::new([]),
            generation: 1,
        };
        let texts: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let mut decoder = Decoder::new(&catalog, resource, &context, 0);
        for text in &texts {
            decoder.push(
                text,
                &Params::from([
                    ("journal_level".to_owned(), Param::Text("offices".to_owned())),
                    ("journal_id".to_owned(), Param::Int(1)),
                    ("journal_month".to_owned(), Param::Text("2025-10-01".to_owned())),
                ]),
            );
        }
        MonthContent::decoded(&decoder.finish().unwrap()).unwrap()
    }

    #[test]
    fn a_month_is_its_lines_with_their_annotations_in_whatever_order() {
        let first = json!({
            "Payment": 100.10, "Address": "A", "Annotations": [{"Annotation": "x"}, {"Annotation": "y"}]
        });
        let second = json!({"Payment": -0.05, "Address": "B", "Annotations": []});
        let month = content(&[first.clone(), second.clone()]);
        assert_eq!((month.lines, month.payment.as_deref()), (2, Some("100.05")));
        let turned = json!({
            "Payment": 100.10, "Address": "A", "Annotations": [{"Annotation": "y"}, {"Annotation": "x"}]
        });
        assert_eq!(content(&[second.clone(), turned]), month);
        let moved = [
            json!({"Payment": 100.10, "Address": "A", "Annotations": [{"Annotation": "x"}]}),
            json!({"Payment": -0.05, "Address": "B", "Annotations": [{"Annotation": "y"}]}),
        ];
        assert_ne!(content(&moved).sha256, month.sha256, "a note is of its line");
        let doubled = content(&[first.clone(), second.clone(), second.clone()]);
        assert_ne!(doubled.sha256, month.sha256, "two equal lines are two");
        assert_eq!(doubled.payment.as_deref(), Some("100.00"));
        let none = content(&[]);
        assert_eq!((none.lines, none.payment.as_deref()), (0, Some("0.00")));
    }
}
