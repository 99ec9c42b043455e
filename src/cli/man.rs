//! `casemirror man`: the manual, as `man` reads it.

use std::io::ErrorKind;
use std::path::Path;

use super::args::{self, Man};
use crate::daemon::Printer;
use crate::error::{Error, Kind, Result, io};

pub(crate) fn run(args: &Man) -> Result<u8> {
    let mut page = Vec::new();
    args::write_man(&args.command, &mut page).map_err(|e| match e.kind() {
        ErrorKind::NotFound => {
            let name = args.command.join(" ");
            Error::new(Kind::Usage, format!("there is no command `{name}`; see casemirror --help"))
        }
        _ => io("write", Path::new("the manual"), e),
    })?;
    Printer::here().data(&String::from_utf8_lossy(&page))?;
    Ok(0)
}
