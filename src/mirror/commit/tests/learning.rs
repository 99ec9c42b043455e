//! A row about a person who is forgotten comes after the person was put on the list.

use super::*;
use crate::config::{self, PrivacyMode};
use crate::decode::Forgotten;

const NAME: &str = "Kari Uvanlig Nordmann";
const EMAIL: &str = "kari.uvanlig@example.no";

/// A mirror of which nothing but the id of contact 6 is to be kept out.
fn mirror() -> Mirror {
    let mut mirror = Mirror::new();
    let list = Forgotten::nobody([7; 32]);
    let list = list.with([list.contact(6)]);
    mirror.context.privacy = mirror.context.privacy.forgetting(list);
    mirror
}

impl Mirror {
    fn record(&self, table: &str, id: i64, record: &str) -> Load {
        let params = Params::from([("case_id".to_owned(), Param::Int(id))]);
        self.load_records(table, id, &[record.to_owned()], &params, None)
    }

    fn contact(&self, email: &str) -> Load {
        let record = format!(
            r#"{{"Id":6,"Active":true,"Name":"{NAME}","Email":"{email}","Emails":["{email}"]}}"#
        );
        self.record("contacts", 6, &record)
    }

    fn case(&self, id: i64) -> Load {
        let record = format!(
            r#"{{"Id":{id},"CaseId":{id},"Sellers":["{NAME}","Ola Bakke"],"SellerEmails":["{EMAIL}"],
                "Address":"Vei {id}","Unheard":"{NAME} ringte"}}"#
        );
        self.record("cases", id, &record)
    }

    fn note(&self, id: i64) -> Load {
        self.record("notes", id, &format!(r#"{{"Id":{id},"Message":"Ring {NAME}"}}"#))
    }

    /// In which texts of rows, versions and the daemon's own state one of these stands.
    fn places_of(&self, texts: &[&str]) -> Vec<String> {
        let columns: Vec<(String, String)> = query(
            &self.conn,
            "SELECT format('\"{}\".\"{}\"', schema_name, table_name), format('\"{}\"', column_name) \
             FROM duckdb_columns() WHERE database_name = current_database() \
               AND schema_name IN ('main', 'history', 'sync') AND data_type LIKE '%VARCHAR%'",
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
        let mut all = Vec::new();
        for (table, column) in columns {
            let stands =
                texts.iter().map(|t| format!("contains({column}::VARCHAR, {})", sql::text(t)));
            let stands = stands.collect::<Vec<_>>().join(" OR ");
            if self.count(&format!("{table} WHERE {stands}")) > 0 {
                all.push(format!("{table}.{column}"));
            }
        }
        all
    }

    fn count(&self, what: &str) -> i64 {
        sql::scalar_i64(&self.conn, &format!("SELECT count(*) FROM {what}")).unwrap()
    }

    fn is_erasing(&self) -> bool {
        self.count("sync.meta WHERE key = 'erased_values_published'") == 1
    }
}

#[test]
fn a_forgotten_person_whose_row_comes_late_is_taken_out_of_the_rows_of_others() {
    let mut mirror = mirror();
    mirror.write(vec![mirror.case(1), mirror.note(1)], true);
    assert_ne!(mirror.places_of(&[NAME]), [""; 0], "nobody knows whose name that is");
    // Decoded before anybody knows, and committed after the person's row.
    let (waits, repeats) = (mirror.note(3), mirror.case(2));
    let case =
        format!(r#"{{"Id":1,"CaseId":1,"Sellers":["{NAME}","Ola Bakke"],"Address":"Vei 10"}}"#);
    let changes = mirror.record("cases", 1, &case);
    let all = vec![mirror.contact(EMAIL), mirror.case(2), changes, mirror.note(2)];
    mirror.write(all, true);
    assert_eq!(mirror.places_of(&[NAME, EMAIL]), [""; 0]);
    assert!(mirror.is_erasing());
    let versions = mirror.count("history.cases");
    mirror.write(vec![waits, repeats], true);
    assert_eq!(mirror.places_of(&[NAME, EMAIL]), [""; 0]);
    assert_eq!(mirror.count("history.cases"), versions, "it is what was rewritten");
    // Decoded since.
    mirror.write(vec![mirror.case(4), mirror.note(4)], true);
    assert_eq!(mirror.places_of(&[NAME, EMAIL]), [""; 0]);
    // The rows are there, and what tells of others.
    assert_eq!(mirror.count("main.cases WHERE list_contains(sellers, 'Ola Bakke')"), 3);
    assert_eq!(mirror.count("main.notes WHERE message = 'Ring [forgotten]'"), 4);
    assert_eq!(mirror.count("main.contacts WHERE id = 6 AND active AND name IS NULL"), 1);
    // Once is enough.
    assert!(mirror.count("sync.forgotten") > 0);
    assert!(mirror.contact(EMAIL).decoded.all_learned().is_empty());
}

#[test]
fn another_address_of_a_forgotten_person_is_kept_out_of_other_rows_too() {
    let mut mirror = mirror();
    mirror.write(vec![mirror.contact("earlier@example.no")], true);
    mirror.write(vec![mirror.case(1)], true);
    assert_eq!(mirror.places_of(&[NAME]), [""; 0]);
    assert_ne!(mirror.places_of(&[EMAIL]), [""; 0]);
    mirror.write(vec![mirror.contact(EMAIL)], true);
    assert_eq!(mirror.places_of(&[NAME, EMAIL]), [""; 0]);
}

#[test]
fn what_a_commit_that_fails_has_learned_is_learned_again() {
    let mut mirror = mirror();
    mirror.write(vec![mirror.case(1)], true);
    mirror.write(vec![mirror.contact(EMAIL)], false);
    assert_eq!(mirror.count("sync.forgotten"), 0);
    mirror.write(vec![mirror.contact(EMAIL)], true);
    assert_eq!(mirror.places_of(&[NAME, EMAIL]), [""; 0]);
}

/// It is a hash like any other where identifiers are hashed.
#[test]
fn what_stands_in_the_rows_of_others_who_came_with_the_person_is_a_mask() {
    let mut mirror = mirror();
    let settings =
        config::Privacy { identifiers: PrivacyMode::Hash, contact_details: PrivacyMode::Keep };
    let list = mirror.context.privacy.forgotten();
    mirror.context.privacy = Privacy::new(&settings, [7; 32]).forgetting((*list).clone());
    let records = [5, 6, 7].map(|id| format!(r#"{{"Id":{id},"IdentificationNumber":"XXXXXX"}}"#));
    let load = mirror.load_records("contacts", 0, &records, &Params::new(), None);
    assert!(!load.decoded.all_learned().is_empty());
    mirror.write(vec![load], true);
    assert_eq!(mirror.count("main.contacts WHERE identification_number IS NOT NULL"), 2);
    assert!(!mirror.is_erasing(), "nothing was learned");
}

const STREET: &str = "Kastanjesvingen 12 B";

impl Mirror {
    /// Places as many have them, and what others wrote of these and of where the contact lives.
    fn places(&self, id: i64) -> Vec<Load> {
        let case = format!(
            r#"{{"Id":{id},"CaseId":{id},"City":"Drammen","Area":"Kvartal 5",
                "Office":"Drammen Eiendom","Address":"{STREET}, 3015 Drammen"}}"#
        );
        let note = format!(
            r#"{{"Id":{id},"Message":"Hos kastanjesvingen 12 b i Drammen, Kvartal 5, nummer ukjent, ring 98 76 54 32"}}"#
        );
        vec![self.record("cases", id, &case), self.record("notes", id, &note)]
    }
}

/// Nobody has asked for it: the row just came.
#[test]
fn a_late_row_takes_what_is_the_persons_and_no_word_of_everybodys() {
    let mut mirror = mirror();
    mirror.write(mirror.places(1), true);
    let mut all = mirror.places(2);
    all.push(mirror.record(
        "contacts",
        6,
        &format!(
            r#"{{"Id":6,"Active":true,"Address":"Drammen","Addresses":["Drammen","3015 Drammen","Kvartal 5"],
                "Street":"{STREET}","Email":"ukjent","PhoneNumber":"ukjent",
                "PhoneNumbers":["ukjent","+47 987 65 432"],"Remark":{{"Mobil":"Drammen"}}}}"#
        ),
    ));
    mirror.write(all, true);
    // Decoded since.
    mirror.write(mirror.places(3), true);
    let of_all = [
        "cases WHERE city = 'Drammen' AND area = 'Kvartal 5' AND office = 'Drammen Eiendom' \
           AND address = '[forgotten], 3015 Drammen'",
        "notes WHERE message = 'Hos [forgotten] i Drammen, Kvartal 5, nummer ukjent, ring [forgotten]'",
    ];
    for rows in of_all {
        assert_eq!(mirror.count(&format!("main.{rows}")), 3, "{rows}");
    }
    // Of the person's own row every text goes, whatever it tells.
    let own = "main.contacts WHERE id = 6 AND coalesce(address, street, email, phone_number, _extra) IS NULL \
                 AND addresses IS NULL AND phone_numbers IS NULL";
    assert_eq!(mirror.count(own), 1);
}

#[test]
fn a_late_row_with_nothing_but_words_of_everybodys_has_nothing_rewritten() {
    let mut mirror = mirror();
    mirror.write(mirror.places(1), true);
    let row = r#"{"Id":6,"Active":true,"Address":"Drammen","Addresses":["KVARTAL 5"],"PhoneNumber":"ukjent"}"#;
    mirror.write(vec![mirror.record("contacts", 6, row)], true);
    assert_eq!(mirror.count("sync.forgotten"), 0);
    assert!(!mirror.is_erasing());
    assert_ne!(mirror.places_of(&["Drammen"]), [""; 0]);
}
