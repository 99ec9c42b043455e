//! Whole runs of the real binary against the sandbox, and what readers see of the result.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod cli;
mod daemon;
mod faults;
mod interleavings;
mod kills;
mod mirror;
mod readers;
mod reports;
mod throttle;
