//! How much all answers take together that are in memory: those that are being read, and those that wait to be
//! decoded. `limits.answer_bytes` bounds one of them, and many calls are under way at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use crate::error::{Error, Kind, Result};

/// So many answers of the largest size may be in memory: one that is unpacked, and what it was packed in or
/// another one.
const LARGEST_AT_ONCE: usize = 2;

/// The bound, and what there is.
#[derive(Debug)]
pub(super) struct Held {
    bytes: AtomicUsize,
    most: usize,
}

impl Held {
    /// `largest` is that of one answer, in bytes.
    pub(super) fn new(largest: usize) -> Arc<Held> {
        let most = largest.saturating_mul(LARGEST_AT_ONCE);
        Arc::new(Held { bytes: AtomicUsize::new(0), most })
    }

    /// What an answer takes that begins to come.
    pub(super) fn begin(self: &Arc<Held>) -> Share {
        Share { of: Arc::clone(self), bytes: 0 }
    }
}

/// What one answer takes; nothing any more when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<Held>,
    bytes: usize,
}

impl Share {
    /// It takes so many bytes now.
    ///
    /// # Errors
    /// `BadAnswer`: too much for all answers together. Asked again later, it may fit.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        let before = self.of.bytes.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        if before.saturating_add(more) <= self.of.most {
            return Ok(());
        }
        let text = format!(
            "the answers under way take more than {} bytes together ({LARGEST_AT_ONCE} times limits.answer_bytes)",
            self.of.most
        );
        Err(Error::new(Kind::BadAnswer, text))
    }

    /// The answer, which counts with its own size until nobody has it any more.
    pub(super) fn keep(mut self, body: Bytes) -> Bytes {
        let less = self.bytes.saturating_sub(body.len());
        self.of.bytes.fetch_sub(less, Ordering::Relaxed);
        self.bytes -= less;
        Bytes::from_owner(Kept { body, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Kept {
    body: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_held_counts_together_until_it_is_dropped() {
        let held = Held::new(100);
        let answer = |bytes: usize| {
            let mut share = held.begin();
            share.grow_to(bytes / 2)?;
            share.grow_to(bytes)?;
            Ok::<_, Error>(share.keep(vec![7; bytes].into()))
        };
        let one = answer(100).unwrap();
        let other = answer(90).unwrap();
        let refused = answer(20).unwrap_err();
        assert_eq!(refused.kind(), Kind::BadAnswer);
        assert!(refused.to_string().contains("more than 200 bytes together"), "{refused}");
        let part = one.slice(10..20);
        drop(one);
        assert!(answer(20).is_err(), "a part holds the whole");
        drop(part);
        answer(20).unwrap();
        assert_eq!(held.bytes.load(Ordering::Relaxed), 90);
        assert_eq!(other.len(), 90);
    }

    #[test]
    fn what_an_answer_was_packed_in_counts_while_it_is_unpacked() {
        let held = Held::new(100);
        let mut share = held.begin();
        share.grow_to(150).unwrap();
        let kept = share.keep(vec![7; 80].into());
        assert_eq!(held.bytes.load(Ordering::Relaxed), 80);
        drop(kept);
        assert_eq!(held.bytes.load(Ordering::Relaxed), 0);
    }
}
