//! Entry definitions: what a booking means (reference 2.12).

use super::dice::Trivia;

/// A definition that every broker company has prepared, and through which bookings are made.
#[derive(Debug)]
pub(crate) struct EntryDefinition {
    pub(crate) id: i64,
    pub(crate) name: &'static str,
    /// True: only drafts may be created through the API; false: only booked entries.
    pub(crate) is_draft: bool,
    /// Millionths.
    pub(crate) vat: i64,
    pub(crate) credit_account: i64,
    pub(crate) debit_account: i64,
}

const fn definition(
    id: i64,
    name: &'static str,
    is_draft: bool,
    vat: i64,
    credit_account: i64,
    debit_account: i64,
) -> EntryDefinition {
    EntryDefinition { id, name, is_draft, vat, credit_account, debit_account }
}

/// The definitions that every broker company has prepared.
pub(crate) const DEFINITIONS: &[EntryDefinition] = &[
    definition(201, "Provisjon", false, 250_000, 3000, 1500),
    definition(202, "Markedspakke", true, 250_000, 3010, 1500),
    definition(203, "Dokumentavgift", false, 0, 2900, 1501),
    definition(204, "Tinglysing", true, 0, 2901, 1501),
    definition(205, "Utlegg", true, 120_000, 3020, 1502),
    definition(206, "Oppgjørshonorar", false, 250_000, 3030, 1500),
];

/// The definition of an id.
pub(crate) fn definition_of(id: i64) -> Option<&'static EntryDefinition> {
    DEFINITIONS.iter().find(|definition| definition.id == id)
}

/// Case categories (reference 2.12).
pub(crate) const CATEGORIES: &[&str] = &[
    "Unknown",
    "PropertyForSale",
    "Industry",
    "Construction",
    "Plot",
    "HolidayHome",
    "ResidentialApartment",
    "Condominium",
    "Local",
    "PropertyForRent",
];

/// How many there are: more than a default page.
const COUNT: i64 = 108;

/// A definition as the lists show it.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// Øre.
    pub(crate) default_amount: i64,
    /// Millionths.
    pub(crate) vat: Option<i64>,
    pub(crate) credit_account: i64,
    pub(crate) debit_account: i64,
    pub(crate) deleted: bool,
    pub(crate) trivia: Trivia,
}

impl Definition {
    /// Whether it is offered for cases of a category: for sales all are.
    pub(crate) fn is_for(&self, category: &str) -> bool {
        let number = CATEGORIES.iter().position(|known| *known == category);
        let number = number.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
        category == "PropertyForSale" || self.trivia.chance(100 + number, 30)
    }
}

/// The definitions that the world begins with: those that bookings are made through, and others.
pub(crate) fn of_seed(seed: u64) -> Vec<Definition> {
    (201..201 + COUNT).map(|id| of_id(seed, id)).collect()
}

/// The definition that an id begins with.
pub(crate) fn of_id(seed: u64, id: i64) -> Definition {
    let trivia = Trivia::new(seed ^ 0xDEF, id);
    let prepared = definition_of(id);
    let name = match prepared {
        Some(known) => known.name.to_owned(),
        None => format!("Utlegg \"{}\" & annet", id - 200),
    };
    Definition {
        id,
        name,
        description: trivia.chance(1, 60).then(|| format!("Gjelder <i>post</i> {id} – se håndbok")),
        default_amount: trivia.between(2, 0, 900) * trivia.between(3, 1, 9_999),
        vat: match prepared {
            Some(known) => Some(known.vat),
            None => trivia.chance(4, 85).then(|| trivia.pick(5, &[0, 120_000, 150_000, 250_000])),
        },
        credit_account: prepared.map_or(3_100 + id, |known| known.credit_account),
        debit_account: prepared.map_or(1_500 + id % 7, |known| known.debit_account),
        deleted: prepared.is_none() && trivia.chance(6, 6),
        trivia,
    }
}
