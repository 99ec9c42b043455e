//! Inputs of the fuzz targets: texts of a corpus, changed here and there.
//!
//! A target is a test whose name begins with `fuzz_`. `cargo test` runs each for [`TIME`] on random inputs;
//! `BOLERO_RANDOM_TEST_TIME_MS` sets another time, and `BOLERO_RANDOM_SEED` gives a failing input again.

use std::time::Duration;

use bolero::TypeGenerator;

/// How long a target runs. All of them together take about a minute.
pub(crate) const TIME: Duration = Duration::from_secs(10);

/// A text of a corpus with some changes.
#[derive(Debug, Clone, TypeGenerator)]
pub(crate) struct Mutated {
    which: u8,
    edits: Vec<Edit>,
}

#[derive(Debug, Clone, TypeGenerator)]
enum Edit {
    Cut { at: u16, length: u8 },
    Repeat { at: u16, length: u8, times: u8 },
    Word { at: u16, which: u8 },
    Byte { at: u16, byte: u8 },
    Bytes { at: u16, bytes: Vec<u8> },
    End { at: u16 },
}

/// More than the longest text of a corpus may become by its edits.
const LONGEST: usize = 1 << 16;

impl Mutated {
    /// The input: one of the texts of `corpus`, changed, among others by `words` that mean something there.
    pub(crate) fn of(&self, corpus: &[&[u8]], words: &[&str]) -> Vec<u8> {
        let mut text = corpus[usize::from(self.which) % corpus.len()].to_vec();
        for edit in &self.edits {
            edit.apply(&mut text, words);
        }
        text
    }

    /// The same of texts; what is no UTF-8 then is replaced.
    pub(crate) fn text_of(&self, corpus: &[&str], words: &[&str]) -> String {
        let corpus: Vec<&[u8]> = corpus.iter().map(|text| text.as_bytes()).collect();
        String::from_utf8_lossy(&self.of(&corpus, words)).into_owned()
    }
}

impl Edit {
    fn apply(&self, text: &mut Vec<u8>, words: &[&str]) {
        let place = |at: u16| usize::from(at) % (text.len() + 1);
        let part = |at: u16, length: u8| {
            let from = place(at);
            from..(from + usize::from(length)).min(text.len())
        };
        match self {
            Edit::Cut { at, length } => drop(text.drain(part(*at, *length))),
            Edit::Repeat { at, length, times } => {
                let range = part(*at, *length);
                let part = text[range.clone()].repeat(usize::from(*times));
                if text.len() + part.len() < LONGEST {
                    text.splice(range.end..range.end, part);
                }
            }
            Edit::Word { at, which } => {
                let (at, word) = (place(*at), words[usize::from(*which) % words.len()]);
                text.splice(at..at, word.bytes());
            }
            Edit::Byte { at, byte } => {
                let at = place(*at);
                if let Some(there) = text.get_mut(at) {
                    *there = *byte;
                }
            }
            Edit::Bytes { at, bytes } => {
                let at = place(*at);
                text.splice(at..at, bytes.iter().copied());
            }
            Edit::End { at } => text.truncate(place(*at)),
        }
    }
}

/// Words that mean something in JSON.
pub(crate) const JSON: [&str; 20] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\ud800",
    "null",
    "true",
    "0",
    "-",
    "1e999",
    "\"Id\":",
    "\"Results\":",
    "\"Count\":",
    "[[[[[[[[",
    "0.000000000000000000001",
    "\u{feff}",
];

/// Words that mean something in TOML.
pub(crate) const TOML: [&str; 14] =
    ["[", "]", "=", "\"", "'", "\n", "[[", "]]", "#", "true", "1", "{", "}", "\"\"\""];
