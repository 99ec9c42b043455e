//! Persons whose values are kept out of the mirror: it is known by keyed hashes which contacts they are and
//! which texts were theirs (docs/architecture.md, "Forgetting").
//!
//! Texts are compared word by word, whatever stands between the words and however they are capitalized, so
//! that `20 30 40 50` is found in `Ring 20-30-40-50!`. A word is a run of letters and digits.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::value::RawValue;
use sha2::Sha256;

use super::canonical::{object, quoted};

/// What stands in a longer text where a forgotten value stood.
pub(crate) const FORGOTTEN: &str = "[forgotten]";

/// Objects and lists within each other beyond this are one text: see `canonical.rs`.
const MAX_DEPTH: usize = 64;
/// From so many letters and digits on, a text is somebody's alone.
const TELLING: usize = 5;

/// One thing that is kept out. It says nothing of what it is without the key of the mirror's hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// A person, by the contact's id.
    Contact { hash: u64 },
    /// A text: how many words it has, and the hashes of the first and of all.
    Text { words: u32, first: u64, hash: u64 },
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
    mac: Hmac<Sha256>,
    contacts: BTreeSet<u64>,
    /// By the first word: how many words, and the hash of all. The longest first.
    texts: BTreeMap<u64, BTreeSet<std::cmp::Reverse<(u32, u64)>>>,
}

impl Forgotten {
    /// Nobody is forgotten.
    pub(crate) fn nobody(key: [u8; 32]) -> Forgotten {
        let mac = Hmac::<Sha256>::new_from_slice(&key).unwrap_or_else(|_| {
            unreachable!("HMAC takes a key of any length");
        });
        Forgotten { mac, contacts: BTreeSet::new(), texts: BTreeMap::new() }
    }

    /// Adds what is to be kept out.
    pub(crate) fn add(&mut self, entry: Entry) {
        match entry {
            Entry::Contact { hash } => {
                self.contacts.insert(hash);
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

    /// The entry of a text of a person; `None` where so many have the same that it tells nothing. A name
    /// of one word is such a text.
    pub(crate) fn text_of(&self, text: &str, is_name: bool) -> Option<Entry> {
        let words = words(text);
        let letters: usize = words.iter().map(|(_, word)| word.chars().count()).sum();
        if letters < TELLING || (is_name && words.len() < 2) {
            return None;
        }
        let all = words.iter().map(|(_, word)| word.as_str());
        Some(Entry::Text {
            words: u32::try_from(words.len()).ok()?,
            first: self.hash(b"word", all.clone().take(1)),
            hash: self.hash(b"text", all),
        })
    }

    /// A part of the texts that have this one in them, in ASCII, which SQL can look for in lower case;
    /// empty where there is none.
    pub(crate) fn part_of(text: &str) -> String {
        let words = words(text);
        let parts = words.iter().flat_map(|(_, word)| word.split(|c: char| !c.is_ascii()));
        parts.max_by_key(|part| part.len()).unwrap_or_default().to_owned()
    }

    /// Whether nothing is kept out.
    pub(crate) fn is_empty(&self) -> bool {
        self.contacts.is_empty() && self.texts.is_empty()
    }

    /// Whether this contact is forgotten.
    pub(crate) fn has_contact(&self, id: i64) -> bool {
        !self.contacts.is_empty()
            && matches!(self.contact(id), Entry::Contact { hash } if self.contacts.contains(&hash))
    }

    /// A text without what is forgotten.
    pub(crate) fn clear(&self, text: &str) -> Cleared {
        if self.texts.is_empty() {
            return Cleared::Same;
        }
        let words = words(text);
        let mut out = String::new();
        // How far the text is in `out`, and the word to look at.
        let (mut taken, mut at) = (0, 0);
        while at < words.len() {
            match self.length_at(&words[at..]) {
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

    /// How many words a forgotten text has that begins here.
    fn length_at(&self, words: &[(Range<usize>, String)]) -> Option<usize> {
        let (_, first) = words.first()?;
        let known = self.texts.get(&self.hash(b"word", [first.as_str()]))?;
        known.iter().find_map(|std::cmp::Reverse((length, hash))| {
            let all = words.get(..*length as usize)?;
            let all = all.iter().map(|(_, word)| word.as_str());
            (self.hash(b"text", all) == *hash).then_some(*length as usize)
        })
    }

    /// A JSON value without what is forgotten, in canonical form; `None` where nothing in it is.
    pub(crate) fn clear_json(&self, raw: &str) -> Option<String> {
        if self.texts.is_empty() {
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
                    object(each.map(|(name, v)| (name, self.value(v.get(), depth + 1))), &mut out);
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

    /// What tells this list from every other.
    pub(super) fn seal(&self) -> String {
        let contacts = self.contacts.iter().map(|hash| format!("{hash:x}"));
        let texts = self.texts.iter().flat_map(|(first, all)| {
            all.iter()
                .map(move |std::cmp::Reverse((words, hash))| format!("{first:x} {words} {hash:x}"))
        });
        let all: Vec<String> = contacts.chain(texts).collect();
        format!("{:016x}", self.hash(b"list", all.iter().map(String::as_str)))
    }

    fn hash<'t>(&self, of: &[u8], texts: impl IntoIterator<Item = &'t str>) -> u64 {
        let mut mac = self.mac.clone();
        mac.update(b"forgotten ");
        mac.update(of);
        for text in texts {
            mac.update(&[0]);
            mac.update(text.as_bytes());
        }
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = mac.finalize().into_bytes().into();
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// The words of a text in lower case, each with its place.
fn words(text: &str) -> Vec<(Range<usize>, String)> {
    let mut all = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                all.push((from..at, text[from..at].to_lowercase()));
                start = None;
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(texts: &[&str]) -> Forgotten {
        let mut forgotten = Forgotten::nobody([7; 32]);
        for text in texts {
            let entry = forgotten.text_of(text, false).unwrap();
            forgotten.add(entry);
        }
        forgotten
    }

    fn without(text: &str) -> Cleared {
        Cleared::Without(text.to_owned())
    }

    #[test]
    fn a_text_is_found_word_by_word_whatever_stands_between() {
        let forgotten = with(&["ola@nordmann.no", "20 30 40 50", "Åge Ødegård"]);
        for gone in ["ola@nordmann.no", " Ola@Nordmann.NO ", "20-30.40/50", "åge  ØDEGÅRD."] {
            assert_eq!(forgotten.clear(gone), Cleared::Gone, "{gone}");
        }
        assert_eq!(forgotten.clear("Ring 20304050"), Cleared::Same, "another number of words");
        assert_eq!(forgotten.clear("Åge Ødegårds hus"), Cleared::Same, "another word");
        assert_eq!(
            forgotten.clear("Ring 20 30-40 50, eller skriv til ola@nordmann.no!"),
            without("Ring [forgotten], eller skriv til [forgotten]!")
        );
        assert_eq!(forgotten.clear("20 20 30 40 50 50"), without("20 [forgotten] 50"));
        assert_eq!(forgotten.clear(""), Cleared::Same);
    }

    #[test]
    fn of_several_texts_that_begin_alike_the_longest_goes() {
        let forgotten = with(&["Storgata 12", "Storgata 12, 0155 Oslo"]);
        assert_eq!(forgotten.clear("Storgata 12, 0155 Oslo"), Cleared::Gone);
        assert_eq!(forgotten.clear("Storgata 12, 0155 Os"), without("[forgotten], 0155 Os"));
    }

    #[test]
    fn what_many_have_alike_tells_nothing_of_one() {
        let forgotten = Forgotten::nobody([7; 32]);
        for common in ["", "0155", "Oslo", ", -", "1 2 3 4"] {
            assert_eq!(forgotten.text_of(common, false), None, "{common}");
        }
        assert_eq!(forgotten.text_of("Nordmann", true), None, "a name of one word");
        assert!(forgotten.text_of("Ola Nordmann", true).is_some());
        assert!(forgotten.text_of("12345", false).is_some());
    }

    #[test]
    fn of_json_the_texts_go_and_the_rest_stays_as_it_is() {
        let forgotten = with(&["Ola Nordmann", "20304050"]);
        let json =
            r#"{"a":["Ola Nordmann","x"],"b":{"c":20304050,"d":1.50},"e":"Til\nOla Nordmann\"s"}"#;
        assert_eq!(
            forgotten.clear_json(json).as_deref(),
            Some(r#"{"a":[null,"x"],"b":{"c":null,"d":1.50},"e":"Til\n[forgotten]\"s"}"#)
        );
        assert_eq!(forgotten.clear_json(r#"{"a":["Ola","Nordmann"]}"#), None, "two texts");
        let deep = "[".repeat(100) + "\"Ola Nordmann\"" + &"]".repeat(100);
        assert!(!forgotten.clear_json(&deep).unwrap().contains("Ola"));
    }

    #[test]
    fn nothing_is_said_without_the_key_and_each_list_has_its_seal() {
        let (one, mut other) = (with(&["Ola Nordmann"]), Forgotten::nobody([8; 32]));
        let entry = one.text_of("Ola Nordmann", true).unwrap();
        assert_ne!(Some(entry), other.text_of("Ola Nordmann", true));
        let seal = other.seal();
        other.add(other.contact(7));
        assert!(other.has_contact(7) && !other.has_contact(8));
        assert_ne!(other.seal(), seal);
    }

    proptest! {
        #[test]
        fn a_text_is_found_in_every_other_that_it_is_a_part_of(
            before in "[\\PC]{0,12}", text in "[\\PC]{5,20}", after in "[\\PC]{0,12}"
        ) {
            let mut forgotten = Forgotten::nobody([7; 32]);
            let Some(entry) = forgotten.text_of(&text, false) else { return Ok(()) };
            forgotten.add(entry);
            let whole = format!("{before} {text} {after}");
            let part = Forgotten::part_of(&text);
            prop_assert!(whole.to_lowercase().contains(&part), "{part}");
            match forgotten.clear(&whole) {
                Cleared::Same => prop_assert!(false, "{whole}"),
                Cleared::Gone => {}
                Cleared::Without(rest) => prop_assert!(rest.contains(FORGOTTEN)),
            }
        }
    }
}
