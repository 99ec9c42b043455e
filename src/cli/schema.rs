//! `casemirror schema`: the data dictionary.

use super::args::{Schema, SchemaFormat};
use super::print;
use crate::catalog::{Catalog, DictionaryFormat};
use crate::config::Config;
use crate::error::Result;

pub(crate) fn run(config: &Config, args: &Schema) -> Result<u8> {
    let catalog = Catalog::load(config.resources.dir.as_deref())?;
    print(&catalog.dictionary(match args.format {
        SchemaFormat::Md => DictionaryFormat::Markdown,
        SchemaFormat::Json => DictionaryFormat::Json,
        SchemaFormat::Sql => DictionaryFormat::Sql,
    }))?;
    Ok(0)
}
