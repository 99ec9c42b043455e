//! The way of the data is one way: which folders may name which. `src/lib.rs` draws it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What everything may use: it knows nothing of any step.
const BASE: [&str; 15] = [
    "catalog",
    "config",
    "counter",
    "disk",
    "durable",
    "error",
    "failpoint",
    "progress",
    "pulse",
    "schedule",
    "scope",
    "sql",
    "text",
    "ticks",
    "tls",
];

/// What else each part may name. What is missing here is forbidden.
const ARROWS: &[(&str, &[&str])] = &[
    // What everything stands on names no step.
    ("ticks", &[]),
    ("counter", &[]),
    ("error", &[]),
    ("sql", &[]),
    ("text", &[]),
    ("tls", &[]),
    ("failpoint", &[]),
    ("durable", &[]),
    ("memory", &[]),
    ("progress", &[]),
    ("config", &[]),
    ("schedule", &[]),
    ("catalog", &[]),
    ("scope", &[]),
    ("disk", &[]),
    ("pulse", &[]),
    // The steps, in the order of the data.
    ("lease", &[]),
    ("decode", &[]),
    ("source", &["decode", "lease"]),
    ("feed", &["source"]),
    ("plan", &[]),
    ("extract", &["source", "decode"]),
    ("hints", &["source"]),
    ("journals", &["extract", "source", "decode"]),
    ("mirror", &["decode"]),
    ("publish", &["lease", "mirror"]),
    ("lake", &["lease"]),
    ("backup", &["mirror", "publish", "source"]),
    // What joins them.
    ("cycle", &["feed", "plan", "source", "extract", "journals", "decode", "mirror"]),
    ("verify", &["cycle", "source", "extract", "journals", "decode", "mirror"]),
    ("pending", &["cycle", "plan", "mirror"]),
    ("status", &["cycle", "lake", "lease", "mirror", "pending"]),
    ("forecast", &["cycle", "feed", "plan", "source", "journals", "mirror", "verify"]),
    (
        "session",
        &[
            "backup", "cycle", "decode", "extract", "hints", "lake", "lease", "mirror", "pending",
            "publish", "source", "verify",
        ],
    ),
    ("alert", &["mirror", "session", "status"]),
    ("http", &["alert", "hints", "lease", "mirror", "session", "status"]),
    (
        "daemon",
        &["alert", "cycle", "hints", "http", "mirror", "publish", "session", "source", "verify"],
    ),
    (
        "cli",
        &[
            "alert", "backup", "cycle", "daemon", "forecast", "hints", "journals", "lake", "lease",
            "mirror", "pending", "publish", "sandbox", "session", "source", "status", "verify",
        ],
    ),
    // The simulated brokerage shares nothing with the client: a mistake made twice would cancel out.
    ("sandbox", &[]),
    ("main", &["cli"]),
    // Inputs for the tests of all parts.
    ("fuzz", &[]),
];

/// What of the base the sandbox may use.
const OF_THE_SANDBOX: [&str; 1] = ["error"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The code of a file without comments, and without its tests, which may build on anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The parts of the crate that code names: `crate::part`, also within braces.
fn named(code: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let word = |text: &str| -> String {
            text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
        };
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split(';').next().unwrap_or_default();
                parts.extend(list.split(',').map(|item| word(item.trim())));
            }
            None => drop(parts.insert(word(rest))),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

fn is_of_tests(path: &Path) -> bool {
    path.components().any(|c| c.as_os_str() == "tests" || c.as_os_str() == "tests.rs")
        || path.ends_with("fixture.rs")
}

/// Per part of the crate, the other parts that it names, each with a file that does.
fn arrows() -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let mut arrows: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for path in files.iter().filter(|path| !is_of_tests(path)) {
        let within = path.strip_prefix(&src).unwrap();
        let part = within.components().next().unwrap().as_os_str().to_str().unwrap();
        let part = part.trim_end_matches(".rs").to_owned();
        if part == "lib" {
            continue;
        }
        for other in named(&code(path)) {
            if other != part {
                arrows.entry(part.clone()).or_default().insert(other, within.to_owned());
            }
        }
        arrows.entry(part).or_default();
    }
    arrows
}

#[test]
fn no_part_names_one_that_it_must_not_know() {
    let mut wrong = Vec::new();
    for (part, others) in arrows() {
        let allowed = ARROWS.iter().find(|(name, _)| *name == part);
        let Some((_, allowed)) = allowed else {
            wrong.push(format!("{part}: not drawn in tests/layers.rs"));
            continue;
        };
        let base: &[&str] = if part == "sandbox" { &OF_THE_SANDBOX } else { &BASE };
        for (other, file) in others {
            if !allowed.contains(&other.as_str()) && !base.contains(&other.as_str()) {
                wrong.push(format!("{part} -> {other} in {}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `src/lib.rs` and `docs/architecture.md` draw the same parts as the table above.
#[test]
fn every_part_is_described_where_people_look() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lib = fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let described: BTreeSet<&str> =
        lib.lines().filter_map(|line| line.strip_prefix("//! - [`")?.split('`').next()).collect();
    let parts: BTreeSet<&str> = ARROWS
        .iter()
        .map(|(part, _)| *part)
        .filter(|part| !["main", "fuzz"].contains(part))
        .collect();
    assert_eq!(described, parts, "src/lib.rs");
    // The page leaves out what is only a tool.
    let tools = [
        "counter",
        "disk",
        "pulse",
        "error",
        "failpoint",
        "memory",
        "progress",
        "schedule",
        "sql",
        "text",
        "ticks",
        "tls",
    ];
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let layout = page.split("```text\nsrc/").nth(1).unwrap().split("```").next().unwrap();
    let words: BTreeSet<&str> =
        layout.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let missing: Vec<_> =
        parts.iter().filter(|part| !tools.contains(part) && !words.contains(*part)).collect();
    assert!(missing.is_empty(), "docs/architecture.md lacks {missing:?}");
}

#[test]
fn the_arrows_lead_nowhere_back() {
    // Each part may name only those before it: the table itself has no circle.
    for (at, (part, allowed)) in ARROWS.iter().enumerate() {
        for other in *allowed {
            let before = ARROWS[..at].iter().any(|(name, _)| name == other);
            assert!(before || *other == "sandbox", "{part} -> {other}");
        }
    }
    // Nor has the base.
    let arrows = arrows();
    let order = |part: &str| BASE.iter().position(|name| *name == part);
    for part in BASE {
        for other in arrows.get(part).into_iter().flatten().map(|(other, _)| other) {
            let circle = arrows.get(other).is_some_and(|back| back.contains_key(part));
            assert!(!circle, "{part} and {other} name each other");
            assert!(order(other).is_some(), "{part} -> {other}");
        }
    }
}

#[test]
fn what_code_names_is_found() {
    let text = "use crate::{sql, config::Config};\nlet x = crate::mirror::State::new();";
    assert_eq!(named(text), ["config", "mirror", "sql"].map(str::to_owned).into());
}
