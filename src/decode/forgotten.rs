//! Persons whose values are kept out of the mirror: it is known by keyed hashes which contacts they are and
//! which texts were theirs (docs/architecture.md, "Forgetting").
//!
//! Texts are compared word by word, whatever stands between the words, however they are capitalized and
//! however a letter is composed, so that `20 30 40 50` is found in `Ring 20-30-40-50!`. A word is a run of
//! letters and digits. A name is found with its last word first too, and in the genitive. What is looked for has the form
//! of its kind: a detail that is but a town or a word is everybody's. Numbers of telephones and persons are
//! found by their digits, however they are grouped, with the prefix of the country and without it. Where the mirror
//! has but the hash of a value, a number or an e-mail address in a text is hashed and compared. The hash of each text
//! is such a text too: of a column that privacy hashes, the store has nothing else to be asked about.

mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::value::RawValue;

use super::canonical::{object, quoted};
use super::hashes::Hashes;
use crate::catalog::Class;
use words::{address, genitive, grouped, is_detail, numbers, words};

/// What stands in a longer text where a forgotten value stood.
pub(crate) const FORGOTTEN: &str = "[forgotten]";

/// Objects and lists within each other beyond this are one text: see `canonical.rs`.
const MAX_DEPTH: usize = 64;
/// From so many letters and digits on, a text is somebody's alone.
const TELLING: usize = 5;
/// From so many digits on, a number is looked for however they are grouped.
const NUMBER: usize = 7;
/// A number is tried by its hash up to so many digits.
const LONGEST_HASHED: usize = 20;
/// Such characters stand between two groups of digits of one number.
const GAP: &[char] = &[' ', '\u{a0}', '\u{202f}', '-', '\u{2013}', '.', '/', '(', ')', '+'];

/// One thing that is kept out. It says nothing of what it is without the key of the mirror's hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// A person, by the contact's id.
    Contact { hash: u64 },
    /// A text: how many words it has, and the hashes of the first and of all.
    Text { words: u32, first: u64, hash: u64 },
    /// A number, by its digits and how many they are.
    Number { digits: u32, hash: u64 },
}

/// What SQL can look for to find the rows in which a text may stand.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// ASCII in lower case, in the text in lower case; empty where every text may be one.
    Word(String),
    /// Digits, in the text without [`Part::gap`].
    Digits(String),
    /// A number or an e-mail address of which only the hash is known.
    Hashed,
}

impl Part {
    /// [`Part::Hashed`] numbers have at least so many digits.
    pub(crate) const LEAST_DIGITS: usize = NUMBER;

    /// Characters that may stand between digits.
    pub(crate) fn gap() -> String {
        GAP.iter().collect()
    }
}

/// What becomes of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cleared {
    /// Nothing in it is forgotten.
    Same,
    /// It is all that it says.
    Gone,
    /// The rest of it.
    Without(String),
}

/// The list of what is kept out.
#[derive(Clone)]
pub(crate) struct Forgotten {
    hashes: Hashes,
    contacts: BTreeSet<u64>,
    /// By the first word: how many words, and the hash of all. The longest first.
    texts: BTreeMap<u64, BTreeSet<std::cmp::Reverse<(u32, u64)>>>,
    /// By how many digits.
    numbers: BTreeMap<u32, BTreeSet<u64>>,
    /// See [`Forgotten::generation`].
    generation: u64,
}

impl Forgotten {
    /// Nobody is forgotten.
    pub(crate) fn nobody(key: [u8; 32]) -> Forgotten {
        Forgotten {
            hashes: Hashes::new(key),
            contacts: BTreeSet::new(),
            texts: BTreeMap::new(),
            numbers: BTreeMap::new(),
            generation: 0,
        }
    }

    /// How often this process has learned more of somebody on the list.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The list of the next generation, with these too.
    pub(crate) fn with(&self, entries: impl IntoIterator<Item = Entry>) -> Forgotten {
        let mut list = self.clone();
        entries.into_iter().for_each(|entry| list.add(entry));
        list.generation += 1;
        list
    }

    /// Whether it is on the list.
    pub(crate) fn has(&self, entry: Entry) -> bool {
        match entry {
            Entry::Contact { hash } => self.contacts.contains(&hash),
            Entry::Number { digits, hash } => {
                self.numbers.get(&digits).is_some_and(|all| all.contains(&hash))
            }
            Entry::Text { words, first, hash } => {
                let all = self.texts.get(&first);
                all.is_some_and(|all| all.contains(&std::cmp::Reverse((words, hash))))
            }
        }
    }

    /// Adds what is to be kept out.
    pub(crate) fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Contact { hash } => {
                self.contacts.insert(hash);
            }
            Entry::Number { digits, hash } => {
                self.numbers.entry(digits).or_default().insert(hash);
            }
            Entry::Text { words, first, hash } => {
                self.texts.entry(first).or_default().insert(std::cmp::Reverse((words, hash)));
            }
        }
    }

    /// The entry of a person.
    pub(crate) fn contact(&self, id: i64) -> Entry {
        Entry::Contact { hash: self.hash(b"contact", [id.to_string().as_str()]) }
    }

    /// The entries of a text of a person, the one of the text as it is first; none where so many have the
    /// same that it tells nothing. Such is a name of one word, an identity number without a digit, and a contact detail
    /// that has not the form of one. `class`: of a name none.
    pub(crate) fn entries_of(&self, text: &str, class: Option<Class>) -> Vec<Entry> {
        let placed = words(text);
        let letters: usize = placed.iter().map(|(_, word)| word.chars().count()).sum();
        let has_form = match class {
            None => placed.len() > 1,
            // A hash shows no form.
            Some(_) if self.hashes.made(text) => true,
            Some(Class::Identifier) => text.contains(|c: char| c.is_ascii_digit()),
            Some(Class::ContactDetail) => is_detail(text, &placed),
        };
        if letters < TELLING || !has_form {
            return Vec::new();
        }
        let mut words: Vec<&str> = placed.iter().map(|(_, word)| word.as_str()).collect();
        let mut entries = vec![self.text_entry(&words)];
        if class.is_none() {
            words.rotate_right(1);
            entries.push(self.text_entry(&words));
        }
        entries.extend(numbers(text).iter().map(|number| self.number_entry(number)));
        // Names stand in a contact's row as they are, and hashed in the rows of others.
        if !self.hashes.made(text) {
            entries.push(self.hash_entry(text));
        }
        entries
    }

    /// What a text is known by, whatever its form.
    pub(crate) fn known_by(&self, text: &str) -> Vec<Entry> {
        let placed = words(text);
        let words: Vec<&str> = placed.iter().map(|(_, word)| word.as_str()).collect();
        let numbers = numbers(text).into_iter().map(|number| self.number_entry(&number));
        [self.text_entry(&words), self.hash_entry(text)].into_iter().chain(numbers).collect()
    }

    /// The entry of a text as it stands in a column that privacy hashes.
    fn hash_entry(&self, text: &str) -> Entry {
        self.text_entry(&[&self.hashes.hash(text)])
    }

    fn number_entry(&self, digits: &str) -> Entry {
        Entry::Number { digits: length(digits.len()), hash: self.hash(b"number", [digits]) }
    }

    fn text_entry(&self, words: &[&str]) -> Entry {
        Entry::Text {
            words: length(words.len()),
            first: self.hash(b"word", words.iter().copied().take(1)),
            hash: self.hash(b"text", words.iter().copied()),
        }
    }

    /// Parts of which every text has one that has this one in it.
    pub(crate) fn parts_of(&self, text: &str) -> Vec<Part> {
        let words = words(text);
        let parts = words.iter().flat_map(|(_, word)| word.split(|c: char| !c.is_ascii()));
        let word = parts.max_by_key(|part| part.len()).unwrap_or_default().to_owned();
        // The others have it in them.
        let shortest = numbers(text).into_iter().min_by_key(String::len);
        let hashed =
            if self.hashes.made(text) { Part::Hashed } else { Part::Word(self.hashes.hash(text)) };
        [Part::Word(word), hashed].into_iter().chain(shortest.map(Part::Digits)).collect()
    }

    /// Whether a text is a hash that privacy has made.
    pub(crate) fn is_hash(&self, text: &str) -> bool {
        self.hashes.made(text)
    }

    /// Whether nothing is kept out.
    pub(crate) fn is_empty(&self) -> bool {
        self.contacts.is_empty() && self.has_no_text()
    }

    fn has_no_text(&self) -> bool {
        self.texts.is_empty() && self.numbers.is_empty()
    }

    /// Whether this contact is forgotten.
    pub(crate) fn has_contact(&self, id: i64) -> bool {
        !self.contacts.is_empty() && self.has(self.contact(id))
    }

    /// A text without what is forgotten.
    pub(crate) fn clear(&self, text: &str) -> Cleared {
        if self.has_no_text() {
            return Cleared::Same;
        }
        let words = words(text);
        let mut out = String::new();
        // How far the text is in `out`, and the word to look at.
        let (mut taken, mut at) = (0, 0);
        while at < words.len() {
            match self.length_at(text, &words[at..]) {
                Some(length) if length == words.len() => return Cleared::Gone,
                Some(length) => {
                    out.push_str(&text[taken..words[at].0.start]);
                    out.push_str(FORGOTTEN);
                    taken = words[at + length - 1].0.end;
                    at += length;
                }
                None => at += 1,
            }
        }
        if taken == 0 {
            return Cleared::Same;
        }
        out.push_str(&text[taken..]);
        Cleared::Without(out)
    }

    /// The same of a text of a column. One that has a class may be known by its hash alone.
    pub(crate) fn clear_cell(&self, text: &str, is_classed: bool) -> Cleared {
        let is_known = || is_classed && !self.has_no_text() && self.has(self.hash_entry(text));
        match self.clear(text) {
            Cleared::Gone => Cleared::Gone,
            _ if is_known() => Cleared::Gone,
            cleared => cleared,
        }
    }

    /// What is left of a text.
    pub(crate) fn text_without(&self, text: &str) -> Option<String> {
        self.cell_without(text, false)
    }

    /// What is left of a text of a column.
    pub(crate) fn cell_without(&self, text: &str, is_classed: bool) -> Option<String> {
        match self.clear_cell(text, is_classed) {
            Cleared::Same => Some(text.to_owned()),
            Cleared::Gone => None,
            Cleared::Without(rest) => Some(rest),
        }
    }

    /// What is left of a JSON value.
    pub(crate) fn json_without(&self, raw: &str) -> String {
        self.clear_json(raw).unwrap_or_else(|| raw.to_owned())
    }

    /// How many words a forgotten text has that begins here, the longest.
    fn length_at(&self, text: &str, words: &[(Range<usize>, String)]) -> Option<usize> {
        self.text_at(text, words).max(self.number_at(text, words)).max(self.hashed_at(text, words))
    }

    fn text_at(&self, text: &str, words: &[(Range<usize>, String)]) -> Option<usize> {
        let (place, first) = words.first()?;
        let known = self.texts.get(&self.hash(b"word", [first.as_str()]))?;
        let is_first = || !text[..place.start].contains(char::is_alphanumeric);
        known.iter().find_map(|std::cmp::Reverse((length, hash))| {
            let length = *length as usize;
            let (last, before) = words.get(..length)?.split_last()?;
            let is_known = |last: &str| {
                let before = before.iter().map(|(_, word)| word.as_str());
                self.hash(b"text", before.chain([last])) == *hash
            };
            // Alone it is no genitive, and may be another's name.
            let is_genitive = || {
                let says_more = length < words.len() || !is_first();
                !before.is_empty() && says_more && genitive(&last.1).is_some_and(is_known)
            };
            (is_known(&last.1) || is_genitive()).then_some(length)
        })
    }

    fn number_at(&self, text: &str, words: &[(Range<usize>, String)]) -> Option<usize> {
        let longest = *self.numbers.last_key_value()?.0 as usize;
        let is_known = |digits: &str| {
            let known = self.numbers.get(&length(digits.len()));
            known.is_some_and(|all| all.contains(&self.hash(b"number", [digits])))
        };
        let grouped = grouped(text, words, longest);
        grouped.iter().rfind(|grouped| is_known(&grouped.digits)).map(|grouped| grouped.words)
    }

    /// The same of a value that is known by its hash alone.
    fn hashed_at(&self, text: &str, words: &[(Range<usize>, String)]) -> Option<usize> {
        let start = words.first()?.0.start;
        let is_known = |plain: &str| self.has(self.hash_entry(plain));
        if let Some((address, length)) = address(text, words) {
            return (is_known(address) || is_known(&address.to_lowercase())).then_some(length);
        }
        let grouped = grouped(text, words, LONGEST_HASHED);
        let mut numbers = grouped.iter().filter(|grouped| grouped.digits.len() >= NUMBER);
        let known = numbers.rfind(|grouped| {
            let written = &text[start..grouped.end];
            is_known(&grouped.digits)
                || (written != grouped.digits && is_known(written))
                // It begins with its first digit, and the platform may write a `+` before that.
                || (text[..start].ends_with('+')
                    && (is_known(&text[start - 1..grouped.end])
                        || is_known(&format!("+{}", grouped.digits))))
        });
        known.map(|grouped| grouped.words)
    }

    /// A JSON value without what is forgotten, in canonical form; `None` where nothing in it is.
    pub(crate) fn clear_json(&self, raw: &str) -> Option<String> {
        if self.has_no_text() {
            return None;
        }
        let cleared = self.value(raw, 0);
        (cleared != raw).then_some(cleared)
    }

    fn value(&self, raw: &str, depth: usize) -> String {
        match raw.as_bytes().first() {
            Some(b'{') if depth < MAX_DEPTH => {
                if let Ok(fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw) {
                    let mut out = String::with_capacity(raw.len());
                    let each = fields.into_iter();
                    let each = each.map(|(name, v)| (name, self.value(v.get(), depth + 1)));
                    object(self.names_without(each.collect()).into_iter(), &mut out);
                    return out;
                }
            }
            Some(b'[') if depth < MAX_DEPTH => {
                if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw) {
                    let each = items.into_iter().map(|item| self.value(item.get(), depth + 1));
                    return format!("[{}]", each.collect::<Vec<_>>().join(","));
                }
            }
            Some(b'"') => {
                if let Ok(text) = serde_json::from_str::<String>(raw) {
                    return match self.clear(&text) {
                        Cleared::Same => raw.to_owned(),
                        Cleared::Gone => "null".to_owned(),
                        Cleared::Without(rest) => quoted(&rest),
                    };
                }
            }
            _ => {}
        }
        // A number, or what cannot be taken apart.
        match self.clear(raw) {
            Cleared::Same => raw.to_owned(),
            Cleared::Gone | Cleared::Without(_) => "null".to_owned(),
        }
    }

    /// The fields of an object, with names that say nothing of what is forgotten. Of several that are called the same then
    /// no value is kept: whichever name is forgotten first, it comes to that.
    pub(super) fn names_without(
        &self,
        fields: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        if self.has_no_text() {
            return fields;
        }
        let mut all = BTreeMap::new();
        for (name, value) in fields {
            all.entry(self.name_without(name))
                .and_modify(|value: &mut String| "null".clone_into(value))
                .or_insert(value);
        }
        all
    }

    /// What is left of the name of a field, which has one in any case.
    pub(crate) fn name_without(&self, name: String) -> String {
        match self.clear(&name) {
            Cleared::Same => name,
            Cleared::Gone => FORGOTTEN.to_owned(),
            Cleared::Without(rest) => rest,
        }
    }

    /// What tells this list from every other.
    pub(super) fn seal(&self) -> String {
        let contacts = self.contacts.iter().map(|hash| format!("{hash:x}"));
        let texts = self.texts.iter().flat_map(|(first, all)| {
            all.iter()
                .map(move |std::cmp::Reverse((words, hash))| format!("{first:x} {words} {hash:x}"))
        });
        let numbers = self
            .numbers
            .iter()
            .flat_map(|(digits, all)| all.iter().map(move |hash| format!("{digits} {hash:x}")));
        let all: Vec<String> = contacts.chain(texts).chain(numbers).collect();
        format!("{:016x}", self.hash(b"list", all.iter().map(String::as_str)))
    }

    fn hash<'t>(&self, of: &[u8], texts: impl IntoIterator<Item = &'t str>) -> u64 {
        let texts = texts.into_iter().map(|text| text.as_bytes());
        // Apart from what hides values.
        let purpose = [b"forgotten ", of].concat();
        let [a, b, c, d, e, f, g, h, ..] =
            self.hashes.digest(std::iter::once(purpose.as_slice()).chain(texts));
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// As it stands in an [`Entry`].
fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
