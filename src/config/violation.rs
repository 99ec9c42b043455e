//! What is wrong with a configuration, in words.

use std::fmt;
use std::path::PathBuf;

use figment::{Metadata, Source};

use crate::error::{Error, Kind, Result};

/// Where a setting was made. The order is that in which violations are reported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// The configuration file, as it was named; `line` and `column` from 1, where they are known.
    File {
        path: String,
        line: Option<usize>,
        column: Option<usize>,
    },
    /// The variable's name.
    Environment(String),
    CommandLine,
    Default,
}

/// What figment's metadata are called where they have no source.
const COMMAND_LINE: &str = "command line";
const DEFAULT: &str = "default";

impl Origin {
    /// What figment keeps with a value that was set here. A column is not kept: it is known only of
    /// what is no value at all.
    pub(super) fn metadata(&self) -> Metadata {
        match self {
            Origin::File { path, line, .. } => {
                let name = line.map_or_else(|| "file".to_owned(), |line| format!("line {line}"));
                Metadata::from(name, Source::File(PathBuf::from(path)))
            }
            Origin::Environment(variable) => {
                Metadata::from("environment variable", Source::Custom(variable.clone()))
            }
            Origin::CommandLine => Metadata::named(COMMAND_LINE),
            Origin::Default => Metadata::named(DEFAULT),
        }
    }

    /// The place that figment has kept with a value.
    pub(super) fn of(metadata: &Metadata) -> Origin {
        match &metadata.source {
            Some(Source::File(path)) => Origin::File {
                path: path.display().to_string(),
                line: metadata.name.strip_prefix("line ").and_then(|line| line.parse().ok()),
                column: None,
            },
            Some(Source::Custom(variable)) => Origin::Environment(variable.clone()),
            _ if metadata.name == COMMAND_LINE => Origin::CommandLine,
            _ => Origin::Default,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { path, line, column } => {
                f.write_str(path)?;
                [line, column].into_iter().flatten().try_for_each(|number| write!(f, ":{number}"))
            }
            Origin::Environment(variable) => write!(f, "environment variable {variable}"),
            Origin::CommandLine => f.write_str("command line"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// One thing that is wrong: where it was set, and what is the matter. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    origin: Origin,
    problem: String,
}

impl Violation {
    /// `problem` names the key, what was given unless it may be secret, and what is allowed.
    pub(super) fn new(origin: Origin, problem: impl Into<String>) -> Violation {
        Violation { origin, problem: problem.into() }
    }
}

/// All violations in one error, a line each, in the order of their places; `Ok` where there are
/// none.
pub(super) fn refuse_any(mut violations: Vec<Violation>) -> Result<()> {
    if violations.is_empty() {
        return Ok(());
    }
    violations.sort_by(|a, b| a.origin.cmp(&b.origin));
    let mut text = match violations.len() {
        1 => "the configuration is refused:".to_owned(),
        several => format!("the configuration is refused for {several} reasons:"),
    };
    for Violation { origin, problem } in &violations {
        text.push_str(&format!("\n  {origin}: {problem}"));
    }
    Err(Error::new(Kind::Config, text))
}

/// The candidate that `name` was most likely meant to be, if one is near: few letters differ, or it
/// is the only one whose last part is equal (`client_id` for `source.client_id`).
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str> + Clone,
) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).clamp(1, 3);
    let by_letters = candidates
        .clone()
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance);
    if let Some((_, candidate)) = by_letters {
        return Some(candidate);
    }
    let last_part = |name: &'a str| name.rsplit('.').next().unwrap_or(name);
    let wanted = name.rsplit('.').next().unwrap_or(name);
    let mut same_end = candidates.filter(|candidate| last_part(candidate) == wanted);
    same_end.next().filter(|_| same_end.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figment_keeps_every_place() {
        let file = |line| Origin::File { path: "dir/a.toml".to_owned(), line, column: None };
        let variable = Origin::Environment("CASEMIRROR_FEED__POLL".to_owned());
        for place in [file(None), file(Some(12)), variable, Origin::CommandLine, Origin::Default] {
            assert_eq!(Origin::of(&place.metadata()), place);
        }
    }

    #[test]
    fn a_name_is_near_where_a_third_of_its_letters_differ_and_three_at_most() {
        let keys = ["feed.poll", "schedule.journals_recheck"];
        assert_eq!(nearest("feed.pol", keys.into_iter()), Some("feed.poll"));
        assert_eq!(nearest("feed.qqqq", keys.into_iter()), None);
        assert_eq!(nearest("schedule.jurnal_reczeck", keys.into_iter()), Some(keys[1]));
        assert_eq!(nearest("schedule.jurnl_reczeck", keys.into_iter()), None);
    }

    #[test]
    fn a_last_part_that_several_keys_share_suggests_none() {
        let keys = ["bootstrap.since", "journals.since", "source.client_id"];
        assert_eq!(nearest("since", keys.into_iter()), None);
        assert_eq!(nearest("client_id", keys.into_iter()), Some("source.client_id"));
    }
}
