//! The arguments of `casemirror lake`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::check_schema;

/// `casemirror lake`.
#[derive(Debug, Clone, Subcommand)]
pub enum Lake {
    /// Fetch DuckDB's extensions for a lake, of exactly the version that is built in
    Install(LakeInstall),
    /// Carry what is published now to the lake, as `sync` and `run` do by themselves
    Publish(LakePublish),
    /// Write an SQL script that unites the lakes of several mirrors, with a column `tenant`
    Views(LakeViews),
}

/// `casemirror lake install`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  casemirror lake install
  casemirror lake install --from /media/duckdb-extensions

They are put beside the store, in a folder `extensions`. DuckDB checks their signatures; unsigned ones \
are never taken.")]
pub struct LakeInstall {
    /// A folder that has ducklake, postgres_scanner and httpfs (.duckdb_extension) somewhere, instead of
    /// DuckDB's official repository
    #[arg(long, value_name = "DIR")]
    pub(crate) from: Option<PathBuf>,
}

/// `casemirror lake publish`.
#[derive(Debug, Clone, Args)]
pub struct LakePublish {
    /// The daemon says over standard input what is to be done
    #[arg(long, hide = true)]
    pub(crate) errand: bool,
    /// It asks for the lease of the change feeds there
    #[arg(long, hide = true, conflicts_with = "errand")]
    pub(crate) lease: bool,
}

/// `casemirror lake views`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Example:
  casemirror lake views --schemas oslo,bergen,tromso group.sql
  duckdb -init group.sql")]
pub struct LakeViews {
    /// Schemas of the catalog, a mirror's each: the values of `tenant`
    #[arg(long, value_name = "SCHEMA,...", value_delimiter = ',', required = true, value_parser = schema)]
    pub(crate) schemas: Vec<String>,
    /// Where to write the script; a file that is there is replaced only where this command wrote it
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}

fn schema(text: &str) -> Result<String, String> {
    let name = text.trim();
    check_schema(name).map(|()| name.to_owned())
}
