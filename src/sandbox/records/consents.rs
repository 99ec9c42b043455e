//! Processing bases and their relations to contacts (reference 2.11).

use super::super::record::{Record, Value};
use super::super::world::consents::{ProcessingBasis, Relation};

/// A version of a processing basis.
pub(crate) fn basis(basis: &ProcessingBasis) -> Record {
    let t = basis.trivia;
    let mut r = Record::with_capacity(16);
    r.put("Id", basis.id)
        .put("IsNewestVersion", basis.newest)
        .put("LastModified", basis.modified)
        .put("LastModifiedById", t.chance(10, 70).then_some(101_i64))
        .put("Guid", Value::Guid(basis.guid()))
        .put("Description", basis.description.clone())
        .put("Version", basis.version)
        .put("CategoryType", basis.category)
        .put("Type", basis.kind)
        .put("SystemType", basis.system)
        .put(
            "DisplayTypes",
            match t.between(11, 0, 3) {
                0 => Value::Null,
                1 => Value::List(Vec::new()),
                _ => Value::List(vec!["Showing".into(), "Manual".into()]),
            },
        )
        .put("IsActive", basis.active)
        .put("CanBeContacted", t.chance(12, 60))
        .put("RequireDeletePermission", t.chance(13, 20))
        .put("HideOnStatus", t.chance(14, 30).then_some("Archived"))
        .put("DeleteOnStatus", if t.chance(15, 50) { Value::Absent } else { "None".into() });
    r
}

/// A relation, without the copy of its basis.
fn fields(relation: &Relation) -> Record {
    let mut r = Record::with_capacity(12);
    let checked = relation.checked_at.map_or(Value::Unset { zoned: true }, Value::Zoned);
    r.put("Id", relation.id)
        .put("Guid", Value::Guid(relation.trivia.guid(0)))
        .put("DeleteOnStatusReached", relation.delete_on_status_reached)
        .put("ContactId", relation.contact)
        .put("IsChecked", relation.checked)
        .put("CheckedDate", checked)
        .put("CheckedById", relation.checked_by)
        .put("CaseId", relation.case_id)
        .put("SourceType", relation.source);
    r
}

/// A relation as it is answered, with a copy of the basis that was given.
pub(crate) fn relation(relation: &Relation, given: Option<&ProcessingBasis>) -> Record {
    let mut r = fields(relation);
    let mut copy = Vec::new();
    match given {
        Some(given) => basis(given).write(&mut copy, None),
        None => copy.extend_from_slice(b"null"),
    }
    // Only whole strings and ASCII are ever written.
    r.nested("ProcessingBasisModel", String::from_utf8(copy).unwrap_or_default());
    r
}

/// A relation as a mirror keeps it: of the basis its key only.
pub(crate) fn relation_row(relation: &Relation, given: Option<&ProcessingBasis>) -> Record {
    let mut r = fields(relation);
    r.put("ProcessingBasisModelId", given.map(|given| given.id))
        .put("ProcessingBasisModelVersion", given.map(|given| given.version));
    r
}
