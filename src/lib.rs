//! casemirror
pub mod catalog;
pub mod config;
pub mod decode;
pub mod error;
pub mod quote;
pub mod ticks;
