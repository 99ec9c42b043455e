//! Estimated costs, commission sharing, and entry definitions (reference 2.12).

use super::super::record::{Record, Value};
use super::super::world::case::Case;
use super::super::world::definitions::{CATEGORIES, Definition};
use super::super::world::economy::{Estimated, Share};

/// Estimated costs.
pub fn estimated(estimated: &Estimated) -> Record {
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
pub fn share_type(is_amount: bool) -> &'static str {
    if is_amount { "Amount" } else { "Percent" }
}

/// An item of the commission sharing.
pub fn share(case: &Case, share: &Share) -> Record {
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
pub fn definition(definition: &Definition) -> Record {
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
pub fn extended_definition(definition: &Definition) -> Record {
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
