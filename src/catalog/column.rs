//! Columns: name, type, where the value comes from, and how it is treated.

use arrow::datatypes::{DataType, Field, TimeUnit};
use std::collections::HashMap;
use std::sync::Arc;

/// Which part of a text is never stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Cut {
    /// Of an address what comes behind the host, and the user before it: both can hold secrets.
    AfterHost,
}

/// Type of a single value (docs/architecture.md, "Values").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// BIGINT.
    Int,
    /// VARCHAR; anything but a JSON string is a reject.
    Text,
    /// VARCHAR; a JSON number is taken as its digits, because events send enumerations as numbers.
    Enum,
    /// BOOLEAN.
    Bool,
    /// DECIMAL(18,2): an amount of money.
    Money,
    /// DECIMAL(18,6): fractions, percentages, ratios, prices per unit, hours, areas.
    Decimal,
    /// TIMESTAMPTZ, cut to microseconds.
    Instant,
    /// UUID.
    Guid,
    /// DATE; no JSON value is read as one: the month of a journal is a parameter of its call.
    Date,
}

impl Scalar {
    /// As written in resource files.
    pub(crate) const NAMES: [(&'static str, Scalar); 9] = [
        ("int", Scalar::Int),
        ("string", Scalar::Text),
        ("enum", Scalar::Enum),
        ("bool", Scalar::Bool),
        ("money", Scalar::Money),
        ("decimal", Scalar::Decimal),
        ("datetime", Scalar::Instant),
        ("guid", Scalar::Guid),
        ("date", Scalar::Date),
    ];

    /// Digits after the decimal point of the two decimal types.
    pub(crate) fn scale(self) -> Option<u32> {
        match self {
            Scalar::Money => Some(2),
            Scalar::Decimal => Some(6),
            Scalar::Int
            | Scalar::Text
            | Scalar::Enum
            | Scalar::Bool
            | Scalar::Instant
            | Scalar::Guid
            | Scalar::Date => None,
        }
    }

    fn sql(self) -> &'static str {
        match self {
            Scalar::Int => "BIGINT",
            Scalar::Text | Scalar::Enum => "VARCHAR",
            Scalar::Bool => "BOOLEAN",
            Scalar::Money => "DECIMAL(18,2)",
            Scalar::Decimal => "DECIMAL(18,6)",
            Scalar::Instant => "TIMESTAMPTZ",
            Scalar::Guid => "UUID",
            Scalar::Date => "DATE",
        }
    }

    pub(crate) fn arrow(self) -> DataType {
        match self {
            Scalar::Int => DataType::Int64,
            Scalar::Text | Scalar::Enum => DataType::Utf8,
            Scalar::Bool => DataType::Boolean,
            Scalar::Money => DataType::Decimal128(18, 2),
            Scalar::Decimal => DataType::Decimal128(18, 6),
            Scalar::Instant => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Scalar::Guid => DataType::FixedSizeBinary(16),
            Scalar::Date => DataType::Date32,
        }
    }
}

/// A column's type: a scalar or a list of scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ColumnType {
    pub scalar: Scalar,
    pub list: bool,
}

impl ColumnType {
    /// DuckDB's name of the type.
    pub fn sql(self) -> String {
        format!("{}{}", self.scalar.sql(), if self.list { "[]" } else { "" })
    }

    /// As written in a resource file.
    pub(crate) fn name(self) -> String {
        let scalar = Scalar::NAMES.iter().find(|(_, s)| *s == self.scalar).map_or("", |(n, _)| n);
        if self.list { format!("list<{scalar}>") } else { scalar.to_owned() }
    }

    pub(crate) fn parse(text: &str) -> Option<ColumnType> {
        let (name, list) = match text.strip_prefix("list<").and_then(|t| t.strip_suffix('>')) {
            Some(inner) => (inner, true),
            None => (text, false),
        };
        let (_, scalar) = Scalar::NAMES.iter().find(|(n, _)| *n == name)?;
        Some(ColumnType { scalar: *scalar, list })
    }
}

/// Where a column's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// A field of the record.
    Field,
    /// A parameter of the call's path. It wins over a field of the same name.
    Path,
    /// The whole answer, where that is a bare value.
    Scalar,
    /// In a child table the element's place in its parent's list, from 1; in another the record's
    /// number among those of one answer that share the rest of the key.
    Position,
    /// A column of the parent's row, whose name stands in `path`.
    Parent,
}

/// Privacy class of a column (docs/architecture.md, "Privacy").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    Identifier,
    ContactDetail,
}

/// One column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name in the database.
    pub name: String,
    /// The JSON field, outermost object first; empty where the value is no field.
    pub path: Vec<String>,
    pub(crate) origin: Origin,
    pub kind: ColumnType,
    /// Meaning, unit, and section of the reference: becomes the column's COMMENT.
    pub(crate) comment: String,
    pub class: Option<Class>,
    /// What of a text is left out, before anything is stored.
    pub(crate) cut: Option<Cut>,
    /// Updated, but makes no version in `history`.
    pub(crate) volatile: bool,
}

impl Column {
    /// The Arrow field that [`crate::decode`] fills and the appender takes.
    pub(crate) fn arrow_field(&self) -> Field {
        let scalar = |name: &str| {
            let field = Field::new(name, self.kind.scalar.arrow(), true);
            if self.kind.scalar == Scalar::Guid {
                // DuckDB takes 16 bytes as UUID only where they are marked so.
                field.with_metadata(HashMap::from([(
                    "ARROW:extension:name".to_owned(),
                    "arrow.uuid".to_owned(),
                )]))
            } else {
                field
            }
        };
        if self.kind.list {
            Field::new(&self.name, DataType::List(Arc::new(scalar("item"))), true)
        } else {
            scalar(&self.name)
        }
    }

    /// What the stored values depend on: a change of this text makes the column newly defined
    /// (docs/architecture.md, "Values").
    pub(crate) fn definition(&self) -> String {
        let cut = self.cut.map_or_else(String::new, |cut| format!("|{cut:?}"));
        format!("{}|{:?}|{}{cut}", self.kind.sql(), self.origin, self.path.join("."))
    }
}
