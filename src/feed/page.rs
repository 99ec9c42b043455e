//! Rows of the feeds.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde_json::value::RawValue;

use crate::catalog::Facet;
use crate::mirror::{CaseDates, ContactSeen};
use crate::source::FeedName;
use crate::ticks::Ticks;

/// One row of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FeedRow {
    pub id: i64,
    pub modified: Ticks,
    pub dates: CaseDates,
}

impl FeedRow {
    /// Two rows are the same when id and `ModifiedDate` are.
    pub fn identity(&self) -> (i64, Option<i64>) {
        (self.id, Some(self.modified.get()))
    }

    #[cfg(test)]
    pub fn for_test(id: i64, modified: Ticks) -> FeedRow {
        let mut dates = [None; 11];
        dates[0] = Some(modified.get());
        FeedRow { id, modified, dates }
    }
}

/// The rows of one answer.
#[derive(Debug, Default)]
pub(super) struct FeedRows {
    pub rows: Vec<FeedRow>,
    /// Records of the answer, usable or not: what decides whether the page was full.
    pub records: usize,
    /// The first row that could not be read, in words.
    pub fault: Option<String>,
}

impl FeedRows {
    /// Reads the records; one that has no id or no `ModifiedDate` cannot be placed and is reported.
    pub fn read(records: &[&RawValue], name: FeedName, zone: &TimeZone) -> FeedRows {
        let mut page = FeedRows { records: records.len(), ..FeedRows::default() };
        for record in records {
            match row(record.get(), name, zone) {
                Ok(row) => page.rows.push(row),
                Err(fault) => {
                    page.fault.get_or_insert(fault);
                }
            }
        }
        page
    }

    /// For `sync.seen`: of a case that stands in the page twice, the last row.
    pub fn cases(&self) -> Vec<(i64, CaseDates)> {
        let by_id: BTreeMap<i64, CaseDates> =
            self.rows.iter().map(|row| (row.id, row.dates)).collect();
        by_id.into_iter().collect()
    }

    /// For `sync.seen_contacts`.
    pub fn contacts(&self) -> Vec<ContactSeen> {
        let by_id: BTreeMap<i64, Ticks> =
            self.rows.iter().map(|row| (row.id, row.modified)).collect();
        by_id
            .into_iter()
            .map(|(contact_id, modified)| ContactSeen {
                contact_id,
                modified: Some(modified.get()),
            })
            .collect()
    }
}

fn row(text: &str, name: FeedName, zone: &TimeZone) -> Result<FeedRow, String> {
    let fields: BTreeMap<&str, &RawValue> =
        serde_json::from_str(text).map_err(|e| format!("not an object: {e}"))?;
    let id_field = match name {
        FeedName::Cases => "CaseId",
        FeedName::Contacts => "ContactId",
    };
    let id = fields
        .get(id_field)
        .and_then(|raw| raw.get().parse::<i64>().ok())
        .ok_or_else(|| format!("{id_field} is missing or no whole number"))?;
    let mut dates: CaseDates = [None; 11];
    for (i, (_, field, _)) in Facet::ALL.iter().enumerate() {
        let Some(raw) = fields.get(field).map(|raw| raw.get()).filter(|raw| *raw != "null") else {
            continue;
        };
        let text: String = serde_json::from_str(raw)
            .map_err(|_| format!("{field} of {id_field} {id} is no text"))?;
        dates[i] = Ticks::parse(&text, zone)
            .map_err(|e| format!("{field} of {id_field} {id}: {e}"))?
            .map(Ticks::get);
    }
    let modified =
        dates[0].map(Ticks::new).ok_or_else(|| format!("{id_field} {id} has no ModifiedDate"))?;
    Ok(FeedRow { id, modified, dates })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> FeedRows {
        let records: Vec<&RawValue> = serde_json::from_str(json).unwrap();
        FeedRows::read(&records, FeedName::Cases, &TimeZone::get("Europe/Oslo").unwrap())
    }

    #[test]
    fn dates_are_kept_to_the_seventh_digit() {
        let page = read(
            r#"[{"CaseId":1,"ModifiedDate":"2026-04-28T11:26:41.5334824+02:00"},
                {"CaseId":2,"ModifiedDate":"2026-04-28T11:26:41.5334825+02:00",
                 "CaseSoldDate":"0001-01-01T00:00:00","BidChangedDate":null}]"#,
        );
        assert_eq!(page.rows[1].modified.get() - page.rows[0].modified.get(), 1);
        assert_eq!(page.rows[1].dates[1..], [None; 10]);
    }

    #[test]
    fn a_row_without_id_or_date_is_reported_and_the_others_are_taken() {
        let page = read(
            r#"[{"ModifiedDate":"2026-04-28T11:26:41Z"},{"CaseId":3},
                {"CaseId":4,"ModifiedDate":"2026-04-28T11:26:41Z"}]"#,
        );
        assert_eq!((page.rows.len(), page.records), (1, 3));
        assert_eq!(page.fault.as_deref(), Some("CaseId is missing or no whole number"));
    }

    #[test]
    fn of_a_case_that_moved_between_the_rows_of_a_page_the_last_counts() {
        let page = read(
            r#"[{"CaseId":4,"ModifiedDate":"2026-04-28T11:26:41Z"},
                {"CaseId":4,"ModifiedDate":"2026-04-28T11:26:42Z"}]"#,
        );
        assert_eq!(page.cases().len(), 1);
        assert_eq!(page.cases()[0].1[0], Some(page.rows[1].modified.get()));
    }
}
