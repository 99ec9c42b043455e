//! Who is forgotten where privacy hashes: what is read again is what was rewritten.

use std::process::Output;

use casemirror::sandbox::Rule;
use serde_json::Value;

use crate::support::follow::{Integrator, assert_status};
use crate::support::journals::{FEED, OFFICE, month, options, read_again, restatements};
use crate::support::scripted::{fault, garbage};
use crate::support::{World, one, shown};

const KEEP: &str = "contact_details = \"keep\"\n";
const HASH: &str = "contact_details = \"hash\"\n";

/// A mirror of closed months that keeps contact details.
fn kept() -> World {
    let world = World::with(options(40));
    world.journals_since(&format!("{}-01", month(2)));
    world.configure(&format!("{KEEP}{FEED}"));
    world.bootstrap();
    world
}

fn tighten(world: &World) {
    world.configure(&format!("{HASH}{FEED}"));
    world.sync();
}

fn forget(world: &World, contact: i64) -> Output {
    let output = world.run(&["forget", "--contact", &contact.to_string()]);
    assert_status(&output, 0);
    output
}

/// The contact whose name stands most often as the seller's in the journal of the cases.
fn seller(world: &World) -> i64 {
    let named = "SELECT c.id FROM main.contacts c JOIN main.case_journals j ON j.seller_name = c.name \
                 WHERE c.name LIKE '% %' GROUP BY c.id ORDER BY count(*) DESC, c.id LIMIT 1";
    one(&world.store(), named)
}

/// Everything is read again, and nothing is a change beside what was restated before.
fn assert_nothing_changed(world: &World, versions: &[i64], restated: usize) {
    for ago in 0..=2 {
        read_again(world, &month(ago));
    }
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(restatements(world).len(), restated, "{:?}", restatements(world));
    assert_eq!(history(world), versions);
    let output = world.run(&["verify", "--sample", "40"]);
    assert_status(&output, 0);
}

/// How many versions history has, table by table.
fn history(world: &World) -> Vec<i64> {
    ["cases", "contacts", "case_journals", "revenue_journals", "depot_journals"]
        .map(|table| one(&world.store(), &format!("SELECT count(*) FROM history.{table}")))
        .into()
}

#[test]
fn a_name_that_others_rows_hash_goes_from_them_and_no_reading_finds_a_difference() {
    let world = kept();
    let person = seller(&world);
    let line: String = one(
        &world.store(),
        &format!(
            "SELECT format('journal_id = {{}} AND journal_month = ''{{}}'' AND line_id = {{}}', j.journal_id, \
               j.journal_month, j.line_id) \
             FROM main.case_journals j JOIN main.contacts c ON c.name = j.seller_name WHERE c.id = {person} LIMIT 1"
        ),
    );
    tighten(&world);
    let hash = format!("SELECT seller_name FROM main.case_journals WHERE {line}");
    let hash: String = one(&world.store(), &hash);
    assert!(hash.len() == 32 && !hash.contains(' '), "{hash}");
    let hashed = format!("SELECT count(*) FROM main.case_journals WHERE seller_name = '{hash}'");
    let count = || [world.store(), world.published()].map(|conn| one::<i64>(&conn, &hashed));
    assert!(count().iter().all(|count| *count > 0));
    let versions = history(&world);

    let said = shown(&forget(&world, person));
    assert!(said.contains("main.case_journals.seller_name"), "{said}");
    assert_eq!(count(), [0, 0]);
    assert_status(&world.run(&["verify", "--sample", "40"]), 0);
    assert_nothing_changed(&world, &versions, 0);
    assert_eq!(count(), [0, 0]);
}

/// What forgetting left of a couple's names is hashed then, and all that comes is hashed as a whole.
#[test]
fn a_class_that_is_hashed_after_somebody_was_forgotten_makes_no_change() {
    let world = kept();
    let person = seller(&world);
    let name: String =
        one(&world.store(), &format!("SELECT name FROM main.contacts WHERE id = {person}"));
    let (first, last) = name.split_once(' ').unwrap();
    world.sandbox.reset_stats();
    let closed = month(2);
    read_again(&world, &closed);
    let path = format!("/api/Offices/{OFFICE}/CaseJournals");
    let calls = world.sandbox.stats().log;
    let call = calls.iter().find(|call| call.path == path).unwrap();
    let mut answer = Integrator::log_in(&world).call(
        &call.method,
        &format!("{path}?{}", call.query),
        &Value::Null,
    );
    let lines = match &mut answer {
        Value::Array(lines) => lines,
        counted => counted["Results"].as_array_mut().unwrap(),
    };
    let names = [format!("Oda Jensen og {name}"), format!("{last}, {first}")];
    for (line, name) in lines.iter_mut().zip(names) {
        line["SellerName"] = name.into();
    }
    let rule = fault(&path, None, garbage(&answer.to_string()));
    world.sandbox.fault(Rule { query: Some(call.query.clone()), ..rule });
    read_again(&world, &closed);
    let restated = restatements(&world).len();
    assert!(restated > 0, "the month is closed");

    forget(&world, person);
    let sellers = format!(
        "SELECT string_agg(coalesce(seller_name, '-'), '; ' ORDER BY line_number) FROM main.case_journals \
         WHERE journal_id = {OFFICE} AND journal_month = '{closed}-01' AND line_number < 3"
    );
    let sellers = || one::<String>(&world.store(), &sellers);
    assert_eq!(sellers(), "Oda Jensen og [forgotten]; -");
    let versions = history(&world);
    tighten(&world);
    assert_nothing_changed(&world, &versions, restated);
    let lengths: Vec<usize> = sellers().split("; ").map(str::len).collect();
    assert_eq!(lengths, [32, 32], "{}", sellers());
}

/// Two people who live together, and the platform's hash of one number in both rows.
#[test]
fn a_telephone_that_two_people_share_is_found_in_texts_where_privacy_hashes_it_too() {
    let world = World::with(options(8));
    world.configure(&format!("{KEEP}{FEED}"));
    world.bootstrap();
    let of_two =
        "SELECT {} FROM main.contacts WHERE phone_number IS NOT NULL AND contact_type = 'Person'";
    let [person, other] =
        ["min(id)", "max(id)"].map(|id| one::<i64>(&world.store(), &of_two.replace("{}", id)));
    let phone = format!("SELECT phone_number FROM main.contacts WHERE id = {person}");
    let phone: String = one(&world.store(), &phone);
    let same = ["phone_number", "phone_numbers", "searchable_phone_numbers"];
    let same = same.map(|column| format!("{column} = p.{column}")).join(", ");
    world.alter(&format!(
        "UPDATE main.contacts c SET {same} FROM main.contacts p WHERE p.id = {person} AND c.id = {other}"
    ));
    tighten(&world);
    world.alter(&format!("UPDATE main.notes SET message = 'Ring {phone} i dag' WHERE rowid = 0"));
    let said = shown(&forget(&world, person));
    let note = "SELECT message FROM main.notes WHERE message LIKE 'Ring %i dag'";
    let note: String = one(&world.store(), note);
    assert!(["Ring [forgotten] i dag", "Ring +[forgotten] i dag"].contains(&&*note), "{note}");
    assert!(said.contains("in rows about other people"), "{said}");
    let left = format!("SELECT phone_number IS NOT NULL FROM main.contacts WHERE id = {other}");
    assert!(one::<bool>(&world.store(), &left));
}

/// A contact has a town for its address and a word for its telephone, as many have.
#[test]
fn words_of_everybodys_stay_everywhere_and_what_is_the_persons_alone_goes() {
    let world = World::with(options(12));
    world.configure(&format!("{KEEP}{FEED}"));
    world.bootstrap();
    let person = seller(&world);
    let city = "SELECT city FROM main.cases WHERE length(city) > 4 GROUP BY city ORDER BY count(*) DESC, city LIMIT 1";
    let city: String = one(&world.store(), city);
    let office: i64 = one(&world.store(), "SELECT min(id) FROM main.offices");
    let written = format!(
        "UPDATE main.contacts SET address = '{city}', street = 'Kastanjesvingen 12B', email = 'ukjent', \
           addresses = ['{city}', 'Kvartal 5'], emails = ['ukjent', 'kastanje@example.no'], phone_number = 'ukjent', \
           phone_numbers = ['ukjent', '+47 987 65 432'] WHERE id = {person}; \
         UPDATE main.offices SET name = 'Kvartal 5' WHERE id = {office}; \
         UPDATE main.case_journals SET office_name = '{city} Megling'; \
         UPDATE main.notes SET message = 'Til KASTANJESVINGEN 12b i {city} (Kvartal 5), mobil ukjent' WHERE rowid = 0; \
         UPDATE main.notes SET message = 'Ring 98 76 54 32, skriv til Kastanje@Example.no' WHERE rowid = 1;"
    );
    let store = duckdb::Connection::open(world.path("data/store.duckdb")).unwrap();
    store.execute_batch(&written).unwrap();
    drop(store);
    let places = [
        format!("main.cases WHERE city = '{city}'"),
        format!("history.cases WHERE city = '{city}'"),
        format!("main.depot_journals WHERE city = '{city}'"),
        format!("main.case_journals WHERE office_name = '{city} Megling'"),
        format!("main.offices WHERE id = {office} AND name = 'Kvartal 5'"),
        format!("main.notes WHERE message = 'Til [forgotten] i {city} (Kvartal 5), mobil ukjent'"),
        "main.notes WHERE message = 'Ring [forgotten], skriv til [forgotten]'".to_owned(),
    ];
    let counts = || {
        let store = world.store();
        let of = |rows: &String| one::<i64>(&store, &format!("SELECT count(*) FROM {rows}"));
        places.iter().map(of).collect::<Vec<_>>()
    };
    let before = counts();
    assert!(before[0] > 0 && before[3] > 0 && before[4] == 1, "{before:?}");

    let said = shown(&forget(&world, person));
    assert_eq!(counts(), [&before[..5], &[1, 1]].concat());
    assert!(said.contains("tell too little to be looked for in other rows"), "{said}");
    let own = format!(
        "SELECT count(*) FROM main.contacts WHERE id = {person} AND coalesce(address, street, email, phone_number) IS NULL \
           AND addresses IS NULL AND emails IS NULL AND phone_numbers IS NULL"
    );
    assert_eq!(one::<i64>(&world.store(), &own), 1);
    // What is published, and what comes again.
    let cities = format!("SELECT count(*) FROM main.cases WHERE city = '{city}'");
    assert_eq!(one::<i64>(&world.published(), &cities), before[0]);
    assert_status(&world.run(&["sync", "--full"]), 0);
    assert_eq!(one::<i64>(&world.store(), &cities), before[0]);
}
