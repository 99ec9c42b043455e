//! What the bodies of webhooks and domain events say (reference, section 6), as far as anybody needs it: which
//! things to read again, and the few facts that no call reads. Nothing else of a body is kept (pure).

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::scope::{CasePart, Fact, Hint, Told};
use crate::text::whole_number;
use crate::ticks::Ticks;

/// A name of an event type is not longer; of longer ones the beginning is kept.
const LONGEST_NAME: usize = 100; // characters
/// Objects within objects that are searched for ids.
const DEEPEST: usize = 16;

/// Every event type of reference 6.2.
pub(crate) const KNOWN: [&str; 21] = [
    "AppropriationDateChanged",
    "CaseStatusChanged",
    "CaseSold",
    "PublicationChanged",
    "OppdragCreated",
    "InteressentCreated",
    "InteressentChanged",
    "InteressentDeleted",
    "AktivitetCreated",
    "AktivitetChanged",
    "AktivitetDeleted",
    "SettlementStatusChanged",
    "SellerInsuranceChanged",
    "MarketingPackageChanged",
    "ChecklistItemChecked",
    "EmployeeChanged",
    "OfficeChanged",
    "DynamicSaleTextChanged",
    "HyperlinkChanged",
    "ActivityParticipantCreated",
    "ActivityParticipantDeleted",
];

/// What a webhook's body says; `None` where it is no JSON. Several envelopes in a list are taken one by one.
pub(crate) fn of_webhook(body: &[u8], zone: &TimeZone) -> Option<Vec<Told>> {
    let body = json_of(body)?;
    let envelopes = match &body {
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    };
    Some(each_once(envelopes.into_iter().flat_map(|one| told(one, zone))))
}

/// All of it, without what was told before: a body has an end, and no poll finds which texts a changed standard text
/// has changed.
fn each_once(told: impl Iterator<Item = Told>) -> Vec<Told> {
    let mut known = HashSet::new();
    told.filter(|told| known.insert(told.clone())).collect()
}

/// A body of JSON. What no parser turns into a value (a number that is too large, half a character, lists within lists
/// without end) is null in it; `None` where the body as a whole is no JSON, and can never become right.
pub(crate) fn json_of(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    serde_json::from_str(text).ok().or_else(|| {
        let whole: &RawValue = serde_json::from_str(text).ok()?;
        Some(leniently(whole.get(), DEEPEST))
    })
}

fn leniently(text: &str, depth: usize) -> Value {
    let within = |part: &RawValue| match depth.checked_sub(1) {
        Some(depth) => leniently(part.get(), depth),
        None => Value::Null,
    };
    let value = match text.as_bytes().first() {
        Some(b'{') => serde_json::from_str(text).ok().map(|fields: BTreeMap<String, &RawValue>| {
            fields.into_iter().map(|(name, part)| (name, within(part))).collect()
        }),
        Some(b'[') => serde_json::from_str(text)
            .ok()
            .map(|parts: Vec<&RawValue>| parts.into_iter().map(within).collect()),
        _ => serde_json::from_str(text).ok(),
    };
    value.unwrap_or_default()
}

/// What the events of a domain-event stream say. Their payload is not documented (reference 6.4): a known
/// event type means what it means as a webhook, and of any other the ids that it names are read again.
pub(crate) fn of_domain_events(events: &[Value], zone: &TimeZone) -> Vec<Told> {
    let told = events.iter().flat_map(|event| {
        let name = text_of(event, &["eventType", "type"]).unwrap_or_default();
        // `Company.Area.CaseSold` is CaseSold.
        let name = name.rsplit(['.', '/']).next().unwrap_or_default();
        let at = instant_of(event, &["eventTime", "time", "EventCreatedDate"], zone);
        let data = field(event, "data").unwrap_or(event);
        match KNOWN.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(known) => {
                // Whoever wraps an envelope in an event has its payload within.
                let payload = payload_of(data).unwrap_or(Cow::Borrowed(data));
                of_known(known, &payload, data, at)
            }
            None => named_anywhere(data),
        }
    });
    each_once(told)
}

/// The name of a type as it may be kept. Whatever else a sender puts there can be somebody's.
fn shown_name(name: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    if name.chars().all(is_name) {
        name.chars().take(LONGEST_NAME).collect()
    } else {
        "(no name)".to_owned()
    }
}

fn told(envelope: &Value, zone: &TimeZone) -> Vec<Told> {
    let Some(name) = text_of(envelope, &["EventType"]) else {
        // As a number, which stands for nobody knows what.
        let number = field(envelope, "EventType").filter(|kind| kind.is_number());
        let unknown = number.map(|number| Told::Unknown { event_type: number.to_string() });
        return unknown.into_iter().chain(named_anywhere(envelope)).collect();
    };
    let at = instant_of(envelope, &["EventCreatedDate"], zone);
    let Some(known) = KNOWN.iter().find(|known| known.eq_ignore_ascii_case(name)) else {
        return vec![Told::Unknown { event_type: shown_name(name) }];
    };
    // A body without a payload may be the payload, but for its `Id`, which is that of the event.
    let payload = payload_of(envelope).unwrap_or_else(|| {
        let of_event = |name: &String| name.eq_ignore_ascii_case("Id");
        let mut flat = envelope.as_object().cloned().unwrap_or_default();
        flat.retain(|name, _| !of_event(name));
        Cow::Owned(Value::Object(flat))
    });
    of_known(known, &payload, envelope, at)
}

/// The payload of an envelope; one that is a text of JSON is that JSON.
fn payload_of(envelope: &Value) -> Option<Cow<'_, Value>> {
    let payload = field(envelope, "Payload")?;
    let read = payload.as_str().and_then(|text| json_of(text.as_bytes()));
    Some(read.map_or(Cow::Borrowed(payload), Cow::Owned))
}

/// What an event of a known type says. Where it is something else than is documented, whatever it names is read again:
/// in its payload, or else anywhere. That it names nothing is told.
fn of_known(name: &str, payload: &Value, envelope: &Value, at: Option<Timestamp>) -> Vec<Told> {
    let mut told = of_type(name, payload, envelope, at);
    for value in [payload, envelope] {
        if !told.iter().any(Told::names_something) {
            told.extend(named_anywhere(value));
        }
    }
    if !told.iter().any(Told::names_something) {
        told.push(Told::WithoutId { event_type: name.to_owned() });
    }
    told
}

/// What an event of a known type says (reference 6.2).
fn of_type(name: &str, payload: &Value, envelope: &Value, at: Option<Timestamp>) -> Vec<Told> {
    let id = |key: &str| id_of(payload, key);
    let of_case = |case: Option<i64>, parts: &[CasePart]| -> Vec<Told> {
        let hint = |id: i64| parts.iter().map(move |part| Hint::Case { id, part: part.clone() });
        case.into_iter().flat_map(hint).map(Told::Hint).collect()
    };
    let contact = || id("ContactId").map(|id| Told::Hint(Hint::Contact { id }));
    let fact = |thing: &str| {
        let fact = Fact {
            event_type: name.to_owned(),
            id: id(thing),
            case_id: id("CaseId"),
            contact_id: id("ContactId"),
            employee_id: id("EmployeeId"),
            office_id: id("OfficeId"),
            occurred_at: at,
        };
        vec![Told::Fact(fact)]
    };
    let date = |field: &str| CasePart::Date(field.to_owned());
    let table = |name: &str| CasePart::Table(name.to_owned());
    match name {
        "AppropriationDateChanged" | "CaseStatusChanged" | "CaseSold" | "OppdragCreated" => {
            of_case(id("CaseId"), &[CasePart::Row])
        }
        "PublicationChanged" => {
            of_case(id("CaseId"), &[date("PublicationChangedDate"), table("property_conditions")])
        }
        "InteressentCreated" | "InteressentChanged" => {
            let mut told = of_case(id("CaseId"), &[date("CaseEntityChangedDate")]);
            told.extend(contact());
            told
        }
        "InteressentDeleted" => match id("CaseId") {
            Some(case) => of_case(Some(case), &[date("CaseEntityChangedDate")]),
            None => id("Id").map(|id| Told::Hint(Hint::Role { id })).into_iter().collect(),
        },
        "AktivitetCreated"
        | "AktivitetChanged"
        | "AktivitetDeleted"
        | "ActivityParticipantCreated"
        | "ActivityParticipantDeleted" => of_case(id("CaseId"), &[date("ActivityChangedDate")]),
        "SettlementStatusChanged" => of_case(id("CaseId"), &[table("settlement_statuses")]),
        // The vendor's own client passes the case's id where the reference says the property's.
        "SellerInsuranceChanged" => {
            of_case(id("PropertyId").or_else(|| id("CaseId")), &[table("property_information")])
        }
        "EmployeeChanged" => {
            id("EmployeeId").map(|id| Told::Hint(Hint::Employee { id })).into_iter().collect()
        }
        "OfficeChanged" => {
            id("OfficeId").map(|id| Told::Hint(Hint::Office { id })).into_iter().collect()
        }
        "DynamicSaleTextChanged" => {
            let texts = table("dynamic_sale_texts");
            // Only where a text changed and nothing else, whether texts are used cannot have.
            let only_text = field(envelope, "RequireReload") == Some(&Value::Bool(false));
            let parts =
                if only_text { vec![texts] } else { vec![table("dynamic_sale_text_use"), texts] };
            let of_case_id = |case: &Value| id_of(case, "Id").or_else(|| id_of(case, "CaseId"));
            let of_cases = |value: &Value| {
                let cases = value.as_array()?;
                let ids: Vec<i64> = cases.iter().filter_map(of_case_id).collect();
                (!ids.is_empty()).then_some(ids)
            };
            // A list may stand within what wraps it.
            let within = || payload.as_object()?.values().find_map(of_cases);
            let ids = of_cases(payload).or_else(within);
            ids.unwrap_or_else(|| of_case_id(payload).into_iter().collect())
                .into_iter()
                .flat_map(|case| of_case(Some(case), &parts))
                .collect()
        }
        "ChecklistItemChecked" => fact("Id"),
        "MarketingPackageChanged" => fact("MarketingPackageId"),
        "HyperlinkChanged" => fact("GeneralTextId"),
        _ => Vec::new(),
    }
}

/// What is read again of the ids that a value names, however deep and often: of a case its row in the search; the
/// change feed, which is asked whenever a webhook came, tells the rest.
fn named_anywhere(value: &Value) -> Vec<Told> {
    let mut found = Vec::new();
    search(value, DEEPEST, &mut found);
    found
}

fn search(value: &Value, depth: usize, found: &mut Vec<Told>) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Array(all) => all.iter().for_each(|one| search(one, depth - 1, found)),
        Value::Object(fields) => {
            for (name, inner) in fields {
                found.extend(named_by(name, inner).into_iter().map(Told::Hint));
                search(inner, depth - 1, found);
            }
        }
        _ => {}
    }
}

/// What a field names by itself: `CaseId` one thing, `CaseIds` some, `Case` one by the `Id` within.
fn named_by(name: &str, value: &Value) -> Vec<Hint> {
    let one = |name: &str, value: &Value| integer(value).and_then(|id| named(name, id));
    match value {
        Value::Array(all) => {
            let Some(name) = name.strip_suffix(['s', 'S']) else { return Vec::new() };
            all.iter().filter_map(|value| one(name, value)).collect()
        }
        Value::Object(_) => {
            let name = format!("{name}Id");
            let id = field(value, &name).or_else(|| field(value, "Id"));
            id.and_then(|id| one(&name, id)).into_iter().collect()
        }
        _ => one(name, value).into_iter().collect(),
    }
}

fn named(name: &str, id: i64) -> Option<Hint> {
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "caseid" | "propertyid" | "casebaseid" => Hint::Case { id, part: CasePart::Row },
        "contactid" => Hint::Contact { id },
        "employeeid" => Hint::Employee { id },
        "officeid" => Hint::Office { id },
        _ => return None,
    })
}

/// A field by its name in whatever case.
fn field<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let fields: &Map<String, Value> = value.as_object()?;
    fields.get(name).or_else(|| {
        fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    })
}

fn text_of<'v>(value: &'v Value, names: &[&str]) -> Option<&'v str> {
    names.iter().find_map(|name| field(value, name)?.as_str()).filter(|text| !text.is_empty())
}

/// `CaseId`, or the `Id` of `Case`.
fn id_of(value: &Value, name: &str) -> Option<i64> {
    let within = || {
        let owner = name.strip_suffix("Id").filter(|owner| !owner.is_empty())?;
        let owner = field(value, owner).filter(|owner| owner.is_object())?;
        integer(field(owner, name).or_else(|| field(owner, "Id"))?)
    };
    field(value, name).and_then(integer).or_else(within)
}

/// An id: a positive integer, as a number or as text.
fn integer(value: &Value) -> Option<i64> {
    let id = match value {
        Value::Number(number) => whole_number(&number.to_string()).ok(),
        Value::String(text) => whole_number(text).ok(),
        _ => None,
    };
    id.filter(|id| *id > 0)
}

fn instant_of(value: &Value, names: &[&str], zone: &TimeZone) -> Option<Timestamp> {
    let text = text_of(value, names)?;
    Ticks::parse(text, zone).ok().flatten().and_then(Ticks::to_timestamp)
}

#[cfg(test)]
mod tests;
