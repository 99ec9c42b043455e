//! Rows of the feeds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::catalog::ChangeDate;
use crate::scope::{CaseDates, ContactSeen, FeedName, Unreadable, unreadable_date};
use crate::source::{Expected, Pardons, fault_of_record};
use crate::text::{JsonText, whole_number};
use crate::ticks::Ticks;

/// How much of a value that is no date is kept, in characters.
const LONGEST_VALUE: usize = 80;

/// What makes two rows the same: the id and the number that stands for `ModifiedDate`. Of a record
/// that names nobody, both come from its text.
pub(super) type Identity = (i64, i64);

/// One row of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeedRow {
    pub(crate) id: i64,
    pub(crate) when: When,
    /// In the order of [`ChangeDate::ALL`]; a date that cannot be read has a number of its own.
    pub(crate) dates: CaseDates,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// Where a record stands in the order of the feed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct When {
    /// Its `ModifiedDate`, where it can be read.
    pub(crate) modified: Option<Ticks>,
    /// The last `ModifiedDate` before it in the same answer.
    pub(crate) after: Option<Ticks>,
}

impl When {
    /// A date from which on the record is met again: its own, else that of the row before it in an
    /// answer that stands in order, else `lower`, from which on the answer was asked.
    pub(crate) fn from(self, in_order: bool, lower: Ticks) -> Ticks {
        self.modified.or(self.after.filter(|_| in_order)).unwrap_or(lower).max(lower)
    }
}

impl FeedRow {
    /// The number of `ModifiedDate`.
    pub(crate) fn key(&self) -> i64 {
        // `row` fills it, with a date or with what stands for one.
        self.dates[0].unwrap_or(i64::MIN)
    }

    pub(crate) fn identity(&self) -> Identity {
        (self.id, self.key())
    }

    #[cfg(test)]
    pub(crate) fn for_test(id: i64, modified: Ticks) -> FeedRow {
        let mut dates = [None; 11];
        dates[0] = Some(modified.get());
        let when = When { modified: Some(modified), after: None };
        FeedRow { id, when, dates, unreadable: Vec::new() }
    }
}

/// A record that names no case or contact, or is none: what it says of whom cannot be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unidentified {
    pub(crate) when: When,
    pub(crate) error: String,
}

/// The records of one answer.
#[derive(Debug, Default)]
pub(super) struct FeedRows {
    pub(crate) rows: Vec<FeedRow>,
    /// Of all records, usable or not, in order: their number decides whether the page was full.
    pub(crate) identities: Vec<Identity>,
    /// How many records match, where the answer says it.
    pub(crate) count: Option<u64>,
    pub(crate) unidentified: Vec<Unidentified>,
}

impl FeedRows {
    /// Reads the records. Whatever they hold, none is passed over.
    pub(crate) fn read(records: &[&RawValue], name: FeedName, zone: &TimeZone) -> FeedRows {
        let mut page = FeedRows::default();
        let mut after = None;
        let one = expected(name).of_one();
        for record in records {
            let modified = match read_record(record.get(), name, zone, &one) {
                Ok(mut row) => {
                    row.when.after = after;
                    page.identities.push(row.identity());
                    let modified = row.when.modified;
                    page.rows.push(row);
                    modified
                }
                Err(mut unidentified) => {
                    unidentified.when.after = after;
                    page.identities.push((i64::MIN, unreadable_date([record.get()])));
                    let modified = unidentified.when.modified;
                    page.unidentified.push(unidentified);
                    modified
                }
            };
            after = modified.or(after);
        }
        page
    }

    /// Whether the rows stand in the order of `ModifiedDate`, as far as it can be read.
    pub(crate) fn is_in_order(&self) -> bool {
        self.rows.iter().filter_map(|row| row.when.modified).is_sorted()
    }

    /// The last row of each case or contact.
    fn by_id(&self) -> BTreeMap<i64, &FeedRow> {
        self.rows.iter().map(|row| (row.id, row)).collect()
    }

    /// For `sync.seen`: of a case that stands in the page twice, the last row.
    pub(crate) fn cases(&self) -> Vec<(i64, CaseDates)> {
        self.by_id().into_iter().map(|(id, row)| (id, row.dates)).collect()
    }

    /// For `sync.seen_contacts`.
    pub(crate) fn contacts(&self) -> Vec<ContactSeen> {
        self.by_id()
            .into_iter()
            .map(|(contact_id, row)| ContactSeen { contact_id, modified: row.dates[0] })
            .collect()
    }

    /// The dates of those rows that could not be read.
    pub(crate) fn unreadable(&self) -> Vec<Unreadable> {
        self.by_id().into_values().flat_map(|row| row.unreadable.clone()).collect()
    }
}

/// The field that names the case or the contact.
pub(super) fn id_field(name: FeedName) -> &'static str {
    match name {
        FeedName::Cases => "CaseId",
        FeedName::Contacts => "ContactId",
    }
}

/// The change dates that a row of a feed has.
fn change_dates(name: FeedName) -> &'static [(ChangeDate, &'static str, &'static str)] {
    match name {
        FeedName::Cases => &ChangeDate::ALL,
        FeedName::Contacts => &ChangeDate::ALL[..1],
    }
}

/// The fields of a row.
fn fields(name: FeedName) -> impl Iterator<Item = &'static str> {
    change_dates(name).iter().map(|(_, field, _)| *field).chain([id_field(name)])
}

/// What an answer of a feed has to be. A record that is none holds its place, as one that names nobody does, and keeps
/// no other from being taken: the feed would stand still for as long as it is there.
pub(super) fn expected(name: FeedName) -> Expected {
    Expected {
        fields: fields(name).map(str::to_owned).collect(),
        pardons: Pardons::AllButOne,
        ..Expected::list()
    }
}

fn read_record(
    text: &str,
    name: FeedName,
    zone: &TimeZone,
    one: &Arc<Expected>,
) -> Result<FeedRow, Unidentified> {
    let unidentified =
        |modified, error: String| Unidentified { when: When { modified, after: None }, error };
    let fields = Fields::of(text, name)
        .map_err(|_| unidentified(None, "a record that is no object".to_owned()))?;
    if let Some(fault) = fault_of_record(text.as_bytes(), one) {
        return Err(unidentified(None, format!("a record that is none: {}", fault.chain())));
    }
    let raw = |field: &str| fields.get(field).unwrap_or("null");
    let read = |field: &str| read_date(raw(field), zone);
    // A row that moved has a date of that: none is as bad as one that cannot be read.
    let modified = read("ModifiedDate").and_then(|date| date.ok_or("not set".to_owned()));
    let id_field = id_field(name);
    let Ok(id) = whole_number(raw(id_field)) else {
        let error = format!("a record whose {id_field} is missing or no whole number");
        return Err(unidentified(modified.ok(), error));
    };
    let change_dates = change_dates(name);
    let stand_in = || unreadable_date(change_dates.iter().map(|(_, field, _)| raw(field)));
    let mut dates: CaseDates = [None; 11];
    let mut unreadable = Vec::new();
    for (i, (change_date, field, column)) in change_dates.iter().enumerate() {
        let date = match change_date {
            ChangeDate::Modified => modified.clone().map(Some),
            _ => read(field),
        };
        dates[i] = match date {
            Ok(date) => date.map(Ticks::get),
            Err(error) => {
                let value = fields.get(field).map(shortened);
                unreadable.push(Unreadable { id, column, value, error });
                Some(stand_in())
            }
        };
    }
    Ok(FeedRow { id, when: When { modified: modified.ok(), after: None }, dates, unreadable })
}

/// The fields of a record that count, each with its JSON text.
struct Fields<'a> {
    name: FeedName,
    texts: [Option<&'a str>; ChangeDate::ALL.len() + 1],
}

impl<'a> Fields<'a> {
    fn of(record: &'a str, name: FeedName) -> serde_json::Result<Fields<'a>> {
        let mut json = serde_json::Deserializer::from_str(record);
        let fields = Fields { name, texts: Default::default() };
        let fields = json.deserialize_map(fields)?;
        json.end().map(|()| fields)
    }

    fn get(&self, field: &str) -> Option<&'a str> {
        self.texts[self.place(field)?]
    }

    fn place(&self, field: &str) -> Option<usize> {
        fields(self.name).position(|known| known == field)
    }
}

impl<'de> Visitor<'de> for Fields<'de> {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Fields<'de>, A::Error> {
        while let Some(JsonText(field)) = map.next_key()? {
            match self.place(&field) {
                Some(place) => self.texts[place] = Some(map.next_value::<&RawValue>()?.get()),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(self)
    }
}

fn read_date(raw: &str, zone: &TimeZone) -> Result<Option<Ticks>, String> {
    if raw == "null" {
        return Ok(None);
    }
    let JsonText(text) = serde_json::from_str(raw).map_err(|_| "no text".to_owned())?;
    Ticks::parse(&text, zone).map_err(|e| e.to_string())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::{self, Mutated};
    use rstest::rstest;

    fn read(json: &str) -> FeedRows {
        let records: Vec<&RawValue> = serde_json::from_str(json).unwrap();
        FeedRows::read(&records, FeedName::Cases, &TimeZone::get("Europe/Oslo").unwrap())
    }

    fn ticks(text: &str) -> Ticks {
        Ticks::parse(text, &TimeZone::UTC).unwrap().unwrap()
    }

    #[test]
    fn dates_are_kept_to_the_seventh_digit() {
        let page = read(
            r#"[{"CaseId":1,"ModifiedDate":"2026-04-28T11:26:41.5334824+02:00"},
                {"CaseId":2,"ModifiedDate":"2026-04-28T11:26:41.5334825+02:00",
                 "CaseSoldDate":"0001-01-01T00:00:00","BidChangedDate":null}]"#,
        );
        assert_eq!(page.rows[1].key() - page.rows[0].key(), 1);
        assert_eq!(page.rows[1].dates[1..], [None; 10]);
        assert!(page.rows.iter().all(|row| row.unreadable.is_empty()));
    }

    #[rstest]
    #[case::no_id(r#"{"ModifiedDate":"2026-04-28T12:00:00Z"}"#, Some("2026-04-28T12:00:00Z"))]
    #[case::no_number(
        r#"{"CaseId":"x","ModifiedDate":"2026-04-28"}"#,
        Some("2026-04-27T22:00:00Z")
    )]
    #[case::nothing(r#"{"CaseId":1.5,"ModifiedDate":7}"#, None)]
    #[case::no_object("[1]", None)]
    #[case::null("null", None)]
    #[case::an_error(r#"{"Message":"x"}"#, None)]
    #[case::a_name_twice(r#"{"CaseId":9,"CaseId":9,"ModifiedDate":"2026-04-28T11:26:42Z"}"#, None)]
    fn a_record_that_names_nobody_is_placed_and_the_others_are_taken(
        #[case] record: &str,
        #[case] modified: Option<&str>,
    ) {
        let page = read(&format!(
            r#"[{{"CaseId":3,"ModifiedDate":"2026-04-28T11:26:41Z"}}, {record},
                {{"CaseId":4,"ModifiedDate":"2026-04-28T11:26:43Z"}}]"#
        ));
        assert_eq!((page.rows.len(), page.identities.len()), (2, 3));
        let when = page.unidentified[0].when;
        assert_eq!(when.modified, modified.map(ticks));
        assert_eq!(when.after, Some(ticks("2026-04-28T11:26:41Z")));
    }

    #[test]
    fn a_record_is_asked_again_from_where_it_surely_stands() {
        let (lower, after, own) = (Ticks::new(10), Ticks::new(20), Ticks::new(30));
        let unplaced = When { modified: None, after: Some(after) };
        assert_eq!(unplaced.from(true, lower), after);
        assert_eq!(unplaced.from(false, lower), lower);
        assert_eq!(When { modified: Some(own), ..unplaced }.from(false, lower), own);
        assert_eq!(When::default().from(true, lower), lower);
        assert_eq!(When { modified: Some(Ticks::new(5)), after: None }.from(true, lower), lower);
    }

    #[rstest]
    #[case::garbage(r#""soon""#, "not a date-time", Some(r#""soon""#))]
    #[case::number("17", "no text", Some("17"))]
    #[case::object(r#"{"a":1}"#, "no text", Some(r#"{"a":1}"#))]
    fn a_date_that_cannot_be_read_has_a_state_of_its_own(
        #[case] value: &str,
        #[case] error: &str,
        #[case] kept: Option<&str>,
    ) {
        let row = |value: &str, modified: &str| {
            let json = format!(
                r#"[{{"CaseId":1,"ModifiedDate":"{modified}","ActivityChangedDate":{value}}}]"#
            );
            read(&json).rows.remove(0)
        };
        let bad = row(value, "2026-04-28T11:26:41Z");
        assert_eq!(bad.unreadable[0].column, "activity_changed_date");
        assert!(bad.unreadable[0].error.contains(error), "{:?}", bad.unreadable);
        assert_eq!(bad.unreadable[0].value.as_deref(), kept);
        let state = |row: &FeedRow| row.dates[ChangeDate::ActivityChanged as usize];
        assert_ne!(state(&bad), state(&row("null", "2026-04-28T11:26:41Z")));
        assert_ne!(state(&bad), state(&row(r#""2026-04-28""#, "2026-04-28T11:26:41Z")));
        assert_eq!(state(&bad), state(&row(value, "2026-04-28T11:26:41Z")));
        // The same text a change later: what it means may have moved.
        assert_ne!(state(&bad), state(&row(value, "2026-04-28T11:26:42Z")));
    }

    #[rstest]
    #[case::missing("", None)]
    #[case::null(r#","ModifiedDate":null"#, Some("null"))]
    #[case::unset(r#","ModifiedDate":"0001-01-01T00:00:00""#, Some(r#""0001-01-01T00:00:00""#))]
    #[case::garbage(r#","ModifiedDate":"x""#, Some(r#""x""#))]
    fn a_row_without_modified_date_is_a_row(#[case] field: &str, #[case] value: Option<&str>) {
        let page = read(&format!(r#"[{{"CaseId":3{field}}}]"#));
        let row = &page.rows[0];
        assert_eq!((row.when.modified, row.unreadable[0].column), (None, "modified_date"));
        assert_eq!(row.unreadable[0].value.as_deref(), value);
        assert!(crate::scope::is_unreadable(row.key()));
    }

    #[test]
    fn of_a_long_value_only_the_beginning_is_kept() {
        let json = format!(r#"[{{"CaseId":3,"ModifiedDate":"{}"}}]"#, "å".repeat(100_000));
        let kept = read(&json).rows[0].unreadable[0].value.clone().unwrap();
        assert_eq!(kept.chars().count(), LONGEST_VALUE + 1);
    }

    #[test]
    fn of_a_case_that_moved_between_the_rows_of_a_page_the_last_counts() {
        let page = read(
            r#"[{"CaseId":4,"ModifiedDate":"x"},
                {"CaseId":4,"ModifiedDate":"2026-04-28T11:26:42Z"}]"#,
        );
        assert_eq!(page.cases(), [(4, page.rows[1].dates)]);
        assert!(page.unreadable().is_empty());
    }

    const PAGES: [&[u8]; 3] = [
        br#"[{"CaseId":1,"ModifiedDate":"2026-04-28T11:26:41.5334824+02:00","BidChangedDate":null},
             {"CaseId":2,"ModifiedDate":"2026-04-28T11:26:41.5334825","ActivityChangedDate":"soon"}]"#,
        br#"[{"Id":50001,"ModifiedDate":"2026-04-28T11:26:41Z"},{"Id":"x","ModifiedDate":"0001-01-01T00:00:00"}]"#,
        br#"[{"CaseId":9223372036854775807,"ModifiedDate":"9999-12-31T23:59:59.9999999Z","CaseId":3}, 7, null]"#,
    ];

    /// Every record is a row or is unidentified, and has an identity; whatever its dates are.
    #[test]
    fn fuzz_feed_pages() {
        let zone = TimeZone::get("Europe/Oslo").unwrap();
        bolero::check!().with_type::<Mutated>().with_test_time(fuzz::TIME).for_each(|input| {
            let body = input.of(&PAGES, &fuzz::JSON);
            let Ok(records) = serde_json::from_slice::<Vec<&RawValue>>(&body) else { return };
            for name in [FeedName::Cases, FeedName::Contacts] {
                let page = FeedRows::read(&records, name, &zone);
                assert_eq!(page.rows.len() + page.unidentified.len(), records.len());
                assert_eq!(page.identities.len(), records.len());
                assert!(page.cases().len() <= page.rows.len());
                let _ = (page.contacts(), page.unreadable(), page.is_in_order());
            }
        });
    }
}
