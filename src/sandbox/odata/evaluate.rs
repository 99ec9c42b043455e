//! Whether a row matches a filter.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::super::api::answer::Refusal;
use super::super::record::{Record, Value, guid_text};
use super::parse::{Expr, Literal, Op};

/// Something whose fields a filter and an order can read.
pub(crate) trait Row {
    /// The named field; `None` where such rows have no such field.
    fn value(&self, field: &str) -> Option<Cow<'_, Value>>;
}

impl Row for Record {
    fn value(&self, field: &str) -> Option<Cow<'_, Value>> {
        self.get(field).map(Cow::Borrowed)
    }
}

/// Whether the row matches. A field that the rows do not have, and a literal of another type than
/// the field's, are refused.
pub(crate) fn matches(expr: &Expr, row: &impl Row) -> Result<bool, Refusal> {
    match expr {
        Expr::And(parts) => {
            for part in parts {
                if !matches(part, row)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        Expr::Or(parts) => {
            for part in parts {
                if matches(part, row)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Expr::Compare { field, op, literal } => {
            let value = row
                .value(field)
                .ok_or_else(|| Refusal::bad_request(format!("There is no column '{field}'")))?;
            compare(field, &value, *op, literal)
        }
    }
}

fn compare(field: &str, value: &Value, op: Op, literal: &Literal) -> Result<bool, Refusal> {
    let order = match (value.is_null(), literal) {
        // NULL equals NULL alone, differs from everything else, and has no place in an order.
        (true, Literal::Null) => return Ok(matches!(op, Op::Eq)),
        (true, _) => return Ok(matches!(op, Op::Ne)),
        (false, Literal::Null) => return Ok(matches!(op, Op::Ne)),
        (false, literal) => order(value, literal).ok_or_else(|| {
            Refusal::bad_request(format!("'{field}' cannot be compared with this kind of value"))
        })?,
    };
    Ok(match op {
        Op::Eq => order == Ordering::Equal,
        Op::Ne => order != Ordering::Equal,
        Op::Ge => order != Ordering::Less,
        Op::Le => order != Ordering::Greater,
    })
}

fn order(value: &Value, literal: &Literal) -> Option<Ordering> {
    match literal {
        Literal::Null => None,
        Literal::Bool(b) => match value {
            Value::Bool(v) => Some(v.cmp(b)),
            _ => None,
        },
        Literal::Number(n) => value.number().map(|v| v.cmp(n)),
        Literal::Instant(at) => value.instant().map(|v| v.cmp(at)),
        Literal::Text(text) => match value {
            Value::Text(v) => Some(v.as_ref().cmp(text.as_str())),
            Value::Guid(guid) => Some(guid_text(*guid).cmp(&text.to_ascii_lowercase())),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::Ticks;
    use super::super::filter;
    use super::*;

    fn row() -> Record {
        let mut row = Record::default();
        row.put("Id", 7)
            .put("Kind", "Sale")
            .put("Missing", Value::Null)
            .put("Selected", true)
            .money("Amount", 1250)
            .put("At", Ticks::parse("2026-01-02T03:04:05.1234567Z", false).unwrap());
        row
    }

    #[test]
    fn rows_are_compared_by_value() {
        for (text, expected) in [
            ("Id eq 7", true),
            ("Id ge 8", false),
            ("Kind ne 'Valuation'", true),
            ("Missing ne 'Valuation'", true),
            ("Missing eq null", true),
            ("Missing ge 1", false),
            ("Id ne null", true),
            ("Selected eq true and (Id eq 1 or Id eq 7)", true),
            ("Amount eq 12.5", true),
            ("At ge datetime'2026-01-02T03:04:05.1234567Z'", true),
            ("At ge datetime'2026-01-02T03:04:05.1234568Z'", false),
            ("At le datetime'2026-01-02T03:04:05.1234567Z'", true),
        ] {
            assert_eq!(matches(&filter(text).unwrap(), &row()).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn unknown_columns_and_other_types_are_refused() {
        for text in ["Name eq 'x'", "Id eq '7'", "Kind eq 1", "At ge '2026-01-01'"] {
            assert!(matches(&filter(text).unwrap(), &row()).is_err(), "{text}");
        }
    }
}
