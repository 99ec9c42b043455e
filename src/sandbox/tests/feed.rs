//! The two change feeds.

use super::*;

#[tokio::test]
async fn the_feed_and_the_search_agree_about_the_dates_to_the_millisecond() {
    let caller = Caller::new(quiet()).await;
    let feed =
        caller.get("/api/Integrations/RecentlyModified/Cases?$top=1000&$orderby=CaseId").await;
    let search = caller.search("Property", "$top=1000").await;
    let mut compared = 0;
    for row in search.as_array().unwrap() {
        let of_feed = feed.as_array().unwrap().iter().find(|f| f["CaseId"] == row["Id"]).unwrap();
        for field in ["CaseActivatedDate", "CaseSoldDate", "ActivityChangedDate"] {
            let (Some(a), Some(b)) = (of_feed[field].as_str(), row[field].as_str()) else {
                assert!(row[field].is_null());
                continue;
            };
            if !a.starts_with("0001") {
                let (a, b) = (Ticks::parse(a, false).unwrap(), Ticks::parse(b, true).unwrap());
                assert!((a.0 - b.0).abs() <= 5_000, "{field} of {}", row["Id"]);
                compared += 1;
            }
        }
    }
    assert!(compared > 50);
}

#[tokio::test]
async fn ties_and_the_seventh_digit_can_be_made() {
    let caller = Caller::new(quiet()).await;
    let case_ids = caller.sandbox.case_ids()[..5].to_vec();
    let touch = |case_ids: Vec<i64>, at: &str| {
        let modified = Some(at.to_owned());
        caller.sandbox.act(&Act::Touch { case_ids, modified, dates: [].into() }).unwrap();
    };
    touch(case_ids.clone(), "2026-11-20T12:00:00.1234567Z");
    touch(vec![case_ids[0]], "2026-11-20T12:00:00.1234568Z");
    let path = "/api/Integrations/RecentlyModified/Cases?$filter=ModifiedDate eq \
                datetime'2026-11-20T12:00:00.1234567Z' and CaseId ge 0&$orderby=CaseId";
    assert_eq!(ids(&caller.get(path).await, "CaseId"), case_ids[1..]);
}

#[tokio::test]
async fn the_feed_takes_both_styles_and_refuses_what_is_too_old() {
    let caller = Caller::new(quiet()).await;
    let feed = "/api/Integrations/RecentlyModified/Cases";
    let since = caller.sandbox.shared.server_time().plus_days(-90).exact();
    let whole = caller.get(&format!("{feed}?fromDate={since}")).await;
    let filter = format!("$filter=ModifiedDate ge datetime'{since}'&$orderby=ModifiedDate asc");
    let paged = caller.get(&format!("{feed}?{filter}&$top=1000")).await;
    assert_eq!(whole, paged);
    let old = caller.sandbox.shared.server_time().plus_days(-366).exact();
    for query in [format!("fromDate={old}"), "$top=1001".to_owned(), "fromdate=x".to_owned()] {
        let (status, _) = caller.ask(Method::GET, &format!("{feed}?{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}");
    }
}

#[tokio::test]
async fn the_throttle_counts_both_feeds_and_refuses_in_its_style() {
    let caller = Caller::new(Options { feed_calls: 3, ..quiet() }).await;
    let feeds = ["Cases", "Contacts", "Cases", "Contacts"];
    let mut answers = Vec::new();
    for feed in feeds {
        let path = format!("/api/Integrations/RecentlyModified/{feed}?$top=1");
        answers.push(caller.send(Method::GET, &path, None).await.unwrap());
    }
    assert!(answers[2].status().is_success());
    assert_eq!(answers[3].status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(answers[3].headers().contains_key("Retry-After"));
    caller.sandbox.control(Control::Throttle {
        calls: None,
        per_ms: None,
        style: Some(ThrottleStyle::RateLimitHeaders),
    });
    let path = "/api/Integrations/RecentlyModified/Cases";
    let refused = caller.send(Method::GET, path, None).await.unwrap();
    assert!(refused.headers().contains_key("X-RateLimit-Reset"));
    let stats = caller.sandbox.stats();
    assert_eq!(stats.feed, FeedStats { calls: 5, violations: 2, most_in_window: 5 });
}
