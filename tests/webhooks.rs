//! Webhooks and domain events: what they name is read at once, what only they tell is kept once, and nothing
//! that was answered for is lost (contract, section 8).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;

use casemirror::failpoint;
use casemirror::sandbox::{Act, Control, Facet, Fault, ListEdit, Options, When};
use serde_json::{Value, json};

use crate::evidence::alter;
use crate::support::daemon::Daemon;
use crate::support::follow::{
    Integrator, assert_status, calls, change, hold, lines, shown_cases, unthrottled,
};
use crate::support::scripted::{fault, refuse};
use crate::support::{World, differences_of, one, shown};

/// Feeds that are asked when somebody asks for it.
const PATIENT: &str = "[feed]\ncalls = 1000\nper = \"1s\"\npoll = \"1h\"\ncontacts_poll = \"1h\"\n\
                       [publish]\nmin_interval = \"0s\"\nparquet = \"\"\n\
                       [serve]\nlisten = \"\"\nwebhooks = \"127.0.0.1:0\"\n";

fn patient(cases: usize) -> World {
    let world = World::unthrottled(cases);
    world.configure(PATIENT);
    world
}

/// Where the daemon takes webhooks, as its log says.
fn address_of(world: &World, daemon: &mut Daemon<'_>) -> String {
    let address = || {
        let log = daemon_log(world);
        let (_, rest) = log.split_once("webhooks are taken address=")?;
        rest.split_whitespace().next().map(str::to_owned)
    };
    daemon.wait_until("webhooks are taken", || address().is_some());
    address().unwrap()
}

/// The paths of webhooks and of domain events, as the command says them.
fn paths(world: &World) -> (String, String) {
    let output = world.run(&["webhooks", "url"]);
    assert_status(&output, 0);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut paths = text.lines().map(|line| {
        let rest = line.strip_prefix("http://").unwrap();
        rest[rest.find('/').unwrap()..].to_owned()
    });
    (paths.next().unwrap(), paths.next().unwrap())
}

/// Sends a request; its status and body.
fn send(address: &str, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n"
    )
    .unwrap();
    // As many clients do: all of it, and only then the answer.
    stream.write_all(body.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap_or_else(|| panic!("{text}")).parse().unwrap();
    (status, text)
}

fn post(address: &str, path: &str, body: &Value) -> u16 {
    send(address, "POST", path, "Content-Type: application/json\r\n", &body.to_string()).0
}

fn event(name: &str, payload: &Value) -> Value {
    json!({ "EventType": name, "EventCreatedDate": "2026-11-20T10:00:00.1234567+01:00", "Payload": payload })
}

/// Whether what is published is what the source has.
fn is_equal(world: &World) -> bool {
    world.path("data/casemirror.duckdb").exists()
        && world.differences_in(&world.published()).is_empty()
}

/// Waits until nothing that webhooks told waits any more.
fn wait_until_followed(world: &World, daemon: &mut Daemon<'_>, done: impl Fn(&World) -> bool) {
    daemon.wait_until("what the webhook named is read", || done(world));
}

#[test]
fn what_a_webhook_names_is_read_at_once_and_by_the_calls_of_its_change() {
    let world = patient(12);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    daemon.wait_until_idle();
    let case_id = shown_cases(&world)[3];
    let rows = format!("SELECT count(*) FROM main.activities WHERE case_id = {case_id}");
    daemon.wait_until("all is published", || is_equal(&world));
    let before: i64 = one(&world.published(), &rows);
    world.sandbox.reset_stats();
    change(&world, case_id, Facet::Activity);
    let told = event("AktivitetCreated", &json!({"Id": 1, "CaseId": case_id, "Type": 3}));
    assert_eq!(post(&address, &path, &told), 200);
    wait_until_followed(&world, &mut daemon, |world| {
        one::<i64>(&world.published(), &rows) == before + 1
    });
    // The change feed is asked at once, and what it says and the webhook are answered by the same calls.
    let activities = format!("GET /api/Cases/{case_id}/Activities");
    let feed = "GET /api/Integrations/RecentlyModified/Cases";
    daemon.wait_until("all of the change is read", || {
        let is_asked = calls(&world).contains_key(feed);
        is_asked && world.run(&["status"]).status.code() == Some(0) && is_equal(&world)
    });
    let made = calls(&world);
    assert_eq!(made.get(&activities), Some(&1), "{made:?}");
    assert_eq!(made.get(feed), Some(&1), "{made:?}");
    daemon.stop();
    world.sandbox.reset_stats();
    world.sync();
    // Where the feed answered too late to be waited for, the case itself is compared once more.
    let again = calls(&world);
    assert!(
        again.keys().all(|call| !call.contains("/api/Cases/")),
        "nothing is left to be read: {again:?}"
    );
}

#[test]
fn a_flood_of_webhooks_for_one_case_makes_no_flood_of_calls() {
    let world = patient(10);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    daemon.wait_until_idle();
    daemon.wait_until("all is published", || is_equal(&world));
    let case_id = shown_cases(&world)[3];
    world.sandbox.reset_stats();
    hold(&world, "poll", "/api/Integrations/RecentlyModified/Cases", 1);
    for n in 0..200 {
        if n % 50 == 0 {
            change(&world, case_id, Facet::ActivityEdited);
        }
        let told = event("AktivitetChanged", &json!({"Id": n, "CaseId": case_id, "Type": 3}));
        assert_eq!(post(&address, &path, &told), 200);
    }
    world.sandbox.release("poll");
    daemon.wait_until("all of it is read", || {
        world.run(&["status"]).status.code() == Some(0) && is_equal(&world)
    });
    let made = calls(&world);
    let activities = made.get(&format!("GET /api/Cases/{case_id}/Activities"));
    // One for what the held poll said, and one where a hint came behind its plan.
    assert!(activities.is_some_and(|calls| *calls <= 2), "{made:?}");
    daemon.stop();
}

#[test]
fn the_platforms_own_deliveries_keep_the_mirror_equal() {
    let world = World::unthrottled(20);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let at = PATIENT.replace("127.0.0.1:0", &address);
    world.configure(&format!("{at}public_url = \"http://{address}/\"\n"));
    let mut daemon = world.start_daemon();
    daemon.wait_until("it has subscribed", || daemon_has_subscribed(&world));
    daemon.wait_until_idle();
    let database = world.path("data/casemirror.duckdb");
    daemon.wait_until("something is published", || database.exists());
    let cases = shown_cases(&world);
    let facets = [
        Facet::Activity,
        Facet::ContactAdded,
        Facet::RoleRemoved,
        Facet::Publication,
        Facet::Sold,
        Facet::Settled,
        Facet::Information,
        Facet::SaleText,
        Facet::SaleTextAdded,
    ];
    for (facet, case_id) in facets.into_iter().zip(&cases) {
        change(&world, *case_id, facet);
    }
    world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    let staff = world.sandbox.tables(&["employees", "offices"]);
    let id = |table: &str| staff["tables"][table][0]["id"].as_i64().unwrap();
    world.sandbox.act(&Act::EditEmployee { employee_id: id("employees") }).unwrap();
    world.sandbox.act(&Act::EditOffice { office_id: id("offices") }).unwrap();
    let payload = json!({ "CaseId": cases[0], "Id": 4, "Key": "k", "DefinitionId": 6 });
    world.sandbox.act(&Act::emit("ChecklistItemChecked", payload)).unwrap();
    assert!(world.wait(world.sandbox.wait_until_delivered()));
    let counts = world.sandbox.deliveries().counts;
    assert!(counts.delivered > 10 && counts.failed == 0, "{counts:?}");
    daemon.wait_until("the mirror is equal", || {
        let published = world.published();
        let events = "SELECT count(*) FROM main.events WHERE id = 4";
        // Of contacts only their feed tells, which is asked once an hour here.
        let differences = world.differences_in(&published);
        differences.iter().all(|difference| difference.starts_with("contacts "))
            && one::<i64>(&published, events) == 1
    });
    daemon.stop();
}

/// Whether the sandbox has a subscription of each event type to this machine.
fn daemon_has_subscribed(world: &World) -> bool {
    let state = world.sandbox.tables(&["webhook_subscriptions"]);
    let all = state["tables"]["webhook_subscriptions"].as_array().unwrap();
    all.iter()
        .filter(|one| one["url"].as_str().is_some_and(|url| url.contains("127.0.0.1")))
        .count()
        == 21
}

#[test]
fn what_no_date_announces_is_read_because_a_webhook_names_it() {
    let world = patient(12);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    daemon.wait_until_idle();
    let offices = world.sandbox.tables(&["offices"]);
    let office = offices["tables"]["offices"][0]["id"].as_i64().unwrap();
    world.sandbox.act(&Act::EditOffice { office_id: office }).unwrap();
    world.sandbox.act(&Act::Account { office_id: office, edit: ListEdit::Added }).unwrap();
    let role = world.sandbox.tables(&["case_roles"])["tables"]["case_roles"][0].clone();
    world.sandbox.reset_stats();
    assert_eq!(post(&address, &path, &event("OfficeChanged", &json!({"OfficeId": office}))), 200);
    let id = role["id"].as_i64().unwrap();
    assert_eq!(post(&address, &path, &event("InteressentDeleted", &json!({"Id": id}))), 200);
    let roles = format!("GET /api/Cases/{}/Roles", role["case_id"].as_i64().unwrap());
    let accounts = format!("GET /api/Offices/{office}/Accounts");
    wait_until_followed(&world, &mut daemon, |world| {
        let made = calls(world);
        [roles.as_str(), accounts.as_str(), "GET /api/Offices"]
            .iter()
            .all(|c| made.contains_key(*c))
            && is_equal(world)
    });
    let made = calls(&world);
    for call in [&roles, &accounts, &"GET /api/Offices".to_owned()] {
        assert_eq!(made.get(call), Some(&1), "{call}: {made:?}\n{}", daemon.log());
    }
    let count = |what: &str| made.keys().filter(|call| call.contains(what)).count();
    assert_eq!(
        (count("/Accounts"), count("/Roles")),
        (1, 1),
        "no other office, no other case: {made:?}"
    );
    daemon.stop();
}

#[test]
fn a_role_that_is_deleted_while_an_answer_with_it_is_under_way_does_not_stay() {
    let world = patient(12);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    daemon.wait_until("all is published", || is_equal(&world));
    daemon.wait_until_idle();
    let case_id = shown_cases(&world)[3];
    let roles = || -> Vec<i64> {
        let all = world.sandbox.tables(&["case_roles"]);
        let all = all["tables"]["case_roles"].as_array().unwrap();
        all.iter().filter(|r| r["case_id"] == case_id).filter_map(|r| r["id"].as_i64()).collect()
    };
    let before = roles();
    let held = Fault::Hold { name: "roles".to_owned(), when: When::After };
    world.sandbox.fault(fault(&format!("/api/Cases/{case_id}/Roles"), Some(1), held));
    change(&world, case_id, Facet::RoleAdded);
    let added = roles().into_iter().find(|id| !before.contains(id)).unwrap();
    let told = event("InteressentCreated", &json!({"CaseId": case_id}));
    assert_eq!(post(&address, &path, &told), 200);
    assert!(world.wait(world.sandbox.wait_until_held("roles")), "{}", daemon.log());
    // The answer that is held has it, and no row of ours says whose it is.
    change(&world, case_id, Facet::RoleRemoved);
    assert!(!roles().contains(&added), "it is the last one that goes");
    assert_eq!(post(&address, &path, &event("InteressentDeleted", &json!({"Id": added}))), 200);
    let queue = world.path("data/store.duckdb.hints");
    daemon
        .wait_until("the webhook is taken", || queue.metadata().is_ok_and(|file| file.len() == 0));
    world.sandbox.release("roles");
    daemon.wait_until("it is gone", || is_equal(&world));
    daemon.stop();
    world.assert_equal();
}

/// Without a feed of contacts nothing else says that the search showed an old row.
#[test]
fn a_contact_that_a_webhook_names_is_searched_again_when_the_search_may_have_lagged() {
    let search_lag = std::time::Duration::from_millis(900);
    let world = World::with(Options { search_lag, ..unthrottled(12) });
    let without_feed = PATIENT.replace("contacts_poll = \"1h\"", "contacts_poll = \"0s\"");
    world.configure(&without_feed);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    daemon.wait_until_idle();
    daemon.wait_until("it is published", || world.path("data/casemirror.duckdb").exists());
    let named = "SELECT contact_id FROM case_roles JOIN contacts c ON c.id = contact_id \
                 WHERE c.last_indexed IS NOT NULL ORDER BY 1 LIMIT 1";
    let contact: i64 = one(&world.published(), named);
    world.sandbox.act(&Act::EditContact { contact_id: Some(contact), at: None }).unwrap();
    // Whom no role names is not known without a feed.
    let is_followed = |world: &World| {
        let wrong = differences_of(&world.published(), &world.sandbox.tables(&["contacts"]));
        wrong.iter().all(|text| text.ends_with("is missing"))
    };
    assert!(!is_followed(&world));
    let changed = event("InteressentChanged", &json!({"ContactId": contact}));
    assert_eq!(post(&address, &path, &changed), 200);
    wait_until_followed(&world, &mut daemon, is_followed);
    daemon.stop();
}

#[test]
fn a_case_that_nobody_knew_is_mirrored_when_a_webhook_names_it() {
    let world = patient(10);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    daemon.wait_until_idle();
    daemon.wait_until("all is published", || is_equal(&world));
    let made = world.sandbox.act(&Act::NewCase { project: false, assignment: None }).unwrap();
    let case_id = made.case_ids[0];
    assert_eq!(post(&address, &path, &event("OppdragCreated", &json!({"CaseId": case_id}))), 200);
    wait_until_followed(&world, &mut daemon, |world| {
        let sql = format!("SELECT count(*) FROM main.cases WHERE id = {case_id}");
        one::<i64>(&world.published(), &sql) == 1 && is_equal(world)
    });
    // One that is nowhere makes no row and no failure.
    assert_eq!(post(&address, &path, &event("CaseSold", &json!({"CaseId": 987_654_321}))), 200);
    wait_until_followed(&world, &mut daemon, |world| {
        calls(world).keys().any(|call| call.contains("/987654321/Roles"))
    });
    daemon.wait_until("all is well again", || world.run(&["status"]).status.code() == Some(0));
    daemon.stop();
    world.assert_equal();
}

#[test]
fn events_that_no_call_reads_are_kept_once_each() {
    let world = patient(8);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, events) = paths(&world);
    let checked = event(
        "ChecklistItemChecked",
        &json!({"CaseId": 17, "Id": 4, "Key": "k", "DefinitionId": 6}),
    );
    for _ in 0..3 {
        assert_eq!(post(&address, &path, &checked), 200);
    }
    let package = event("MarketingPackageChanged", &json!({"MarketingPackageId": 5, "CaseId": 17}));
    assert_eq!(post(&address, &path, &package), 200);
    let count = "SELECT count(*) FROM main.events";
    wait_until_followed(&world, &mut daemon, |world| {
        world.path("data/casemirror.duckdb").exists() && one::<i64>(&world.published(), count) == 2
    });
    // As the platform repeats it, later and by another way.
    let mut wrapped =
        json!({"eventType": "ChecklistItemChecked", "eventTime": "2026-11-20T09:00:00.1234567Z"});
    wrapped["data"] = json!({"CaseId": 17, "Id": 4});
    assert_eq!(post(&address, &events, &json!([wrapped])), 200);
    assert_eq!(post(&address, &path, &checked), 200);
    let link = event("HyperlinkChanged", &json!({"GeneralTextId": 6, "CaseId": 17}));
    assert_eq!(post(&address, &path, &link), 200);
    wait_until_followed(&world, &mut daemon, |world| one::<i64>(&world.published(), count) >= 3);
    // Without a time, and with more beside it: what was told before.
    let undated = json!({"EventType": "ChecklistItemChecked", "Payload": {"CaseId": 17, "Id": 8}});
    assert_eq!(post(&address, &path, &undated), 200);
    wait_until_followed(&world, &mut daemon, |world| one::<i64>(&world.published(), count) >= 4);
    let more = event("ChecklistItemChecked", &json!({"CaseId": 17, "Id": 4, "ContactId": 7}));
    let last = event("HyperlinkChanged", &json!({"GeneralTextId": 9, "CaseId": 17}));
    for told in [&undated, &more, &last] {
        assert_eq!(post(&address, &path, told), 200);
    }
    wait_until_followed(&world, &mut daemon, |world| {
        one::<i64>(&world.published(), "SELECT count(*) FROM main.events WHERE id = 9") == 1
    });
    assert_eq!(one::<i64>(&world.published(), count), 5);
    let rows = "SELECT event_type, id, case_id, epoch_us(occurred_at), received_at IS NOT NULL \
                FROM main.events WHERE id < 8 ORDER BY id";
    assert_eq!(
        lines(&world.published(), rows),
        [
            "{'event_type': ChecklistItemChecked, 'id': 4, 'case_id': 17, \
             'epoch_us(occurred_at)': 1795165200123456, '(received_at IS NOT NULL)': true}",
            "{'event_type': MarketingPackageChanged, 'id': 5, 'case_id': 17, \
             'epoch_us(occurred_at)': 1795165200123456, '(received_at IS NOT NULL)': true}",
            "{'event_type': HyperlinkChanged, 'id': 6, 'case_id': 17, \
             'epoch_us(occurred_at)': 1795165200123456, '(received_at IS NOT NULL)': true}",
        ]
    );
    daemon.stop();
}

#[test]
fn only_what_can_never_become_right_is_refused() {
    let world = patient(6);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, events) = paths(&world);
    let sold = event("CaseSold", &json!({"CaseId": 17})).to_string();
    let answer = |method: &str, path: &str, body: &str| send(&address, method, path, "", body).0;
    for way in ["/webhooks/", "/events/"] {
        assert_eq!(answer("POST", &format!("{way}{}", "0".repeat(48)), &sold), 404);
        assert_eq!(answer("POST", &format!("{way}%ff"), &sold), 404);
    }
    assert_eq!(answer("POST", "/", &sold), 404);
    assert_eq!(answer("GET", &path, ""), 405);
    let long = format!("{{\"EventType\": \"{}\"}}", "x".repeat(20 << 20));
    assert_eq!(answer("POST", "/", &long), 404);
    assert_eq!(answer("POST", "/webhooks/unknown", &long), 404);
    for path in [&path, &events] {
        assert_eq!(answer("POST", path, "{\"EventType\": "), 400);
        assert_eq!(answer("POST", path, ""), 400);
        assert_eq!(answer("POST", path, &long), 413);
        for odd in ["{}", "[]", "null", "\"text\"", "{\"EventType\": 5, \"Payload\": []}"] {
            assert_eq!(answer("POST", path, odd), 200, "{odd}");
        }
    }
    // Without a length it is measured as it comes.
    let chunk = "x".repeat(1 << 20);
    let chunks = format!("100000\r\n{chunk}\r\n").repeat(20);
    let mut stream = TcpStream::connect(&address).unwrap();
    let headers = "Host: a\r\nConnection: close\r\nTransfer-Encoding: chunked";
    write!(stream, "POST {path} HTTP/1.1\r\n{headers}\r\n\r\n{chunks}0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 413"), "{text}");

    assert_eq!(post(&address, &path, &event("NewKind", &json!({"Name": "Kari Nordmann"}))), 200);
    let known = "SELECT field FROM sync.drift WHERE table_name = 'events' ORDER BY field";
    daemon.wait_until("the unknown types are noted", || {
        world.path("data/casemirror.duckdb").exists()
            && lines(&world.published(), known) == ["{'field': 5}", "{'field': NewKind}"]
    });
    let log = daemon.log();
    let token = path.rsplit('/').next().unwrap();
    assert!(log.contains("NewKind") && !log.contains("Nordmann") && !log.contains(token), "{log}");
    daemon.stop();
}

#[test]
fn a_domain_event_subscription_is_validated() {
    let world = patient(6);
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (_, path) = paths(&world);
    let asked = json!([{
        "id": "1", "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent",
        "data": {"validationCode": "512d38b6", "validationUrl": "https://elsewhere.example.com"}
    }]);
    let header = "aeg-event-type: SubscriptionValidation\r\n";
    let (status, text) = send(&address, "POST", &path, header, &asked.to_string());
    assert_eq!(status, 200);
    assert!(text.ends_with("{\"validationResponse\":\"512d38b6\"}"), "{text}");
    let (status, text) =
        send(&address, "OPTIONS", &path, "WebHook-Request-Origin: grid.example.com\r\n", "");
    assert_eq!(status, 200);
    assert!(text.to_lowercase().contains("webhook-allowed-origin: grid.example.com"), "{text}");
    assert_eq!(send(&address, "OPTIONS", "/events/unknown", "", "").0, 404);
    daemon.stop();
}

#[test]
fn what_was_answered_for_outlives_a_kill_at_every_point() {
    for point in failpoint::HINTING {
        let world = patient(8);
        world.sync();
        let case_id = shown_cases(&world)[2];
        world.sandbox.reset_stats();
        let mut daemon = world.start_daemon_in(&[("CASEMIRROR_ABORT_AT", point)], &[]);
        let address = address_of(&world, &mut daemon);
        // What the first polls tell is answered by a cycle of their own, maybe before the hint is released.
        daemon.wait_until("both feeds were asked", || world.sandbox.stats().feed.calls >= 2);
        change(&world, case_id, Facet::Settled);
        let (path, _) = paths(&world);
        let fact = event("ChecklistItemChecked", &json!({"CaseId": case_id, "Id": 4}));
        let named = event("SettlementStatusChanged", &json!({"CaseId": case_id}));
        // Whether the answer came before the end or not: what was kept is followed.
        let both = json!([fact, named]).to_string();
        if let Ok(mut stream) = TcpStream::connect(&address) {
            let length = both.len();
            let _ = write!(
                stream,
                "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{both}"
            );
            let _ = stream.read(&mut [0; 100]);
        }
        assert_eq!(daemon.ends().signal(), Some(6), "{point}:\n{}", daemon.log());
        drop(daemon);
        world.sync();
        world.assert_equal();
        let rows = lines(&world.published(), "SELECT id, case_id FROM main.events");
        assert_eq!(rows, [format!("{{'id': 4, 'case_id': {case_id}}}")], "{point}");
        assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM sync.hints"), 0, "{point}");
    }
}

#[test]
fn subscriptions_are_made_repaired_and_removed_and_those_of_others_stay() {
    let world = World::unthrottled(6);
    let public = "public_url = \"https://mirror.example.com/here\"\n";
    world.configure(&format!("{PATIENT}{public}"));
    let subscriptions = || {
        let state = world.sandbox.tables(&["webhook_subscriptions"]);
        state["tables"]["webhook_subscriptions"].as_array().unwrap().clone()
    };
    // Another receiver behind the same host.
    let crm =
        json!({ "EventType": "CaseSold", "Url": "https://mirror.example.com/here/webhooks/crm" });
    Integrator::log_in(&world).call("POST", "/api/WebHooks/Subscribe", &crm);
    let others = subscriptions();
    let is_left = |all: &[Value]| all[..others.len()] == others[..];
    let ours = || {
        let all = subscriptions();
        assert!(is_left(&all), "those of others stay as they are: {all:?}");
        all[others.len()..].to_vec()
    };
    let mut daemon = world.start_daemon();
    daemon.wait_until("all event types are subscribed", || ours().len() == 21);
    daemon.wait_until("it is known which they are", || {
        daemon_log(&world).contains("webhook subscriptions were changed")
    });
    let log = daemon.log();
    daemon.stop();
    let url = || {
        let text = String::from_utf8(world.run(&["webhooks", "url"]).stdout).unwrap();
        text.lines().next().unwrap().to_owned()
    };
    let before = url();
    assert!(before.starts_with("https://mirror.example.com/here/webhooks/"), "{before}");
    let token = before.rsplit('/').next().unwrap();
    assert!(!log.contains(token), "{log}");

    // Again: nothing is made twice.
    let made = ours();
    let mut daemon = world.start_daemon();
    world.sandbox.reset_stats();
    daemon.wait_until("they are looked at", || {
        calls(&world).keys().any(|call| call.ends_with("/api/WebHooks/Subscriptions"))
    });
    daemon.stop();
    assert_eq!(ours(), made);

    // The token is lost, and with it the address: the same subscriptions lead to the new one.
    std::fs::remove_file(world.path("data/store.duckdb.secrets")).unwrap();
    let mut daemon = world.start_daemon();
    daemon
        .wait_until("they lead to the new address", || daemon_log(&world).contains("repaired=21"));
    assert_ne!(url(), before);
    assert_eq!(ours().len(), 21);

    // Which ones to remove the daemon knows, and does not make them anew at once.
    let removed = world.run(&["webhooks", "remove"]);
    assert_status(&removed, 0);
    assert!(shown(&removed).contains("21 webhook subscriptions removed"), "{}", shown(&removed));
    assert_eq!(ours().len(), 0);
    daemon.stop();

    // By their ids, where no address is ours any more.
    let mut daemon = world.start_daemon();
    daemon.wait_until("all event types are subscribed", || {
        daemon_log(&world).contains("webhook subscriptions were changed")
    });
    daemon.stop();
    world.configure(PATIENT);
    let removed = world.run(&["webhooks", "remove"]);
    assert!(shown(&removed).contains("21 webhook subscriptions removed"), "{}", shown(&removed));
    assert_eq!(ours().len(), 0);
    let none = world.run(&["webhooks", "remove"]);
    assert!(shown(&none).contains("0 webhook subscriptions removed"), "{}", shown(&none));
}

#[test]
fn removed_subscriptions_are_gone_from_the_table_after_the_next_cycle() {
    let world = World::unthrottled(6);
    world.configure(&format!("{PATIENT}public_url = \"https://mirror.example.com\"\n"));
    let ours = || {
        world.sync();
        let ours =
            "SELECT count(*) FROM main.webhook_subscriptions WHERE url LIKE '%mirror.example.com%'";
        one::<i64>(&world.store(), ours)
    };
    let made = || {
        let mut daemon = world.start_daemon();
        daemon.wait_until("all event types are subscribed", || {
            daemon_log(&world).contains("webhook subscriptions were changed")
        });
        daemon
    };
    let removes = || {
        let removed = world.run(&["webhooks", "remove"]);
        assert!(
            shown(&removed).contains("21 webhook subscriptions removed"),
            "{}",
            shown(&removed)
        );
    };
    made().stop();
    assert_eq!(ours(), 21);
    removes();
    assert_eq!(ours(), 0, "removed while nobody held the store");
    let mut daemon = made();
    daemon.wait_until_idle();
    removes();
    daemon.stop();
    assert_eq!(ours(), 0, "removed by the daemon");
}

/// By their ids, subscriptions of another platform's customers may look like those that were made here.
#[test]
fn subscriptions_of_another_tenant_are_neither_changed_nor_removed() {
    let world = World::unthrottled(6);
    world.configure(&format!("{PATIENT}public_url = \"https://mirror.example.com\"\n"));
    let mut daemon = world.start_daemon();
    daemon.wait_until("all event types are subscribed", || {
        daemon_log(&world).contains("webhook subscriptions were changed")
    });
    daemon.stop();
    let before = world.sandbox.tables(&["webhook_subscriptions"]);

    alter(&world, "UPDATE sync.meta SET value = 'another place' WHERE key = 'origin'");
    world.sandbox.control(Control::Tenant { id: "another".to_owned() });
    let removed = world.run(&["webhooks", "remove"]);
    assert_status(&removed, 1);
    assert!(shown(&removed).contains("belong to tenant another"), "{}", shown(&removed));
    // They would be repaired: the address is another.
    std::fs::remove_file(world.path("data/store.duckdb.secrets")).unwrap();
    world.sandbox.reset_stats();
    let mut daemon = world.start_daemon();
    assert_eq!(daemon.ends().code(), Some(1), "{}", daemon.log());
    assert_eq!(world.sandbox.stats().writes, 0);
    assert_eq!(world.sandbox.tables(&["webhook_subscriptions"]), before);
}

/// What only webhooks tell is missed without them, and nobody reads logs.
#[test]
fn subscriptions_that_cannot_be_made_are_a_problem_until_they_can() {
    let world = World::unthrottled(6);
    world.configure(&format!("{PATIENT}public_url = \"https://mirror.example.com\"\n"));
    world.sandbox.fault(fault("/api/WebHooks/Subscribe", None, refuse(403)));
    let mut daemon = world.start_daemon();
    let said = || shown(&world.run(&["status"]));
    let problem = "the webhook subscriptions could not be made what serve.public_url wants";
    daemon.wait_until("it is told", || said().contains(problem));
    assert_eq!(world.run(&["status"]).status.code(), Some(3));
    daemon.stop();
    world.sandbox.clear_faults();
    let mut daemon = world.start_daemon();
    daemon.wait_until_idle();
    daemon.stop();
    assert!(!said().contains(problem));
}

#[test]
fn a_table_of_events_that_is_switched_off_takes_none() {
    let world = World::unthrottled(6);
    world.configure(&format!("{PATIENT}[resources]\ndisable = [\"events\"]\n"));
    let mut daemon = world.start_daemon();
    let address = address_of(&world, &mut daemon);
    let (path, _) = paths(&world);
    let package = event("MarketingPackageChanged", &json!({"MarketingPackageId": 5, "CaseId": 17}));
    assert_eq!(post(&address, &path, &package), 200);
    daemon.wait_until_idle();
    daemon.stop();
    // It takes what the daemon may have left.
    assert_status(&world.run(&["sync"]), 0);
    let taken = "SELECT value FROM sync.meta WHERE key = 'webhooks_taken'";
    assert_eq!(one::<String>(&world.store(), taken), "1");
    assert_eq!(one::<i64>(&world.store(), "SELECT count(*) FROM main.events"), 0);
}

fn daemon_log(world: &World) -> String {
    std::fs::read_to_string(world.path("daemon.log")).unwrap()
}

#[test]
fn where_no_webhooks_are_taken_the_table_says_why_it_is_empty() {
    let world = World::unthrottled(6);
    let told =
        "SELECT concat_ws(': ', status, reason) FROM sync.resources WHERE table_name = 'events'";
    for _ in 0..2 {
        world.sync();
        let why = "ok: serve.webhooks is not set: nobody tells of any";
        assert_eq!(one::<String>(&world.store(), told), why);
    }
    let published = world.path("data/casemirror.duckdb").metadata().unwrap().modified().unwrap();
    world.sync();
    let again = world.path("data/casemirror.duckdb").metadata().unwrap().modified().unwrap();
    assert_eq!(again, published, "nothing has changed");
    world.configure(PATIENT);
    world.sync();
    assert_eq!(one::<String>(&world.store(), told), "ok");
}
