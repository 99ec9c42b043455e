//! What a Parquet file says of itself: its footer is read back before the file counts, by other code
//! than wrote it (docs/architecture.md, "Published means finished").

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use ::parquet::basic::Type as Physical;
use ::parquet::errors::ParquetError;
use ::parquet::file::FOOTER_SIZE;
use ::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use ::parquet::file::statistics::Statistics;
use ::parquet::schema::types::Type;
use jiff::Span;
use jiff::civil::{Date, date};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::columns::Column;
use super::manifest::rfc3339;
use crate::error::{self, Error, Kind, Result};
use crate::sql::from_micros;

/// Bytes before the first column of a Parquet file.
const HEADER_SIZE: i64 = 4;
/// The day from which dates are counted.
const EPOCH: Date = date(1970, 1, 1);

/// What a file holds of one column. Text has no smallest and largest value here: it may name persons,
/// and the manifest is the file that is passed around. Lists have neither.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnStatistics {
    /// Integers as numbers, decimals as text with all their digits, instants in RFC 3339 (UTC), dates
    /// as `2026-11-20`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<Value>,
    /// Rows without a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) nulls: Option<u64>,
}

/// By name of the column; none for a file without rows.
pub(super) type FileStatistics = BTreeMap<String, ColumnStatistics>;

/// Reads the footer of a file that has been written with these columns and rows, and what it says of
/// the columns. `name` is what the file is called in the snapshot.
///
/// # Errors
/// `Kind::Io`, also for a file that is not what was written.
pub(super) fn read(
    path: &Path,
    name: &str,
    columns: &[Column],
    rows: u64,
) -> Result<FileStatistics> {
    let (metadata, bytes) = of_file(path, name)?;
    if let Some(difference) = difference(&metadata, columns, rows, bytes) {
        let text = format!("{name} is not what was written: {difference}");
        return Err(Error::new(Kind::Io, text));
    }
    Ok(statistics(&metadata, columns))
}

/// The names of a file's columns, in their order.
///
/// # Errors
/// `Kind::Io`.
pub(super) fn columns(path: &Path, name: &str) -> Result<Vec<String>> {
    let (metadata, _) = of_file(path, name)?;
    let fields = metadata.file_metadata().schema().get_fields();
    Ok(fields.iter().map(|field| field.name().to_owned()).collect())
}

/// A file's footer, and the size of the file in bytes.
fn of_file(path: &Path, name: &str) -> Result<(ParquetMetaData, u64)> {
    let failed = |e| error::io("read", path, e);
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(|e| match e {
        ParquetError::External(e) => Error::caused(Kind::Io, format!("cannot read {name}"), e),
        e => Error::caused(Kind::Io, format!("{name} is no whole Parquet file"), e),
    })?;
    Ok((metadata, bytes))
}

/// What is wrong with a file, if anything.
fn difference(
    metadata: &ParquetMetaData,
    columns: &[Column],
    rows: u64,
    bytes: u64,
) -> Option<String> {
    let file = metadata.file_metadata();
    let fields = file.schema().get_fields();
    let found: Vec<&str> = fields.iter().map(|field| field.name()).collect();
    let asked: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    if found != asked {
        return Some(format!("it has the columns {found:?} instead of {asked:?}"));
    }
    for (field, column) in fields.iter().zip(columns) {
        if !Form::of(&column.kind).is_that_of(field) {
            return Some(format!("column {} is not {}", column.name, column.kind));
        }
    }
    let groups = metadata.row_groups();
    let grouped: i64 = groups.iter().map(RowGroupMetaData::num_rows).sum();
    for found in [file.num_rows(), grouped] {
        if u64::try_from(found) != Ok(rows) {
            return Some(format!("it has {found} rows instead of {rows}"));
        }
    }
    let end = bytes.saturating_sub(FOOTER_SIZE as u64);
    let outside = groups.iter().flat_map(RowGroupMetaData::columns).find(|chunk| {
        let begin = chunk.dictionary_page_offset().unwrap_or_else(|| chunk.data_page_offset());
        let size = chunk.compressed_size();
        begin < HEADER_SIZE || size < 0 || begin.saturating_add(size).unsigned_abs() > end
    });
    outside.map(|chunk| format!("column {} lies outside of it", chunk.column_path()))
}

/// What the row groups together say of each column.
fn statistics(metadata: &ParquetMetaData, columns: &[Column]) -> FileStatistics {
    let groups = metadata.row_groups();
    if groups.is_empty() {
        return FileStatistics::new();
    }
    let descr = metadata.file_metadata().schema_descr();
    let mut all = FileStatistics::new();
    for (leaf, descriptor) in descr.columns().iter().enumerate() {
        // A list has its values in a column below.
        if descriptor.path().parts().len() > 1 {
            continue;
        }
        let column = &columns[descr.get_column_root_idx(leaf)];
        let form = Form::of(&column.kind);
        let mut range = Range::default();
        for group in groups {
            range.add(form, group.num_rows(), group.column(leaf).statistics());
        }
        let (min, max) = match range.ends {
            Ends::Known(min, max) => (form.json(min), form.json(max)),
            Ends::None | Ends::Unknown => (None, None),
        };
        all.insert(column.name.clone(), ColumnStatistics { min, max, nulls: range.nulls });
    }
    all
}

/// What is known of the values of a column in the row groups seen so far.
struct Range {
    ends: Ends,
    nulls: Option<u64>,
}

#[derive(Clone, Copy)]
enum Ends {
    /// There is no value.
    None,
    Known(i128, i128),
    /// A row group does not tell.
    Unknown,
}

impl Default for Range {
    fn default() -> Range {
        Range { ends: Ends::None, nulls: Some(0) }
    }
}

impl Range {
    fn add(&mut self, form: Form, rows: i64, group: Option<&Statistics>) {
        let nulls = group.and_then(Statistics::null_count_opt);
        self.nulls = self.nulls.zip(nulls).map(|(sum, nulls)| sum + nulls);
        if nulls.is_some_and(|nulls| u64::try_from(rows) == Ok(nulls)) {
            return;
        }
        let exact = group.filter(|group| group.min_is_exact() && group.max_is_exact());
        self.ends = match (self.ends, exact.and_then(|group| form.ends(group))) {
            (Ends::Unknown, _) | (_, None) => Ends::Unknown,
            (Ends::None, Some((min, max))) => Ends::Known(min, max),
            (Ends::Known(one, other), Some((min, max))) => {
                Ends::Known(one.min(min), other.max(max))
            }
        };
    }
}

/// How values of a type of DuckDB are in Parquet, as far as they have statistics in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Boolean,
    Integer(Physical),
    Decimal {
        precision: i32,
        scale: i32,
    },
    Date,
    Instant,
    Text,
    /// Lists, and what no table has.
    Other,
}

impl Form {
    fn of(kind: &str) -> Form {
        match kind {
            "BOOLEAN" => Form::Boolean,
            "TINYINT" | "SMALLINT" | "INTEGER" => Form::Integer(Physical::INT32),
            "BIGINT" => Form::Integer(Physical::INT64),
            "DATE" => Form::Date,
            "TIMESTAMP WITH TIME ZONE" => Form::Instant,
            "VARCHAR" => Form::Text,
            _ => Form::decimal(kind).unwrap_or(Form::Other),
        }
    }

    /// `DECIMAL(18,2)`.
    fn decimal(kind: &str) -> Option<Form> {
        let (precision, scale) =
            kind.strip_prefix("DECIMAL(")?.strip_suffix(')')?.split_once(',')?;
        Some(Form::Decimal { precision: precision.parse().ok()?, scale: scale.parse().ok()? })
    }

    fn is_that_of(self, field: &Type) -> bool {
        if self == Form::Other {
            return true;
        }
        if !field.is_primitive() {
            return false;
        }
        let physical = field.get_physical_type();
        match self {
            Form::Boolean => physical == Physical::BOOLEAN,
            Form::Integer(size) => physical == size,
            Form::Decimal { precision, scale } => {
                field.get_precision() == precision && field.get_scale() == scale
            }
            Form::Date => physical == Physical::INT32,
            Form::Instant => physical == Physical::INT64,
            Form::Text => physical == Physical::BYTE_ARRAY,
            Form::Other => true,
        }
    }

    /// The smallest and the largest value of a row group, as the integers that stand in the file.
    fn ends(self, group: &Statistics) -> Option<(i128, i128)> {
        if matches!(self, Form::Text | Form::Other) {
            return None;
        }
        match group {
            Statistics::Boolean(ends) => {
                Some((i128::from(*ends.min_opt()?), i128::from(*ends.max_opt()?)))
            }
            Statistics::Int32(ends) => {
                Some((i128::from(*ends.min_opt()?), i128::from(*ends.max_opt()?)))
            }
            Statistics::Int64(ends) => {
                Some((i128::from(*ends.min_opt()?), i128::from(*ends.max_opt()?)))
            }
            Statistics::FixedLenByteArray(ends) => {
                Some((big_endian(ends.min_bytes_opt()?)?, big_endian(ends.max_bytes_opt()?)?))
            }
            Statistics::Int96(_)
            | Statistics::Float(_)
            | Statistics::Double(_)
            | Statistics::ByteArray(_) => None,
        }
    }

    /// The value that an integer stands for; `None` where the form has no text for it, as for the
    /// year 300,000.
    fn json(self, stored: i128) -> Option<Value> {
        match self {
            Form::Boolean => Some(Value::Bool(stored != 0)),
            Form::Integer(_) => i64::try_from(stored).ok().map(Value::from),
            Form::Decimal { scale, .. } => Some(decimal(stored, scale).into()),
            Form::Date => {
                let days = i32::try_from(stored).ok()?;
                let span = Span::new().try_days(days).ok()?;
                Some(EPOCH.checked_add(span).ok()?.to_string().into())
            }
            Form::Instant => Some(rfc3339(from_micros(i64::try_from(stored).ok())?).into()),
            Form::Text | Form::Other => None,
        }
    }
}

/// A signed integer of up to 16 bytes.
fn big_endian(bytes: &[u8]) -> Option<i128> {
    let negative = bytes.first()? & 0x80 != 0;
    let mut whole = [if negative { 0xff } else { 0 }; 16];
    let at = whole.len().checked_sub(bytes.len())?;
    whole[at..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(whole))
}

/// A decimal with as many digits behind the point as its type has.
fn decimal(unscaled: i128, scale: i32) -> String {
    let Some(behind) = usize::try_from(scale).ok().filter(|behind| *behind > 0) else {
        return unscaled.to_string();
    };
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = behind + 1);
    let (whole, fraction) = digits.split_at(digits.len() - behind);
    format!("{}{whole}.{fraction}", if unscaled < 0 { "-" } else { "" })
}
