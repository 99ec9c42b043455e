//! What the reference does not describe is refused: a fault of the caller would go unseen otherwise.

use super::*;

const EXTENDED: &str = "/api/ProcessingBases/Relations/Contacts/Extended";
const SUM: &str = "/api/Offices/12/RevenueJournals/Sum";

impl Caller {
    async fn says(&self, method: Method, path: &str, sent: &str) -> (u16, Json) {
        let url = format!("{}{path}", self.sandbox.base_url());
        let call = self.http.request(method, url).bearer_auth(&self.token);
        let answer = call.body(sent.to_owned()).send().await.unwrap();
        (answer.status().as_u16(), body(answer).await)
    }

    /// Asserts that the call is taken without what is `wrong` in it, and refused with it.
    async fn takes_but_not(
        &self,
        method: Method,
        (path, sent): (&str, &str),
        (wrong_path, wrong_sent): (&str, &str),
    ) {
        let (status, answer) = self.says(method.clone(), path, sent).await;
        assert!(matches!(status, 200 | 204), "{method} {path} {sent}: {status} {answer}");
        let (status, answer) = self.says(method.clone(), wrong_path, wrong_sent).await;
        assert_eq!(status, 400, "{method} {wrong_path} {wrong_sent}: {answer}");
        assert!(answer["Message"].is_string(), "{answer}");
    }
}

fn period(from: &str, to: &str) -> String {
    json!({"FromDate": from, "ToDate": to}).to_string()
}

#[tokio::test]
async fn no_resource_takes_parameters_that_it_does_not_know() {
    let caller = Caller::new(quiet()).await;
    let case = caller.sandbox.case_ids()[4];
    for (path, right, wrong) in [
        ("/api/Cases/{id}/Roles", "", "bogus=1"),
        ("/api/Cases/{id}/Roles", "$top=5", "$top=5&top=5"),
        ("/api/Cases/{id}/Publications", "returnOnlyExisting=true", "returnonlyexisting=true"),
        ("/api/Cases/{id}/Publications", "returnOnlyExisting=true", "returnOnlyExisting=yes"),
        ("/api/Notes/Case/{id}", "", "$top=5&$top=5"),
        (
            "/api/Integrations/Bookkeeping/ExtendedEntryDefinitions",
            "$top=5",
            "$top=5&includeDeleted=true",
        ),
        ("/api/Notes/Case/{id}", "", "bogus=1"),
        ("/api/Employees", "$top=5", "$top=5&bogus=1"),
        ("/api/FileTags", "", "bogus=1"),
        ("/api/WebHooks/Subscriptions", "", "bogus=1"),
        ("/api/User/ApiPermissions", "", "bogus=1"),
        ("/api/Properties/{id}/Conditions", "", "bogus=1"),
        ("/api/Properties/{id}/Information", "", "$select=Id"),
        ("/api/Conditions/Cases/{id}/EstimatedCosts/false", "", "recalculate=true"),
    ] {
        let path = path.replace("{id}", &case.to_string());
        let (right, wrong) = (format!("{path}?{right}"), format!("{path}?{wrong}"));
        caller.takes_but_not(Method::GET, (&right, ""), (&wrong, "")).await;
    }
    let journal = "/api/Offices/12/CaseJournals?fromDate=2026-01-01&toDate=2026-01-31";
    for wrong in ["&bogus=1", "&todate=2026-01-31", "&toDate=2026-01-31", "&$filter=Id eq 1"] {
        let wrong = format!("{journal}{wrong}");
        caller.takes_but_not(Method::GET, (journal, ""), (&wrong, "")).await;
    }
    let (sent, path) = (period("2026-01-01", "2026-01-31"), format!("{SUM}?bogus=1"));
    caller.takes_but_not(Method::PUT, (SUM, &sent), (&path, &sent)).await;
}

#[tokio::test]
async fn what_takes_no_body_refuses_one() {
    let caller = Caller::new(quiet()).await;
    let directory = format!("/api/Cases/{}/Directory/Search", caller.sandbox.case_ids()[4]);
    for path in [
        "/api/Search/AdvancedPropertySearch?$top=1",
        "/api/Search/AdvancedProjectSearch?$top=1",
        "/api/Search/AdvancedContactSearch?$top=1",
        &directory,
    ] {
        for wrong in ["garbage", r#"{"x":1}"#] {
            caller.takes_but_not(Method::POST, (path, ""), (path, wrong)).await;
        }
    }
    let secret = format!("/api/WebHooks/Subscriptions/{}/UpdateSecret", {
        let known = caller.get("/api/WebHooks/Subscriptions").await;
        known[0]["Id"].clone()
    });
    caller.takes_but_not(Method::PUT, (&secret, ""), (&secret, "{}")).await;
}

#[tokio::test]
async fn relations_are_asked_for_by_date_times_with_an_offset_in_their_order() {
    let caller = Caller::new(quiet()).await;
    let window = |from: &str, until: &str, limit: usize| {
        json!({"startDate": from, "endDate": until, "offset": 0, "limit": limit}).to_string()
    };
    let (from, until) = ("2020-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00");
    let right = window(from, until, 1);
    for wrong in [
        window("2020-01-01T00:00:00", until, 1),
        window("2020-01-01", until, 1),
        window(from, "2026-01-01T00:00:00", 1),
        window(until, from, 1),
        window(from, until, 0),
        window(from, until, 1001),
    ] {
        caller.takes_but_not(Method::POST, (EXTENDED, &right), (EXTENDED, &wrong)).await;
    }
}

#[tokio::test]
async fn a_feed_takes_a_from_date_with_an_offset() {
    let caller = Caller::new(quiet()).await;
    for feed in ["Cases", "Contacts"] {
        let path = format!("/api/Integrations/RecentlyModified/{feed}?fromDate=");
        let since = caller.sandbox.shared.server_time().plus_days(-9).exact();
        let local = since.trim_end_matches('Z');
        let day = local.split('T').next().unwrap();
        let right = format!("{path}{since}");
        for wrong in [local, day] {
            let wrong = format!("{path}{wrong}");
            caller.takes_but_not(Method::GET, (&right, ""), (&wrong, "")).await;
        }
    }
}

#[tokio::test]
async fn a_sum_takes_days_and_date_times() {
    let caller = Caller::new(quiet()).await;
    for (from, to) in [
        ("2026-01-01", "2026-01-31"),
        ("2026-01-01T00:00:00", "2026-01-31T23:59:59"),
        ("2026-01-01T00:00:00Z", "2026-01-31T00:00:00.5+01:00"),
    ] {
        let right = period(from, to);
        for wrong in ["2026-01-31Tomorrow", "2026-01-31T", "2026-01-31T25:00:00", "2026-1-31"] {
            caller.takes_but_not(Method::PUT, (SUM, &right), (SUM, &period(from, wrong))).await;
        }
    }
}
