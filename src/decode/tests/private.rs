//! Privacy: what a class hides stays hidden wherever it turns up.

use super::*;

#[test]
fn identifiers_are_hashed_wherever_they_turn_up() {
    let secret = "01017012345";
    let record = format!(
        r#"{{"Id":5,"IdentificationNumber":"{secret}","NationalIdentityNumber":"{secret}",
            "Inner":{{"PersonalNumber":"{secret}"}},"Name":7}}"#
    );
    let decoded = decode("contacts", &[&record]);
    let hash = texts(&decoded, "identification_number")[0].clone().unwrap();
    assert_eq!(hash.len(), 32);
    let extra = texts(&decoded, "_extra")[0].clone().unwrap();
    assert!(extra.contains(&format!(r#""NationalIdentityNumber":"{hash}""#)), "{extra}");
    let everything = format!("{:?}{:?}{extra}", decoded.rejects, decoded.drift);
    assert!(!everything.contains(secret), "{everything}");
}

/// They are to be kept out of other rows, for which somebody has to know them.
#[test]
fn what_a_forgotten_persons_row_says_is_handed_along_and_in_no_row() {
    for mode in [PrivacyMode::Keep, PrivacyMode::Hash, PrivacyMode::Drop] {
        let plain = context(PrivacyMode::Keep, mode);
        let list = Forgotten::nobody([7; 32]);
        let list = list.with([list.contact(6)]);
        let context = Context { privacy: plain.privacy.clone().forgetting(list), ..plain };
        let record = r#"{"Id":6,"Name":"Ola Nordmann","FirstName":"Ola","Email":"ola@example.no",
                         "PhoneNumbers":["91234567","22"],"JobTitle":"Sjef","Inner":{"PersonalNumber":"01017012345"}}"#;
        let decode = || decode_with(&context, "contacts", &Params::new(), &[record]);
        let decoded = decode();
        assert_eq!(decoded.all_learned().len(), 1);
        let learned = decoded.all_learned()[0].clone();
        assert_eq!((learned.table.as_str(), learned.contact), ("contacts", 6));
        let stored = |text: &str| match mode {
            PrivacyMode::Keep => Some(text.to_owned()),
            PrivacyMode::Hash => Some(context.privacy.hash(text)),
            PrivacyMode::Drop => None,
        };
        let texts: BTreeSet<String> =
            learned.texts.iter().map(|telling| telling.text.clone()).collect();
        let mut expected = BTreeSet::from(["Ola Nordmann".to_owned(), "01017012345".to_owned()]);
        expected.extend(["ola@example.no", "91234567"].into_iter().filter_map(stored));
        // A hash does not show how little it is of.
        expected.extend(stored("22").filter(|_| mode == PrivacyMode::Hash));
        assert_eq!(texts, expected, "{mode:?}");
        let shown = format!("{decoded:?}");
        for text in &texts {
            assert!(!shown.contains(text.as_str()), "{shown}");
        }

        // Who decodes from then on knows it, by the same list.
        let catalog = Catalog::load(None).unwrap();
        let reading = || Reading::of(&catalog, catalog.get("cases").unwrap(), &context);
        let (before, list) = (reading(), context.privacy.forgotten());
        let entries = learned.texts.iter().flat_map(|t| list.entries_of(&t.text, t.class));
        context.privacy.clone().learn(list.with(entries));
        assert!(decode().all_learned().is_empty(), "{mode:?}");
        assert_ne!(before, reading(), "equal bytes are decoded to other rows");
    }
}

#[test]
fn answers_that_waited_become_what_they_would_be_if_they_were_decoded_now() {
    let early = context(PrivacyMode::Keep, PrivacyMode::Keep);
    let list = early.privacy.forgotten();
    let texts = [("Ola Nordmann", None), ("ola@example.no", Some(Class::ContactDetail))];
    let entries = texts.iter().flat_map(|(text, class)| list.entries_of(text, *class));
    let list = list.with(entries);
    let late = Context { privacy: early.privacy.clone().forgetting(list.clone()), ..early.clone() };
    let cases = [
        r#"{"Id":1,"CaseId":1,"Sellers":["Nordmann, Ola","Kari Bakke",null],"SellerEmails":["ola@example.no"],
            "Address":"Vei 1","Unheard":{"Who":["Ola Nordmann"]},"SellerPhones":null,"Heading":7}"#,
        r#"{"Id":2,"CaseId":2,"Heading":"Ola Nordmann","Address":{"By":"Ola Nordmann"}}"#,
    ];
    let line = r#"{"CaseReferralKey":"1","CaseDuration":"Ola Nordmann",
                   "Annotations":[{"Annotation":"Ring Ola Nordmann!"}]}"#;
    let contact =
        r#"{"Id":5,"Name":"Ola Nordmann","Email":"ola@example.no","JobTitle":"Hos Ola Nordmann"}"#;
    let tables: [(&str, &[&str]); 3] =
        [("cases", &cases), ("case_journals", &[line]), ("contacts", &[contact])];
    for (table, records) in tables {
        let mut waited = decode_with(&early, table, &params(), records);
        let before = format!("{waited:?}");
        waited.catch_up(&list).unwrap();
        let now = decode_with(&late, table, &params(), records);
        assert_eq!(format!("{waited:?}"), format!("{now:?}"), "{table}");
        assert_ne!(format!("{waited:?}"), before, "{table}");
    }
}

/// A couple's telephone is the other one's, too, and that of an office is the office's: read again they say what the
/// source says.
#[test]
fn a_forgotten_persons_details_stay_in_the_rows_about_others() {
    for mode in [PrivacyMode::Keep, PrivacyMode::Hash] {
        let plain = context(PrivacyMode::Keep, mode);
        let record = r#"{"Id":5,"PhoneNumber":"91234567","Emails":["a@example.no"],"JobTitle":"Ring 91234567",
                         "IdentificationNumber":"01017012345"}"#;
        let before = decode_with(&plain, "contacts", &Params::new(), &[record]);
        let mut forgotten = Forgotten::nobody([7; 32]);
        for text in ["91234567", "a@example.no", "01017012345"] {
            let known =
                if mode == PrivacyMode::Hash { plain.privacy.hash(text) } else { text.to_owned() };
            for entry in forgotten.entries_of(&known, Some(Class::ContactDetail)) {
                forgotten.add(entry);
            }
        }
        forgotten.add(forgotten.contact(6));
        let context = Context { privacy: plain.privacy.clone().forgetting(forgotten), ..plain };
        let decode =
            |table: &str, record: &str| decode_with(&context, table, &Params::new(), &[record]);
        let after = decode("contacts", record);
        let phone = |decoded: &Decoded| texts(decoded, "phone_number")[0].clone();
        assert_eq!(phone(&after), phone(&before));
        assert_ne!(phone(&after), None);
        let lists =
            |decoded: &Decoded| format!("{:?}", decoded.rows.column_by_name("emails").unwrap());
        assert_eq!(lists(&after), lists(&before));
        let title = texts(&after, "job_title")[0].clone().unwrap();
        assert_eq!(title, "Ring [forgotten]", "{mode:?}");
        // Nobody shares an identity number.
        if mode == PrivacyMode::Keep {
            assert_eq!(texts(&after, "identification_number"), [None]);
        }
        let own = decode("contacts", &record.replace("\"Id\":5", "\"Id\":6"));
        assert_eq!(phone(&own), None);
        let office = decode("offices", r#"{"Id":1,"Telephone":"91234567"}"#);
        assert_ne!(texts(&office, "telephone"), [None]);
        let case = decode("cases", r#"{"Id":1,"CaseId":1,"SellerPhones":["91234567"]}"#);
        let phones = format!("{:?}", case.rows.column_by_name("seller_phones").unwrap());
        assert!(phones.contains("null"), "{phones}");
    }
}

/// `forget` finds in the store what privacy made of a text, and nothing else: what is read again is what it left.
#[test]
fn what_is_decoded_is_what_forgetting_leaves_of_the_rows_in_the_store() {
    let mut params = params();
    for (name, value) in [("journal_level", "offices"), ("journal_month", "2026-10-01")] {
        params.insert(name.to_owned(), Param::Text(value.to_owned()));
    }
    params.insert("journal_id".to_owned(), Param::Int(11));
    for mode in [PrivacyMode::Keep, PrivacyMode::Hash, PrivacyMode::Drop] {
        let plain = context(PrivacyMode::Keep, mode);
        let list = plain.privacy.forgotten();
        let list = list.with(list.entries_of("Dag Hansen", None));
        let context =
            Context { privacy: plain.privacy.clone().forgetting(list.clone()), ..plain.clone() };
        for name in ["Dag Hansen", "Hansen, Dag", "Oda Jensen og Dag Hansen", "Oda Jensen"] {
            let line = format!(
                r#"{{"CaseReferralKey":"1","SellerName":"{name}","OtherPhone":"{name}","More":{{"Email":"{name}"}},
                    "Andel til {name}":1,"Eiere":{{"{name}":{{"Andel":1}}}}}}"#
            );
            let decode = |context| decode_with(context, "case_journals", &params, &[&line]);
            let (stored, again) = (decode(&plain), decode(&context));
            let left = |column: &str, is_json: bool| {
                texts(&stored, column)[0].clone().and_then(|text| {
                    if is_json { Some(list.json_without(&text)) } else { list.text_without(&text) }
                })
            };
            let read = |column: &str| texts(&again, column)[0].clone();
            assert_eq!(read("seller_name"), left("seller_name", false), "{mode:?}: {name}");
            assert_eq!(read("_extra"), left("_extra", true), "{mode:?}: {name}");
            let drift = |decoded: &Decoded| -> BTreeSet<String> {
                decoded.drift.iter().map(|drift| list.name_without(drift.field.clone())).collect()
            };
            let fields = again.drift.iter().map(|drift| drift.field.clone());
            assert_eq!(fields.collect::<BTreeSet<_>>(), drift(&stored), "{mode:?}: {name}");
            assert!(!format!("{again:?}").contains("til Dag Hansen"), "{mode:?}: {name}");
            let is_gone = name == "Dag Hansen" || mode == PrivacyMode::Drop;
            let is_gone = is_gone || (mode == PrivacyMode::Keep && name == "Hansen, Dag");
            assert_eq!(read("seller_name").is_none(), is_gone, "{mode:?}: {name}");
        }
    }
}

#[test]
fn dropped_classes_leave_neither_column_nor_extra() {
    let context = context(PrivacyMode::Drop, PrivacyMode::Drop);
    let decoded = decode_with(
        &context,
        "contacts",
        &Params::new(),
        &[
            r#"{"Id":5,"Email":"a@example.no","Emails":["a@example.no"],"WorkEmail":"b@example.no","MobileX":1}"#,
        ],
    );
    assert_eq!(texts(&decoded, "email"), [None]);
    assert!(decoded.rows.column_by_name("emails").unwrap().is_null(0));
    assert_eq!(texts(&decoded, "_extra"), [None]);
    assert!(!format!("{:?}", decoded.drift).contains("example.no"));
}

#[test]
fn an_object_in_place_of_another_is_hidden_like_the_strictest_of_its_columns() {
    let record = r#"{"Id":1,"Seller":"01017012345"}"#;
    let decoded = decode_by(&nested_catalog(), &hiding(), "things", &Params::new(), &[record]);
    let everything = format!("{decoded:?}");
    assert!(!everything.contains("01017012345"), "{everything}");
    assert_eq!(
        faults(&decoded),
        [
            ("seller_name", "a string where an object belongs"),
            ("seller_number", "a string where an object belongs")
        ]
    );
}

#[test]
fn of_an_object_that_names_a_field_twice_nothing_is_taken_or_shown() {
    let record = r#"{"Id":1,"Seller":{"Number":"01017012345","Name":"Kari","Number":"2"}}"#;
    let decoded = decode_by(&nested_catalog(), &hiding(), "things", &Params::new(), &[record]);
    let everything = format!("{decoded:?}");
    assert!(!everything.contains("01017012345"), "{everything}");
    let twice = "an object that names the field Number twice";
    assert_eq!(faults(&decoded), [("seller_name", twice), ("seller_number", twice)]);
    assert_eq!(texts(&decoded, "seller_name"), [None]);
}

/// What a subscription holds that is not documented can be its secret by another name.
#[test]
fn of_a_webhooks_subscription_nothing_is_kept_but_its_columns() {
    let record = r#"{"Id": 5, "EventType": "CaseSold", "Url": "https://h.example.com/webhooks/t0ken",
        "secret": "s3cret", "CallbackUrl": "https://h.example.com/webhooks/t0ken", "Inner": {"Secret": "s3cret"}}"#;
    let decoded = decode("webhook_subscriptions", &[record]);
    assert_eq!(texts(&decoded, "url"), [Some("https://h.example.com".to_owned())]);
    assert_eq!(texts(&decoded, "_extra"), [None]);
    let mut drift: Vec<(&str, Option<&str>)> =
        decoded.drift.iter().map(|d| (d.field.as_str(), d.example.as_deref())).collect();
    drift.sort_unstable();
    assert_eq!(drift, [("CallbackUrl", None), ("Inner", None), ("secret", None)]);
    assert!(decoded.rejects.is_empty());
}

#[test]
fn a_class_holds_for_a_name_at_any_depth() {
    let secret = "01017012345";
    let mut record = format!(r#"{{"PersonalNumber":"{secret}"}}"#);
    for _ in 0..100 {
        record = format!(r#"{{"Inner":{record}}}"#);
    }
    let record = format!(r#"{{"Id":1,"Deep":{record}}}"#);
    let decoded = decode_with(&hiding(), "costs", &params(), &[&record]);
    let extra = texts(&decoded, "_extra")[0].clone().unwrap();
    assert!(extra.starts_with(r#"{"Deep":{"Inner":{"Inner":"#), "{extra}");
    assert!(!format!("{extra}{:?}", decoded.drift).contains(secret));
}

#[test]
fn a_list_that_does_not_fit_is_hidden_too() {
    let decoded = decode_with(
        &context(PrivacyMode::Hash, PrivacyMode::Hash),
        "contacts",
        &Params::new(),
        &[r#"{"Id":5,"Emails":["a@example.no",7]}"#],
    );
    assert_eq!(faults(&decoded), [("emails", "element 2: a number where a string belongs")]);
    assert!(!format!("{decoded:?}").contains("example.no"));
}

#[test]
fn what_no_record_is_repeats_nothing_of_itself() {
    let decoded = decode_with(&hiding(), "contacts", &Params::new(), &[r#""01017012345""#]);
    assert_eq!(faults(&decoded), [("(record)", "a string where a record belongs")]);
    assert!(!format!("{:?}", decoded.rejects).contains("01017012345"));
}

#[test]
fn a_hash_of_this_mirror_is_not_hashed_again_and_no_other_text_is_taken_for_one() {
    let privacy = hiding().privacy;
    let hash = privacy.hash("01017012345");
    assert_eq!(privacy.hash(&hash), hash);
    // As long, of the same digits, but not made with our key.
    let mut other = hash.clone();
    other.replace_range(31.., if hash.ends_with('0') { "1" } else { "0" });
    assert_ne!(privacy.hash(&other), other);
    assert_ne!(privacy.hash(&"0".repeat(32)), "0".repeat(32));
    let settings = crate::config::Privacy {
        identifiers: PrivacyMode::Hash,
        contact_details: PrivacyMode::Keep,
    };
    let another = Privacy::new(&settings, [8; 32]);
    assert_ne!(another.hash("01017012345"), hash);
    assert_ne!(another.hash(&hash), hash);
    assert_ne!(another.fingerprint(), privacy.fingerprint());
}

fn hiding() -> Context {
    context(PrivacyMode::Hash, PrivacyMode::Keep)
}

/// A table with parts of an object as columns, one of them an identity number.
fn nested_catalog() -> Catalog {
    let folder = tempfile::tempdir().unwrap();
    let file = r#"
table = "things"
comment = "Things."
key = ["id"]
group = "list"
schedule = "reference"
[read]
method = "GET"
path = "/api/Things"
answer = "list"
[[column]]
field = "Id"
type = "int"
comment = "The thing."
[[column]]
field = "Seller.Name"
type = "string"
comment = "Its seller."
[[column]]
field = "Seller.Number"
type = "string"
class = "identifier"
comment = "The seller's identity number."
"#;
    std::fs::write(folder.path().join("things.toml"), file).unwrap();
    Catalog::load(Some(folder.path())).unwrap()
}
