//! Offices, employees, and single contacts (reference 4.2, field notes "Other calls seen").

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;

use super::super::Shared;
use super::super::faults::Twist;
use super::super::record::Record;
use super::super::records::{contact as records, staff};
use super::answer::{self, Answer, Refusal};
use super::strict::NoQuery;

/// `GET /api/Offices`: no paging is documented, and there is none.
pub(crate) async fn offices(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["Offices - Read"])?;
    let rows: Vec<Record> = shared.world().offices().map(staff::office).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/Employees`.
pub(crate) async fn employees(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["Employees - Read"])?;
    let rows: Vec<Record> = shared.world().employees().map(staff::employee).collect();
    shared.list(rows, twist, raw)
}

/// `GET /api/Contacts/{id}`.
pub(crate) async fn contact(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&["Contacts - Read"])?;
    let none = || Refusal::new(StatusCode::NOT_FOUND, format!("Contact {id} does not exist"));
    let number = id.parse().map_err(|_| none())?;
    let world = shared.world();
    let contact = world.contact(number).ok_or_else(none)?;
    Ok(answer::record(&records::looked_up(&world.basis, &contact)))
}

/// `GET /api/Employees/{employeeId}/Offices`: all affiliations, those no longer active too.
pub(crate) async fn affiliations(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["Employees - Read", "Offices - Read"])?;
    let rows = {
        let world = shared.world();
        let employee = id.parse().ok().and_then(|id| world.employee(id));
        let employee = employee.ok_or_else(|| {
            Refusal::new(StatusCode::NOT_FOUND, format!("Employee {id} does not exist"))
        })?;
        let places = employee.affiliations.iter();
        let row = |place| Some(staff::affiliation(employee, place, world.office(place.office)?));
        places.filter_map(row).collect()
    };
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/Offices/{id}/Accounts`.
pub(crate) async fn accounts(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let rows = {
        let world = shared.world();
        let office = id.parse().ok().and_then(|id| world.office(id));
        let office = office.ok_or_else(|| {
            Refusal::new(StatusCode::NOT_FOUND, format!("Office {id} does not exist"))
        })?;
        office.accounts.iter().map(|account| staff::account(office, account)).collect()
    };
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET /api/Persons/{id}/FullIdentityNumber`: the last five digits of a national identity number,
/// as a string. Nobody who mirrors may ask; the statistics note it.
pub(crate) async fn identity_number(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    _: NoQuery,
) -> Answer {
    shared.need(&["Contacts - Read"])?;
    let none = || Refusal::new(StatusCode::NOT_FOUND, format!("Person {id} does not exist"));
    let number = id.parse().map_err(|_| none())?;
    let contact = shared.world().contact(number).ok_or_else(none)?;
    let digits = contact.person.trivia.between(30, 0, 99_999);
    Ok(answer::json(format!("\"{digits:05}\"").into_bytes()))
}
