//! Roles and activities.

use super::super::record::{Record, Value};
use super::super::world::case::{Activity, Case, Role};
use super::super::world::generate::case_number;

/// `CaseRoleModel` (reference 2.5).
pub(crate) fn role(case: &Case, role: &Role) -> Record {
    let mut record = Record::with_capacity(5);
    record
        .put("Id", role.id)
        .put("Type", role.kind)
        .put("ContactId", role.contact)
        .put("CaseId", case.id())
        // "Available only for cases where it has been specified."
        .put("IsDeceased", role.deceased.map_or(Value::Absent, Value::Bool));
    record
}

/// An activity (reference 2.3).
pub(crate) fn activity(case: &Case, activity: &Activity) -> Record {
    let mut record = Record::with_capacity(23);
    let unset = || Value::Unset { zoned: true };
    let at = activity.at.map_or_else(unset, Value::Zoned);
    let end =
        activity.at.map_or(Value::Null, |at| Value::Zoned(at.plus_ms(activity.minutes * 60_000)));
    let odd = activity.id % 7 == 0;
    let deadline = (activity.id % 5 == 0).then(|| activity.created.plus_days(14));
    let series = (activity.id % 11 == 0).then_some(activity.id);
    record
        .put("Id", activity.id)
        .put("CaseId", case.id())
        .put("Subject", activity.subject.clone())
        .put("Description", activity.description.clone())
        .put("CreatedOn", activity.created)
        .put("LastModified", activity.modified)
        .put("DateTime", at)
        .put("EndDateTime", end)
        .put("Deadline", if odd { unset() } else { deadline.into() })
        .put("IsCompleted", activity.completed)
        .put("OrganizerId", activity.organizer)
        .put("ActivityType", activity.kind)
        .put("IsPrivate", activity.private)
        .put("IsAllDay", activity.minutes == 90)
        .put("NoEndDate", activity.at.is_none())
        .put("LastModifiedById", activity.modified.map(|_| activity.organizer))
        .put("CreatedById", if odd { Value::Null } else { Value::Int(activity.organizer) })
        .put("IsDraft", false)
        .put("IsRecurring", series.is_some())
        .put("ActivityRecurrenceType", if odd { Value::Absent } else { "None".into() })
        .put("NumberOfOccurrences", series.map(|_| 4_i64))
        .put("RecurrenceEndDate", series.map(|_| activity.created.plus_days(28)))
        .put("SeriesMasterActivityId", series);
    if odd {
        // Fields grow over time: one that no list names.
        record.unknown("Participants", format!("[{{\"ContactId\":{}}}]", activity.organizer));
    }
    record
}

/// The settlement's status (reference 2.19), where there is a settlement; one case has a status that
/// nobody listed.
pub(crate) fn settlement_status(case: &Case) -> Option<Record> {
    let status =
        if case_number(case.id()) == 13 { "TilKontrollHosBank" } else { case.settlement()?.name() };
    let mut record = Record::with_capacity(1);
    record.put("SettlementStatus", status);
    Some(record)
}

/// A showing as the public sees it (reference 2.4).
pub(crate) fn public_showing(showing: &Activity) -> Record {
    let mut record = Record::with_capacity(4);
    record
        .put("Guid", Value::Guid(showing.guid()))
        .put("StartDate", showing.at)
        .put("EndDate", showing.at.map(|at| at.plus_ms(showing.minutes * 60_000)))
        .put("NumberOfParticipants", showing.participants());
    record
}
