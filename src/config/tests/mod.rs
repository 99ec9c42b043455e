//! The configuration as its users meet it: what loads, and what is said when it does not.

mod layers;
mod secrets;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use rstest::rstest;
use secrecy::ExposeSecret;

use super::*;
use crate::error::Kind;
use crate::fuzz::{self, Mutated};

/// The smallest file that loads.
const REQUIRED: &str = "[source]\nbase_url = \"https://api.example.com\"\nclient_id = \"id\"\n\
                        client_secret = \"s3cret\"\n";

/// The tables that there are.
const TABLES: [&str; 4] = ["cases", "activities", "costs", "notes"];

struct Folder(tempfile::TempDir);

impl Folder {
    fn with(file: &str) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("casemirror.toml", file);
        folder
    }

    fn write(&self, name: &str, content: &str) {
        std::fs::write(self.0.path().join(name), content).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("casemirror.toml")
    }

    fn load(&self, environment: &[(&str, &str)], overrides: &[(&str, &str)]) -> Result<Config> {
        let environment = environment.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
        let overrides: Vec<(String, String)> =
            overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Layers::defaults()
            .file(&self.path())?
            .environment(environment)
            .overrides(&overrides)
            .read(Scope::Whole, |_| Some(TABLES.map(str::to_owned).into()))
    }

    /// The error's text, with the folder written as `DIR`.
    fn refusal(&self, environment: &[(&str, &str)], overrides: &[(&str, &str)]) -> String {
        let error = self.load(environment, overrides).expect_err("must be refused");
        assert_eq!(error.kind(), Kind::Config);
        assert_eq!(error.kind().exit_status(), 2);
        error.chain().replace(&self.0.path().display().to_string(), "DIR")
    }
}

/// The same each time.
fn salt() -> Salt {
    serde_json::from_str("\"salt\"").unwrap()
}

fn load(file: &str) -> Config {
    Folder::with(file).load(&[], &[]).unwrap()
}

/// The lines after the first, one per violation.
fn violations(text: &str) -> Vec<&str> {
    text.lines().skip(1).map(str::trim).collect()
}

/// Any text is a configuration or is refused with words.
#[test]
fn fuzz_configuration() {
    let folder = Folder::with(REQUIRED);
    let filled_in: String = sample::TEMPLATE
        .lines()
        .map(|line| line.strip_prefix('#').filter(|l| l.contains(" = ")).unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n");
    let corpus = [REQUIRED, filled_in.as_str()];
    let words =
        [&fuzz::TOML[..], &["1e9", "-1", "\"90s\"", "\"2026-13-01\"", "\"* * * * *\""]].concat();
    bolero::check!().with_type::<Mutated>().with_test_time(fuzz::TIME).for_each(|input| {
        folder.write("casemirror.toml", &input.text_of(&corpus, &words));
        if let Err(error) = folder.load(&[], &[]) {
            assert_eq!(error.kind(), Kind::Config);
        }
    });
}
