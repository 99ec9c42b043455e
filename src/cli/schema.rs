//! `casemirror schema`: the data dictionary.

use super::args::{Schema, SchemaFormat};
use super::query;
use crate::catalog::{Age, Ages, Catalog, DictionaryFormat};
use crate::config::{self, Config};
use crate::daemon::Printer;
use crate::error::Result;
use crate::mirror::reports;
use crate::schedule::{self, Name};

/// Behind its time a schedule may be: it takes as long as it takes, and then it is published.
const GRACE_HOURS: u64 = 3;

pub(crate) fn run(config: &Config, args: &Schema) -> Result<u8> {
    let catalog = Catalog::load(config.resources.dir.as_deref())?;
    query::tell_differences(config);
    let out = Printer::here();
    let dictionary = |format| -> Result<String> {
        Ok(catalog.dictionary(format, &reports::describe(&catalog)?))
    };
    match args.format {
        SchemaFormat::Md => out.print(&dictionary(DictionaryFormat::Markdown)?)?,
        SchemaFormat::Html => out.print(&dictionary(DictionaryFormat::Html)?)?,
        SchemaFormat::Json => out.data(&dictionary(DictionaryFormat::Json)?)?,
        SchemaFormat::Sql => out.print(&catalog.dictionary(DictionaryFormat::Sql, &[]))?,
        SchemaFormat::Dbt => {
            let ages = ages(&config.schedule)?;
            out.print(&dictionary(DictionaryFormat::Dbt(ages))?)?;
        }
    }
    Ok(0)
}

/// How old tables may be: one missed run is a warning, two are an error.
fn ages(schedules: &config::Schedule) -> Result<Ages> {
    let age = |name| -> Result<Age> {
        let rest = schedule::longest_rest(schedules, name)?;
        let hours = u64::try_from(rest.as_secs()).unwrap_or_default().div_ceil(3600);
        Ok(Age { warn: hours + GRACE_HOURS, error: 2 * hours + GRACE_HOURS })
    };
    Ok(Ages {
        reference: age(Name::Reference)?,
        journals: age(Name::Journals)?,
        reconcile: age(Name::Reconcile)?,
    })
}
