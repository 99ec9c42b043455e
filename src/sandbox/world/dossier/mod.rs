//! What is written about a case: publications, files, notes, and the texts about the property.
//!
//! Like the economy it is made when somebody asks, and kept once the case has changed.

mod change;
mod files;
mod texts;

use std::borrow::Cow;
use std::sync::Arc;

use super::super::wire::{LocalMs, Ticks};
use super::case::{Case, Status};
use super::dice::Dice;
use super::generate::case_number;
use super::names;
use super::people::Basis;
pub(crate) use change::{change, date};
pub(crate) use files::{ATTACHMENTS, Access, File, FileKind, Media, Upload};

/// What is written about a case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dossier {
    pub(crate) publications: Vec<Publication>,
    pub(crate) files: Vec<File>,
    pub(crate) notes: Vec<Note>,
    pub(crate) information: Option<Information>,
    pub(crate) association: Option<Association>,
    pub(crate) uses_sale_text: bool,
    pub(crate) sale_texts: Vec<SaleText>,
    /// The number that the next thing of it gets, within the case's own range of ids.
    next: i64,
}

/// A publication (reference 2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publication {
    pub(crate) id: i64,
    pub(crate) provider: &'static str,
    pub(crate) status: &'static str,
    pub(crate) separately: bool,
}

/// A note that the case owns (reference 2.10).
#[derive(Debug, Clone)]
pub(crate) struct Note {
    pub(crate) id: i64,
    pub(crate) message: Cow<'static, str>,
    pub(crate) created: Ticks,
    pub(crate) created_by: Option<i64>,
    pub(crate) kind: Cow<'static, str>,
    /// None: null, or left out.
    pub(crate) contacts: Option<Vec<i64>>,
    pub(crate) cases: Option<Vec<i64>>,
    pub(crate) important: bool,
}

impl Note {
    /// Whether `Notes - Read` is enough to see it (reference 4.10).
    pub(crate) fn is_overview(&self) -> bool {
        self.kind != "Economics"
    }
}

/// The texts about a property (observed fields).
#[derive(Debug, Clone)]
pub(crate) struct Information {
    /// How often they were edited.
    pub(crate) edition: i64,
    pub(crate) insurance: &'static str,
    pub(crate) details: Option<Cow<'static, str>>,
    /// Without offset, as people typed it.
    pub(crate) completion: Option<LocalMs>,
    pub(crate) permit_registered: Option<LocalMs>,
    pub(crate) permit_expires: Option<LocalMs>,
}

/// The housing association of a unit (reference 2.16).
#[derive(Debug, Clone)]
pub(crate) struct Association {
    pub(crate) id: i64,
    pub(crate) name: Cow<'static, str>,
    pub(crate) active: bool,
}

/// A section of the dynamic sale text (reference 2.14).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SaleText {
    pub(crate) id: i64,
    pub(crate) parent: Option<i64>,
    pub(crate) header: Cow<'static, str>,
    pub(crate) text: Option<Cow<'static, str>>,
    pub(crate) level: i64,
    pub(crate) hidden: bool,
    pub(crate) error: Option<&'static str>,
    pub(crate) updated: Ticks,
}

/// Where cases are published (field notes, `PublicationProviderType`).
const PROVIDERS: &[&str] = &["Finn", "Hjem", "LocalProvider", "WreHome", "FinnComingForSale"];

/// Reference 2.6, and one that nobody listed.
const PUBLICATION_STATUSES: &[&str] =
    &["Published", "NotPublished", "PublishFailed", "Paused", "Removed", "PublishQueued"];

impl Dossier {
    fn of_seed(basis: &Basis, case: &Case) -> Dossier {
        let mut dice = Dice::new(basis.seed ^ 0xD05, case.id().unsigned_abs());
        let mut dossier = Dossier::default();
        let at = case.reached(Status::Active).unwrap_or(case.created);
        if case.published.is_some() {
            for provider in PROVIDERS.iter().take(usize::try_from(dice.between(1, 4)).unwrap_or(1))
            {
                let status =
                    if dice.chance(70) { "Published" } else { dice.pick(PUBLICATION_STATUSES) };
                dossier.add_publication(case.id(), provider, status, dice.chance(10));
            }
        }
        dossier.files = files::of_seed(case, at, &mut dice);
        let many = if case_number(case.id()) == 9 { 120 } else { dice.below(5) };
        for n in 0..many {
            dossier.add_note(case, at.plus_ms(n * 86_400_001 + dice.below(9_999)), &mut dice);
        }
        dossier.information = texts::information(case, &mut dice);
        dossier.association = texts::association(case, &mut dice);
        dossier.uses_sale_text = dice.chance(60);
        for _ in 0..dice.between(2, 7) {
            dossier.add_sale_text(case, at, &mut dice);
        }
        dossier
    }

    /// A fresh id, apart from those of the other things on the case.
    pub(crate) fn next_id(&mut self, case_id: i64) -> i64 {
        self.next += 1;
        case_id * 10_000 + 7_000 + self.next
    }

    fn add_publication(
        &mut self,
        case_id: i64,
        provider: &'static str,
        status: &'static str,
        separately: bool,
    ) -> i64 {
        let id = self.next_id(case_id);
        self.publications.push(Publication { id, provider, status, separately });
        id
    }

    /// Creates the publications that do not exist yet, as a read that is none does.
    pub(crate) fn create_publications(&mut self, case_id: i64) {
        for provider in PROVIDERS {
            if !self.publications.iter().any(|known| known.provider == *provider) {
                self.add_publication(case_id, provider, "NotPublished", false);
            }
        }
    }

    fn add_note(&mut self, case: &Case, at: Ticks, dice: &mut Dice) -> i64 {
        let id = self.next_id(case.id());
        let some = |dice: &mut Dice, id: i64| match dice.below(3) {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(vec![id]),
        };
        let seller = case.roles.first().map_or(case.broker, |role| role.contact);
        self.notes.push(Note {
            id,
            message: Cow::Borrowed(dice.pick(names::TEXTS)),
            created: at,
            created_by: dice.chance(85).then_some(case.broker),
            kind: Cow::Borrowed(match dice.below(20) {
                0..6 => "Economics",
                6 => "Konfidensielt",
                _ => "Overview",
            }),
            contacts: some(dice, seller),
            cases: some(dice, case.id()),
            important: dice.chance(20),
        });
        id
    }

    fn add_sale_text(&mut self, case: &Case, at: Ticks, dice: &mut Dice) -> i64 {
        let id = self.next_id(case.id());
        let parent = self.sale_texts.last().filter(|_| dice.chance(60)).map(|last| last.id);
        let text = match dice.below(10) {
            0 => None,
            1 => Some(Cow::Owned(names::long_text(usize::try_from(id % 97).unwrap_or(0)))),
            _ => Some(Cow::Borrowed(dice.pick(names::TEXTS))),
        };
        self.sale_texts.push(SaleText {
            id,
            parent,
            header: format!("<h2>Avsnitt {} – \"Beliggenhet\"</h2>", self.sale_texts.len() + 1)
                .into(),
            text,
            level: if parent.is_some() { 2 } else { 1 },
            hidden: dice.chance(15),
            error: dice.chance(8).then_some("Flettefelt 'adresse' mangler"),
            updated: at,
        });
        id
    }
}

impl Case {
    /// The case's dossier: what was kept, or what the seed gives.
    pub(crate) fn dossier(&self, basis: &Basis) -> Arc<Dossier> {
        self.dossier.clone().unwrap_or_else(|| Arc::new(Dossier::of_seed(basis, self)))
    }

    /// The dossier, to be changed.
    pub(crate) fn dossier_mut(&mut self, basis: &Basis) -> &mut Dossier {
        let dossier = self.dossier(basis);
        Arc::make_mut(self.dossier.insert(dossier))
    }

    /// Makes what follows from the seed stay as it is when the case changes.
    pub(crate) fn keep_contents(&mut self, basis: &Basis) {
        self.economy = Some(self.economy(basis));
        self.dossier = Some(self.dossier(basis));
    }
}
