//! The columns that rows of the property search and of the project search have in common
//! (observed fields, in their order). Both ways are a pure function of the case.

use super::super::record::{Record, Value};
use super::super::wire::Ticks;
use super::super::world::case::{Case, Moved, Settlement, Status};
use super::super::world::generate::{odd_hour, year_of};
use super::super::world::people::{Basis, CHAIN_ID, Person};
use super::sale_row;

/// The row of a case or project in its search.
pub(crate) fn search_row(basis: &Basis, case: &Case) -> Record {
    let mut r = Record::with_capacity(if case.facts.project { 156 } else { 206 });
    identity(&mut r, basis, case);
    people(&mut r, basis, case);
    place(&mut r, case);
    economy(&mut r, case);
    calendar(&mut r, case);
    statuses(&mut r, case);
    changes(&mut r, case);
    if case.facts.project {
        sale_row::project(&mut r, case);
    } else {
        sale_row::sale(&mut r, basis, case);
    }
    if case.trivia.chance(99, 5) {
        // Fields grow over time: some that no list names.
        r.unknown("BoligmappaStatus", "\"Ukjent\"").unknown("Score", "0.50");
    }
    r
}

fn local(at: Option<Ticks>) -> Value {
    at.map(Ticks::local).into()
}

/// The person of an id, by the name that the platform shows.
fn name_of(basis: &Basis, id: i64) -> String {
    Person::of(basis.seed, id).name()
}

/// One name for an id that may be missing.
fn names(r: &mut Record, basis: &Basis, id: (&'static str, &'static str), who: Option<i64>) {
    r.put(id.0, who).put(id.1, who.map(|who| name_of(basis, who)));
}

fn identity(r: &mut Record, basis: &Basis, case: &Case) {
    let t = case.trivia;
    let office = basis.office(case.facts.office);
    let settlement = case.settler.map(|_| &basis.offices[0]);
    r.put("Id", case.id())
        // Both ids are the same; not every row has the second one.
        .put("CaseId", if t.chance(1, 80) { Value::Int(case.id()) } else { Value::Absent })
        .put("Guid", Value::Guid(case.guid))
        .put("ExternalId", t.chance(2, 20).then(|| format!("X{}", t.between(3, 1, 999_999))))
        .put("ChainId", CHAIN_ID)
        .put("BrokerCompanyId", office.company)
        .put("OfficeId", office.id)
        .put("Office", office.name.clone())
        .put("SettlementCompanyId", settlement.map(|o| o.company))
        .put("SettlementCompanyName", settlement.map(|_| "Oppgjør & Co. AS"))
        .put("SettlementOfficeBrokerCompanyId", settlement.map(|o| o.company))
        .put("SettlementOfficeId", settlement.map(|o| o.id))
        .put("Status", status_text(case.status))
        .put("ExternalStatus", t.chance(5, 10).then_some("Eksport"))
        .put("CaseStatusType", case.status.name())
        .put("CreatedDate", case.created.local())
        .put("CaseReferralKey", format!("{}-{:02}-{:04}", office.id, case.id() % 100, case.id()))
        .put("CaseCategoryType", case.category)
        .put("AssignmentType", case.facts.assignment)
        .put("UnitType", t.pick(4, &["Detached", "Apartment", "Terraced", "Cabin", "Plot"]))
        .put("OwnershipType", case.ownership);
}

fn status_text(status: Status) -> &'static str {
    match status {
        Status::Initial => "Registrert",
        Status::Draft => "Utkast",
        Status::General => "Generell",
        Status::Active => "Aktiv",
        Status::Ready => "Klar",
        Status::BiddingStarted => "Budrunde",
        Status::Reserved => "Reservert",
        Status::SoldWithConditions => "Solgt med forbehold",
        Status::Sold => "Solgt",
        Status::DocumentDelivery => "Overlevert",
        Status::Followup => "Oppfølging",
        Status::Archived => "Arkivert",
        Status::Canceled => "Trukket",
        Status::Lost => "Tapt",
    }
}

fn people(r: &mut Record, basis: &Basis, case: &Case) {
    let t = case.trivia;
    let broker = name_of(basis, case.broker);
    let maybe = |n: u64| t.chance(n, 30).then(|| t.between(n + 1, 50_001, 50_030));
    let initials: String = broker.split(' ').filter_map(|part| part.chars().next()).collect();
    names(r, basis, ("ResponsibleBrokerId", "ResponsibleBrokerName"), Some(case.broker));
    names(r, basis, ("BrokerId", "BrokerName"), Some(case.broker));
    r.put("BrokerInitials", initials);
    names(r, basis, ("AssistantBrokerId", "AssistantBrokerName"), case.assistant);
    names(r, basis, ("AssociateBrokerId", "AssociateBrokerName"), maybe(18));
    names(r, basis, ("AssistantId", "AssistantName"), case.assistant);
    names(r, basis, ("AppraiserId", "AppraiserName"), maybe(10));
    names(r, basis, ("JointOwnerId", "JointOwnerName"), maybe(150));
    names(r, basis, ("BusinessManagerId", "BusinessManagerName"), maybe(12));
    let association = maybe(14);
    r.put("HousingAssociationId", association)
        .put("HousingAssociationName", association.map(|_| "Borettslaget \"Tunet\""))
        .put(
            "HousingAssociationOrganisationNumber",
            association.map(|_| format!("9{:08}", t.between(16, 0, 99_999_999))),
        );
    names(r, basis, ("SettlementResponsibleId", "SettlementResponsibleName"), case.settler);
    parties(r, basis, case, "Seller", ["SellerIds", "Sellers", "SellerEmails", "SellerPhones"]);
}

/// The parties of a role type as four lists: ids, names, e-mail, telephone.
pub(crate) fn parties(
    r: &mut Record,
    basis: &Basis,
    case: &Case,
    kind: &str,
    fields: [&'static str; 4],
) {
    let who: Vec<Person> = case.contacts_as(kind).map(|id| Person::of(basis.seed, id)).collect();
    let none = || match case.trivia.between(17, 0, 2) {
        0 => Value::Null,
        1 => Value::Absent,
        _ => Value::List(Vec::new()),
    };
    let list = |what: &dyn Fn(&Person) -> Value| -> Value {
        if who.is_empty() { none() } else { Value::List(who.iter().map(what).collect()) }
    };
    let [ids, named, emails, phones] = fields;
    r.put(ids, list(&|p| Value::Int(p.id)))
        .put(named, list(&|p| p.name().into()))
        .put(emails, list(&|p| p.email().into()))
        .put(phones, list(&|p| p.phone().into()));
}

fn place(r: &mut Record, case: &Case) {
    let t = case.trivia;
    let person = Person { id: 0, first: "", surname: "", trivia: t };
    let (street, town) = person.home();
    r.put("Address", street.clone())
        .put("City", town.city)
        .put("Municipality", town.municipality)
        .put("MunicipalityNumber", town.number)
        .put("Country", if t.chance(20, 90) { "Norge".into() } else { Value::Null })
        .put("County", town.county)
        .put("Area", if t.chance(21, 60) { town.city.into() } else { Value::Absent })
        .put(
            "AreaInMarketing",
            t.pick(22, &["Sentralt", "Ved sjøen 🌊", "Landlig & rolig", "\"Beste vest\""]),
        )
        .put("ZipCode", town.zip)
        .put("Street", street)
        .put("Knr", town.number)
        .put("Gnr", t.between(23, 1, 400))
        .put("Bnr", t.between(24, 1, 2_000))
        .put("Snr", t.chance(25, 40).then(|| t.between(26, 1, 90)))
        .put("Fnr", t.chance(27, 10).then_some(0_i64))
        .put("CooperativeNumber", t.chance(28, 20).then(|| t.between(29, 1, 300)))
        .put("ApartmentNumber", t.chance(30, 50).then(|| format!("H0{}02", t.between(31, 1, 9))))
        .decimal("LandLotSize", t.chance(32, 60).then(|| t.between(33, 2_000, 90_000) * 125_000));
}

fn economy(r: &mut Record, case: &Case) {
    let t = case.trivia;
    // Opening a case is what a change is made by; volatile.
    r.put("LastOpenedDate", case.facts.dates.modified.local())
        .put("LastPublishedDate", local(case.published))
        .put("LastStatusChangeDate", local(case.reached.iter().flatten().copied().max()))
        .put(
            "LastHomePublishDate",
            if t.chance(40, 30) { Value::Unset { zoned: false } } else { local(case.published) },
        )
        .put("LaunchDay", local(case.published.map(|at| at.plus_days(1))))
        .put(
            "AssignmentInfoTypes",
            if t.chance(41, 30) {
                Value::List(vec!["Project".into(), "Resale".into()])
            } else {
                Value::List(Vec::new())
            },
        )
        .put("CasePhaseType", case.status.phase(case.published.is_some()))
        .money("SellerSum", sum(case, true))
        .put("BuyerIds", ids(case.contacts_as("Buyer")))
        .money("BuyerSum", sum(case, false))
        .money("BrokerSum", t.chance(42, 60).then(|| t.between(43, -90_000, 9_000_000)))
        .money("BankSum", Some(0))
        .money("CommissionSum", case.conditions.commission)
        .put(
            "ContractStartDate",
            match t.between(44, 0, 5) {
                // Typed by people who do not think of clock changes.
                0 => Value::Local(odd_hour(year_of(case.created), true)),
                1 => Value::Local(odd_hour(year_of(case.created), false)),
                _ => local(case.reached(Status::Active)),
            },
        )
        .put("ContractEndDate", local(case.reached(Status::Active).map(|at| at.plus_days(180))))
        .put(
            "EconomyNotes",
            if t.chance(45, 20) {
                Value::List(vec!["Faktura \"sendt\"".into(), "Linje 1\nLinje 2".into()])
            } else {
                Value::Null
            },
        )
        .put("IsReady", yes(case.reached(Status::Ready).is_some()))
        .put("IsMarketable", yes(case.published.is_some()))
        .put("IsSold", yes(case.reached(Status::Sold).is_some()));
}

fn yes(it_is: bool) -> &'static str {
    if it_is { "Ja" } else { "Nei" }
}

fn sum(case: &Case, seller: bool) -> Option<i64> {
    let chosen = case.costs(seller).iter().filter(|cost| cost.selected && !cost.deleted);
    let amounts: Vec<i64> = chosen.map(|cost| cost.amount).collect();
    (!amounts.is_empty()).then(|| amounts.iter().sum())
}

fn ids(list: impl Iterator<Item = i64>) -> Value {
    Value::List(list.map(Value::Int).collect())
}

/// Fields derived from the case's activities (reference 2.3).
fn calendar(r: &mut Record, case: &Case) {
    let t = case.trivia;
    let showings: Vec<_> = case.activities.iter().filter(|a| a.kind == "ShowingActivity").collect();
    let dates: Vec<Ticks> = showings.iter().filter_map(|a| a.at).collect();
    let transfer = case.transfer_date();
    r.put("TransferDate", local(transfer))
        .put("TransferLocation", transfer.map(|_| "På eiendommen"))
        .put("InspectionDate", local(case.latest("InspectionActivity")))
        .put("ShowingDate", local(dates.iter().copied().max()))
        .put("ShowingDates", Value::List(dates.iter().map(|at| at.local().into()).collect()))
        .put("ShowingIds", ids(showings.iter().filter(|a| !a.private).map(|a| a.id)))
        .put("StakeholderIds", ids(case.contacts_as("Stakeholder")))
        .put(
            "InterestedStakeholderIds",
            if t.chance(50, 50) {
                Value::Absent
            } else {
                ids(case.contacts_as("Stakeholder").take(1))
            },
        )
        .put("ContractMeetingDate", local(case.latest("ContractMeetingActivity")))
        .put("ContractSigningDate", local(case.reached(Status::Sold).map(|at| at.plus_days(7))))
        .put("NextStipulationDeadline", local(t.chance(54, 20).then(|| case.created.plus_days(60))))
        .put(
            "StipulationComments",
            if t.chance(55, 80) {
                Value::Null
            } else {
                Value::List(vec!["Forbehold om finansiering".into(), "\"Salg av egen\"".into()])
            },
        )
        .put(
            "Plaintiffs",
            if case.facts.assignment == "Foreclosure" {
                Value::List(vec!["Fjordbanken".into()])
            } else {
                Value::List(Vec::new())
            },
        )
        .put(
            "DistrictCourtCaseNumbers",
            if case.facts.assignment == "Foreclosure" {
                Value::List(vec![format!("{}-TVA", case.id()).into()])
            } else {
                Value::Absent
            },
        )
        .put("EnergyLabel", t.pick(51, &["A", "B", "C", "D", "E", "F", "G"]))
        .put(
            "HeatingGrade",
            t.chance(52, 80).then(|| t.pick(53, &["Red", "Orange", "Yellow", "Green"])),
        )
        .put("SentToSettlementTeam", local(case.settled[Settlement::Transferred as usize]))
        .put("ReceivedBySettlementTeam", local(case.settled[Settlement::Received as usize]));
}

fn statuses(r: &mut Record, case: &Case) {
    let dates = &case.facts.dates;
    let mut pair = |first: &'static str, last: &'static str, at: Option<Ticks>| {
        r.put(first, local(at)).put(last, local(at));
    };
    let activated = dates.get(Moved::CaseActivated);
    pair("CaseActivatedDate", "LastCaseActivatedDate", activated);
    pair("CaseReadyDate", "LastCaseReadyDate", case.reached(Status::Ready));
    r.put("CaseSoldDate", local(dates.get(Moved::CaseSold)));
    let mut pair = |first: &'static str, last: &'static str, status: Status| {
        let at = local(case.reached(status));
        r.put(first, at.clone()).put(last, at);
    };
    pair("CaseArchivedDate", "LastCaseArchivedDate", Status::Archived);
    pair("CaseStatusGeneralDate", "LastCaseStatusGeneralDate", Status::General);
    pair("CaseStatusInitialDate", "LastCaseStatusInitialDate", Status::Initial);
    pair("CaseStatusDraftDate", "LastCaseStatusDraftDate", Status::Draft);
    pair("CaseStatusReservedDate", "LastCaseStatusReservedDate", Status::Reserved);
    pair(
        "CaseStatusBiddingStartedDate",
        "LastCaseStatusBiddingStartedDate",
        Status::BiddingStarted,
    );
    pair("CaseStatusCanceledDate", "LastCaseStatusCanceledDate", Status::Canceled);
    pair("CaseStatusFollowupDate", "LastCaseStatusFollowupDate", Status::Followup);
    pair("CaseStatusLostDate", "LastCaseStatusLostDate", Status::Lost);
    let mut pair = |first: &'static str, last: &'static str, state: Settlement| {
        let at = local(case.settled[state as usize]);
        r.put(first, at.clone()).put(last, at);
    };
    pair("SettlementWaitingDate", "LastSettlementWaitingDate", Settlement::Waiting);
    pair("SettlementGeneralDate", "LastSettlementGeneralDate", Settlement::General);
    pair("TransferredToSettlementDate", "LastTransferredToSettlementDate", Settlement::Transferred);
    pair("SettlementReceivedDate", "LastSettlementReceivedDate", Settlement::Received);
    pair("DeedSentToRegistrationDate", "LastDeedSentToRegistrationDate", Settlement::DeedSent);
    pair("SettlementReadyDate", "LastSettlementReadyDate", Settlement::Ready);
    pair("SettlementDoneDate", "LastSettlementDoneDate", Settlement::Completed);
    pair("SettlementArchivedDate", "LastSettlementArchivedDate", Settlement::Archived);
}

/// The change dates as the index keeps them: the feed's, rounded to the millisecond.
fn changes(r: &mut Record, case: &Case) {
    for which in [
        Moved::Bid,
        Moved::Description,
        Moved::CaseEntity,
        Moved::Image,
        Moved::Attachment,
        Moved::Transaction,
        Moved::Publication,
        Moved::Activity,
    ] {
        r.put(which.field(), local(case.facts.dates.get(which)));
    }
    let t = case.trivia;
    r.put("EtinglysingCaseStatusType", t.chance(152, 30).then_some("Registered"))
        .put("UseFactoringCategory", "None");
}
