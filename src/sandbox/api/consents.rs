//! Processing bases and their relations to contacts (reference 4.4).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;

use super::super::Shared;
use super::super::faults::Twist;
use super::super::record::guid_text;
use super::super::records::consents as records;
use super::answer::{self, Answer, Refusal};
use super::read;
use super::strict::{NoQuery, date_time_offset};

type Shares = State<Arc<Shared>>;

/// The largest `limit` (reference section 8).
const LARGEST_LIMIT: usize = 1000;

/// `GET /api/ProcessingBases/Newest`: the newest version of all active ones.
pub(crate) async fn newest(
    State(shared): Shares,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["ProcessingBasis - Read"])?;
    let rows = {
        let world = shared.world();
        let newest = world.consents.bases.iter().filter(|one| one.newest && one.active);
        newest.map(records::basis).collect()
    };
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/ProcessingBases/{id}/VersionHistory`: all versions, the latest too.
pub(crate) async fn history(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["ProcessingBasis - Read"])?;
    let none =
        || Refusal::new(StatusCode::NOT_FOUND, format!("Processing basis {id} does not exist"));
    let number = id.parse().map_err(|_| none())?;
    let rows: Vec<_> = shared.world().consents.versions(number).map(records::basis).collect();
    if rows.is_empty() {
        return Err(none());
    }
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Extended {
    start_date: String,
    end_date: String,
    offset: usize,
    limit: usize,
    #[serde(default)]
    guid: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    groupguid: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    category: Option<String>,
}

/// `POST /api/ProcessingBases/Relations/Contacts/Extended`: relations by the time at which they were
/// added, both ends included, the oldest first. `id`, `guid` and `groupguid` are the basis's.
pub(crate) async fn relations(State(shared): Shares, _: NoQuery, body: Bytes) -> Answer {
    shared.need(&["Contacts - Read", "ProcessingBasis - Read"])?;
    let asked: Extended = read(&body)?;
    let from = date_time_offset("startDate", &asked.start_date)?;
    let until = date_time_offset("endDate", &asked.end_date)?;
    if until < from {
        return Err(Refusal::bad_request("endDate is before startDate"));
    }
    if !(1..=LARGEST_LIMIT).contains(&asked.limit) {
        return Err(Refusal::bad_request(format!("limit is from 1 to {LARGEST_LIMIT}")));
    }
    let world = shared.world();
    let consents = &world.consents;
    let mut found: Vec<_> = consents
        .relations
        .iter()
        .filter(|one| from <= one.added && one.added <= until)
        .map(|one| {
            let given = consents.versions(one.basis).find(|given| given.version == one.version);
            (one, given)
        })
        .filter(|(_, given)| {
            let is = |asked: &Option<String>, known: Option<String>| {
                asked.is_none() || asked.as_ref() == known.as_ref()
            };
            is(&asked.guid, given.map(|given| guid_text(given.guid())))
                && is(&asked.groupguid, given.map(|given| guid_text(given.guid())))
                && is(&asked.id, given.map(|given| given.id.to_string()))
                && is(&asked.kind, given.map(|given| given.kind.to_owned()))
                && is(&asked.category, given.map(|given| given.category.to_owned()))
        })
        .collect();
    found.sort_by_key(|(one, _)| (one.added, one.id));
    let page = found.into_iter().skip(asked.offset).take(asked.limit);
    let mut out = Vec::new();
    answer::write_page(
        &mut out,
        None,
        page.map(|(one, given)| records::relation(one, given)),
        None,
    );
    Ok(answer::json(out))
}
