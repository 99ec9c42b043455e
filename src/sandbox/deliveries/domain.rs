//! Domain events (reference 6.4): one stream of all events per subscription, posted in the form of
//! the cloud's event grid, after the handshake that it demands.
//!
//! The reference does not show their payload, so the ids stand under several names by turns: who
//! reads them must not count on one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use super::super::record::guid_text;
use super::super::world::dice::Trivia;
use super::super::world::events::Event;

/// The event type of the handshake.
pub(super) const HANDSHAKE: &str = "Microsoft.EventGrid.SubscriptionValidationEvent";

#[derive(Debug)]
struct Domain {
    url: Arc<str>,
    code: String,
    /// Whether the handshake was answered.
    open: bool,
}

/// The domain event subscriptions, by name.
#[derive(Debug, Default)]
pub(super) struct Domains {
    by_name: BTreeMap<String, Domain>,
    codes: i64,
}

impl Domains {
    /// Makes or moves a subscription; the code of its handshake.
    pub(super) fn set(&mut self, name: &str, url: &str) -> String {
        self.codes += 1;
        let code = guid_text(Trivia::new(0xC0DE, self.codes).guid(0));
        let made = Domain { url: url.into(), code: code.clone(), open: false };
        self.by_name.insert(name.to_owned(), made);
        code
    }

    /// The handshake with this code was answered; false where it is not the latest one.
    pub(super) fn open_with(&mut self, name: &str, code: &str) -> bool {
        let known = self.by_name.get_mut(name).filter(|known| known.code == code);
        known.map(|known| known.open = true).is_some()
    }

    pub(super) fn any_open(&self) -> bool {
        self.by_name.values().any(|one| one.open)
    }

    /// Names and addresses of those whose handshake was answered.
    pub(super) fn open(&self) -> impl Iterator<Item = (String, Arc<str>)> {
        let open = self.by_name.iter().filter(|(_, one)| one.open);
        open.map(|(name, one)| (name.clone(), one.url.clone()))
    }

    pub(super) fn url(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|one| one.url.as_ref())
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<String> {
        self.by_name.remove(name).map(|one| one.url.as_ref().to_owned())
    }
}

/// The handshake's body.
pub(super) fn handshake(code: &str, at: &str) -> String {
    json!([{
        "id": code,
        "eventType": HANDSHAKE,
        "subject": "",
        "eventTime": at,
        "data": {"validationCode": code},
        "dataVersion": "1",
    }])
    .to_string()
}

/// An event as a list of one domain event; `number` chooses how ids are named in it.
pub(super) fn body(event: &Event, number: u64) -> String {
    let case_id = event.payload.get("CaseId").or_else(|| event.payload.pointer("/0/Id"));
    let shaped = match number % 3 {
        0 => event.payload.clone(),
        1 => camel_case(&event.payload),
        _ => nested(&event.payload),
    };
    let mut data = match shaped {
        Json::Object(fields) => fields,
        other => Map::from_iter([("items".to_owned(), other)]),
    };
    data.extend(event.more.clone());
    json!([{
        "id": guid_text(Trivia::new(0xD0E, i64::try_from(number).unwrap_or(0)).guid(0)),
        "eventType": event.kind,
        "subject": case_id.map_or_else(|| "/".to_owned(), |id| format!("/cases/{id}")),
        "eventTime": event.at.exact(),
        "data": data,
        "dataVersion": "1",
    }])
    .to_string()
}

/// `CaseId` as `caseId`.
fn camel_case(value: &Json) -> Json {
    match value {
        Json::Object(fields) => Json::Object(
            fields
                .iter()
                .map(|(name, value)| {
                    let mut letters = name.chars();
                    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
                    (first.into_iter().chain(letters).collect(), camel_case(value))
                })
                .collect(),
        ),
        Json::Array(items) => Json::Array(items.iter().map(camel_case).collect()),
        other => other.clone(),
    }
}

/// `CaseId` and `CaseGuid` as `{"Case": {"Id": ..., "Guid": ...}}`.
fn nested(value: &Json) -> Json {
    match value {
        Json::Object(fields) => {
            let mut out = Map::new();
            for (name, value) in fields {
                let whose = ["Id", "Guid"].into_iter().find_map(|part| {
                    let owner = name.strip_suffix(part).filter(|owner| !owner.is_empty());
                    owner.map(|owner| (owner, part))
                });
                match whose {
                    Some((owner, part)) => {
                        let of = out.entry(owner).or_insert_with(|| json!({}));
                        of[part] = value.clone();
                    }
                    None => drop(out.insert(name.clone(), nested(value))),
                }
            }
            Json::Object(out)
        }
        Json::Array(items) => Json::Array(items.iter().map(nested).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_stand_under_several_names_by_turns() {
        let payload = json!({"CaseId": 7, "CaseGuid": "g", "Id": 3, "Type": 1});
        assert_eq!(camel_case(&payload), json!({"caseId": 7, "caseGuid": "g", "id": 3, "type": 1}));
        assert_eq!(nested(&payload), json!({"Case": {"Id": 7, "Guid": "g"}, "Id": 3, "Type": 1}));
        assert_eq!(nested(&json!([{"Id": 1}])), json!([{"Id": 1}]));
    }
}
