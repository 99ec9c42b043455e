//! Public showings: a list that looks ahead, and not further than six (reference 4.5). What it does not
//! show for one of these reasons is not gone.

use casemirror::sandbox::Facet;
use serde_json::{Value, json};

use crate::support::follow::{assert_status, change, lines};
use crate::support::scripted::{fault, garbage};
use crate::support::{World, one};

/// A mirrored brokerage and one of its cases that the public knows.
fn mirrored() -> (World, i64) {
    let world = World::unthrottled(8);
    world.bootstrap();
    let known = "SELECT min(id) FROM main.cases WHERE guid IS NOT NULL";
    let case_id = one(&world.store(), known);
    (world, case_id)
}

/// A showing that starts so many hours from now.
fn showing(hours: i64) -> Value {
    let start = chrono::Utc::now() + chrono::TimeDelta::hours(hours);
    json!({
        "Guid": format!("00000000-0000-4000-8000-{:012}", hours.unsigned_abs()),
        "StartDate": start.to_rfc3339(),
    })
}

/// Has the case's showings read again, as these.
fn read(world: &World, case_id: i64, showings: &[Value]) {
    let guid: String =
        one(&world.store(), &format!("SELECT guid::VARCHAR FROM cases WHERE id = {case_id}"));
    world.sandbox.clear_faults();
    let body = Value::Array(showings.to_vec()).to_string();
    let path = format!("/api/Public/Properties/{guid}/Showings");
    world.sandbox.fault(fault(&path, None, garbage(&body)));
    change(world, case_id, Facet::Activity);
    assert_status(&world.run(&["sync"]), 0);
}

/// The last digits of the mirrored showings.
fn mirrored_hours(world: &World, case_id: i64) -> Vec<i64> {
    let ids = format!(
        "SELECT right(guid::VARCHAR, 12)::BIGINT AS hours FROM public_showings \
         WHERE case_id = {case_id} AND guid::VARCHAR LIKE '00000000-%' ORDER BY hours"
    );
    let digits = |line: String| line.chars().filter(char::is_ascii_digit).collect::<String>();
    lines(&world.store(), &ids).into_iter().map(|line| digits(line).parse().unwrap()).collect()
}

#[test]
fn one_that_has_begun_stays_and_one_that_is_called_off_leaves() {
    let (world, case_id) = mirrored();
    read(&world, case_id, &[showing(-1), showing(5), showing(9)]);
    read(&world, case_id, &[showing(9)]);
    assert_eq!(mirrored_hours(&world, case_id), [1, 9]);
}

#[test]
fn a_seventh_that_six_others_came_before_stays() {
    let (world, case_id) = mirrored();
    let six = [10, 20, 30, 40, 50, 60].map(showing);
    read(&world, case_id, &six);
    let mut with_another = six.to_vec();
    with_another.insert(0, showing(5));
    with_another.truncate(6);
    read(&world, case_id, &with_another);
    assert_eq!(mirrored_hours(&world, case_id), [5, 10, 20, 30, 40, 50, 60]);
    // With five there are no more: the last one is gone.
    read(&world, case_id, &with_another[..5]);
    assert_eq!(mirrored_hours(&world, case_id), [5, 10, 20, 30, 40]);
}
