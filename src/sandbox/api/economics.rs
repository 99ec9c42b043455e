//! Estimates, commission sharing, and the definitions of entries (reference 4.7, 4.8).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};

use super::super::Shared;
use super::super::faults::Twist;
use super::super::odata::Query;
use super::super::record::Record;
use super::super::records::economy as records;
use super::super::world::definitions::CATEGORIES;
use super::super::world::economy::Estimated;
use super::answer::{self, Answer, Refusal};
use super::strict::NoQuery;

type Shares = State<Arc<Shared>>;

/// `GET /api/Conditions/Cases/{caseId}/EstimatedCosts/{recalculate}`. `true` is no read: it changes
/// what is stored.
pub(crate) async fn estimated_costs(
    State(shared): Shares,
    Path((id, recalculate)): Path<(String, String)>,
    _: NoQuery,
) -> Answer {
    let recalculate = boolean("recalculate", &recalculate)?;
    let mut case = shared.find(&id)?;
    let basis = shared.world().basis.clone();
    if recalculate {
        let mut world = shared.world();
        let at = world.stamp();
        world.change(case.id(), at, |case, dice| {
            let estimate = Estimated::new(case, dice);
            case.economy_mut(&basis).estimated = Some(estimate);
        });
        drop(world);
        case = shared.find(&id)?;
    }
    let economy = case.economy(&basis);
    let record = economy.estimated.as_ref().map(records::estimated);
    Ok(record.map_or_else(answer::none, |record| answer::record(&record)))
}

/// `GET /api/Salaries/Cases/{caseId}/CommissionSharing/Type/{type}`: no paging is documented, and
/// there is none.
pub(crate) async fn commission_sharing(
    State(shared): Shares,
    Path((id, kind)): Path<(String, String)>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let is_amount = match kind.as_str() {
        "Amount" => true,
        "Percent" => false,
        _ => return Err(Refusal::bad_request(format!("'{kind}' is neither Amount nor Percent"))),
    };
    let case = shared.find(&id)?;
    let basis = shared.world().basis.clone();
    let economy = case.economy(&basis);
    let items = economy.sharing.iter().filter(|share| share.is_amount == is_amount);
    let rows = items.map(|share| records::share(&case, share)).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/Economics/{caseCategory}/EntryDefinitions`: those that are not deleted.
pub(crate) async fn entry_definitions(
    State(shared): Shares,
    Path(category): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    if !CATEGORIES.contains(&category.as_str()) {
        return Err(Refusal::bad_request(format!("'{category}' is no case category")));
    }
    let rows: Vec<Record> = {
        let world = shared.world();
        let listed = world.definitions.iter().filter(|one| !one.deleted && one.is_for(&category));
        listed.map(records::definition).collect()
    };
    shared.list(rows, twist, raw)
}

/// `GET /api/Integrations/Bookkeeping/ExtendedEntryDefinitions`: OData and nothing else (4.8); deleted ones say so.
pub(crate) async fn extended_definitions(
    State(shared): Shares,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["BookkeepingIntegrators - Read"])?;
    let rows = shared.world().definitions.iter().map(records::extended_definition).collect();
    shared.list(rows, twist, raw)
}

/// `GET /api/Economics/ExtendedEntryDefinitions?includeDeleted=`: the other address (field notes, "Other calls seen").
pub(crate) async fn extended_definitions_elsewhere(
    State(shared): Shares,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["BookkeepingIntegrators - Read"])?;
    const INCLUDE_DELETED: &str = "includeDeleted";
    let query = Query::parse(raw.as_deref(), &[INCLUDE_DELETED])?;
    let deleted_too = query.other(INCLUDE_DELETED).map(|text| boolean(INCLUDE_DELETED, text));
    let deleted_too = deleted_too.transpose()? == Some(true);
    let rows: Vec<Record> = {
        let world = shared.world();
        let listed = world.definitions.iter().filter(|one| deleted_too || !one.deleted);
        listed.map(records::extended_definition).collect()
    };
    shared.list_as(rows, twist, &query)
}

/// A bool of a path or a query, or 400.
pub(super) fn boolean(name: &str, text: &str) -> Result<bool, Refusal> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Refusal::bad_request(format!("The value '{text}' of {name} is no bool"))),
    }
}
