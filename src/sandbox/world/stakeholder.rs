//! Somebody registers as a stakeholder of a case, perhaps for a showing.

use super::World;
use super::act::Outcome;
use super::case::{Moved, Role};
use super::life::{moved, no_case};
use super::people::Said;

/// Who registers, and for what.
#[derive(Debug, Clone)]
pub(crate) struct NewStakeholder {
    pub(crate) said: Said,
    pub(crate) telephone: Option<String>,
    /// GUIDs of the processing bases that were given.
    pub(crate) bases: Vec<u128>,
    /// The GUID of a showing.
    pub(crate) showing: Option<u128>,
    pub(crate) participants: i64,
}

impl World {
    /// A new contact with a role on the case, and the bases that it gave.
    ///
    /// # Errors
    /// Where the case, a basis or the showing does not exist; nothing is done then.
    pub(crate) fn add_stakeholder(
        &mut self,
        id: i64,
        new: &NewStakeholder,
    ) -> Result<Outcome, String> {
        let case = self.case(id).ok_or_else(|| no_case(id))?;
        let mut bases = Vec::new();
        for guid in &new.bases {
            let known = self.consents.bases.iter().find(|one| one.newest && one.guid() == *guid);
            bases.push(known.ok_or("there is no such processing basis")?.id);
        }
        if let Some(guid) = new.showing
            && !case.activities.iter().any(|activity| activity.guid() == guid)
        {
            return Err("there is no such showing".to_owned());
        }
        let at = self.stamp();
        let contact = self.insert_contact(at);
        self.change_contact(contact, at, |contact| {
            contact.kind = "Person";
            contact.said = Some(new.said.clone());
            contact.telephone = new.telephone.clone();
        });
        for basis in bases {
            let seed = self.basis.seed;
            self.consents.add(seed, basis, contact, Some(id), at, "Stakeholder");
        }
        let mut dates = vec![Moved::CaseEntity];
        dates.extend(new.showing.map(|_| Moved::Activity));
        let role = self.change(id, at, |case, _| {
            for which in &dates {
                case.facts.dates.set(*which, Some(at));
            }
            let shown = case.activities.iter_mut().find(|one| Some(one.guid()) == new.showing);
            if let Some(showing) = shown {
                showing.registered += new.participants;
            }
            let role = case.next_id();
            case.roles.push(Role { id: role, kind: "Stakeholder", contact, deceased: None });
            role
        });
        let after = self.case(id).ok_or_else(|| no_case(id))?;
        let shown = after.activities.iter().find(|one| Some(one.guid()) == new.showing);
        if let (Some(showing), Some(role)) = (shown, role) {
            // Each role is one participant of one showing, so that its id serves for both.
            self.participant_came(&after, (role, contact, role), showing, at);
        }
        Ok(Outcome {
            what: "stakeholder".to_owned(),
            case_ids: vec![id],
            contact_ids: vec![contact],
            ids: role.into_iter().collect(),
            moved: moved(at, &dates),
            ..Outcome::default()
        })
    }
}
