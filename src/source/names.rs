//! Names of persons in what a service says: nobody knows them all, so a word that begins with a capital is shown only
//! where it is known to be none (docs/architecture.md, "Privacy").

use icu_normalizer::ComposingNormalizerBorrowed;

use super::redact::REDACTED;
use super::refusal;
use crate::catalog::{is_known_field, is_known_name};

/// Words that begin sentences and stand in messages of errors, in lower case. What is a given name too, such as
/// "will", "may", "per" or "even", is none of them.
const WORDS: &str = include_str!("words.txt");

/// What exceptions and errors of programs are called ends so.
const ENDINGS: [&str; 2] = ["exception", "error"];

/// Names of fields that errors have.
const OF_ERRORS: [&str; 18] = [
    "code",
    "correlationid",
    "count",
    "errorcode",
    "exceptiontype",
    "innererror",
    "innerexception",
    "instance",
    "requestid",
    "result",
    "results",
    "stacktrace",
    "status",
    "statuscode",
    "success",
    "timestamp",
    "traceid",
    "type",
];

/// How many names of fields are shown.
const MOST_FIELDS: usize = 8;

/// `text` without the words that begin with a capital, or have no small letters at all, and are not known to be no
/// person's name; `also`: those that are known here besides. Of a word of several, such as the name of a file, each is
/// judged by itself.
pub(super) fn without_names(text: &str, also: &[&str]) -> String {
    // However a letter is composed, it is one.
    let text = ComposingNormalizerBorrowed::new_nfc().normalize(text);
    let mut out = String::with_capacity(text.len());
    let mut rest = &*text;
    while let Some(start) = rest.find(char::is_alphanumeric) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        if also.contains(&word) || is_known(word) || is_code(word) {
            out.push_str(word);
        } else {
            parts(word)
                .for_each(|part| out.push_str(if is_like_a_name(part) { REDACTED } else { part }));
        }
        rest = behind;
    }
    out + rest
}

/// The parts of a word: it is divided at what is no letter, and where a capital follows a small letter.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let kind = |c: char| (c.is_alphabetic(), c.is_lowercase());
    let mut rest = word;
    std::iter::from_fn(move || {
        let mut letters = rest.char_indices().peekable();
        let end = loop {
            let (_, letter) = letters.next()?;
            match letters.peek() {
                None => break rest.len(),
                Some((at, next)) => {
                    let ((is_letter, is_small), (comes_letter, comes_small)) =
                        (kind(letter), kind(*next));
                    if is_letter != comes_letter || is_small && !comes_small {
                        break *at;
                    }
                }
            }
        };
        let (part, behind) = rest.split_at(end);
        rest = behind;
        Some(part)
    })
}

fn is_like_a_name(word: &str) -> bool {
    let is_capital = word.starts_with(|c: char| c.is_alphabetic() && !c.is_lowercase());
    // One letter of the alphabet is none, as in an instant.
    is_capital && !(word.len() == 1 || is_known(word))
}

/// Whether it is a number of an error, such as `AADSTS7000215`.
fn is_code(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    // Names of accounts are shorter.
    digits.len() < word.len() && digits.len() >= 5 && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Whether each word of a text is known to be no person's name.
pub(super) fn are_known(text: &str) -> bool {
    let is_number = |word: &str| word.bytes().all(|b| b.is_ascii_digit());
    text.split(|c: char| !c.is_alphanumeric()).all(|word| is_number(word) || is_known(word))
}

fn is_known(word: &str) -> bool {
    let lower = word.to_lowercase();
    WORDS.split_whitespace().any(|word| word == lower)
        || ENDINGS.iter().any(|ending| lower.ends_with(ending))
        || is_known_name(word)
}

/// Whether a name of a field that an answer has is no person's: a table's, or one that errors have.
pub(super) fn is_field(name: &str) -> bool {
    is_known_field(name)
        || refusal::is_message(name)
        || OF_ERRORS.contains(&name.to_lowercase().as_str())
}

/// Names of fields for people: those that may be shown, and how many others there are.
pub(super) fn shown_fields<'n>(
    names: impl IntoIterator<Item = &'n str>,
    is_known: impl Fn(&str) -> bool,
) -> String {
    let (known, others): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| is_known(name));
    let more = others.len() + known.len().saturating_sub(MOST_FIELDS);
    let mut shown = known[..known.len().min(MOST_FIELDS)].join(", ");
    match (known.is_empty(), more) {
        (_, 0) => {}
        (true, 1) => shown.push_str("1 that is not known"),
        (true, more) => shown.push_str(&format!("{more} that are not known")),
        (false, more) => shown.push_str(&format!(" and {more} more")),
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case("Kari Nordmann could not be read", "*** *** could not be read")]
    #[case("No contact ÅSE O'BRIEN-Lie in the Office", "No contact *** O'***-*** in the Office")]
    #[case("Per Even May, 王小明", "*** *** ***, ***")]
    #[case("The seller, Per, is unknown", "The seller, ***, is unknown")]
    #[case("Max Nordmann, Can Demir and So Li", "*** ***, *** *** and *** ***")]
    #[case("A\u{30a}se \u{d8}dega\u{30a}rd is locked", "*** *** is locked")]
    #[case("salgsoppgave_Nordmann.pdf, 2026_Ola_Nordmann", "salgsoppgave_***.pdf, 2026_***_***")]
    #[case("olaNordmann, KariNordmann", "ola***, ******")]
    #[case("Login failed for user 'OLANOR01'", "Login failed for user '***01'")]
    fn what_may_be_a_name_is_blotted_out(#[case] text: &str, #[case] shown: &str) {
        assert_eq!(without_names(text, &[]), shown);
    }

    #[rstest]
    #[case("The limit of '0' for Top is 500, not 100000")]
    #[case("You lack Cases - Read. Access denied: CaseId 17 of RevenueJournals")]
    #[case("SqlException: Invalid object; HTTP 500 Internal Server Error")]
    #[case("2026-11-21T09:54:56.1234567Z, a_b, ***")]
    #[case("AADSTS7000215: Invalid client secret")]
    #[case("Ugyldig forespørsel. Tilgang mangler.")]
    fn what_is_known_stays(#[case] text: &str) {
        assert_eq!(without_names(text, &[]), text);
    }

    #[test]
    fn what_is_known_here_alone_stays_there() {
        assert_eq!(without_names("Moonbases and Moon", &["Moonbases"]), "Moonbases and ***");
    }

    #[test]
    fn fields_of_tables_and_errors_are_named_and_others_are_counted() {
        let shown = |names: &[&str]| shown_fields(names.iter().copied(), is_field);
        assert_eq!(shown(&["Message", "Ola Nordmann"]), "Message and 1 more");
        assert_eq!(shown(&["Ola Nordmann"]), "1 that is not known");
        assert_eq!(shown(&["Ola", "Kari"]), "2 that are not known");
        assert_eq!(
            shown(&["code", "error_description", "CaseId"]),
            "code, error_description, CaseId"
        );
        assert_eq!(shown(&["code"; 10]), format!("{} and 2 more", ["code"; 8].join(", ")));
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic_and_nothing_is_left(text: String) {
            let once = without_names(&text, &[]);
            prop_assert_eq!(without_names(&once, &[]), once);
        }
    }
}
