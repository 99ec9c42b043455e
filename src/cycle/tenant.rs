//! Whose data the store holds (docs/architecture.md, "One tenant").

use std::path::Path;

use super::Run;
use super::answers::Answers;
use super::policy::ends_run;
use crate::config::Config;
use crate::error::{Error, Kind, Result};
use crate::mirror::{State, Store, Writer};
use crate::source::Client;

/// Refuses a store of another tenant. Where the tenant is known for these credentials and is only asked
/// for once more, a call that fails stops nothing.
pub(super) async fn check(answers: &mut Answers<'_>, again: bool) -> Result<()> {
    let run = answers.run;
    let Run { config, store, writer, .. } = run;
    let checked = check_tenant(config, store, writer.writer(), run.client(), again).await;
    let Err(error) = checked else { return Ok(()) };
    let is_known = {
        let conn = store.connection()?;
        State::new(&conn).meta("origin")?.as_deref() == Some(origin(config).as_str())
    };
    if !is_known || ends_run(error.kind()) {
        return Err(error);
    }
    let error = answers.note_reachability("/api/User", error).await?;
    answers.report.problem(error.within("whose data it is cannot be asked").chain());
    Ok(())
}

/// What a store's tenant hangs on.
pub(crate) fn origin(config: &Config) -> String {
    format!("{} {}", config.source.base_url, config.source.client_id)
}

/// Refuses a store that was filled from another tenant than `tenant`; `known` is the one that it says.
///
/// # Errors
/// `Tenant`.
pub(crate) fn refuse_other_tenant(store: &Path, known: Option<&str>, tenant: &str) -> Result<()> {
    match known.filter(|known| *known != tenant) {
        None => Ok(()),
        Some(known) => Err(Error::new(
            Kind::Tenant,
            format!(
                "the store {} was filled from tenant {known}; these credentials belong to \
                 tenant {tenant}",
                store.display()
            ),
        )),
    }
}

/// A store is one tenant's (docs/architecture.md, "One tenant"). The source is asked when the store
/// is new, when it was filled with other credentials, and `anyway` with `schedule.reference`.
///
/// # Errors
/// `Tenant` when the store was filled from another one, and those of the call and the store.
pub(crate) async fn check_tenant(
    config: &Config,
    store: &Store,
    writer: &Writer,
    client: &Client,
    anyway: bool,
) -> Result<()> {
    let origin = origin(config);
    let (known, filled_from) = {
        let conn = store.connection()?;
        let state = State::new(&conn);
        (state.meta("tenant")?, state.meta("origin")?)
    };
    if !anyway && known.is_some() && filled_from.as_deref() == Some(origin.as_str()) {
        return Ok(());
    }
    let tenant = client.tenant().await?.to_string();
    refuse_other_tenant(store.path(), known.as_deref(), &tenant)?;
    writer
        .run(move |conn| {
            let state = State::new(conn);
            state.set_meta("tenant", &tenant)?;
            state.set_meta("origin", &origin)
        })
        .await
}
