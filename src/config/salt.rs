//! How two processes find out whether they have the same secret, and tell each other none.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::text::hex;

/// What the digests of one comparison are keyed by, so that they say nothing in another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Salt(String);

impl Salt {
    /// One that nobody has had.
    pub(crate) fn random() -> Salt {
        Salt(hex(&rand::random::<[u8; 32]>()))
    }

    pub(super) fn digest(&self, secret: &str) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
        mac.update(secret.as_bytes());
        hex(&mac.finalize().into_bytes())
    }
}
