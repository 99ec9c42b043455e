//! What a changed copy of a built-in file may not change.

use std::mem::discriminant;

use super::super::{ChangeDate, Resource};

/// The program itself reads these columns, beside those that say when a case changed.
const READ_BY_THE_PROGRAM: [(&str, &str); 1] = [("case_roles", "contact_id")];

pub(super) fn check(copy: &Resource, original: &Resource, faults: &mut Vec<String>) {
    if discriminant(&copy.group) != discriminant(&original.group) {
        faults.push(format!("group: that of {} cannot be another one", original.table));
    }
    if copy.key != original.key {
        faults.push(format!(
            "key: that of {} is {}, and cannot be another one",
            original.table,
            original.key.join(", ")
        ));
    }
    if let Some(person) = &original.person
        && copy.person.as_ref().is_none_or(|own| own.id != person.id)
    {
        faults.push(format!(
            "[person] with id = \"{}\" is missing: `casemirror forget` needs it",
            person.id
        ));
    }
    let named = READ_BY_THE_PROGRAM
        .iter()
        .filter(|(table, _)| *table == copy.table)
        .map(|(_, column)| *column);
    let dates = ChangeDate::ALL.into_iter().map(|(_, _, column)| column);
    let is_search = matches!(copy.table.as_str(), "cases" | "projects");
    for name in named.chain(dates.filter(|_| is_search)) {
        let Some(own) = original.column(name) else { continue };
        let same =
            |c: &super::Column| c.kind == own.kind && c.path == own.path && c.class.is_none();
        if !copy.column(name).is_some_and(same) {
            faults.push(format!(
                "column \"{name}\" (field {}, {}) is missing: the program needs it",
                own.path.join("."),
                own.kind.name()
            ));
        }
    }
}
