use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::source::tests::service::{self, Arrived, Service};

fn address() -> Address {
    let url = Url::parse("https://mirror.example.com/here/").unwrap();
    Address::below(&url, SecretString::from("t0k"))
}

fn subscription(id: i64, event_type: &str, url: &str) -> Subscription {
    let event_type = Some(event_type.to_owned()).filter(|name| !name.is_empty());
    Subscription { id, event_type, url: url.to_owned() }
}

const OURS: &str = "https://mirror.example.com/here/webhooks/t0k";
const OLD: &str = "https://mirror.example.com/here/webhooks/old";

fn all() -> Vec<Subscription> {
    let all = KNOWN.into_iter().zip(1..);
    all.map(|(event, id)| subscription(id, event, OURS)).collect()
}

fn made(all: &[Subscription]) -> Made {
    let events = all.iter().map(|one| (one.id, one.event_type.clone().unwrap())).collect();
    Made { events, ..Made::default() }
}

fn plan(read: &[Subscription], made: &mut Made) -> (Vec<Step>, usize) {
    address().plan(&Subscriptions { read: read.to_vec(), unread: Vec::new() }, made)
}

#[test]
fn each_event_type_is_subscribed_once_and_nothing_is_done_again() {
    let mut known = Made::default();
    assert_eq!(address().url().expose_secret(), OURS);
    let subscribes: Vec<_> = KNOWN.into_iter().map(Step::Subscribe).collect();
    assert_eq!(plan(&[], &mut known), (subscribes, 0));
    assert_eq!(plan(&all(), &mut known), (vec![], 0));
    assert_eq!(known, made(&all()), "an earlier version kept no ids");
}

#[test]
fn what_was_made_is_repaired_and_what_is_too_many_is_removed() {
    let mut existing = all();
    existing.push(subscription(90, KNOWN[2], OURS));
    existing.push(subscription(91, "RetiredEvent", OURS));
    let mut known = made(&existing);
    known.events.insert(92, "Gone".to_owned());
    existing[0].url = OLD.to_owned();
    existing[1].url = "https://elsewhere.example.com/".to_owned();
    let (steps, unclear) = plan(&existing, &mut known);
    assert_eq!(unclear, 0);
    assert_eq!(
        steps,
        [Step::Remove(90), Step::Remove(91), Step::Repair(1, KNOWN[0]), Step::Repair(2, KNOWN[1])]
    );
    assert_eq!(known, made(&[&existing[..21], &existing[21..]].concat()));
}

#[test]
fn those_of_others_are_not_touched_wherever_they_lead() {
    let mut existing = all();
    for (id, event, url) in [
        (90, "CaseSold", "https://hooks.example.com/sold"),
        // Another receiver behind the same host, another mirror, and one whose token was never ours.
        (91, "CaseSold", "https://mirror.example.com/here/webhooks/crm"),
        (92, "CaseSold", "https://mirror.example.com/there/webhooks/t0k"),
        (93, "CaseSold", OLD),
        // Of an event type that only its maker knows.
        (94, "BidAccepted", OURS),
    ] {
        existing.push(subscription(id, event, url));
    }
    let mut known = Made::default();
    assert_eq!(plan(&existing, &mut known), (vec![], 0));
    assert_eq!(known, made(&all()));
    for one in &existing[21..] {
        let leads_here = address().is(&one.url);
        assert!(matches!(known.owner(one, leads_here), Owner::Other), "{one:?}");
    }
}

#[test]
fn where_the_list_names_no_event_types_what_was_made_is_known_by_its_id() {
    let mut existing = all();
    let mut known = made(&existing);
    existing.iter_mut().for_each(|one| one.event_type = None);
    assert_eq!(plan(&existing, &mut known), (vec![], 0));
    assert_eq!(known, made(&all()));
    existing[3].url = OLD.to_owned();
    assert_eq!(plan(&existing, &mut known), (vec![Step::Repair(4, KNOWN[3])], 0));
}

#[test]
fn nothing_is_subscribed_beside_what_cannot_be_told_apart() {
    // The ids are not known, and the list gives numbers.
    let mut existing = all();
    existing.iter_mut().for_each(|one| one.event_type = None);
    assert_eq!(plan(&existing, &mut Made::default()), (vec![], 21));
    let unread = vec!["{\"Id\":\"x\",\"Url\":\"https:\\/\\/a\\/webhooks\\/t0k\"}".to_owned()];
    let listed = Subscriptions { read: Vec::new(), unread };
    assert_eq!(address().plan(&listed, &mut Made::default()), (vec![], 1));
    let unread = vec!["{\"Id\":\"x\",\"Url\":\"https://hooks.example.com/\"}".to_owned()];
    let listed = Subscriptions { read: Vec::new(), unread };
    assert_eq!(address().plan(&listed, &mut Made::default()).0.len(), 21);
}

/// As the next process finds it.
fn restarted(known: &Made) -> Made {
    serde_json::from_str(&serde_json::to_string(known).unwrap()).unwrap()
}

/// A platform that lists event types as numbers, or nothing at all.
async fn numbering(lists: bool) -> Service {
    let all = Mutex::new(Vec::new());
    Service::start(move |call, _| {
        let mut all = all.lock().unwrap();
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        let subscription = |id| json!({ "Id": id, "EventType": 7, "Url": body["Url"] });
        match call.method.as_str() {
            "POST" => {
                let made = subscription(all.len());
                all.push(made);
            }
            "PUT" => {
                let id: usize = call.path.rsplit('/').next().unwrap().parse().unwrap();
                all[id] = subscription(id);
            }
            _ if lists => return service::json(&Value::from(all.clone()).to_string()),
            _ => return service::json("[]"),
        }
        service::json("true")
    })
    .await
}

fn sent(service: &Service, method: &str) -> usize {
    service.calls().iter().filter(|call| call.method == method).count()
}

#[tokio::test]
async fn what_is_listed_by_numbers_is_made_once_and_follows_a_new_token() {
    let service = numbering(true).await;
    let client = service.client();
    let mut known = Made::default();
    let aligned = address().align(&client, &mut known).await.unwrap();
    assert_eq!((aligned.made, aligned.failed.len()), (21, 0));
    let mut known = restarted(&known);
    let again = address().align(&client, &mut known).await.unwrap();
    assert!(!again.changed() && again.failed.is_empty(), "{again:?}");
    let url = Url::parse("https://mirror.example.com/here/").unwrap();
    let anew = Address::below(&url, SecretString::from("another"));
    let repaired = anew.align(&client, &mut known).await.unwrap();
    assert_eq!((repaired.made, repaired.repaired, repaired.removed), (0, 21, 0));
    assert_eq!((sent(&service, "POST"), sent(&service, "PUT")), (21, 21));
}

#[tokio::test]
async fn one_whose_answer_was_lost_is_not_taken_for_the_next() {
    let all = Mutex::new(Vec::<Value>::new());
    let service = Service::start(move |call, _| {
        let mut all = all.lock().unwrap();
        if call.method != "POST" {
            return service::json(&Value::from(all.clone()).to_string());
        }
        let body: Value = serde_json::from_slice(&call.body).unwrap();
        let id = all.len();
        all.push(json!({ "Id": id, "EventType": 7, "Url": body["Url"] }));
        match all.len() {
            3 => service::status(400, "lost"),
            _ => service::json("true"),
        }
    })
    .await;
    let client = service.client();
    let mut known = Made::default();
    let aligned = address().align(&client, &mut known).await.unwrap();
    assert_eq!((aligned.made, aligned.failed.len()), (21, 0), "{:?}", aligned.failed);
    assert_eq!(sent(&service, "POST"), 21);
    let asked = KNOWN.into_iter().map(str::to_owned);
    assert!(known.events.into_values().eq(asked), "each is what was asked for");
}

#[tokio::test]
async fn what_is_not_listed_is_asked_for_once() {
    let service = numbering(false).await;
    let client = service.client();
    let mut known = Made::default();
    for _ in ["at first", "an hour later"] {
        let aligned = address().align(&client, &mut known).await.unwrap();
        assert_eq!((aligned.made, aligned.failed.len()), (0, 1));
        assert!(!aligned.failed[0].chain().contains("t0k"));
    }
    assert_eq!(sent(&service, "POST"), 1);
}

#[tokio::test]
async fn all_that_was_made_is_removed_and_what_others_made_is_not() {
    let service = Service::start(|call, _| match call.method.as_str() {
        "DELETE" => service::status(204, ""),
        _ => service::json(&format!(
            r#"[{{"Id": 1, "EventType": 7, "Url": "{OLD}"}},
                {{"Id": 2, "EventType": "CaseSold", "Url": "{OURS}"}},
                {{"Id": 3, "EventType": "CaseSold", "Url": "{OURS}/crm"}},
                {{"Id": 4, "EventType": "BidAccepted", "Url": "{OURS}"}},
                {{"Id": 5, "EventType": 7, "Url": "{OLD}"}}]"#
        )),
    })
    .await;
    let known = Made { events: [(1, "CaseSold".to_owned())].into(), unlisted: None };
    let removed = |calls: Vec<Arrived>| -> Vec<String> {
        let removed = calls.into_iter().filter(|call| call.method == "DELETE");
        removed.map(|call| call.path.rsplit('/').next().unwrap().to_owned()).collect()
    };
    let (client, token) = (service.client(), SecretString::from("t0k"));
    let below = Url::parse("https://mirror.example.com/here").unwrap();
    let aligned = known.remove(&client, Some(&below), &token).await.unwrap();
    assert_eq!((aligned.removed, aligned.failed.len()), (2, 0));
    assert_eq!(removed(service.calls()), ["1", "2"]);
    // Where nothing is said to lead here any more, ids and token say what is ours.
    known.remove(&client, None, &token).await.unwrap();
    assert_eq!(removed(service.calls()), ["1", "2", "1", "2"]);
}
