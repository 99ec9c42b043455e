//! The arguments of `casemirror lease`.

use clap::Args;

/// `casemirror lease`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  casemirror lease
  casemirror lease --release

Hosts that share lake.catalog (PostgreSQL) or a bucket of publish.parquet let one at a time ask the \
change feeds. It moves by itself when its holder ends, or is killed while another one waits. It stays \
where its holder has vanished before anybody else waited: the holder may ask the feeds still, out of reach.")]
pub struct Lease {
    /// Let others take it. Only when its holder is gone for good: else both ask the feeds until it notices
    #[arg(long)]
    pub(crate) release: bool,
}
