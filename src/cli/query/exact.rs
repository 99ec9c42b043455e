//! What of a result can be shown exactly. Types and values that would come out as others are refused, with the
//! way to their text.

use arrow::array::types::{
    ArrowTemporalType, Date32Type, Decimal128Type, Float32Type, Float64Type, Time64MicrosecondType,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType,
};
use arrow::array::{Array, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch};
use arrow::datatypes::{DataType, TimeUnit};
use duckdb::Statement;
use duckdb::core::{LogicalTypeHandle, LogicalTypeId};

use crate::error::{Error, Kind, Result};

/// A decimal of arrow has so many digits, and DuckDB gives its large integers as such.
const MOST_DIGITS: u32 = 38;

/// Refuses a column of a type that arrow has not, or has with less in it.
///
/// # Errors
/// `Query` naming column and type.
pub(super) fn check_types(statement: &Statement<'_>) -> Result<()> {
    for (number, name) in statement.column_names().iter().enumerate() {
        if let Some(id) = inexact(&statement.column_logical_type(number)) {
            let kind = format!("{id:?}").to_uppercase();
            return Err(refused(name, &format!("has the type {kind}")));
        }
    }
    Ok(())
}

fn inexact(kind: &LogicalTypeHandle) -> Option<LogicalTypeId> {
    use LogicalTypeId as Id;
    match kind.id() {
        Id::Boolean
        | Id::Tinyint
        | Id::Smallint
        | Id::Integer
        | Id::Bigint
        | Id::Hugeint
        | Id::UTinyint
        | Id::USmallint
        | Id::UInteger
        | Id::UBigint
        | Id::Float
        | Id::Double
        | Id::Decimal
        | Id::Date
        | Id::Time
        | Id::Timestamp
        | Id::TimestampS
        | Id::TimestampMs
        | Id::TimestampNs
        | Id::TimestampTZ
        | Id::Interval
        | Id::Varchar
        | Id::Blob
        | Id::Enum
        | Id::Uuid
        | Id::SqlNull => None,
        Id::Struct => (0..kind.num_children()).find_map(|child| inexact(&kind.child(child))),
        Id::List | Id::Array => inexact(&kind.child(0)),
        Id::Map => (0..2).find_map(|child| inexact(&kind.child(child))),
        other => Some(other),
    }
}

/// Refuses values that no text of arrow's shows in every format: `infinity`, what is no number, dates beyond its
/// calendar, and integers of more digits than its decimals.
///
/// # Errors
/// `Query` naming the column.
pub(super) fn check_values(batch: &RecordBatch) -> Result<()> {
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if let Some(what) = unshown(column) {
            return Err(refused(field.name(), &format!("holds {what}")));
        }
    }
    Ok(())
}

/// What cannot be shown in a column, if anything.
fn unshown(column: &dyn Array) -> Option<&'static str> {
    match column.data_type() {
        DataType::Decimal128(_, _) => {
            let bound = 10_u128.pow(MOST_DIGITS);
            let mut values = column.as_primitive::<Decimal128Type>().iter().flatten();
            let found = values.any(|value| value.unsigned_abs() >= bound);
            found.then_some("an integer of more than 38 digits")
        }
        DataType::Float32 => is_no_number::<Float32Type>(column),
        DataType::Float64 => is_no_number::<Float64Type>(column),
        DataType::Date32 => beyond::<Date32Type>(column),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => beyond::<TimestampSecondType>(column),
            TimeUnit::Millisecond => beyond::<TimestampMillisecondType>(column),
            TimeUnit::Microsecond => beyond::<TimestampMicrosecondType>(column),
            TimeUnit::Nanosecond => beyond::<TimestampNanosecondType>(column),
        },
        DataType::Time64(TimeUnit::Microsecond) => {
            let times = column.as_primitive::<Time64MicrosecondType>();
            let found = (0..times.len())
                .any(|row| times.is_valid(row) && times.value_as_time(row).is_none());
            found.then_some("the time 24:00:00")
        }
        DataType::List(_) => unshown(column.as_list::<i32>().values()),
        DataType::LargeList(_) => unshown(column.as_list::<i64>().values()),
        DataType::FixedSizeList(_, _) => unshown(column.as_fixed_size_list().values()),
        DataType::Map(_, _) => unshown(column.as_map().entries()),
        DataType::Struct(_) => column.as_struct().columns().iter().find_map(|c| unshown(c)),
        _ => None,
    }
}

/// JSON has no such numbers, and would show none at all.
fn is_no_number<T: ArrowPrimitiveType>(column: &dyn Array) -> Option<&'static str>
where
    f64: From<T::Native>,
{
    let mut values = column.as_primitive::<T>().iter().flatten();
    values.any(|value| !f64::from(value).is_finite()).then_some("infinity, or what is no number")
}

fn beyond<T: ArrowTemporalType>(column: &dyn Array) -> Option<&'static str>
where
    i64: From<T::Native>,
{
    let values: &PrimitiveArray<T> = column.as_primitive();
    let found = (0..values.len())
        .any(|row| values.is_valid(row) && values.value_as_datetime(row).is_none());
    found.then_some("infinity, or a date that is beyond every calendar")
}

fn refused(column: &str, what: &str) -> Error {
    Error::new(
        Kind::Query,
        format!(
            "the query failed: the column {column} {what}, which cannot be shown as it is: \
             CAST(... AS VARCHAR) shows its text"
        ),
    )
}

#[cfg(test)]
mod tests {
    use duckdb::Connection;
    use rstest::rstest;

    use super::*;

    fn checked(value: &str) -> Result<()> {
        let conn = Connection::open_in_memory().unwrap();
        let mut statement = conn.prepare(&format!("SELECT {value} AS x")).unwrap();
        let _ = statement.stream_arrow([]).unwrap();
        check_types(&statement)?;
        while let Some(rows) = statement.step().unwrap() {
            check_values(&RecordBatch::from(&rows))?;
        }
        Ok(())
    }

    #[rstest]
    #[case("170141183460469231731687303715884105727::HUGEINT")]
    #[case("-100000000000000000000000000000000000000::HUGEINT")]
    #[case("5::UHUGEINT")]
    #[case("'1'::BIGNUM")]
    #[case("'infinity'::DATE")]
    #[case("'-infinity'::DATE")]
    #[case("'infinity'::TIMESTAMP")]
    #[case("'infinity'::TIMESTAMPTZ")]
    #[case("DATE '300000-01-01'")]
    #[case("TIMETZ '10:00:00+02'")]
    #[case("TIME '24:00:00'")]
    #[case("'101'::BIT")]
    #[case("union_value(a := 1)")]
    #[case("[{'a': MAP {1: 'infinity'::DATE}}]")]
    #[case("[{'a': MAP {1: '101'::BIT}}]")]
    #[case("array_value('infinity'::DATE)")]
    #[case("1e400")]
    #[case("['nan'::FLOAT]")]
    fn what_would_come_out_as_another_value_is_refused(#[case] value: &str) {
        let error = checked(value).unwrap_err();
        assert_eq!(error.kind(), Kind::Query);
        assert!(error.to_string().contains("the column x"), "{error}");
        checked(&format!("({value})::VARCHAR")).unwrap();
    }

    #[rstest]
    #[case("99999999999999999999999999999999999999::HUGEINT")]
    #[case("-99999999999999999999999999999999999999::HUGEINT")]
    #[case("sum(7)")]
    #[case("1e308")]
    #[case("0.5::FLOAT")]
    #[case("DATE '-4000-01-01'")]
    #[case("TIMESTAMPTZ '9999-12-31 23:59:59+00'")]
    #[case("TIMESTAMP_NS '2026-01-01'")]
    #[case("TIMESTAMP_S '2026-01-01'")]
    #[case("TIMESTAMP_MS '2026-01-01'")]
    #[case("INTERVAL 3 MONTHS")]
    #[case("TIME '23:59:59.999999'")]
    #[case("1.25::DECIMAL(38, 37)")]
    #[case("[{'a': MAP {1: uuid()}}, NULL]")]
    #[case("'a'::ENUM ('a', 'b')")]
    #[case("'x'::BLOB")]
    #[case("NULL")]
    #[case("NULL::DATE")]
    fn everything_else_is_shown(#[case] value: &str) {
        checked(value).unwrap();
    }
}
