//! `casemirror init`: writes the commented configuration.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use super::args::Init;
use super::{print, shell};
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
    let written = file.write_all(config::TEMPLATE.as_bytes()).and_then(|()| file.sync_all());
    if let Err(e) = written {
        // Half a file would be taken for one that is not overwritten; it is this run's own.
        let _ = std::fs::remove_file(path);
        return Err(io("write", path, e));
    }
    print(&format!(
        "Wrote {}. Fill in source.base_url, source.client_id and the secret, then run\n  {}\n",
        path.display(),
        next_command(path)
    ))?;
    Ok(0)
}

/// What is typed next, as a shell takes it: it finds the file that was written.
fn next_command(path: &Path) -> String {
    const CHECK: &str = "casemirror check";
    if path.strip_prefix(".").unwrap_or(path) == Path::new(config::DEFAULT_PATH) {
        return CHECK.to_owned();
    }
    format!("{CHECK} --config {}", shell::argument(&path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_finds_the_file_that_was_written() {
        let next = |path: &str| next_command(Path::new(path));
        assert_eq!(next("casemirror.toml"), "casemirror check");
        assert_eq!(next("./casemirror.toml"), "casemirror check");
        assert_eq!(next("etc/a.toml"), "casemirror check --config etc/a.toml");
        assert_eq!(next("Kari's/a b.toml"), r"casemirror check --config 'Kari'\''s/a b.toml'");
    }
}
