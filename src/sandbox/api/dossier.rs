//! What is written about a case: publications, notes, texts (reference 4.2, 4.10, 4.15).

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;

use super::super::Shared;
use super::super::faults::Twist;
use super::super::odata::Query;
use super::super::records::{dossier as records, on_case};
use super::super::world::case::{Case, Moved};
use super::super::world::dossier::{Dossier, Note};
use super::answer::{self, Answer, Refusal};
use super::case::one;
use super::economics::boolean;
use super::read;
use super::strict::NoQuery;

type Shares = State<Arc<Shared>>;

impl Shared {
    /// The case of a path segment with its dossier, or 404.
    pub(super) fn find_dossier(&self, id: &str) -> Result<(Arc<Case>, Arc<Dossier>), Refusal> {
        let case = self.find(id)?;
        let basis = self.world().basis.clone();
        let dossier = case.dossier(&basis);
        Ok((case, dossier))
    }
}

const EXISTING: &str = "returnOnlyExisting";

/// `GET /api/Cases/{id}/Publications?returnOnlyExisting=`. Without `true` it is no read: those that
/// do not exist are created.
pub(crate) async fn publications(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let query = Query::parse(raw.as_deref(), &[EXISTING])?;
    let is_read = match query.other(EXISTING) {
        Some(text) => boolean(EXISTING, text)?,
        None => false,
    };
    if !is_read {
        let case = shared.find(&id)?;
        let mut world = shared.world();
        let basis = world.basis.clone();
        let at = world.stamp();
        world.change(case.id(), at, |case, _| {
            let id = case.id();
            case.facts.dates.set(Moved::Publication, Some(at));
            case.dossier_mut(&basis).create_publications(id);
        });
    }
    let (_, dossier) = shared.find_dossier(&id)?;
    shared.list_as(dossier.publications.iter().map(records::publication).collect(), twist, &query)
}

/// `GET /api/Properties/{id}/SettlementStatuses`: 204 before there is a settlement.
pub(crate) async fn settlement_status(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    let case = shared.find(&id)?;
    Ok(one(on_case::settlement_status(&case)))
}

/// `GET /api/Properties/{id}/Information`.
pub(crate) async fn information(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    let (case, dossier) = shared.find_dossier(&id)?;
    Ok(one(dossier.information.as_ref().map(|known| records::information(&case, known))))
}

/// `GET /api/Properties/{caseId}/HousingAssociation`: 204 where there is none.
pub(crate) async fn association(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&["Cases - Read"])?;
    let (case, dossier) = shared.find_dossier(&id)?;
    Ok(one(dossier.association.as_ref().map(|known| records::association(&case, known))))
}

/// `GET /api/DynamicSaleText/Cases/{caseId}/UseDynamicSaleText`.
pub(crate) async fn uses_sale_text(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    let (_, dossier) = shared.find_dossier(&id)?;
    Ok(answer::json(format!("{{\"Value\":{}}}", dossier.uses_sale_text).into_bytes()))
}

/// `GET /api/DynamicSaleText/Cases/{caseId}/DynamicSaleTextItems`: nothing where it is not used.
pub(crate) async fn sale_texts(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let (_, dossier) = shared.find_dossier(&id)?;
    let used = dossier.sale_texts.iter().filter(|_| dossier.uses_sale_text);
    shared.list(used.map(records::sale_text).collect(), Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/Notes/Case/{caseId}`: of type `Overview`, and all to those who may view settlements.
pub(crate) async fn notes(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["Notes - Read"])?;
    let sees_all = shared.need(&["SettlementView - Read"]).is_ok();
    let (case, dossier) = shared.find_dossier(&id)?;
    let seen = dossier.notes.iter().filter(|note| sees_all || note.is_overview());
    let rows = seen.map(|note| records::note(&case, note)).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// What writing a note needs.
const WRITE_NOTES: &[&str] =
    &["Cases - Write", "Contacts - Write", "Bids - Write", "Notes - Write"];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct NewNote {
    message: String,
    #[serde(default)]
    contact_ids: Option<Vec<i64>>,
    #[serde(default)]
    case_ids: Option<Vec<i64>>,
    #[serde(default)]
    shared_with_case_ids: Option<Vec<i64>>,
    owner_id: i64,
    owner_type: String,
}

/// `POST /api/Notes`. The sandbox keeps notes that cases own.
pub(crate) async fn add_note(State(shared): Shares, body: Bytes) -> Answer {
    shared.need(WRITE_NOTES)?;
    let new: NewNote = read(&body)?;
    if new.owner_type != "Case" {
        return Err(Refusal::bad_request(format!("Notes cannot be owned by {}", new.owner_type)));
    }
    let mut world = shared.world();
    let basis = world.basis.clone();
    let at = world.stamp();
    let shared_with = new.shared_with_case_ids.unwrap_or_default();
    let cases = new.case_ids.map(|ids| ids.into_iter().chain(shared_with).collect());
    let made = world.change(new.owner_id, at, |case, _| {
        let case_id = case.id();
        let dossier = case.dossier_mut(&basis);
        let note = Note {
            id: dossier.next_id(case_id),
            message: Cow::Owned(new.message),
            created: at,
            created_by: None,
            kind: Cow::Borrowed("Overview"),
            contacts: new.contact_ids,
            cases,
            important: false,
        };
        dossier.notes.push(note.clone());
        records::note(case, &note)
    });
    made.map(|record| answer::record(&record))
        .ok_or_else(|| Refusal::not_found("Case", new.owner_id))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct NoteChange {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    is_important: Option<bool>,
    #[serde(default)]
    note_type: Option<String>,
    #[serde(default)]
    owner_type: Option<String>,
    /// Left out, the relations to contacts and cases go.
    #[serde(default)]
    case_ids: Option<Vec<i64>>,
    #[serde(default)]
    contact_ids: Option<Vec<i64>>,
}

/// `PATCH /api/Notes/{noteId}`.
pub(crate) async fn patch_note(
    State(shared): Shares,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    shared.need(WRITE_NOTES)?;
    let none = || Refusal::new(StatusCode::NOT_FOUND, format!("Note {id} does not exist"));
    let id: i64 = id.parse().map_err(|_| none())?;
    let change: NoteChange = read(&body)?;
    if change.owner_type.as_deref().is_some_and(|owner| owner != "Case") {
        return Err(Refusal::bad_request("Notes cannot be given to another owner"));
    }
    // The ids of what hangs on a case begin with the case's.
    let case_id = id / 10_000;
    let (_, dossier) = shared.find_dossier(&case_id.to_string())?;
    if !dossier.notes.iter().any(|note| note.id == id) {
        return Err(none());
    }
    let mut world = shared.world();
    let basis = world.basis.clone();
    let at = world.stamp();
    let changed = world.change(case_id, at, |case, _| {
        let note = case.dossier_mut(&basis).notes.iter_mut().find(|note| note.id == id)?;
        if let Some(message) = change.message {
            note.message = Cow::Owned(message);
        }
        if let Some(kind) = change.note_type {
            note.kind = Cow::Owned(kind);
        }
        note.important = change.is_important.unwrap_or(note.important);
        note.contacts = change.contact_ids;
        note.cases = change.case_ids;
        let note = note.clone();
        Some(records::note(case, &note))
    });
    changed.flatten().map(|record| answer::record(&record)).ok_or_else(none)
}
