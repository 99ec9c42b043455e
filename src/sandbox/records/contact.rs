//! Contacts, as the search lists them and as the lookup by id answers.

use super::super::record::{Record, Value};
use super::super::world::people::{Basis, CHAIN_ID, Contact};

/// A row of `AdvancedContactSearch` (observed fields).
pub(crate) fn search_row(basis: &Basis, contact: &Contact) -> Record {
    let mut r = looked_up(basis, contact);
    let t = contact.person.trivia;
    let (first, surname) = contact.names();
    let phone = contact.telephone.clone();
    let list = |text: Option<String>| -> Value {
        match text {
            Some(text) => Value::List(vec![text.into()]),
            // An empty list stands on the wire in three ways.
            None => [Value::List(Vec::new()), Value::Null, Value::Absent]
                [t.between(40, 0, 2) as usize]
                .clone(),
        }
    };
    r.put("CustomerWebUser", t.chance(41, 40))
        .put("IsActiveSeller", t.chance(42, 20))
        .put("IsLead", t.chance(43, 10))
        .put(
            "LeadCaseIds",
            if t.chance(44, 8) {
                Value::List(vec![Value::Int(t.between(45, 1_000, 2_000))])
            } else {
                Value::List(Vec::new())
            },
        )
        .put("MatchName", format!("{first} {surname}").to_uppercase())
        .put("SearchablePhoneNumbers", list(phone.map(|p| p.replace([' ', '+'], ""))))
        .put("IsDNumber", t.chance(46, 2))
        .put("RoleType", Value::List(vec!["Stakeholder".into()]))
        .put("LastOpenedDate", contact.modified.plus_ms(90_000))
        .put("SearchType", contact.kind)
        // Written anew at each indexing: volatile.
        .put("LastIndexed", contact.modified.plus_ms(2_000));
    r
}

/// `GET /api/Contacts/{id}`: the fields of the contact itself, without those of the index.
pub(crate) fn looked_up(basis: &Basis, contact: &Contact) -> Record {
    let person = &contact.person;
    let t = person.trivia;
    let (street, town) = person.home();
    let company = contact.kind != "Person" && contact.kind != "Employee";
    let (first, surname) = contact.names();
    let name =
        if company { format!("{surname} Eiendom & Co. AS") } else { format!("{first} {surname}") };
    let email = contact.email();
    let street = contact.street.clone().map(|s| if s.is_empty() { street } else { s });
    let address = street.as_ref().map(|s| format!("{s}, {} {}", town.zip, town.city));
    let mut r = Record::with_capacity(42);
    let one = |text: Option<String>| -> Value {
        text.map_or(Value::Null, |text| Value::List(vec![text.into()]))
    };
    r.put("Id", contact.id)
        .put("ExternalId", t.chance(21, 10).then(|| format!("CRM-{}", t.between(22, 1, 99_999))))
        .put("Active", contact.active)
        .put("IsPublic", false)
        .put("IsProfessional", company)
        .put("ChainId", CHAIN_ID)
        .put(
            "BrokerCompanyId",
            t.chance(23, 80).then(|| basis.offices[0].company + t.between(24, 0, 2)),
        )
        .put("Name", name)
        .put("FirstName", if company { Value::Null } else { first.into() })
        .put("SurName", if company { Value::Null } else { surname.into() })
        .put("PrimaryImageId", t.chance(25, 10).then(|| Value::Guid(t.guid(26))))
        .put("Email", email.clone())
        .put("Emails", one(email))
        .put("PhoneNumber", contact.telephone.clone())
        .put("PhoneNumbers", one(contact.telephone.clone()))
        .put("Address", address.clone())
        .put("Street", street)
        .put("ZipCode", town.zip)
        .put("City", town.city)
        .put("Addresses", one(address))
        .put("Municipality", town.municipality)
        .put(
            "Functions",
            if contact.kind == "Bank" { Value::List(vec!["Bank".into()]) } else { Value::Null },
        )
        .put("ContactType", contact.kind)
        .put("JobTitle", contact.job.clone())
        .put("SkipAmlMonitoring", false)
        .put("LastModifiedDate", contact.modified)
        .put("Guid", Value::Guid(t.guid(27)))
        .put("Type", contact.kind)
        .put(
            "IdentificationNumber",
            if t.chance(28, 60) {
                Value::Null
            } else {
                // Eleven digits that no real number has: the month is 80 or more.
                Value::Text(
                    format!("01{:02}00{:05}", t.between(29, 80, 92), t.between(30, 0, 99_999))
                        .into(),
                )
            },
        );
    r
}
