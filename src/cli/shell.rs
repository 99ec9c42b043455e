//! Commands that are shown to be typed.

/// A text as one argument, as a shell takes it.
pub(super) fn argument(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::argument;
    use rstest::rstest;

    #[rstest]
    #[case("a/b-1.toml", "a/b-1.toml")]
    #[case("publish.database=/x", "publish.database=/x")]
    #[case("a b", "'a b'")]
    #[case("Kari's", r"'Kari'\''s'")]
    #[case("$(x)", "'$(x)'")]
    #[case("", "''")]
    fn a_text_is_one_argument(#[case] text: &str, #[case] typed: &str) {
        assert_eq!(argument(text), typed);
    }
}
