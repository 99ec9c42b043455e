//! SQL identifiers and literals, quoted. Nothing is pasted into SQL without passing here.

/// A quoted identifier: `a"b` becomes `"a""b"`.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A quoted string literal: `it's` becomes `'it''s'`.
pub fn text(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Quoted identifiers, separated by commas.
pub fn idents<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(ident).collect::<Vec<_>>().join(", ")
}

/// Quoted string literals, separated by commas.
pub fn texts<'a>(values: impl IntoIterator<Item = &'a str>) -> String {
    values.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_inside_names_and_values_are_doubled() {
        assert_eq!(ident(r#"a"b"#), r#""a""b""#);
        assert_eq!(text("it's"), "'it''s'");
        assert_eq!(idents(["a", "b"]), r#""a", "b""#);
        assert_eq!(texts(["a", "it's"]), "'a', 'it''s'");
    }
}
