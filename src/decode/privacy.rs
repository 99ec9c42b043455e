//! Privacy, applied before anything is stored (docs/architecture.md, "Privacy").

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use super::canonical::quoted;
use super::forgotten::Forgotten;
use super::hashes::Hashes;
use crate::catalog::{self, Class};
use crate::config::{self, PrivacyMode};

/// What the configuration says about each class, with the key of this mirror's hashes, and who is forgotten.
#[derive(Clone)]
pub struct Privacy {
    identifiers: PrivacyMode,
    contact_details: PrivacyMode,
    hashes: Hashes,
    /// Clones share it: what one learns all know.
    forgotten: Arc<RwLock<Arc<Forgotten>>>,
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
            hashes: Hashes::new(key),
            forgotten: shared(Forgotten::nobody(key)),
        }
    }

    /// The same, which keeps out what is forgotten.
    pub(crate) fn forgetting(self, forgotten: Forgotten) -> Privacy {
        Privacy { forgotten: shared(forgotten), ..self }
    }

    /// Who is forgotten now. What decodes takes it once: a lock for each value would cost too much.
    pub(crate) fn forgotten(&self) -> Arc<Forgotten> {
        // The list is replaced as a whole, whatever ended a thread that held it.
        Arc::clone(&self.forgotten.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on another list is gone by, by whoever shares this one. The store is to have it already.
    pub(crate) fn learn(&self, list: Forgotten) {
        *self.forgotten.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(list);
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
        self.hashes.digest_for("fingerprint of the key")
    }

    /// What the digests of answers begin with: without the key nobody can try out what an answer was.
    pub(super) fn seed(&self) -> String {
        self.hashes.digest_for("digests of answers") + &self.forgotten().seal()
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

    /// See [`Hashes::hash`].
    pub(crate) fn hash(&self, text: &str) -> String {
        self.hashes.hash(text)
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

fn shared(list: Forgotten) -> Arc<RwLock<Arc<Forgotten>>> {
    Arc::new(RwLock::new(Arc::new(list)))
}
