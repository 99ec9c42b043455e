//! Arrow builders for the columns of a table.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBuilder, Date32Builder, Decimal128Builder, FixedSizeBinaryBuilder,
    Int64Builder, ListArray, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field};
use arrow::error::ArrowError;

use super::value::Value;
use crate::catalog::{ColumnType, Scalar};

enum Values {
    Int(Int64Builder),
    Text(StringBuilder),
    Bool(BooleanBuilder),
    Decimal(Decimal128Builder),
    Instant(TimestampMicrosecondBuilder),
    Guid(FixedSizeBinaryBuilder),
    Date(Date32Builder),
}

impl Values {
    /// With room for so many: most answers have a few records, and arrow's own room is for a thousand.
    fn new(kind: Scalar, room: usize) -> Values {
        match kind {
            Scalar::Int => Values::Int(Int64Builder::with_capacity(room)),
            Scalar::Text | Scalar::Enum => Values::Text(StringBuilder::with_capacity(room, 0)),
            Scalar::Bool => Values::Bool(BooleanBuilder::with_capacity(room)),
            Scalar::Money | Scalar::Decimal => {
                Values::Decimal(Decimal128Builder::with_capacity(room).with_data_type(kind.arrow()))
            }
            Scalar::Instant => Values::Instant(
                TimestampMicrosecondBuilder::with_capacity(room).with_data_type(kind.arrow()),
            ),
            Scalar::Guid => Values::Guid(FixedSizeBinaryBuilder::with_capacity(room, 16)),
            Scalar::Date => Values::Date(Date32Builder::with_capacity(room)),
        }
    }

    /// Appends; a value of another type than the builder's cannot occur, because both come from the
    /// same column, and is NULL.
    fn push(&mut self, value: Option<&Value<'_>>) {
        match self {
            Values::Int(b) => b.append_option(match value {
                Some(Value::Int(i)) => Some(*i),
                _ => None,
            }),
            Values::Text(b) => b.append_option(match value {
                Some(Value::Text(t)) => Some(t.as_ref()),
                _ => None,
            }),
            Values::Bool(b) => b.append_option(match value {
                Some(Value::Bool(v)) => Some(*v),
                _ => None,
            }),
            Values::Decimal(b) => b.append_option(match value {
                Some(Value::Decimal(d)) => Some(*d),
                _ => None,
            }),
            Values::Instant(b) => b.append_option(match value {
                Some(Value::Instant(us)) => Some(*us),
                _ => None,
            }),
            Values::Guid(b) => match value {
                // Sixteen bytes fit a builder of sixteen.
                Some(Value::Guid(bytes)) => b.append_value(bytes).unwrap_or(()),
                _ => b.append_null(),
            },
            Values::Date(b) => b.append_option(match value {
                Some(Value::Date(days)) => Some(*days),
                _ => None,
            }),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Values::Int(b) => Arc::new(b.finish()),
            Values::Text(b) => Arc::new(b.finish()),
            Values::Bool(b) => Arc::new(b.finish()),
            Values::Decimal(b) => Arc::new(b.finish()),
            Values::Instant(b) => Arc::new(b.finish()),
            Values::Guid(b) => Arc::new(b.finish()),
            Values::Date(b) => Arc::new(b.finish()),
        }
    }
}

/// Builds one column: scalars, or lists with their offsets.
pub(super) struct ColumnBuilder {
    values: Values,
    list: Option<Lists>,
}

struct Lists {
    offsets: Vec<i32>,
    valid: Vec<bool>,
    items: i32,
}

impl ColumnBuilder {
    /// With room for so many rows.
    pub(super) fn new(kind: ColumnType, room: usize) -> ColumnBuilder {
        ColumnBuilder {
            values: Values::new(kind.scalar, if kind.list { 0 } else { room }),
            list: kind.list.then(|| Lists { offsets: vec![0], valid: Vec::new(), items: 0 }),
        }
    }

    /// Appends a scalar, or NULL for a list.
    pub(super) fn push(&mut self, value: Option<&Value<'_>>) {
        match &mut self.list {
            None => self.values.push(value),
            Some(lists) => {
                lists.offsets.push(lists.items);
                lists.valid.push(false);
            }
        }
    }

    /// Appends a list.
    pub(super) fn push_list(&mut self, items: &[Option<Value<'_>>]) {
        for item in items {
            self.values.push(item.as_ref());
        }
        if let Some(lists) = &mut self.list {
            // A body is far smaller than 2^31 items: its size is limited.
            lists.items += items.len() as i32;
            lists.offsets.push(lists.items);
            lists.valid.push(true);
        }
    }

    pub(super) fn finish(&mut self, field: &Field) -> Result<ArrayRef, ArrowError> {
        let values = self.values.finish();
        let Some(lists) = self.list.take() else { return Ok(values) };
        let DataType::List(item) = field.data_type() else {
            return Err(ArrowError::SchemaError(format!("{} is no list", field.name())));
        };
        let array = ListArray::try_new(
            item.clone(),
            OffsetBuffer::new(lists.offsets.into()),
            values,
            Some(NullBuffer::from(lists.valid)),
        )?;
        debug_assert_eq!(array.data_type(), field.data_type());
        Ok(Arc::new(array))
    }
}
