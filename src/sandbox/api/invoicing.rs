//! External entries and bank transfers (reference 4.8, 4.9; lists as in the field notes, "Other
//! calls seen").

use std::borrow::Cow;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::Shared;
use super::super::faults::Twist;
use super::super::records::economy as records;
use super::super::wire::Ticks;
use super::super::world::case::{Case, Draft, Entry, Moved};
use super::super::world::definitions::definition_of;
use super::super::world::economy::{BankTransfer, ExternalEntry};
use super::answer::{self, Answer, Refusal};
use super::read;
use super::writes::amount;

type Shares = State<Arc<Shared>>;

/// Where entries come from that an external one brings with it.
const SOURCE: &str = "ExternalEntriesApi";

/// `GET /api/Cases/{caseId}/ExternalEntries`.
pub(crate) async fn external_entries(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let case = shared.find(&id)?;
    let basis = shared.world().basis.clone();
    let economy = case.economy(&basis);
    let entries = economy.external_entries.iter();
    let rows = entries.map(|entry| records::external_entry(&case, entry)).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `GET .../Invoicing/Cases/{caseId}/BankTransfers`: the assumed list; it pages.
pub(crate) async fn bank_transfers(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let case = shared.find(&id)?;
    let basis = shared.world().basis.clone();
    let economy = case.economy(&basis);
    let transfers = economy.bank_transfers.iter();
    shared.list(transfers.map(|one| records::bank_transfer(&case, one)).collect(), twist, raw)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct NewEntry<'a> {
    case_id: i64,
    entry_number: i64,
    #[serde(default)]
    supplier_name: Option<String>,
    #[serde(default)]
    comment: Option<String>,
    #[serde(default)]
    posting_date: Option<String>,
    #[serde(default)]
    entry_date: Option<String>,
    #[serde(borrow)]
    amount: &'a RawValue,
    #[serde(default)]
    debit_number: Option<i64>,
    #[serde(default)]
    credit_number: Option<i64>,
    #[serde(default)]
    entry_definition_id: Option<i64>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    create_entry_draft: bool,
    #[serde(default)]
    create_entry: bool,
}

fn instant(text: Option<&String>) -> Result<Option<Ticks>, Refusal> {
    let parse = |text: &String| {
        Ticks::parse(text, true)
            .ok_or_else(|| Refusal::bad_request(format!("'{text}' is no date-time")))
    };
    text.map(parse).transpose()
}

/// `POST /api/Economics/ExternalEntries`: with an entry or a draft, where they are asked for.
pub(crate) async fn add_external_entry(State(shared): Shares, body: Bytes) -> Answer {
    let new: NewEntry<'_> = read(&body)?;
    let makes_one = new.create_entry || new.create_entry_draft;
    if makes_one && new.entry_definition_id.and_then(definition_of).is_none() {
        return Err(Refusal::bad_request("EntryDefinitionId has to be that of a definition"));
    }
    let ore = amount(new.amount)?;
    let posted = instant(new.posting_date.as_ref())?;
    let date = instant(new.entry_date.as_ref())?;
    let mut world = shared.world();
    let basis = world.basis.clone();
    let at = world.stamp();
    let made = world.change(new.case_id, at, |case, _| {
        case.facts.dates.set(Moved::Transaction, Some(at));
        let definition = new.entry_definition_id.unwrap_or(0);
        let description = new.comment.clone().map(Cow::Owned);
        let entry = new.create_entry.then(|| book(case, definition, ore, description.clone(), at));
        let draft = new.create_entry_draft.then(|| draft(case, definition, ore, description, at));
        let case_id = case.id();
        let economy = case.economy_mut(&basis);
        let external = ExternalEntry {
            id: economy.next_id(case_id),
            number: new.entry_number,
            supplier: new.supplier_name.map(Cow::Owned),
            comment: new.comment.map(Cow::Owned),
            posted,
            date,
            amount: ore,
            debit: new.debit_number,
            credit: new.credit_number,
            definition: new.entry_definition_id,
            url: new.url,
            entry,
            draft,
            created_by: None,
        };
        economy.external_entries.push(external.clone());
        records::external_entry(case, &external)
    });
    made.map(|record| answer::record(&record))
        .ok_or_else(|| Refusal::not_found("Case", new.case_id))
}

fn book(
    case: &mut Case,
    definition: i64,
    amount: i64,
    description: Option<Cow<'static, str>>,
    at: Ticks,
) -> i64 {
    let id = case.next_id();
    let number = case.id() % 10_000 * 100 + i64::try_from(case.entries.len()).unwrap_or(0) + 1;
    case.entries.push(Entry {
        id,
        number,
        definition,
        amount,
        date: Some(at),
        registered: at,
        description,
        created_by: None,
        source: SOURCE,
    });
    id
}

fn draft(
    case: &mut Case,
    definition: i64,
    amount: i64,
    description: Option<Cow<'static, str>>,
    at: Ticks,
) -> i64 {
    let id = case.next_id();
    case.drafts.push(Draft {
        id,
        definition,
        amount,
        registered: at,
        description,
        created_by: None,
        source: SOURCE,
    });
    id
}

/// Body of a new bank transfer; all fields may be left out in a change.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Transfer<'a> {
    #[serde(default)]
    bank_transfer_type_id: Option<i64>,
    #[serde(default, borrow)]
    amount: Option<&'a RawValue>,
    #[serde(default)]
    payment_date: Option<String>,
    #[serde(default)]
    comment: Option<String>,
    /// Who is paid; not part of the answer.
    #[serde(default)]
    #[allow(dead_code)]
    receiver_identification_number: Option<String>,
    #[serde(default)]
    #[allow(dead_code)]
    receiver_name: Option<String>,
    #[serde(default)]
    #[allow(dead_code)]
    receiver_is_a_company: Option<bool>,
    #[serde(default)]
    account_number: Option<String>,
    #[serde(default)]
    kid_number: Option<String>,
    #[serde(default)]
    #[allow(dead_code)]
    external_reference: Option<String>,
}

impl Transfer<'_> {
    fn apply(self, transfer: &mut BankTransfer) -> Result<(), Refusal> {
        transfer.kind = self.bank_transfer_type_id.unwrap_or(transfer.kind);
        if let Some(raw) = self.amount {
            transfer.amount = amount(raw)?;
        }
        if let Some(at) = instant(self.payment_date.as_ref())? {
            transfer.payment = Some(at);
        }
        for (new, known) in [
            (self.comment, &mut transfer.comment),
            (self.account_number, &mut transfer.account),
            (self.kid_number, &mut transfer.kid),
        ] {
            if let Some(new) = new {
                *known = Some(Cow::Owned(new));
            }
        }
        Ok(())
    }
}

/// `POST .../Invoicing/Cases/{caseId}/BankTransfers`: a draft that somebody has to approve.
pub(crate) async fn add_bank_transfer(
    State(shared): Shares,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    let case = shared.find(&id)?;
    let new: Transfer<'_> = read(&body)?;
    if new.bank_transfer_type_id.is_none() || new.amount.is_none() {
        return Err(Refusal::bad_request("BankTransferTypeId and Amount are required"));
    }
    let mut transfer = BankTransfer {
        id: 0,
        kind: 0,
        amount: 0,
        payment: None,
        comment: None,
        status: "Hold",
        account: None,
        kid: None,
        from_api: true,
    };
    new.apply(&mut transfer)?;
    let mut world = shared.world();
    let basis = world.basis.clone();
    let at = world.stamp();
    let made = world.change(case.id(), at, |case, _| {
        case.facts.dates.set(Moved::Transaction, Some(at));
        let case_id = case.id();
        let economy = case.economy_mut(&basis);
        transfer.id = economy.next_id(case_id);
        economy.bank_transfers.push(transfer.clone());
        records::bank_transfer(case, &transfer)
    });
    made.map(|record| answer::record(&record)).ok_or_else(|| Refusal::not_found("Case", case.id()))
}

/// `PATCH .../Invoicing/Cases/{caseId}/BankTransfers/{bankTransferId}`: refused for transfers of
/// others, and once somebody has taken it further.
pub(crate) async fn patch_bank_transfer(
    State(shared): Shares,
    Path((id, transfer)): Path<(String, String)>,
    body: Bytes,
) -> Answer {
    let case = shared.find(&id)?;
    let none =
        || Refusal::new(StatusCode::NOT_FOUND, format!("Transfer {transfer} does not exist"));
    let basis = shared.world().basis.clone();
    let economy = case.economy(&basis);
    let known = economy.bank_transfers.iter().find(|one| one.id.to_string() == transfer);
    let mut changed = known.cloned().ok_or_else(none)?;
    if !changed.from_api || changed.status != "Hold" {
        let why = "The transfer was made by somebody else, or is no longer on hold";
        return Err(Refusal::new(StatusCode::CONFLICT, why));
    }
    read::<Transfer<'_>>(&body)?.apply(&mut changed)?;
    let mut world = shared.world();
    let at = world.stamp();
    let made = world.change(case.id(), at, |case, _| {
        case.facts.dates.set(Moved::Transaction, Some(at));
        let list = &mut case.economy_mut(&basis).bank_transfers;
        let slot = list.iter_mut().find(|one| one.id == changed.id)?;
        *slot = changed.clone();
        Some(records::bank_transfer(case, &changed))
    });
    made.flatten().map(|record| answer::record(&record)).ok_or_else(none)
}
