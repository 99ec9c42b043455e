//! Offices and employees (observed fields).

use super::super::record::{Record, Value};
use super::super::wire::{TICKS_PER_SECOND, Ticks};
use super::super::world::people::{Account, Affiliation, CHAIN_ID, Employee, Office};

/// A record of `GET /api/Offices`.
pub(crate) fn office(office: &Office) -> Record {
    let t = office.trivia;
    let mut r = Record::with_capacity(24);
    let email = format!("kontor{}@example.no", office.id);
    r.put("Id", office.id)
        .put("Guid", Value::Guid(office.guid()))
        .put("ChainId", CHAIN_ID)
        .put("BrokerCompanyId", office.company)
        .put("Name", office.name.clone())
        .put("Type", "Office")
        .put(
            "Functions",
            if t.chance(2, 50) { Value::Null } else { Value::List(vec!["Office".into()]) },
        )
        .put("Telephone", office.telephone.clone())
        .put("PhoneNumbers", Value::List(vec![office.telephone.clone().into()]))
        .put("Email", email.clone())
        .put("EmailAddresses", Value::List(vec![email.into()]))
        .put("Address", format!("Storgata {}", t.between(3, 1, 90)))
        .put("PrimaryImageId", t.chance(4, 50).then(|| Value::Guid(t.guid(5))))
        .put("Active", office.active)
        .put("ExternalId", t.chance(20, 50).then(|| format!("AVD-{}", office.id)))
        .put("NextAddressMovingDate", Value::Unset { zoned: true })
        .put("IsPublic", true)
        .put("IsProfessional", true)
        .put(
            "IdentificationNumber",
            t.chance(21, 50).then(|| format!("9{:08}", t.between(7, 0, 99_999_999))),
        )
        .put(
            "CountryOfNationalityId",
            if t.chance(22, 50) { Value::Absent } else { Value::Int(578) },
        )
        .put("OfficeNumber", office.id - 10)
        .put(
            "Description",
            if t.chance(6, 50) {
                "Åpent \"etter avtale\"\n<em>velkommen</em>".into()
            } else {
                Value::Null
            },
        )
        .put("OrganisationNumber", format!("9{:08}", t.between(7, 0, 99_999_999)));
    r
}

/// A record of `GET /api/Employees`.
pub(crate) fn employee(employee: &Employee) -> Record {
    let t = employee.trivia;
    let person = &employee.person;
    let mut r = Record::with_capacity(46);
    let initials: String =
        person.name().split(' ').filter_map(|part| part.chars().next()).collect();
    let email = person.email();
    // Some day after 2020.
    let first_day = Ticks((1_600_000_000 + t.between(30, 0, 150_000_000)) * TICKS_PER_SECOND);
    r.put("Id", employee.id)
        .put("Guid", Value::Guid(employee.guid()))
        .put("ChainId", CHAIN_ID)
        .put("BrokerCompanyId", employee.company)
        .put("Name", person.name())
        .put("Type", "Employee")
        .put("Functions", Value::List(Vec::new()))
        .put("Telephone", employee.telephone.clone())
        .put("PhoneNumbers", Value::List(vec![employee.telephone.clone().into()]))
        .put("Email", email.clone())
        .put("EmailAddresses", Value::List(vec![email.into()]))
        .put("Address", t.chance(22, 30).then(|| person.home().0))
        .put("PrimaryImageId", t.chance(4, 70).then(|| Value::Guid(t.guid(5))))
        .put("Active", employee.active)
        .put("ExternalId", t.chance(6, 30).then(|| format!("HR{:04}", employee.id)))
        .put("NextAddressMovingDate", t.chance(31, 20).then(|| first_day.plus_days(3_000)))
        .put("IsPublic", true)
        .put("IsProfessional", true)
        .put("IdentificationNumber", "***********")
        .put("CountryOfNationalityId", t.chance(7, 80).then_some(578))
        .put("FirstName", person.first)
        .put("SurName", person.surname)
        .put(
            "BirthDate",
            format!(
                "19{:02}-{:02}-{:02}T00:00:00",
                t.between(8, 60, 99),
                t.between(9, 1, 12),
                t.between(10, 1, 28)
            ),
        )
        .put("NoContact", false)
        .put("NoContactModifiedById", t.chance(21, 20).then_some(employee.id))
        .put("NoContactModifiedOn", t.chance(21, 20).then_some(first_day))
        .put("CustomerInformationId", t.chance(20, 20).then_some(employee.id + 7_000))
        .put("IsExternalBroker", t.chance(11, 5))
        .put("IsCustomerWebUser", false)
        .put("Title", employee.title)
        .put("Initials", initials)
        .put("EmployeeNumber", employee.id * 10)
        .put("Description", t.chance(23, 30).then_some("Snakker <b>norsk</b> & \"engelsk\""))
        .put("PreferredOfficeId", employee.office)
        .put("OfficeIds", Value::List(vec![Value::Int(employee.office)]))
        .put("TeamIds", if t.chance(12, 50) { Value::Absent } else { Value::List(Vec::new()) })
        .put("EmailSignatureId", t.chance(13, 50).then(|| Value::Guid(t.guid(14))))
        .put("GuaranteedSalaryYearly", false)
        .put("CommissionSalaryIntervalType", t.pick(15, &["Monthly", "Yearly"]))
        .put(
            "CommissionIntervalLastChangedDate",
            if t.chance(24, 60) { Value::Unset { zoned: true } } else { first_day.into() },
        )
        .put("CommissionIntervalLastChangedById", t.chance(24, 60).then_some(101_i64))
        .put("SalaryActive", t.chance(16, 80))
        .put("StandardAssistantId", t.chance(25, 30).then_some(employee.id + 1))
        .put("StandardSettlementResponsibleId", t.chance(26, 30).then_some(employee.id + 1))
        .put("StandardAssistantBrokerId", t.chance(27, 30).then_some(employee.id + 1))
        .put("StandardResponsibleBrokerId", t.chance(28, 30).then_some(employee.id + 1));
    r
}

/// An affiliation of `GET /api/Employees/{employeeId}/Offices` (reference 2.15).
pub(crate) fn affiliation(
    employee: &Employee,
    affiliation: &Affiliation,
    office: &Office,
) -> Record {
    let t = affiliation.trivia;
    let whole = self::employee(employee);
    let mut r = Record::with_capacity(29);
    r.put("OfficeId", affiliation.office)
        .put("OfficeName", office.name.clone())
        .put("IsPreferredOffice", affiliation.preferred)
        .put("EmployeeOfficeIsPublic", t.chance(50, 80))
        .put(
            "Roles",
            if affiliation.roles.is_empty() && t.chance(51, 50) {
                Value::Null
            } else {
                Value::List(affiliation.roles.iter().map(|role| (*role).into()).collect())
            },
        )
        .put("Position", t.chance(52, 80).then(|| t.between(53, 0, 12)));
    for name in [
        "IsExternalBroker",
        "EmployeeNumber",
        "GuaranteedSalaryYearly",
        "CommissionSalaryIntervalType",
        "SalaryActive",
        "FirstName",
        "SurName",
        "BirthDate",
        "NoContact",
        "IsCustomerWebUser",
        "Id",
        "Guid",
    ] {
        r.put(name, whole.get(name).cloned().unwrap_or(Value::Absent));
    }
    r.put("BrokerCompanyId", office.company);
    for name in ["Name", "Type", "Telephone", "Email", "Address", "PrimaryImageId"] {
        r.put(name, whole.get(name).cloned().unwrap_or(Value::Absent));
    }
    r.put("Active", affiliation.active)
        .put("IsPublic", true)
        .put("IsProfessional", true)
        .put("IdentificationNumber", "***********");
    r
}

/// An account of `GET /api/Offices/{id}/Accounts` (reference 2.12).
pub(crate) fn account(office: &Office, account: &Account) -> Record {
    let t = account.trivia;
    let mut r = Record::with_capacity(10);
    r.put("Id", account.id)
        .put("AccountId", account.id + 70_000)
        .put("AccountNumber", format!("8601{:07}", t.between(50, 0, 9_999_999)))
        .put("Description", account.description.clone())
        .put("BrokerCompanyId", office.company)
        .put("ClientAccountInterestRateGroupId", t.chance(51, 50).then(|| t.between(52, 1, 9)))
        .put("ClientInterestAccountId", t.chance(53, 30).then(|| account.id + 90_000))
        .put("DefaultAccount", account.number == 0)
        .put("CreatedFromOffice", t.chance(54, 50))
        .put("IsDeleted", account.deleted);
    r
}

/// What a mirror knows of an office where the platform lists no offices: what its employees'
/// affiliations say of it.
pub(crate) fn office_of_affiliations(office: &Office) -> Record {
    let mut r = self::office(office);
    r.blank_except(&["Id", "Name"]);
    r
}
