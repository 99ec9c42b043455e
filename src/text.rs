//! Words that go with numbers, and the strings and numbers of JSON.

mod numbers;

use std::borrow::Cow;
use std::fmt::Display;

use bytes::Bytes;
use serde::Deserialize;

pub(crate) use numbers::{scaled, whole_number, wrong_type};

/// A JSON string, borrowed where it is written without escapes.
#[derive(Deserialize)]
pub(crate) struct JsonText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// The same without the byte order mark that some writers of JSON put first.
pub(crate) fn without_bom(text: Bytes) -> Bytes {
    let bom = b"\xEF\xBB\xBF";
    if text.starts_with(bom) { text.slice(bom.len()..) } else { text }
}

/// A text of JSON without white space around it. A form feed, which ASCII counts as that, is none to JSON.
pub(crate) fn trim_json(text: &[u8]) -> &[u8] {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    let Some(first) = text.iter().position(is_text) else { return &[] };
    let last = text.iter().rposition(is_text).unwrap_or(first);
    &text[first..=last]
}

/// So many of something: `1 case`, `2 cases`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let s = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Bytes as hexadecimal digits: `[10, 255]` is `0aff`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text as a terminal may have it. What would steer the terminal, or show the rest in another order, is
/// escaped: `\u{1b}`; lines stay lines. Texts of the platform's stand in errors, tables and reasons.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

fn steers(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Embeddings, overrides and isolates of the writing direction.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::{counted, printable};

    #[test]
    fn what_steers_a_terminal_is_escaped_and_nothing_else() {
        for text in ["", "a\nb\tc", "Ærlig øre: 1 234,50 kr – «ja» 🏠", "\\u{1b}"] {
            assert!(matches!(printable(text), std::borrow::Cow::Borrowed(same) if same == text));
        }
        let text = "a\u{1b}]0;x\u{7}b\u{9b}31mc\rd\u{8}e\u{7f}f\u{202e}g\0";
        let shown = "a\\u{1b}]0;x\\u{7}b\\u{9b}31mc\\u{d}d\\u{8}e\\u{7f}f\\u{202e}g\\u{0}";
        assert_eq!(printable(text), shown);
    }

    #[test]
    fn one_has_no_s() {
        assert_eq!(counted(0_u64, "case"), "0 cases");
        assert_eq!(counted(1_usize, "case"), "1 case");
        assert_eq!(counted(21_i64, "open reject"), "21 open rejects");
    }
}
