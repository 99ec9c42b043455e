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

/// Everything that the API user is granted, unless a test withdraws it.
const PERMISSIONS: &[&str] = &[
    "Activities - Read",
    "BookkeepingIntegrators - Read",
    "BookkeepingIntegrators - Write",
    "BookkeepingIntegratorsExtended - Write",
    "CaseSearchVisibilityIntegrator - Write",
    "Cases - Read",
    "Cases - Write",
    "Contacts - Read",
    "Employees - Read",
    "Notes - Read",
    "OfficeAdministration - Read",
    "Offices - Read",
    "ProcessingBasis - Read",
    "SettlementView - Read",
];

fn granted(shared: &Shared) -> Vec<&'static str> {
    let knobs = shared.knobs();
    PERMISSIONS.iter().copied().filter(|p| !knobs.withdrawn.contains(*p)).collect()
}

/// `GET /api/User`.
pub async fn user(State(shared): State<Arc<Shared>>) -> Response {
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

/// `GET /api/User/ApiPermissions`.
pub async fn permissions(State(shared): State<Arc<Shared>>) -> Response {
    let mut areas: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for permission in granted(&shared) {
        if let Some((area, kind)) = permission.split_once(" - ") {
            areas.entry(area).or_default().push(kind);
        }
    }
    let list: Vec<_> = areas
        .into_iter()
        .map(|(area, kinds)| json!({"Permission": area, "PermissionTypes": kinds}))
        .collect();
    answer::json(serde_json::Value::Array(list).to_string().into_bytes())
}
