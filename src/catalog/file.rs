//! The shape of a resource file, as it is written.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) table: String,
    pub(super) comment: String,
    pub(super) key: Vec<String>,
    #[serde(default)]
    pub(super) permissions: Vec<String>,
    pub(super) group: GroupName,
    #[serde(default)]
    pub(super) refresh: Vec<String>,
    pub(super) schedule: Option<String>,
    pub(super) read: Option<ReadFile>,
    pub(super) condition: Option<ConditionFile>,
    pub(super) lookup: Option<LookupFile>,
    pub(super) stays_after: Option<String>,
    pub(super) at_most: Option<u32>,
    pub(super) partial: Option<PartialFile>,
    pub(super) person: Option<PersonFile>,
    pub(super) fallback: Option<FallbackFile>,
    pub(super) for_each: Option<ForEachFile>,
    pub(super) child: Option<ChildFile>,
    pub(super) journal: Option<JournalFile>,
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) leave_out: Vec<String>,
    pub(super) column: Vec<ColumnFile>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum GroupName {
    Case,
    Ids,
    List,
    ForEach,
    Child,
    Events,
    Journal,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadFile {
    pub(super) method: MethodName,
    pub(super) path: String,
    #[serde(default)]
    pub(super) query: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) optional_query: BTreeMap<String, String>,
    pub(super) answer: AnswerName,
    #[serde(default)]
    pub(super) paging: PagingName,
    pub(super) order: Option<String>,
    #[serde(default)]
    pub(super) values: BTreeMap<String, Vec<String>>,
    pub(super) by_id: Option<String>,
    pub(super) fallback: Option<AddressFile>,
    pub(super) windows: Option<WindowsFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WindowsFile {
    pub(super) since: String,
    pub(super) start: String,
    pub(super) end: String,
    pub(super) offset: String,
    pub(super) limit: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AddressFile {
    pub(super) path: String,
    #[serde(default)]
    pub(super) query: BTreeMap<String, String>,
}

#[derive(Deserialize, Clone, Copy, Debug)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum MethodName {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum AnswerName {
    List,
    Record,
    Scalar,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "lowercase")]
pub(super) enum PagingName {
    Odata,
    Windows,
    #[default]
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConditionFile {
    pub(super) table: String,
    pub(super) column: String,
    pub(super) values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartialFile {
    pub(super) permission: String,
    pub(super) column: String,
    pub(super) values: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PersonFile {
    pub(super) id: String,
    pub(super) known_by: Vec<String>,
    #[serde(default)]
    pub(super) also: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LookupFile {
    pub(super) param: String,
    pub(super) tables: Vec<String>,
    pub(super) column: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FallbackFile {
    pub(super) table: String,
    pub(super) columns: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForEachFile {
    pub(super) table: Option<String>,
    pub(super) list: Option<String>,
    pub(super) column: String,
    pub(super) param: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChildFile {
    pub(super) table: String,
    pub(super) field: String,
    pub(super) scalar: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalFile {
    pub(super) line_key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ColumnFile {
    pub(super) name: Option<String>,
    pub(super) field: Option<String>,
    pub(super) from: Option<FromName>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) comment: String,
    pub(super) class: Option<ClassName>,
    pub(super) cut: Option<CutName>,
    #[serde(default)]
    pub(super) volatile: bool,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(super) enum CutName {
    AfterHost,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum FromName {
    Path,
    Scalar,
    Position,
    Parent,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
pub(super) enum ClassName {
    Identifier,
    ContactDetail,
}
