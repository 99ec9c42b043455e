//! Publications, files, notes, and the texts about a property.

use super::super::record::{Record, Value};
use super::super::wire::LocalMs;
use super::super::world::case::Case;
use super::super::world::dossier::{
    Access, Association, File, FileKind, Information, Media, Note, Publication, SaleText,
};
use super::super::world::names;
use super::super::world::people::CHAIN_ID;

/// A publication (reference 2.6), which has more fields than are shown.
pub(crate) fn publication(publication: &Publication) -> Record {
    let mut r = Record::with_capacity(4);
    r.put("Id", publication.id)
        .put("ProviderName", publication.provider)
        .put("Status", publication.status)
        .put("PublishSeparately", publication.separately)
        .unknown("ExternalId", format!("\"{}-{}\"", publication.provider, publication.id));
    if publication.id % 3 == 0 {
        r.unknown("Settings", "{\"Price\":1.50,\"Tags\":[]}");
    }
    r
}

/// An item of the directory (reference 2.7, 2.9, and observed fields).
pub(crate) fn file(file: &File) -> Record {
    let mut r = Record::with_capacity(22);
    let text = |number: u64, value: Value| {
        if file.trivia.chance(number, 20) { Value::Absent } else { value }
    };
    let is_folder = file.kind == FileKind::Folder;
    r.put("Id", Value::Guid(file.id))
        .put("Type", file.kind.name())
        .put("ExternalId", text(1, file.external_id.clone().into()))
        .put("Name", file.name.clone())
        .put("ParentId", file.parent.map(Value::Guid))
        .put("ParentUniqueFolderType", file.folder)
        .put("MimeType", file.mime.clone())
        .put("Size", file.size)
        .put(
            "Hash",
            if is_folder { Value::Null } else { format!("{:016x}", file.trivia.at(7)).into() },
        )
        .put("LastModifiedDate", file.modified)
        .put("LastModifiedById", file.modified_by)
        .put("FileTags", tags(file))
        .put("Extension", file.name.rsplit_once('.').map(|(_, end)| format!(".{end}")));
    media_fields(&mut r, file);
    match &file.access {
        Access::Absent => {}
        Access::Null => {
            r.records("FileAccessRoles", None);
        }
        Access::Shared(_) => {
            r.records("FileAccessRoles", Some(access(file)));
        }
        Access::Bare(roles) => {
            let list: Vec<String> = roles.iter().map(|role| format!("\"{role}\"")).collect();
            r.nested("FileAccessRoles", format!("[{}]", list.join(",")));
        }
    }
    r
}

/// What only images have; of other items these are left out.
fn media_fields(r: &mut Record, file: &File) {
    let rooms = ["Stue", "Kjøkken & gang"].map(Value::from).to_vec();
    let of = |what: &dyn Fn(&Media) -> Value| file.media.as_ref().map_or(Value::Absent, what);
    let unset = || Value::Unset { zoned: true };
    r.put("Export", of(&|media| media.export.into()))
        .put("ExportRes", of(&|media| (!media.export).into()))
        .put("ExportDate", of(&|media| media.exported.map_or_else(unset, Value::Zoned)))
        .put("ExportResDate", of(&|media| media.exported.map(|at| at.plus_days(1)).into()))
        .put("Title", of(&|media| media.title.clone().into()))
        .put("Priority", of(&|media| media.priority.into()))
        .put("Version", of(&|media| media.version.into()))
        .put("Category", of(&|media| media.category.into()))
        .put(
            "RoomCategories",
            of(&|_| match file.trivia.between(8, 0, 3) {
                0 => Value::Absent,
                1 => Value::Null,
                2 => Value::List(Vec::new()),
                _ => Value::List(rooms.clone()),
            }),
        )
        .put("FloorCategory", of(&|_| file.trivia.chance(9, 50).then_some("1. etasje").into()));
}

fn tags(file: &File) -> Value {
    match &file.tags {
        Some(tags) => Value::List(tags.iter().cloned().map(Value::from).collect()),
        None if file.trivia.chance(10, 50) => Value::Absent,
        None => Value::Null,
    }
}

/// Who may see a file: records, where they are on the wire, else what a bare name says.
pub(crate) fn access(file: &File) -> Vec<Record> {
    match &file.access {
        Access::Absent | Access::Null => Vec::new(),
        Access::Shared(list) => list
            .iter()
            .map(|(id, role, shared)| {
                let mut r = Record::with_capacity(4);
                r.put("Id", *id)
                    .put("CaseRole", *role)
                    .put("FileId", Value::Guid(file.id))
                    .put("SharedDate", shared.map_or(Value::Unset { zoned: true }, Value::Zoned));
                r
            })
            .collect(),
        Access::Bare(roles) => roles
            .iter()
            .map(|role| {
                let mut r = Record::with_capacity(4);
                r.put("Id", Value::Null)
                    .put("CaseRole", *role)
                    .put("FileId", Value::Guid(file.id))
                    .put("SharedDate", Value::Null);
                r
            })
            .collect(),
    }
}

/// A note (reference 2.10).
pub(crate) fn note(case: &Case, note: &Note) -> Record {
    let odd = note.id % 2 == 1;
    let ids = |list: &Option<Vec<i64>>| match list {
        Some(list) => Value::List(list.iter().copied().map(Value::Int).collect()),
        None if odd => Value::Absent,
        None => Value::Null,
    };
    let mut r = Record::with_capacity(17);
    r.put("Id", note.id)
        .put("Message", note.message.clone())
        .put("CreatedDate", note.created)
        .put("CreatedById", note.created_by)
        .put("NoteType", note.kind.clone())
        .put("ContactIds", ids(&note.contacts))
        .put("CaseIds", ids(&note.cases))
        .put("BidIds", if odd { Value::List(Vec::new()) } else { Value::Null })
        .put(
            "InvoiceSerialNumbers",
            if note.id % 7 == 0 { Value::List(vec!["F-0042".into()]) } else { Value::Absent },
        )
        .put("IsBidComment", false)
        .put("IsImportant", note.important)
        .put("IsReadOnly", note.id % 9 == 0)
        .put("NoteParentType", (note.id % 4 == 0).then_some("Stakeholder"))
        .put("NoteTypes", Value::List(vec![note.kind.clone().into()]))
        .put("OwnerCaseType", "Unknown")
        .put("OwnerId", case.id())
        .put("OwnerType", "Case");
    if note.id % 5 == 0 {
        r.unknown("Comments", "[{\"Id\":1,\"Text\":\"Sett 👀\"}]");
    }
    r
}

/// The texts about a property (observed fields).
pub(crate) fn information(case: &Case, information: &Information) -> Record {
    let t = case.trivia;
    let text = |number: u64| match t.between(600 + number, 0, 9) {
        0..4 => Value::Null,
        4 => Value::Absent,
        _ => t.pick(700 + number, names::TEXTS).into(),
    };
    let day = |at: Option<LocalMs>| at.map_or(Value::Unset { zoned: false }, Value::Local);
    let mut r = Record::with_capacity(40);
    r.put("Id", case.id() * 10 + 7)
        .put("Details", information.details.clone())
        .put("Contents", text(1))
        .put("LocationDescription", text(2))
        .put("LocationType", t.pick(599, &["Town", "Sea", "Mountain", "VedElva"]))
        .put(
            "ShortPropertyDescription",
            format!("Innholdsrik bolig, utgave {}", information.edition),
        )
        .put("ValuationDescription", text(3))
        .put("NumberOfParkingLots", t.chance(598, 60).then(|| t.between(597, 0, 4)))
        .put("Radon", text(4));
    for (number, name) in (5..).zip([
        "LawRequiredDemands",
        "CentralLaws",
        "BuyerInsurance",
        "Prepayment",
        "Attachments",
        "Disclaimer",
        "DeclarationOfConcessionFreedom",
        "OtherAgreements",
        "ImportantInformationComment",
        "PreemptionComment",
        "Progression",
        "Completion",
        "Appliances",
        "MarketingHeader",
    ]) {
        r.put(name, text(number));
    }
    r.put("AsIs", t.chance(596, 30))
        .put("ShortDeliveryDescription", text(30))
        .put("CompletionDate", day(information.completion))
        .put("TemporaryPermitRegisteredDate", information.permit_registered)
        .put("TemporaryPermitExpiryDate", day(information.permit_expires));
    for (number, name) in (31..).zip([
        "ValuationComment",
        "BidProcessComment",
        "ShowingComment",
        "UsefulTips",
        "FinanceComment",
        "OtherRightsAndObligations",
    ]) {
        r.put(name, text(number));
    }
    r.put("SellerInsuranceType", information.insurance)
        .put("CurrentConstructionPhase", t.chance(595, 20).then_some("Planning"));
    for (number, name) in
        (50..).zip(["PhaseDevelopmentStart", "PhaseMoveIn", "PhasePlanning", "PhaseSaleStart"])
    {
        r.put(name, text(number));
    }
    r
}

/// A housing association (reference 2.16).
pub(crate) fn association(case: &Case, association: &Association) -> Record {
    let id = association.id;
    let number = format!("9{:08}", id * 137);
    let mut r = Record::with_capacity(16);
    r.put("OrganizationNumber", number.clone())
        .put("NoContact", id % 4 == 0)
        .put("SkipAmlMonitoring", false)
        .put("Id", id)
        .put("Guid", Value::Guid(case.trivia.guid(77)))
        .put("ChainId", CHAIN_ID)
        .put("BrokerCompanyId", (id % 3 > 0).then_some(3_i64))
        .put("Name", association.name.clone())
        .put("Type", "HousingAssociation")
        .put(
            "Functions",
            match id % 3 {
                0 => Value::Null,
                1 => Value::List(Vec::new()),
                _ => Value::List(vec!["HousingAssociation".into()]),
            },
        )
        .put("Active", association.active)
        .put("IsPublic", true)
        .put("IsProfessional", true)
        .put("IdentificationNumber", number)
        .put("CountryOfNationalityId", 578_i64);
    r
}

/// A section of the dynamic sale text (reference 2.14).
pub(crate) fn sale_text(text: &SaleText) -> Record {
    let mut r = Record::with_capacity(9);
    r.put("Id", text.id)
        .put("ParentId", text.parent)
        .put("Header", text.header.clone())
        .put("Text", text.text.clone())
        .put("Level", text.level)
        .put("ShouldNotBePublished", text.hidden)
        .put("HasError", text.error.is_some())
        .put("ErrorMessage", text.error.map_or(Value::Absent, Value::from))
        .put("UpdatedAt", text.updated);
    r
}
