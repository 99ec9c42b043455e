//! Lines of the four journals and their annotations (observed fields), and the control total.

use super::super::record::{Record, Value};
use super::super::wire::{LocalMs, Ticks};
use super::super::world::dice::Trivia;
use super::super::world::journals::{Annotation, Journal, Line};
use super::super::world::names;
use super::super::world::people::{Basis, Office, Person};

/// The record of a line of an office's journal.
pub(crate) fn line(basis: &Basis, journal: Journal, office: &Office, line: &Line) -> Record {
    let place = Place { basis, office, line, t: Trivia::new(basis.seed ^ 0x10CE, line.number) };
    match journal {
        Journal::CaseJournals => place.of_cases(),
        Journal::DepotJournals => place.of_depot(),
        Journal::RevenueJournals => place.of_revenue(),
        Journal::SettlementJournals => place.of_settlement(),
    }
}

/// The record of an annotation; of case journals it has no offset and no payment change.
pub(crate) fn annotation(journal: Journal, annotation: &Annotation) -> Record {
    let mut r = Record::with_capacity(3);
    if journal == Journal::CaseJournals {
        r.put("AnnotationDate", annotation.at.local()).put("Annotation", annotation.text.clone());
    } else {
        r.put("AnnotationDate", annotation.at)
            .put("Annotation", annotation.text.clone())
            .money("PaymentChange", annotation.change);
    }
    r
}

/// The control total of some revenue lines: what annotations changed counts.
pub(crate) fn sum<'a>(lines: impl Iterator<Item = &'a Line>) -> Record {
    let (mut payment, mut price) = (0, 0);
    for line in lines {
        let changes = line.annotations.iter().flatten().filter_map(|one| one.change);
        payment += line.amount.unwrap_or(0) + changes.sum::<i64>();
        price += line.price;
    }
    let mut r = Record::with_capacity(2);
    r.money("TotalPayment", payment).money("TotalPurchasePrice", price);
    r
}

/// A line in its office.
struct Place<'a> {
    basis: &'a Basis,
    office: &'a Office,
    line: &'a Line,
    t: Trivia,
}

impl Place<'_> {
    fn of_cases(&self) -> Record {
        let (t, line) = (self.t, self.line);
        let mut r = self.annotated(Journal::CaseJournals, 13);
        let statuses = ["Aktiv", "Solgt", "Trukket", "Overlevert"];
        let edition = usize::try_from(line.edition).unwrap_or(0);
        r.put("ReceivedDate", self.received())
            .put("RegistryDescription", self.registry())
            .put("SellerName", self.person(10, 92))
            .put("OwnershipType", t.pick(1, &["Selveier", "Andel", "Aksje", "Feste"]))
            .put("CaseTypeDescription", t.pick(2, &["Salg", "Verdivurdering", "Oppgjør & annet"]))
            .put("Address", self.address())
            .put("CaseDuration", format!("{} dager", t.between(3, 1, 400) + line.edition))
            .put("ResponsibleBrokerName", self.employee(4))
            .put("RealEstateRepresentativeName", self.representative())
            .put("CaseStatus", statuses[(t.between(5, 0, 3).unsigned_abs() as usize + edition) % 4])
            .put("CaseReferralKey", self.case_key());
        self.brokerage(&mut r);
        r
    }

    fn of_depot(&self) -> Record {
        let (t, line) = (self.t, self.line);
        let town = t.pick_ref(6, names::TOWNS);
        let kinds = ["Skjøte", "Pantedokument", "Urådighet", "Obligasjon"];
        let people = ["Seller", "Buyer", "Bank", "Other"];
        let mut r = Record::with_capacity(20);
        r.put("DepotJournalDocumentId", line.number)
            .put("DepotNumber", line.key)
            .put("CaseId", line.case_id)
            .put("CompanyName", self.company())
            .put("OfficeName", self.office.name.clone())
            .put("CaseReferralKey", self.case_key())
            .put("Address", self.address())
            .put("ZipCode", town.zip)
            .put("City", town.city)
            .put("Municipality", town.municipality)
            .money("Amount", line.amount)
            .put("Comment", t.chance(7, 50).then(|| t.pick(8, names::TEXTS)))
            .put("OfficiallyRegistered", self.later(9, 60))
            .put("Type", t.pick(12, &kinds))
            .put(
                "Status",
                t.pick(13, &["None", "Received", "Sent", "CompletedDocument", "Reopened"]),
            )
            .put("Recipient", t.pick(14, &people))
            .put(
                "Licensee",
                if t.chance(15, 20) { Value::Absent } else { t.pick(16, &people).into() },
            )
            .put("LogDate", if t.chance(17, 4) { Value::Null } else { line.at.into() })
            .put("OtherRecipient", self.person(20, 20))
            .put("OtherLicensee", self.person(24, 10));
        r
    }

    fn of_revenue(&self) -> Record {
        let (t, line) = (self.t, self.line);
        let mut r = self.annotated(Journal::RevenueJournals, 17);
        let key = (line.number % 17 != 5)
            .then(|| format!("R{}-{}-{:05}", self.office.id, self.year(), line.key));
        let contract = t.chance(30, 85).then(|| line.at.plus_days(-t.between(31, 5, 90)));
        r.put("ContractDate", contract.map_or(Value::Unset { zoned: true }, Value::Zoned))
            .put("SettlementDate", self.later(32, 70))
            .money("PurchasePrice", line.price)
            .put("RevenueDate", line.at)
            .money("Payment", line.amount)
            .put("RevenueReferralKey", key)
            .put("OwnershipType", t.pick(1, &["Selveier", "Andel", "Aksje", "Feste"]))
            .put("Address", self.address())
            .put("SellerInfo", self.person(10, 90))
            .put("BuyerInfo", self.person(33, 80))
            .put("RegistryDescription", self.registry())
            .put("CaseReferralKey", self.case_key())
            .put("ResponsibleBrokerName", self.employee(4))
            .put("RealEstateRepresentativeName", self.representative())
            .put(
                "Type",
                t.pick(34, &["Commission", "MarketingPackage", "Outlay", "Annet \"nytt\""]),
            );
        self.brokerage(&mut r);
        r
    }

    fn of_settlement(&self) -> Record {
        let (t, line) = (self.t, self.line);
        let mut r = Record::with_capacity(13);
        r.put("Id", line.number)
            .put("OfficeId", self.office.id)
            .put("OfficeName", self.office.name.clone())
            .put("SettlementReferralKey", format!("O{}-{:05}", self.office.id, line.key))
            .put("SentToSettlementTeamDate", line.at)
            .put("ReceivedBySettlementTeam", self.later(9, 75))
            .put("Address", self.address())
            .put("RegistryDescription", self.registry())
            .put("SourceCompanyDescription", t.chance(35, 60).then(|| self.company()))
            .put("SellerInfo", self.person(10, 90))
            .put("BuyerInfo", self.person(33, 90))
            .money("Cost", line.amount.unwrap_or(0))
            .put("SettlementResponsible", self.employee(36));
        r
    }

    /// A record whose annotations are a list inside it: with some, empty, null or left out.
    fn annotated(&self, journal: Journal, fields: usize) -> Record {
        let mut r = Record::with_capacity(fields);
        match &self.line.annotations {
            Some(list) => {
                let list = list.iter().map(|one| annotation(journal, one)).collect();
                r.records("Annotations", Some(list));
            }
            None if self.t.chance(40, 50) => {
                r.records("Annotations", None);
            }
            None => {}
        }
        r
    }

    fn brokerage(&self, r: &mut Record) {
        r.put("OfficeName", self.office.name.clone()).put("BrokerCompanyName", self.company());
    }

    /// The day as people type it.
    fn received(&self) -> LocalMs {
        self.line.typed.unwrap_or_else(|| self.line.at.local())
    }

    /// Some days later, where it has happened at all.
    fn later(&self, n: u64, percent: i64) -> Option<Ticks> {
        let days = self.t.between(n + 100, 1, 40);
        self.t.chance(n + 200, percent).then(|| self.line.at.plus_days(days))
    }

    fn year(&self) -> String {
        self.line.at.zoned().chars().take(4).collect()
    }

    fn case_key(&self) -> String {
        let id = self.line.case_id;
        format!("{}-{:02}-{id:04}", self.office.id, id % 100)
    }

    fn company(&self) -> &'static str {
        self.office.company_name()
    }

    fn address(&self) -> String {
        Person { id: 0, first: "", surname: "", trivia: self.t }.home().0
    }

    fn registry(&self) -> String {
        format!("Gnr. {}, bnr. {}", self.t.between(37, 1, 400), self.t.between(38, 1, 900))
    }

    fn representative(&self) -> Value {
        if self.t.chance(39, 40) { Value::Null } else { self.employee(41).into() }
    }

    fn employee(&self, n: u64) -> String {
        self.t.pick_ref(n, &self.basis.employees).person.name()
    }

    /// The name of somebody, where there is anybody.
    fn person(&self, n: u64, percent: i64) -> Option<String> {
        let id = self.t.between(n + 1, 50_001, 50_000 + self.basis.contacts);
        self.t.chance(n + 2, percent).then(|| Person::of(self.basis.seed, id).name())
    }
}
