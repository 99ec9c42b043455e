//! Searches of a service that takes only so long a query: a web server's limit of the address, or that of a filter's
//! parts (docs/architecture.md, "Completeness").

use casemirror::sandbox::{Act, Facet, Fault};
use rstest::rstest;

use crate::support::follow::{assert_status, calls, change, shown_cases};
use crate::support::scripted::{fault, refuse, search_path};
use crate::support::{World, one, shown};

/// About 25 ids.
const LONGEST: usize = 600;

/// A search of a brokerage whose server answers longer queries so.
fn limited(world: &World, search: &str, status: u16) {
    let longest = Fault::MaxQuery { bytes: LONGEST, status };
    world.sandbox.fault(fault(&search_path(search), None, longest));
}

#[rstest]
#[case::by_the_web_server(404)]
#[case::by_the_filters_parts(400)]
#[case::by_the_address(414)]
fn contacts_are_searched_by_as_many_ids_as_the_service_takes(#[case] status: u16) {
    let world = World::unthrottled(60);
    limited(&world, "Contact", status);
    world.sync();
    let contacts: i64 = one(&world.store(), "SELECT count(*) FROM contacts");
    assert!(contacts > 100, "only {contacts}");
    world.assert_equal();
    world.sandbox.reset_stats();
    for contact_id in 0..30 {
        let of = format!("SELECT id FROM contacts ORDER BY id DESC LIMIT 1 OFFSET {contact_id}");
        let contact_id = Some(one(&world.store(), &of));
        world.sandbox.act(&Act::EditContact { contact_id, at: None }).unwrap();
    }
    world.sync();
    world.assert_equal();
}

#[test]
fn many_changed_cases_are_searched_by_as_many_ids_as_the_service_takes() {
    let world = World::unthrottled(60);
    world.bootstrap();
    limited(&world, "Property", 404);
    limited(&world, "Project", 404);
    for case_id in shown_cases(&world) {
        change(&world, case_id, Facet::Nothing);
    }
    world.sandbox.reset_stats();
    world.sync();
    world.assert_equal();
    // It is found out once how many they are.
    let searches = calls(&world).into_iter().filter(|(call, _)| call.contains("Search"));
    let searches: u64 = searches.map(|(_, times)| times).sum();
    assert!(searches < 20, "{searches}");
}

#[test]
fn a_sample_is_verified_by_as_many_ids_as_the_service_takes() {
    let world = World::unthrottled(60);
    world.bootstrap();
    limited(&world, "Property", 404);
    limited(&world, "Project", 400);
    let output = world.run(&["verify", "--sample", "50"]);
    assert_status(&output, 0);
    assert!(shown(&output).contains("the mirror equals the source"), "{}", shown(&output));
}

/// A proxy was in the way once.
#[test]
fn one_404_does_not_make_searches_small() {
    let world = World::unthrottled(60);
    world.sandbox.fault(fault(&search_path("Contact"), Some(1), refuse(404)));
    world.sync();
    world.assert_equal();
    let contacts: u64 = one(&world.store(), "SELECT count(*)::UBIGINT FROM contacts");
    let searches = calls(&world).into_iter().filter(|(call, _)| call.contains("ContactSearch"));
    // The one that was refused, an id alone, and all by a hundred.
    assert_eq!(searches.map(|(_, times)| times).sum::<u64>(), contacts.div_ceil(100) + 2);
}

#[test]
fn a_search_that_is_not_there_is_told_by_two_more_calls() {
    let world = World::unthrottled(60);
    let gone = Fault::MaxQuery { bytes: 0, status: 404 };
    world.sandbox.fault(fault(&search_path("Contact"), None, gone));
    assert_status(&world.run(&["sync"]), 0);
    let status = "SELECT status FROM sync.resources WHERE table_name = 'contacts'";
    assert_eq!(one::<String>(&world.store(), status), "absent");
    let searches = calls(&world).into_iter().filter(|(call, _)| call.contains("ContactSearch"));
    assert_eq!(searches.map(|(_, times)| times).sum::<u64>(), 3);
}
