//! The documented writes that touch what is mirrored (reference 4.7, 4.8, 4.13). Each moves the
//! dates that it has to.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Path, State};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::Shared;
use super::super::records::bookkeeping;
use super::super::wire::{self, Ticks};
use super::super::world::Act;
use super::super::world::case::{Case, Cost, Draft, Entry, Moved};
use super::super::world::definitions::{EntryDefinition, definition_of};
use super::answer::{self, Answer, Refusal};
use super::case::is_seller;
use super::read;

type Shares = State<Arc<Shared>>;

/// Body of a new entry or draft.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Booking<'a> {
    entry_definition_id: i64,
    #[serde(borrow)]
    amount: &'a RawValue,
    #[serde(default)]
    description: Option<String>,
    /// Kept by the platform, not part of the answer.
    #[serde(default)]
    #[allow(dead_code)]
    note: Option<String>,
    #[serde(default)]
    entry_date: Option<String>,
}

/// What a booking means, checked.
struct Checked {
    definition: &'static EntryDefinition,
    amount: i64,
    description: Option<Cow<'static, str>>,
    date: Option<Ticks>,
}

fn check(body: &[u8], draft: bool) -> Result<Checked, Refusal> {
    let booking: Booking<'_> = read(body)?;
    let id = booking.entry_definition_id;
    let definition = definition_of(id)
        .ok_or_else(|| Refusal::bad_request(format!("The entry definition {id} does not exist")))?;
    if definition.is_draft != draft {
        let only = if definition.is_draft { "entry drafts" } else { "booked entries" };
        return Err(Refusal::bad_request(format!("The entry definition {id} is for {only} only")));
    }
    let amount = amount(booking.amount)?;
    let date = booking.entry_date.as_deref().map(|text| {
        Ticks::parse(text, false)
            .ok_or_else(|| Refusal::bad_request(format!("'{text}' is no date-time")))
    });
    let date = date.transpose()?;
    if date.is_none() && !draft {
        return Err(Refusal::bad_request("EntryDate is required"));
    }
    Ok(Checked { definition, amount, description: booking.description.map(Cow::Owned), date })
}

/// The digits of an amount as øre, or 400.
pub(super) fn amount(raw: &RawValue) -> Result<i64, Refusal> {
    wire::parse_money(raw.get()).ok_or_else(|| {
        Refusal::bad_request(format!("{} is no amount with at most two decimals", raw.get()))
    })
}

/// `POST /api/Integrations/Bookkeeping/Cases/{caseId}/EntryDrafts`.
pub(crate) async fn add_draft(
    State(shared): Shares,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    shared.need(&["BookkeepingIntegrators - Write"])?;
    let case = shared.find(&id)?;
    let checked = check(&body, true)?;
    let mut world = shared.world();
    let at = world.stamp();
    let made = world.change(case.id(), at, |case, _| {
        case.facts.dates.set(Moved::Transaction, Some(at));
        let draft = Draft {
            id: case.next_id(),
            definition: checked.definition.id,
            amount: checked.amount,
            registered: at,
            description: checked.description,
            created_by: None,
            source: "IntegrationsBookkeepingApi",
        };
        case.drafts.push(draft.clone());
        bookkeeping::draft(case, &draft)
    });
    made.map(|record| answer::record(&record)).ok_or_else(|| Refusal::not_found("Case", case.id()))
}

/// `POST /api/Integrations/Bookkeeping/Cases/{caseId}/Entries`.
pub(crate) async fn add_entry(
    State(shared): Shares,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    shared.need(&["BookkeepingIntegrators - Write"])?;
    let case = shared.find(&id)?;
    let checked = check(&body, false)?;
    let mut world = shared.world();
    let at = world.stamp();
    let made = world.change(case.id(), at, |case, _| {
        case.facts.dates.set(Moved::Transaction, Some(at));
        let number = case.id() % 10_000 * 100 + i64::try_from(case.entries.len()).unwrap_or(0) + 1;
        let entry = Entry {
            id: case.next_id(),
            number,
            definition: checked.definition.id,
            amount: checked.amount,
            date: checked.date,
            registered: at,
            description: checked.description,
            created_by: None,
            source: "IntegrationsBookkeepingApi",
        };
        case.entries.push(entry.clone());
        bookkeeping::entry(case, &entry)
    });
    made.map(|record| answer::record(&record)).ok_or_else(|| Refusal::not_found("Case", case.id()))
}

/// The cost fields that can be changed.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct CostChange<'a> {
    #[serde(default, borrow)]
    amount: Option<&'a RawValue>,
    #[serde(default)]
    comment: Option<String>,
    #[serde(default)]
    deleted: Option<bool>,
    #[serde(default)]
    selected: Option<bool>,
    #[serde(default)]
    is_optional: Option<bool>,
    #[serde(default)]
    is_hidden: Option<bool>,
    #[serde(default, borrow, rename = "VAT")]
    vat: Option<&'a RawValue>,
}

impl CostChange<'_> {
    fn apply(self, cost: &mut Cost) -> Result<(), Refusal> {
        if let Some(raw) = self.amount {
            cost.amount = amount(raw)?;
        }
        if let Some(comment) = self.comment {
            cost.comment = Some(Cow::Owned(comment));
        }
        cost.deleted = self.deleted.unwrap_or(cost.deleted);
        cost.selected = self.selected.unwrap_or(cost.selected);
        cost.optional = self.is_optional.or(cost.optional);
        cost.hidden = self.is_hidden.or(cost.hidden);
        if let Some(raw) = self.vat {
            cost.vat = Some(amount(raw)?);
        }
        Ok(())
    }
}

/// `PATCH /api/Conditions/Properties/{id}/Costs/{costId}/{type}`. Costs have no change date of
/// their own: only `ModifiedDate` moves.
pub(crate) async fn patch_cost(
    State(shared): Shares,
    Path((id, cost_id, side)): Path<(String, String, String)>,
    body: Bytes,
) -> Answer {
    shared.need(&["Cases - Write"])?;
    let seller = is_seller(&side)?;
    let case = shared.find(&id)?;
    let cost_id: i64 = cost_id
        .parse()
        .map_err(|_| Refusal::new(axum::http::StatusCode::NOT_FOUND, "There is no such cost"))?;
    let position = |case: &Case| case.costs(seller).iter().position(|cost| cost.id == cost_id);
    let none = || Refusal::not_found("Cost", cost_id);
    let at_position = position(&case).ok_or_else(none)?;
    let mut changed = case.costs(seller)[at_position].clone();
    read::<CostChange<'_>>(&body)?.apply(&mut changed)?;
    let mut world = shared.world();
    let at = world.stamp();
    let made = world.change(case.id(), at, |case, _| {
        let slot = position(case).and_then(|n| case.costs_mut(seller).get_mut(n))?;
        *slot = changed.clone();
        Some(bookkeeping::cost(case, &changed))
    });
    made.flatten().map(|record| answer::record(&record)).ok_or_else(none)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Visibility {
    #[serde(rename = "Ids")]
    ids: Vec<i64>,
    visibility: bool,
}

/// `POST /api/Search/Cases/SearchVisibility/Ids`.
pub(crate) async fn visibility(State(shared): Shares, body: Bytes) -> Answer {
    shared.need(&["CaseSearchVisibilityIntegrator - Write"])?;
    let Visibility { ids, visibility } = read(&body)?;
    let mut world = shared.world();
    if let Some(id) = ids.iter().find(|id| !world.has_case(**id)) {
        return Err(Refusal::not_found("Case", *id));
    }
    for case_id in ids {
        let silent = false;
        let act = if visibility {
            Act::ShowCase { case_id, silent }
        } else {
            Act::HideCase { case_id, silent }
        };
        world.act(&act).map_err(Refusal::bad_request)?;
    }
    Ok(answer::none())
}
