//! Whole runs of the real binary against the sandbox, and what readers see of the result.

mod support;

mod cli;
mod faults;
mod interleavings;
mod kills;
mod mirror;
mod readers;
mod reports;
mod throttle;
