//! What happens between two calls: changes during a fetch, slow answers, moving rows, lagging and
//! broken searches. Each is staged with held calls, so that it happens every time.

use std::collections::BTreeMap;

use casemirror::sandbox::{Act, Control, Facet, Fault, ListEdit, MaxTop, Options, Rule, When};

use crate::support::follow::{
    UNTHROTTLED, assert_status, brisk, calls, change, differences_beside, hold, lines, shown_cases,
    start, unthrottled, while_held,
};
use crate::support::scripted::{assert_incomplete, fault, search_path};
use crate::support::{World, one, shown};

/// A mirrored world, and one of its cases.
fn mirrored(options: Options) -> (World, i64) {
    let world = brisk(options);
    world.bootstrap();
    world.assert_equal();
    world.sandbox.reset_stats();
    let case_id = shown_cases(&world)[12];
    (world, case_id)
}

/// Sets `ModifiedDate` of cases, and nothing else.
fn touch(world: &World, case_ids: &[i64], modified: &str) {
    let act = Act::Touch {
        case_ids: case_ids.to_vec(),
        modified: Some(modified.to_owned()),
        dates: BTreeMap::new(),
    };
    world.sandbox.act(&act).unwrap();
}

/// An instant so many seconds from now, with the given ticks of 100 ns in its second.
fn instant(seconds: i64, ticks: u32) -> String {
    let at = chrono::Utc::now() + chrono::TimeDelta::seconds(seconds);
    format!("{}.{ticks:07}Z", at.format("%Y-%m-%dT%H:%M:%S"))
}

#[test]
fn a_case_that_changes_while_it_is_fetched_is_fetched_again() {
    let (world, case_id) = mirrored(unthrottled(30));
    change(&world, case_id, Facet::Activity);
    let path = format!("/api/Cases/{case_id}/Activities");
    hold(&world, "fetch", &path, 1);
    let output = while_held(&world, start(&world, &["sync"]), "fetch", || {
        change(&world, case_id, Facet::Activity);
    });
    assert_status(&output, 0);
    let sql = format!("SELECT count(*) FROM main.activities WHERE case_id = {case_id}");
    let old = one::<i64>(&world.store(), &sql);

    world.sandbox.reset_stats();
    world.sync();
    world.assert_equal();
    assert_eq!(calls(&world)[&format!("GET {path}")], 1);
    assert_eq!(one::<i64>(&world.store(), &sql), old + 1, "the held answer was the older one");
}

#[test]
fn a_slow_listing_page_never_overrules_a_newer_answer_by_id() {
    let (world, case_id) = mirrored(unthrottled(30));
    // The page of the listing is computed, then the case changes, then the page arrives.
    hold(&world, "page", "/api/Search/AdvancedPropertySearch", 1);
    let output = while_held(&world, start(&world, &["sync", "--full"]), "page", || {
        change(&world, case_id, Facet::Description);
    });
    assert_status(&output, 0);
    world.sync();
    world.assert_equal();
    // Each description raises the price, so no earlier version may have a higher one.
    let newer = lines(
        &world.store(),
        &format!(
            "SELECT h.asking_price > m.asking_price AS newer \
             FROM history.cases h JOIN main.cases m USING (id) WHERE id = {case_id}"
        ),
    );
    assert!(!newer.is_empty() && newer.iter().all(|n| n == "{'newer': false}"), "{newer:?}");
}

#[test]
fn a_case_that_changes_between_its_two_searches_ends_as_it_is() {
    let (world, case_id) = mirrored(unthrottled(30));
    change(&world, case_id, Facet::Bid);
    hold(&world, "search", "/api/Search/AdvancedPropertySearch", 1);
    let output = while_held(&world, start(&world, &["sync"]), "search", || {
        change(&world, case_id, Facet::Sold);
    });
    assert_status(&output, 0);
    world.sync();
    world.assert_equal();
}

#[test]
fn rows_that_move_between_pages_of_the_feed_are_neither_lost_nor_doubled() {
    let max_top = MaxTop { feed: 100, ..MaxTop::default() };
    let (world, _) = mirrored(Options { max_top, ..unthrottled(260) });
    let cases = shown_cases(&world);
    // All of these move, a tick apart, so that the poll takes several pages.
    for (i, case_id) in cases[..220].iter().enumerate() {
        touch(&world, &[*case_id], &instant(0, 1_000 + i as u32));
    }
    hold(&world, "second page", "/api/Integrations/RecentlyModified/Cases", 2);
    let moved = [cases[5], cases[100], cases[101], cases[219]];
    let output = while_held(&world, start(&world, &["sync"]), "second page", || {
        for case_id in moved {
            change(&world, case_id, Facet::Draft);
        }
    });
    assert_status(&output, 0);
    world.sync();
    world.assert_equal();
    let doubled = one::<i64>(
        &world.store(),
        "SELECT count(*) FROM (SELECT case_id FROM sync.seen GROUP BY ALL HAVING count(*) > 1)",
    );
    assert_eq!(doubled, 0);
}

#[test]
fn rows_that_move_between_pages_of_a_listing_are_neither_lost_nor_doubled() {
    let max_top = MaxTop { search: 100, ..MaxTop::default() };
    let world = brisk(Options { max_top, ..unthrottled(250) });
    let cases = shown_cases(&world);
    // The first call is refused for its size until the page fits: the last one held is a page.
    hold(&world, "page", "/api/Search/AdvancedPropertySearch", 6);
    let child = start(&world, &["sync"]);
    let output = while_held(&world, child, "page", || {
        world.sandbox.act(&Act::DeleteCase { case_id: cases[3] }).unwrap();
        world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
        change(&world, cases[1], Facet::Activated);
    });
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", shown(&output));
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

/// Behind the row that left, all rows stand one place nearer: by places alone the first one of the second page
/// would be on neither.
#[test]
fn a_relation_that_leaves_between_two_pages_takes_none_that_stands_with_it() {
    let world = brisk(unthrottled(2_600));
    let since = (chrono::Utc::now() - chrono::TimeDelta::days(410)).format("%Y-%m-%d");
    world.configure(&format!("{UNTHROTTLED}[processing_bases]\nsince = \"{since}\"\n"));
    let only = ["sync", "--full", "--only", "processing_basis_relations"];
    assert_status(&world.run(&only), 0);
    let relations =
        || one::<i64>(&world.store(), "SELECT count(*) FROM main.processing_basis_relations");
    let before = relations();
    assert!(before > 1_000, "{before} are no two pages");

    hold(&world, "first page", "/api/ProcessingBases/Relations/Contacts/Extended", 1);
    let mut gone = 0;
    let output = while_held(&world, start(&world, &only), "first page", || {
        gone = world.sandbox.act(&Act::Relation { edit: ListEdit::Removed }).unwrap().ids[0];
    });
    assert_status(&output, 3);
    assert_eq!(relations(), before, "which one left, this reading could not tell");
    assert_status(&world.run(&only), 0);
    assert_eq!(relations(), before - 1);
    let gone = format!("SELECT count(*) FROM main.processing_basis_relations WHERE id = {gone}");
    assert_eq!(one::<i64>(&world.store(), &gone), 0);
}

#[test]
fn more_cases_with_one_date_than_fit_a_page_are_all_seen() {
    let max_top = MaxTop { feed: 100, ..MaxTop::default() };
    let (world, _) = mirrored(Options { max_top, ..unthrottled(260) });
    let cases = shown_cases(&world);
    let at = instant(0, 1_234_567);
    touch(&world, &cases[..230], &at);
    world.sync();
    world.assert_equal();
    let moved = one::<i64>(
        &world.store(),
        "SELECT count(*) FROM sync.seen GROUP BY modified_date ORDER BY 1 DESC LIMIT 1",
    );
    assert_eq!(moved, 230);
    let ties = world.sandbox.stats().log.iter().filter(|c| c.query.contains("eq")).count();
    assert!(ties >= 2, "{ties} calls for one date");
}

#[test]
fn two_dates_that_differ_only_in_the_seventh_digit_are_two() {
    let (world, case_id) = mirrored(unthrottled(30));
    let path = format!("GET /api/Properties/{case_id}/CommonConditions");
    let at = instant(0, 0);
    let at = at.trim_end_matches("0000000Z");
    for (digit, stale) in [(1, true), (1, false), (2, true), (1, true)] {
        touch(&world, &[case_id], &format!("{at}765432{digit}Z"));
        world.sandbox.reset_stats();
        world.sync();
        assert_eq!(calls(&world).contains_key(&path), stale, "{digit}");
    }
    world.assert_equal();
}

#[test]
fn a_search_that_is_frozen_leaves_the_row_pending_until_it_thaws() {
    let (world, case_id) = mirrored(unthrottled(30));
    world.sandbox.control(Control::FreezeSearch {});
    change(&world, case_id, Facet::Description);
    // It lags for longer than source.search_delay.
    assert_incomplete(&world.run(&["sync"]), "cases: 1 scope failed");
    let store = world.store();
    assert_eq!(lines(&store, "SELECT table_name FROM sync.failures WHERE kind = 'Lag'").len(), 1);
    drop(store);
    // Everything else of the case is there already.
    let beside = differences_beside(&world, "cases");
    assert_eq!(beside, [""; 0]);
    assert!(!world.differences().is_empty());

    world.sandbox.control(Control::SearchLag { ms: 0 });
    // Its backoff may last longer than a run waits.
    while one::<i64>(&world.store(), "SELECT count(*) FROM sync.failures") > 0 {
        world.sync();
    }
    world.assert_equal();
}

#[test]
fn what_waits_for_the_search_is_no_failure_of_a_daemon() {
    let world = World::with(unthrottled(12));
    world.configure_eager("");
    world.bootstrap();
    let file = world.path("casemirror.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let patient = text.replace("search_delay = \"1s\"", "search_delay = \"1h\"");
    assert_ne!(patient, text);
    std::fs::write(&file, patient).unwrap();
    world.sandbox.control(Control::FreezeSearch {});
    change(&world, shown_cases(&world)[3], Facet::Description);
    world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    let mut status = None;
    daemon.wait_until("the search is waited for", || {
        let text = shown(status.insert(world.run(&["status"])));
        text.contains("the search still shows it") && text.contains("no search shows the case")
    });
    assert_status(&status.unwrap(), 0);
    daemon.stop();
}

/// What is read of a case by what another answer says of it does not wait for the end of what is under way.
#[test]
fn all_of_a_changed_case_is_read_while_a_long_reading_goes_on() {
    let world = World::with(unthrottled(12));
    world.configure_eager("");
    world.bootstrap();
    let sql = "SELECT case_id FROM dynamic_sale_texts ORDER BY case_id LIMIT 1";
    let case_id: i64 = one(&world.published(), sql);
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    world.sandbox.reset_stats();
    hold(&world, "long", "/api/Cases/*/Activities", 1);
    let reading = start(&world, &["sync", "--full"]);
    let path = format!("/api/DynamicSaleText/Cases/{case_id}/DynamicSaleTextItems");
    let asked = || world.sandbox.stats().log.iter().any(|call| call.path == path);
    let read = while_held(&world, reading, "long", || {
        assert!(!asked(), "it is read when it is known to be used");
        change(&world, case_id, Facet::Description);
        daemon.wait_until("it is read meanwhile", asked);
    });
    assert_status(&read, 0);
    daemon.wait_until_idle();
    daemon.stop();
    world.assert_equal();
}

#[test]
fn a_search_that_lags_less_than_its_delay_is_waited_for() {
    let search_lag = std::time::Duration::from_millis(700);
    let (world, case_id) = mirrored(Options { search_lag, ..unthrottled(30) });
    change(&world, case_id, Facet::Sold);
    world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    world.sync();
    world.assert_equal();
}

#[test]
fn a_case_hidden_from_the_search_is_decided_within_one_run_and_few_calls() {
    for project in [false, true] {
        let (world, _) = mirrored(unthrottled(30));
        let case_id = world.sandbox.act(&Act::NewCase { project, assignment: None }).unwrap();
        let case_id = case_id.case_ids[0];
        world.sync();
        world.assert_equal();
        world.sandbox.reset_stats();
        world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
        world.sync();
        world.assert_equal();
        let table = if project { "projects" } else { "cases" };
        let hidden = lines(
            &world.store(),
            &format!("SELECT id FROM history.{table} WHERE id = {case_id} AND _change = 'hidden'"),
        );
        assert_eq!(hidden.len(), 1, "project: {project}");
        let made = calls(&world);
        let asked = made[&format!("GET /api/Cases/{case_id}/Roles")];
        assert!(asked <= 3, "{made:?}");
    }
}

#[test]
fn a_hidden_case_that_is_shown_again_is_waited_for_while_the_search_lags() {
    for project in [false, true] {
        let (world, _) = mirrored(unthrottled(30));
        let case_id = world.sandbox.act(&Act::NewCase { project, assignment: None }).unwrap();
        let case_id = case_id.case_ids[0];
        world.sync();
        world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
        world.sync();
        world.assert_equal();
        world.sandbox.control(Control::SearchLag { ms: 700 });
        world.sandbox.act(&Act::ShowCase { case_id, silent: false }).unwrap();
        world.sync();
        world.assert_equal();
    }
}

#[test]
fn a_hidden_case_that_is_shown_while_it_is_searched_is_searched_again() {
    let (world, case_id) = mirrored(unthrottled(30));
    world.sandbox.act(&Act::HideCase { case_id, silent: false }).unwrap();
    world.sync();
    world.assert_equal();
    world.configure_eager("");
    let held = Fault::Hold { name: "search".to_owned(), when: When::After };
    world.sandbox.fault(Rule {
        query: Some(format!("Id eq {case_id}")),
        ..fault(&search_path("Property"), Some(1), held)
    });
    // So it is found because it moved, not because the search may lag.
    let delay = [("CASEMIRROR_SOURCE__SEARCH_DELAY", "1h")];
    let mut daemon = world.start_daemon_in(&delay, &[]);
    daemon.wait_for_socket();
    change(&world, case_id, Facet::Nothing);
    assert!(world.wait(world.sandbox.wait_until_held("search")), "{}", daemon.log());
    // The answer that is held lacks it, and a poll that comes before that answer tells of its return.
    world.sandbox.act(&Act::ShowCase { case_id, silent: false }).unwrap();
    world.sandbox.reset_stats();
    let polls = || calls(&world).get("GET /api/Integrations/RecentlyModified/Cases").copied();
    daemon.wait_until("it has polled", || polls() >= Some(3));
    world.sandbox.release("search");
    let is_shown = format!("SELECT count(*) FROM main.cases WHERE id = {case_id}");
    daemon.wait_until("it is found", || one::<i64>(&world.published(), &is_shown) == 1);
    daemon.stop();
    world.assert_equal();
}

#[test]
fn a_silently_hidden_case_is_found_by_the_next_listing() {
    let (world, case_id) = mirrored(unthrottled(30));
    world.sandbox.act(&Act::HideCase { case_id, silent: true }).unwrap();
    world.sync();
    assert!(!world.differences().is_empty());
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
    // A hidden case that is deleted leaves with the rest.
    world.sandbox.act(&Act::DeleteCase { case_id }).unwrap();
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}

#[test]
fn an_index_that_suddenly_lists_nothing_hides_no_case_of_a_busy_day() {
    let (world, _) = mirrored(unthrottled(120));
    let rows = "SELECT (SELECT count(*) FROM main.cases) + (SELECT count(*) FROM main.projects)";
    let before = one::<i64>(&world.store(), rows);
    world.sandbox.control(Control::SearchListsNothing { on: true });
    for case_id in shown_cases(&world).into_iter().take(70) {
        change(&world, case_id, Facet::Nothing);
    }
    let output = world.run(&["sync"]);
    assert_status(&output, 3);
    assert!(shown(&output).contains("reconcile.max_removed"), "{}", shown(&output));
    assert_eq!(one::<i64>(&world.store(), rows), before);

    world.sandbox.control(Control::SearchListsNothing { on: false });
    assert_status(&world.run(&["sync", "--full"]), 0);
    world.assert_equal();
}
