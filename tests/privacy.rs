//! Privacy that becomes stricter or milder: what is stored follows, history included.

use casemirror::sandbox::{Act, Facet, Fault};
use duckdb::Connection;

use crate::support::follow::{UNTHROTTLED as FEED, change, unthrottled};
use crate::support::scripted::fault;
use crate::support::{World, one, shown};

fn world() -> World {
    world_of(25)
}

fn world_of(cases: usize) -> World {
    World::with(unthrottled(cases))
}

/// A mirror with these modes; `keep` first, and a version of a contact in history.
fn kept() -> World {
    let world = world();
    configure(&world, "keep", "keep");
    world.bootstrap();
    world.sandbox.act(&Act::EditContact { contact_id: Some(50_001), at: None }).unwrap();
    world.sync();
    assert!(!texts(&world.store(), "history.contacts", "name").is_empty());
    world
}

fn configure(world: &World, identifiers: &str, contact_details: &str) {
    let text = std::fs::read_to_string(world.path("casemirror.toml")).unwrap();
    let before = text.split("[privacy]").next().unwrap().to_owned();
    std::fs::write(
        world.path("casemirror.toml"),
        format!(
            "{before}[privacy]\nidentifiers = \"{identifiers}\"\ncontact_details = \
             \"{contact_details}\"\n{FEED}"
        ),
    )
    .unwrap();
}

pub(crate) fn texts(conn: &Connection, table: &str, column: &str) -> Vec<String> {
    let sql =
        format!("SELECT {column}::VARCHAR FROM {table} WHERE {column} IS NOT NULL ORDER BY ALL");
    let mut statement = conn.prepare(&sql).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// Columns of contacts with a class, by the catalog.
fn columns(class: casemirror::catalog::Class) -> Vec<(String, bool)> {
    let catalog = casemirror::catalog::Catalog::load(None).unwrap();
    let contacts = catalog.get("contacts").unwrap();
    contacts
        .columns
        .iter()
        .filter(|c| c.class == Some(class))
        .map(|c| (c.name.clone(), c.kind.list))
        .collect()
}

#[test]
fn a_stricter_class_is_hidden_in_rows_history_and_published_files_without_a_call() {
    use casemirror::catalog::Class;
    let world = kept();
    let filled: Vec<(String, bool)> = columns(Class::ContactDetail)
        .into_iter()
        .filter(|(name, _)| !texts(&world.store(), "main.contacts", name).is_empty())
        .collect();
    assert!(filled.iter().any(|(_, list)| !*list), "{filled:?}");
    let plain: Vec<Vec<String>> =
        filled.iter().map(|(name, _)| texts(&world.store(), "main.contacts", name)).collect();
    let versions = texts(&world.store(), "history.contacts", "_valid_to").len();

    configure(&world, "keep", "hash");
    world.sandbox.reset_stats();
    world.sync();
    let calls = world.sandbox.stats().log.iter().filter(|c| !c.path.contains("Recently")).count();
    assert!(calls <= 1, "nothing is fetched again for that, but the token: {calls}");
    for place in ["main.contacts", "history.contacts"] {
        for ((name, list), plain) in filled.iter().zip(&plain) {
            let now = texts(&world.store(), place, name);
            for text in now.iter().filter(|text| *text != "[]") {
                assert!(!plain.contains(text), "{place}.{name} still shows {text}");
                let items = if *list {
                    text.trim_matches(['[', ']']).split(", ").map(str::to_owned).collect()
                } else {
                    vec![text.clone()]
                };
                assert!(
                    items.iter().all(|i| i.is_empty()
                        || i.len() == 32 && i.bytes().all(|b| b.is_ascii_hexdigit())),
                    "{place}.{name}: {text}"
                );
            }
        }
    }
    assert_eq!(texts(&world.store(), "history.contacts", "_valid_to").len(), versions);
    let name = &filled[0].0;
    assert_eq!(
        texts(&world.published(), "main.contacts", name),
        texts(&world.store(), "main.contacts", name),
        "published anew"
    );
    let hashed = texts(&world.store(), "main.contacts", name);

    // What is fetched from now on is the same hash: no version.
    let output = world.run(&["sync", "--full"]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert_eq!(texts(&world.store(), "main.contacts", name), hashed);
    assert_eq!(texts(&world.store(), "history.contacts", "_valid_to").len(), versions);

    configure(&world, "keep", "drop");
    world.sync();
    for place in ["main.contacts", "history.contacts"] {
        assert_eq!(texts(&world.store(), place, name), [""; 0]);
    }
}

#[test]
fn a_relaxed_class_is_fetched_again_and_leaves_history_as_it_was() {
    let world = kept();
    configure(&world, "keep", "drop");
    world.sync();
    configure(&world, "keep", "keep");
    world.sync();
    world.assert_equal();
    let (name, _) = columns(casemirror::catalog::Class::ContactDetail).remove(0);
    assert_eq!(texts(&world.store(), "history.contacts", &name), [""; 0]);
}

#[test]
fn fields_without_a_column_follow_their_names() {
    let world = world();
    configure(&world, "keep", "keep");
    world.bootstrap();
    let set = |value: &str| {
        let conn = Connection::open(world.path("data/store.duckdb")).unwrap();
        conn.execute_batch(value).unwrap();
    };
    set(
        "UPDATE main.activities SET _extra = '{\"NationalIdOfGuest\":\"01017012345\",\"Score\":0.50}' \
         WHERE id = (SELECT min(id) FROM main.activities); \
         INSERT INTO sync.drift VALUES ('activities', 'NationalIdOfGuest', '\"01017012345\"', now()), \
           ('activities', 'Nul' || chr(0) || '.NationalId', '\"01017012345\"', now()); \
         INSERT INTO sync.rejects VALUES (1, 'activities', '1', '1/2', 'subject', \
           '{\"NationalId\":\"01017012345\"}', 'e', now(), now(), now())",
    );
    configure(&world, "hash", "keep");
    world.sync();
    let store = world.store();
    let extra = "SELECT _extra FROM main.activities WHERE _extra LIKE '%NationalIdOfGuest%'";
    let extra: String = one(&store, extra);
    assert!(extra.contains("\"Score\":0.50") && !extra.contains("01017012345"), "{extra}");
    for told in [
        "SELECT example FROM sync.drift WHERE field = 'NationalIdOfGuest'",
        "SELECT example FROM sync.drift WHERE starts_with(field, 'Nul')",
        "SELECT value FROM sync.rejects",
    ] {
        let told: String = one(&store, told);
        assert!(!told.contains("01017012345"), "{told}");
    }
}

/// Where a text stands, in whatever table and column: with how many rows.
fn places_of(conn: &Connection, text: &str) -> Vec<String> {
    let columns = "SELECT format('\"{}\".\"{}\"', schema_name, table_name), column_name \
                   FROM duckdb_columns() WHERE NOT internal AND data_type LIKE 'VARCHAR%' \
                   AND database_name = current_database() ORDER BY ALL";
    let mut statement = conn.prepare(columns).unwrap();
    let columns: Vec<(String, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let holds = |(table, column): &(String, String)| {
        let sql = format!("SELECT count(*) FROM {table} WHERE contains(\"{column}\"::VARCHAR, ?)");
        conn.query_row(&sql, [text], |row| row.get::<_, i64>(0)).unwrap() > 0
    };
    columns.iter().filter(|c| holds(c)).map(|(table, column)| format!("{table}.{column}")).collect()
}

fn own(world: &World, name: &str, text: &str) {
    std::fs::create_dir_all(world.path("own")).unwrap();
    std::fs::write(world.path("own").join(name), text).unwrap();
}

/// A world that hides identifiers, with resource files of its own.
fn with_own_files() -> World {
    let world = world_of(8);
    std::fs::create_dir_all(world.path("own")).unwrap();
    configure(&world, "hash", "keep");
    let mut text = std::fs::read_to_string(world.path("casemirror.toml")).unwrap();
    text += "[resources]\ndir = \"own\"\n";
    std::fs::write(world.path("casemirror.toml"), text).unwrap();
    world
}

/// A field is seen in `sync.drift`, and gets a column with a class.
#[test]
fn a_new_column_with_a_class_hides_what_was_kept_of_its_field_before() {
    let world = with_own_files();
    world.sync();
    let case_id: i64 = one(&world.store(), "SELECT min(case_id) FROM main.publications");
    change(&world, case_id, Facet::Publication);
    world.sync();
    let store = world.store();
    let versions = "SELECT count(*) FROM history.publications";
    let count: i64 = one(&store, versions);
    assert!(count > 0);
    let in_history = "SELECT _extra->>'ExternalId' FROM history.publications LIMIT 1";
    let in_history: String = one(&store, in_history);
    let in_drift = "SELECT json_extract_string(example, '$') FROM sync.drift \
                    WHERE table_name = 'publications' AND field = 'ExternalId'";
    let in_drift: String = one(&store, in_drift);
    drop(store);
    Connection::open(world.path("data/store.duckdb"))
        .unwrap()
        .execute_batch(&format!(
            "INSERT INTO sync.rejects VALUES (1, 'publications', '1', '1/2', 'portal_id', \
               '\"{in_history}\"', 'of a column that had another name', now(), now(), now()); \
             INSERT INTO sync.verifications (run_id, verified_at, what, source, mirror, difference) VALUES \
               (1, now(), 'case 1', '{in_history}', '{in_drift}', 'publications')"
        ))
        .unwrap();
    for plain in [&in_history, &in_drift] {
        assert!(places_of(&world.published(), plain).len() > 1, "{plain}");
    }

    let file = include_str!("../examples/resources/publications.toml").replace(
        "field = \"ExternalId\"\ntype",
        "field = \"ExternalId\"\nclass = \"identifier\"\ntype",
    );
    own(&world, "publications.toml", &file);
    world.sync();
    for plain in [&in_history, &in_drift] {
        assert_eq!(places_of(&world.store(), plain), [""; 0]);
        assert_eq!(places_of(&world.published(), plain), [""; 0]);
    }
    let store = world.store();
    assert_eq!(one::<i64>(&store, versions), count, "what changes on our side is no version");
    let joined = "SELECT count(*) FROM history.publications h JOIN main.publications m \
                  USING (case_id, id) WHERE m.external_id = (h._extra->>'ExternalId')";
    assert!(one::<i64>(&store, joined) > 0, "the hash in _extra is that of the column");
}

#[test]
fn a_new_table_with_a_class_hides_what_was_kept_of_its_list_before() {
    let world = with_own_files();
    let conditions = include_str!("../schemas/property_conditions.toml");
    own(&world, "property_conditions.toml", &conditions.replace("leave_out = [\"Costs\"]\n", ""));
    world.sync();
    let case_id = "SELECT min(case_id) FROM main.property_conditions WHERE _extra LIKE '%Comment%'";
    let case_id: i64 = one(&world.store(), case_id);
    change(&world, case_id, Facet::Description);
    world.sync();
    let kept = "SELECT count(*) FROM history.property_conditions WHERE _extra LIKE '%Comment%'";
    let count: i64 = one(&world.store(), kept);
    assert!(count > 0);

    own(
        &world,
        "cost_copies.toml",
        "table = \"cost_copies\"\ncomment = \"Costs.\"\nkey = [\"case_id\", \"position\"]\n\
         group = \"child\"\n[child]\ntable = \"property_conditions\"\nfield = \"Costs\"\n\
         [[column]]\nname = \"case_id\"\nfield = \"case_id\"\nfrom = \"parent\"\ntype = \"int\"\n\
         comment = \"The case.\"\n\
         [[column]]\nname = \"position\"\nfrom = \"position\"\ntype = \"int\"\ncomment = \"Place.\"\n\
         [[column]]\nfield = \"Comment\"\ntype = \"string\"\nclass = \"identifier\"\n\
         comment = \"What it is for.\"\n",
    );
    world.sync();
    let store = world.store();
    let plain = "SELECT count(*) FROM history.property_conditions, \
                   unnest(from_json(_extra->'$.Costs[*].Comment', '[\"VARCHAR\"]')) AS t(comment) \
                 WHERE comment IS NOT NULL AND NOT regexp_full_match(comment, '[0-9a-f]{32}')";
    assert_eq!(one::<i64>(&store, plain), 0);
    assert_eq!(one::<i64>(&store, kept), count, "the rest of the list stays");
    let example = "SELECT example FROM sync.drift WHERE table_name = 'property_conditions' \
                   AND field = 'Costs'";
    let example: String = one(&store, example);
    let texts = "SELECT count(*) FROM unnest(from_json(?->'$[*].Comment', '[\"VARCHAR\"]')) \
                 AS t(comment) WHERE comment IS NOT NULL AND len(comment) <> 32";
    let left: i64 = store.query_row(texts, [&example], |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "{example}");
}

#[test]
fn a_class_that_is_hidden_again_gives_every_value_the_hash_that_it_had() {
    let world = world_of(8);
    configure(&world, "hash", "keep");
    let edit = || {
        world.sandbox.act(&Act::EditContact { contact_id: Some(50_001), at: None }).unwrap();
        world.sync();
    };
    world.sync();
    edit();
    configure(&world, "keep", "keep");
    world.sync();
    edit();
    let hashes = "SELECT count(DISTINCT identification_number) FROM \
                  (FROM main.contacts UNION ALL BY NAME FROM history.contacts) WHERE id = 50001";
    assert_eq!(one::<i64>(&world.store(), hashes), 2, "one version is hashed, another plain");

    configure(&world, "hash", "keep");
    world.sync();
    assert_eq!(one::<i64>(&world.store(), hashes), 1);
    edit();
    assert_eq!(one::<i64>(&world.store(), hashes), 1);
    let plain = "SELECT count(*) FROM (FROM main.contacts UNION ALL BY NAME FROM history.contacts) \
                 WHERE NOT regexp_full_match(identification_number, '[0-9a-f]{32}')";
    assert_eq!(one::<i64>(&world.store(), plain), 0);
}

#[test]
fn a_store_whose_key_is_gone_or_replaced_is_refused_until_it_is_back() {
    let world = world_of(8);
    configure(&world, "hash", "keep");
    world.bootstrap();
    let file = world.path("data/store.duckdb.secrets");
    let key = std::fs::read(&file).unwrap();
    let refused = |why: &str| {
        let output = world.run(&["sync"]);
        assert_eq!(output.status.code(), Some(2), "{}", shown(&output));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("store.duckdb.secrets") && text.contains(why), "{text}");
        assert!(text.contains("restore it") && text.contains("new store"), "{text}");
    };
    std::fs::remove_file(&file).unwrap();
    refused("is gone");
    assert!(!file.exists(), "none is made in its place");
    let other = String::from_utf8(key.clone()).unwrap();
    let other = if other.contains('0') { other.replace('0', "1") } else { other.replace('1', "0") };
    std::fs::write(&file, other).unwrap();
    refused("another key");

    std::fs::write(&file, key).unwrap();
    let versions = "SELECT count(*) FROM history.contacts";
    let before: i64 = one(&world.store(), versions);
    assert_eq!(world.run(&["sync", "--full"]).status.code(), Some(0));
    assert_eq!(one::<i64>(&world.store(), versions), before);
}

#[test]
fn a_key_that_nothing_was_hashed_with_may_be_lost() {
    let world = world_of(8);
    configure(&world, "keep", "keep");
    world.bootstrap();
    std::fs::remove_file(world.path("data/store.duckdb.secrets")).unwrap();
    world.sync();
    world.assert_equal();
}

/// A refusal can repeat what was asked for; it is kept in tables and logs whatever the settings.
#[test]
fn what_a_refusal_repeats_of_a_person_is_kept_nowhere() {
    let world = world_of(4);
    configure(&world, "drop", "drop");
    let body = r#"{"Message": "Cannot show 010170 12345 to ola.nordmann@example.no",
        "Email": "kari.nordmann@example.no", "Name": "Kari Nordmann"}"#;
    let refuse = Fault::Refuse { status: 400, headers: [].into(), body: body.to_owned() };
    for path in ["/api/Employees", "/api/Cases/*/Activities"] {
        world.sandbox.fault(fault(path, None, refuse.clone()));
    }
    let output = world.run(&["sync", "-v"]);
    assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
    let reason = "SELECT reason FROM sync.resources WHERE table_name = 'employees'";
    let reason: String = one(&world.store(), reason);
    assert!(reason.contains("Cannot show *** to ***"), "{reason}");
    let status = world.run(&["status"]);
    for text in ["010170", "ordmann"] {
        for said in [shown(&output), shown(&status)] {
            assert!(!said.contains(text), "{said}");
        }
    }
    for conn in [world.store(), world.published()] {
        // With what stands behind them: the digits alone can be part of any tick or digest.
        for text in ["010170 ", "@example.no", "Kari Nordmann"] {
            let places = places_of(&conn, text);
            let told = places.iter().filter(|place| place.starts_with("\"sync\""));
            assert_eq!(told.count(), 0, "{text}: {places:?}");
        }
    }
}

/// Nobody has said that these are errors: they may be records, of which no text is kept.
#[test]
fn what_an_odd_answer_holds_of_a_person_is_kept_nowhere() {
    let record =
        r#"{"Message": "Kari Nordmann, 010170 12345", "Email": "kari.nordmann@example.no"}"#;
    let xml = "<Contact><Message>Kari Nordmann, 010170 12345</Message></Contact>";
    let text = "Kari Nordmann, 010170 12345, kari.nordmann@example.no";
    let odd = |status: u16, body: &str| Fault::Garbage {
        body: body.to_owned(),
        status: Some(status),
        content_type: None,
    };
    for answer in
        [odd(203, record), odd(206, record), odd(299, text), odd(200, xml), odd(200, text)]
    {
        let world = world_of(4);
        configure(&world, "drop", "drop");
        for path in ["/api/Employees", "/api/Cases/*/Activities"] {
            world.sandbox.fault(fault(path, None, answer.clone()));
        }
        world.retry_at_once();
        let output = world.run(&["sync", "-v"]);
        assert_eq!(output.status.code(), Some(3), "{}", shown(&output));
        let status = world.run(&["status"]);
        for text in ["010170", "ordmann"] {
            for said in [shown(&output), shown(&status)] {
                assert!(!said.contains(text), "{answer:?}: {said}");
            }
            let places = places_of(&world.store(), &format!("{text} "));
            assert!(!places.iter().any(|place| place.starts_with("\"sync\"")), "{places:?}");
        }
    }
}

/// Versions before this one kept what is not documented of a subscription, which can be its secret.
#[test]
fn what_was_kept_of_a_subscriptions_secrets_is_taken_out_when_the_store_is_opened() {
    let world = world();
    world.publish_snapshots();
    world.bootstrap();
    let before = "\
        INSERT INTO main.webhook_subscriptions (id, event_type, _extra, _synced_at) \
          VALUES (99, 'CaseSold', '{\"CallbackUrl\":\"https://h.example.com/webhooks/t0ken99\"}', now()); \
        INSERT INTO sync.drift (table_name, field, example) \
          VALUES ('webhook_subscriptions', 'CallbackUrl', '\"https://h.example.com/webhooks/t0ken99\"')";
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(before).unwrap();
    assert_eq!(world.run(&["sync"]).status.code(), Some(0));
    let token = ["t0ken99".to_owned()];
    assert_eq!(crate::erasure::found(&world, &token), std::collections::BTreeSet::new());
    let noted = "SELECT count(*) FROM sync.drift WHERE field = 'CallbackUrl'";
    assert_eq!(one::<i64>(&world.published(), noted), 1, "that there is such a field is known");
}
