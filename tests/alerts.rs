//! What the daemon tells people (docs/operations.md, "Being told").

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use duckdb::Connection;

use crate::support::follow::assert_status;
use crate::support::{World, shown};

/// Long enough for a slow machine.
const LONGEST: Duration = Duration::from_secs(240);

/// A chat's webhook: every call, as its request line and its body. The first `refused` are answered 500.
struct Chat {
    address: String,
    calls: Receiver<(String, String)>,
}

impl Chat {
    fn refusing(mut refused: usize) -> Chat {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (told, calls) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut request, mut length) = (String::new(), 0);
                reader.read_line(&mut request).unwrap();
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).unwrap();
                    if line.trim().is_empty() {
                        break;
                    }
                    if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
                        length = text.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = if refused > 0 { "500 Later" } else { "200 OK" };
                refused = refused.saturating_sub(1);
                write!(
                    &stream,
                    "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                )
                .unwrap();
                if told.send((request.trim().to_owned(), String::from_utf8(body).unwrap())).is_err()
                {
                    return;
                }
            }
        });
        Chat { address, calls }
    }

    fn next(&self) -> (String, String) {
        self.calls.recv_timeout(LONGEST).unwrap()
    }

    fn settings(&self, path: &str) -> String {
        format!("[alert]\n{path} = \"http://{}/s3cret\"\n", self.address)
    }
}

/// A difference that a verification has found, and that stands.
const DIFFERENCE: &str = "\
    INSERT INTO sync.verifications (run_id, verified_at, what, source, mirror, difference, subject, standing) \
    VALUES (1, now(), 'costs of Ola Nordmann', '1', '2', '1', 'x', true)";

fn in_store(world: &World, sql: &str) {
    Connection::open(world.path("data/store.duckdb")).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn a_difference_is_told_once_over_restarts_and_once_when_it_is_over() {
    let world = World::unthrottled(6);
    world.bootstrap();
    in_store(&world, DIFFERENCE);
    let chat = Chat::refusing(1);
    world.configure_eager(&chat.settings("url"));
    let told = "{\"text\":\"casemirror: the mirror differs from the source in 1 control, see sync.verifications\"}";
    let daemon = world.start_daemon();
    for _ in ["refused", "taken"] {
        let (request, body) = chat.next();
        assert_eq!((request.as_str(), body.as_str()), ("POST /s3cret HTTP/1.1", told));
    }
    let log = daemon.log();
    assert!(log.contains("alert.url did not take it") && !log.contains("s3cret"), "{log}");
    daemon.stop();
    // Nothing new in the next process, until it is over.
    let mut daemon = world.start_daemon();
    daemon.wait_for_socket();
    daemon.stop();
    in_store(&world, "UPDATE sync.verifications SET standing = false WHERE subject = 'x'");
    let daemon = world.start_daemon();
    let (_, body) = chat.next();
    assert!(body.starts_with("{\"text\":\"casemirror: over: the mirror differs"), "{body}");
    daemon.stop();
}

#[test]
fn the_log_has_what_nobody_else_is_told() {
    let world = World::unthrottled(6);
    world.bootstrap();
    in_store(&world, DIFFERENCE);
    world.configure_eager("");
    let mut daemon = world.start_daemon();
    let log = || std::fs::read_to_string(world.path("daemon.log")).unwrap();
    let said = "the mirror differs from the source in 1 control, see sync.verifications";
    daemon.wait_until("the difference is in the log", || {
        log().lines().any(|line| line.contains("WARN") && line.contains(said))
    });
    daemon.stop();
}

#[test]
fn the_heart_beats_only_while_everything_is_fresh_and_believed() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let chat = Chat::refusing(0);
    world.configure_eager(&chat.settings("heartbeat"));
    let daemon = world.start_daemon();
    assert_eq!(chat.next().0, "GET /s3cret HTTP/1.1");
    daemon.stop();
    in_store(&world, DIFFERENCE);
    let alerts = Chat::refusing(0);
    let both = format!("{}url = \"http://{}/\"\n", chat.settings("heartbeat"), alerts.address);
    world.configure_eager(&both);
    let daemon = world.start_daemon();
    // Two looks and more: the second thing that is told comes with a later one.
    alerts.next();
    daemon.stop();
    assert!(chat.calls.try_recv().is_err(), "it differs");
}

#[test]
fn an_end_that_nobody_can_be_told_keeps_the_heart_from_nothing() {
    let world = World::unthrottled(6);
    world.bootstrap();
    in_store(&world, DIFFERENCE);
    let chat = Chat::refusing(0);
    world.configure_eager(&chat.settings("url"));
    let daemon = world.start_daemon();
    chat.next();
    daemon.stop();
    in_store(&world, "UPDATE sync.verifications SET standing = false WHERE subject = 'x'");
    // The chat takes nothing any more; then nobody is to be told.
    let revoked = Chat::refusing(usize::MAX);
    for url in [format!("url = \"http://{}/\"\n", revoked.address), String::new()] {
        let beats = Chat::refusing(0);
        world.configure_eager(&format!("{}{url}", beats.settings("heartbeat")));
        let daemon = world.start_daemon();
        assert_eq!(beats.next().0, "GET /s3cret HTTP/1.1");
        daemon.stop();
    }
    assert!(revoked.next().1.contains("over: the mirror differs"));
    // What was over was forgotten: who is told again from now on hears nothing old.
    let (chat, beats) = (Chat::refusing(0), Chat::refusing(0));
    let both = format!("{}heartbeat = \"http://{}/\"\n", chat.settings("url"), beats.address);
    world.configure_eager(&both);
    let daemon = world.start_daemon();
    beats.next();
    daemon.stop();
    assert!(chat.calls.try_recv().is_err());
}

#[test]
fn sums_doubts_and_restatements_are_told_once_without_values_and_again_when_they_are_over() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let (chat, beats) = (Chat::refusing(0), Chat::refusing(0));
    let both = format!("{}heartbeat = \"http://{}/\"\n", chat.settings("url"), beats.address);
    world.configure_eager(&both);
    // What is there at the first look is known, and no news; the heart beats after a look.
    let daemon = world.start_daemon();
    beats.next();
    daemon.stop();
    in_store(
        &world,
        "INSERT INTO sync.restatements VALUES ('revenue_journals', 'offices', 11, DATE '2026-01-01', 1, \
           'key-of-Ola', 'changed', 'message1', 'Ola Nordmann', 'Kari Nordmann', now()); \
         INSERT INTO sync.failures (table_name, id, part, attempts, first_at, next_at, kind, error) \
           VALUES ('employees', 0, '', 1, now(), make_timestamp(4000000000000000), 'Held', 'Ola Nordmann'); \
         UPDATE sync.meta SET value = 'offices/11/2026-01 differs' WHERE key = 'control_months'",
    );
    // Nothing is read any more, so that all of it stands.
    let gone = ["--set", "source.base_url=http://127.0.0.1:9/"];
    let told =
        |chat: &Chat| chat.next().1.replace("{\"text\":\"casemirror: ", "").replace("\"}", "");
    let daemon = world.start_daemon_with(&gone);
    let messages: Vec<String> = (0..3).map(|_| told(&chat)).collect();
    assert_eq!(
        messages,
        [
            "1 month of the journals does not match its sum at the platform, or there is none, see \
             report.journal_reconciliation",
            "1 answer of the platform would remove too much and is not believed yet (employees), see \
             sync.failures",
            "1 change within closed months, see report.journal_restatements",
        ]
    );
    daemon.stop();
    in_store(
        &world,
        "DELETE FROM sync.failures WHERE kind = 'Held'; \
         UPDATE sync.meta SET value = '' WHERE key = 'control_months'",
    );
    let daemon = world.start_daemon_with(&gone);
    let over: Vec<String> = (0..2).map(|_| told(&chat)).collect();
    assert!(over[0].starts_with("over: journals do not match the platform's own sums (since "));
    assert!(over[1].starts_with("over: answers of the platform are not believed (since "));
    daemon.stop();
    assert!(chat.calls.try_recv().is_err(), "each was told once");
}

#[test]
fn a_daemon_that_cannot_go_on_says_so_once_over_restarts_and_when_it_goes_on() {
    let world = World::unthrottled(6);
    world.bootstrap();
    let chat = Chat::refusing(0);
    world.configure_eager(&chat.settings("url"));
    // Restarted again and again, as the system does.
    for _ in 0..2 {
        let mut daemon = world.start_daemon_with(&["--set", "source.client_secret=changed"]);
        assert_eq!(daemon.ends().code(), Some(1), "{}", daemon.log());
    }
    let (_, body) = chat.next();
    let told = "{\"text\":\"casemirror: the daemon cannot go on and has stopped: the platform refuses source.client_id \
                and source.client_secret (its log has more)\"}";
    assert_eq!(body, told);
    let daemon = world.start_daemon();
    let (_, body) = chat.next();
    assert!(
        body.starts_with("{\"text\":\"casemirror: over: the daemon could not go on (since "),
        "{body}"
    );
    daemon.stop();
    assert!(chat.calls.try_recv().is_err(), "each was told once");
}

#[test]
fn a_test_message_is_sent_as_alerts_are_and_calls_no_heartbeat() {
    let world = World::unthrottled(1);
    let (chat, beats) = (Chat::refusing(1), Chat::refusing(0));
    world.configure(&format!(
        "{}heartbeat = \"http://{}/\"\n",
        chat.settings("url"),
        beats.address
    ));
    let refused = world.run(&["alert", "test"]);
    assert_status(&refused, 1);
    let text = shown(&refused);
    assert!(text.contains("alert.url did not take the test message"), "{text}");
    assert!(text.contains("it answered 500") && !text.contains("s3cret"), "{text}");
    let taken = world.run(&["alert", "test"]);
    assert_status(&taken, 0);
    assert!(shown(&taken).contains("alert.url took"), "{}", shown(&taken));
    for _ in ["refused", "taken"] {
        let (request, body) = chat.next();
        let told = "{\"text\":\"casemirror: this is a test of alert.url: nothing is wrong\"}";
        assert_eq!((request.as_str(), body.as_str()), ("POST /s3cret HTTP/1.1", told));
    }
    assert!(beats.calls.try_recv().is_err(), "nobody knows whether it is fresh");
    assert!(!world.path("data").exists(), "it needs no store");
}

#[test]
fn a_test_message_that_nobody_can_get_is_an_error_that_says_why() {
    let world = World::unthrottled(1);
    let nobody = world.run(&["alert", "test"]);
    assert_status(&nobody, 2);
    assert!(shown(&nobody).contains("alert.url is not set"), "{}", shown(&nobody));
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    world.configure(&format!("[alert]\nurl = \"http://127.0.0.1:{port}/s3cret?key=s3cret\"\n"));
    let output = world.run(&["alert", "test"]);
    assert_status(&output, 1);
    let text = shown(&output);
    assert!(text.contains("alert.url did not take") && text.contains("refused"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}
