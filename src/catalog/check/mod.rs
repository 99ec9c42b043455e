//! Resource files, checked and turned into [`Resource`]s: all mistakes of a file at once.
//!
//! A declaration that could never have an effect is a mistake too: a table that is never read, or a
//! column that is always NULL, would look like a source that has nothing there.

mod across;
mod calls;
mod column;
mod copy;
mod table;

pub(super) use across::across;

use super::file::{AnswerName, File, GroupName, MethodName, PagingName, ReadFile};
use super::resource::{
    Address, Answer, ChangeDate, Child, Condition, Fallback, ForEach, Group, Journal, Lookup,
    Method, Paging, Partial, Person, Read, Refresh, Windows,
};
use super::{Column, Resource};

/// The setting that says where windows begin.
const WINDOWS_SINCE: &str = "processing_bases.since";

/// Rules for a file of the user's: what it may call, and what of a built-in table it may not change.
pub(super) fn own_file(resource: &Resource, built_in: &[Resource], faults: &mut Vec<String>) {
    let reads = built_in.iter().filter_map(|r| r.read.as_ref());
    calls::check(resource, reads.map(|read| (read.method, read.path.as_str())), faults);
    if let Some(original) = built_in.iter().find(|r| r.table == resource.table) {
        copy::check(resource, original, faults);
    }
}

impl File {
    /// How the resource is read; `None` where the section that says so is missing.
    fn group(&mut self, faults: &mut Vec<String>) -> Option<Group> {
        let sections = [
            ("for_each", self.for_each.is_some(), GroupName::ForEach),
            ("child", self.child.is_some(), GroupName::Child),
            ("journal", self.journal.is_some(), GroupName::Journal),
        ];
        for (name, there, group) in sections {
            if there && self.group != group {
                faults.push(format!("[{name}] goes with group = \"{name}\" only"));
            }
        }
        match self.group {
            GroupName::Case => Some(Group::Case),
            GroupName::Ids => Some(Group::Ids),
            GroupName::List => Some(Group::List),
            GroupName::ForEach => self.for_each.take().map(|e| {
                if e.table.is_some() == e.list.is_some() {
                    faults.push("[for_each] needs a table or a list, one of them".to_owned());
                }
                Group::ForEach(ForEach {
                    table: e.table.unwrap_or_else(|| self.table.clone()),
                    list: e.list,
                    column: e.column,
                    param: e.param,
                })
            }),
            GroupName::Child => self.child.take().map(|c| {
                Group::Child(Child {
                    table: c.table,
                    field: c.field,
                    scalar: c.scalar,
                    scope: None,
                })
            }),
            GroupName::Events => Some(Group::Events),
            GroupName::Journal => {
                Some(Group::Journal(Journal { line_key: self.journal.take().map(|j| j.line_key) }))
            }
        }
    }

    /// The resource that the file describes; `None` where it says too little of what it is.
    pub(super) fn check(mut self, faults: &mut Vec<String>) -> Option<Resource> {
        let columns: Vec<Column> =
            std::mem::take(&mut self.column).into_iter().filter_map(|c| c.check(faults)).collect();
        let Some(group) = self.group(faults) else {
            faults.push(
                "group = \"for_each\" needs [for_each], group = \"child\" needs [child]".to_owned(),
            );
            return None;
        };
        let schema = Resource::arrow_schema(&columns);
        let resource = Resource {
            table: self.table,
            comment: self.comment,
            key: self.key,
            permissions: self.permissions,
            group,
            refresh: refresh(&self.refresh, faults),
            schedule: self.schedule,
            read: self.read.map(|r| r.check(faults)),
            fallback: self
                .fallback
                .map(|i| Fallback { table: i.table, columns: i.columns.into_iter().collect() }),
            condition: self.condition.map(|o| Condition {
                table: o.table,
                scope: String::new(),
                column: o.column,
                values: o.values,
            }),
            lookup: self.lookup.map(|g| Lookup {
                param: g.param,
                tables: g.tables.into_iter().map(|table| (table, String::new())).collect(),
                column: g.column,
            }),
            stays_after: self.stays_after,
            at_most: self.at_most,
            partial: self.partial.map(|p| Partial {
                permission: p.permission,
                column: p.column,
                values: p.values,
            }),
            person: self.person.map(|p| Person { id: p.id, known_by: p.known_by, also: p.also }),
            model: self.model,
            leave_out: self.leave_out,
            columns,
            schema,
        };
        table::check(&resource, faults);
        column::check(&resource, faults);
        Some(resource)
    }
}

impl ReadFile {
    fn check(self, faults: &mut Vec<String>) -> Read {
        if self.values.len() > 1 {
            faults.push("read.values: only one path parameter can have values".to_owned());
        }
        if matches!(self.paging, PagingName::Windows) != self.windows.is_some() {
            faults.push("paging = \"windows\" and [read.windows] go together".to_owned());
        }
        if let Some(windows) = self.windows.as_ref().filter(|w| w.since != WINDOWS_SINCE) {
            faults
                .push(format!("read.windows.since = \"{}\" is not {WINDOWS_SINCE}", windows.since));
        }
        Read {
            method: match self.method {
                MethodName::Get => Method::Get,
                MethodName::Post => Method::Post,
                MethodName::Put => Method::Put,
                writes @ (MethodName::Patch | MethodName::Delete) => {
                    let name = format!("{writes:?}").to_uppercase();
                    faults.push(format!(
                        "read.method = \"{name}\" is no read: right are GET, and POST and PUT where \
                         a built-in table reads so"
                    ));
                    Method::Get
                }
            },
            path: self.path,
            query: self.query.into_iter().collect(),
            optional_query: self.optional_query.into_iter().collect(),
            answer: match self.answer {
                AnswerName::List => Answer::List,
                AnswerName::Record => Answer::Record,
                AnswerName::Scalar => Answer::Scalar,
            },
            paging: match self.paging {
                PagingName::Odata => Paging::Odata,
                PagingName::Windows => Paging::Windows,
                PagingName::None => Paging::None,
            },
            order: self.order,
            values: self.values.into_iter().next(),
            by_id: self.by_id,
            fallback: self
                .fallback
                .map(|f| Address { path: f.path, query: f.query.into_iter().collect() }),
            windows: self.windows.map(|w| Windows {
                start: w.start,
                end: w.end,
                offset: w.offset,
                limit: w.limit,
            }),
        }
    }
}

fn refresh(names: &[String], faults: &mut Vec<String>) -> Refresh {
    if names.is_empty() {
        return Refresh::None;
    }
    if names == ["any"] {
        return Refresh::Any;
    }
    let mut change_dates = Vec::new();
    for name in names {
        match ChangeDate::of_field(name) {
            Some(change_date) => change_dates.push(change_date),
            None => {
                let known = ChangeDate::ALL.map(|(_, field, _)| field).join(", ");
                faults.push(format!(
                    "refresh: \"{name}\" is neither \"any\" alone nor one of {known}"
                ));
            }
        }
    }
    Refresh::Dates(change_dates)
}

/// The names in braces: `/a/{b}/{c}` has `b` and `c`.
fn placeholders(path: &str) -> Vec<&str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name)).collect()
}
