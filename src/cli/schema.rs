//! `casemirror schema`: the data dictionary.

use super::args::{Schema, SchemaFormat};
use crate::catalog::{Catalog, DictionaryFormat};
use crate::config::Config;
use crate::daemon::Printer;
use crate::error::Result;

pub(crate) fn run(config: &Config, args: &Schema) -> Result<u8> {
    let catalog = Catalog::load(config.resources.dir.as_deref())?;
    let out = Printer::here();
    match args.format {
        SchemaFormat::Md => out.print(&catalog.dictionary(DictionaryFormat::Markdown))?,
        SchemaFormat::Json => out.data(&catalog.dictionary(DictionaryFormat::Json))?,
        SchemaFormat::Sql => out.print(&catalog.dictionary(DictionaryFormat::Sql))?,
    }
    Ok(0)
}
