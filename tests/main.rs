//! Whole runs of the real binary against the sandbox, and what readers see of the result.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

mod alerts;
mod answers;
mod belief;
mod cli;
mod closings;
mod contacts;
mod controls;
mod daemon;
mod erasure;
mod evidence;
mod export;
mod face;
mod facets;
mod faults;
mod feed;
mod forwarded;
mod freshness;
mod half_answers;
mod interleavings;
mod journal_doubt;
mod journal_months;
mod journal_reading;
mod journal_scopes;
mod journals;
mod kills;
mod layers;
mod lists;
mod looking;
mod mirror;
mod plan;
mod privacy;
mod query;
mod readers;
mod registers;
mod reports;
mod run_log;
mod runs;
mod service;
mod showings;
mod spoilt;
mod table_times;
mod tables;
mod targets;
mod throttle;
mod told;
mod unchanged;
mod upgrade;
mod user_files;
mod values;
mod verify;
mod views;
mod year;
