//! Rules for one table: its name, its key, what its group needs, and that nothing in its file is
//! without effect.

use super::super::{
    Answer, Column, ColumnType, EVENTS, Group, JOURNAL_COLUMNS, Journal, LINE_ID, LINE_NUMBER,
    Method, Origin, Paging, Read, Refresh, Resource, Scalar,
};
use super::column::{is_plain_name, param_names};
use super::placeholders;

const SCHEDULES: [&str; 1] = ["reference"];
/// The tables of the searches: the program knows of itself which ids to ask for.
const SEARCHES: [&str; 3] = ["cases", "projects", "contacts"];
/// Schemas and databases of DuckDB, and the folder of the reports in a snapshot.
const TAKEN: [&str; 8] =
    ["history", "information_schema", "main", "pg_catalog", "report", "sync", "system", "temp"];
/// Tables in which the program works while it writes.
const WORKING: [&str; 16] = [
    "diff",
    "gone",
    "left_months",
    "line_links",
    "line_names",
    "line_pairs",
    "line_versions",
    "new_lines",
    "new_notes",
    "note_pairs",
    "now_pending",
    "old_lines",
    "old_notes",
    "staged_months",
    "stricter",
    "wanted_months",
];
/// Names of such tables begin with this.
const STAGE: &str = "stage_";
/// Query parameters that paging sets.
const PAGED_BY: [&str; 6] = ["$top", "$skip", "$orderby", "$filter", "$count", "$inlinecount"];

pub(super) fn check(resource: &Resource, faults: &mut Vec<String>) {
    name(&resource.table, faults);
    if resource.comment.trim().is_empty() {
        faults.push("comment is empty: it is what readers of the table are told".to_owned());
    }
    key(resource, faults);
    group(resource, faults);
    match (&resource.group, &resource.read) {
        (Group::Child(_), Some(_)) => {
            faults.push("[read]: a child table is read with its parent".to_owned());
        }
        (Group::Child(_) | Group::Events, None) => {}
        (Group::Events, Some(_)) => {
            faults.push("[read]: what webhooks tell is not read by any call".to_owned());
        }
        (_, None) => faults.push("[read] is missing".to_owned()),
        (_, Some(read)) => {
            addresses(resource, read, faults);
            answers(resource, read, faults);
        }
    }
    conditions(resource, faults);
    fallback(resource, faults);
}

fn name(table: &str, faults: &mut Vec<String>) {
    if !is_plain_name(table) {
        faults.push(format!(
            "table = \"{table}\": a name is lower-case letters, digits and _, a letter first"
        ));
    }
    if TAKEN.contains(&table) {
        faults.push(format!("table = \"{table}\" is the name of a schema or folder"));
    }
    if WORKING.contains(&table) || table.starts_with(STAGE) {
        faults
            .push(format!("table = \"{table}\" is a name that the program needs while it writes"));
    }
}

fn key(resource: &Resource, faults: &mut Vec<String>) {
    if resource.key.is_empty() {
        faults.push("key = [] names no column".to_owned());
    }
    for key in &resource.key {
        match resource.column(key) {
            None => faults.push(format!("key: \"{key}\" is no column")),
            Some(c) if c.class.is_some() => {
                faults.push(format!("key: \"{key}\" has a privacy class; a key cannot have one"));
            }
            Some(c) if c.kind.list => faults.push(format!("key: \"{key}\" is a list")),
            Some(_) => {}
        }
    }
    let scope = match &resource.group {
        Group::Case => "case_id",
        Group::ForEach(each) => each.param.as_str(),
        Group::Ids | Group::List | Group::Child(_) | Group::Events | Group::Journal(_) => return,
    };
    if !resource.columns.iter().any(|c| c.name == scope && fills(resource, c)) {
        faults.push(format!(
            "column \"{scope}\" with from = \"path\" is missing: it says to which call a row belongs"
        ));
    } else if !resource.key.iter().any(|key| key == scope) {
        faults.push(format!(
            "key: \"{scope}\" is missing: rows of different calls could not be told apart"
        ));
    }
}

/// How tables of each group come to be read.
fn group(resource: &Resource, faults: &mut Vec<String>) {
    let word = match &resource.group {
        Group::Case => "case",
        Group::Ids => "ids",
        Group::List => "list",
        Group::ForEach(_) => "for_each",
        Group::Child(_) => "child",
        Group::Events => "events",
        Group::Journal(_) => "journal",
    };
    let scheduled = matches!(resource.group, Group::List | Group::ForEach(_));
    match &resource.schedule {
        None if scheduled => faults.push(format!(
            "schedule is missing: group = \"{word}\" is read by schedule = \"{}\" only",
            SCHEDULES[0]
        )),
        Some(_) if !scheduled => faults.push(format!(
            "schedule has no effect on group = \"{word}\"; it goes with \"list\" and \"for_each\""
        )),
        Some(schedule) if !SCHEDULES.contains(&schedule.as_str()) => {
            faults.push(format!("schedule = \"{schedule}\" is none of {}", SCHEDULES.join(", ")));
        }
        Some(_) | None => {}
    }
    let searched = matches!(resource.group, Group::Ids);
    let by_date = match &resource.group {
        Group::Case => true,
        Group::Ids => resource.table != "contacts",
        Group::List | Group::ForEach(_) | Group::Child(_) | Group::Events | Group::Journal(_) => {
            false
        }
    };
    match &resource.refresh {
        Refresh::None if by_date => {
            faults.push("refresh is missing: which change dates make it stale?".to_owned());
        }
        Refresh::Any | Refresh::Dates(_) if !by_date => faults.push(format!(
            "refresh has no effect on {}; it goes with group = \"case\"",
            if searched { "contacts".to_owned() } else { format!("group = \"{word}\"") }
        )),
        Refresh::Dates(_) if searched => faults.push(format!(
            "refresh: a row of {} is stale with each of the dates: [\"any\"]",
            resource.table
        )),
        Refresh::None | Refresh::Any | Refresh::Dates(_) => {}
    }
    if (resource.group == Group::Events) != (resource.table == EVENTS) {
        faults.push(format!(
            "group = \"{word}\": webhooks fill the table {EVENTS}, with group = \"events\", and no other"
        ));
    }
    if searched != SEARCHES.contains(&resource.table.as_str()) {
        faults.push(format!(
            "group = \"{word}\": {} are read with group = \"ids\", and no other table is; one call per \
             case is group = \"case\", one per row of another table group = \"for_each\", a whole list \
             group = \"list\", a list inside another table's records group = \"child\"",
            SEARCHES.join(", ")
        ));
    }
    if let Group::Journal(journal) = &resource.group {
        self::journal(resource, journal, faults);
    }
}

/// Whether a column holds a parameter of its row's call. Where a list of the source names the scopes,
/// a record says itself to which it belongs.
fn fills(resource: &Resource, column: &Column) -> bool {
    let is_own = || match &resource.group {
        Group::ForEach(each) => {
            each.list.is_some()
                && each.param == column.name
                && column.origin == Origin::Field
                && column.kind == ColumnType { scalar: Scalar::Int, list: false }
        }
        _ => false,
    };
    column.origin == Origin::Path || is_own()
}

/// A journal's key is whose line it is and the name that the mirror gives it; the calls bring that, not
/// the records.
fn journal(resource: &Resource, journal: &Journal, faults: &mut Vec<String>) {
    let lines = resource.read.as_ref().is_some_and(|read| read.answer == Answer::List);
    let mut wanted = JOURNAL_COLUMNS.to_vec();
    if lines {
        wanted.push(LINE_ID);
    }
    if resource.key != wanted {
        faults.push(format!("key: that of a journal is {}", wanted.join(", ")));
    }
    if lines {
        wanted.push(LINE_NUMBER);
    }
    for name in wanted {
        if !resource.columns.iter().any(|c| c.name == name && c.origin == Origin::Path) {
            faults.push(format!("column \"{name}\" with from = \"path\" is missing"));
        }
    }
    match &journal.line_key {
        Some(name) if resource.column(name).is_none() => {
            faults.push(format!("journal.line_key = \"{name}\" is no column"));
        }
        Some(_) if !lines => {
            faults.push(
                "[journal] has no effect: an answer without lines has no key of them".to_owned(),
            );
        }
        None if lines => {
            faults.push("[journal] is missing: which column is a line's own key?".to_owned());
        }
        Some(_) | None => {}
    }
}

/// Every placeholder is filled, and every parameter has its column.
fn addresses(resource: &Resource, read: &Read, faults: &mut Vec<String>) {
    let fallback = read.fallback.as_ref().map(|f| ("read.fallback.path", &f.path));
    let known = param_names(resource);
    for (key, path) in std::iter::once(("read.path", &read.path)).chain(fallback) {
        if !path.starts_with('/') {
            faults.push(format!("{key} = \"{path}\" does not start with /"));
        }
        if let Some(sign) = path.chars().find(|c| matches!(c, '?' | '#' | '%')) {
            let right = match sign {
                '?' => "parameters stand in [read.query]",
                '#' => "the service never sees what follows it",
                _ => "it is written as it is, and encoded when it is sent",
            };
            faults.push(format!("{key} = \"{path}\" has a {sign}: {right}"));
        }
        for name in placeholders(path) {
            if !known.contains(&name) {
                faults.push(format!("{key}: nothing fills {{{name}}}"));
            }
            if !resource.columns.iter().any(|c| c.name == name && fills(resource, c)) {
                faults.push(format!(
                    "{key}: {{{name}}} needs a column of that name with from = \"path\""
                ));
            }
        }
    }
    let in_path = placeholders(&read.path);
    if let Some((name, values)) = &read.values {
        if values.is_empty() {
            faults.push(format!("read.values.{name} = [] is empty: no call would be made"));
        }
        if !in_path.contains(&name.as_str()) {
            faults.push(format!("read.values.{name}: {{{name}}} is not in read.path"));
        }
        if matches!(resource.group, Group::Ids | Group::Journal(_)) || read.windows.is_some() {
            faults.push("read.values has no effect on searches, journals and windows".to_owned());
        }
    }
    if let Some(given) = resource.lookup.as_ref().filter(|g| !in_path.contains(&g.param.as_str())) {
        faults.push(format!("lookup.param = \"{0}\": {{{0}}} is not in read.path", given.param));
    }
    if let Group::ForEach(each) = &resource.group
        && !in_path.contains(&each.param.as_str())
    {
        faults.push(format!("for_each.param = \"{0}\": {{{0}}} is not in read.path", each.param));
    }
    if let Group::Case = resource.group
        && !in_path.contains(&"case_id")
        && resource.lookup.is_none()
    {
        faults.push(
            "read.path: {case_id} is missing: every case would have the same call".to_owned(),
        );
    }
    match &read.by_id {
        Some(_) if resource.table != "contacts" => faults.push(
            "read.by_id has no effect: only contacts are read one by one where the search lacks them"
                .to_owned(),
        ),
        Some(path) if !path.starts_with('/') || placeholders(path) != ["id"] => {
            faults.push(format!("read.by_id = \"{path}\" is a path with the one placeholder {{id}}"));
        }
        Some(_) | None => {}
    }
}

/// The shape of the answers, and how long ones are paged.
fn answers(resource: &Resource, read: &Read, faults: &mut Vec<String>) {
    let list = read.answer == Answer::List;
    if read.fallback.is_some() && !list {
        faults.push("read.fallback goes with answer = \"list\" only".to_owned());
    }
    if !read.optional_query.is_empty() && (!list || read.windows.is_some()) {
        let text =
            "read.optional_query goes with answer = \"list\" only, and not with [read.windows]";
        faults.push(text.to_owned());
    }
    match (&resource.group, read.answer) {
        (Group::Ids, Answer::Record | Answer::Scalar) => {
            faults.push("read.answer: a search answers with a \"list\"".to_owned());
        }
        (Group::Journal(_), Answer::Scalar) => {
            faults.push("read.answer: a journal's month is a \"list\" or a \"record\"".to_owned());
        }
        _ => {}
    }
    match read.paging {
        Paging::Odata if !list || matches!(resource.group, Group::Journal(_)) => faults.push(
            "read.paging = \"odata\" goes with answer = \"list\", and not with journals".to_owned(),
        ),
        Paging::Odata if read.order.is_none() => {
            faults.push("read.order is missing: OData pages need an order".to_owned());
        }
        Paging::Windows | Paging::None if read.order.is_some() => {
            faults.push("read.order has no effect without paging = \"odata\"".to_owned());
        }
        Paging::Odata | Paging::Windows | Paging::None => {}
    }
    if read.windows.is_some() {
        if resource.group != Group::List || !list || read.method != Method::Post {
            faults.push(
                "[read.windows] goes with group = \"list\", method = \"POST\" and answer = \"list\" only"
                    .to_owned(),
            );
        }
        if read.fallback.is_some() || !placeholders(&read.path).is_empty() {
            faults.push(
                "[read.windows]: neither a fallback nor a placeholder has an effect".to_owned(),
            );
        }
    }
    let fallback = read.fallback.iter().flat_map(|f| &f.query);
    for (name, _) in read.query.iter().chain(&read.optional_query).chain(fallback) {
        if PAGED_BY.contains(&name.to_lowercase().as_str()) {
            faults.push(format!("read.query: {name} is set by paging, and not by the file"));
        }
    }
}

/// What narrows a table down, or keeps rows in it.
fn conditions(resource: &Resource, faults: &mut Vec<String>) {
    let of_case = matches!(resource.group, Group::Case);
    if let Some(only) = &resource.condition {
        if !of_case {
            faults.push("[condition] goes with group = \"case\" only".to_owned());
        }
        if only.values.is_empty() {
            faults.push("condition.values = [] is empty: no case would be asked".to_owned());
        }
    }
    if let Some(given) = &resource.lookup {
        if !of_case {
            faults.push("[lookup] goes with group = \"case\" only".to_owned());
        }
        if given.tables.is_empty() {
            faults.push("lookup.tables = [] is empty: no case would be asked".to_owned());
        }
        if given.param == "case_id" {
            faults.push("lookup.param = \"case_id\": that one is there already".to_owned());
        }
    }
    // Rows of these are not compared scope by scope.
    let merged = !matches!(resource.group, Group::Ids | Group::Journal(_));
    if let Some(partial) = &resource.partial {
        if !merged {
            faults.push("[partial] has no effect on searches and journals".to_owned());
        }
        if partial.values.is_empty() || partial.permission.trim().is_empty() {
            faults.push("[partial] needs a permission and the values that it shows".to_owned());
        }
        match resource.column(&partial.column) {
            None => faults.push(format!("partial.column: \"{}\" is no column", partial.column)),
            Some(c) if !is_open_text(c) => faults.push(format!(
                "partial.column: \"{}\" is not string or enum without a privacy class",
                c.name
            )),
            Some(_) => {}
        }
    }
    if let Some(person) = &resource.person {
        match resource.column(&person.id) {
            None => faults.push(format!("person.id: \"{}\" is no column", person.id)),
            Some(c) if c.kind.scalar != Scalar::Int || c.kind.list => {
                faults.push(format!("person.id: \"{}\" is no int", c.name));
            }
            Some(_) => {}
        }
        for name in &person.known_by {
            if !resource.column(name).is_some_and(|c| resource.is_free_text(c)) {
                faults.push(format!("person.known_by: \"{name}\" is no column of type string"));
            }
        }
        for name in &person.also {
            let is_one = |c: &Column| !resource.is_free_text(c) && !resource.key.contains(&c.name);
            if *name == person.id || !resource.column(name).is_some_and(is_one) {
                faults.push(format!(
                    "person.also: \"{name}\" is no column beside the key and those of type string"
                ));
            }
        }
    }
    if resource.at_most.is_some() && (resource.stays_after.is_none() || resource.at_most == Some(0))
    {
        faults.push("at_most is a number from 1 and goes with stays_after only".to_owned());
    }
    if let Some(name) = &resource.stays_after {
        let instant = |c: &Column| c.kind.scalar == Scalar::Instant && !c.kind.list;
        if !resource.column(name).is_some_and(instant) {
            faults.push(format!("stays_after = \"{name}\" is no column of type datetime"));
        }
        if !merged {
            faults.push("stays_after has no effect on searches and journals".to_owned());
        }
    }
}

/// Whether a column holds texts that can be compared with those of a file.
pub(super) fn is_open_text(column: &Column) -> bool {
    matches!(column.kind.scalar, Scalar::Text | Scalar::Enum)
        && !column.kind.list
        && column.class.is_none()
}

/// Whether rows of another table can stand for those of a list.
fn fallback(resource: &Resource, faults: &mut Vec<String>) {
    let Some(instead) = &resource.fallback else { return };
    if resource.group != Group::List {
        faults.push("[fallback] goes with group = \"list\" only".to_owned());
    }
    for missing in resource.key.iter().filter(|k| !instead.columns.iter().any(|(n, _)| n == *k)) {
        faults.push(format!("fallback.columns: \"{missing}\" is missing, and is part of the key"));
    }
    for (name, _) in &instead.columns {
        let plain = |c: &&Column| {
            c.name == *name && c.path.len() == 1 && !c.kind.list && c.origin == Origin::Field
        };
        match resource.columns.iter().find(plain).map(|c| c.kind.scalar) {
            Some(Scalar::Int | Scalar::Text | Scalar::Enum) => {}
            Some(_) => {
                faults.push(format!("fallback.columns: \"{name}\" is neither a number nor text"));
            }
            None => faults.push(format!("fallback.columns: \"{name}\" is no plain column")),
        }
    }
}
