//! The names of the fields of one answer's records, so that one that a record has twice is found at little cost:
//! records of a list name mostly the same fields in the same order, and leave out some.

use std::borrow::Cow;
use std::collections::HashMap;

/// The names that were met, and what is known of each.
#[derive(Default)]
pub(super) struct FieldNames<'de> {
    fields: Vec<Field<'de>>,
    by_name: HashMap<Cow<'de, str>, usize, foldhash::fast::RandomState>,
    /// Counts the records; none is 0.
    record: usize,
    /// The field that the record was last met with.
    last: Option<usize>,
}

struct Field<'de> {
    name: Cow<'de, str>,
    /// The last record that has it.
    record: usize,
    /// What came after it there, where anything did: looked at first, without a hash.
    next: usize,
}

impl<'de> FieldNames<'de> {
    /// The names that follow are those of another record.
    pub(super) fn begin(&mut self) {
        self.record += 1;
        self.last = None;
    }

    /// Notes the name of the record's next field. Whether the record has it already.
    pub(super) fn is_twice(&mut self, name: Cow<'de, str>) -> bool {
        let expected = self.last.map_or(0, |last| self.fields[last].next);
        let at = match self.fields.get(expected) {
            Some(field) if field.name == name => expected,
            _ => self.find(name),
        };
        if let Some(last) = self.last {
            self.fields[last].next = at;
        }
        self.last = Some(at);
        std::mem::replace(&mut self.fields[at].record, self.record) == self.record
    }

    fn find(&mut self, name: Cow<'de, str>) -> usize {
        if let Some(at) = self.by_name.get(&name) {
            return *at;
        }
        let at = self.fields.len();
        self.fields.push(Field { name: name.clone(), record: 0, next: at + 1 });
        self.by_name.insert(name, at);
        at
    }

    /// The names that the record has, in the order in which the answer first had them.
    pub(super) fn of_record(&self) -> impl Iterator<Item = &str> {
        let of_record = |field: &&Field<'de>| field.record == self.record;
        self.fields.iter().filter(of_record).map(|field| field.name.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// The names that each record has once more; each is a letter, and a word is a record.
    fn twice(records: &str) -> String {
        let mut names = FieldNames::default();
        let of_record = |record: &str| {
            names.begin();
            record.split("").filter(|name| !name.is_empty()).fold(String::new(), |twice, name| {
                if names.is_twice(Cow::Owned(name.to_owned())) { twice + name } else { twice }
            })
        };
        records.split(' ').map(of_record).collect::<Vec<_>>().join(" ")
    }

    #[rstest]
    #[case::same_order("ab ab", " ")]
    #[case::left_out("abc ac b abc", "   ")]
    #[case::first("aab ab", "a ")]
    #[case::last("ab aba", " a")]
    #[case::other_order("ab bab ba", " b ")]
    #[case::often("aaa  a", "aa  ")]
    #[case::new_ones("a bcb cc", " b c")]
    fn a_name_counts_within_its_own_record(#[case] records: &str, #[case] expected: &str) {
        assert_eq!(twice(records), expected);
    }

    #[test]
    fn only_the_names_of_the_record_are_told() {
        let mut names = FieldNames::default();
        for record in [&["a", "b", "c"][..], &["d", "b"]] {
            names.begin();
            for name in record {
                names.is_twice(Cow::Borrowed(name));
            }
        }
        assert_eq!(names.of_record().collect::<Vec<_>>(), ["b", "d"]);
    }
}
