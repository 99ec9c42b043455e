//! Deterministic chance: a ChaCha stream for building a world, and a cheap hash for the many
//! incidental fields of wide rows, which must be the same each time a row is written.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of random choices.
#[derive(Debug, Clone)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of one thing in the world.
    pub(crate) fn new(seed: u64, stream: u64) -> Dice {
        Dice(ChaCha8Rng::seed_from_u64(mix(seed, stream)))
    }

    /// A number from 0 to `n` - 1; 0 where `n` is 0.
    pub(crate) fn below(&mut self, n: i64) -> i64 {
        let n = u64::try_from(n).unwrap_or(0).max(1);
        // The bias of the remainder is of no account for small n.
        i64::try_from(self.0.next_u64() % n).unwrap_or(0)
    }

    /// A number between two, both included.
    pub(crate) fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: i64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        *self.pick_ref(list)
    }

    pub(crate) fn pick_ref<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let n = i64::try_from(list.len()).unwrap_or(1);
        &list[usize::try_from(self.below(n)).unwrap_or(0)]
    }
}

/// A source of incidental values: each number names a value that never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trivia(pub(crate) u64);

impl Trivia {
    pub(crate) fn new(seed: u64, id: i64) -> Trivia {
        Trivia(mix(seed, id.unsigned_abs()))
    }

    pub(crate) fn at(self, number: u64) -> u64 {
        mix(self.0, number)
    }

    /// A number between two, both included.
    pub(crate) fn between(self, number: u64, low: i64, high: i64) -> i64 {
        let span = u64::try_from(high - low + 1).unwrap_or(1).max(1);
        low + i64::try_from(self.at(number) % span).unwrap_or(0)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(self, number: u64, percent: i64) -> bool {
        self.between(number, 0, 99) < percent
    }

    pub(crate) fn pick<T: Copy>(self, number: u64, list: &[T]) -> T {
        *self.pick_ref(number, list)
    }

    pub(crate) fn pick_ref<T>(self, number: u64, list: &[T]) -> &T {
        let n = i64::try_from(list.len()).unwrap_or(1);
        &list[usize::try_from(self.between(number, 0, n - 1)).unwrap_or(0)]
    }

    /// A GUID that never changes.
    pub(crate) fn guid(self, number: u64) -> u128 {
        let bits = u128::from(self.at(number)) << 64 | u128::from(self.at(number ^ 0x5bd1_e995));
        // Version 4, variant 1.
        bits & !(0xf << 76 | 0x3 << 62) | 0x4 << 76 | 0x2 << 62
    }
}

/// Two numbers into one that looks random (splitmix64's finish).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
