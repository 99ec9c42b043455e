//! JSON in one form: compact, keys sorted, numbers digit by digit as they were received.
//!
//! That is the form of `_extra` (docs/architecture.md, "Values"), so that an unchanged record gives
//! unchanged text.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::privacy::Privacy;

/// Objects and lists within each other beyond this are taken as one value: reading them would need a
/// stack as deep as whatever the service sends.
const MAX_DEPTH: usize = 64;

/// `raw` in canonical form, with the privacy class of every nested field name applied. What cannot be
/// taken apart (too deep, a field name that is no text) stays as it came only where privacy keeps
/// everything.
pub(super) fn canonical(raw: &str, privacy: &Privacy) -> String {
    let mut out = String::with_capacity(raw.len());
    write(raw, privacy, 0, &mut out);
    out
}

fn write(raw: &str, privacy: &Privacy, depth: usize, out: &mut String) {
    match raw.as_bytes().first() {
        Some(b'{') => match parts::<BTreeMap<String, &RawValue>>(raw, depth) {
            Some(map) => {
                let fields = map.iter().filter_map(|(name, value)| {
                    let nested =
                        |text: &str, out: &mut String| write(text, privacy, depth + 1, out);
                    let mut text = String::new();
                    privacy
                        .unknown_field(name, value.get(), nested, &mut text)
                        .then_some((name, text))
                });
                object(fields, out);
            }
            None => out.push_str(&privacy.opaque(raw)),
        },
        Some(b'[') => match parts::<Vec<&RawValue>>(raw, depth) {
            Some(list) => {
                out.push('[');
                for (i, value) in list.iter().enumerate() {
                    if i > 0 {
                        out.push(',');
                    }
                    write(value.get(), privacy, depth + 1, out);
                }
                out.push(']');
            }
            None => out.push_str(&privacy.opaque(raw)),
        },
        Some(b'"') => match serde_json::from_str::<String>(raw) {
            Ok(text) => out.push_str(&quoted(&text)),
            Err(_) => out.push_str(raw),
        },
        _ => out.push_str(raw),
    }
}

fn parts<'a, T: serde::Deserialize<'a>>(raw: &'a str, depth: usize) -> Option<T> {
    if depth < MAX_DEPTH { serde_json::from_str(raw).ok() } else { None }
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
