//! Costs, entries and entry drafts (reference 2.12).

use super::super::record::{Record, Value};
use super::super::world::case::{Case, Cost, Draft, Entry};
use super::super::world::definitions::definition_of;
use super::super::world::dice::{Trivia, mix};

/// A cost of the buyer or the seller.
pub(crate) fn cost(case: &Case, cost: &Cost) -> Record {
    let mut record = Record::with_capacity(36);
    let t = Trivia(mix(0xC057, cost.id.unsigned_abs()));
    let some = |n: u64| t.chance(n, 15).then(|| t.between(n + 1, 300, 900));
    let standard = if cost.standard { "Post" } else { "None" };
    record
        .put("BrokerCompanySettlementStatementDefinitionId", cost.definition)
        .put("ProjectSettlementStatementDefinitionId", some(1))
        .put("OfficeSettlementStatementDefinitionId", some(3))
        .put("AddedFromSale", false)
        .put("AddedFromCase", !cost.standard)
        .put("DisplayWarning", false)
        .put("Editable", cost.editable)
        .put("IsAccounted", cost.draft.is_some())
        .put("Selected", cost.selected)
        .put("EntryDraftId", cost.draft)
        .put("EntryId", some(5))
        .put("Id", cost.id)
        .put("AccountNumber", if cost.standard { Value::Null } else { "86011117947".into() })
        .money("Amount", cost.amount)
        .put("BankTransferTypeId", some(7))
        .put("BusinessManagerId", some(9))
        .put("Comment", cost.comment.clone())
        .put("ClientAccountId", some(11))
        .put("CustomerId", some(13))
        .put("Deleted", cost.deleted)
        .put("EntryDefinitionId", cost.definition)
        .put(
            "EntryDefinitionOverruled",
            if t.chance(20, 90) { Value::Absent } else { "Utlegg \"annet\"".into() },
        )
        .put(
            "FromDate",
            if cost.standard {
                Value::Unset { zoned: false }
            } else {
                Value::Local(case.created.local())
            },
        )
        .put("IsCommissionDiscount", t.chance(21, 60).then(|| t.chance(22, 20)))
        .put("IsEditable", cost.editable)
        .put("IsHidden", cost.hidden)
        .put("IsStandard", cost.standard)
        .put("Optional", cost.optional.unwrap_or(false))
        .put("IsOptional", cost.optional)
        .put("KidNumber", t.chance(23, 30).then(|| format!("{:09}", t.between(24, 1, 999_999_999))))
        .put("StandardCostStatusType", standard)
        .put("StatusType", if cost.deleted { "None" } else { "Draft" })
        .put("AccountingType", "Cost")
        .put("StandardCostPostStatusType", t.chance(25, 40).then_some("Post"))
        .put("SettlementStatementGroup", "General")
        // Percent here, a fraction in entries: so it is observed.
        .put("VAT", cost.vat.map(|hundredths| Value::Decimal(hundredths * 10_000)));
    record
}

/// A booked entry.
pub(crate) fn entry(case: &Case, entry: &Entry) -> Record {
    let definition = definition_of(entry.definition);
    let mut record = Record::with_capacity(15);
    record
        .put("Id", entry.id)
        .put("CaseId", case.id())
        .put("EntryNumber", entry.number)
        .decimal("VAT", definition.map(|d| d.vat))
        .put("CreditAccountId", definition.map(|d| d.credit_account + 10_000))
        .put("CreditAccountNumber", definition.map(|d| d.credit_account))
        .put("DebitAccountId", definition.map(|d| d.debit_account + 10_000))
        .put("DebitAccountNumber", definition.map(|d| d.debit_account))
        .put(
            "DebitLedgerNumber",
            if entry.id % 3 == 0 {
                Value::Null
            } else {
                Value::Text(format!("{:05}", entry.number % 100_000).into())
            },
        )
        .put("EntryDate", entry.date.map_or(Value::Unset { zoned: true }, Value::Zoned))
        .put("RegisteredDate", entry.registered)
        .put("Description", entry.description.clone())
        .put("CreatedById", entry.created_by)
        .money("Amount", entry.amount)
        .put("EntrySource", entry.source);
    record
}

/// An entry draft.
pub(crate) fn draft(case: &Case, draft: &Draft) -> Record {
    let definition = definition_of(draft.definition);
    let mut record = Record::with_capacity(12);
    record
        .put("Id", draft.id)
        .put("CaseId", case.id())
        .put("EntryDefinitionId", draft.definition)
        .decimal("VAT", definition.map(|d| d.vat))
        .put("CreatedById", draft.created_by)
        .put("RegisteredDate", draft.registered)
        .put("CreditAccountId", definition.map(|d| d.credit_account + 10_000))
        .put("DebitAccountId", definition.map(|d| d.debit_account + 10_000))
        .money("Amount", draft.amount)
        .put("Description", draft.description.clone())
        .put("Source", draft.source)
        .put("EncounterId", (draft.id % 4 == 0).then_some(draft.id / 4));
    record
}
