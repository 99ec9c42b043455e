//! JSON in one form: compact, keys sorted, numbers digit by digit as they were received.
//!
//! That is the form of `_extra` (contract section 3), so that an unchanged record gives unchanged text.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::privacy::Privacy;

/// Deeper than this, text is kept as it came.
const MAX_DEPTH: usize = 64;

/// `raw` in canonical form, with the privacy class of every nested field name applied.
pub(super) fn canonical(raw: &str, privacy: &Privacy) -> String {
    let mut out = String::with_capacity(raw.len());
    write(raw, privacy, 0, &mut out);
    out
}

fn write(raw: &str, privacy: &Privacy, depth: usize, out: &mut String) {
    if depth < MAX_DEPTH {
        match raw.as_bytes().first() {
            Some(b'{') => {
                if let Ok(map) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw) {
                    let fields = map.iter().filter_map(|(name, value)| {
                        let nested =
                            |text: &str, out: &mut String| write(text, privacy, depth + 1, out);
                        let mut text = String::new();
                        privacy
                            .unknown_field(name, value.get(), nested, &mut text)
                            .then_some((name, text))
                    });
                    object(fields, out);
                    return;
                }
            }
            Some(b'[') => {
                if let Ok(list) = serde_json::from_str::<Vec<&RawValue>>(raw) {
                    out.push('[');
                    for (i, value) in list.iter().enumerate() {
                        if i > 0 {
                            out.push(',');
                        }
                        write(value.get(), privacy, depth + 1, out);
                    }
                    out.push(']');
                    return;
                }
            }
            Some(b'"') => {
                if let Ok(text) = serde_json::from_str::<String>(raw) {
                    out.push_str(&quoted(&text));
                    return;
                }
            }
            _ => {}
        }
    }
    out.push_str(raw);
}

/// Writes an object of values that are canonical already.
pub(super) fn object<N: AsRef<str>>(fields: impl Iterator<Item = (N, String)>, out: &mut String) {
    out.push('{');
    let mut first = true;
    for (name, value) in fields {
        if !first {
            out.push(',');
        }
        first = false;
        out.push_str(&quoted(name.as_ref()));
        out.push(':');
        out.push_str(&value);
    }
    out.push('}');
}

/// A JSON string literal.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
