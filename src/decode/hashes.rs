//! The keyed hashes of a mirror: what a value is replaced by where privacy hides it.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Hexadecimal digits of a hash, and how many of them at its end prove that this mirror made it.
const HASH_DIGITS: usize = 32;
const MARK_DIGITS: usize = 8;

/// The key, ready for use.
#[derive(Clone)]
pub(super) struct Hashes {
    mac: Hmac<Sha256>,
}

impl Hashes {
    pub(super) fn new(key: [u8; 32]) -> Hashes {
        let mac = Hmac::<Sha256>::new_from_slice(&key).unwrap_or_else(|_| {
            unreachable!("HMAC takes a key of any length");
        });
        Hashes { mac }
    }

    /// A keyed hash of `text`: 32 hexadecimal digits, equal for equal text within one mirror. A hash
    /// of this mirror stays what it is: values that were stored while a class was hidden and values
    /// that were stored while it was kept can be told apart, and none is hashed twice.
    pub(super) fn hash(&self, text: &str) -> String {
        if self.made(text) {
            return text.to_owned();
        }
        let digest = self.digits(&[text], HASH_DIGITS - MARK_DIGITS);
        let mark = self.mark(&digest);
        digest + &mark
    }

    /// Whether a text is a hash of this mirror, by the mark that only the key can make.
    pub(super) fn made(&self, text: &str) -> bool {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        text.len() == HASH_DIGITS && text.bytes().all(is_digit) && {
            let (digest, mark) = text.split_at(HASH_DIGITS - MARK_DIGITS);
            self.mark(digest) == mark
        }
    }

    /// A digest that is used for this alone, and reveals nothing of the key.
    pub(super) fn digest_for(&self, purpose: &str) -> String {
        self.digits(&[purpose, ""], HASH_DIGITS)
    }

    fn mark(&self, digest: &str) -> String {
        self.digits(&["mark of a hash", digest], MARK_DIGITS)
    }

    /// The first hexadecimal digits of the keyed digest of these texts.
    fn digits(&self, texts: &[&str], count: usize) -> String {
        let mut out = String::with_capacity(count);
        for byte in self.digest(texts.iter().map(|text| text.as_bytes())).iter().take(count / 2) {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
        }
        out
    }

    /// The keyed digest of these texts, told apart.
    pub(super) fn digest<'t>(&self, texts: impl IntoIterator<Item = &'t [u8]>) -> [u8; 32] {
        let mut mac = self.mac.clone();
        for (n, text) in texts.into_iter().enumerate() {
            if n > 0 {
                mac.update(&[0]);
            }
            mac.update(text);
        }
        mac.finalize().into_bytes().into()
    }
}
