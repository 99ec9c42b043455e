//! What hangs on a case, one endpoint per resource (reference 4.2, 4.5, 4.7, 4.8).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;

use super::super::faults::Twist;
use super::super::odata::{self, Query};
use super::super::record::Record;
use super::super::records::{bookkeeping, conditions, on_case};
use super::super::world::case::Case;
use super::super::{Shared, wire};
use super::answer::{self, Answer, Refusal};
use super::strict::NoQuery;

type Shares = State<Arc<Shared>>;
const CASES: &str = "Cases - Read";

impl Shared {
    /// The case of a path segment, or 404.
    pub(super) fn find(&self, segment: &str) -> Result<Arc<Case>, Refusal> {
        let none = || Refusal::new(StatusCode::NOT_FOUND, format!("Case {segment} does not exist"));
        let id = segment.parse().map_err(|_| none())?;
        self.world().case(id).ok_or_else(none)
    }

    /// A page of a list endpoint without parameters of its own.
    pub(super) fn list(&self, rows: Vec<Record>, twist: Twist, raw: Option<String>) -> Answer {
        self.list_as(rows, twist, &Query::parse(raw.as_deref(), &[])?)
    }

    /// A page of a list endpoint, as the query asks for it.
    pub(super) fn list_as(&self, rows: Vec<Record>, twist: Twist, query: &Query) -> Answer {
        let page = odata::page(rows.into_iter(), query, self.paging().twisted(twist))?;
        Ok(answer::page(&page, query))
    }
}

/// Whether the costs are the seller's.
pub(super) fn is_seller(side: &str) -> Result<bool, Refusal> {
    match side {
        "Buyer" => Ok(false),
        "Seller" => Ok(true),
        _ => Err(Refusal::bad_request(format!("'{side}' is neither Buyer nor Seller"))),
    }
}

/// `GET /api/Cases/{caseId}/Roles`.
pub(crate) async fn roles(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let case = shared.find(&id)?;
    shared.list(case.roles.iter().map(|role| on_case::role(&case, role)).collect(), twist, raw)
}

/// `GET /api/Cases/{caseId}/Activities`.
pub(crate) async fn activities(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&[CASES, "Activities - Read"])?;
    let case = shared.find(&id)?;
    let rows = case.activities.iter().map(|activity| on_case::activity(&case, activity)).collect();
    shared.list(rows, twist, raw)
}

/// `GET /api/Conditions/Cases/{id}/Costs/{type}`.
pub(crate) async fn costs(
    State(shared): Shares,
    Path((id, side)): Path<(String, String)>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let seller = is_seller(&side)?;
    let case = shared.find(&id)?;
    let rows = case.costs(seller).iter().map(|cost| bookkeeping::cost(&case, cost)).collect();
    shared.list(rows, twist, raw)
}

/// `GET .../Bookkeeping/Cases/{caseId}/Entries`: the assumed list (field notes, "Other calls seen").
pub(crate) async fn entries(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["BookkeepingIntegrators - Read"])?;
    let case = shared.find(&id)?;
    let rows = case.entries.iter().map(|entry| bookkeeping::entry(&case, entry)).collect();
    shared.list(rows, twist, raw)
}

/// `GET .../Bookkeeping/Cases/{caseId}/EntryDrafts`: likewise.
pub(crate) async fn drafts(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["BookkeepingIntegrators - Read"])?;
    let case = shared.find(&id)?;
    let rows = case.drafts.iter().map(|draft| bookkeeping::draft(&case, draft)).collect();
    shared.list(rows, twist, raw)
}

/// A bare number; where there is none, `null` or 204, as the platform pleases.
pub(crate) async fn document_cost(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let case = shared.find(&id)?;
    let mut out = Vec::new();
    match case.document_cost {
        Some(ore) => wire::write_money(&mut out, ore),
        None if case.id() % 2 == 0 => return Ok(answer::none()),
        None => out.extend_from_slice(b"null"),
    }
    Ok(answer::json(out))
}

/// `GET /api/Properties/{caseId}/CommonConditions`.
pub(crate) async fn common_conditions(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let case = shared.find(&id)?;
    Ok(one(case.common.as_ref().map(|common| conditions::common(&case, common))))
}

/// `GET /api/Properties/{caseId}/Conditions`.
pub(crate) async fn case_conditions(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let case = shared.find(&id)?;
    Ok(one(Some(conditions::of_case(&case))))
}

/// `GET /api/Conditions/Properties/{id}`.
pub(crate) async fn property_conditions(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let case = shared.find(&id)?;
    Ok(one(Some(conditions::of_property(&case))))
}

/// `GET /api/Properties/{caseId}/ResaleInformation`.
pub(crate) async fn resale_information(
    State(shared): Shares,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&[CASES])?;
    let case = shared.find(&id)?;
    let resale = case.resale.as_ref().filter(|_| case.is_resale());
    Ok(one(resale.map(conditions::resale)))
}

/// A record, or 204 where there is none.
pub(super) fn one(record: Option<Record>) -> axum::response::Response {
    record.map_or_else(answer::none, |record| answer::record(&record))
}
