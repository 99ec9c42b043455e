//! What happens in the world: changes ordered by name, and events of its own accord. Each moves the
//! dates that reference 2.2 names, and `ModifiedDate`.

use std::collections::BTreeMap;

use super::super::wire::Ticks;
use super::World;
use super::act::{Act, Facet, Outcome};
use super::belongings;
use super::case::{Case, Moved};
use super::change::{change, next_facet};
use super::dice::Dice;
use super::events::{self, Event};
use super::generate;

impl World {
    /// Does what is ordered; `Err` says why it cannot be done.
    pub(crate) fn act(&mut self, act: &Act) -> Result<Outcome, String> {
        match act {
            Act::NewCase { project, assignment } => self.new_case(*project, assignment.as_deref()),
            Act::Change { case_id, facet, at } => {
                let id = self.case_or_any(*case_id)?;
                let at = self.instant_or_next(at.as_deref())?;
                self.change_facet(id, *facet, at)
            }
            Act::DeleteCase { case_id } => {
                let case = self.delete_case(*case_id).ok_or_else(|| no_case(*case_id))?;
                let contact_ids = self.touch_orphans(&case);
                Ok(Outcome { contact_ids, ..outcome("deleted", *case_id) })
            }
            Act::HideCase { case_id, silent } => self.visibility(*case_id, true, *silent),
            Act::ShowCase { case_id, silent } => self.visibility(*case_id, false, *silent),
            Act::Touch { case_ids, modified, dates } => {
                self.touch(case_ids, modified.as_deref(), dates)
            }
            Act::EditContact { contact_id, at } => {
                let at = self.instant_or_next(at.as_deref())?;
                let id = match contact_id {
                    Some(id) => *id,
                    None => 50_001 + self.dice.below(self.basis.contacts),
                };
                let number = self.dice.between(40_000_000, 49_999_999);
                if !self.change_contact(id, at, |c| c.telephone = Some(format!("+47 {number}"))) {
                    return Err(format!("there is no contact {id}"));
                }
                if self.employees.contains_key(&id) {
                    self.employee_changed(id, at);
                }
                Ok(contact_outcome("contact edited", id, at))
            }
            Act::NewContact {} => {
                let at = self.stamp();
                let id = self.insert_contact(at);
                Ok(contact_outcome("contact added", id, at))
            }
            Act::EditEmployee { employee_id } => self.edit_employee(*employee_id),
            Act::EditOffice { office_id } => self.edit_office(*office_id),
            Act::SplitOffice { office_id } => self.split_office(*office_id),
            Act::CloseOffice { office_id } => self.close_office(*office_id),
            Act::MoveEmployee { employee_id, office_id } => {
                self.move_employee(*employee_id, *office_id)
            }
            Act::Account { office_id, edit } => self.edit_accounts(*office_id, *edit),
            Act::Definition { edit } => self.edit_definitions(*edit),
            Act::ProcessingBasis { edit } => self.edit_bases(*edit),
            Act::Relation { edit } => self.edit_relations(*edit),
            Act::FileTag { edit } => self.edit_tags(*edit),
            Act::Subscription { edit } => self.edit_subscriptions(*edit),
            Act::Journal { journal, office_id, month, edit, line } => {
                self.edit_journal(*journal, *office_id, month, *edit, *line)
            }
            Act::EditRole { case_id, role_id } => self.edit_role(*case_id, *role_id),
            Act::DefaultSaleText { case_ids } => self.default_sale_text(case_ids),
            Act::Emit { event_type, payload, fields, to, duplicate, at } => {
                let event = Event {
                    kind: event_type.clone().into(),
                    at: self.instant_or_next(at.as_deref())?,
                    payload: payload.clone(),
                    more: fields.clone(),
                };
                let deliveries =
                    self.emit_ordered(&event, to.as_deref(), duplicate.saturating_add(1));
                Ok(Outcome { what: "emitted".to_owned(), deliveries, ..Outcome::default() })
            }
            Act::Redeliver { delivery, times } => {
                let deliveries = self.outbox.again(*delivery, *times)?;
                Ok(Outcome { what: "delivered again".to_owned(), deliveries, ..Outcome::default() })
            }
            Act::Tick { events } => {
                let mut all = Outcome { what: "events".to_owned(), ..Outcome::default() };
                for _ in 0..*events {
                    let event = self.tick();
                    all.case_ids.extend(event.case_ids);
                    all.contact_ids.extend(event.contact_ids);
                    all.ids.extend(event.ids);
                    all.moved.extend(event.moved);
                }
                Ok(all)
            }
        }
    }

    /// One event of the world's own accord.
    pub(crate) fn tick(&mut self) -> Outcome {
        self.post_journal();
        let roll = self.dice.below(100);
        if roll < 6 || self.slots.is_empty() {
            let project = self.dice.chance(5);
            return self.new_case(project, None).unwrap_or_default();
        }
        if roll < 12 {
            let at = None;
            return self.act(&Act::EditContact { contact_id: None, at }).unwrap_or_default();
        }
        let Some(id) = self.any_case() else { return Outcome::default() };
        let Some(case) = self.case(id) else { return Outcome::default() };
        let facet = next_facet(&case, &mut self.dice);
        let at = self.stamp();
        self.change_facet(id, facet, at).unwrap_or_default()
    }

    fn new_case(&mut self, project: bool, assignment: Option<&str>) -> Result<Outcome, String> {
        let assignment = assignment.map(assignment_type).transpose()?;
        let at = self.stamp();
        let id = generate::case_id(self.basis.seed, self.next_case);
        self.next_case += 1;
        let basis = self.basis.clone();
        let mut case = generate::blank(&basis, id, at, &mut self.dice);
        case.facts.project = project;
        if let Some(assignment) = assignment {
            case.facts.assignment = assignment;
            let price = case.asking_price.unwrap_or(300_000_000);
            case.resale = case.is_resale().then(|| belongings::resale(price, at, &mut self.dice));
        } else if project {
            case.facts.assignment = "Sale";
            case.resale = None;
        }
        case.facts.dates.set(Moved::CaseEntity, Some(at));
        let events = events::of_new(&case, at);
        self.insert_case(case);
        self.emit(events);
        let mut outcome = outcome("new case", id);
        outcome.moved = moved(at, &[Moved::CaseEntity]);
        Ok(outcome)
    }

    fn change_facet(&mut self, id: i64, facet: Facet, at: Ticks) -> Result<Outcome, String> {
        let newcomer = match facet {
            Facet::ContactAdded => Some(self.insert_contact(at)),
            _ => None,
        };
        let basis = self.basis.clone();
        let before = self.case(id).ok_or_else(|| no_case(id))?;
        let edit =
            |case: &mut Case, dice: &mut Dice| change(&basis, case, facet, at, newcomer, dice);
        let ids = self.change(id, at, edit).ok_or_else(|| no_case(id))?;
        let mut done = outcome(&format!("{facet:?}"), id);
        done.ids = ids;
        done.contact_ids.extend(newcomer);
        let after = self.case(id).ok_or_else(|| no_case(id))?;
        let dates = Moved::ALL
            .into_iter()
            .filter(|which| before.facts.dates.get(*which) != after.facts.dates.get(*which));
        done.moved = moved(at, &dates.collect::<Vec<_>>());
        if facet == Facet::RoleRemoved {
            done.contact_ids = self.touch_orphans(&before);
        }
        Ok(done)
    }

    /// A role becomes another one: that of nobody else, so that it is always a change.
    fn edit_role(&mut self, id: i64, role_id: Option<i64>) -> Result<Outcome, String> {
        let case = self.case(id).ok_or_else(|| no_case(id))?;
        let role = match role_id {
            Some(role_id) => case.roles.iter().find(|role| role.id == role_id),
            None => case.roles.last(),
        };
        let concerned = role.ok_or_else(|| format!("the case {id} has no such role"))?.id;
        let at = self.stamp();
        self.change(id, at, |case, _| {
            for role in case.roles.iter_mut().filter(|role| role.id == concerned) {
                role.kind = if role.kind == "Assignee" { "Stakeholder" } else { "Assignee" };
            }
        });
        let mut done = outcome("role edited", id);
        (done.ids, done.moved) = (vec![concerned], moved(at, &[]));
        Ok(done)
    }

    /// The definition is older than the text that it replaces, and so is its date (reference 2.14).
    fn default_sale_text(&mut self, ids: &[i64]) -> Result<Outcome, String> {
        if let Some(id) = ids.iter().find(|id| !self.has_case(**id)) {
            return Err(no_case(*id));
        }
        let basis = self.basis.clone();
        for id in ids {
            let at = self.stamp();
            self.change_silently(*id, at, |case, _| {
                if let Some(first) = case.dossier_mut(&basis).sale_texts.first_mut() {
                    first.text = Some(format!("<p>Standard {}</p>", at.exact()).into());
                    first.updated = first.updated.plus_days(-30);
                }
            });
        }
        let what = "default sale text".to_owned();
        Ok(Outcome { what, case_ids: ids.to_vec(), ..Outcome::default() })
    }

    fn visibility(&mut self, id: i64, hidden: bool, silent: bool) -> Result<Outcome, String> {
        if !self.set_hidden(id, hidden) {
            return Err(no_case(id));
        }
        let mut outcome = outcome(if hidden { "hidden" } else { "shown" }, id);
        if !silent {
            let at = self.stamp();
            self.change(id, at, |_, _| ());
            outcome.moved = moved(at, &[]);
        }
        Ok(outcome)
    }

    fn touch(
        &mut self,
        ids: &[i64],
        modified: Option<&str>,
        dates: &BTreeMap<String, Option<String>>,
    ) -> Result<Outcome, String> {
        let mut set = Vec::new();
        for (field, text) in dates {
            let which = Moved::ALL.into_iter().find(|which| which.field() == field);
            let which = which.ok_or_else(|| format!("{field} is no change date"))?;
            set.push((which, text.as_deref().map(instant).transpose()?));
        }
        if let Some(id) = ids.iter().find(|id| !self.has_case(**id)) {
            return Err(no_case(*id));
        }
        let mut done = Outcome { what: "touched".to_owned(), ..Outcome::default() };
        for id in ids {
            let at = self.instant_or_next(modified)?;
            self.change(*id, at, |case, _| {
                for (which, at) in &set {
                    case.facts.dates.set(*which, *at);
                }
            });
            done.case_ids.push(*id);
            done.moved.insert("ModifiedDate".to_owned(), Some(at.exact()));
        }
        for (which, at) in set {
            done.moved.insert(which.field().to_owned(), at.map(Ticks::exact));
        }
        Ok(done)
    }

    /// A contact whose last role is gone is modified by that; where the contacts feed would not
    /// reach back to its last change, nobody could ever learn of it again.
    fn touch_orphans(&mut self, before: &Case) -> Vec<i64> {
        let old = self.now().plus_days(-300);
        let mut touched = Vec::new();
        for role in &before.roles {
            let now_names = self
                .case(before.id())
                .is_some_and(|case| case.roles.iter().any(|other| other.contact == role.contact));
            let is_old = self.contact(role.contact).is_some_and(|contact| contact.modified < old);
            if is_old && !now_names && !touched.contains(&role.contact) {
                let at = self.stamp();
                self.change_contact(role.contact, at, |_| ());
                touched.push(role.contact);
            }
        }
        touched
    }

    fn case_or_any(&mut self, id: Option<i64>) -> Result<i64, String> {
        match id {
            Some(id) if self.has_case(id) => Ok(id),
            Some(id) => Err(no_case(id)),
            None => self.any_case().ok_or_else(|| "there are no cases".to_owned()),
        }
    }

    fn instant_or_next(&mut self, text: Option<&str>) -> Result<Ticks, String> {
        text.map_or_else(|| Ok(self.stamp()), instant)
    }
}

fn instant(text: &str) -> Result<Ticks, String> {
    Ticks::parse(text, false).ok_or_else(|| format!("'{text}' is no ISO 8601 date-time"))
}

pub(super) fn no_case(id: i64) -> String {
    format!("there is no case {id}")
}

fn outcome(what: &str, case_id: i64) -> Outcome {
    Outcome { what: what.to_owned(), case_ids: vec![case_id], ..Outcome::default() }
}

pub(super) fn contact_outcome(what: &str, id: i64, at: Ticks) -> Outcome {
    Outcome {
        what: what.to_owned(),
        contact_ids: vec![id],
        moved: moved(at, &[]),
        ..Outcome::default()
    }
}

pub(super) fn moved(at: Ticks, dates: &[Moved]) -> BTreeMap<String, Option<String>> {
    let mut all = BTreeMap::from([("ModifiedDate".to_owned(), Some(at.exact()))]);
    for which in dates {
        all.insert(which.field().to_owned(), Some(at.exact()));
    }
    all
}

/// The assignment type of this name (reference 2.12).
fn assignment_type(name: &str) -> Result<&'static str, String> {
    const ALL: &[&str] = &[
        "Miscellaneous",
        "Sale",
        "Valuation",
        "Settlement",
        "Foreclosure",
        "EstateOfDeceased",
        "Marketing",
        "Rental",
        "DisseminationAssignment",
        "AssignmentAgreement",
        "WrittenAssessment",
        "OralAssessment",
        "VariousConsultingService",
        "ResaleOfContractPositionConsumer",
        "ResaleOfContractPositionProff",
        "SaleInternational",
        "SaleCorporate",
        "RentalCorporate",
        "SaleHouseConstructionLaw",
        "SaleOfCompany",
    ];
    let known = ALL.iter().find(|known| **known == name);
    known.copied().ok_or_else(|| format!("{name} is no assignment type"))
}
