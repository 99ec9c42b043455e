//! A session for tests.

use std::path::Path;

use super::Session;
use crate::config::Config;
use crate::mirror::Writing;
use crate::progress::Progress;

/// A session of a store of its own.
pub(crate) fn opened(folder: &Path, more: &str) -> Session {
    let text = format!(
        "[source]\nbase_url = \"http://127.0.0.1:1/\"\nclient_id = \"a\"\nclient_secret = \"b\"\n\
         [feed]\nledger = \"feed-calls\"\n{more}"
    );
    let path = folder.join("casemirror.toml");
    std::fs::write(&path, text).unwrap();
    let config = Config::load(&path, &[], |_| None).unwrap();
    Session::open(config, Writing::Applying, Progress::silent()).unwrap()
}
