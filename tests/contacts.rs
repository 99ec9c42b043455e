//! Contacts where no feed says what changed (docs/architecture.md, "What is due"): read again with the
//! roles that name them, and when they are old.

use casemirror::sandbox::{Act, Facet};
use duckdb::Connection;
use rstest::rstest;

use crate::support::follow::{UNTHROTTLED, assert_status, calls, change, shown_cases, unthrottled};
use crate::support::scripted::{fault, refuse};
use crate::support::{World, differences_of, one, shown};

const FEED: &str = "/api/Integrations/RecentlyModified/Contacts";

#[derive(Clone, Copy)]
enum Feed {
    Off,
    Absent,
}

/// A mirrored brokerage whose contacts no feed reports.
fn unreported(feed: Feed) -> World {
    let world = World::with(unthrottled(12));
    match feed {
        // UNTHROTTLED ends within [feed].
        Feed::Off => world.configure(&format!("{UNTHROTTLED}contacts_poll = \"0s\"\n")),
        Feed::Absent => {
            world.configure(UNTHROTTLED);
            world.sandbox.fault(fault(FEED, None, refuse(404)));
        }
    }
    assert_status(&world.run(&["sync"]), 0);
    world
}

/// A contact that the first case names, and that the search knows.
fn named(world: &World) -> (i64, i64) {
    let case_id = shown_cases(world)[0];
    let contact = format!(
        "SELECT contact_id FROM case_roles JOIN contacts c ON c.id = contact_id \
         WHERE case_id = {case_id} AND c.last_indexed IS NOT NULL ORDER BY 1 LIMIT 1"
    );
    (case_id, one(&world.store(), &contact))
}

fn edit(world: &World, contact_id: i64) {
    world.sandbox.act(&Act::EditContact { contact_id: Some(contact_id), at: None }).unwrap();
}

fn contacts_asked(world: &World) -> u64 {
    let of_contacts = |call: &str| call.contains("Contact") && !call.contains("RecentlyModified");
    calls(world).into_iter().filter(|(call, _)| of_contacts(call)).map(|(_, times)| times).sum()
}

#[rstest]
#[case::off(Feed::Off)]
#[case::absent(Feed::Absent)]
fn a_contact_is_read_again_with_the_roles_that_name_it_and_not_before(#[case] feed: Feed) {
    let world = unreported(feed);
    let (case_id, contact_id) = named(&world);
    edit(&world, contact_id);
    world.sandbox.reset_stats();
    world.sync();
    change(&world, case_id, Facet::Activity);
    world.sync();
    assert_eq!(contacts_asked(&world), 0, "{:?}", calls(&world));

    change(&world, case_id, Facet::RoleAdded);
    world.sync();
    let wrong = differences_of(&world.store(), &world.sandbox.tables(&["contacts"]));
    // Whom no role names is not known without a feed.
    let named: Vec<_> = wrong.into_iter().filter(|text| !text.ends_with("is missing")).collect();
    assert_eq!(named, [""; 0]);
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(contacts_asked(&world), 0, "{:?}", calls(&world));
}

#[test]
fn a_contacts_feed_that_has_answered_is_followed_on_after_a_404() {
    let world = World::unthrottled(12);
    world.bootstrap();
    let (_, contact_id) = named(&world);
    let missing = world.sandbox.fault(fault(FEED, None, refuse(404)));
    edit(&world, contact_id);
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(
        shown(&output).contains("the change feed (contacts) cannot be read"),
        "{}",
        shown(&output)
    );
    world.sandbox.remove_fault(missing);
    world.sync();
    world.assert_equal();
}

#[test]
fn one_403_does_not_close_a_contacts_feed_that_has_answered() {
    let world = World::unthrottled(12);
    world.bootstrap();
    let (_, contact_id) = named(&world);
    let blocked = world.sandbox.fault(fault(FEED, Some(1), refuse(403)));
    edit(&world, contact_id);
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("the change feed (contacts) cannot be read"));
    world.sandbox.remove_fault(blocked);
    world.sync();
    world.assert_equal();
}

#[test]
fn that_the_contacts_feed_is_forbidden_is_told_until_the_permissions_are_read_again() {
    let world = World::unthrottled(12);
    world.bootstrap();
    let reason = || {
        let sql = "SELECT reason FROM sync.resources WHERE table_name = 'contacts'";
        one::<Option<String>>(&world.store(), sql).unwrap_or_default()
    };
    assert_eq!(reason(), "");
    world.doubt("0s");
    let forbidden = world.sandbox.fault(fault(FEED, None, refuse(403)));
    assert_status(&world.run(&["sync"]), 0);
    assert!(reason().contains("change feed"), "{}", reason());
    assert!(shown(&world.run(&["status"])).contains("contacts are read again by age"));
    let (_, contact_id) = named(&world);
    edit(&world, contact_id);
    // The permissions are read, and it is forbidden still: that is no failure each night.
    world.doubt("10m");
    let due = "UPDATE sync.schedules SET last_run = '2026-01-01' WHERE name = 'reference'";
    let read_permissions = || {
        Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(due).unwrap();
    };
    read_permissions();
    assert_status(&world.run(&["sync"]), 0);
    assert_status(&world.run(&["sync"]), 0);
    assert!(reason().contains("change feed"), "{}", reason());
    world.sandbox.remove_fault(forbidden);
    read_permissions();
    world.sync();
    assert_eq!(reason(), "");
    world.sync();
    world.assert_equal();
    // It has answered since.
    world.sandbox.fault(fault(FEED, Some(1), refuse(403)));
    assert_status(&world.run(&["sync"]), 3);
}

#[test]
fn a_contact_that_was_read_a_week_ago_is_read_again_named_or_not() {
    let world = unreported(Feed::Off);
    let (_, contact_id) = named(&world);
    // Nobody names it any more.
    let store = Connection::open(world.path("data/store.duckdb")).unwrap();
    store
        .execute_batch(&format!(
            "DELETE FROM main.case_roles WHERE contact_id = {contact_id}; \
             UPDATE sync.fetched_scopes SET fetched_at = TIMESTAMPTZ '2026-01-01 00:00:00+00' \
             WHERE table_name = 'contacts' AND id = {contact_id}"
        ))
        .unwrap();
    drop(store);
    edit(&world, contact_id);
    world.sandbox.reset_stats();
    world.sync();
    assert_eq!(contacts_asked(&world), 1, "{:?}", calls(&world));
    let names = |conn: &Connection| {
        one::<String>(
            conn,
            &format!("SELECT to_json(c) FROM main.contacts c WHERE id = {contact_id}"),
        )
    };
    let old = names(&world.published());
    edit(&world, contact_id);
    world.sync();
    assert_eq!(names(&world.published()), old, "it is not old any more");
    let history = format!("SELECT count(*) FROM history.contacts WHERE id = {contact_id}");
    assert_eq!(one::<i64>(&world.store(), &history), 1);
}
