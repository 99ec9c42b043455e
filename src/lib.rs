//! Mirrors a property brokerage's JSON API into a DuckDB database and Parquet snapshots.
//!
//! Data goes one way; each step knows only what it is handed, and only the cycle sees them all:
//!
//! ```text
//!   change feeds ─► feed ──► plan ──► extract ──► decode ──► mirror ──► publish ─► DuckDB file,
//!                 (dates   (stale   (complete   (record    (committed            Parquet files
//!                  seen)    scopes)  answers)    batches)   scopes)
//!                             ▲         │                      │
//!        brokerage API ◄── source ◄─────┘                      │
//!                             └────── seen and fetched ◄───────┘
//! ```
//!
//! Which part may name which others is a table in `tests/layers.rs`; no arrow leads back. The steps, in
//! the order of the data:
//!
//! - [`feed`]: the change feeds become what was *seen*.
//! - [`plan`]: seen against *fetched*: what is stale (pure).
//! - [`extract`]: stale scopes become answers.
//! - [`decode`]: answers become record batches, rejects and drift; privacy is applied.
//! - [`mirror`]: the store: merges scopes, keeps history, state, run log and reports.
//! - [`publish`]: the DuckDB copy and the Parquet snapshots.
//! - [`lake`]: the published file, carried to tables that readers on other machines share.
//!
//! Beside them, what makes the calls:
//!
//! - [`source`]: the API as a client: token, throttle ledger, limits, retry, OData, pages.
//! - [`journals`]: months, windows, and the calls of a journal's month.
//! - [`lease`]: which of several hosts asks the change feeds.
//! - [`hints`]: what webhooks say, kept until the store has it.
//!
//! What joins them:
//!
//! - [`cycle`]: one cycle: joins the steps and says what it did.
//! - [`verify`]: control totals: the mirror held against the source.
//! - [`pending`]: what is stale and why, for people to read.
//! - [`status`]: all of it that people want to know at a glance.
//! - [`forecast`]: what the next run would call, for people to read.
//! - [`backup`]: what cannot be fetched again, in one file, and back.
//! - [`session`]: runs on the open store, from their start in the run log to their end.
//! - [`alert`]: tells people once what needs them.
//! - [`http`]: the status page, health and metrics of the daemon.
//! - [`daemon`]: `casemirror run`: polls, cycles, publishing and the socket for other commands.
//! - [`cli`]: the commands.
//!
//! What everything stands on, and what names no step:
//!
//! - [`scope`]: the nouns that all steps share: what a scope is, was fetched at, and is read for.
//! - [`catalog`]: `schemas/*.toml` as resources and columns: Arrow schema, DDL, dictionary.
//! - [`config`]: layers of settings become one typed configuration.
//! - [`counter`]: change counters, by which unchanged rows are known.
//! - [`schedule`]: cron expressions in their zone: when something is due (pure).
//! - [`disk`]: the room on a disk.
//! - [`durable`]: files that are synced and then renamed: the one place that makes something visible.
//! - [`pulse`]: when the daemon's parts last did what they are for.
//! - [`ticks`]: instants as the source counts them, in 100 ns.
//! - [`sql`]: SQL identifiers and literals, quoted.
//! - [`text`]: numbers with their noun, and as JSON has them.
//! - [`tls`]: what encrypts connections.
//! - [`error`]: one error, whose kind decides retry, exit status and hint.
//! - [`memory`]: when freed memory goes back to the system.
//! - [`progress`]: a bar on a terminal, log lines elsewhere.
//! - [`failpoint`]: named points at which a test kills the process.
//!
//! Apart from all of it, sharing nothing with the client:
//!
//! - [`sandbox`]: the simulated brokerage behind the demo and the tests; a feature of the build.

mod alert;
mod backup;
pub mod catalog;
pub mod cli;
pub mod config;
mod counter;
pub mod cycle;
mod daemon;
pub mod decode;
mod disk;
mod durable;
pub mod error;
mod extract;
pub mod failpoint;
pub mod feed;
mod forecast;
mod hints;
mod http;
mod journals;
mod lake;
mod lease;
pub mod memory;
pub mod mirror;
mod pending;
mod plan;
pub mod progress;
pub mod publish;
mod pulse;
#[cfg(feature = "sandbox")]
pub mod sandbox;
mod schedule;
pub mod scope;
mod session;
pub mod source;
mod sql;
mod status;
mod text;
mod ticks;
mod tls;
mod verify;

#[cfg(test)]
mod fuzz;
