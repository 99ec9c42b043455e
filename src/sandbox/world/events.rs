//! What a change tells subscribers (reference 6.2): one place that compares a case before and after,
//! so that whatever changes a case emits the events that fit.

use std::borrow::Cow;

use serde_json::{Map, Value as Json, json};

use super::super::record::guid_text;
use super::super::wire::Ticks;
use super::World;
use super::case::{Activity, Case, Role, Status};
use super::dossier::{Dossier, Publication, SaleText};

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    /// `EventType`.
    pub(crate) kind: Cow<'static, str>,
    pub(crate) at: Ticks,
    pub(crate) payload: Json,
    /// What stands in the envelope beside type, date and payload, or in their place.
    pub(crate) more: Map<String, Json>,
}

impl Event {
    fn new(kind: &'static str, at: Ticks, payload: Json) -> Event {
        Event { kind: Cow::Borrowed(kind), at, payload, more: Map::new() }
    }

    /// The envelope (reference 6.1).
    pub(crate) fn body(&self) -> String {
        let mut envelope = Map::from_iter([
            ("EventType".to_owned(), json!(self.kind)),
            ("EventCreatedDate".to_owned(), json!(self.at.zoned())),
            ("Payload".to_owned(), self.payload.clone()),
        ]);
        envelope.extend(self.more.clone());
        Json::Object(envelope).to_string()
    }
}

/// Activity types in the order of reference 2.3, which is that of their numbers.
const ACTIVITY_TYPES: [&str; 11] = [
    "Unknown",
    "TaskActivity",
    "TelephoneActivity",
    "ShowingActivity",
    "InspectionActivity",
    "TransferActivity",
    "ContractMeetingActivity",
    "MeetingActivity",
    "LeadActivity",
    "StakeholderActivity",
    "BuyerLeadActivity",
];

fn activity_type(kind: &str) -> usize {
    ACTIVITY_TYPES.iter().position(|known| *known == kind).unwrap_or(0)
}

/// What a new case tells.
pub(super) fn of_new(case: &Case, at: Ticks) -> Vec<Event> {
    let mut events = vec![Event::new("OppdragCreated", at, json!({"CaseId": case.id()}))];
    events.extend(of_roles(&[], case, at));
    events.extend(of_activities(&[], case, at));
    events
}

/// What the change of a case tells; `written` is its dossier before.
pub(super) fn of_change(
    before: &Case,
    written: Option<&Dossier>,
    after: &Case,
    at: Ticks,
) -> Vec<Event> {
    let of_case = json!({"CaseId": after.id()});
    let mut events = Vec::new();
    if before.status != after.status {
        events.push(Event::new("CaseStatusChanged", at, of_case.clone()));
        if after.status == Status::Sold {
            events.push(Event::new("CaseSold", at, of_case.clone()));
        }
    }
    if before.settlement() != after.settlement() {
        events.push(Event::new("SettlementStatusChanged", at, of_case.clone()));
    }
    if before.transfer_date() != after.transfer_date() {
        events.push(Event::new("AppropriationDateChanged", at, of_case));
    }
    events.extend(of_roles(&before.roles, after, at));
    events.extend(of_activities(&before.activities, after, at));
    if let (Some(written), Some(now)) = (written, after.dossier.as_deref())
        && !std::ptr::eq(written, now)
    {
        events.extend(of_dossier(written, now, after, at));
    }
    events
}

fn of_roles(before: &[Role], case: &Case, at: Ticks) -> Vec<Event> {
    let whole =
        |role: &Role| json!({"Id": role.id, "ContactId": role.contact, "CaseId": case.id()});
    let found = compare(before, &case.roles, |role| role.id, |a, b| a == b);
    found
        .into_iter()
        .map(|found| match found {
            Found::Added(role) => Event::new("InteressentCreated", at, whole(role)),
            Found::Changed(role) => Event::new("InteressentChanged", at, whole(role)),
            Found::Removed(role) => Event::new("InteressentDeleted", at, json!({"Id": role.id})),
        })
        .collect()
}

fn of_activities(before: &[Activity], case: &Case, at: Ticks) -> Vec<Event> {
    let named = |activity: &Activity| json!({"Id": activity.id, "CaseId": case.id()});
    let whole = |activity: &Activity| {
        let number = activity_type(activity.kind);
        json!({"Id": activity.id, "CaseId": case.id(), "Type": number})
    };
    let found = compare(before, &case.activities, |one| one.id, Activity::reads_like);
    found
        .into_iter()
        .map(|found| match found {
            Found::Added(one) => Event::new("AktivitetCreated", at, whole(one)),
            Found::Changed(one) => Event::new("AktivitetChanged", at, whole(one)),
            Found::Removed(one) => Event::new("AktivitetDeleted", at, named(one)),
        })
        .collect()
}

fn of_dossier(before: &Dossier, after: &Dossier, case: &Case, at: Ticks) -> Vec<Event> {
    let published = |one: &Publication| {
        let kind = if one.provider == "FinnComingForSale" { 150 } else { 1 };
        let payload = json!({"CaseId": case.id(), "PublicationId": one.id, "Type": kind});
        Event::new("PublicationChanged", at, payload)
    };
    let found = compare(&before.publications, &after.publications, |one| one.id, |a, b| a == b);
    let mut events: Vec<Event> = found
        .into_iter()
        .map(|found| match found {
            Found::Added(one) | Found::Changed(one) | Found::Removed(one) => published(one),
        })
        .collect();
    let insurance = |dossier: &Dossier| dossier.information.as_ref().map(|known| known.insurance);
    if insurance(before) != insurance(after) {
        let payload = json!({"PropertyId": case.id()});
        events.push(Event::new("SellerInsuranceChanged", at, payload));
    }
    events.extend(of_sale_text(before, after, case, at));
    events
}

/// The dynamic sale text: all of it has to be read anew where a section was added, removed or
/// moved, or where it is used from now on or no longer; else one event per section that was edited.
fn of_sale_text(before: &Dossier, after: &Dossier, case: &Case, at: Ticks) -> Vec<Event> {
    let event = |more: Json| {
        let payload = json!([{"Id": case.id(), "Guid": guid_text(case.guid)}]);
        let mut event = Event::new("DynamicSaleTextChanged", at, payload);
        if let Json::Object(more) = more {
            event.more = more;
        }
        event
    };
    let place = |text: &SaleText| (text.id, text.parent, text.level);
    let stays = before.uses_sale_text == after.uses_sale_text
        && before.sale_texts.iter().map(place).eq(after.sale_texts.iter().map(place));
    if !stays {
        return vec![event(json!({"RequireReload": true}))];
    }
    let pairs = before.sale_texts.iter().zip(&after.sale_texts);
    pairs
        .filter(|(before, after)| before != after)
        .map(|(_, after)| {
            event(json!({
                "RequireReload": false,
                "DynamicSaleTextHeaderId": after.id,
                "UpdatedDateTime": after.updated.zoned(),
            }))
        })
        .collect()
}

enum Found<'a, T> {
    Added(&'a T),
    Changed(&'a T),
    Removed(&'a T),
}

/// How a list differs from what it was; its items are told apart by their ids.
fn compare<'a, T>(
    before: &'a [T],
    after: &'a [T],
    id: impl Fn(&T) -> i64,
    same: impl Fn(&T, &T) -> bool,
) -> Vec<Found<'a, T>> {
    // Most changes leave a list as it is, or add to its end.
    let kept = before.iter().zip(after).take_while(|(a, b)| id(a) == id(b) && same(a, b)).count();
    let (before, after) = (&before[kept..], &after[kept..]);
    let of = |list: &'a [T], wanted: i64| list.iter().find(|one| id(one) == wanted);
    let removed = before.iter().filter(|one| of(after, id(one)).is_none()).map(Found::Removed);
    let others = after.iter().filter_map(|one| match of(before, id(one)) {
        None => Some(Found::Added(one)),
        Some(earlier) => (!same(earlier, one)).then_some(Found::Changed(one)),
    });
    removed.chain(others).collect()
}

impl Activity {
    /// Whether the API's record of it is the same: who has registered is not part of it.
    fn reads_like(&self, other: &Activity) -> bool {
        let Activity {
            id,
            kind,
            subject,
            description,
            created,
            modified,
            at,
            minutes,
            completed,
            private,
            organizer,
            registered: _,
        } = self;
        *id == other.id
            && *kind == other.kind
            && *subject == other.subject
            && *description == other.description
            && *created == other.created
            && *modified == other.modified
            && *at == other.at
            && *minutes == other.minutes
            && *completed == other.completed
            && *private == other.private
            && *organizer == other.organizer
    }
}

impl World {
    /// Whether an event has anybody to go to.
    pub(super) fn has_subscribers(&self) -> bool {
        !self.registers.subscriptions.is_empty() || self.outbox.has_domains()
    }

    /// Hands events to the outbox: a delivery for each subscription of the type.
    pub(super) fn emit(&self, events: Vec<Event>) {
        for event in events {
            let all = self.registers.subscriptions.iter();
            self.outbox.emit(&event, all.filter(|one| one.event == event.kind), 1);
        }
    }

    /// Somebody comes to an activity: `contact`, in this role of the case.
    pub(super) fn participant_came(
        &self,
        case: &Case,
        (id, contact, role): (i64, i64, i64),
        activity: &Activity,
        at: Ticks,
    ) {
        let payload = json!({
            "Id": id,
            "CaseId": case.id(),
            "StakeholderId": role,
            "ContactId": contact,
            "ActivityId": activity.id,
            "Type": activity_type(activity.kind),
        });
        self.emit(vec![Event::new("ActivityParticipantCreated", at, payload)]);
    }

    pub(super) fn employee_changed(&self, id: i64, at: Ticks) {
        let guid = self.employees.get(&id).map(|known| guid_text(known.guid()));
        let payload = json!({"EmployeeId": id, "EmployeeGuid": guid});
        self.emit(vec![Event::new("EmployeeChanged", at, payload)]);
    }

    pub(super) fn office_changed(&self, office: &super::people::Office, at: Ticks) {
        let payload = json!({"OfficeId": office.id, "OfficeGuid": guid_text(office.guid())});
        self.emit(vec![Event::new("OfficeChanged", at, payload)]);
    }

    /// Delivers an event that was ordered, as often as said: to an address, or to all subscriptions
    /// of its type, or where nobody can subscribe to it, once to each address that is subscribed.
    pub(super) fn emit_ordered(&self, event: &Event, to: Option<&str>, times: u32) -> Vec<u64> {
        let all = &self.registers.subscriptions;
        let known = super::registers::EVENT_TYPES.contains(&event.kind.as_ref());
        let is_first = |n: usize| !all[..n].iter().any(|earlier| earlier.url == all[n].url);
        let chosen = all.iter().enumerate().filter(|(n, one)| match to {
            Some(url) => one.url == url && is_first(*n),
            None if known => one.event == event.kind,
            None => is_first(*n),
        });
        self.outbox.emit(event, chosen.map(|(_, one)| one), times)
    }
}
