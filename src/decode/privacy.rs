//! Privacy, applied before anything is stored (docs/architecture.md, "Privacy").

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::canonical::quoted;
use super::forgotten::{Cleared, Forgotten};
use crate::catalog::{self, Class};
use crate::config::{self, PrivacyMode};

/// Hexadecimal digits of a hash, and how many of them at its end prove that this mirror made it.
const HASH_DIGITS: usize = 32;
const MARK_DIGITS: usize = 8;

/// What the configuration says about each class, with the key of this mirror's hashes, and who is forgotten.
#[derive(Clone)]
pub struct Privacy {
    identifiers: PrivacyMode,
    contact_details: PrivacyMode,
    key: [u8; 32],
    forgotten: Arc<Forgotten>,
}

impl std::fmt::Debug for Privacy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Privacy")
            .field("identifiers", &self.identifiers)
            .field("contact_details", &self.contact_details)
            .finish_non_exhaustive()
    }
}

impl Privacy {
    /// `key` is the secret that makes the hashes of this mirror its own.
    pub fn new(settings: &config::Privacy, key: [u8; 32]) -> Privacy {
        Privacy {
            identifiers: settings.identifiers,
            contact_details: settings.contact_details,
            key,
            forgotten: Arc::new(Forgotten::nobody(key)),
        }
    }

    /// The same, which keeps out what is forgotten.
    pub(crate) fn forgetting(self, forgotten: Forgotten) -> Privacy {
        Privacy { forgotten: Arc::new(forgotten), ..self }
    }

    /// Whether a text of a column with a class is, as it is or as its hash, a forgotten one.
    pub(super) fn has_forgotten(&self, text: &str) -> bool {
        let is_gone = |text: &str| self.forgotten.clear(text) == Cleared::Gone;
        !self.forgotten.is_empty() && (is_gone(text) || is_gone(&self.hash(text)))
    }

    /// Who is forgotten.
    pub(crate) fn forgotten(&self) -> &Forgotten {
        &self.forgotten
    }

    /// What happens to values of a column of this class.
    pub(crate) fn mode(&self, class: Option<Class>) -> PrivacyMode {
        match class {
            Some(Class::Identifier) => self.identifiers,
            Some(Class::ContactDetail) => self.contact_details,
            None => PrivacyMode::Keep,
        }
    }

    /// Of several classes the one that hides most.
    pub(super) fn strictest(&self, classes: impl Iterator<Item = Option<Class>>) -> Option<Class> {
        classes.max_by_key(|class| self.mode(*class)).flatten()
    }

    /// A digest of the key that reveals nothing of it, by which another key is found out.
    pub(crate) fn fingerprint(&self) -> String {
        self.digits(&["fingerprint of the key", ""], HASH_DIGITS)
    }

    /// What the digests of answers begin with: without the key nobody can try out what an answer was.
    pub(super) fn seed(&self) -> String {
        self.digits(&["digests of answers", ""], HASH_DIGITS) + &self.forgotten.seal()
    }

    /// The text of a value in which fields can no longer be told apart: as it came where privacy
    /// keeps everything, else its hash.
    pub(super) fn opaque(&self, raw: &str) -> String {
        match (self.identifiers, self.contact_details) {
            (PrivacyMode::Keep, PrivacyMode::Keep) => raw.to_owned(),
            _ => quoted(&self.hash(raw)),
        }
    }

    /// The class of a field that no column takes, by its name.
    pub(crate) fn class_of_name(name: &str) -> Option<Class> {
        catalog::class_of_name(name)
    }

    /// A keyed hash of `text`: 32 hexadecimal digits, equal for equal text within one mirror. A hash
    /// of this mirror stays what it is: values that were stored while a class was hidden and values
    /// that were stored while it was kept can be told apart, and none is hashed twice.
    pub(crate) fn hash(&self, text: &str) -> String {
        if self.made(text) {
            return text.to_owned();
        }
        let digest = self.digits(&[text], HASH_DIGITS - MARK_DIGITS);
        let mark = self.mark(&digest);
        digest + &mark
    }

    /// Whether a text is a hash of this mirror, by the mark that only the key can make.
    fn made(&self, text: &str) -> bool {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        text.len() == HASH_DIGITS && text.bytes().all(is_digit) && {
            let (digest, mark) = text.split_at(HASH_DIGITS - MARK_DIGITS);
            self.mark(digest) == mark
        }
    }

    fn mark(&self, digest: &str) -> String {
        self.digits(&["mark of a hash", digest], MARK_DIGITS)
    }

    /// The first hexadecimal digits of the keyed digest of these texts.
    fn digits(&self, texts: &[&str], count: usize) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).unwrap_or_else(|_| {
            unreachable!("HMAC takes a key of any length");
        });
        for (n, text) in texts.iter().enumerate() {
            if n > 0 {
                mac.update(&[0]);
            }
            mac.update(text.as_bytes());
        }
        let mut out = String::with_capacity(count);
        for byte in mac.finalize().into_bytes().iter().take(count / 2) {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        out
    }

    /// A column's text under its class; `None` where it is dropped.
    pub(crate) fn text<'a>(
        &self,
        class: Option<Class>,
        text: Cow<'a, str>,
    ) -> Option<Cow<'a, str>> {
        match self.mode(class) {
            PrivacyMode::Keep => Some(text),
            PrivacyMode::Hash => Some(Cow::Owned(self.hash(&text))),
            PrivacyMode::Drop => None,
        }
    }

    /// The text of a JSON value for `_extra`, `rejects` and `drift` under a class: `None` is dropped.
    pub(crate) fn json(&self, class: Option<Class>, raw: &str) -> Option<String> {
        match self.mode(class) {
            PrivacyMode::Keep => Some(raw.to_owned()),
            PrivacyMode::Hash if raw == "null" => Some(raw.to_owned()),
            PrivacyMode::Hash => {
                // Text hashes as the text itself, so that it is the same in a column and here.
                let text = serde_json::from_str::<String>(raw).unwrap_or_else(|_| raw.to_owned());
                Some(quoted(&self.hash(&text)))
            }
            PrivacyMode::Drop => None,
        }
    }

    /// Writes the value of a field that no column takes, under the class of its name; `false` where
    /// it is dropped.
    pub(super) fn unknown_field(
        &self,
        name: &str,
        raw: &str,
        keep: impl FnOnce(&str, &mut String),
        out: &mut String,
    ) -> bool {
        let class = Privacy::class_of_name(name);
        match self.mode(class) {
            PrivacyMode::Keep => {
                keep(raw, out);
                true
            }
            PrivacyMode::Hash | PrivacyMode::Drop => match self.json(class, raw) {
                Some(text) => {
                    out.push_str(&text);
                    true
                }
                None => false,
            },
        }
    }
}
