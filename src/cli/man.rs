//! `casemirror man`: the manual, as `man` reads it.

use std::io::ErrorKind;
use std::path::Path;

use super::args::{self, Man};
use crate::error::{Error, Kind, Result, io};

pub(crate) fn run(args: &Man) -> Result<u8> {
    let command = args.command.as_deref();
    args::write_man(command, &mut std::io::stdout()).map_err(|e| match (e.kind(), command) {
        (ErrorKind::NotFound, Some(name)) => {
            Error::new(Kind::Usage, format!("there is no command `{name}`; see casemirror --help"))
        }
        _ => io("write to", Path::new("standard output"), e),
    })?;
    Ok(0)
}
