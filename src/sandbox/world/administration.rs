//! What happens at the offices: people move, telephones change, accounts and definitions are
//! looked after. No case changes by it; only a schedule can learn of it.

use super::World;
use super::act::{ListEdit, Outcome};
use super::definitions;
use super::life::contact_outcome;
use super::people::{Account, Affiliation, Office};

impl World {
    pub(super) fn edit_employee(&mut self, id: i64) -> Result<Outcome, String> {
        let at = self.stamp();
        let number = self.dice.between(40_000_000, 49_999_999);
        if !self.employees.contains_key(&id) {
            return Err(format!("there is no employee {id}"));
        }
        self.change_contact(id, at, |c| c.telephone = Some(format!("+47 {number}")));
        self.employee_changed(id, at);
        Ok(contact_outcome("employee edited", id, at))
    }

    pub(super) fn edit_office(&mut self, id: i64) -> Result<Outcome, String> {
        let number = self.dice.between(22_000_000, 22_999_999);
        let office = self.offices.get_mut(&id).ok_or_else(|| no_office(id))?;
        office.telephone = format!("+47 {number}");
        let office = office.clone();
        let at = self.stamp();
        self.office_changed(&office, at);
        Ok(listed("office edited", id))
    }

    pub(super) fn split_office(&mut self, id: i64) -> Result<Outcome, String> {
        let of = self.offices.get(&id).ok_or_else(|| no_office(id))?.clone();
        let new = self.offices.keys().next_back().map_or(id, |last| last + 1);
        let name = format!("{} II", of.name);
        self.offices.insert(new, Office { id: new, name, accounts: Vec::new(), ..of });
        Ok(listed("office split", new))
    }

    pub(super) fn close_office(&mut self, id: i64) -> Result<Outcome, String> {
        let closed = self.offices.remove(&id).ok_or_else(|| no_office(id))?;
        let at = self.stamp();
        self.office_changed(&closed, at);
        Ok(listed("office closed down", id))
    }

    pub(super) fn move_employee(&mut self, id: i64, office_id: i64) -> Result<Outcome, String> {
        let company = self.offices.get(&office_id).ok_or_else(|| no_office(office_id))?.company;
        let at = self.stamp();
        let employee =
            self.employees.get_mut(&id).ok_or_else(|| format!("there is no employee {id}"))?;
        for earlier in &mut employee.affiliations {
            (earlier.active, earlier.preferred) = (false, false);
        }
        let number = i64::try_from(employee.affiliations.len()).unwrap_or(0);
        employee.affiliations.push(Affiliation::new(employee.trivia, office_id, number, true));
        (employee.office, employee.company) = (office_id, company);
        self.change_contact(id, at, |_| ());
        self.employee_changed(id, at);
        Ok(contact_outcome("employee moved", id, at))
    }

    pub(super) fn edit_accounts(&mut self, id: i64, edit: ListEdit) -> Result<Outcome, String> {
        let office = self.offices.get_mut(&id).ok_or_else(|| no_office(id))?;
        let accounts = &mut office.accounts;
        let concerned = match edit {
            ListEdit::Added => {
                let number = accounts.last().map_or(0, |last| last.number + 1);
                accounts.push(Account::new(office.trivia, office.id, number));
                accounts.last().map(|account| account.id)
            }
            ListEdit::Changed => accounts.first_mut().map(|account| {
                account.description = Some("Klientkonto (endret)".to_owned());
                account.deleted = !account.deleted;
                account.id
            }),
            ListEdit::Removed => accounts.pop().map(|account| account.id),
        };
        let concerned = concerned.ok_or_else(|| format!("the office {id} has no accounts"))?;
        Ok(listed(&format!("account {edit:?}"), concerned))
    }

    pub(super) fn edit_definitions(&mut self, edit: ListEdit) -> Result<Outcome, String> {
        let concerned = match edit {
            ListEdit::Added => {
                let id = self.definitions.last().map_or(201, |last| last.id + 1);
                let deleted = false;
                let added = definitions::of_id(self.basis.seed, id);
                self.definitions.push(definitions::Definition { deleted, ..added });
                Some(id)
            }
            ListEdit::Changed => self.definitions.first_mut().map(|definition| {
                definition.default_amount += 12_505;
                definition.description = Some("Endret \"sats\"".to_owned());
                definition.id
            }),
            ListEdit::Removed => {
                self.definitions.iter_mut().rev().find(|one| !one.deleted).map(|one| {
                    one.deleted = true;
                    one.id
                })
            }
        };
        let concerned = concerned.ok_or("there are no entry definitions")?;
        Ok(listed(&format!("definition {edit:?}"), concerned))
    }
}

fn no_office(id: i64) -> String {
    format!("there is no office {id}")
}

fn listed(what: &str, id: i64) -> Outcome {
    Outcome { what: what.to_owned(), ids: vec![id], ..Outcome::default() }
}
