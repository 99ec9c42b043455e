//! Resource files, checked and turned into [`Resource`]s: all mistakes of a file at once.

use std::collections::{BTreeMap, BTreeSet};

use heck::ToSnakeCase;

use super::file::{
    AnswerName, ClassName, ColumnFile, CutName, File, FromName, GroupName, MethodName, PagingName,
    ReadFile,
};
use super::resource::{
    Address, Answer, Child, Each, Facet, Given, Group, Instead, JOURNAL_COLUMNS, Journal,
    LINE_NUMBER, Method, Only, Paging, Partial, Read, Refresh, Windows,
};
use super::{Class, Column, ColumnType, Cut, Origin, Resource, Scalar};

/// The setting that says where windows begin.
const WINDOWS_SINCE: &str = "processing_bases.since";
const SCHEDULES: [&str; 1] = ["reference"];

/// Rules between tables.
pub(super) fn across(resources: &[(String, Resource)], faults: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    for (place, r) in resources {
        if let Some(other) = seen.insert(r.table.clone(), place.clone()) {
            faults.push(format!("{place}: table \"{}\" is already in {other}", r.table));
        }
    }
    let find = |table: &str| resources.iter().map(|(_, r)| r).find(|r| r.table == table);
    for (place, r) in resources {
        let mut need = |what: &str, table: &str, columns: &mut dyn Iterator<Item = &String>| {
            let Some(other) = find(table) else {
                faults.push(format!("{place}: {what}.table = \"{table}\" is no table"));
                return;
            };
            for column in columns.filter(|column| other.column(column).is_none()) {
                faults.push(format!("{place}: {what}: \"{column}\" is no column of {table}"));
            }
        };
        if let Some(only) = &r.only {
            need("only", &only.table, &mut std::iter::once(&only.column));
        }
        if let Some(given) = &r.given {
            for (table, _) in &given.tables {
                need("given", table, &mut std::iter::once(&given.column));
            }
        }
        if let Some(instead) = &r.instead {
            need("instead", &instead.table, &mut instead.columns.iter().map(|(_, from)| from));
        }
        match &r.group {
            Group::Each(each) => need("each", &each.table, &mut std::iter::once(&each.column)),
            Group::Child(child) => {
                let parents = r.columns.iter().filter(|c| c.origin == Origin::Parent);
                need("child", &child.table, &mut parents.filter_map(|c| c.path.first()));
            }
            Group::Case | Group::Ids | Group::List | Group::Journal(_) => {}
        }
        if needs_itself(r, &find) {
            faults.push(format!("{place}: [each] and [instead] lead back to \"{}\"", r.table));
        }
    }
}

/// Whether what a table is read per row of, or may be taken from, needs that table first.
fn needs_itself<'a>(resource: &'a Resource, find: &impl Fn(&str) -> Option<&'a Resource>) -> bool {
    let mut met = BTreeSet::new();
    let mut next = Some(resource);
    while let Some(r) = next {
        if !met.insert(r.table.as_str()) {
            return true;
        }
        let table = match &r.group {
            Group::Each(each) if each.list.is_some() => None,
            Group::Each(each) => Some(&each.table),
            Group::Case | Group::Ids | Group::List | Group::Child(_) | Group::Journal(_) => {
                r.instead.as_ref().map(|instead| &instead.table)
            }
        };
        next = table.and_then(|table| find(table));
    }
    false
}

impl ColumnFile {
    fn check(self, faults: &mut Vec<String>) -> Option<Column> {
        let path: Vec<String> =
            self.field.iter().flat_map(|f| f.split('.')).map(str::to_owned).collect();
        let Some(name) =
            self.name.or_else(|| (!path.is_empty()).then(|| path.join(" ").to_snake_case()))
        else {
            faults.push("a column has neither name nor field".to_owned());
            return None;
        };
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if !plain {
            faults.push(format!(
                "column \"{name}\": a name is lower-case letters, digits and _, a letter first"
            ));
        }
        let Some(kind) = ColumnType::parse(&self.kind) else {
            let known = Scalar::NAMES.map(|(n, _)| n).join(", ");
            faults.push(format!(
                "column \"{name}\": type = \"{}\" is none of {known}, or list<...> of these",
                self.kind
            ));
            return None;
        };
        let origin = match self.from {
            None => Origin::Field,
            Some(FromName::Path) => Origin::Path,
            Some(FromName::Scalar) => Origin::Scalar,
            Some(FromName::Position) => Origin::Position,
            Some(FromName::Parent) => Origin::Parent,
        };
        if matches!(origin, Origin::Field | Origin::Parent) && path.is_empty() {
            faults.push(format!("column \"{name}\": field or from is missing"));
        }
        let class = self.class.map(|c| match c {
            ClassName::Identifier => Class::Identifier,
            ClassName::ContactDetail => Class::ContactDetail,
        });
        let cut = self.cut.map(|CutName::AfterHost| Cut::AfterHost);
        if cut.is_some() && (kind.scalar != Scalar::Text || kind.list) {
            faults.push(format!("column \"{name}\": cut goes with string, not with {}", self.kind));
        }
        if class.is_some() && !matches!(kind.scalar, Scalar::Text | Scalar::Enum) {
            faults.push(format!(
                "column \"{name}\": class goes with string and list<string>, not with {}",
                self.kind
            ));
        }
        Some(Column {
            name,
            path,
            origin,
            kind,
            comment: self.comment,
            class,
            cut,
            volatile: self.volatile,
        })
    }
}

impl File {
    pub(super) fn check(self, faults: &mut Vec<String>) -> Option<Resource> {
        let columns: Vec<Column> =
            self.column.into_iter().filter_map(|c| c.check(faults)).collect();
        let mut names = BTreeSet::new();
        for c in &columns {
            if !names.insert(c.name.as_str()) {
                faults.push(format!("column \"{}\" is there twice", c.name));
            }
        }
        if self.key.is_empty() {
            faults.push("key = [] names no column".to_owned());
        }
        for key in &self.key {
            match columns.iter().find(|c| c.name == *key) {
                None => faults.push(format!("key: \"{key}\" is no column")),
                Some(c) if c.class.is_some() => {
                    faults
                        .push(format!("key: \"{key}\" has a privacy class; a key cannot have one"));
                }
                Some(c) if c.kind.list => faults.push(format!("key: \"{key}\" is a list")),
                Some(_) => {}
            }
        }
        let refresh = refresh(&self.refresh, faults);
        if let Some(schedule) = &self.schedule
            && !SCHEDULES.contains(&schedule.as_str())
        {
            faults.push(format!("schedule = \"{schedule}\" is none of {}", SCHEDULES.join(", ")));
        }
        let instead = self
            .instead
            .map(|i| Instead { table: i.table, columns: i.columns.into_iter().collect() });
        if let Some(instead) = &instead {
            instead_of(instead, self.group, &self.key, &columns, faults);
        }
        let given = self.given.map(|g| Given {
            param: g.param,
            tables: g.tables.into_iter().map(|table| (table, String::new())).collect(),
            column: g.column,
        });
        if given.is_some() && self.group != GroupName::Case {
            faults.push("[given] goes with group = \"case\" only".to_owned());
        }
        if let Some(partial) = &self.partial
            && !columns.iter().any(|c| c.name == partial.column)
        {
            faults.push(format!("partial.column: \"{}\" is no column", partial.column));
        }
        if let Some(name) = &self.stays_after
            && !columns
                .iter()
                .any(|c| c.name == *name && c.kind.scalar == Scalar::Instant && !c.kind.list)
        {
            faults.push(format!("stays_after = \"{name}\" is no column of type datetime"));
        }
        if self.at_most.is_some() && (self.stays_after.is_none() || self.at_most == Some(0)) {
            faults.push("at_most is a number from 1 and goes with stays_after only".to_owned());
        }
        let group = match self.group {
            GroupName::Case => Some(Group::Case),
            GroupName::Ids => Some(Group::Ids),
            GroupName::List => Some(Group::List),
            GroupName::Each => self.each.map(|e| {
                if e.table.is_some() == e.list.is_some() {
                    faults.push("[each] needs a table or a list, one of them".to_owned());
                }
                Group::Each(Each {
                    table: e.table.unwrap_or_else(|| self.table.clone()),
                    list: e.list,
                    column: e.column,
                    param: e.param,
                })
            }),
            GroupName::Child => self
                .child
                .map(|c| Group::Child(Child { table: c.table, field: c.field, scalar: c.scalar })),
            GroupName::Journal => {
                Some(Group::Journal(Journal { line_key: self.journal.map(|j| j.line_key) }))
            }
        };
        let Some(group) = group else {
            faults
                .push("group = \"each\" needs [each], group = \"child\" needs [child]".to_owned());
            return None;
        };
        let read = self.read.and_then(|r| r.check(faults));
        match (&group, &read) {
            (Group::Child(_), Some(_)) => {
                faults.push("[read]: a child table is read with its parent".to_owned());
            }
            (Group::Child(_), None) => {}
            (_, None) => faults.push("[read] is missing".to_owned()),
            (group, Some(read)) => {
                let mut known: Vec<&str> =
                    read.values.iter().map(|(name, _)| name.as_str()).collect();
                match group {
                    Group::Case => {
                        known.push("case_id");
                        known.extend(given.iter().map(|given| given.param.as_str()));
                    }
                    Group::Each(each) => known.push(&each.param),
                    Group::Journal(journal) => {
                        check_journal(journal, read, &self.key, &columns, faults);
                        known.extend(JOURNAL_COLUMNS);
                    }
                    Group::Ids | Group::List | Group::Child(_) => {}
                }
                let addresses =
                    std::iter::once(&read.path).chain(read.fallback.iter().map(|f| &f.path));
                for name in addresses.flat_map(|path| placeholders(path)) {
                    if !known.contains(&name) {
                        faults.push(format!("read.path: nothing fills {{{name}}}"));
                    }
                    if !columns.iter().any(|c| c.name == name && c.origin == Origin::Path) {
                        faults.push(format!(
                            "read.path: {{{name}}} needs a column of that name with from = \"path\""
                        ));
                    }
                }
                if read.windows.is_some() && *group != Group::List {
                    faults.push("[read.windows] goes with group = \"list\" only".to_owned());
                }
                if read.paging == Paging::Odata && read.order.is_none() {
                    faults.push("read.order is missing: OData pages need an order".to_owned());
                }
            }
        }
        if refresh == Refresh::None && matches!(group, Group::Case) {
            faults.push("refresh is missing: which change dates make it stale?".to_owned());
        }
        let schema = Resource::arrow_schema(&columns);
        Some(Resource {
            table: self.table,
            comment: self.comment,
            key: self.key,
            permissions: self.permissions,
            group,
            refresh,
            schedule: self.schedule,
            read,
            instead,
            only: self.only.map(|o| Only {
                table: o.table,
                scope: String::new(),
                column: o.column,
                values: o.values,
            }),
            given,
            stays_after: self.stays_after,
            at_most: self.at_most,
            partial: self.partial.map(|p| Partial {
                permission: p.permission,
                column: p.column,
                values: p.values,
            }),
            leave_out: self.leave_out,
            columns,
            schema,
        })
    }
}

impl ReadFile {
    fn check(self, faults: &mut Vec<String>) -> Option<Read> {
        let paths =
            [("path", Some(&self.path)), ("fallback", self.fallback.as_ref().map(|f| &f.path))];
        for (key, path) in paths {
            if let Some(path) = path.filter(|path| !path.starts_with('/')) {
                faults.push(format!("read.{key} = \"{path}\" does not start with /"));
            }
        }
        if self.fallback.is_some() && !matches!(self.answer, AnswerName::List) {
            faults.push("read.fallback goes with answer = \"list\" only".to_owned());
        }
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
        Some(Read {
            method: match self.method {
                MethodName::Get => Method::Get,
                MethodName::Post => Method::Post,
                MethodName::Put => Method::Put,
            },
            path: self.path,
            query: self.query.into_iter().collect(),
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
        })
    }
}

/// Whether rows of another table can stand for those of a list.
fn instead_of(
    instead: &Instead,
    group: GroupName,
    key: &[String],
    columns: &[Column],
    faults: &mut Vec<String>,
) {
    if group != GroupName::List {
        faults.push("[instead] goes with group = \"list\" only".to_owned());
    }
    for missing in key.iter().filter(|k| !instead.columns.iter().any(|(name, _)| name == *k)) {
        faults.push(format!("instead.columns: \"{missing}\" is missing, and is part of the key"));
    }
    for (name, _) in &instead.columns {
        let plain = |c: &&Column| c.name == *name && c.path.len() == 1 && !c.kind.list;
        match columns.iter().find(plain).map(|c| c.kind.scalar) {
            Some(Scalar::Int | Scalar::Text | Scalar::Enum) => {}
            Some(_) => {
                faults.push(format!("instead.columns: \"{name}\" is neither a number nor text"));
            }
            None => faults.push(format!("instead.columns: \"{name}\" is no plain column")),
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
    let mut facets = Vec::new();
    for name in names {
        match Facet::of_field(name) {
            Some(facet) => facets.push(facet),
            None => {
                let known = Facet::ALL.map(|(_, field, _)| field).join(", ");
                faults.push(format!(
                    "refresh: \"{name}\" is neither \"any\" alone nor one of {known}"
                ));
            }
        }
    }
    Refresh::Dates(facets)
}

/// A journal's key is where its lines stand; the calls bring it, not the records.
fn check_journal(
    journal: &Journal,
    read: &Read,
    key: &[String],
    columns: &[Column],
    faults: &mut Vec<String>,
) {
    let mut wanted = JOURNAL_COLUMNS.to_vec();
    if read.answer == Answer::List {
        wanted.push(LINE_NUMBER);
    }
    if key != wanted {
        faults.push(format!("key: that of a journal is {}", wanted.join(", ")));
    }
    for name in wanted {
        if !columns.iter().any(|c| c.name == name && c.origin == Origin::Path) {
            faults.push(format!("column \"{name}\" with from = \"path\" is missing"));
        }
    }
    match &journal.line_key {
        Some(name) if !columns.iter().any(|c| c.name == *name) => {
            faults.push(format!("journal.line_key = \"{name}\" is no column"));
        }
        None if read.answer == Answer::List => {
            faults.push("[journal] is missing: which column is a line's own key?".to_owned());
        }
        Some(_) | None => {}
    }
}

/// The names in braces: `/a/{b}/{c}` has `b` and `c`.
fn placeholders(path: &str) -> Vec<&str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name)).collect()
}
