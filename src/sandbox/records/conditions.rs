//! Common conditions, the two condition records, and resale information.

use super::super::record::{Record, Value};
use super::super::world::case::{Case, Common, Resale};
use super::super::world::generate::{odd_hour, year_of};
use super::bookkeeping;

/// Common conditions (observed fields).
pub(crate) fn common(case: &Case, common: &Common) -> Record {
    let t = case.trivia;
    let mut r = Record::with_capacity(66);
    let comment = |n: u64| -> Value {
        if t.chance(n, 40) { common.comment.clone().into() } else { Value::Null }
    };
    let company = |n: u64| -> Value {
        if t.chance(n, 30) { Value::Int(t.between(n + 1, 50_001, 50_030)) } else { Value::Null }
    };
    let amount = |n: u64| t.chance(n, 25).then(|| t.between(n + 1, 0, 90_000_000));
    r.put("Id", case.id() * 10 + 1)
        .money("Cost", common.cost)
        .money("NetCost", common.cost.map(|cost| cost - 5_000))
        .put(
            "CostVerifiedDate",
            match t.between(300, 0, 4) {
                0 => Value::Unset { zoned: false },
                // Typed by people who do not think of clock changes.
                1 => Value::Local(odd_hour(year_of(case.created), true)),
                2 => Value::Local(odd_hour(year_of(case.created), false)),
                _ => Value::Local(case.created.local()),
            },
        )
        .put("CostIncludes", comment(301))
        .money("CostOperatingPart", common.cost.map(|cost| cost / 3))
        .money("CostCapitalPart", common.cost.map(|cost| cost - cost / 3))
        .put("CommonCostComment", comment(302))
        .put("BusinessManagerComment", comment(400))
        .money("Fortune", t.chance(303, 50).then(|| t.between(304, 0, 9_000_000)))
        .put(
            "FortuneVerified",
            if t.chance(442, 60) { Value::Unset { zoned: true } } else { case.created.into() },
        )
        .put("FortuneComment", comment(401))
        .money("TotalDebt", common.debt.map(|debt| debt * 12))
        .put("TotalDebtValidated", t.chance(305, 50).then(|| case.created.plus_days(2)))
        .put("TotalDebtComment", comment(402))
        .money("Debt", common.debt)
        .put("DebtValidated", t.chance(306, 50).then(|| case.created.plus_days(2)))
        .put("DebtComment", comment(307))
        .put("IndividualDownPaymentOfDebt", comment(403))
        .put("BusinessManagerId", company(310))
        .put("ChairmanId", company(312))
        .put("JointOwnershipId", company(414))
        .put("CommonInsuranceId", company(314))
        .put("InsurancePolicyNumber", format!("{:08}", t.between(316, 0, 99_999_999)))
        .put("FractionalBondNumber", comment(404))
        .money("FractionalBondAmount", amount(426))
        .put("Preemption", t.chance(317, 70).then(|| t.chance(318, 30)))
        .put("PreemptionComment", comment(405))
        .put("CommunityOrginisation", comment(319))
        .put("SharedInsuranceComment", comment(406))
        .put("DebtLoanConditions", comment(320))
        .put("InterestOnlyComment", comment(407));
    for (n, name) in [
        "LandownerId",
        "ElectricalCompanyId",
        "WaterCompanyId",
        "FireDepartmentId",
        "RenovationCompanyId",
        "AppraiserId",
        "AppraisalCompanyId",
    ]
    .into_iter()
    .enumerate()
    {
        r.put(name, company(330 + 2 * n as u64));
    }
    r.put("AppraisalDate", t.chance(350, 60).then(|| case.created.plus_days(5).local()))
        .put("AppraisalConclusion", comment(351))
        .put("PropertyAppraisalReportComment", comment(408))
        .put("SellerBankId", company(352))
        .put("BuyerBankId", company(416))
        .put("GuaranteeSchemeDescription", comment(409))
        .put("SignificantInformation", comment(354))
        .money("CommunityOrganisationFee", t.chance(355, 30).then(|| t.between(356, 0, 500_000)))
        .put("CommunityOrganisationCompanyId", company(418))
        .put("CountyGovernorId", company(420))
        .put("CountyCouncilId", company(422))
        .put("CommunityOrganizationEconomyAssessment", comment(410))
        .put("SuretyId", company(424))
        .put("ManagerId", company(357))
        .put("StipulatedRemoteWarming", comment(411))
        .money("PriceParkingLot", t.chance(359, 20).then_some(29_000_000))
        .money("PriceStorage", amount(428))
        .money("PriceMiscellaneous", amount(430))
        .put("ParkingLotIncluded", t.chance(360, 40))
        .put("StorageIncluded", t.chance(361, 60))
        .put("MiscellaneousIncluded", false)
        .money("ParkingCommissonBasis", amount(432))
        .money("StorageDocumentCostBasis", amount(434))
        .money("StartupCapital", t.chance(362, 20).then_some(1_500_050))
        .put("BrokerCommissionComment", comment(412))
        .put("OfferedInsuranceComment", comment(413));
    r
}

/// `GET /api/Properties/{caseId}/Conditions`: of this record only `AskingPrice` is known.
pub(crate) fn of_case(case: &Case) -> Record {
    let mut r = Record::with_capacity(1);
    r.money("AskingPrice", case.conditions.case_asking_price);
    if case.trivia.chance(370, 50) {
        r.unknown("ConditionText", "\"Etter avtale\"")
            .unknown("Revision", case.edition.to_string());
    }
    r
}

/// `GET /api/Conditions/Properties/{id}`.
pub(crate) fn of_property(case: &Case) -> Record {
    let t = case.trivia;
    let c = &case.conditions;
    let mut r = Record::with_capacity(21);
    let amount = |n: u64| t.chance(n, 25).then(|| t.between(n + 1, 0, 90_000_000));
    let mut costs = Vec::new();
    costs.push(b'[');
    for (n, cost) in case.seller_costs.iter().take(2).enumerate() {
        if n > 0 {
            costs.push(b',');
        }
        bookkeeping::cost(case, cost).write(&mut costs, None);
    }
    costs.push(b']');
    r.money("AskingPrice", c.property_asking_price)
        .money("PublishedAskingPrice", c.published_asking_price)
        .money("CostForShowings", t.chance(380, 60).then(|| t.between(381, 100, 500_000)))
        .money("MortgageAmount", amount(436))
        .money("MinimumCommission", t.chance(382, 40).then_some(4_500_000))
        .money("MaximumCost", amount(438))
        .money("FixedCommissionSum", t.chance(383, 40).then(|| t.between(384, 1, 9_000_000)))
        .decimal("FixedCommissionOfPriceInDecimals", t.chance(385, 30).then_some(17_500))
        .decimal(
            "CommissionOfSaleSumInDecimals",
            t.chance(386, 70).then(|| t.between(387, 8_000, 35_000)),
        )
        .decimal("EstimatedHours", t.chance(388, 50).then(|| t.between(389, 10, 200) * 250_000))
        .decimal("HourlyRate", t.chance(390, 50).then_some(1_850_505_000))
        .put("InvoiceExpensesAreIncluded", t.chance(391, 70).then(|| t.chance(392, 50)))
        .put("MarketingPackageIsIncluded", t.chance(443, 50).then(|| t.chance(444, 50)))
        .money("SumBrokerCommission", c.commission)
        .put("CommissionDescription", format!("Utgave {} – \"etter avtale\"", case.edition))
        .money("TotalCost", c.commission.map(|ore| ore + 7_777))
        .put("CommissionType", t.pick(393, &["Fixed", "Percent", "HourlyRate", "PercentSteps"]))
        .nested("Costs", String::from_utf8(costs).unwrap_or_default())
        .put("NumberOfShowings", t.chance(394, 80).then(|| t.between(395, 0, 3)))
        .money("AdvancePayment", amount(440))
        .put("IncludeCommonDebt", t.chance(396, 30));
    r
}

/// Resale information (reference 2.12).
pub(crate) fn resale(resale: &Resale) -> Record {
    let mut r = Record::with_capacity(7);
    r.money("OriginalSalePrice", resale.original_sale_price)
        .money("EntryIntoContract", resale.entry_into_contract)
        .money("CustomerChanges", resale.customer_changes)
        .put("OriginalPurchaseContractDate", resale.contract_date)
        .put("OriginalDeveloperId", resale.developer)
        .money("SumOriginalBuyerCosts", resale.sum_original_buyer_costs)
        .money("OtherBuyerCosts", resale.other_buyer_costs);
    r
}
