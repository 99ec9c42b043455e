//! What the public can see and do, by the GUID of a case (reference 4.4, 4.5). No token is needed.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::super::Shared;
use super::super::faults::Twist;
use super::super::records::on_case;
use super::super::world::NewStakeholder;
use super::super::world::case::Case;
use super::super::world::people::Said;
use super::answer::{self, Answer, Refusal};
use super::read;

type Shares = State<Arc<Shared>>;

impl Shared {
    /// The case of a GUID, or 404.
    fn find_public(&self, guid: &str) -> Result<Arc<Case>, Refusal> {
        let parsed = uuid::Uuid::parse_str(guid).ok();
        parsed.and_then(|guid| self.world().case_of_guid(guid.as_u128())).ok_or_else(|| {
            Refusal::new(StatusCode::NOT_FOUND, format!("Case {guid} does not exist"))
        })
    }
}

/// `GET /api/Public/Properties/{caseGuid}/Showings`: at most six that have not begun.
pub(crate) async fn showings(
    State(shared): Shares,
    Path(guid): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let case = shared.find_public(&guid)?;
    let now = shared.world().now();
    let rows = case.public_showings(now).into_iter().map(on_case::public_showing).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// The documented body; what the sandbox has no use for is read and left.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Stakeholder {
    first_name: String,
    sur_name: String,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    telephone: Option<String>,
    #[serde(default)]
    country_prefix: Option<String>,
    #[serde(default)]
    checked_processing_bases: Vec<String>,
    #[serde(default)]
    number_of_participants: Option<i64>,
    #[serde(default)]
    showing_activity_guid: Option<String>,
    #[serde(default, rename = "ProcessingBasisCategory")]
    _category: Option<String>,
    #[serde(default, rename = "ProcessingBasisSystemType")]
    _system_type: Option<String>,
    #[serde(default, rename = "NotificationLanguage")]
    _language: Option<String>,
    #[serde(default, rename = "Comments")]
    _comments: Option<String>,
    #[serde(default, rename = "ContactMethodType")]
    _contact_method: Option<String>,
    #[serde(default, rename = "PrivateShowing")]
    _private_showing: Option<bool>,
}

/// `POST /api/Public/Cases/{guid}/Stakeholders`.
pub(crate) async fn add_stakeholder(
    State(shared): Shares,
    Path(guid): Path<String>,
    body: Bytes,
) -> Answer {
    let case = shared.find_public(&guid)?;
    let asked: Stakeholder = read(&body)?;
    if asked.first_name.trim().is_empty() || asked.sur_name.trim().is_empty() {
        return Err(Refusal::bad_request("FirstName and SurName are required"));
    }
    if asked.email.is_none() && asked.telephone.is_none() {
        return Err(Refusal::bad_request("Email or Telephone is required"));
    }
    let parse = |text: &String| {
        let parsed = uuid::Uuid::parse_str(text);
        parsed
            .map(|guid| guid.as_u128())
            .map_err(|_| Refusal::bad_request(format!("'{text}' is no GUID")))
    };
    // A number without a country is a Norwegian one.
    let prefix = asked.country_prefix.as_deref().unwrap_or("+47");
    let telephone = asked
        .telephone
        .map(|number| if number.starts_with('+') { number } else { format!("{prefix} {number}") });
    let showing = asked.showing_activity_guid.as_ref().map(parse).transpose()?;
    let bases = asked.checked_processing_bases.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let said = Said { first: asked.first_name, surname: asked.sur_name, email: asked.email };
    let new = NewStakeholder {
        said,
        telephone,
        bases,
        showing,
        participants: asked.number_of_participants.unwrap_or(1),
    };
    let made = shared.world().add_stakeholder(case.id(), &new).map_err(Refusal::bad_request)?;
    let body = json!({
        "Id": made.ids.first(),
        "ContactId": made.contact_ids.first(),
        "CaseId": case.id(),
    });
    Ok(answer::json(body.to_string().into_bytes()))
}
