//! Estimated costs, commission sharing, and entry definitions (reference 2.12).

use super::super::record::{Record, Value};
use super::super::wire::Ticks;
use super::super::world::case::Case;
use super::super::world::definitions::{CATEGORIES, Definition};
use super::super::world::economy::{BankTransfer, Estimated, ExternalEntry, Share};

/// Estimated costs.
pub(crate) fn estimated(estimated: &Estimated) -> Record {
    let mut r = Record::with_capacity(6);
    r.money("CommissionAmount", estimated.commission)
        .money("RecompenseAmount", estimated.recompense)
        .money("OtherCostsAmount", estimated.other_costs)
        .money("ShowingsAmount", estimated.showings)
        .money("MarketingPackageAmount", estimated.marketing_package)
        .put("MarketingPackageChosen", estimated.marketing_chosen);
    r
}

/// The segment of the path, and the `Type`, of an item of the commission sharing.
pub(crate) fn share_type(is_amount: bool) -> &'static str {
    if is_amount { "Amount" } else { "Percent" }
}

/// An item of the commission sharing.
pub(crate) fn share(case: &Case, share: &Share) -> Record {
    let mut r = Record::with_capacity(6);
    // The extra payment is "optional".
    let extra = match share.extra_payment {
        None if share.id % 2 == 0 => Value::Absent,
        None => Value::Null,
        Some(ore) => Value::Money(ore),
    };
    r.put("Id", share.id)
        .put("EmployeeId", share.employee)
        .put("CaseBaseId", case.id())
        .put("ExtraPayment", extra)
        .decimal("Percentage", share.percentage)
        .put("Type", share_type(share.is_amount));
    r
}

/// An entry definition as a case category lists it.
pub(crate) fn definition(definition: &Definition) -> Record {
    let mut r = Record::with_capacity(7);
    r.put("Id", definition.id)
        .put("Name", definition.name.clone())
        .put("Description", definition.description.clone())
        .money("DefaultAmount", definition.default_amount)
        .decimal("VAT", definition.vat)
        .put("CreditAccountId", definition.credit_account + 10_000)
        .put("DebitAccountId", definition.debit_account + 10_000);
    r
}

/// An extended entry definition (and observed fields).
pub(crate) fn extended_definition(definition: &Definition) -> Record {
    let t = definition.trivia;
    let categories = CATEGORIES.iter().filter(|category| definition.is_for(category));
    let kinds = ["Revenue", "Outlay", "Client", "NyTypeIngenKjenner"];
    let mut r = Record::with_capacity(24);
    r.put("Id", definition.id)
        .put("Name", definition.name.clone())
        .put("Description", definition.description.clone())
        .put("EntryDefinitionType", t.pick(50, &kinds))
        .put("CreditVat", definition.vat.is_some_and(|vat| vat > 0))
        .put("DebitVat", false)
        .put("DebitAccountNumber", definition.debit_account)
        .put("CreditAccountNumber", definition.credit_account)
        .put("CreditAccountId", definition.credit_account + 10_000)
        .put("DebitAccountId", definition.debit_account + 10_000)
        .money("DefaultAmount", definition.default_amount)
        .decimal("VAT", definition.vat)
        .put("IsDeleted", definition.deleted)
        .put(
            "AvailableForCaseCategories",
            if t.chance(51, 20) {
                Value::Null
            } else {
                Value::List(categories.map(|category| (*category).into()).collect())
            },
        )
        .put(
            "AvailableForAssignmentTypes",
            match t.between(52, 0, 2) {
                0 => Value::Absent,
                1 => Value::List(Vec::new()),
                _ => Value::List(vec!["Sale".into(), "Foreclosure".into()]),
            },
        )
        .put("CreateBankTransferType", t.chance(53, 20))
        .put("BankTransferTypeInternalName", t.chance(54, 20).then_some("Utbetaling"))
        .put("CreateSettlementStatementEntryDefinition", t.chance(55, 50))
        .put("IsKarAutoLookup", t.chance(56, 10))
        .put("IsKarAutoLookupEnhancedAml", false)
        .money("KarAutoLookupAboveAmountLimitAmount", t.chance(57, 20).then_some(10_000_000))
        .put("IsValidKarRequiredForBankTransfers", t.chance(58, 10))
        .put("IsValidKarRequiredForBankTransfersEnhancedAml", false)
        .money("KarBankTransfersAboveAmountLimitAmount", t.chance(59, 20).then_some(2_500_050));
    r
}

/// An external entry (and observed fields). The link stands in `Url`, `Urls`, or neither.
pub(crate) fn external_entry(case: &Case, entry: &ExternalEntry) -> Record {
    let unset = |at: Option<Ticks>| at.map_or(Value::Unset { zoned: true }, Value::Zoned);
    let mut r = Record::with_capacity(21);
    r.put("Id", entry.id)
        .put("CaseId", case.id())
        .put("CaseName", format!("Oppdrag {} \"{}\"", case.id(), case.category))
        .put("CreatedById", entry.created_by)
        .put("EntryNumber", entry.number)
        .put("SupplierName", entry.supplier.clone())
        .put("Comment", entry.comment.clone())
        .put("Info", if entry.id % 3 == 0 { Value::Absent } else { "Importert".into() })
        .put("PostingDate", unset(entry.posted))
        .put("EntryDate", unset(entry.date))
        .money("Amount", entry.amount)
        .put("DebitNumber", entry.debit)
        .put("CreditNumber", entry.credit)
        .put("EntryDefinitionId", entry.definition)
        .put("EntryId", entry.entry)
        .put("EntryDraftId", entry.draft)
        .put("Url", if entry.id % 2 == 0 { Value::Absent } else { entry.url.clone().into() })
        .put(
            "Urls",
            match &entry.url {
                Some(url) => Value::List(vec![url.clone().into()]),
                None if entry.id % 2 == 0 => Value::Null,
                None => Value::List(Vec::new()),
            },
        )
        .put("CreateEntryDraft", entry.draft.is_some())
        .put("CreateEntry", entry.entry.is_some())
        .put("SkipAccounting", entry.id % 5 == 0);
    r
}

/// A bank transfer (reference 2.13).
pub(crate) fn bank_transfer(case: &Case, transfer: &BankTransfer) -> Record {
    let message = |n: i64| if transfer.id % 4 < n { Value::Null } else { "Oppgjør & rest".into() };
    let mut r = Record::with_capacity(15);
    r.put("Id", transfer.id)
        .put("CaseId", case.id())
        .put("BankTransferTypeId", transfer.kind)
        .put("CaseClientAccountId", (transfer.id % 3 > 0).then_some(transfer.id % 900 + 1))
        .money("Amount", transfer.amount)
        .put("PaymentDate", transfer.payment.map_or(Value::Unset { zoned: true }, Value::Zoned))
        .put("Comment", transfer.comment.clone())
        .put("BankTransferStatus", transfer.status)
        .put("AccountNumber", transfer.account.clone())
        .put("KidNumber", transfer.kid.clone())
        .put("Message1", message(1))
        .put("Message2", message(2))
        .put("Message3", if transfer.id % 4 == 0 { Value::Absent } else { message(3) })
        .put("EmployeeId", if transfer.from_api { Value::Null } else { case.broker.into() })
        .put("EntryDraftId", (transfer.id % 5 == 0).then_some(transfer.id + 1));
    r
}
