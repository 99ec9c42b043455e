//! Whole lists over a real socket, and who we are.

use std::sync::Arc;

use super::service::{Arrived, Service, feed, json, limits, source, status, tuning};
use crate::config;
use crate::error::{Kind, Result};
use crate::progress::Counts;
use crate::source::{
    Client, Filter, Identity, MemoryLedger, OrderBy, Page, PagePlan, Pages, Paging, Query, Request,
    Verdict,
};

/// Reads a whole list and hands each page to `on_page`.
async fn fetch_pages(
    client: &Client,
    plan: PagePlan,
    mut on_page: impl FnMut(Page),
) -> Result<Verdict> {
    let mut pages = Pages::new(client, plan);
    while let Some(page) = pages.next().await? {
        on_page(page);
    }
    Ok(pages.verdict().unwrap_or(Verdict::Complete))
}

fn plan(paging: Paging) -> PagePlan {
    PagePlan {
        request: Request::post("/api/Search/AdvancedPropertySearch", &[]).unwrap(),
        paging,
        identity: Identity::Fields(vec!["Id".into()]),
        count: false,
    }
}

fn by_id() -> Paging {
    Paging::Keyset { field: "Id".into() }
}

/// Serves `records` by `$top`, `$skip` and a keyset on `Id`.
fn serve(records: i64, largest_top: usize) -> impl Fn(&Arrived, usize) -> axum::response::Response {
    move |call, _| {
        let number = |name| call.parameter(name).and_then(|text| text.parse::<usize>().ok());
        let top = number("$top").unwrap_or(100);
        if top > largest_top {
            return status(400, r#"{"Message": "The limit for Top is lower"}"#);
        }
        let filter = call.parameter("$filter").unwrap_or_default();
        let from = filter.rsplit_once("Id ge ").map_or(0, |(_, id)| id.parse::<i64>().unwrap());
        let page: Vec<String> = (from..records)
            .skip(number("$skip").unwrap_or(0))
            .take(top)
            .map(|id| format!(r#"{{"Name": "n", "Id": {id}}}"#))
            .collect();
        json(&format!("[{}]", page.join(",")))
    }
}

async fn read(service: &Service, plan: PagePlan) -> (Vec<String>, Verdict) {
    let mut records = Vec::new();
    let verdict = fetch_pages(&service.client(), plan, |page| {
        let texts = page.records.iter().map(|r| String::from_utf8(r.to_vec()).unwrap());
        records.extend(texts);
    })
    .await
    .unwrap();
    (records, verdict)
}

#[tokio::test]
async fn a_keyset_walk_asks_from_the_key_behind_the_last() {
    let service = Service::start(serve(250, 100)).await;
    let mut plan = plan(by_id());
    plan.request.query = Query::new().filter(Filter::eq("OfficeId", 3));
    let (records, verdict) = read(&service, plan).await;
    assert_eq!((records.len(), verdict), (250, Verdict::Complete));
    assert_eq!(records[249], r#"{"Name": "n", "Id": 249}"#);
    let taken: Vec<_> =
        service.calls().into_iter().filter(|c| c.parameter("$top").unwrap() == "100").collect();
    let filters: Vec<_> = taken.iter().map(|call| call.parameter("$filter").unwrap()).collect();
    assert_eq!(
        filters,
        ["OfficeId eq 3", "OfficeId eq 3 and Id ge 100", "OfficeId eq 3 and Id ge 200"]
    );
    assert!(taken.iter().all(|call| call.parameter("$orderby").unwrap() == "Id asc"));
    assert!(taken.iter().all(|call| call.parameter("$skip").is_none()));
}

#[tokio::test]
async fn a_page_that_is_too_large_is_asked_for_in_smaller_parts() {
    // 25 to 28 bytes each, and from the 186th on 103.
    let service = Service::start(move |call, _| {
        let top = call.parameter("$top").unwrap().parse().unwrap();
        let filter = call.parameter("$filter").unwrap_or_default();
        let from = filter.rsplit_once("Id ge ").map_or(0, |(_, id)| id.parse::<i64>().unwrap());
        let record = |id| {
            format!("{{\"Name\": \"{}\"", "n".repeat(if id < 186 { 5 } else { 80 }))
                + &format!(", \"Id\": {id}}}")
        };
        json(&format!("[{}]", (from..250).take(top).map(record).collect::<Vec<_>>().join(",")))
    })
    .await;
    let limits = config::Limits { answer_bytes: config::Bytes(1_900), ..limits() };
    let ledger = Arc::new(MemoryLedger::new());
    let client =
        Client::with_tuning(&source(&service.address), &feed(), &limits, ledger, tuning()).unwrap();
    let mut records = 0;
    let verdict = fetch_pages(&client, plan(by_id()), |page| records += page.records.len()).await;
    assert_eq!((records, verdict.unwrap()), (250, Verdict::Complete));
    let tops = || -> Vec<String> {
        service.calls().iter().map(|call| call.parameter("$top").unwrap()).collect()
    };
    // Each page that comes lets the next be larger.
    let asked = [
        "1000", "250", "62", "124", "31", "62", "124", "31", "62", "15", "30", "7", "14", "28",
        "7", "14", "28",
    ];
    assert_eq!(tops(), asked);
    // What is taken is more than that.
    assert_eq!(client.tops().found().into_values().collect::<Vec<_>>(), [1000]);
}

#[tokio::test]
async fn a_single_record_that_is_too_large_is_told() {
    let service =
        Service::start(|_, _| json(&format!("[{{\"Id\": 1{}}}]", " ".repeat(2_000)))).await;
    let limits = config::Limits { answer_bytes: config::Bytes(1_700), ..limits() };
    let ledger = Arc::new(MemoryLedger::new());
    let client =
        Client::with_tuning(&source(&service.address), &feed(), &limits, ledger, tuning()).unwrap();
    let error = fetch_pages(&client, plan(by_id()), |_| {}).await.unwrap_err();
    assert_eq!(error.kind(), Kind::TooLarge);
    assert!(error.chain().contains("larger than 1700 bytes (limits.answer_bytes)"));
    let tops: Vec<_> = service.calls().iter().map(|call| call.parameter("$top").unwrap()).collect();
    assert_eq!(tops, ["1000", "250", "62", "15", "3", "1"]);
}

#[tokio::test]
async fn a_record_that_is_none_spoils_a_page_only_where_it_is_not_pardoned_or_most_are() {
    let service = |wrong: usize| {
        Service::start(move |_, _| {
            let right = (wrong..4).map(|id| format!("{{\"Id\": {id}}}"));
            let wrong = (0..wrong).map(|id| format!("{{\"Id\": null, \"Id\": {id}}}"));
            json(&format!("[{}]", wrong.chain(right).collect::<Vec<_>>().join(",")))
        })
    };
    for (wrong, pardons, comes) in
        [(0, false, true), (1, false, false), (1, true, true), (2, true, true), (3, true, false)]
    {
        let service = service(wrong).await;
        let pages = Pages::new(&service.client(), plan(by_id()));
        let mut pages = if pardons { pages.pardoning() } else { pages };
        match pages.next().await {
            Ok(page) => {
                assert!(comes, "{wrong} of four");
                let records = page.unwrap().records;
                let none = records.iter().filter(|record| &record[..] == b"null").count();
                assert_eq!((records.len(), none), (4, wrong), "the decoder tells them");
            }
            Err(error) => {
                assert!(!comes && error.kind() == Kind::BadAnswer, "{wrong}: {}", error.chain());
                assert!(error.chain().contains("names the field Id twice"), "{}", error.chain());
            }
        }
    }
}

#[tokio::test]
async fn the_accepted_top_is_remembered_for_the_endpoint() {
    let service = Service::start(serve(3, 300)).await;
    let client = service.client();
    for _ in 0..2 {
        fetch_pages(&client, plan(by_id()), |_| ()).await.unwrap();
    }
    let tops: Vec<_> = service.calls().iter().map(|call| call.parameter("$top").unwrap()).collect();
    assert_eq!(tops, ["1000", "500", "250", "250"]);
}

#[tokio::test]
async fn a_skip_walk_keeps_the_order_that_was_asked_for() {
    let service = Service::start(serve(2_300, 1_000)).await;
    let mut plan = plan(Paging::Skip);
    plan.request.query = Query::new().order_by(OrderBy::asc("CreatedDate"));
    let (records, verdict) = read(&service, plan).await;
    assert_eq!((records.len(), verdict), (2_300, Verdict::Complete));
    let skips: Vec<_> = service.calls().iter().map(|call| call.parameter("$skip")).collect();
    // Each begins with the last record of the one before.
    let expected = [None, Some("999"), Some("1998")];
    assert_eq!(skips, expected.map(|skip| skip.map(str::to_owned)));
    assert!(service.calls().iter().all(|c| c.parameter("$orderby").unwrap() == "CreatedDate asc"));
}

#[tokio::test]
async fn count_is_asked_for_and_believed() {
    let service = Service::start(|call, _| {
        assert_eq!(call.parameter("$inlinecount").unwrap(), "allpages");
        let page: Vec<String> = (0..100).map(|id| format!(r#"{{"Id": {id}}}"#)).collect();
        json(&format!(r#"{{"Count": 100, "Results": [{}]}}"#, page.join(",")))
    })
    .await;
    let (records, verdict) = read(&service, PagePlan { count: true, ..plan(by_id()) }).await;
    assert_eq!((records.len(), verdict), (100, Verdict::Complete));
    assert_eq!(service.calls().len(), 1);
}

#[tokio::test]
async fn each_page_is_told_and_count_says_how_many_are_to_come() {
    let service = Service::start(|call, _| {
        let filter = call.parameter("$filter").unwrap_or_default();
        let from = filter.rsplit_once("Id ge ").map_or(0, |(_, id)| id.parse::<i64>().unwrap());
        let page: Vec<String> =
            (from..2_300).take(1_000).map(|id| format!(r#"{{"Id": {id}}}"#)).collect();
        let count = if from == 0 { "2300" } else { "null" };
        json(&format!(r#"{{"Count": {count}, "Results": [{}]}}"#, page.join(",")))
    })
    .await;
    let client = service.client();
    let told = || {
        let Counts { done, planned, rows, committed, calls } = client.progress().counts();
        assert_eq!(committed, 0);
        // The first call is that for the token.
        (calls - 1, rows, done, planned)
    };
    let mut pages = Pages::new(&client, PagePlan { count: true, ..plan(by_id()) });
    let mut after = Vec::new();
    while pages.next().await.unwrap().is_some() {
        after.push(told());
    }
    assert_eq!(after, [(1, 1_000, 0, 2), (2, 2_000, 1, 2), (3, 2_300, 2, 2)]);

    let mut again = Pages::new(&client, PagePlan { count: true, ..plan(by_id()) });
    again.next().await.unwrap().expect("the first page");
    drop(again);
    assert_eq!(told(), (4, 3_300, 2, 2), "what is not read to its end plans nothing more");
}

#[tokio::test]
async fn an_undocumented_list_is_asked_bare_and_looked_behind() {
    let everything: Vec<String> = (0..200).map(|id| format!(r#"{{"Id": {id}}}"#)).collect();
    let body = format!("[{}]", everything.join(","));
    let service = Service::start(move |_, _| json(&body)).await;
    let (records, verdict) = read(&service, plan(Paging::Undocumented)).await;
    assert_eq!((records.len(), verdict), (200, Verdict::Complete));
    let queries: Vec<_> = service.calls().iter().map(|call| call.query.clone()).collect();
    assert_eq!(queries, ["", "$skip=199", "$skip=200"]);
}

/// Lines have no key: the same line is one whatever the order of its fields, or the list would have no end.
#[tokio::test]
async fn lines_whose_fields_come_in_another_order_are_the_same_again() {
    let service = Service::start(|_, nth| {
        let line = |n: i32| match nth {
            0 => format!(r#"{{"N": {n}, "Notes": [{{"A": 1, "B": 2.50}}]}}"#),
            _ => format!(r#"{{"Notes":[{{"B":2.50,"A":1}}],"N":{n}}}"#),
        };
        assert!(nth < 5, "it goes on and on");
        json(&format!("[{}]", (0..100).map(line).collect::<Vec<_>>().join(",")))
    })
    .await;
    let lines = PagePlan { identity: Identity::Lines, ..plan(Paging::Undocumented) };
    let (records, verdict) = read(&service, lines).await;
    assert_eq!((records.len(), verdict), (100, Verdict::Complete));
    assert_eq!(service.calls().len(), 2);
}

#[tokio::test]
async fn a_look_that_is_refused_leaves_the_list_incomplete() {
    let everything: Vec<String> = (0..100).map(|id| format!(r#"{{"Id": {id}}}"#)).collect();
    let body = format!("[{}]", everything.join(","));
    let service = Service::start(move |call, _| match call.query.as_str() {
        "" => json(&body),
        _ => status(400, "unknown parameter"),
    })
    .await;
    let (records, verdict) = read(&service, plan(Paging::Undocumented)).await;
    assert_eq!(records.len(), 100);
    assert_eq!(verdict, Verdict::Incomplete("the service refuses a later page"));
}

#[tokio::test]
async fn no_content_is_an_empty_complete_list() {
    let service = Service::start(|_, _| status(204, "")).await;
    let client = service.client();
    let mut pages = Pages::new(&client, plan(by_id()));
    let page = pages.next().await.unwrap().expect("the first page always comes");
    assert!(page.records.is_empty() && page.answer.is_none());
    assert!(pages.next().await.unwrap().is_none());
    assert_eq!(pages.verdict(), Some(Verdict::Complete));
    assert_eq!(pages.sent_at(), Some(page.answer.sent_at));
}

#[tokio::test]
async fn an_answer_that_is_no_list_is_named() {
    let service = Service::start(|_, _| json(r#"{"Message": "no"}"#)).await;
    let client = service.client();
    let error = fetch_pages(&client, plan(by_id()), |_| ()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::BadAnswer);
    assert!(error.chain().contains("met an object of the fields Message"), "{}", error.chain());
}

#[tokio::test]
async fn records_share_the_body_they_came_in() {
    let service = Service::start(serve(10, 1_000)).await;
    let client = service.client();
    let mut pages = Pages::new(&client, plan(by_id()));
    let page = pages.next().await.unwrap().unwrap();
    let body = page.answer.body.as_ptr_range();
    assert!(page.records.iter().all(|record| body.contains(&record.as_ptr())));
}

#[tokio::test]
async fn the_tenant_is_a_text_or_a_number() {
    for (body, tenant) in [
        (r#"{"TenantId": "abc-1", "Permissions": []}"#, Some("abc-1")),
        (r#"{"TenantId": 17}"#, Some("17")),
        (r#"{"TenantId": null}"#, None),
        ("[]", None),
    ] {
        let service = Service::start(move |_, _| json(body)).await;
        match service.client().tenant().await {
            Ok(found) => assert_eq!(Some(found.to_string().as_str()), tenant),
            Err(error) => assert_eq!((error.kind(), tenant), (Kind::BadAnswer, None)),
        }
    }
}

#[tokio::test]
async fn permissions_are_read_and_compared() {
    let body = r#"[{"Permission": "Cases", "PermissionTypes": ["Read", "Write"]},
        {"Permission": "Notes", "PermissionTypes": null, "More": 1}]"#;
    let service = Service::start(move |_, _| json(body)).await;
    let permissions = service.client().permissions().await.unwrap();
    let granted = |needed| permissions.iter().any(|permission| permission.grants(needed));
    assert!(granted("Cases - Read") && granted("Cases - Write"));
    assert!(!granted("Notes - Read") && !granted("Case - Read") && !granted("Cases"));
}

#[tokio::test]
async fn a_key_of_several_fields_tells_versions_apart() {
    let versions: Vec<String> =
        (0..100).map(|version| format!(r#"{{"Id": 7, "Version": {version}}}"#)).collect();
    let body = format!("[{}]", versions.join(","));
    let service = Service::start(move |_, before| match before {
        0 => json(&body),
        _ => json(r#"[{"Id": 7, "Version": 99}, {"Id": 7, "Version": 100}]"#),
    })
    .await;
    let fields: Vec<Arc<str>> = vec!["Id".into(), "Version".into()];
    let plan = PagePlan { identity: Identity::Fields(fields), ..plan(Paging::Undocumented) };
    let (records, verdict) = read(&service, plan).await;
    assert_eq!((records.len(), verdict), (101, Verdict::Complete));
}
