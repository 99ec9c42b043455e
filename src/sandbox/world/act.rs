//! The vocabulary of changes that can be ordered, and what they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::journals::{Journal, JournalEdit};

/// A change that can be ordered. Where a case or contact id is left out, one is picked by chance.
/// Instants are ISO 8601 with up to seven digits; where none is given, the world's next one is
/// taken, which is later than any before.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A new case with a seller and a broker.
    NewCase {
        #[serde(default)]
        project: bool,
        /// An assignment type of reference 2.12.
        #[serde(default)]
        assignment: Option<String>,
    },
    /// One facet of a case changes.
    Change {
        #[serde(default)]
        case_id: Option<i64>,
        facet: Facet,
        #[serde(default)]
        at: Option<String>,
    },
    /// The case is gone: 404 everywhere, no longer in the feed, and in the search until its lag is
    /// over.
    DeleteCase { case_id: i64 },
    /// The case leaves the search, and stays accessible otherwise (reference 4.13). `silent` leaves
    /// `ModifiedDate` where it is.
    HideCase {
        case_id: i64,
        #[serde(default)]
        silent: bool,
    },
    /// The case comes back into the search.
    ShowCase {
        case_id: i64,
        #[serde(default)]
        silent: bool,
    },
    /// Sets dates of cases exactly: `ModifiedDate`, and of the other ten those that are named
    /// (`null` unsets one). Backwards too.
    Touch {
        case_ids: Vec<i64>,
        #[serde(default)]
        modified: Option<String>,
        #[serde(default)]
        dates: BTreeMap<String, Option<String>>,
    },
    /// A contact gets another telephone number.
    EditContact {
        #[serde(default)]
        contact_id: Option<i64>,
        #[serde(default)]
        at: Option<String>,
    },
    /// A contact that no case names.
    NewContact {},
    /// An employee gets another title and telephone number.
    EditEmployee { employee_id: i64 },
    /// An office gets another telephone number.
    EditOffice { office_id: i64 },
    /// An office is split: the new one of the same company has no journals before now.
    SplitOffice { office_id: i64 },
    /// An office is closed down: it leaves the list, and its journals are 404.
    CloseOffice { office_id: i64 },
    /// An employee leaves the present office for another: that affiliation is no longer active.
    MoveEmployee { employee_id: i64, office_id: i64 },
    /// Something happens to the accounts of an office.
    Account { office_id: i64, edit: ListEdit },
    /// Something happens to the entry definitions; a removed one stays listed as deleted.
    Definition { edit: ListEdit },
    /// Something happens to the processing bases: a changed one has a new version, a removed one is
    /// no longer active and stays in its history.
    ProcessingBasis { edit: ListEdit },
    /// Something happens to the bases that contacts have given: a changed one was taken back.
    Relation { edit: ListEdit },
    /// Something happens to the file tags.
    FileTag { edit: ListEdit },
    /// Something happens to the webhook subscriptions.
    Subscription { edit: ListEdit },
    /// A month of an office's journal is edited, closed months too. `month` is `2026-03`, `line` a
    /// line number from 1; none given: by chance.
    Journal {
        journal: Journal,
        office_id: i64,
        month: String,
        edit: JournalEdit,
        #[serde(default)]
        line: Option<usize>,
    },
    /// A role of a case gets another type, the last one where none is named; nothing but
    /// `ModifiedDate` moves.
    EditRole {
        case_id: i64,
        #[serde(default)]
        role_id: Option<i64>,
    },
    /// The default of the first section of these cases' sale texts changes: subscribers are told, and
    /// no date of any case moves, `ModifiedDate` neither.
    DefaultSaleText { case_ids: Vec<i64> },
    /// An event of whatever type and payload is delivered; nothing else happens. See [`Act::emit`].
    Emit {
        event_type: String,
        payload: Json,
        /// Further fields of the envelope; one of the usual names stands in the place of the usual
        /// value.
        #[serde(default)]
        fields: Map<String, Json>,
        /// The address of a subscription. None: all subscriptions of the event type, and where it
        /// is none of reference 6.2, each address that is subscribed.
        #[serde(default)]
        to: Option<String>,
        /// How often the same body is delivered again.
        #[serde(default)]
        duplicate: u32,
        #[serde(default)]
        at: Option<String>,
    },
    /// The body of a delivery, the newest where none is named, is delivered again.
    Redeliver {
        #[serde(default)]
        delivery: Option<u64>,
        #[serde(default = "one")]
        times: u32,
    },
    /// Events of the world's own accord.
    Tick {
        #[serde(default = "one")]
        events: u32,
    },
}

impl Act {
    /// One event to all subscriptions of its type.
    pub fn emit(event_type: &str, payload: Json) -> Act {
        Act::Emit {
            event_type: event_type.to_owned(),
            payload,
            fields: Map::new(),
            to: None,
            duplicate: 0,
            at: None,
        }
    }
}

fn one() -> u32 {
    1
}

/// A facet of a case, and the date that moves with it beside `ModifiedDate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facet {
    /// A new activity: `ActivityChangedDate`.
    Activity,
    /// An activity gets another time: `ActivityChangedDate`.
    ActivityEdited,
    /// An activity goes: `ActivityChangedDate`.
    ActivityRemoved,
    /// Texts, debt and asking price: `DescriptionChangedDate`.
    Description,
    /// A known contact gets a role: `CaseEntityChangedDate`.
    RoleAdded,
    /// A contact that is new to the brokerage gets a role: `CaseEntityChangedDate`.
    ContactAdded,
    /// A role goes: nothing but `ModifiedDate`.
    RoleRemoved,
    /// A booked entry: `TransactionChangedDate`.
    Transaction,
    /// An entry draft: `TransactionChangedDate`.
    Draft,
    /// The oldest draft goes: `TransactionChangedDate`.
    DraftRemoved,
    /// A cost gets another amount or is chosen: nothing but `ModifiedDate`.
    Cost,
    /// A cost is added: nothing but `ModifiedDate`.
    CostAdded,
    /// A cost is removed: nothing but `ModifiedDate`.
    CostRemoved,
    /// A bid: `BidChangedDate`.
    Bid,
    /// A new image: `ImageChangedDate`.
    Image,
    /// The last image goes: `ImageChangedDate`.
    ImageRemoved,
    /// The images change their order: nothing but `ModifiedDate`.
    ImageReordered,
    /// A new file in the attachments folder: `AttachmentChangedDate`.
    Attachment,
    /// The last file of that folder goes: `AttachmentChangedDate`.
    AttachmentRemoved,
    /// A new file in another folder: nothing but `ModifiedDate`.
    FileElsewhere,
    /// A file is shared with one role more: nothing but `ModifiedDate`.
    FileShared,
    /// A publication gets another status, or is the first one: `PublicationChangedDate`.
    Publication,
    /// A publication goes: `PublicationChangedDate`.
    PublicationRemoved,
    /// The case is signed: `CaseActivatedDate`.
    Activated,
    /// The case is sold to a new buyer: `CaseSoldDate`, `CaseEntityChangedDate`.
    Sold,
    /// The settlement comes a step further: nothing but `ModifiedDate`.
    Settled,
    /// The estimated costs change: nothing but `ModifiedDate`.
    EstimatedCosts,
    /// The first item of the commission sharing gets another share: nothing but `ModifiedDate`.
    Commission,
    /// An employee gets an extra payment: nothing but `ModifiedDate`.
    CommissionAdded,
    /// The last item of the commission sharing goes: nothing but `ModifiedDate`.
    CommissionRemoved,
    /// A new external entry: `TransactionChangedDate`.
    ExternalEntry,
    /// The last external entry goes: `TransactionChangedDate`.
    ExternalEntryRemoved,
    /// A new bank transfer: `TransactionChangedDate`.
    BankTransfer,
    /// A bank transfer gets another amount and status: `TransactionChangedDate`.
    BankTransferEdited,
    /// The last bank transfer goes: `TransactionChangedDate`.
    BankTransferRemoved,
    /// A new note: nothing but `ModifiedDate`.
    Note,
    /// The first note gets another message: nothing but `ModifiedDate`.
    NoteEdited,
    /// The last note goes: nothing but `ModifiedDate`.
    NoteRemoved,
    /// The texts about the property and the seller's insurance: nothing but `ModifiedDate`.
    Information,
    /// The housing association: `DescriptionChangedDate`.
    Association,
    /// There is no housing association any more: `DescriptionChangedDate`.
    AssociationRemoved,
    /// A section of the dynamic sale text: `DescriptionChangedDate`.
    SaleText,
    /// A new section: `DescriptionChangedDate`.
    SaleTextAdded,
    /// The last section goes: `DescriptionChangedDate`.
    SaleTextRemoved,
    /// The dynamic sale text is used, or no longer: `DescriptionChangedDate`.
    SaleTextSwitched,
    /// A showing that the public can see: `ActivityChangedDate`.
    Showing,
    /// Nothing but `ModifiedDate`.
    Nothing,
}

impl Facet {
    /// All of them.
    pub const ALL: [Facet; 47] = [
        Facet::Activity,
        Facet::ActivityEdited,
        Facet::ActivityRemoved,
        Facet::Description,
        Facet::RoleAdded,
        Facet::ContactAdded,
        Facet::RoleRemoved,
        Facet::Transaction,
        Facet::Draft,
        Facet::DraftRemoved,
        Facet::Cost,
        Facet::CostAdded,
        Facet::CostRemoved,
        Facet::Bid,
        Facet::Image,
        Facet::ImageRemoved,
        Facet::ImageReordered,
        Facet::Attachment,
        Facet::AttachmentRemoved,
        Facet::FileElsewhere,
        Facet::FileShared,
        Facet::Publication,
        Facet::PublicationRemoved,
        Facet::Activated,
        Facet::Sold,
        Facet::Settled,
        Facet::EstimatedCosts,
        Facet::Commission,
        Facet::CommissionAdded,
        Facet::CommissionRemoved,
        Facet::ExternalEntry,
        Facet::ExternalEntryRemoved,
        Facet::BankTransfer,
        Facet::BankTransferEdited,
        Facet::BankTransferRemoved,
        Facet::Note,
        Facet::NoteEdited,
        Facet::NoteRemoved,
        Facet::Information,
        Facet::Association,
        Facet::AssociationRemoved,
        Facet::SaleText,
        Facet::SaleTextAdded,
        Facet::SaleTextRemoved,
        Facet::SaleTextSwitched,
        Facet::Showing,
        Facet::Nothing,
    ];
}

// A facet that is not listed does not compile: the last one's number says how many there are.
const _: () = assert!(Facet::ALL.len() == Facet::Nothing as usize + 1);

/// What happens to a list that hangs on no case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListEdit {
    /// One more.
    Added,
    /// The first one has other contents.
    Changed,
    /// The last one goes.
    Removed,
}

/// The journal line that an act concerned: where it stands, or stood, in its office's month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JournalLine {
    pub(crate) journal: Journal,
    pub(crate) office_id: i64,
    /// `2026-03`.
    pub(crate) month: String,
    /// From 1.
    pub(crate) line_number: i64,
}

/// What an act did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub(crate) what: String,
    pub case_ids: Vec<i64>,
    pub contact_ids: Vec<i64>,
    /// Ids of the activity, role, cost, entry or draft concerned.
    pub ids: Vec<i64>,
    /// The dates that moved, by field, at 100 ns.
    pub moved: BTreeMap<String, Option<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) journal: Option<JournalLine>,
    /// Ids of the deliveries that were ordered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliveries: Vec<u64>,
}
