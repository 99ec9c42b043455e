//! Privacy that is tightened or relaxed: what is stored follows, history included.

use casemirror::sandbox::{Act, Options};
use duckdb::Connection;

use crate::support::{World, one, shown};

const FEED: &str = "[feed]\ncalls = 1000\nper = \"1s\"\n";

fn world() -> World {
    World::with(Options {
        cases: 25,
        gzip: false,
        feed_calls: 1000,
        feed_per: std::time::Duration::from_secs(1),
        ..Options::default()
    })
}

/// A mirror with these modes; `keep` first, and a version of a contact in history.
fn kept() -> World {
    let world = world();
    configure(&world, "keep", "keep");
    world.sync();
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

fn texts(conn: &Connection, table: &str, column: &str) -> Vec<String> {
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
fn a_tightened_class_is_hidden_in_rows_history_and_published_files_without_a_call() {
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
    world.sync();
    let set = |value: &str| {
        let conn = Connection::open(world.path("data/store.duckdb")).unwrap();
        conn.execute_batch(value).unwrap();
    };
    set(
        "UPDATE main.activities SET _extra = '{\"NationalIdOfGuest\":\"01017012345\",\"Score\":0.50}' \
         WHERE id = (SELECT min(id) FROM main.activities); \
         INSERT INTO sync.drift VALUES ('activities', 'NationalIdOfGuest', '\"01017012345\"', now()); \
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
        "SELECT value FROM sync.rejects",
    ] {
        let told: String = one(&store, told);
        assert!(!told.contains("01017012345"), "{told}");
    }
}
