//! What a webhook says: a reason to read something, never data.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Something that a webhook named, to be read again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Hint {
    /// A part of a case.
    Case {
        id: i64,
        part: CasePart,
    },
    /// The roles of the case that this role is on.
    Role {
        id: i64,
    },
    Contact {
        id: i64,
    },
    Employee {
        id: i64,
    },
    Office {
        id: i64,
    },
    /// The webhook subscriptions: casemirror has changed its own.
    Subscriptions,
}

/// What of a case is read again.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CasePart {
    /// Its row in the search.
    Row,
    /// The tables that this change date alone makes stale, by its field in the feed.
    Date(String),
    /// This table.
    Table(String),
}

/// An event whose facts no call reads: a row of `main.events`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) event_type: String,
    pub(crate) id: Option<i64>,
    pub(crate) case_id: Option<i64>,
    pub(crate) contact_id: Option<i64>,
    pub(crate) employee_id: Option<i64>,
    pub(crate) office_id: Option<i64>,
    pub(crate) occurred_at: Option<Timestamp>,
}

/// One thing that a webhook told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    Hint(Hint),
    Fact(Fact),
    /// An event type that is not known.
    Unknown {
        event_type: String,
    },
    /// An event of a known type in which no id is found.
    WithoutId {
        event_type: String,
    },
}

impl Told {
    /// Whether it says of what it is.
    pub(crate) fn names_something(&self) -> bool {
        match self {
            Told::Hint(_) => true,
            Told::Fact(fact) => {
                let ids =
                    [fact.id, fact.case_id, fact.contact_id, fact.employee_id, fact.office_id];
                ids.iter().any(Option::is_some)
            }
            Told::Unknown { .. } | Told::WithoutId { .. } => false,
        }
    }

    /// The role that it hints at.
    pub(crate) fn role(&self) -> Option<i64> {
        match self {
            Told::Hint(Hint::Role { id }) => Some(*id),
            _ => None,
        }
    }
}
