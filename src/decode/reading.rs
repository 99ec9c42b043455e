//! By what an answer is known again: equal bytes that would be decoded to the same rows need not be
//! decoded a second time.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::{Context, Params};
use crate::catalog::{Catalog, Resource};
use crate::scope::AnswerDigest;

/// What the answers for a table are decoded and loaded by: its file and those of its child tables, privacy
/// with its key, the zone, and this version of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading([u8; 32]);

impl Reading {
    pub(crate) fn of(catalog: &Catalog, resource: &Resource, context: &Context) -> Reading {
        let Context { zone, privacy, disabled, generation } = context;
        let mut how = format!(
            "{} {:?} {privacy:?} {} {disabled:?} {generation}",
            env!("CARGO_PKG_VERSION"),
            zone.iana_name(),
            privacy.seed()
        );
        let children = catalog
            .resources()
            .iter()
            .map(AsRef::as_ref)
            .filter(|child: &&Resource| child.read_with() == resource.table)
            .filter(|child| child.table != resource.table);
        for table_of in std::iter::once(resource).chain(children) {
            let Resource { table, key, group, read, leave_out, columns, .. } = table_of;
            // Writing to a text does not fail.
            let _ = write!(how, "{table} {key:?} {group:?} {read:?} {leave_out:?} {columns:?}");
            if table_of.shows_secrets() {
                how.push_str(" without the rest");
            }
        }
        let Resource { condition, stays_after, at_most, person, .. } = resource;
        let _ = write!(how, "{condition:?} {stays_after:?} {at_most:?} {person:?}");
        Reading(Sha256::digest(how).into())
    }

    /// The digest of records in order, each with the parameters of its call.
    pub(crate) fn digest<'a>(
        &self,
        records: impl IntoIterator<Item = (&'a Params, &'a [u8])>,
    ) -> AnswerDigest {
        let mut hash = Sha256::new();
        hash.update(self.0);
        let mut asked: Option<&Params> = None;
        for (params, record) in records {
            // Most records come from the call of the one before.
            if asked != Some(params) {
                let params = format!("{params:?}");
                hash.update(b"?");
                hash.update(params.len().to_le_bytes());
                hash.update(params);
            }
            asked = Some(params);
            hash.update(b"=");
            hash.update(record.len().to_le_bytes());
            hash.update(record);
        }
        let [a, b, c, d, e, f, g, h, ..]: [u8; 32] = hash.finalize().into();
        AnswerDigest::new(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::tz::TimeZone;

    use super::super::{Param, Privacy};
    use super::*;
    use crate::config::{self, PrivacyMode};

    fn privacy(contact_details: PrivacyMode, key: [u8; 32]) -> Privacy {
        Privacy::new(&config::Privacy { identifiers: PrivacyMode::Hash, contact_details }, key)
    }

    fn context() -> Context {
        Context {
            zone: TimeZone::get("Europe/Copenhagen").unwrap(),
            privacy: privacy(PrivacyMode::Keep, [7; 32]),
            disabled: Arc::new([]),
            generation: 1,
        }
    }

    fn reading(table: &str, context: &Context) -> Reading {
        let catalog = Catalog::load(None).unwrap();
        Reading::of(&catalog, catalog.get(table).unwrap(), context)
    }

    fn case(id: i64) -> Params {
        Params::from([("case_id".to_owned(), Param::Int(id))])
    }

    #[test]
    fn it_is_the_same_each_time_the_program_starts() {
        for resource in Catalog::load(None).unwrap().resources() {
            let table = &resource.table;
            assert_eq!(reading(table, &context()), reading(table, &context()), "{table}");
        }
    }

    #[test]
    fn everything_that_decides_what_is_stored_is_part_of_it() {
        let plain = context();
        let mut others = [context(), context(), context(), context(), context()];
        others[0].zone = TimeZone::UTC;
        others[1].privacy = privacy(PrivacyMode::Keep, [8; 32]);
        others[2].privacy = privacy(PrivacyMode::Drop, [7; 32]);
        others[3].disabled = Arc::new(["costs".to_owned()]);
        others[4].generation = 2;
        for other in &others {
            assert_ne!(reading("case_roles", &plain), reading("case_roles", other), "{other:?}");
        }
        assert_ne!(reading("case_roles", &plain), reading("notes", &plain));

        let catalog = Catalog::load(None).unwrap();
        let mut roles = Resource::clone(catalog.get("case_roles").unwrap());
        roles.columns.pop();
        assert_ne!(Reading::of(&catalog, &roles, &plain), reading("case_roles", &plain));
    }

    #[test]
    fn a_digest_tells_records_their_order_and_their_calls_apart() {
        let reading = reading("notes", &context());
        let (one, two) = (case(1), case(2));
        let digests = [
            reading.digest([]),
            reading.digest([(&one, &b"{}"[..])]),
            reading.digest([(&two, &b"{}"[..])]),
            reading.digest([(&one, &b"{}"[..]), (&one, &b"{}"[..])]),
            reading.digest([(&one, &b"{}{}"[..])]),
            reading.digest([(&one, &b"a"[..]), (&one, &b"b"[..])]),
            reading.digest([(&one, &b"b"[..]), (&one, &b"a"[..])]),
            reading.digest([(&one, &b"a"[..]), (&two, &b"b"[..])]),
        ];
        for (n, digest) in digests.iter().enumerate() {
            assert!(!digests[..n].contains(digest), "{n}");
        }
        assert_eq!(reading.digest([(&case(1), &b"{}"[..])]), digests[1]);
    }
}
