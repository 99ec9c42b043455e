//! The columns that only one of the two case searches has (observed fields).

use super::super::record::{Record, Value};
use super::super::wire::Ticks;
use super::super::world::case::{Case, Moved, Status};
use super::super::world::names;
use super::super::world::people::{Basis, Person};

const AREAS: [&str; 14] = [
    "LivingArea",
    "GrossArea",
    "GrossInternalArea",
    "GrossInternalAreaTo",
    "GrossExternalArea",
    "GrossExternalAreaTo",
    "EnclosedBalconyArea",
    "EnclosedBalconyAreaTo",
    "OpenArea",
    "OpenAreaTo",
    "TotalFloorArea",
    "LowCeilingArea",
    "FloorSpace",
    "NumberOfParkingLots",
];

fn local(at: Option<Ticks>) -> Value {
    at.map(Ticks::local).into()
}

/// The columns of the property search alone.
pub(crate) fn sale(r: &mut Record, basis: &Basis, case: &Case) {
    let t = case.trivia;
    let sold = case.facts.dates.get(Moved::CaseSold);
    r.put("RevenueReferralKey", sold.map(|_| format!("R-{}", case.id())))
        .money("RevenuePayment", sold.and(case.conditions.commission))
        .put("SoldDate", local(sold))
        .put("NumberOfBedrooms", t.chance(60, 90).then(|| t.between(61, 0, 6)))
        .put("NumberOfRooms", t.between(62, 1, 9))
        .put("NumberOfBathrooms", t.between(63, 1, 3));
    for (n, name) in AREAS.into_iter().enumerate() {
        let n = 70 + 2 * n as u64;
        if name == "NumberOfParkingLots" {
            r.put(name, t.chance(n, 50).then(|| t.between(n + 1, 0, 3)));
        } else {
            // Quarters of a square metre: no areas have more decimals than that here.
            r.decimal(name, t.chance(n, 70).then(|| t.between(n + 1, 60, 1_600) * 250_000));
        }
    }
    r.put("Storey", t.chance(110, 60).then(|| t.between(111, -1, 12)))
        .put("IsBasement", t.chance(112, 80).then(|| t.chance(113, 10)))
        .put("BuiltYear", t.chance(114, 90).then(|| t.between(115, 1880, 2025)));
    prices(r, case);
    bids(r, basis, case);
    r.put("SettlementStatus", case.settlement().map(|state| state.name()))
        .put("SettlementStatusString", case.settlement().map(|state| state.name()))
        .put("ProjectId", case.project_id)
        .put("ProjectStepName", case.project_id.map(|_| "Salgstrinn 1"))
        .put("ProjectStepStatus", case.project_id.map(|_| "Aktiv"))
        .put("ProjectMasterName", case.project_id.map(|_| t.pick(140, names::PROJECTS)))
        .put("ProjectMasterId", case.project_id.map_or(Value::Absent, Value::Int))
        .money("CommonDebt", case.common.as_ref().and_then(|common| common.debt));
    let bidders: Vec<i64> = case.bids.iter().map(|bid| bid.contact).collect();
    r.put("BidderIds", Value::List(bidders.into_iter().map(Value::Int).collect()))
        .put(
            "VerdictDate",
            if t.chance(123, 80) { Value::Unset { zoned: false } } else { local(sold) },
        )
        .put("DisseminationDate", local(sold.filter(|_| t.chance(124, 30))))
        .put("CourtCaseDate", local(t.chance(125, 10).then(|| case.created.plus_days(9))))
        .put("ReservationCreatedDate", local(case.reached(Status::Reserved)))
        .put(
            "ReservationExpirationDate",
            local(case.reached(Status::Reserved).map(|at| at.plus_days(2))),
        )
        .put("SellerInsuranceType", t.pick(120, &["Unknown", "Yes", "SellerNo", "TermsNo"]))
        .put(
            "CustomData",
            if t.chance(121, 10) { "{\"kampanje\":\"vår\"}".into() } else { Value::Null },
        )
        .put("SaleTransactionType", if t.chance(122, 90) { "Ordinary".into() } else { Value::Null })
        .put("DocumentDeliveryDate", local(case.reached(Status::DocumentDelivery)))
        .put("LastDocumentDeliveryDate", local(case.reached(Status::DocumentDelivery)));
}

fn prices(r: &mut Record, case: &Case) {
    let t = case.trivia;
    let difference = match (case.asking_price, case.sale_price) {
        (Some(asking), Some(sale)) => Some(sale - asking),
        _ => None,
    };
    // Øre per square metre to millionths of a krone per square metre.
    let per_area = |ore: i64| ore * 10_000 / t.between(130, 20, 300);
    r.money("AskingPrice", case.asking_price)
        .money("SalePrice", case.sale_price)
        .money("AskingAndSalePriceDifference", difference)
        .decimal("PricePerFloorSpace", case.asking_price.map(per_area))
        .decimal("PricePerPrimaryRoomSpace", case.sale_price.map(per_area));
}

fn bids(r: &mut Record, basis: &Basis, case: &Case) {
    let last = case.bids.last();
    let accepted = case.bids.iter().filter_map(|bid| bid.accepted).max();
    r.put("BidAcceptedDate", local(accepted))
        .put("ActiveBidDate", local(last.map(|bid| bid.at)))
        .money("ActiveBidAmount", last.map(|bid| bid.amount))
        .put("ActiveBidDueDate", local(last.map(|bid| bid.due)));
    let buyers: Vec<Person> =
        case.contacts_as("Buyer").map(|id| Person::of(basis.seed, id)).collect();
    let list = |what: &dyn Fn(&Person) -> Value| -> Value {
        Value::List(buyers.iter().map(what).collect())
    };
    r.put("Buyers", list(&|p| p.name().into()))
        .put("BuyerEmails", list(&|p| p.email().into()))
        .put("BuyerPhones", list(&|p| p.phone().into()))
        .put("BuyerZipCodes", list(&|p| p.home().1.zip.into()));
}

/// The columns of the project search alone.
pub(crate) fn project(r: &mut Record, case: &Case) {
    let t = case.trivia;
    let name = t.pick(140, names::PROJECTS);
    let master = t.chance(143, 30).then(|| t.between(144, 1_000, 1_100));
    r.put("MasterProjectId", master)
        .put("MasterProjectName", master.map(|_| name))
        .put("IsMasterProject", t.chance(141, 30))
        .put("ProjectStep", "Salgstrinn 1")
        .put("ProjectStepNumber", t.between(142, 1, 4).to_string())
        .put("ProjectName", name);
}
