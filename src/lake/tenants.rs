//! A script that lets a group's analysts read several mirrors of one catalog as one: it attaches each schema, and
//! makes views that unite their tables, with a column `tenant`.

use std::collections::BTreeMap;

use super::engine::Engine;
use super::errand::{Catalog, Errand};
use super::secrets::Secrets;
use super::shown::Shown;
use crate::error::{Error, Kind, Result};
use crate::sql;

/// What the script begins with.
const HEAD: &str = "-- Several mirrors of one DuckLake catalog as one, with a column \"tenant\".";

/// Whether a text is such a script.
pub(crate) fn is_script(text: &str) -> bool {
    text.starts_with(HEAD)
}

/// DuckLake's words of a schema that holds no lake.
const NOT_THERE: &str = "creating a new DuckLake is explicitly disabled";

/// The reports that are the same for every tenant are united too, the calendar is not: it is one.
const SCHEMAS: [&str; 3] = ["main", "history", "report"];

/// The script, as SQL that the DuckDB command line or any client runs. It holds no password.
///
/// # Errors
/// `Usage` where a schema holds no lake of casemirror; those of [`Engine::reading`].
pub(crate) fn script(errand: &Errand, schemas: &[String]) -> Result<String> {
    let mut relations: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (place, schema) in schemas.iter().enumerate() {
        if schemas[..place].contains(schema) {
            let text = format!("--schemas {schema}: is named twice, and would be counted twice");
            return Err(Error::new(Kind::Usage, text));
        }
        let own = Errand { schema: schema.clone(), ..errand.clone() };
        let there = Engine::reading(&own)
            .and_then(|lake| Ok((Shown::is_ours(&lake, schema)?, lake.relations(&SCHEMAS)?)))
            .map_err(|e| e.within(format!("--schemas {schema}")));
        let no_lake = || {
            let text = format!(
                "--schemas {schema}: there is no lake of casemirror in this schema of the catalog"
            );
            Error::new(Kind::Usage, text)
        };
        let there = match there {
            Err(e) if e.chain().contains(NOT_THERE) => return Err(no_lake()),
            there => there?,
        };
        let (true, there) = there else { return Err(no_lake()) };
        for relation in there
            .into_iter()
            .filter(|(of, name)| (of.as_str(), name.as_str()) != ("report", "calendar"))
        {
            relations.entry(relation).or_default().push(schema);
        }
    }
    let mut script = format!(
        "{HEAD} Made by `casemirror lake views`.\n\
         -- Run it once in each session: duckdb -init FILE. It holds no password: what PostgreSQL wants to know is\n\
         -- in PGPASSWORD or ~/.pgpass, what the object store wants in a secret (CREATE SECRET).\n\
         INSTALL ducklake; LOAD ducklake;\n",
    );
    if matches!(errand.catalog, Catalog::Postgres(_)) {
        script += "INSTALL postgres; LOAD postgres;\n";
    }
    if errand.is_object_store {
        script += "INSTALL httpfs; LOAD httpfs;\n";
    }
    let address = match &errand.catalog {
        Catalog::Postgres(connection) => {
            format!("ducklake:postgres:{}", Secrets::without_password(connection)?)
        }
        Catalog::File(path) => format!("ducklake:{}", path.display()),
    };
    for schema in schemas {
        script += &format!(
            "ATTACH IF NOT EXISTS {} AS {} (METADATA_SCHEMA {}, READ_ONLY);\n",
            sql::text(&address),
            sql::ident(&alias(schema)),
            sql::text(schema)
        );
    }
    for schema in SCHEMAS.iter().filter(|schema| **schema != "main") {
        script += &format!("CREATE SCHEMA IF NOT EXISTS {schema};\n");
    }
    for ((schema, name), of) in &relations {
        let parts: Vec<String> = of
            .iter()
            .map(|tenant| {
                format!(
                    "SELECT {} AS tenant, * FROM {}.{}.{}",
                    sql::text(tenant),
                    sql::ident(&alias(tenant)),
                    sql::ident(schema),
                    sql::ident(name)
                )
            })
            .collect();
        script += &format!(
            "CREATE OR REPLACE VIEW {}.{} AS\n  {};\n",
            sql::ident(schema),
            sql::ident(name),
            parts.join("\n  UNION ALL BY NAME ")
        );
    }
    Ok(script)
}

/// Under what a tenant's lake is attached.
fn alias(schema: &str) -> String {
    format!("lake_{schema}")
}
