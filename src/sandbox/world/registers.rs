//! Small lists that hang on nothing: file tags and webhook subscriptions (reference 2.8, 2.18).

use super::super::deliveries::letter::Target;
use super::super::wire::{LocalMs, Ticks};
use super::World;
use super::act::{ListEdit, Outcome};
use super::dice::Trivia;
use super::generate::odd_hour;
use super::people::Basis;

/// A file tag.
#[derive(Debug, Clone)]
pub(crate) struct FileTag {
    pub(crate) id: i64,
    pub(crate) name: Option<String>,
    /// What a system tag stands for.
    pub(crate) category: Option<&'static str>,
    pub(crate) modified: Option<Ticks>,
    pub(crate) trivia: Trivia,
}

/// A webhook subscription of the API user.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    pub(crate) id: i64,
    pub(crate) event: String,
    pub(crate) url: String,
    pub(crate) secret: String,
    pub(crate) created: Ticks,
    pub(crate) modified: Option<Ticks>,
}

/// Both lists.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registers {
    pub(crate) tags: Vec<FileTag>,
    pub(crate) subscriptions: Vec<Subscription>,
    next_subscription: i64,
}

/// Event types that can be subscribed to (reference 6.2).
pub(crate) const EVENT_TYPES: &[&str] = &[
    "AppropriationDateChanged",
    "CaseStatusChanged",
    "CaseSold",
    "PublicationChanged",
    "OppdragCreated",
    "InteressentCreated",
    "InteressentChanged",
    "InteressentDeleted",
    "AktivitetCreated",
    "AktivitetChanged",
    "AktivitetDeleted",
    "SettlementStatusChanged",
    "SellerInsuranceChanged",
    "MarketingPackageChanged",
    "ChecklistItemChecked",
    "EmployeeChanged",
    "OfficeChanged",
    "DynamicSaleTextChanged",
    "HyperlinkChanged",
    "ActivityParticipantCreated",
    "ActivityParticipantDeleted",
];

const CATEGORIES: &[&str] =
    &["Prospect", "SaleAgreement", "SelfDeclarationForm", "EnergyLabel", "Other"];

impl Registers {
    /// Tags of the system and of customers, and two subscriptions of somebody else's making.
    pub(crate) fn of_seed(basis: &Basis) -> Registers {
        let mut registers = Registers::default();
        for number in 0..14 {
            registers.add_tag(basis);
            // Names of customers' tags are not unique, and one has none.
            if let Some(tag) = registers.tags.last_mut()
                && number > 10
            {
                tag.name = (number != 13).then(|| "Internt \"bruk\"".to_owned());
            }
        }
        let at = basis.origin.plus_days(-200);
        for (event, url) in [
            ("CaseSold", "https://hooks.example.no/eiendom/solgt?nokkel=hemmelig"),
            ("DynamicSaleTextChanged", "https://annonser.example.no"),
        ] {
            registers.subscribe(basis.seed, event.to_owned(), url.to_owned(), at);
        }
        registers
    }

    fn add_tag(&mut self, basis: &Basis) -> i64 {
        let id = self.tags.last().map_or(21, |last| last.id + 1);
        let trivia = Trivia::new(basis.seed ^ 0x7A6, id);
        let number = usize::try_from(id - 21).unwrap_or(0);
        self.tags.push(FileTag {
            id,
            name: Some(format!("Merkelapp {id} & «annet»")),
            category: CATEGORIES.get(number).copied(),
            modified: trivia.chance(1, 80).then(|| {
                let odd: LocalMs = odd_hour(2025, trivia.chance(2, 50));
                odd.instant()
            }),
            trivia,
        });
        id
    }

    /// Adds a subscription; a copy of it.
    pub(crate) fn subscribe(
        &mut self,
        seed: u64,
        event: String,
        url: String,
        at: Ticks,
    ) -> Subscription {
        self.next_subscription += 1;
        let id = 800 + self.next_subscription;
        let secret = secret(seed, id, 0);
        let made = Subscription { id, event, url, secret, created: at, modified: None };
        self.subscriptions.push(made.clone());
        made
    }
}

/// What deliveries are signed with; another one with each renewal.
pub(crate) fn secret(seed: u64, id: i64, renewal: u64) -> String {
    format!("webhook-secret-{:016x}", Trivia::new(seed ^ 0x5EC, id).at(renewal))
}

impl World {
    pub(super) fn edit_tags(&mut self, edit: ListEdit) -> Result<Outcome, String> {
        let at = self.stamp();
        let basis = self.basis.clone();
        let tags = &mut self.registers.tags;
        let id = match edit {
            ListEdit::Added => Some(self.registers.add_tag(&basis)),
            ListEdit::Changed => tags.first_mut().map(|tag| {
                tag.name = Some(format!("Ny merkelapp {}", at.exact()));
                tag.modified = Some(at);
                tag.id
            }),
            ListEdit::Removed => tags.pop().map(|tag| tag.id),
        };
        done("file tag", edit, id)
    }

    pub(super) fn edit_subscriptions(&mut self, edit: ListEdit) -> Result<Outcome, String> {
        let at = self.stamp();
        let seed = self.basis.seed;
        let registers = &mut self.registers;
        let id = match edit {
            ListEdit::Added => {
                let url = "https://nye.example.no/krok".to_owned();
                Some(registers.subscribe(seed, "OfficeChanged".to_owned(), url, at).id)
            }
            ListEdit::Changed => registers.subscriptions.first_mut().map(|one| {
                one.url = "https://flyttet.example.no/krok".to_owned();
                one.modified = Some(at);
                one.id
            }),
            ListEdit::Removed => registers.subscriptions.pop().map(|one| {
                self.outbox.forget(&Target::Webhook(one.id));
                one.id
            }),
        };
        done("subscription", edit, id)
    }
}

fn done(what: &str, edit: ListEdit, id: Option<i64>) -> Result<Outcome, String> {
    let id = id.ok_or_else(|| format!("there is no {what}"))?;
    Ok(Outcome { what: format!("{what} {edit:?}"), ids: vec![id], ..Outcome::default() })
}
