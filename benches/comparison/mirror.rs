//! A folder with a configuration, and the program in it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::process::{self, Taken};

/// As in the aims for memory.
const MEMORY_LIMIT: &str = "400MB";

/// A mirror of a server.
pub(crate) struct Mirror {
    folder: tempfile::TempDir,
}

impl Mirror {
    /// Nothing is mirrored yet; no limit of the client is in the way, `more` is TOML that is added.
    pub(crate) fn new(base_url: &str, credentials: (&str, &str), more: &str) -> Mirror {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let text = format!(
            "[source]\nbase_url = \"{base_url}\"\nclient_id = \"{}\"\nclient_secret = \"{}\"\n\
             search_delay = \"0s\"\n[feed]\nledger = \"feed-calls\"\ncalls = 10000\nper = \"1s\"\n\
             [limits]\nrequests_per_second = 2000\n[store]\nmemory_limit = \"{MEMORY_LIMIT}\"\n{more}",
            credentials.0, credentials.1,
        );
        let file = folder.path().join("casemirror.toml");
        std::fs::write(&file, text).expect("a file can be written");
        // With another mode every command says that others may read the secret.
        std::fs::set_permissions(file, Permissions::from_mode(0o600)).expect("a mode can be set");
        Mirror { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Taken {
        let mut command = Command::new(env!("CARGO_BIN_EXE_casemirror"));
        process::run(command.current_dir(self.folder()).arg("-q").args(args))
    }

    /// Rows of a published table.
    pub(crate) fn rows(&self, table: &str) -> usize {
        let sql = format!("SELECT count(*) AS n FROM main.{table}");
        let counted = self.run(&["query", "--format", "csv", &sql]).stdout;
        counted.lines().last().and_then(|n| n.trim().parse().ok()).expect("a count")
    }
}
