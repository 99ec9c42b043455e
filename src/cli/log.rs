//! What is logged, and whether in colours.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{LevelFilter, ParseError};

use super::args::Cli;

/// The client of the object store. What it tells of a call may end in its signature.
const OBJECT_STORE: &str = "object_store";

/// What is logged: as `named` (`RUST_LOG`) says, else as the command line says; and why `named` is not heeded, if so.
pub fn filter(cli: &Cli, named: Option<&str>) -> (EnvFilter, Option<String>) {
    let quiet = cli.global.quiet + u8::from(cli.command.tells_a_story());
    let level = match (quiet, cli.global.verbose) {
        (0, 0) => "warn,casemirror=info",
        (_, 1) => "info,casemirror=debug",
        (_, 2..) => "debug,casemirror=trace",
        (1, _) => "warn",
        _ => "error",
    };
    match named.filter(|named| !named.trim().is_empty()).map(guarded) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(reason)) => (by_rule(level), Some(reason.to_string())),
        None => (by_rule(level), None),
    }
}

fn by_rule(level: &str) -> EnvFilter {
    guarded(level).unwrap_or_else(|_| EnvFilter::new(level))
}

/// The directives with `object_store=warn` in place of whatever they say of that, of its modules too; less where they
/// want less of everything.
fn guarded(directives: &str) -> Result<EnvFilter, ParseError> {
    let others: Vec<&str> = directives
        .split(',')
        .map(str::trim)
        .filter(|one| !one.is_empty() && !one.starts_with(OBJECT_STORE))
        .collect();
    let general = others.iter().filter_map(|one| one.parse::<LevelFilter>().ok()).max();
    let most = general.unwrap_or(LevelFilter::WARN).min(LevelFilter::WARN);
    let guard = format!("{OBJECT_STORE}={most}").parse()?;
    Ok(EnvFilter::try_new(others.join(","))?.add_directive(guard))
}

/// Whether the log is in colours: on a terminal that has them, where nobody wants none (<https://no-color.org/>).
pub fn is_coloured(is_terminal: bool, no_color: Option<&str>, term: Option<&str>) -> bool {
    is_terminal && no_color.is_none_or(str::is_empty) && term != Some("dumb")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rstest::rstest;

    use super::*;

    fn shown(line: &str, named: Option<&str>) -> (String, Option<String>) {
        let cli = Cli::parse_from(std::iter::once("casemirror").chain(line.split(' ')));
        let (filter, reason) = filter(&cli, named);
        (filter.to_string(), reason)
    }

    #[rstest]
    #[case::as_the_command_line_says("run", None, "casemirror=info,object_store=warn,warn")]
    #[case::an_empty_one_says_nothing("run", Some(""), "casemirror=info,object_store=warn,warn")]
    #[case::more("run -vv", None, "casemirror=trace,debug,object_store=warn")]
    #[case::errors_alone("run -qq", None, "error,object_store=error")]
    #[case::in_place_of_verbosity("run -vv", Some("info"), "info,object_store=warn")]
    #[case::in_place_of_quiet(
        "run -q",
        Some("casemirror=debug"),
        "casemirror=debug,object_store=warn"
    )]
    #[case::modules("run", Some("object_store::client=trace, a=info"), "a=info,object_store=warn")]
    #[case::nothing("run", Some("off"), "object_store=off,off")]
    fn the_environment_chooses_levels_and_never_those_of_the_object_store(
        #[case] line: &str,
        #[case] named: Option<&str>,
        #[case] expected: &str,
    ) {
        let (filter, reason) = shown(line, named);
        let mut directives: Vec<&str> = filter.split(',').collect();
        directives.sort_unstable();
        assert_eq!(directives.join(","), expected);
        assert_eq!(reason, None);
    }

    #[test]
    fn what_is_no_list_of_levels_is_told_and_not_heeded() {
        let (filter, reason) = shown("run -v", Some("casemirror=loud"));
        assert!(
            filter.contains("casemirror=debug") && filter.contains("object_store=warn"),
            "{filter}"
        );
        assert!(reason.is_some());
    }

    #[rstest]
    #[case::a_terminal(true, None, Some("xterm"), true)]
    #[case::an_empty_wish_is_none(true, Some(""), None, true)]
    #[case::a_wish(true, Some("1"), Some("xterm"), false)]
    #[case::a_terminal_without_them(true, None, Some("dumb"), false)]
    #[case::a_file(false, None, Some("xterm"), false)]
    fn colours_go_to_terminals_that_have_them_and_to_nobody_who_wants_none(
        #[case] is_terminal: bool,
        #[case] no_color: Option<&str>,
        #[case] term: Option<&str>,
        #[case] coloured: bool,
    ) {
        assert_eq!(is_coloured(is_terminal, no_color, term), coloured);
    }
}
