//! A table: what is read, how scopes are made, when it goes stale.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};

use super::column::{Class, Column, Origin, Scalar};
use super::ddl::EXTRA_COLUMN;
use super::names::is_of_no_person;

/// The eleven change dates of a case, in the order of reference 2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum ChangeDate {
    Modified,
    CaseActivated,
    CaseSold,
    BidChanged,
    DescriptionChanged,
    CaseEntityChanged,
    ImageChanged,
    AttachmentChanged,
    TransactionChanged,
    PublicationChanged,
    ActivityChanged,
}

impl ChangeDate {
    /// All of them with the API's field and our column.
    pub(crate) const ALL: [(ChangeDate, &'static str, &'static str); 11] = [
        (ChangeDate::Modified, "ModifiedDate", "modified_date"),
        (ChangeDate::CaseActivated, "CaseActivatedDate", "case_activated_date"),
        (ChangeDate::CaseSold, "CaseSoldDate", "case_sold_date"),
        (ChangeDate::BidChanged, "BidChangedDate", "bid_changed_date"),
        (ChangeDate::DescriptionChanged, "DescriptionChangedDate", "description_changed_date"),
        (ChangeDate::CaseEntityChanged, "CaseEntityChangedDate", "case_entity_changed_date"),
        (ChangeDate::ImageChanged, "ImageChangedDate", "image_changed_date"),
        (ChangeDate::AttachmentChanged, "AttachmentChangedDate", "attachment_changed_date"),
        (ChangeDate::TransactionChanged, "TransactionChangedDate", "transaction_changed_date"),
        (ChangeDate::PublicationChanged, "PublicationChangedDate", "publication_changed_date"),
        (ChangeDate::ActivityChanged, "ActivityChangedDate", "activity_changed_date"),
    ];

    /// The change date of an API field.
    pub(crate) fn of_field(field: &str) -> Option<ChangeDate> {
        ChangeDate::ALL.iter().find(|(_, f, _)| *f == field).map(|(change_date, _, _)| *change_date)
    }
}

/// Which change dates make the resource of a case stale (docs/architecture.md, "Seen and fetched").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// None: read by schedule or with another table.
    None,
    /// Each of the eleven.
    Any,
    /// These.
    Dates(Vec<ChangeDate>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Put,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
        })
    }
}

/// The shape of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// An array, or `{Count, Results}`.
    List,
    /// One object.
    Record,
    /// A bare number or string.
    Scalar,
}

/// How a long list is read (docs/architecture.md, "Completeness").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paging {
    /// The reference marks the endpoint as OData.
    Odata,
    /// By time, in windows from `processing_bases.since` on.
    Windows,
    /// No paging is documented.
    None,
}

/// The call that reads the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    pub(crate) method: Method,
    /// With placeholders: `/api/Cases/{case_id}/Roles`.
    pub path: String,
    /// Fixed query parameters.
    pub(crate) query: Vec<(String, String)>,
    /// Those beside them of a list that a service may refuse to know: then it is asked without them.
    pub(crate) optional_query: Vec<(String, String)>,
    pub answer: Answer,
    pub paging: Paging,
    /// The JSON field to order by, where paging is OData.
    pub(crate) order: Option<String>,
    /// One call for each value of a path parameter; together they are one scope.
    pub(crate) values: Option<(String, Vec<String>)>,
    /// Where a single record is read that the search does not know.
    pub(crate) by_id: Option<String>,
    /// Another address of the same list, for a service that has not the first.
    pub(crate) fallback: Option<Address>,
    /// Where [`Paging::Windows`].
    pub(crate) windows: Option<Windows>,
}

/// A list by time: read a window at a time, each in pages, with bounds and page in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Fields of the body with the first and last instant, both included.
    pub(crate) start: String,
    pub(crate) end: String,
    /// Fields of the body with how many records are passed over and how many are wanted.
    pub(crate) offset: String,
    pub(crate) limit: String,
}

/// An address without documented paging.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// With placeholders, as [`Read::path`].
    pub(crate) path: String,
    /// Fixed query parameters.
    pub(crate) query: Vec<(String, String)>,
}

/// Where a list comes from when the service has no such list: rows of another table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fallback {
    pub(crate) table: String,
    /// Columns of this table, and those of the other that fill them.
    pub(crate) columns: Vec<(String, String)>,
}

/// The rows of another table that make one scope each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForEach {
    /// The table of those rows: this one itself where a list names them.
    pub(crate) table: String,
    /// The address of a list of the source that names the scopes; those once named stay.
    pub(crate) list: Option<String>,
    pub(crate) column: String,
    pub(crate) param: String,
}

/// A list inside another table's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub(crate) table: String,
    pub(crate) field: String,
    /// Takes an element that is a bare scalar instead of a record.
    pub(crate) scalar: Option<String>,
    /// The column with the id of the parent's scope; `None` where that is a whole list.
    pub(crate) scope: Option<String>,
}

/// A journal: read a month at a time, for an office, a broker company or the chain
/// (docs/architecture.md, "Journals").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// The column with the line's own key, which can repeat; `None` for control totals.
    pub(crate) line_key: Option<String>,
}

/// The columns that say of which journal a row is, in order; the parameters of its call.
pub(crate) const JOURNAL_COLUMNS: [&str; 3] = ["journal_level", "journal_id", "journal_month"];
/// The column with a line's name for good, which the mirror gives. As decoded it is the line's number.
pub(crate) const LINE_ID: &str = "line_id";
/// The table that webhooks fill.
pub(crate) const EVENTS: &str = "events";
/// The column with a line's place in the answer, from 1.
pub(crate) const LINE_NUMBER: &str = "line_number";

/// How scopes are made: the part of the resource that one complete answer covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Group {
    /// One scope per case.
    Case,
    /// One scope per id, many ids in one search call.
    Ids,
    /// The whole table is one list.
    List,
    /// One scope per row of another table.
    ForEach(ForEach),
    /// Rows of a list inside another table's records: loaded with their parent.
    Child(Child),
    /// Nothing is called: the rows are what webhooks told.
    Events,
    /// One scope per journal and month.
    Journal(Journal),
}

/// Only scopes whose row in another table has one of these values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub table: String,
    /// The column of that table with the scope's id.
    pub(crate) scope: String,
    pub(crate) column: String,
    pub(crate) values: Vec<String>,
}

/// Rows that answers silently lack without a further permission. While it is not granted their
/// absence says nothing, and they stay; when it is granted the table is read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partial {
    /// As the reference writes it: `SettlementView - Read`.
    pub(crate) permission: String,
    pub(crate) column: String,
    pub(crate) values: Vec<String>,
}

/// A path parameter that the case's row in another table gives; without it the case is not asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) param: String,
    /// Tables that may have it, each with its column of the scope's id.
    pub(crate) tables: Vec<(String, String)>,
    pub(crate) column: String,
}

/// A table whose rows are about one person each, whom `casemirror forget` can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Person {
    /// The column with the contact's id.
    pub(crate) id: String,
    /// Columns by which a person is known to others, beside those with a class: names.
    pub(crate) known_by: Vec<String>,
    /// Columns that hold no texts and are the person's all the same: they are emptied with the texts when it is forgotten.
    pub(crate) also: Vec<String>,
}

/// One mirrored table.
#[derive(Debug, Clone)]
pub struct Resource {
    pub table: String,
    pub(crate) comment: String,
    /// Names of the key's columns.
    pub key: Vec<String>,
    /// As the reference writes them: `Cases - Read`.
    pub permissions: Vec<String>,
    pub group: Group,
    pub(crate) refresh: Refresh,
    /// The schedule that re-reads it, for lists.
    pub(crate) schedule: Option<String>,
    /// `None` for child tables.
    pub read: Option<Read>,
    pub condition: Option<Condition>,
    pub(crate) lookup: Option<Lookup>,
    /// An instant: rows for which it has passed stay, though a complete answer lacks them.
    pub stays_after: Option<String>,
    /// An answer has no more rows than this, the first by `stays_after`: a full one says nothing of
    /// those behind its last.
    pub(crate) at_most: Option<u32>,
    pub(crate) partial: Option<Partial>,
    pub(crate) person: Option<Person>,
    pub(crate) fallback: Option<Fallback>,
    /// The table whose records are of the same model, of which this one takes a part: any field of theirs shows that a
    /// record is one.
    pub(crate) model: Option<String>,
    /// Fields that hold copies of another table's records: in no column and not in `_extra`. An
    /// object of which columns take a part leaves out the rest.
    pub(crate) leave_out: Vec<String>,
    pub columns: Vec<Column>,
    /// The Arrow schema of decoded rows: the columns, then `_extra`.
    pub(crate) schema: SchemaRef,
}

impl Resource {
    pub(super) fn arrow_schema(columns: &[Column]) -> SchemaRef {
        use arrow::datatypes::{DataType, Field};
        let mut fields: Vec<Field> = columns.iter().map(Column::arrow_field).collect();
        fields.push(Field::new(EXTRA_COLUMN, DataType::Utf8, true));
        Arc::new(Schema::new(fields))
    }

    /// Whether its answers are of webhook subscriptions, which hold secrets: nothing of them is kept but what its columns
    /// take.
    pub(crate) fn shows_secrets(&self) -> bool {
        self.path_of_secrets().is_some()
    }

    /// The path of its calls that shows them.
    pub(super) fn path_of_secrets(&self) -> Option<&str> {
        let read = self.read.iter().flat_map(|read| {
            let fallback = read.fallback.as_ref().map(|fallback| &fallback.path);
            [Some(&read.path), read.by_id.as_ref(), fallback]
        });
        let list = match &self.group {
            Group::ForEach(each) => each.list.as_ref(),
            _ => None,
        };
        let mut paths = read.chain([list]).flatten();
        let is_of_secrets = |part: &str| part.eq_ignore_ascii_case("webhooks");
        paths.find(|path| path.split('/').any(is_of_secrets)).map(String::as_str)
    }

    /// The column of this name.
    pub(crate) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.name == name)
    }

    /// The column that holds a scope's id in every row, or `None` where one scope is the whole table.
    pub(crate) fn scope_column(&self) -> Option<&str> {
        match &self.group {
            Group::Case => Some("case_id"),
            Group::Ids => Some(&self.key[0]),
            Group::List | Group::Events => None,
            Group::Journal(_) => Some("journal_id"),
            Group::ForEach(each) => Some(&each.param),
            Group::Child(child) => child.scope.as_deref(),
        }
    }

    /// [`Resource::scope_column`], where it tells rows apart: then a row stays of its scope for as long as it is the same row.
    pub(crate) fn scope_in_key(&self) -> Option<&str> {
        self.scope_column().filter(|column| self.key.iter().any(|key| key == column))
    }

    /// Whether its records say themselves which scope they are of, so that an answer for another one can
    /// bring them.
    pub(crate) fn records_name_their_scope(&self) -> bool {
        let column = self.scope_column().and_then(|name| self.column(name));
        column.is_some_and(|column| column.origin == Origin::Field)
    }

    /// The table that this one is read with: its parent's for a child table, else itself.
    pub(crate) fn read_with(&self) -> &str {
        match &self.group {
            Group::Child(child) => &child.table,
            _ => &self.table,
        }
    }

    /// The calls that one of its scopes takes at least: one for each value of a path parameter.
    pub(crate) fn calls_per_scope(&self) -> u64 {
        let values = self.read.as_ref().and_then(|read| read.values.as_ref());
        values.map_or(1, |(_, values)| values.len() as u64)
    }

    /// Whether a column holds texts that may say anything: no key, and no word of an enumeration.
    pub(crate) fn is_free_text(&self, column: &Column) -> bool {
        column.kind.scalar == Scalar::Text && !self.key.contains(&column.name)
    }

    /// Whether a column of a row about a person is emptied when the person is forgotten.
    pub(crate) fn goes_with_person(&self, column: &Column) -> bool {
        let is_own = |person: &Person| person.also.contains(&column.name);
        self.is_free_text(column) || self.person.as_ref().is_some_and(is_own)
    }

    /// Whether a column says what it says whoever is forgotten: no free text; in a table about persons the name and the
    /// details of another one, who may have the same name, or share a telephone; and those of the offices.
    pub(crate) fn stays_known(&self, column: &Column) -> bool {
        !self.is_free_text(column) || self.is_name_of_person(column) || self.is_own_detail(column)
    }

    /// Whether a column has names of whom a row is about.
    pub(crate) fn is_name_of_person(&self, column: &Column) -> bool {
        self.person.as_ref().is_some_and(|person| person.known_by.contains(&column.name))
    }

    /// Whether a column of a table about persons has texts that tell of one wherever they stand: names, and values with
    /// a class.
    pub(crate) fn tells_of_person(&self, column: &Column) -> bool {
        self.person.is_some()
            && self.is_free_text(column)
            && (column.class.is_some() || self.is_name_of_person(column))
    }

    /// Whether a column says what a place or an organisation is: the name of a town, or of an office. A contact detail may
    /// be a person's whosever row has it.
    pub(crate) fn is_of_no_person(&self, column: &Column) -> bool {
        self.person.is_none()
            && self.is_free_text(column)
            && column.class.is_none()
            && (is_of_no_person(&self.table) || is_of_no_person(&column.name))
    }

    /// Whether a column has contact details of whom a row is about: a person, or an office.
    pub(crate) fn is_own_detail(&self, column: &Column) -> bool {
        let is_about_somebody = self.person.is_some() || self.table == "offices";
        is_about_somebody && column.class == Some(Class::ContactDetail) && self.is_free_text(column)
    }

    /// Whether its rows belong to a journal's month: lines, what hangs on them, and sums.
    pub(crate) fn is_of_journal(&self) -> bool {
        self.key.first().is_some_and(|first| first == JOURNAL_COLUMNS[0])
    }

    /// Whether its rows are lines of a journal, or hang on such lines.
    pub(crate) fn has_line_ids(&self) -> bool {
        self.is_of_journal() && self.key.iter().any(|key| key == LINE_ID)
    }

    /// Whether rows of this table hang on one case and leave with it.
    pub(crate) fn belongs_to_case(&self) -> bool {
        self.column("case_id").is_some() && self.scope_column() == Some("case_id")
    }
}
