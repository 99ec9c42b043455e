//! File tags and webhook subscriptions (reference 2.8, 2.18, and observed fields).

use super::super::record::{Record, Value};
use super::super::world::registers::{FileTag, Subscription};

/// A file tag.
pub(crate) fn tag(tag: &FileTag) -> Record {
    let t = tag.trivia;
    let mut r = Record::with_capacity(7);
    r.put("Id", tag.id)
        .put("Name", tag.name.clone())
        .put("IsSystemTag", tag.category.is_some())
        .put("CategoryType", tag.category)
        .put("LastModifiedDate", tag.modified.map(|at| Value::Local(at.local())))
        .put(
            "CaseRoleTypes",
            match t.between(10, 0, 2) {
                0 => Value::Null,
                1 => Value::List(Vec::new()),
                _ => Value::List(vec!["Seller".into(), "Appraiser".into()]),
            },
        )
        .put(
            "AuthorizationRoleIds",
            if t.chance(11, 40) { Value::Absent } else { Value::List(vec![4.into(), 7.into()]) },
        );
    r
}

/// A subscription, with its secret as the platform answers it.
pub(crate) fn subscription(one: &Subscription) -> Record {
    let mut r = fields(one, one.url.clone());
    r.put("Secret", one.secret.clone());
    r
}

/// A subscription as a mirror keeps it: without the secret, the address cut after the host.
pub(crate) fn subscription_row(one: &Subscription) -> Record {
    let after_scheme = one.url.find("://").map_or(0, |at| at + 3);
    let path = one.url[after_scheme..].find(['/', '?', '#']);
    let end = path.map_or(one.url.len(), |at| after_scheme + at);
    fields(one, one.url[..end].to_owned())
}

fn fields(one: &Subscription, url: String) -> Record {
    let mut r = Record::with_capacity(6);
    r.put("EventType", one.event.clone())
        .put("CreatedDate", one.created)
        .put("ModifiedDate", one.modified.map_or(Value::Unset { zoned: true }, Value::Zoned))
        .put("Url", url)
        .put("Id", one.id);
    r
}
