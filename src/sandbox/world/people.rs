//! Offices, employees and contacts.

use std::borrow::Cow;

use super::super::wire::Ticks;
use super::dice::{Dice, Trivia};
use super::names;

/// The chain that all of this belongs to.
pub(crate) const CHAIN_ID: i64 = 1;
const FIRST_COMPANY: i64 = 3;
const FIRST_OFFICE: i64 = 11;
const FIRST_EMPLOYEE: i64 = 101;
const FIRST_CONTACT: i64 = 50_001;

/// An office.
#[derive(Debug, Clone)]
pub(crate) struct Office {
    pub(crate) id: i64,
    pub(crate) company: i64,
    pub(crate) name: String,
    pub(crate) active: bool,
    pub(crate) telephone: String,
    pub(crate) accounts: Vec<Account>,
    pub(crate) trivia: Trivia,
}

impl Office {
    /// The name of the broker company that it belongs to.
    pub(crate) fn company_name(&self) -> &'static str {
        let number = usize::try_from(self.company - FIRST_COMPANY).unwrap_or(0);
        names::BROKERAGES[number % names::BROKERAGES.len()]
    }

    pub(crate) fn guid(&self) -> u128 {
        self.trivia.guid(1)
    }
}

/// An account of an office (reference 2.12).
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) id: i64,
    /// Its number among the accounts of the office.
    pub(crate) number: i64,
    pub(crate) description: Option<String>,
    pub(crate) deleted: bool,
    pub(crate) trivia: Trivia,
}

impl Account {
    pub(crate) fn new(of_office: Trivia, office: i64, number: i64) -> Account {
        let trivia = Trivia(of_office.at(1_000 + number.unsigned_abs()));
        let kind = trivia.pick(1, &["Klientkonto", "Driftskonto", "Utlegg & gebyr", "Depot"]);
        Account {
            id: office * 1_000 + number,
            number,
            description: (!trivia.chance(2, 15)).then(|| format!("{kind} {}", number + 1)),
            deleted: number > 0 && trivia.chance(3, 15),
            trivia,
        }
    }
}

/// An employee's belonging to an office, now or earlier (reference 2.15).
#[derive(Debug, Clone)]
pub(crate) struct Affiliation {
    pub(crate) office: i64,
    pub(crate) active: bool,
    pub(crate) preferred: bool,
    pub(crate) roles: Vec<&'static str>,
    pub(crate) trivia: Trivia,
}

impl Affiliation {
    pub(crate) fn new(of_employee: Trivia, office: i64, number: i64, active: bool) -> Affiliation {
        let trivia = Trivia(of_employee.at(2_000 + number.unsigned_abs()));
        let roles = ["Broker", "AssistantBroker", "DisciplineResponsible", "Settlement"];
        let roles = (0..4).zip(roles).filter(|(n, _)| trivia.chance(*n, 35)).map(|(_, role)| role);
        Affiliation { office, active, preferred: active, roles: roles.collect(), trivia }
    }
}

/// An employee; also a contact of type `Employee`, which the contact search does not list.
#[derive(Debug, Clone)]
pub(crate) struct Employee {
    pub(crate) id: i64,
    pub(crate) office: i64,
    pub(crate) company: i64,
    pub(crate) person: Person,
    pub(crate) title: &'static str,
    pub(crate) active: bool,
    pub(crate) telephone: String,
    pub(crate) modified: Ticks,
    /// Earlier ones too, in the order in which they began.
    pub(crate) affiliations: Vec<Affiliation>,
    pub(crate) trivia: Trivia,
}

impl Employee {
    pub(crate) fn guid(&self) -> u128 {
        self.trivia.guid(1)
    }
}

/// Who somebody is: a pure function of the seed and the id, so that a case can name its sellers
/// without asking anybody. What changes about a contact stands in [`Contact`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Person {
    pub(crate) id: i64,
    pub(crate) first: &'static str,
    pub(crate) surname: &'static str,
    pub(crate) trivia: Trivia,
}

impl Person {
    pub(crate) fn of(seed: u64, id: i64) -> Person {
        let trivia = Trivia::new(seed ^ 0xC0, id);
        Person {
            id,
            first: trivia.pick(1, names::FIRST_NAMES),
            surname: trivia.pick(2, names::SURNAMES),
            trivia,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.first, self.surname)
    }

    /// An address under a domain that can never exist.
    pub(crate) fn email(&self) -> String {
        let plain = |text: &str| -> String {
            text.chars()
                .filter_map(|c| match c {
                    'å' | 'Å' => Some('a'),
                    'ø' | 'Ø' => Some('o'),
                    'æ' | 'Æ' => Some('e'),
                    c if c.is_ascii_alphanumeric() => Some(c.to_ascii_lowercase()),
                    _ => None,
                })
                .collect()
        };
        format!("{}.{}{}@example.no", plain(self.first), plain(self.surname), self.id)
    }

    pub(crate) fn phone(&self) -> String {
        format!("+47 {}", self.trivia.between(3, 40_000_000, 49_999_999))
    }

    /// Street with number, index of the town.
    pub(crate) fn home(&self) -> (String, &'static names::Town) {
        let street = self.trivia.pick(4, names::STREETS);
        let town = self.trivia.pick_ref(5, names::TOWNS);
        (format!("{street} {}", self.trivia.between(6, 1, 120)), town)
    }
}

/// A contact: what can change about it.
#[derive(Debug, Clone)]
pub(crate) struct Contact {
    pub(crate) id: i64,
    pub(crate) person: Person,
    /// `Person`, `Company` or `Bank`.
    pub(crate) kind: &'static str,
    pub(crate) modified: Ticks,
    pub(crate) telephone: Option<String>,
    pub(crate) street: Option<String>,
    pub(crate) job: Option<Cow<'static, str>>,
    pub(crate) active: bool,
    pub(crate) said: Option<Said>,
}

/// What somebody said of themselves when they registered.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    pub(crate) first: String,
    pub(crate) surname: String,
    pub(crate) email: Option<String>,
}

impl Contact {
    /// First name and surname.
    pub(crate) fn names(&self) -> (Cow<'static, str>, Cow<'static, str>) {
        match &self.said {
            Some(said) => (said.first.clone().into(), said.surname.clone().into()),
            None => (self.person.first.into(), self.person.surname.into()),
        }
    }

    pub(crate) fn email(&self) -> Option<String> {
        match &self.said {
            Some(said) => said.email.clone(),
            None => (!self.person.trivia.chance(20, 6)).then(|| self.person.email()),
        }
    }
}

/// What never changes in a world: sizes, offices and employees as they were at the start, and the
/// functions that make a contact or a person out of an id.
#[derive(Debug)]
pub(crate) struct Basis {
    pub(crate) seed: u64,
    /// The instant at which the world's history ends and its life begins.
    pub(crate) origin: Ticks,
    pub(crate) cases: i64,
    pub(crate) contacts: i64,
    pub(crate) offices: Vec<Office>,
    pub(crate) employees: Vec<Employee>,
}

impl Basis {
    /// A brokerage that is large enough for its number of cases.
    pub(crate) fn new(seed: u64, origin: Ticks, cases: usize) -> Basis {
        let cases = i64::try_from(cases).unwrap_or(i64::MAX);
        let mut basis = Basis {
            seed,
            origin,
            cases,
            contacts: cases * 2 + 40,
            offices: Vec::new(),
            employees: Vec::new(),
        };
        let offices = (cases / 400).clamp(6, 60);
        basis.offices = (0..offices).map(|n| office(seed, n)).collect();
        let employees = (cases / 40).clamp(36, 600);
        basis.employees = (0..employees).map(|n| basis.employee(n)).collect();
        basis
    }

    fn employee(&self, number: i64) -> Employee {
        let id = FIRST_EMPLOYEE + number;
        let trivia = Trivia::new(self.seed ^ 0xE, id);
        let offices = i64::try_from(self.offices.len()).unwrap_or(1);
        let office = &self.offices[usize::try_from(number % offices).unwrap_or(0)];
        let person = Person::of(self.seed, id);
        Employee {
            id,
            office: office.id,
            company: office.company,
            title: trivia
                .pick(1, &["Eiendomsmegler MNEF", "Megler", "Oppgjørsansvarlig", "Fullmektig"]),
            active: !trivia.chance(2, 8),
            telephone: person.phone(),
            modified: self.origin.plus_ms(-trivia.between(3, 3_600_000, 300 * 86_400_000)),
            affiliations: self.affiliations(office.id, trivia),
            person,
            trivia,
        }
    }

    /// Where an employee of an office has been: for some elsewhere, for some here once before.
    fn affiliations(&self, office: i64, trivia: Trivia) -> Vec<Affiliation> {
        let elsewhere = trivia.pick_ref(40, &self.offices).id;
        let gone = trivia.chance(2, 8);
        let mut offices = Vec::new();
        if trivia.chance(41, 30) {
            offices.push((elsewhere, false));
        }
        if trivia.chance(42, 25) {
            offices.push((office, false));
        }
        offices.push((office, !gone));
        (0..)
            .zip(offices)
            .map(|(n, (id, active))| Affiliation::new(trivia, id, n, active))
            .collect()
    }

    pub(crate) fn office(&self, id: i64) -> &Office {
        let number = usize::try_from(id - FIRST_OFFICE).unwrap_or(0);
        &self.offices[number.min(self.offices.len() - 1)]
    }

    /// Ids of the contacts that the world begins with.
    pub(crate) fn contact_ids(&self) -> std::ops::Range<i64> {
        FIRST_CONTACT..FIRST_CONTACT + self.contacts
    }

    /// A contact as it was at the start.
    pub(crate) fn contact(&self, id: i64) -> Contact {
        let person = Person::of(self.seed, id);
        let mut dice = Dice::new(self.seed ^ 0xC1, id.unsigned_abs());
        let kind = if dice.chance(4) {
            "Company"
        } else if dice.chance(2) {
            "Bank"
        } else {
            "Person"
        };
        // Nearly all were modified within the reach of the contacts feed, some never since.
        let days = if dice.chance(5) { dice.between(366, 520) } else { dice.between(0, 350) };
        let modified =
            Ticks(self.origin.plus_days(-days).0 - dice.between(600_000_000, 864_000_000_000));
        Contact {
            id,
            person,
            kind,
            modified,
            telephone: (!dice.chance(7)).then(|| person.phone()),
            street: (!dice.chance(10)).then(|| person.home().0),
            job: dice.chance(40).then(|| Cow::Borrowed(dice.pick(names::JOB_TITLES))),
            active: !dice.chance(3),
            said: None,
        }
    }

    /// Whether the contact search does not know this contact, only the lookup by id does.
    pub(crate) fn is_unsearchable(&self, id: i64) -> bool {
        id < FIRST_CONTACT || Trivia::new(self.seed ^ 0xC2, id).chance(0, 2)
    }
}

fn office(seed: u64, number: i64) -> Office {
    let id = FIRST_OFFICE + number;
    let trivia = Trivia::new(seed ^ 0x0F, id);
    let company = number % 3;
    let index = usize::try_from(number).unwrap_or(0);
    let brokerage = names::BROKERAGES[usize::try_from(company).unwrap_or(0)];
    let place = names::OFFICES[index % names::OFFICES.len()];
    let town = &names::TOWNS[index % names::TOWNS.len()];
    Office {
        id,
        company: FIRST_COMPANY + company,
        name: format!("{} {} {}", brokerage.trim_end_matches(" AS"), town.city, place),
        active: true,
        telephone: format!("+47 {}", trivia.between(1, 22_000_000, 22_999_999)),
        accounts: (0..trivia.between(8, 1, 5)).map(|n| Account::new(trivia, id, n)).collect(),
        trivia,
    }
}
