//! What is found of a person, and what is not.

use proptest::prelude::*;

use super::*;

const DETAIL: Option<Class> = Some(Class::ContactDetail);
const IDENTIFIER: Option<Class> = Some(Class::Identifier);

fn with(texts: &[&str]) -> Forgotten {
    let mut forgotten = Forgotten::nobody([7; 32]);
    for text in texts {
        let is_name = text.contains(char::is_alphabetic) && !text.contains(['@', '1']);
        let class = (!is_name).then_some(Class::ContactDetail);
        let entries = forgotten.entries_of(text, class);
        assert_ne!(entries, []);
        entries.into_iter().for_each(|entry| forgotten.add(entry));
    }
    forgotten
}

fn without(text: &str) -> Cleared {
    Cleared::Without(text.to_owned())
}

#[test]
fn a_text_is_found_word_by_word_whatever_stands_between() {
    let forgotten = with(&["ola@nordmann.no", "20 30 40 50", "Åge Ødegård"]);
    for gone in ["ola@nordmann.no", " Ola@Nordmann.NO ", "20-30.40/50", "åge  ØDEGÅRD."] {
        assert_eq!(forgotten.clear(gone), Cleared::Gone, "{gone}");
    }
    assert_eq!(forgotten.clear("Åge Ødegårdsen"), Cleared::Same, "another word");
    assert_eq!(
        forgotten.clear("Ring 20 30-40 50, eller skriv til ola@nordmann.no!"),
        without("Ring [forgotten], eller skriv til [forgotten]!")
    );
    assert_eq!(forgotten.clear("20 20 30 40 50 50"), without("20 [forgotten] 50"));
    assert_eq!(forgotten.clear(""), Cleared::Same);
}

#[test]
fn a_value_of_which_the_mirror_has_the_hash_alone_is_found_in_a_text() {
    let hashes = Hashes::new([7; 32]);
    let mut forgotten = Forgotten::nobody([7; 32]);
    for plain in ["01017012345", "ola@nordmann.no", "+47 46725073", "+4641725073"] {
        let hash = hashes.hash(plain);
        assert!(forgotten.parts_of(&hash).contains(&Part::Hashed));
        forgotten.entries_of(&hash, DETAIL).into_iter().for_each(|entry| forgotten.add(entry));
        assert_eq!(forgotten.clear(&hash), Cleared::Gone);
    }
    for gone in ["01017012345", "010170 12345", " 010170-12345.", "Ola@Nordmann.no"] {
        assert_eq!(forgotten.clear(gone), Cleared::Gone, "{gone}");
    }
    assert_eq!(
        forgotten.clear("Fnr 01017012345, <ola@nordmann.no>. Ring 20 30 40 50"),
        without("Fnr [forgotten], <[forgotten]>. Ring 20 30 40 50")
    );
    assert_eq!(forgotten.clear("Ring +47 46725073!"), without("Ring +[forgotten]!"));
    assert_eq!(forgotten.clear("+46 417 25 073"), Cleared::Gone);
    for other in ["01017012346", "47 46725073", "kari@nordmann.no", "101701234", "010170"] {
        assert_eq!(forgotten.clear(other), Cleared::Same, "{other}");
    }
}

/// A name is known as it is, and stands hashed in the rows of others.
#[test]
fn a_text_is_found_as_its_hash_where_privacy_hashes_it() {
    let forgotten = with(&["Dag Hansen"]);
    let hash = Hashes::new([7; 32]).hash("Dag Hansen");
    assert_eq!(forgotten.clear(&hash), Cleared::Gone);
    assert!(may_stand_in(&forgotten, "Dag Hansen", &hash));
    let other = Hashes::new([7; 32]).hash("Hansen, Dag");
    assert_eq!(forgotten.clear(&other), Cleared::Same, "of which SQL finds no row");
    // Of a column with a class that is kept now, and was hashed when the person was forgotten.
    let mut known_by_hash = Forgotten::nobody([7; 32]);
    known_by_hash.entries_of(&hash, DETAIL).into_iter().for_each(|entry| known_by_hash.add(entry));
    assert_eq!(known_by_hash.clear_cell("Dag Hansen", true), Cleared::Gone);
    assert_eq!(known_by_hash.clear_cell("Dag Hansen", false), Cleared::Same);
}

#[test]
fn of_several_texts_that_begin_alike_the_longest_goes() {
    let forgotten = with(&["Storgata 12", "Storgata 12, 0155 Oslo"]);
    assert_eq!(forgotten.clear("Storgata 12, 0155 Oslo"), Cleared::Gone);
    assert_eq!(forgotten.clear("Storgata 12, 0155 Os"), without("[forgotten], 0155 Os"));
}

#[test]
fn what_many_have_alike_tells_nothing_of_one() {
    let forgotten = Forgotten::nobody([7; 32]);
    for common in ["", "0155", "Oslo", ", -", "1 2 3 4", "ukjent", "Ikke oppgitt", "XXXXXX"] {
        for class in [DETAIL, IDENTIFIER] {
            assert_eq!(forgotten.entries_of(common, class), [], "{common}");
        }
    }
    assert_eq!(forgotten.entries_of("Nordmann", None), [], "a name of one word");
    assert_ne!(forgotten.entries_of("Ola Nordmann", None), []);
    assert_eq!(
        forgotten.entries_of("12345", IDENTIFIER).len(),
        2,
        "it and its hash, and no number of anybody"
    );
}

/// A detail that is a town, a street or a word stands in the rows of everybody.
#[test]
fn a_detail_is_somebodys_where_it_has_the_form_of_an_address_or_a_telephone() {
    let forgotten = Forgotten::nobody([7; 32]);
    for common in [
        "Drammen",
        "3015 Drammen",
        "0155  OSLO",
        "Oslo 0155",
        "Storgata",
        "Storgata, 3015 Drammen",
        "Norge, 3015 Drammen",
        "NO 3015 Drammen",
        "N-3015 Drammen",
        "Norge 3015 Drammen",
        "SE-111 22 Stockholm",
        "111 22 Stockholm",
        "10115 Berlin",
        "3015\nDrammen",
        "Drammen\n3015",
        "ukjent@",
        "@ukjent",
        "ukjent @",
        "ikke oppgitt",
        "123456",
        "Internt 12345",
        "H0201 Drammen",
        "1,2,3,4,5",
        "#ukjent",
    ] {
        assert_eq!(forgotten.entries_of(common, DETAIL), [], "{common}");
    }
    for own in [
        "Storgata 12",
        "storgata 12 b, 3015 Drammen",
        "Storgata 12B",
        "Storgt.12",
        "Storgata 12-14",
        "Storgata12",
        "Bjo\u{308}rka\u{30a} 1045",
        "Calle Mayor, 12, 28001 Madrid",
        "Storgata 12 3015 Drammen",
        "c/o Hansen\nBø 12\n3560 Hemsedal",
        "Fjellveien 1045",
        "Fjellveien 1045 B",
        "Fjellveien 1045, 3015 Drammen",
        "St. Olavs gate 5",
        "17. mai gate 3",
        "Postboks 123, 0155 Oslo",
        "12 Baker Street, London",
        "Storgatan 12, 111 22 Stockholm",
        "ola@nordmann.no",
        "Ola <ola@nordmann.no>",
        "91234567",
        "+47 912 34 567",
        "(+47) 91-23-45-67",
        "Mobil: 912 34 567",
        "46 70 123",
    ] {
        assert_ne!(forgotten.entries_of(own, DETAIL), [], "{own}");
    }
    for own in ["01017012345", "1970-01-01", "N1234567", "C01X00T47"] {
        assert_ne!(forgotten.entries_of(own, IDENTIFIER), [], "{own}");
    }
}

/// Whether SQL finds the row: `mirror/forgetting.rs`.
fn may_stand_in(forgotten: &Forgotten, text: &str, whole: &str) -> bool {
    forgotten.parts_of(text).into_iter().any(|part| match part {
        Part::Word(word) => whole.to_lowercase().contains(&word),
        Part::Digits(digits) => whole.replace(GAP, "").contains(&digits),
        Part::Hashed => false,
    })
}

#[test]
fn a_number_is_found_however_it_is_grouped_with_its_country_and_without() {
    for known in ["+47 46725073", "46725073", "0047 467 25 073", "(+47) 46 72 50 73", "4746725073"]
    {
        let forgotten = with(&[known]);
        for gone in [
            "46725073",
            "467 25 073",
            "46 72 50 73",
            "+47 467 25 073",
            "004746725073",
            "(+47) 467-25-073",
            "47 46725073",
            "46.72.50.73",
            "467\u{a0}25\u{a0}073",
        ] {
            assert_eq!(forgotten.clear(gone), Cleared::Gone, "{known}: {gone}");
            assert!(may_stand_in(&forgotten, known, gone), "{known}: {gone}");
        }
        assert_eq!(forgotten.clear("Tlf 467 25 073, takk"), without("Tlf [forgotten], takk"));
        for other in ["146725073", "467250731", "467, 25, 073", "467\n25 073", "467 x 25 073"] {
            assert_eq!(forgotten.clear(other), Cleared::Same, "{known}: {other}");
        }
    }
    let foreign = with(&["+46 70 123 45 67"]);
    for gone in ["070-123 45 67", "0046701234567", "+46 (70) 1234567", "701234567"] {
        assert_eq!(foreign.clear(gone), Cleared::Gone, "{gone}");
    }
    let person = with(&["01800003624"]);
    assert_eq!(person.clear("018000 03624"), Cleared::Gone);
    assert_eq!(person.clear("1800003624"), Cleared::Same);
}

#[test]
fn a_name_is_found_with_its_last_word_first_and_however_its_letters_are_composed() {
    let apart = "A\u{30a}ge Ødega\u{30a}rd";
    for known in ["Åge Ødegård", apart] {
        let forgotten = with(&[known]);
        for gone in ["Åge Ødegård", apart, "Ødegård, Åge", "ØDEGA\u{30a}RD ÅGE"] {
            assert_eq!(forgotten.clear(gone), Cleared::Gone, "{known}: {gone}");
            assert!(may_stand_in(&forgotten, known, gone), "{known}: {gone}");
        }
    }
    let of_three = with(&["Ola Per Nordmann"]);
    assert_eq!(of_three.clear("Nordmann, Ola Per"), Cleared::Gone);
}

/// As people write of what is a person's. The name alone with an s may be another's.
#[test]
fn a_name_is_found_in_the_genitive() {
    let (ola, aage) = ("Ola Nordmann", "Åge Ødegård");
    let forgotten = with(&[ola, aage]);
    for (known, whole, left) in [
        (ola, "Ola Nordmanns leilighet", "[forgotten] leilighet"),
        (ola, "Bilder av Ola Nordmanns.", "Bilder av [forgotten]."),
        (ola, "Nordmann, Olas hus", "[forgotten] hus"),
        (aage, "ÅGE ØDEGÅRDS hus", "[forgotten] hus"),
    ] {
        assert_eq!(forgotten.clear(whole), without(left), "{whole}");
        assert!(may_stand_in(&forgotten, known, whole), "{whole}");
    }
    for same in
        ["Ola Nordmanns", "Ola Nordmannss hus", "Olas Nordmann bor her", "Ola Nordmannsen er her"]
    {
        assert_eq!(forgotten.clear(same), Cleared::Same, "{same}");
    }
}

#[test]
fn of_json_the_texts_go_and_the_rest_stays_as_it_is() {
    let forgotten = with(&["Ola Nordmann", "20304050"]);
    let json =
        r#"{"a":["Ola Nordmann","x"],"b":{"c":20304050,"d":1.50},"e":"Til\nOla Nordmann\"s"}"#;
    assert_eq!(
        forgotten.clear_json(json).as_deref(),
        Some(r#"{"a":[null,"x"],"b":{"c":null,"d":1.50},"e":"Til\n[forgotten]\"s"}"#)
    );
    assert_eq!(forgotten.clear_json(r#"{"a":["Ola","Nordmann"]}"#), None, "two texts");
    let names = with(&["Ola Nordmann", "Kari Nordmann"]);
    for (json, left) in [
        (
            r#"{"Eiere":{"Ola Nordmann":{"Andel":1}},"X":2}"#,
            r#"{"Eiere":{"[forgotten]":{"Andel":1}},"X":2}"#,
        ),
        (r#"{"Andel til Ola Nordmann":1,"Z":2}"#, r#"{"Andel til [forgotten]":1,"Z":2}"#),
        (r#"{"Kari Nordmann":1,"Ola Nordmann":2}"#, r#"{"[forgotten]":null}"#),
        (r#"{"Kari Nordmann":1,"[forgotten]":2}"#, r#"{"[forgotten]":null}"#),
    ] {
        assert_eq!(names.clear_json(json).as_deref(), Some(left));
    }
    let deep = "[".repeat(100) + "\"Ola Nordmann\"" + &"]".repeat(100);
    assert!(!forgotten.clear_json(&deep).unwrap().contains("Ola"));
}

#[test]
fn nothing_is_said_without_the_key_and_each_list_has_its_seal() {
    let (one, mut other) = (with(&["Ola Nordmann"]), Forgotten::nobody([8; 32]));
    assert_ne!(one.entries_of("Ola Nordmann", None), other.entries_of("Ola Nordmann", None));
    let seal = other.seal();
    other.add(other.contact(7));
    assert!(other.has_contact(7) && !other.has_contact(8));
    assert_ne!(other.seal(), seal);
}

proptest! {
    #[test]
    fn a_text_is_found_in_every_other_that_it_is_a_part_of(
        before in "[\\PC]{0,12}", text in "[\\PC]{5,20}", after in "[\\PC]{0,12}", is_name: bool
    ) {
        let mut forgotten = Forgotten::nobody([7; 32]);
        let class = if is_name { None } else { IDENTIFIER };
        let entries = forgotten.entries_of(&text, class);
        if entries.is_empty() {
            return Ok(());
        }
        entries.into_iter().for_each(|entry| forgotten.add(entry));
        let whole = format!("{before} {text} {after}");
        prop_assert!(may_stand_in(&forgotten, &text, &whole), "{:?}", forgotten.parts_of(&text));
        match forgotten.clear(&whole) {
            Cleared::Same => prop_assert!(false, "{whole}"),
            Cleared::Gone => {}
            Cleared::Without(rest) => prop_assert!(rest.contains(FORGOTTEN)),
        }
    }
}
