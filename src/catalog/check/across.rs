//! Rules between tables: what one says of another is there, and can be used so.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{
    Child, Column, Condition, Fallback, ForEach, Group, JOURNAL_COLUMNS, LINE_ID, LINE_NUMBER,
    Lookup, Origin, Resource, Scalar,
};
use super::table::is_open_text;

/// A resource with the place of its file.
type Placed = (String, Resource);

/// What is wrong between tables; each fault begins with the file that it is to be mended in.
pub(in crate::catalog) fn across(resources: &[Placed], faults: &mut Vec<String>) {
    let mut seen = BTreeMap::new();
    for (place, r) in resources {
        if let Some(other) = seen.insert(r.table.to_lowercase(), place) {
            faults.push(format!(
                "{place}: table \"{}\" is already in {other}; a changed copy of a built-in file has \
                 its name",
                r.table
            ));
        }
    }
    let rules = Rules { resources };
    for (place, resource) in resources {
        let mut own = Vec::new();
        rules.check(resource, &mut own);
        faults.extend(own.into_iter().map(|fault| format!("{place}: {fault}")));
    }
}

struct Rules<'r> {
    resources: &'r [Placed],
}

impl<'r> Rules<'r> {
    fn find(&self, table: &str) -> Option<&'r Resource> {
        self.resources.iter().map(|(_, r)| r).find(|r| r.table == table)
    }

    /// The other table, or the fault that there is none.
    fn table(&self, what: &str, table: &str, faults: &mut Vec<String>) -> Option<&'r Resource> {
        let found = self.find(table);
        if found.is_none() {
            faults.push(format!("{what}.table = \"{table}\" is no table"));
        }
        found
    }

    fn check(&self, resource: &Resource, faults: &mut Vec<String>) {
        if let Some(model) = &resource.model
            && (*model == resource.table || self.find(model).is_none())
        {
            faults.push(format!("model = \"{model}\" is no other table"));
        }
        if let Some(only) = &resource.condition {
            self.condition(only, faults);
        }
        if let Some(given) = &resource.lookup {
            self.lookup(given, faults);
        }
        if let Some(instead) = &resource.fallback {
            self.fallback(resource, instead, faults);
        }
        match &resource.group {
            Group::ForEach(each) => self.for_each(each, faults),
            Group::Child(child) => self.child(resource, child, faults),
            Group::Case | Group::Ids | Group::List | Group::Events | Group::Journal(_) => {}
        }
        if self.needs_itself(resource) {
            faults.push(format!(
                "[for_each], [fallback], [condition] and [lookup] lead back to \"{}\"",
                resource.table
            ));
        }
    }

    fn condition(&self, only: &Condition, faults: &mut Vec<String>) {
        let Some(other) = self.table("condition", &only.table, faults) else { return };
        if !has_row_of_case(other) {
            faults.push(format!("condition.table: {}", NO_ROW_OF_CASE.replace("{}", &only.table)));
        }
        let Some(column) = column_of("condition", other, &only.column, faults) else { return };
        match column.kind.scalar {
            Scalar::Text | Scalar::Enum if is_open_text(column) => {}
            Scalar::Bool | Scalar::Int if !column.kind.list => {
                let fits = |value: &&String| match column.kind.scalar {
                    Scalar::Bool => matches!(value.as_str(), "true" | "false"),
                    _ => value.parse::<i64>().is_ok_and(|n| n.to_string() == **value),
                };
                for value in only.values.iter().filter(|value| !fits(value)) {
                    faults.push(format!(
                        "condition.values: \"{value}\" is no {} as {}.{} has them",
                        column.kind.name(),
                        other.table,
                        column.name
                    ));
                }
            }
            _ => faults.push(format!(
                "condition.column: {}.{} is not string, enum, bool or int, without a privacy class",
                other.table, column.name
            )),
        }
    }

    fn lookup(&self, given: &Lookup, faults: &mut Vec<String>) {
        for (table, _) in &given.tables {
            let Some(other) = self.table("lookup", table, faults) else { continue };
            if !has_row_of_case(other) {
                faults.push(format!("lookup.tables: {}", NO_ROW_OF_CASE.replace("{}", table)));
            }
            let Some(column) = column_of("lookup", other, &given.column, faults) else { continue };
            let guid = column.kind.scalar == Scalar::Guid && !column.kind.list;
            if !guid && !is_open_text(column) {
                faults.push(format!(
                    "lookup.column: {}.{} is not guid, string or enum, without a privacy class",
                    other.table, column.name
                ));
            }
        }
    }

    fn fallback(&self, resource: &Resource, instead: &Fallback, faults: &mut Vec<String>) {
        let Some(other) = self.table("fallback", &instead.table, faults) else { return };
        if !matches!(other.group, Group::List | Group::ForEach(_)) {
            faults.push(format!(
                "fallback.table: {} is not read by schedule, as group = \"list\" and \"for_each\" are",
                other.table
            ));
        }
        let kind = |c: &Column| match c.kind.scalar {
            _ if c.kind.list || c.class.is_some() => None,
            Scalar::Int => Some("int"),
            Scalar::Text | Scalar::Enum => Some("string"),
            _ => None,
        };
        for (name, from) in &instead.columns {
            let Some(source) = column_of("fallback", other, from, faults) else { continue };
            if let Some(own) = resource.column(name)
                && kind(own).is_some()
                && kind(own) != kind(source)
            {
                faults.push(format!(
                    "fallback.columns: {}.{from} is {}, and cannot fill \"{name}\"",
                    other.table,
                    source.kind.name()
                ));
            }
        }
    }

    fn for_each(&self, each: &ForEach, faults: &mut Vec<String>) {
        let Some(other) = self.table("for_each", &each.table, faults) else { return };
        let Some(column) = column_of("for_each", other, &each.column, faults) else { return };
        if column.kind.scalar != Scalar::Int || column.kind.list {
            faults.push(format!("for_each.column: {}.{} is not int", other.table, column.name));
        }
    }

    fn child(&self, resource: &Resource, child: &Child, faults: &mut Vec<String>) {
        let Some(parent) = self.table("child", &child.table, faults) else { return };
        if matches!(parent.group, Group::Child(_)) {
            faults.push(format!(
                "child.table: {} is a child table itself, whose lists are not read",
                parent.table
            ));
        }
        self.child_field(resource, child, parent, faults);
        for column in resource.columns.iter().filter(|c| c.origin == Origin::Parent) {
            let Some(name) = column.path.first() else { continue };
            let Some(source) = column_of("child", parent, name, faults) else { continue };
            if source.kind != column.kind || source.class != column.class {
                faults.push(format!(
                    "column \"{}\": type and class are those of {}.{name}: {}, {}",
                    column.name,
                    parent.table,
                    source.kind.name(),
                    source.class.map_or("no class".to_owned(), |class| format!("{class:?}")),
                ));
            }
            let carried = matches!(
                column.kind.scalar,
                Scalar::Int | Scalar::Text | Scalar::Enum | Scalar::Guid | Scalar::Date
            ) && !column.kind.list;
            if !carried {
                faults.push(format!(
                    "column \"{}\": from = \"parent\" goes with int, string, enum and guid",
                    column.name
                ));
            }
        }
        self.child_key(resource, parent, faults);
    }

    /// The list is in one table, and in nothing else.
    fn child_field(
        &self,
        resource: &Resource,
        child: &Child,
        parent: &Resource,
        faults: &mut Vec<String>,
    ) {
        let field = &child.field;
        if field.contains('.') || field.is_empty() {
            faults.push(format!("child.field = \"{field}\" is no field of a record's own"));
        }
        for column in &parent.columns {
            let takes = matches!(column.origin, Origin::Field | Origin::Path);
            if takes && column.path.first() == Some(field) {
                faults.push(format!(
                    "child.field = \"{field}\": column \"{}\" of {} takes it; only one can",
                    column.name, parent.table
                ));
            }
        }
        if parent.leave_out.contains(field) {
            faults.push(format!(
                "child.field = \"{field}\": leave_out of {} has it; a changed copy of that file must not",
                parent.table
            ));
        }
        let others = self.resources.iter().map(|(_, r)| r).filter(|r| r.table != resource.table);
        for other in others {
            let Group::Child(theirs) = &other.group else { continue };
            if theirs.table != parent.table {
                continue;
            }
            if theirs.field == *field {
                faults.push(format!(
                    "child.field = \"{field}\": {} takes it already; only one can",
                    other.table
                ));
            } else if matches!(parent.group, Group::Journal(_)) {
                faults.push(format!(
                    "child.table: {} is a journal and has the child table {}; it can have only one",
                    parent.table, other.table
                ));
            }
        }
    }

    /// A child's rows belong to a row of the parent, and through it to a call.
    fn child_key(&self, resource: &Resource, parent: &Resource, faults: &mut Vec<String>) {
        let repeated = |name: &str| {
            let is = |c: &&Column| c.origin == Origin::Parent && c.path == [name.to_owned()];
            resource.columns.iter().find(is)
        };
        if let Group::Journal(journal) = &parent.group {
            let position = resource.columns.iter().find(|c| c.origin == Origin::Position);
            let wanted: Vec<&str> = JOURNAL_COLUMNS
                .into_iter()
                .chain([LINE_ID])
                .chain(position.map(|c| c.name.as_str()))
                .collect();
            let right = position.is_some() && resource.key == wanted && journal.line_key.is_some();
            let mut of_line = wanted.iter().take(4).chain([&LINE_NUMBER]);
            if !right || !of_line.all(|name| repeated(name).is_some_and(|c| c.name == *name)) {
                faults.push(format!(
                    "key: that of a journal's child is {}, {LINE_ID}, each from = \"parent\", and a \
                     column with from = \"position\"; {LINE_NUMBER}, from = \"parent\", stands beside it",
                    JOURNAL_COLUMNS.join(", ")
                ));
            }
            return;
        }
        let Some(scope) = parent.scope_column() else { return };
        let name = match parent.table.as_str() {
            "cases" | "projects" => Some("case_id"),
            "contacts" => None,
            _ => Some(scope),
        };
        match repeated(scope) {
            Some(c) if resource.key.contains(&c.name) && name.is_none_or(|name| c.name == name) => {}
            _ => faults.push(format!(
                "key: a column {}with from = \"parent\" and field = \"{scope}\" is missing: it says to \
                 which call a row belongs",
                name.map_or(String::new(), |name| format!("\"{name}\" "))
            )),
        }
    }

    /// Whether what a table is read per row of, may be taken from or looks at needs that table first.
    fn needs_itself(&self, resource: &'r Resource) -> bool {
        let mut met = BTreeSet::new();
        let mut next = needs(resource);
        while let Some(table) = next.pop() {
            if table == resource.table {
                return true;
            }
            if met.insert(table)
                && let Some(other) = self.find(table)
            {
                next.extend(needs(other));
            }
        }
        false
    }
}

/// The tables that have to be read before a table's own scopes are known.
fn needs(resource: &Resource) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    match &resource.group {
        Group::ForEach(each) if each.list.is_none() => all.push(&each.table),
        Group::ForEach(_) => {}
        Group::List
        | Group::Case
        | Group::Ids
        | Group::Child(_)
        | Group::Events
        | Group::Journal(_) => {
            all.extend(resource.fallback.iter().map(|instead| instead.table.as_str()));
        }
    }
    all.extend(resource.condition.iter().map(|only| only.table.as_str()));
    let given = resource.lookup.iter().flat_map(|given| &given.tables);
    all.extend(given.map(|(table, _)| table.as_str()));
    all
}

const NO_ROW_OF_CASE: &str = "{} has not one row per case, as cases, projects and tables of \
                              group = \"case\" with the key case_id have";

/// Whether a table has one row for a case, found by the case's id.
fn has_row_of_case(resource: &Resource) -> bool {
    match resource.group {
        Group::Ids => resource.table != "contacts",
        Group::Case => resource.key == ["case_id"],
        Group::List | Group::ForEach(_) | Group::Child(_) | Group::Events | Group::Journal(_) => {
            false
        }
    }
}

fn column_of<'r>(
    what: &str,
    other: &'r Resource,
    name: &str,
    faults: &mut Vec<String>,
) -> Option<&'r Column> {
    let column = other.column(name);
    if column.is_none() {
        faults.push(format!("{what}: \"{name}\" is no column of {}", other.table));
    }
    column
}
