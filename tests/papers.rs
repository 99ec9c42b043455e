//! What the papers say can be typed, works: queries answer, command lines are taken, links lead somewhere.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use casemirror::cli::args::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use duckdb::Connection;

use crate::support::{World, shown};

/// The README is one look; the rest is in `docs/`.
const MOST_LINES_OF_THE_README: usize = 200;
/// Commands that only look, so that they can be run as they stand there.
const LOOKING: [&str; 7] = ["check", "completions", "man", "plan", "query", "schema", "status"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All pages of the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in [root().to_owned(), root().join("docs")] {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    pages.sort();
    assert!(pages.len() >= 12, "{pages:?}");
    pages
}

/// Blocks between fences, with the language of each and where it begins: `docs/finance.md:12`.
fn blocks(page: &Path) -> Vec<(String, String, String)> {
    let text = fs::read_to_string(page).unwrap();
    let name = page.strip_prefix(root()).unwrap().display();
    let mut found = Vec::new();
    let mut open: Option<(String, String, String)> = None;
    for (n, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(language), None) => {
                open = Some((format!("{name}:{}", n + 1), language.to_owned(), String::new()));
            }
            (Some(_), Some(block)) => found.push(block),
            (None, Some((at, language, text))) => open = Some((at, language, text + line + "\n")),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block has no end");
    found
}

/// The text outside of blocks.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let parts = text.split("```").step_by(2);
    parts.collect::<Vec<_>>().join("\n")
}

fn blocks_of(language: &str) -> Vec<(String, String)> {
    let all = pages().into_iter().flat_map(|page| blocks(&page));
    all.filter(|(_, of, _)| of == language).map(|(at, _, text)| (at, text)).collect()
}

/// The commands of a line as a shell takes it apart; a comment ends it. Empty where a quote has no end.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let (mut word, mut quote) = (None::<String>, None);
    for letter in line.chars() {
        match (letter, quote) {
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(mark)) if letter == mark => quote = None,
            (letter, Some(_)) => word.get_or_insert_default().push(letter),
            ('#', None) if word.is_none() => break,
            (' ' | '\t' | '|' | ';' | '&' | '>' | '<', None) => {
                all.last_mut().unwrap().extend(word.take());
                if letter == '>' || letter == '<' {
                    // The file that follows is none of the command's words.
                    break;
                }
                if !letter.is_whitespace() && !all.last().unwrap().is_empty() {
                    all.push(Vec::new());
                }
            }
            (letter, None) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Vec::new();
    }
    all.last_mut().unwrap().extend(word);
    all
}

/// What of a command is casemirror's, where it is: `sudo -u casemirror casemirror status` too.
fn ours(words: &[String]) -> Option<Vec<String>> {
    let cargo = ["cargo", "run", "--release", "--"];
    if words.starts_with(&cargo.map(str::to_owned)) {
        return Some([&["casemirror".to_owned()], &words[cargo.len()..]].concat());
    }
    let mut words = words;
    loop {
        match words {
            [first, ..] if first == "casemirror" => return Some(words.to_vec()),
            [first, dash, _, rest @ ..] if first == "sudo" && dash == "-u" => words = rest,
            [docker, exec, _, rest @ ..] if docker == "docker" && exec == "exec" => words = rest,
            // The image's entry point is the program.
            [docker, run, options @ ..] if docker == "docker" && run == "run" => {
                return options.iter().position(|word| word == "casemirror").and_then(|at| {
                    let last = options[at..].to_vec();
                    (options[..at].last()? != "--name" && last.len() > 1).then_some(last)
                });
            }
            [first, rest @ ..] if first == "sudo" || first.contains('=') => words = rest,
            _ => return None,
        }
    }
}

/// Every command line of casemirror in a block for shells, and where it stands.
fn command_lines() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (at, text) in blocks_of("sh") {
        for line in text.replace("\\\n", " ").lines() {
            let ours = commands(line).into_iter().filter_map(|words| ours(&words));
            found.extend(ours.map(|words| (at.clone(), words)));
        }
    }
    found
}

#[test]
fn the_readme_is_short_and_begins_with_the_two_commands() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(lines <= MOST_LINES_OF_THE_README, "{lines} lines");
    let (_, first) = blocks_of("sh").into_iter().find(|(at, _)| at.starts_with("README")).unwrap();
    let typed: Vec<_> = first.lines().map(|line| line.split('#').next().unwrap().trim()).collect();
    assert_eq!(typed, ["cargo run --release -- demo", "cargo test --release"]);
}

#[test]
fn every_command_line_of_the_papers_is_taken() {
    let mut wrong = Vec::new();
    let lines = command_lines();
    for (at, words) in &lines {
        if let Err(error) = Cli::try_parse_from(words) {
            wrong.push(format!("{at}: {}: {error}", words.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(lines.len() >= 25, "{}", lines.len());
}

#[test]
fn every_command_in_the_text_is_taken() {
    let mut wrong = Vec::new();
    let mut looked = 0;
    for page in pages().iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let prose = prose(page).replace('\n', " ");
        let code = prose.split('`').skip(1).step_by(2);
        // What stands for something, such as `...` or `ID`, is no value.
        let whole = code.filter(|code| !code.contains("...") && !code.contains(" ID"));
        for words in whole.flat_map(commands).filter_map(|words| ours(&words)) {
            if words.len() == 1 {
                // The program itself, its package or user.
                continue;
            }
            looked += 1;
            if let Some(error) = Cli::try_parse_from(&words).err().filter(clap::Error::use_stderr) {
                // A command that is named has not all that it needs.
                let kind = error.kind();
                if words.len() > 2 || kind != ErrorKind::MissingRequiredArgument {
                    wrong.push(format!("{}: {}: {kind}", page.display(), words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked >= 25, "{looked}");
}

#[test]
fn every_query_of_the_papers_answers_on_a_published_mirror() {
    let world = World::unthrottled(12);
    world.sync();
    let published = world.path("data/casemirror.duckdb");
    let mut wrong = Vec::new();
    let queries = blocks_of("sql");
    for (at, query) in &queries {
        let query = query.replace("'data/", &format!("'{}/", world.path("data").display()));
        // What names the file itself is typed into a session of its own.
        let answer = if query.contains("ATTACH") {
            Connection::open_in_memory().unwrap().execute_batch(&query)
        } else {
            world.published().execute_batch(&query)
        };
        if let Err(error) = answer {
            wrong.push(format!("{at}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{}: {}", published.display(), wrong.join("\n"));
    assert!(queries.len() >= 25, "{}", queries.len());

    let mut ran = BTreeSet::new();
    for (at, words) in command_lines() {
        let words: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
        if !LOOKING.contains(&words[0]) {
            continue;
        }
        let output = world.run(&words);
        assert_eq!(output.status.code(), Some(0), "{at}: {words:?}\n{}", shown(&output));
        ran.insert(words[0].to_owned());
    }
    assert!(ran.len() >= 4, "{ran:?}");
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[test]
fn every_link_of_the_papers_leads_somewhere() {
    let mut wrong = Vec::new();
    let mut looked = 0;
    for page in pages() {
        let prose = prose(&page);
        for target in prose.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") {
                continue;
            }
            looked += 1;
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let there = to.exists();
            let named = heading.is_empty()
                || there
                    && fs::read_to_string(&to).unwrap().lines().any(|line| {
                        line.starts_with('#') && anchor(line.trim_start_matches('#')) == heading
                    });
            if !(there && named) {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked >= 20, "{looked}");
}

/// Where the Debian package puts its papers, and what they name.
const PACKAGED: &str = "usr/share/doc/casemirror/";

/// What the package holds at the places where its papers look: files and folders, as they lie in the repository.
fn packaged() -> BTreeSet<PathBuf> {
    let manifest: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).unwrap().parse().unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap();
    let mut found = BTreeSet::new();
    for asset in assets {
        let (from, to) = (asset[0].as_str().unwrap(), asset[1].as_str().unwrap());
        let Some(folder) = to.strip_prefix(PACKAGED) else { continue };
        let (within, name) = from.rsplit_once('/').unwrap_or(("", from));
        assert_eq!(Path::new(folder), Path::new(within), "{from} keeps its place");
        let is_meant = |found: &str| match name.split_once('*') {
            Some((begin, end)) => found.starts_with(begin) && found.ends_with(end),
            None => found == name,
        };
        let before = found.len();
        for entry in fs::read_dir(root().join(within)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if is_meant(&name) {
                found.extend(Path::new(folder).join(name).ancestors().map(Path::to_owned));
            }
        }
        assert!(found.len() > before, "{from}: there is none");
    }
    found
}

/// Who has the package alone follows the same links, and finds the files that are named for use.
#[test]
fn the_package_holds_what_its_papers_lead_to() {
    let packaged = packaged();
    let mut wrong = Vec::new();
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap();
        assert!(packaged.contains(name), "{}", name.display());
        let prose = prose(&page);
        let links = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in links.filter(|target| !target.contains("://")) {
            let file = target.split('#').next().unwrap_or_default();
            let to = page.with_file_name(file).canonicalize().unwrap();
            let to = to.strip_prefix(root().canonicalize().unwrap()).unwrap().to_owned();
            if !file.is_empty() && !packaged.contains(&to) {
                wrong.push(format!("{}: {target}", name.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for named in [
        "packaging/prometheus/casemirror.rules.yml",
        "packaging/grafana/casemirror.json",
        "schemas",
    ] {
        assert!(packaged.contains(Path::new(named)), "{named}");
    }
}
