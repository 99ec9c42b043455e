//! The API user and its permissions (reference 4.3).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use super::super::Shared;
use super::super::record::guid_text;
use super::super::world::dice::Trivia;
use super::answer;
use super::strict::NoQuery;

/// Everything that the API user is granted, unless a test withdraws it.
const PERMISSIONS: &[&str] = &[
    "Activities - Read",
    "Bids - Write",
    "BookkeepingIntegrators - Read",
    "BookkeepingIntegrators - Write",
    "BookkeepingIntegratorsExtended - Write",
    "CaseSearchVisibilityIntegrator - Write",
    "Cases - Read",
    "Cases - Write",
    "Contacts - Read",
    "Contacts - Write",
    "Employees - Read",
    "Notes - Read",
    "Notes - Write",
    "OfficeAdministration - Read",
    "Offices - Read",
    "ProcessingBasis - Read",
    "SettlementView - Read",
    "WebHookSubscription - Delete",
    "WebHookSubscription - Read",
    "WebHookSubscription - Write",
];

fn granted(shared: &Shared) -> Vec<&'static str> {
    let knobs = shared.knobs();
    PERMISSIONS.iter().copied().filter(|p| !knobs.withdrawn.contains(*p)).collect()
}

/// `GET /api/User`.
pub(crate) async fn user(State(shared): State<Arc<Shared>>, _: NoQuery) -> Response {
    let tenant = shared.knobs().tenant.clone();
    let tenant = tenant.unwrap_or_else(|| guid_text(Trivia::new(shared.options.seed, 0).guid(0)));
    let body = json!({
        "Id": 1,
        "UserName": shared.tokens().client_id(),
        "TenantId": tenant,
        "Permissions": granted(&shared),
    });
    answer::json(body.to_string().into_bytes())
}

/// The API user's permissions by area, and what it may do there.
pub(crate) fn by_area(shared: &Shared) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut areas: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for permission in granted(shared) {
        if let Some((area, kind)) = permission.split_once(" - ") {
            areas.entry(area).or_default().push(kind);
        }
    }
    areas.into_iter().collect()
}

/// `GET /api/User/ApiPermissions`.
pub(crate) async fn permissions(State(shared): State<Arc<Shared>>, _: NoQuery) -> Response {
    let list: Vec<_> = by_area(&shared)
        .into_iter()
        .map(|(area, kinds)| json!({"Permission": area, "PermissionTypes": kinds}))
        .collect();
    answer::json(serde_json::Value::Array(list).to_string().into_bytes())
}
