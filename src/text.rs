//! Words that go with numbers, and the strings of JSON.

use std::borrow::Cow;
use std::fmt::Display;

use serde::Deserialize;

/// A JSON string, borrowed where it is written without escapes.
#[derive(Deserialize)]
pub(crate) struct JsonText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

/// So many of something: `1 case`, `2 cases`.
pub(crate) fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let s = if count == N::from(1) { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Bytes as hexadecimal digits: `[10, 255]` is `0aff`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_has_no_s() {
        assert_eq!(counted(0_u64, "case"), "0 cases");
        assert_eq!(counted(1_usize, "case"), "1 case");
        assert_eq!(counted(21_i64, "open reject"), "21 open rejects");
    }
}
