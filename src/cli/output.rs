//! Results as text: tables, CSV, JSON.

use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::{CellAlignment, Table, TableComponent, presets};

use crate::error::{Error, Kind, Result};
use crate::text::printable;

/// Shown where a value is NULL.
const NULL: &str = "NULL";

/// An empty table with this header.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    // Lines around the header and the end are enough to read by.
    for line in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(line);
    }
    table
}

/// Puts these columns to the right.
pub(crate) fn align_numbers(table: &mut Table, columns: std::ops::Range<usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Record batches as a table; numbers to the right.
pub(crate) fn batches(batches: &[RecordBatch], null: &str) -> Result<String> {
    let Some(first) = batches.first() else { return Ok(String::new()) };
    let schema = first.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let mut table = table(&names);
    let options = options(null);
    for batch in batches {
        let columns = formatters(batch, &options)?;
        for row in 0..batch.num_rows() {
            table
                .add_row(columns.iter().map(|c| printable(&c.value(row).to_string()).into_owned()));
        }
    }
    for (i, field) in schema.fields().iter().enumerate() {
        if is_number(field.data_type())
            && let Some(column) = table.column_mut(i)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    Ok(format!("{table}\n"))
}

/// Record batches as CSV with a header; NULL is empty.
pub(crate) fn csv(batches: &[RecordBatch]) -> Result<String> {
    let mut out = Vec::new();
    let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(&mut out);
    for batch in batches {
        writer.write(&flat(batch)?).map_err(broken)?;
    }
    drop(writer);
    String::from_utf8(out).map_err(|e| Error::caused(Kind::Internal, "CSV is no text", e))
}

/// Record batches as a JSON array of objects; every column is there, NULL is null.
pub(crate) fn json(batches: &[RecordBatch]) -> Result<String> {
    let mut out = Vec::new();
    let mut writer = arrow::json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow::json::writer::JsonArray>(&mut out);
    for batch in batches {
        writer.write(batch).map_err(broken)?;
    }
    writer.finish().map_err(broken)?;
    drop(writer);
    if out.is_empty() {
        out.extend_from_slice(b"[]");
    }
    out.push(b'\n');
    String::from_utf8(out).map_err(|e| Error::caused(Kind::Internal, "JSON is no text", e))
}

/// CSV has no lists: nested columns become their text.
fn flat(batch: &RecordBatch) -> Result<RecordBatch> {
    use arrow::array::{Array, ArrayRef, StringArray};
    use arrow::datatypes::{Field, Schema};
    use std::sync::Arc;
    let options = options("");
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if field.data_type().is_nested() {
            let formatter = ArrayFormatter::try_new(column, &options).map_err(broken)?;
            let texts: StringArray = (0..column.len())
                .map(|row| column.is_valid(row).then(|| formatter.value(row).to_string()))
                .collect();
            fields.push(Arc::new(Field::new(field.name(), DataType::Utf8, true)));
            columns.push(Arc::new(texts));
        } else {
            fields.push(Arc::clone(field));
            columns.push(Arc::clone(column));
        }
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(broken)
}

fn options(null: &str) -> FormatOptions<'_> {
    FormatOptions::new().with_null(null).with_display_error(true)
}

fn formatters<'a>(
    batch: &'a RecordBatch,
    options: &'a FormatOptions<'a>,
) -> Result<Vec<ArrayFormatter<'a>>> {
    batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column, options).map_err(broken))
        .collect()
}

fn is_number(kind: &DataType) -> bool {
    kind.is_numeric()
}

fn broken(source: arrow::error::ArrowError) -> Error {
    Error::caused(Kind::Internal, "the result cannot be shown", source)
}

/// How NULL is shown in tables.
pub(crate) fn null() -> &'static str {
    NULL
}
