//! The commands that need the simulated brokerage.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::RangedU64ValueParser;

/// `casemirror demo`.
#[derive(Debug, Clone, Args)]
pub struct Demo {
    /// Cases of the simulated brokerage
    #[arg(long, value_name = "N", default_value = "500", value_parser = case_count())]
    pub(crate) cases: usize,
    /// The same seed makes the same brokerage
    #[arg(long, value_name = "S", default_value_t = DEFAULT_SEED)]
    pub(crate) seed: u64,
    /// Folder for the files, emptied of an earlier demo's; one that holds anything else is refused
    #[arg(long, value_name = "DIR", default_value = "./casemirror-demo")]
    pub(crate) dir: PathBuf,
    /// Stay up until interrupted, instead of ending after the reports
    #[arg(long)]
    pub(crate) serve: bool,
}

/// `casemirror sandbox`.
#[derive(Debug, Clone, Args)]
pub struct Sandbox {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8650")]
    pub(crate) listen: SocketAddr,
    /// Cases of the simulated brokerage
    #[arg(long, value_name = "N", default_value = "500", value_parser = case_count())]
    pub(crate) cases: usize,
    /// The same seed makes the same brokerage
    #[arg(long, value_name = "S", default_value_t = DEFAULT_SEED)]
    pub(crate) seed: u64,
}

/// The simulated brokerage that is made when no other is asked for.
const DEFAULT_SEED: u64 = 1;

/// A brokerage without cases shows nothing, and a larger one than this does not fit into memory.
fn case_count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=10_000_000)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser as _;

    use super::super::{Cli, Command};

    fn parse(line: &str) -> Result<Command, clap::Error> {
        let words = std::iter::once("casemirror").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.command)
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let Command::Demo(demo) = parse("demo").unwrap() else { panic!("not demo") };
        assert_eq!((demo.cases, demo.serve), (500, false));
        assert_eq!(demo.dir, Path::new("./casemirror-demo"));
        let Command::Sandbox(sandbox) = parse("sandbox").unwrap() else { panic!("not sandbox") };
        assert_eq!(sandbox.listen.to_string(), "127.0.0.1:8650");
    }

    #[test]
    fn a_brokerage_without_cases_is_wrong_usage() {
        assert_eq!(parse("demo --cases 0").unwrap_err().exit_code(), 2);
    }

    #[test]
    fn only_the_demo_tells_a_story() {
        assert!(parse("demo").unwrap().tells_a_story());
        assert!(!parse("sandbox").unwrap().tells_a_story());
    }
}
