//! Where each field of a record goes.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::catalog::{Origin, Resource};

/// Fields by name, with where they go; of a nested object likewise. Every field of every record is looked
/// up here, and the names in it are ours, so that nobody can choose them to collide.
pub(super) type Slots = HashMap<String, Slot, FixedState>;

/// Where a field of a record goes.
pub(super) enum Slot {
    Column(usize),
    Nested(Slots),
    Child(usize),
    LeftOut,
}

/// The name under which a record, or a nested object, says that its other fields are left out.
pub(super) const REST: &str = "";

/// The fields of `resource`; `children` are those whose lists go to child tables, in their order, and
/// `left_out` those of child tables that are not read.
pub(super) fn of<'a>(
    resource: &Resource,
    children: impl Iterator<Item = &'a str>,
    left_out: &[&str],
) -> Slots {
    let mut slots: Slots =
        children.enumerate().map(|(i, field)| (field.to_owned(), Slot::Child(i))).collect();
    slots.extend(left_out.iter().map(|field| ((*field).to_owned(), Slot::LeftOut)));
    for (i, column) in resource.columns.iter().enumerate() {
        // A path parameter wins over the record's field of that name, which is then known.
        let slot = match column.origin {
            Origin::Field => Slot::Column(i),
            Origin::Path => Slot::LeftOut,
            Origin::Scalar | Origin::Position | Origin::Parent => continue,
        };
        insert(&mut slots, &column.path, slot);
    }
    for field in &resource.leave_out {
        match slots.get_mut(field) {
            Some(Slot::Nested(inner)) => {
                inner.insert(REST.to_owned(), Slot::LeftOut);
            }
            _ => {
                slots.insert(field.clone(), Slot::LeftOut);
            }
        }
    }
    if resource.shows_secrets() {
        slots.insert(REST.to_owned(), Slot::LeftOut);
    }
    slots
}

fn insert(slots: &mut Slots, path: &[String], slot: Slot) {
    match path {
        [] => {}
        [last] => {
            slots.insert(last.clone(), slot);
        }
        [first, rest @ ..] => {
            let entry =
                slots.entry(first.clone()).or_insert_with(|| Slot::Nested(Slots::default()));
            if let Slot::Nested(inner) = entry {
                insert(inner, rest, slot);
            }
        }
    }
}
