//! The mirror equals the source, by exactly the calls that the changes call for.

use casemirror::sandbox::{Act, Facet};

use crate::support::World;

#[test]
fn a_first_sync_mirrors_everything_and_a_second_one_asks_only_the_feeds() {
    let world = World::new(120);
    world.sync();
    world.assert_equal();

    world.sandbox.reset_stats();
    world.sync();
    let stats = world.sandbox.stats();
    let calls: Vec<String> = stats
        .endpoints
        .iter()
        .map(|e| format!("{} {} {}", e.calls, e.method, e.template))
        .collect();
    assert_eq!(
        calls,
        [
            "1 GET /api/Integrations/RecentlyModified/Cases",
            "1 GET /api/Integrations/RecentlyModified/Contacts",
            "1 POST /authtoken",
        ]
    );
    assert_eq!(stats.feed.violations, 0);
}

#[test]
fn a_changed_date_is_followed() {
    let world = World::new(60);
    world.sync();
    let case_id = world.sandbox.case_ids()[10];
    world
        .sandbox
        .act(&Act::Change { case_id: Some(case_id), facet: Facet::Activity, at: None })
        .unwrap();
    world.sync();
    world.assert_equal();
}
