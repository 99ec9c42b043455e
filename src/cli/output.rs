//! Results as text: tables, CSV, JSON.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, JsonArray, NullableEncoder, make_encoder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use comfy_table::{CellAlignment, Table, TableComponent, presets};

use crate::error::{Error, Kind, Result};
use crate::text::printable;

/// Shown in tables where a value is NULL.
pub(crate) const NULL: &str = "NULL";

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

/// So much may stand in a table that is printed, which is laid out as a whole: 64 MiB.
const LARGEST_TABLE: usize = 64 << 20;
/// What a cell takes beside its text.
const CELL: usize = 100;

/// Rows as a table; numbers to the right.
pub(crate) struct TableRows {
    null: &'static str,
    table: Option<Table>,
    bytes: usize,
}

impl TableRows {
    /// An empty one, in which this stands for NULL.
    pub(crate) fn with_null(null: &'static str) -> TableRows {
        TableRows { null, table: None, bytes: 0 }
    }

    /// Adds rows, which all have the same columns.
    ///
    /// # Errors
    /// `Query` where they are too many.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = batch.schema();
        let table = self.table.get_or_insert_with(|| {
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            let mut table = table(&names);
            for (i, field) in schema.fields().iter().enumerate() {
                if is_number(field.data_type()) {
                    align_numbers(&mut table, i..i + 1);
                }
            }
            table
        });
        let options = options(self.null);
        let columns = formatters(batch, &options)?;
        for row in 0..batch.num_rows() {
            let cells: Vec<String> =
                columns.iter().map(|c| printable(&c.value(row).to_string()).into_owned()).collect();
            self.bytes += cells.iter().map(|cell| cell.len() + CELL).sum::<usize>();
            if self.bytes > LARGEST_TABLE {
                return Err(Error::new(
                    Kind::Query,
                    "the result is too large for a table: take a part of it (LIMIT), or --format csv",
                ));
            }
            table.add_row(cells);
        }
        Ok(())
    }

    /// Its text.
    pub(crate) fn finish(self) -> String {
        self.table.map(|table| format!("{table}\n")).unwrap_or_default()
    }
}

/// Rows as CSV with a header. NULL is empty and an empty text is `""`, but where there is no other column: an empty line is
/// no row to many readers. Lists, structs and maps are JSON.
pub(crate) struct CsvRows<W: Write> {
    out: W,
    has_header: bool,
}

impl<W: Write> CsvRows<W> {
    /// Writes there.
    pub(crate) fn to(out: W) -> CsvRows<W> {
        CsvRows { out, has_header: false }
    }

    /// Writes rows, which all have the same columns.
    ///
    /// # Errors
    /// `Internal` where they cannot be written.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        let (schema, mut text) = (batch.schema(), String::new());
        if !std::mem::replace(&mut self.has_header, true) {
            let names = schema.fields().iter().map(|field| Some(Cow::from(field.name())));
            csv_line(&mut text, names.map(Ok))?;
        }
        let (flat, nested) = (options(""), EncoderOptions::default().with_explicit_nulls(true));
        let mut columns = Vec::new();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            columns.push(if field.data_type().is_nested() {
                Cells::Nested(make_encoder(field, column, &nested).map_err(broken)?)
            } else {
                Cells::Flat(column, ArrayFormatter::try_new(column, &flat).map_err(broken)?)
            });
        }
        for row in 0..batch.num_rows() {
            csv_line(&mut text, columns.iter_mut().map(|column| column.text(row)))?;
        }
        self.out.write_all(text.as_bytes()).map_err(|e| broken(e.into()))
    }
}

/// The cells of a column.
enum Cells<'a> {
    Flat(&'a dyn Array, ArrayFormatter<'a>),
    Nested(NullableEncoder<'a>),
}

impl Cells<'_> {
    /// A cell as text; `None` where it is NULL.
    fn text(&mut self, row: usize) -> Result<Option<Cow<'static, str>>> {
        Ok(match self {
            Cells::Flat(column, formatter) => {
                column.is_valid(row).then(|| formatter.value(row).to_string().into())
            }
            Cells::Nested(encoder) if encoder.is_null(row) => None,
            Cells::Nested(encoder) => {
                let mut json = Vec::new();
                encoder.encode(row, &mut json);
                let text = String::from_utf8(json);
                Some(text.map_err(|e| broken(ArrowError::ExternalError(e.into())))?.into())
            }
        })
    }
}

/// Adds a line of these cells.
fn csv_line<'c>(
    line: &mut String,
    cells: impl ExactSizeIterator<Item = Result<Option<Cow<'c, str>>>>,
) -> Result<()> {
    let is_alone = cells.len() == 1;
    for (at, cell) in cells.enumerate() {
        if at > 0 {
            line.push(',');
        }
        let cell = cell?;
        let text = cell.as_deref().unwrap_or_default();
        let is_said = is_alone || cell.is_some();
        if text.is_empty() && is_said || text.contains([',', '"', '\n', '\r']) {
            line.push('"');
            line.push_str(&text.replace('"', "\"\""));
            line.push('"');
        } else {
            line.push_str(text);
        }
    }
    line.push('\n');
    Ok(())
}

/// Rows as a JSON array of objects; every column is there, NULL is null.
pub(crate) struct JsonRows<W: Write> {
    writer: arrow::json::Writer<W, JsonArray>,
    is_empty: bool,
}

impl<W: Write> JsonRows<W> {
    /// Writes there.
    pub(crate) fn to(out: W) -> JsonRows<W> {
        let writer = arrow::json::WriterBuilder::new().with_explicit_nulls(true).build(out);
        JsonRows { writer, is_empty: true }
    }

    /// Writes rows, which all have the same columns. Of columns of one name each gets a name of its own.
    ///
    /// # Errors
    /// `Internal` where they cannot be written.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.is_empty = false;
        self.writer.write(&named_apart(batch)?).map_err(broken)
    }

    /// Ends the array.
    ///
    /// # Errors
    /// As [`JsonRows::add`].
    pub(crate) fn finish(mut self) -> Result<()> {
        let rest: &[u8] = if self.is_empty {
            b"[]\n"
        } else {
            self.writer.finish().map_err(broken)?;
            b"\n"
        };
        let mut out = self.writer.into_inner();
        out.write_all(rest).map_err(|e| broken(e.into()))
    }
}

fn named_apart(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let mut taken: BTreeSet<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    if taken.len() == schema.fields().len() {
        return Ok(batch.clone());
    }
    let mut seen = BTreeSet::new();
    let fields: Vec<Field> = schema
        .fields()
        .iter()
        .map(|field| {
            if seen.insert(field.name()) {
                return Field::clone(field);
            }
            let mut names = (1..).map(|number| format!("{}_{number}", field.name()));
            let name = names.find(|name| taken.insert(name.clone()));
            Field::clone(field).with_name(name.expect("numbers do not end"))
        })
        .collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), batch.columns().to_vec()).map_err(broken)
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

fn broken(source: ArrowError) -> Error {
    Error::caused(Kind::Internal, "the result cannot be shown", source)
}
