//! Parts of texts that are never stored.

use crate::catalog::Cut;

/// What is kept of a text; `None` where it cannot be told what to leave out.
pub(super) fn cut(cut: Cut, text: &str) -> Option<String> {
    match cut {
        Cut::AfterHost => address(text),
    }
}

/// Scheme, host and port of an address.
fn address(text: &str) -> Option<String> {
    let (scheme, rest) = text.trim().split_once("://")?;
    let is_scheme = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    // A backslash ends the host for browsers, and a blank stands in none.
    let authority = rest.split(['/', '?', '#', '\\']).next()?;
    let host = authority.rsplit('@').next()?;
    let plain = !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c == '%');
    (plain && !scheme.is_empty() && scheme.chars().all(is_scheme))
        .then(|| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_kept_as_far_as_its_host() {
        for (text, kept) in [
            ("https://hooks.example.no/in/s3cret?token=1#x", Some("https://hooks.example.no")),
            ("https://user:pass@hooks.example.no:8443/in", Some("https://hooks.example.no:8443")),
            ("https://hooks.example.no?token=1", Some("https://hooks.example.no")),
            ("https://hooks.example.no\\@s3cret", Some("https://hooks.example.no")),
            ("https://a@b@[::1]:80/", Some("https://[::1]:80")),
            ("hooks.example.no/s3cret", None),
            ("https:///s3cret", None),
            ("s3cret", None),
            ("", None),
        ] {
            assert_eq!(cut(Cut::AfterHost, text).as_deref(), kept, "{text}");
        }
    }
}
