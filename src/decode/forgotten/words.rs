//! Words, numbers and addresses in a text, as what is forgotten is looked for.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use icu_normalizer::ComposingNormalizerBorrowed;

use super::{GAP, LONGEST_HASHED, NUMBER};

/// At most so many characters of [`GAP`] stand between two groups of digits of one number.
const LONGEST_GAP: usize = 3;
/// The platform's own country calling code, and how many digits a number has there.
const COUNTRY: (&str, usize) = ("47", 8);
/// A postcode has so many digits, and the number of a house no more.
const POSTCODE: usize = 4;

/// Digits with which some words of a text begin, and where these end.
pub(super) struct Grouped {
    pub(super) words: usize,
    pub(super) end: usize,
    pub(super) digits: String,
}

/// The numbers of at most so many digits that begin with the first of these words: of one, two and more groups.
pub(super) fn grouped(
    text: &str,
    words: &[(Range<usize>, String)],
    longest: usize,
) -> Vec<Grouped> {
    let mut all: Vec<Grouped> = Vec::new();
    for (at, (place, word)) in words.iter().enumerate() {
        let before = all.last();
        let gap = before.map_or("", |before| &text[before.end..place.start]);
        let is_gap = gap.chars().all(|c| GAP.contains(&c)) && gap.chars().count() <= LONGEST_GAP;
        let digits = before.map_or("", |before| &before.digits).to_owned() + word;
        if !is_gap || !word.bytes().all(|b| b.is_ascii_digit()) || digits.len() > longest {
            break;
        }
        all.push(Grouped { words: at + 1, end: place.end, digits });
    }
    all
}

/// The word of which this is the genitive, as Norwegian has it: `Nordmanns`.
pub(super) fn genitive(word: &str) -> Option<&str> {
    let of = word.strip_suffix('s')?;
    (of.chars().count() > 1 && of.chars().all(char::is_alphabetic)).then_some(of)
}

/// The e-mail address that begins with the first of these words, and how many words it has.
pub(super) fn address<'t>(
    text: &'t str,
    words: &[(Range<usize>, String)],
) -> Option<(&'t str, usize)> {
    let start = words.first()?.0.start;
    let is_end = |c: char| c.is_whitespace() || "<>()[]{},;:\"'".contains(c);
    let token = text[start..].split(is_end).next()?.trim_end_matches(['.', '!', '?']);
    let within = words.iter().take_while(|(place, _)| place.end <= start + token.len());
    token.contains('@').then(|| (token, within.count()))
}

/// The digits of a text that is a number of a telephone or a person, in the forms in which people write it:
/// with and without the prefix of the country. Empty where it is no such text.
pub(super) fn numbers(text: &str) -> BTreeSet<String> {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if digits.len() < NUMBER || text.chars().any(|c| !c.is_ascii_digit() && !GAP.contains(&c)) {
        return BTreeSet::new();
    }
    let (country, own) = COUNTRY;
    let of_country = |full: &str| match full.strip_prefix(country) {
        Some(rest) if rest.len() == own => Some(rest.to_owned()),
        _ => None,
    };
    let full = if text.trim_start().starts_with(['+', '(']) && text.contains('+') {
        Some(digits.clone())
    } else {
        digits.strip_prefix("00").map(str::to_owned)
    };
    let full = full.or_else(|| (digits.len() == own).then(|| format!("{country}{digits}")));
    let full = full.or_else(|| of_country(&digits).map(|_| digits.clone()));
    let mut all = BTreeSet::from([digits]);
    let Some(full) = full else { return all };
    match of_country(&full) {
        Some(national) => {
            all.insert(national);
        }
        // Which of its digits are the prefix is not known.
        None => {
            let rests = (1..=3).filter_map(|prefix| full.get(prefix..));
            for rest in rests.filter(|rest| rest.len() >= NUMBER) {
                all.extend([rest.to_owned(), format!("0{rest}")]);
            }
        }
    }
    all.extend([format!("00{full}"), full]);
    all
}

/// Whether a contact detail has the form of one that is somebody's alone: an e-mail address, the number of a telephone, or
/// a street with the number of a house.
pub(super) fn is_detail(text: &str, words: &[(Range<usize>, String)]) -> bool {
    let mut signs =
        text.match_indices('@').map(|(at, sign)| (&text[..at], &text[at + sign.len()..]));
    let is_mailbox = signs.any(|(name, domain)| {
        name.ends_with(|c: char| !c.is_whitespace()) && domain.starts_with(char::is_alphanumeric)
    });
    let is_telephone = |at: usize| {
        grouped(text, &words[at..], LONGEST_HASHED).iter().any(|group| group.digits.len() >= NUMBER)
    };
    is_mailbox || (0..words.len()).any(is_telephone) || has_house(text)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Digits,
    Letters,
    Other,
}

impl Kind {
    /// `None` of what stands between a street and its number: a space, or the point of a shortened word.
    fn of(c: char) -> Option<Kind> {
        match c {
            '0'..='9' => Some(Kind::Digits),
            '.' => None,
            _ if c.is_alphabetic() || is_mark(c) => Some(Kind::Letters),
            _ if c.is_whitespace() && c != '\n' => None,
            _ => Some(Kind::Other),
        }
    }
}

/// Whether a text has a word and the number of a house: `Storgata 12B`, `12 Baker Street`. A postcode is none:
/// `3015 Drammen`, `NO 3015 Drammen`, `111 22 Stockholm`.
fn has_house(text: &str) -> bool {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let runs = chars.chunk_by(|(_, one), (_, next)| Kind::of(*one) == Kind::of(*next));
    // Each with its text and how many letters it has.
    let runs = runs.filter_map(|run| Some((Kind::of(run[0].1)?, &text[run[0].0..], run.len())));
    let runs: Vec<(Kind, &str, usize)> = runs.collect();
    let beside = |at: Option<usize>| match at.and_then(|at| runs.get(at)) {
        Some((kind, _, length)) => (*kind, *length),
        None => (Kind::Other, 0),
    };
    let is_house = |at: usize| {
        let (kind, from, digits) = runs[at];
        if kind != Kind::Digits || from.starts_with('0') || digits > POSTCODE {
            return false;
        }
        match (beside(at.checked_sub(1)), beside(Some(at + 1))) {
            // Before a name it is a postcode, and after a word the house at a long road.
            ((before, street), (after, letters)) if digits == POSTCODE => {
                let has_town = after == Kind::Letters && letters > 1;
                before == Kind::Letters && street > 2 && !has_town
            }
            // Groups of one number.
            ((Kind::Digits, _), _) | ((Kind::Other, _), (Kind::Digits, _)) => false,
            _ => true,
        }
    };
    let is_word = |(kind, _, letters): &(Kind, &str, usize)| *kind == Kind::Letters && *letters > 1;
    runs.iter().any(is_word) && (0..runs.len()).any(is_house)
}

/// The words of a text in lower case and composed, each with its place.
pub(super) fn words(text: &str) -> Vec<(Range<usize>, String)> {
    let mut all = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_alphanumeric() || (is_mark(c) && start.is_some()), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                all.push((from..at, composed(&text[from..at].to_lowercase()).into_owned()));
                start = None;
            }
            _ => {}
        }
    }
    all
}

/// Whether it belongs to the letter before it.
fn is_mark(c: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&c)
}

/// In Unicode's normalization form C: each letter with its marks as one character where there is one.
fn composed(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    ComposingNormalizerBorrowed::new_nfc().normalize(text)
}
