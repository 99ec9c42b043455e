//! `casemirror init`: writes the commented configuration.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use super::args::Init;
use super::print;
use crate::config;
use crate::error::{Error, Kind, Result, io};

pub(crate) fn run(args: &Init, config_path: &Path) -> Result<u8> {
    let path = args.path.as_deref().unwrap_or(config_path);
    let mut options = OpenOptions::new();
    // It will hold a client secret.
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            Error::new(
                Kind::Usage,
                format!("{} is there already and is not overwritten", path.display()),
            )
        } else {
            io("create", path, e)
        }
    })?;
    file.write_all(config::TEMPLATE.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| io("write", path, e))?;
    print(&format!(
        "Wrote {}. Fill in source.base_url, source.client_id and the secret, then run\n  \
         casemirror check\n",
        path.display()
    ))?;
    Ok(0)
}
