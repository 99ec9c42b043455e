//! Personal data in what a service says of a call: messages can repeat the value that they complain of,
//! and are kept in tables and logs whatever the privacy settings (docs/architecture.md, "Privacy").

/// What stands in place of it.
pub(super) const REDACTED: &str = "***";

/// `text` without e-mail addresses, without numbers of eleven digits, the length of a national identity number, also
/// written as six and five, and without those of eight, the length of a telephone number, also written in groups.
pub(super) fn redact(text: &str) -> String {
    numbers(&addresses(text))
}

fn addresses(text: &str) -> String {
    let is_local = |c: char| c.is_alphanumeric() || "._%+-'".contains(c);
    let is_domain = |c: char| c.is_alphanumeric() || ".-".contains(c);
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    // In an address of ours it would be encoded.
    while let Some((at, sign)) =
        ["@", "%40"].iter().filter_map(|sign| Some((rest.find(sign)?, *sign))).min()
    {
        let (before, after) = (&rest[..at], &rest[at + sign.len()..]);
        let local = before.trim_end_matches(is_local);
        let domain = after.trim_start_matches(is_domain);
        if local.len() < before.len() && domain.len() < after.len() {
            out.push_str(local);
            out.push_str(REDACTED);
            rest = domain;
        } else {
            out.push_str(&rest[..at + sign.len()]);
            rest = after;
        }
    }
    out + rest
}

fn numbers(text: &str) -> String {
    let digits_of = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let first = digits_of(rest);
        let second = rest[first..].strip_prefix([' ', '-']).map(digits_of);
        let end = match (first, second) {
            (11 | 8, _) => Some(first),
            // With the number of a country.
            (9..=15, _) if out.ends_with('+') => Some(first),
            (6, Some(5)) => Some(12),
            _ => PHONES.iter().find_map(|groups| grouped(rest, groups)),
        };
        out.push_str(if end.is_some() { REDACTED } else { &rest[..first] });
        rest = &rest[end.unwrap_or(first)..];
    }
    out + rest
}

/// How eight digits are written in groups, with a blank between two.
const PHONES: [&[usize]; 3] = [&[2, 2, 2, 2], &[3, 2, 3], &[4, 4]];

/// How long the number is that `text` begins with, if its digits come in these groups.
fn grouped(text: &str, groups: &[usize]) -> Option<usize> {
    let mut parts = text.splitn(groups.len(), ' ');
    let mut length = groups.len() - 1;
    for (at, group) in groups.iter().enumerate() {
        let part = parts.next()?;
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        let is_last = at + 1 == groups.len();
        if digits != *group || !(is_last || part.len() == digits) {
            return None;
        }
        length += digits;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("No person 01017012345.", "No person ***.")]
    #[case("fnr=010170 12345, 010170-12345", "fnr=***, ***")]
    #[case("x01017012345y", "x***y")]
    #[case("Ola <ola.n+1@mail.example.no>, å@b.c", "Ola <***>, ***")]
    #[case("?email=ola%40example.no&top=1", "?email=***&top=1")]
    #[case("a@b a@ @a@b", "*** a@ @***")]
    #[case("tlf 46725073, +4746725073", "tlf ***, +***")]
    #[case("46 72 50 73, 467 25 073 and 4672 5073.", "***, *** and ***.")]
    fn addresses_and_identity_numbers_are_blotted_out(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(redact(text), shown);
    }

    #[rstest]
    #[case("The limit of '0' for Top is 500, not 100000")]
    #[case("123456 1234, 123456 123456, 1234567 12345, 010170  12345")]
    #[case("1234567890 and 123456789012")]
    #[case("@ alone, @home, Cases - Read, 2026-11-21T09:54:56.1234567Z")]
    fn other_text_stays(#[case] text: &str) {
        assert_eq!(redact(text), text);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic_and_nothing_is_left(text: String) {
            let once = redact(&text);
            prop_assert_eq!(redact(&once), once);
        }
    }
}
