//! Tables that show nothing because of another one: what they depend on is not read.
//!
//! Such a table is refused by nobody, and is still asked for as soon as there is something to ask; but
//! while it is empty `sync.resources` says why, and reports do not take it for known.

use std::collections::BTreeMap;

use super::polls::FEED_UNREAD;
use crate::catalog::{Catalog, Group, Resource};
use crate::error::Result;
use crate::mirror::{ListedOffices, ResourceRow};
use crate::scope::TableStatus;

/// What `sync.resources` should say of a table that the source itself does not refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dependent {
    pub(super) status: TableStatus,
    pub(super) reason: Option<String>,
    /// The table that the status comes from; `None` where it is the table's own.
    pub(super) because_of: Option<String>,
}

impl Dependent {
    fn readable(reason: Option<String>) -> Dependent {
        Dependent { status: TableStatus::Ok, reason, because_of: None }
    }
}

/// How a table depends on others.
struct Need<'r> {
    /// Any of them is enough.
    tables: Vec<&'r str>,
    /// In words, before the name of the table.
    how: &'static str,
    /// Its rows come with that table's: nothing is asked for them alone.
    is_child: bool,
}

/// Statuses, derived from those that tables have of themselves.
pub(super) struct Dependence<'a, E> {
    pub(super) catalog: &'a Catalog,
    pub(super) rows: &'a BTreeMap<String, ResourceRow>,
    /// By what whose journals there are is known; `None` where `journals.ids` names them.
    pub(super) offices: Option<ListedOffices>,
    /// Whether a table has no row.
    pub(super) is_empty: E,
}

impl<E: Fn(&str) -> Result<bool>> Dependence<'_, E> {
    /// The tables of which the store says something else than they should.
    ///
    /// # Errors
    /// Those of looking into a table.
    pub(super) fn changes(&self) -> Result<Vec<(String, Dependent)>> {
        let mut changes = Vec::new();
        for resource in self.catalog.resources() {
            let Some(row) = self.rows.get(&resource.table) else { continue };
            if row.own_status() != TableStatus::Ok {
                continue;
            }
            let now = self.status(resource)?;
            // A table that is read in part has a reason of its own, and so has what nobody tells of, or whose feed cannot
            // be read.
            let has_own = resource.partial.is_some()
                || resource.group == Group::Events
                || row.reason.as_deref().is_some_and(|reason| reason.starts_with(FEED_UNREAD));
            let own_reason = now.status == TableStatus::Ok && has_own;
            let same = row.status == now.status
                && row.because_of == now.because_of
                && (own_reason || row.reason == now.reason);
            if !same {
                changes.push((resource.table.clone(), now));
            }
        }
        Ok(changes)
    }

    /// What is to be said of a table. Files that lead back to themselves are refused when they are
    /// loaded, so that this ends.
    fn status(&self, resource: &Resource) -> Result<Dependent> {
        let Some(row) = self.rows.get(&resource.table) else {
            return Ok(Dependent::readable(None));
        };
        if row.own_status() != TableStatus::Ok {
            return Ok(Dependent {
                status: row.status,
                reason: row.reason.clone(),
                because_of: None,
            });
        }
        let Some(need) = self.need(resource) else { return Ok(Dependent::readable(None)) };
        let mut first = None;
        for table in need.tables {
            let Some(other) = self.catalog.get(table) else { continue };
            let of_other = self.status(other)?;
            if of_other.status == TableStatus::Ok {
                return Ok(self.of_what_is_named(resource, table));
            }
            first.get_or_insert((table.to_owned(), of_other));
        }
        let Some((table, of_other)) = first else { return Ok(Dependent::readable(None)) };
        let why = of_other.reason.map_or(String::new(), |reason| format!(" ({reason})"));
        let reason = format!("{} {table}, which is {}{why}", need.how, of_other.status);
        if need.is_child || (self.is_empty)(&resource.table)? {
            return Ok(Dependent {
                status: of_other.status,
                reason: Some(reason),
                because_of: Some(table),
            });
        }
        // What is known is read on; only what is new would be missed.
        let lasting = of_other.status != TableStatus::Failing;
        Ok(Dependent::readable(lasting.then_some(reason)))
    }

    /// What is to be said of a table whose scopes `table` names, which is read.
    fn of_what_is_named(&self, resource: &Resource, table: &str) -> Dependent {
        // Rows are of the list, or of what stands for it.
        let answered = self.rows.get(table).is_some_and(|row| row.answered);
        let Some(offices) = self.offices.filter(|offices| answered || offices.all > 0) else {
            return Dependent::readable(None);
        };
        match (&resource.group, offices.why_nothing_is_named()) {
            (Group::Journal(_), Some(reason)) => Dependent {
                status: TableStatus::Failing,
                reason: Some(reason),
                because_of: Some(table.to_owned()),
            },
            (Group::Journal(_), None) => Dependent::readable(offices.what_is_not_named()),
            _ => Dependent::readable(None),
        }
    }

    fn need<'r>(&self, resource: &'r Resource) -> Option<Need<'r>> {
        let need = |tables, how| Some(Need { tables, how, is_child: false });
        if let Some(only) = &resource.condition {
            return need(vec![only.table.as_str()], "which cases are asked says");
        }
        if let Some(given) = &resource.lookup {
            let tables = given.tables.iter().map(|(table, _)| table.as_str()).collect();
            return need(tables, "what cases are asked by is in");
        }
        match &resource.group {
            Group::Child(child) => Some(Need {
                tables: vec![child.table.as_str()],
                how: "its rows come with",
                is_child: true,
            }),
            Group::ForEach(each) if each.list.is_none() => {
                need(vec![each.table.as_str()], "it is read per row of")
            }
            Group::Ids if resource.table == "contacts" => {
                need(vec!["case_roles"], "which contacts there are says")
            }
            Group::Journal(_) if self.offices.is_some() => {
                need(vec!["offices"], "whose journals there are says")
            }
            Group::Case
            | Group::Ids
            | Group::List
            | Group::ForEach(_)
            | Group::Events
            | Group::Journal(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::JournalLevel;

    fn status_of(name: &str) -> TableStatus {
        TableStatus::from_name(name).unwrap()
    }

    /// The changes in which these tables have these statuses of themselves, and these rows.
    fn changes(statuses: &[(&str, &str)], filled: &[&str]) -> BTreeMap<String, Dependent> {
        let level = JournalLevel::Offices;
        let offices = ListedOffices { level, all: 2, unnamed: 0, known: 2 };
        changes_with(statuses, filled, offices, true)
    }

    fn changes_with(
        statuses: &[(&str, &str)],
        filled: &[&str],
        offices: ListedOffices,
        answered: bool,
    ) -> BTreeMap<String, Dependent> {
        let catalog = Catalog::load(None).unwrap();
        let mut rows: BTreeMap<String, ResourceRow> = BTreeMap::new();
        for resource in catalog.resources() {
            let own = statuses.iter().find(|(table, _)| *table == resource.table);
            rows.insert(
                resource.table.clone(),
                ResourceRow {
                    status: own.map_or(TableStatus::Ok, |(_, status)| status_of(status)),
                    reason: own.map(|_| "said so".to_owned()),
                    since: None,
                    answered,
                    because_of: None,
                },
            );
        }
        let dependence = Dependence {
            catalog: &catalog,
            rows: &rows,
            offices: Some(offices),
            is_empty: |table: &str| Ok(!filled.contains(&table)),
        };
        dependence.changes().unwrap().into_iter().collect()
    }

    #[test]
    fn where_everything_is_read_nothing_is_derived() {
        assert_eq!(changes(&[], &[]), BTreeMap::new());
    }

    #[test]
    fn a_child_is_what_its_parent_is_with_rows_or_without() {
        for status in ["forbidden", "absent", "disabled", "failing"] {
            let found = changes(&[("case_files", status)], &["case_file_access"]);
            let expected = Dependent {
                status: status_of(status),
                reason: Some(format!("its rows come with case_files, which is {status} (said so)")),
                because_of: Some("case_files".to_owned()),
            };
            assert_eq!(found, BTreeMap::from([("case_file_access".to_owned(), expected)]));
        }
    }

    #[test]
    fn an_empty_table_says_what_it_waits_for_through_all_that_lies_between() {
        let found = changes(&[("employees", "forbidden"), ("offices", "absent")], &[]);
        let shown: Vec<(&str, &str, Option<&str>)> = found
            .iter()
            .map(|(table, d)| (table.as_str(), d.status.name(), d.because_of.as_deref()))
            .collect();
        let offices = Some("offices");
        assert_eq!(
            shown,
            [
                ("accounts", "absent", offices),
                ("case_journal_annotations", "absent", Some("case_journals")),
                ("case_journals", "absent", offices),
                ("depot_journals", "absent", offices),
                ("employee_offices", "forbidden", Some("employees")),
                ("revenue_journal_annotations", "absent", Some("revenue_journals")),
                ("revenue_journal_sums", "absent", offices),
                ("revenue_journals", "absent", offices),
                ("settlement_journals", "absent", offices),
            ]
        );
    }

    #[test]
    fn what_is_known_is_read_on_and_says_what_it_would_miss() {
        let found = changes(&[("dynamic_sale_text_use", "forbidden")], &["dynamic_sale_texts"]);
        let texts = &found["dynamic_sale_texts"];
        assert_eq!((texts.status, &texts.because_of), (TableStatus::Ok, &None));
        assert!(
            texts.reason.as_ref().unwrap().contains("dynamic_sale_text_use, which is forbidden")
        );
        let found = changes(&[("dynamic_sale_text_use", "failing")], &["dynamic_sale_texts"]);
        assert_eq!(found, BTreeMap::new(), "a failure that passes misses nothing");
    }

    #[test]
    fn journals_say_whose_id_no_office_has() {
        let of = |all, unnamed, known, answered| {
            let level = JournalLevel::BrokerCompanies;
            let found = changes_with(
                &[],
                &["revenue_journals"],
                ListedOffices { level, all, unnamed, known },
                answered,
            );
            let row = found.get("revenue_journals")?;
            let because_of = row.because_of.clone();
            Some((row.status, row.reason.clone().unwrap_or_default(), because_of))
        };
        let (status, reason, because_of) = of(3, 3, 0, true).unwrap();
        assert_eq!((status, because_of.as_deref()), (TableStatus::Failing, Some("offices")));
        assert!(reason.contains("no office has a broker_company_id"), "{reason}");
        // From employees, where there is no list of the offices.
        assert_eq!(of(3, 3, 0, false).unwrap().0, TableStatus::Failing);
        // One that was known stays known.
        let (status, reason, because_of) = of(3, 3, 1, true).unwrap();
        assert_eq!((status, because_of), (TableStatus::Ok, None));
        assert!(reason.starts_with("3 of 3 offices have no broker_company_id"), "{reason}");
        let (status, reason, _) = of(0, 0, 0, true).unwrap();
        assert_eq!(status, TableStatus::Ok);
        assert!(reason.starts_with("no office is listed"), "{reason}");
        assert_eq!(of(0, 0, 0, false), None, "nothing was listed yet");
        assert_eq!(of(3, 0, 1, true), None);
    }

    #[test]
    fn one_of_the_tables_that_may_give_a_parameter_is_enough() {
        assert!(!changes(&[("projects", "forbidden")], &[]).contains_key("public_showings"));
        let both = changes(&[("projects", "forbidden"), ("cases", "forbidden")], &[]);
        assert_eq!(both["public_showings"].status, TableStatus::Forbidden);
        assert_eq!(
            changes(&[("case_roles", "absent")], &[])["contacts"].status,
            TableStatus::Absent
        );
    }
}
