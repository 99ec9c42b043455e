//! The command line (docs/architecture.md, "Commands"), as clap parses it.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use serde::{Deserialize, Serialize};

use crate::config;

mod lake;
mod lease;
mod on_store;
#[cfg(feature = "sandbox")]
mod simulated;

pub use lake::{Lake, LakeInstall, LakePublish, LakeViews};
pub use lease::Lease;
pub use on_store::{Backup, Close, Forget, Journals, Restore, Status, Sync, Verify};
#[cfg(feature = "sandbox")]
pub use simulated::{Demo, Sandbox};

// Examples keep their lines; of all other texts each paragraph is one line, which clap wraps.
const EXAMPLES: &str = "  \
  casemirror init    write casemirror.toml, to be filled in
  casemirror check   see whether it is right, and what your user may read
  casemirror sync    mirror everything, later only what has changed
  casemirror run     go on mirroring; most other commands work meanwhile
  casemirror query 'FROM report.signed_cases'

Exit status: 0 done; 1 failed; 2 wrong usage or configuration; 3 done, but incomplete (see \
`casemirror status`); 4 verify found a difference.";

/// The examples, with that of the demo where it is built in.
fn examples() -> String {
    let demo = if cfg!(feature = "sandbox") {
        "  casemirror demo    see what it does, without platform and configuration\n"
    } else {
        ""
    };
    format!("Examples:\n{demo}{EXAMPLES}")
}

const RUN: &str = "\
SIGTERM or Ctrl-C stops it: what is under way is finished. A second one ends it at once; nothing that \
is committed is lost.

While it runs, sync, journals, close, export, backup, verify, plan, status and webhooks remove are forwarded to \
it and print what they always print; query reads the published file. All of them need the same configuration.";

/// Mirrors a property brokerage's data into a DuckDB database and Parquet snapshots, and keeps the
/// mirror true.
#[derive(Debug, Parser)]
#[command(version, after_help = examples(), max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// Configuration file [default: ./casemirror.toml]
    #[arg(long, global = true, value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key of the configuration: overrides file and environment; can be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = key_and_value)]
    pub(crate) set: Vec<Setting>,
    /// How logs are written to stderr
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Log more; twice: even more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
    /// Log only warnings and errors; twice: errors only
    #[arg(short, long, global = true, action = ArgAction::Count, conflicts_with = "verbose")]
    pub quiet: u8,
}

impl Global {
    /// The configuration file that was named, or the default one.
    pub(crate) fn config_path(&self) -> &Path {
        self.config.as_deref().unwrap_or(Path::new(config::DEFAULT_PATH))
    }

    /// Keys and values of all `--set`, in order, as [`config::Config::load`] takes them.
    pub(crate) fn overrides(&self) -> Vec<(String, String)> {
        self.set.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect()
    }
}

/// One `--set`. Its value may be a secret, so that it is not part of `Debug`.
#[derive(Clone)]
pub(crate) struct Setting {
    key: String,
    value: String,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setting").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What to do. What can be serialized is forwarded to the daemon where it holds the store.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Mirror a simulated brokerage: needs no configuration and no network
    #[cfg(feature = "sandbox")]
    #[serde(skip)]
    Demo(Demo),
    /// Serve the simulated brokerage's API, and nothing else
    #[cfg(feature = "sandbox")]
    #[serde(skip)]
    Sandbox(Sandbox),
    /// Write a commented configuration file; never overwrites
    #[serde(skip)]
    Init(Init),
    /// Validate the configuration, log in, and show what the API user may read; changes nothing
    #[serde(skip)]
    Check,
    /// Mirror everything, or what has changed since the last time, and publish it
    Sync(Sync),
    /// Mirror the journals of a period now
    Journals(Journals),
    /// Close a month of the journals: read it again, freeze what it is, write its pack
    Close(Close),
    /// Hold the mirror against the platform: number of cases, signed cases, sums of the revenue
    /// journals, random cases cell by cell; exit status 4 where something differs
    Verify(Verify),
    /// Write a Parquet snapshot of the store now, into publish.parquet
    Export,
    /// Write what cannot be fetched again to a new file, while the store is in use
    Backup(Backup),
    /// Make a backup the store again, where there is none
    #[serde(skip)]
    Restore(Restore),
    /// Take a person's values out of the mirror and all that it has published, and keep them out
    #[serde(skip)]
    Forget(Forget),
    /// Go on mirroring until stopped: polls the change feeds, runs the schedules, publishes
    #[serde(skip)]
    #[command(after_help = RUN)]
    Run,
    /// Show what the next sync would call, and how long that takes; asks only the change feeds
    Plan,
    /// Show what is mirrored, how fresh, what failed, what is pending and why
    Status(Status),
    /// What tells people when something needs them: trying it
    #[serde(skip)]
    #[command(subcommand)]
    Alert(Alert),
    /// Webhooks of the platform: the address that they are sent to, the end of their subscriptions
    #[command(subcommand)]
    Webhooks(Webhooks),
    /// The lake that readers on other machines share: its extensions, publishing to it, reading several as one
    #[serde(skip)]
    #[command(subcommand)]
    Lake(Lake),
    /// Which host asks the change feeds, where several are configured for one API user
    #[serde(skip)]
    Lease(Lease),
    /// Print the data dictionary of every table
    #[serde(skip)]
    Schema(Schema),
    /// Run one statement on the published database, which is all that it can reach
    #[serde(skip)]
    Query(Query),
    /// Print the completion script of a shell
    #[serde(skip)]
    Completions(Completions),
    /// Print the manual page, or that of a command, as `man` reads it
    #[serde(skip)]
    Man(Man),
}

impl Command {
    /// Whether it says itself what it does, so that the log may keep still.
    pub fn tells_a_story(&self) -> bool {
        match self {
            #[cfg(feature = "sandbox")]
            Command::Demo(_) => true,
            _ => false,
        }
    }
}

/// `casemirror init`.
#[derive(Debug, Clone, Args)]
pub struct Init {
    /// Where to write it [default: the path of --config, else ./casemirror.toml]
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<PathBuf>,
}

/// `casemirror alert`.
#[derive(Debug, Clone, Subcommand)]
pub enum Alert {
    /// Send a message that says that it is a test to alert.url, as the daemon sends what needs a person;
    /// alert.heartbeat is not called, as that says that everything is fresh
    Test,
}

/// `casemirror webhooks`.
#[derive(Debug, Clone, Subcommand, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Webhooks {
    /// Print the addresses of webhooks and domain events, which are secret: who knows them may send to them
    Url,
    /// Remove the webhook subscriptions that casemirror made at the platform
    Remove,
}

/// `casemirror schema`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  casemirror schema --format html > dictionary.html
  casemirror schema --format dbt > models/casemirror.yml")]
pub struct Schema {
    /// Markdown or a page to read, JSON for programs, the SQL that creates the tables, or the sources
    /// of a dbt project
    #[arg(long, value_name = "FORMAT", default_value = "md")]
    pub(crate) format: SchemaFormat,
}

/// `casemirror query`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  casemirror query 'FROM report.signed_cases ORDER BY month'
  casemirror query --format csv 'SELECT case_id, total_cost FROM report.total_cost' > costs.csv")]
pub struct Query {
    /// One statement that reads, as DuckDB understands it
    #[arg(value_name = "SQL")]
    pub(crate) sql: String,
    /// How the rows are printed
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub(crate) format: QueryFormat,
}

/// `casemirror completions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Example:
  casemirror completions bash > ~/.local/share/bash-completion/completions/casemirror")]
pub struct Completions {
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// `casemirror man`.
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Examples:
  casemirror man | man -l -
  casemirror man sync > casemirror-sync.1
  casemirror man lake install | man -l -")]
pub struct Man {
    /// The command whose page it is, such as `sync` or `lake install` [default: the page of casemirror itself]
    #[arg(value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// `--log-format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// `schema --format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaFormat {
    Md,
    Html,
    Json,
    Sql,
    Dbt,
}

/// `query --format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum QueryFormat {
    Table,
    /// NULL is empty and an empty text is ""; lists and structs are JSON.
    Csv,
    Json,
}

fn key_and_value(text: &str) -> Result<Setting, String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok(Setting { key: key.to_owned(), value: value.to_owned() })
        }
        _ => Err("expected KEY=VALUE, such as feed.poll=30s".to_owned()),
    }
}

/// Writes the completion script of `shell`.
///
/// # Errors
///
/// Whatever `out` fails with.
pub(crate) fn write_completions(shell: Shell, out: &mut dyn Write) -> std::io::Result<()> {
    // clap_complete panics where writing fails (a closed pipe), so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), env!("CARGO_PKG_NAME"), &mut script);
    out.write_all(&script)
}

/// Writes the manual page of `command`, or of the whole program.
///
/// # Errors
///
/// Whatever `out` fails with; `NotFound` where there is no such command.
pub(crate) fn write_man(command: &[String], out: &mut dyn Write) -> std::io::Result<()> {
    let mut all = Cli::command().disable_help_subcommand(true);
    // So that each page has the options that every command takes, and names of several words.
    all.build();
    let page = command.iter().try_fold(&all, |page, name| page.find_subcommand(name));
    let page = page.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))?;
    let mut text = Vec::new();
    clap_mangen::Man::new(page.clone()).manual("casemirror").render(&mut text)?;
    out.write_all(&text)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("casemirror").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn lists_are_separated_by_commas_or_repeated() {
        let cli = parse("sync --only cases,costs --only notes --case 17,18 --allow-removals");
        let Command::Sync(sync) = cli.unwrap().command else { panic!("not sync") };
        assert_eq!(sync.only, ["cases", "costs", "notes"]);
        assert_eq!(sync.cases, [17, 18]);
        assert!(sync.allow_removals && !sync.full);
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in [
            "--config a.toml --set feed.poll=5s -vv status",
            "status --config a.toml --set feed.poll=5s -vv",
        ] {
            let cli = parse(line).unwrap();
            assert_eq!(cli.global.config_path(), Path::new("a.toml"));
            assert_eq!(cli.global.overrides(), [("feed.poll".to_owned(), "5s".to_owned())]);
            assert_eq!(cli.global.verbose, 2);
        }
    }

    #[test]
    fn a_secret_on_the_command_line_is_not_shown() {
        let cli = parse("status --set source.client_secret=hunter2").unwrap();
        assert!(!format!("{cli:?}").contains("hunter2"));
        assert_eq!(cli.global.overrides()[0].1, "hunter2");
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let cli = parse("run").unwrap();
        assert_eq!(cli.global.config_path(), Path::new("casemirror.toml"));
        assert_eq!(cli.global.log_format, LogFormat::Text);
    }

    #[rstest]
    #[case("")]
    #[case("mirror")]
    #[case("sync --case -1")]
    #[case("sync --case x")]
    #[case("status --set feed.poll")]
    #[case("status --set =5s")]
    #[case("status -v -q")]
    #[case("schema --format xml")]
    #[case("query")]
    #[case("journals --from 2026-01-01")]
    #[case("journals --from 2026-01-01 --to 2026-02-30")]
    fn wrong_usage_exits_with_status_2(#[case] line: &str) {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn only_commands_that_exist_are_listed() {
        let command = Cli::command();
        let listed: Vec<&str> = command.get_subcommands().map(|c| c.get_name()).collect();
        let of_the_sandbox: &[&str] =
            if cfg!(feature = "sandbox") { &["demo", "sandbox"] } else { &[] };
        let always = [
            "init",
            "check",
            "sync",
            "journals",
            "close",
            "verify",
            "export",
            "backup",
            "restore",
            "forget",
            "run",
            "plan",
            "status",
            "alert",
            "webhooks",
            "lake",
            "lease",
            "schema",
            "query",
            "completions",
            "man",
        ];
        assert_eq!(listed, [of_the_sandbox, &always].concat());
    }

    /// clap wraps what is too long for the terminal: a text that has its own line ends would be wrapped twice.
    #[test]
    fn only_examples_have_lines_of_their_own() {
        let root = Cli::command();
        let all = std::iter::once(&root).chain(root.get_subcommands());
        let texts = all.filter_map(|c| Some((c.get_name(), c.get_after_help()?.to_string())));
        let mut examples = 0;
        for (name, text) in texts {
            for (line, next) in text.lines().zip(text.lines().skip(1)) {
                let is_text = |line: &str| !line.is_empty() && !line.starts_with(' ');
                assert!(!is_text(line) || !is_text(next), "{name}: {line}");
                if line.starts_with("Example") {
                    examples += 1;
                    assert!(next.starts_with("  casemirror "), "{name}: {next}");
                }
            }
        }
        assert!(examples >= 8, "{examples}");
    }

    #[test]
    fn every_command_has_a_page_of_the_manual() {
        let page = |words: &[String]| {
            let mut text = Vec::new();
            write_man(words, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let whole = page(&[]);
        assert!(whole.starts_with(".ie ") && whole.contains("Exit status: 0 done"), "{whole}");
        // The pages that are still to be looked at, with the words of their commands.
        let mut left = vec![(Cli::command(), Vec::new())];
        let mut looked = Vec::new();
        while let Some((command, words)) = left.pop() {
            let above = page(&words);
            for below in command.get_subcommands() {
                let words = [&words[..], &[below.get_name().to_owned()]].concat();
                let named = format!("casemirror\\-{}(1)", words.join("\\-"));
                assert!(above.contains(&named), "{named}");
                let own = page(&words);
                assert!(own.contains(".SH SYNOPSIS") && own.contains("\\-\\-config"), "{own}");
                let title = format!(".TH casemirror-{} ", words.join("-"));
                assert!(own.contains(&title), "{title}: {own}");
                looked.push(words.join(" "));
                left.push((below.clone(), words));
            }
        }
        for words in ["sync", "alert test", "lake install"] {
            assert!(looked.iter().any(|known| known == words), "{words}: {looked:?}");
        }
        for unknown in ["mirror", "lake mirror", "sync test"] {
            let unknown: Vec<String> = unknown.split(' ').map(str::to_owned).collect();
            let error = write_man(&unknown, &mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{unknown:?}");
        }
    }

    #[test]
    fn every_shell_gets_a_script_with_all_commands() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            write_completions(*shell, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("completions") && script.contains("allow-removals"), "{shell}");
        }
    }
}
