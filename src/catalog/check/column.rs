//! Rules for the columns of one table: names, types, and that each can ever be filled.

use std::collections::BTreeSet;

use heck::ToSnakeCase;

use super::super::file::{ClassName, ColumnFile, CutName, FromName};
use super::super::{
    Answer, Class, Column, ColumnType, Cut, Group, JOURNAL_COLUMNS, LINE_ID, LINE_NUMBER, Origin,
    Resource, Scalar,
};

/// Whether a text can be the name of a table or column everywhere: in SQL, as a folder, as a field of
/// Parquet.
pub(super) fn is_plain_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

impl ColumnFile {
    pub(super) fn check(self, faults: &mut Vec<String>) -> Option<Column> {
        let path: Vec<String> =
            self.field.iter().flat_map(|f| f.split('.')).map(str::to_owned).collect();
        let Some(name) =
            self.name.or_else(|| (!path.is_empty()).then(|| path.join(" ").to_snake_case()))
        else {
            faults.push("a column has neither name nor field".to_owned());
            return None;
        };
        if !is_plain_name(&name) {
            faults.push(format!(
                "column \"{name}\": a name is lower-case letters, digits and _, a letter first"
            ));
        }
        if name == "rowid" {
            faults.push(
                "column \"rowid\": DuckDB calls its own row numbers so; give it another name"
                    .to_owned(),
            );
        }
        if path.iter().any(String::is_empty) {
            faults.push(format!("column \"{name}\": field has an empty part"));
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

/// Whether a column takes a field of the record: one from the path stands for the record's own too.
fn takes_field(column: &Column) -> bool {
    matches!(column.origin, Origin::Field | Origin::Path) && !column.path.is_empty()
}

/// The rules between the columns of a table, and between them and the rest of its file.
pub(super) fn check(resource: &Resource, faults: &mut Vec<String>) {
    let columns = &resource.columns;
    let mut names = BTreeSet::new();
    for c in columns {
        if !names.insert(c.name.as_str()) {
            faults.push(format!("column \"{}\" is there twice", c.name));
        }
        if resource.key.contains(&c.name) && c.volatile {
            faults.push(format!("column \"{}\": volatile has no effect on a key", c.name));
        }
    }
    one_field_one_column(columns, faults);
    left_out(resource, faults);
    for c in columns {
        let fault = |why: &str| format!("column \"{}\": {why}", c.name);
        match c.origin {
            Origin::Field => {
                if c.kind.scalar == Scalar::Date {
                    faults.push(fault(
                        "type = \"date\" is for the month of a journal; right for a field is datetime",
                    ));
                }
            }
            Origin::Path => from_path(resource, c, faults),
            Origin::Scalar => {
                if resource.read.as_ref().is_some_and(|read| read.answer == Answer::Record) {
                    faults.push(fault(
                        "from = \"scalar\" takes a bare value, and read.answer is \"record\"",
                    ));
                }
            }
            Origin::Position => from_position(resource, c, faults),
            Origin::Parent => {
                if !matches!(resource.group, Group::Child(_)) {
                    faults.push(fault("from = \"parent\" goes with group = \"child\" only"));
                }
            }
        }
        let given = matches!(c.origin, Origin::Path | Origin::Position);
        if given && (c.class.is_some() || c.cut.is_some()) {
            faults.push(fault("class and cut go with fields of the record only"));
        }
    }
    for (origin, word) in [(Origin::Scalar, "scalar"), (Origin::Position, "position")] {
        let of_origin: Vec<&str> =
            columns.iter().filter(|c| c.origin == origin).map(|c| c.name.as_str()).collect();
        if of_origin.len() > 1 {
            faults.push(format!(
                "columns \"{}\": only one can have from = \"{word}\"",
                of_origin.join("\", \"")
            ));
        }
    }
    bare_values(resource, faults);
}

/// A value goes to one column: a second one on the same field, or on an object of which another takes
/// a part, would stay NULL.
fn one_field_one_column(columns: &[Column], faults: &mut Vec<String>) {
    let taking: Vec<&Column> = columns.iter().filter(|c| takes_field(c)).collect();
    for (n, first) in taking.iter().enumerate() {
        for second in &taking[n + 1..] {
            let (one, other) = (first.path.join("."), second.path.join("."));
            if first.path == second.path {
                faults.push(format!(
                    "columns \"{}\" and \"{}\" both take field {one}: only one can",
                    first.name, second.name
                ));
            } else if first.path.starts_with(&second.path) || second.path.starts_with(&first.path) {
                faults.push(format!(
                    "columns \"{}\" (field {one}) and \"{}\" (field {other}): one takes an object \
                     whole and the other a part of it; only one can",
                    first.name, second.name
                ));
            }
        }
    }
}

fn left_out(resource: &Resource, faults: &mut Vec<String>) {
    let mut met = BTreeSet::new();
    for field in &resource.leave_out {
        if field.contains('.') {
            faults.push(format!(
                "leave_out: \"{field}\" is a part of an object; right is the object's own name, and \
                 columns for the parts to keep"
            ));
        }
        if !met.insert(field) {
            faults.push(format!("leave_out: \"{field}\" is there twice"));
        }
        let taken = |c: &&Column| c.origin == Origin::Field && c.path == [field.clone()];
        if let Some(column) = resource.columns.iter().find(taken) {
            faults.push(format!(
                "leave_out: \"{field}\" is what column \"{}\" takes; it can be only one of both",
                column.name
            ));
        }
    }
}

/// The parameters of a table's calls, each with the types that its column can have.
fn params(resource: &Resource) -> Vec<(&str, &'static [Scalar])> {
    const INT: &[Scalar] = &[Scalar::Int];
    const TEXT: &[Scalar] = &[Scalar::Text, Scalar::Enum];
    let mut all: Vec<(&str, &'static [Scalar])> = Vec::new();
    match &resource.group {
        Group::Case => all.push(("case_id", INT)),
        Group::ForEach(each) => all.push((each.param.as_str(), INT)),
        Group::Journal(_) => {
            let kinds = [TEXT, INT, &[Scalar::Date]];
            all.extend(JOURNAL_COLUMNS.into_iter().zip(kinds));
            all.extend([(LINE_ID, INT), (LINE_NUMBER, INT)]);
        }
        Group::Ids | Group::List | Group::Child(_) | Group::Events => {}
    }
    let given = resource.lookup.iter();
    all.extend(given.map(|g| (g.param.as_str(), &[Scalar::Text, Scalar::Enum, Scalar::Guid][..])));
    let values = resource.read.iter().filter_map(|read| read.values.as_ref());
    all.extend(values.map(|(name, _)| (name.as_str(), TEXT)));
    all
}

/// The names of the parameters of a table's calls.
pub(super) fn param_names(resource: &Resource) -> Vec<&str> {
    params(resource).into_iter().map(|(name, _)| name).collect()
}

fn from_path(resource: &Resource, column: &Column, faults: &mut Vec<String>) {
    let params = params(resource);
    let name = &column.name;
    match params.iter().find(|(param, _)| param == name) {
        None => {
            let known: Vec<String> = params.iter().map(|(p, _)| format!("{{{p}}}")).collect();
            let known = match known.len() {
                0 => "its calls have none".to_owned(),
                _ => format!("its calls have {}", known.join(", ")),
            };
            faults.push(format!(
                "column \"{name}\": from = \"path\" names a parameter of the call; {known}"
            ));
        }
        Some((_, kinds)) if column.kind.list || !kinds.contains(&column.kind.scalar) => {
            let right: Vec<&str> = Scalar::NAMES
                .iter()
                .filter(|(_, kind)| kinds.contains(kind))
                .map(|(name, _)| *name)
                .collect();
            faults.push(format!(
                "column \"{name}\": this parameter is {}, not {}",
                right.join(" or "),
                column.kind.name()
            ));
        }
        Some(_) => {}
    }
}

fn from_position(resource: &Resource, column: &Column, faults: &mut Vec<String>) {
    let name = &column.name;
    if column.kind != (ColumnType { scalar: Scalar::Int, list: false }) {
        faults.push(format!("column \"{name}\": from = \"position\" is int"));
    }
    if matches!(resource.group, Group::Journal(_)) {
        faults.push(format!(
            "column \"{name}\": the place of a journal's line is {LINE_NUMBER}, with from = \"path\""
        ));
    } else if !matches!(resource.group, Group::Child(_)) && !resource.key.contains(name) {
        faults.push(format!(
            "column \"{name}\": from = \"position\" completes a key, and is not in it"
        ));
    }
}

/// Where answers, or elements of a child's list, are bare values.
fn bare_values(resource: &Resource, faults: &mut Vec<String>) {
    let scalar = resource.columns.iter().find(|c| c.origin == Origin::Scalar);
    if resource.read.as_ref().is_some_and(|read| read.answer == Answer::Scalar) {
        if scalar.is_none() {
            faults.push(
                "read.answer = \"scalar\" needs a column with from = \"scalar\" that takes the value"
                    .to_owned(),
            );
        }
        for column in resource.columns.iter().filter(|c| c.origin == Origin::Field) {
            faults.push(format!(
                "column \"{}\": a bare value (read.answer = \"scalar\") has no fields",
                column.name
            ));
        }
    }
    if let Group::Child(child) = &resource.group
        && let Some(name) = &child.scalar
    {
        match resource.column(name) {
            None => faults.push(format!("child.scalar = \"{name}\" is no column")),
            Some(c) if !matches!(c.origin, Origin::Field | Origin::Scalar) => faults
                .push(format!("child.scalar = \"{name}\": the column is filled from elsewhere")),
            Some(_) if scalar.is_some_and(|c| c.name != *name) => faults.push(format!(
                "child.scalar = \"{name}\": another column has from = \"scalar\" already"
            )),
            Some(_) => {}
        }
    }
}
