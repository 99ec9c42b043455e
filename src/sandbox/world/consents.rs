//! Processing bases and who has given them (reference 2.11).

use super::super::wire::Ticks;
use super::World;
use super::act::{ListEdit, Outcome};
use super::dice::{Dice, Trivia};
use super::people::Basis;

/// A version of a processing basis.
#[derive(Debug, Clone)]
pub(crate) struct ProcessingBasis {
    pub(crate) id: i64,
    pub(crate) version: i64,
    pub(crate) newest: bool,
    pub(crate) active: bool,
    pub(crate) modified: Ticks,
    pub(crate) description: Option<String>,
    pub(crate) category: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) system: &'static str,
    pub(crate) trivia: Trivia,
}

impl ProcessingBasis {
    /// The same in all versions.
    pub(crate) fn guid(&self) -> u128 {
        self.trivia.guid(0)
    }
}

/// A basis that a contact has given.
#[derive(Debug, Clone)]
pub(crate) struct Relation {
    pub(crate) id: i64,
    pub(crate) basis: i64,
    pub(crate) version: i64,
    pub(crate) contact: i64,
    pub(crate) case_id: Option<i64>,
    /// When it was added to the contact; searches go by it.
    pub(crate) added: Ticks,
    pub(crate) checked: bool,
    pub(crate) checked_at: Option<Ticks>,
    pub(crate) checked_by: Option<i64>,
    pub(crate) delete_on_status_reached: bool,
    pub(crate) source: &'static str,
    pub(crate) trivia: Trivia,
}

/// Categories, types and system types, by turns.
const KINDS: &[(&str, &str, &str)] = &[
    ("Standalone", "Consents", "NewsLetter"),
    ("SpecificCase", "Contracts", "IsStakeholder"),
    ("SimilarCases", "Consents", "Manual"),
    ("Lead", "Contracts", "IsSeller"),
    ("BankLead", "Consents", "CustomerRegistration"),
    ("SpecificCase", "LegitimateInterest", "NyKategori"),
];

/// Bases and relations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consents {
    /// All versions, in the order of id and version.
    pub(crate) bases: Vec<ProcessingBasis>,
    /// In the order in which they were added.
    pub(crate) relations: Vec<Relation>,
    added: i64,
}

impl Consents {
    /// What the world begins with: some bases with several versions, and about half of the contacts
    /// with a relation.
    pub(crate) fn of_seed(basis: &Basis) -> Consents {
        let mut dice = Dice::new(basis.seed ^ 0xC05E, 0);
        let mut consents = Consents::default();
        for id in 301..309 {
            let versions = dice.between(1, 4);
            for version in 1..=versions {
                let modified = basis.origin.plus_days(-900 + version * 200);
                consents.bases.push(of_id(basis, id, version, version == versions, modified));
            }
        }
        let many = basis.contacts / 2 + 20;
        for n in 0..many {
            // Most of the last years, some of long ago.
            let days = if n < 5 { 2_500 } else { 800 };
            let at = basis.origin.plus_days(-days + (days - 1) * n / many);
            let at = at.plus_ms(dice.between(-40_000_000, 40_000_000));
            let contact = 50_001 + dice.below(basis.contacts);
            let case_id = dice
                .chance(50)
                .then(|| super::generate::case_id(basis.seed, dice.below(basis.cases.max(1))));
            let chosen = dice.below(8) + 301;
            consents.add(basis.seed, chosen, contact, case_id, at, "System");
        }
        consents.relations.sort_by_key(|relation| (relation.added, relation.id));
        consents
    }

    /// The versions of a basis.
    pub(crate) fn versions(&self, id: i64) -> impl Iterator<Item = &ProcessingBasis> {
        self.bases.iter().filter(move |one| one.id == id)
    }

    /// Adds a relation with the newest version of a basis; its id.
    pub(crate) fn add(
        &mut self,
        seed: u64,
        basis: i64,
        contact: i64,
        case_id: Option<i64>,
        at: Ticks,
        source: &'static str,
    ) -> i64 {
        self.added += 1;
        let id = 400_000 + self.added;
        let trivia = Trivia::new(seed ^ 0xC051, id);
        let checked = trivia.chance(1, 80);
        self.relations.push(Relation {
            id,
            basis,
            version: self.versions(basis).map(|one| one.version).max().unwrap_or(1),
            contact,
            case_id,
            added: at,
            checked,
            checked_at: checked.then_some(at),
            checked_by: trivia.chance(2, 40).then_some(101),
            delete_on_status_reached: trivia.chance(3, 10),
            source,
            trivia,
        });
        id
    }
}

fn of_id(basis: &Basis, id: i64, version: i64, newest: bool, modified: Ticks) -> ProcessingBasis {
    let index = usize::try_from(id).unwrap_or(0) % KINDS.len();
    let (category, kind, system) = KINDS[index];
    let trivia = Trivia::new(basis.seed ^ 0xC050, id);
    ProcessingBasis {
        id,
        version,
        newest,
        active: true,
        modified,
        description: (!trivia.chance(1, 15))
            .then(|| format!("Samtykke nr. {id}, \"utgave\" {version} <b>gjelder</b>")),
        category,
        kind,
        system,
        trivia,
    }
}

impl World {
    /// A basis comes, gets a new version, or is no longer active (and stays in its history).
    pub(super) fn edit_bases(&mut self, edit: ListEdit) -> Result<Outcome, String> {
        let at = self.stamp();
        let bases = &mut self.consents.bases;
        let id = match edit {
            ListEdit::Added => {
                let id = bases.last().map_or(301, |last| last.id + 1);
                bases.push(of_id(&self.basis, id, 1, true, at));
                id
            }
            ListEdit::Changed => {
                let newest = bases.iter().position(|one| one.newest && one.active);
                let index = newest.ok_or("there is no active processing basis")?;
                bases[index].newest = false;
                let (id, version) = (bases[index].id, bases[index].version + 1);
                bases.insert(index + 1, of_id(&self.basis, id, version, true, at));
                id
            }
            ListEdit::Removed => {
                let last = bases.iter_mut().rev().find(|one| one.newest && one.active);
                let last = last.ok_or("there is no active processing basis")?;
                (last.active, last.modified) = (false, at);
                last.id
            }
        };
        Ok(outcome("processing basis", edit, id))
    }

    /// A contact gives a basis, takes one back, or the record of it goes.
    pub(super) fn edit_relations(&mut self, edit: ListEdit) -> Result<Outcome, String> {
        let at = self.stamp();
        let id = match edit {
            ListEdit::Added => {
                let contact = 50_001 + self.dice.below(self.basis.contacts);
                self.consents.add(self.basis.seed, 301, contact, None, at, "Manual")
            }
            ListEdit::Changed => {
                let first = self.consents.relations.iter_mut().find(|one| one.checked);
                let first = first.ok_or("nobody has given a processing basis")?;
                // When it was added stays as it was: no window shows that it was taken back.
                first.checked = false;
                first.checked_by = Some(101);
                first.id
            }
            ListEdit::Removed => {
                let middle = self.consents.relations.len() / 2;
                if self.consents.relations.is_empty() {
                    return Err("nobody has given a processing basis".to_owned());
                }
                self.consents.relations.remove(middle).id
            }
        };
        Ok(outcome("relation", edit, id))
    }
}

fn outcome(what: &str, edit: ListEdit, id: i64) -> Outcome {
    Outcome { what: format!("{what} {edit:?}"), ids: vec![id], ..Outcome::default() }
}
