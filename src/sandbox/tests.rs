//! Claims about the sandbox as a caller on a real socket sees it.

use std::time::Duration;

use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value as Json, json};

use super::*;

struct Caller {
    sandbox: Sandbox,
    http: Client,
    token: String,
}

impl Caller {
    async fn new(options: Options) -> Caller {
        // Another test of this process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let sandbox = Sandbox::start(options).await.unwrap();
        let http = Client::builder().no_proxy().build().unwrap();
        let mut caller = Caller { sandbox, http, token: String::new() };
        let secret = caller.sandbox.client_secret();
        let form = format!("grant_type=client_credentials&client_secret={secret}");
        let (_, granted) = caller.grant(&form).await;
        caller.token = granted["access_token"].as_str().unwrap().to_owned();
        caller
    }

    async fn grant(&self, form: &str) -> (StatusCode, Json) {
        let answer = self
            .http
            .post(format!("{}/authtoken", self.sandbox.base_url()))
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(format!("{form}&client_id={}", self.sandbox.client_id()))
            .send()
            .await
            .unwrap();
        (answer.status(), body(answer).await)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Json>,
    ) -> reqwest::Result<Response> {
        let url = format!("{}{path}", self.sandbox.base_url());
        let mut call = self.http.request(method, url).bearer_auth(&self.token);
        if let Some(body) = body {
            call = call.header("Content-Type", "application/json").body(body.to_string());
        }
        call.send().await
    }

    async fn ask(&self, method: Method, path: &str) -> (StatusCode, Json) {
        let answer = self.send(method, path, None).await.unwrap();
        (answer.status(), body(answer).await)
    }

    async fn get(&self, path: &str) -> Json {
        let (status, answer) = self.ask(Method::GET, path).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }

    async fn search(&self, which: &str, query: &str) -> Json {
        let path = format!("/api/Search/Advanced{which}Search?{query}");
        let (status, answer) = self.ask(Method::POST, &path).await;
        assert!(status.is_success(), "{path}: {status} {answer}");
        answer
    }

    fn rows(&self, table: &str) -> Vec<Json> {
        self.sandbox.tables(&[table])["tables"][table].as_array().unwrap().clone()
    }

    fn change(&self, case_id: i64, facet: Facet) -> Outcome {
        self.sandbox.act(&Act::Change { case_id: Some(case_id), facet, at: None }).unwrap()
    }

    async fn feed_row(&self, case_id: i64) -> Option<Json> {
        let path =
            format!("/api/Integrations/RecentlyModified/Cases?$filter=CaseId eq {case_id}&$top=1");
        self.get(&path).await.as_array().unwrap().first().cloned()
    }
}

async fn body(answer: Response) -> Json {
    let text = answer.text().await.unwrap();
    if text.is_empty() { Json::Null } else { serde_json::from_str(&text).unwrap() }
}

fn quiet() -> Options {
    Options { cases: 60, feed_calls: 10_000, ..Options::default() }
}

fn ids(list: &Json, field: &str) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|row| row[field].as_i64().unwrap()).collect()
}

/// Whether a canonical cell and a value on the wire say the same.
fn same(cell: &Json, wire: &Json) -> bool {
    match (cell, wire) {
        (Json::String(cell), Json::Number(number)) => {
            // Close enough to see a wrong field; exactness has tests of its own.
            (cell.parse::<f64>().unwrap() - number.as_f64().unwrap()).abs() < 0.001
        }
        (Json::Array(cells), Json::Array(list)) => {
            cells.len() == list.len() && cells.iter().zip(list).all(|(a, b)| same(a, b))
        }
        (Json::String(cell), Json::String(text)) if cell != text => {
            let at = Ticks::parse(text, true).map(Ticks::canonical);
            at.as_ref() == Some(cell)
        }
        (Json::Null, Json::String(text)) => text.starts_with("0001-01-01T00:00:00"),
        (cell, wire) => cell == wire,
    }
}

fn assert_same_row(cells: &Json, wire: &Json, context: &str) {
    use heck::ToSnakeCase;
    let mut compared = 0;
    for (field, value) in wire.as_object().unwrap() {
        if let Some(cell) = cells.get(field.to_snake_case()) {
            assert!(same(cell, value), "{context} {field}: {cell} is not {value}");
            compared += 1;
        }
    }
    assert!(compared > 0, "{context}: nothing to compare");
    for (column, cell) in cells.as_object().unwrap() {
        let on_wire = wire.as_object().unwrap().keys().any(|f| f.to_snake_case() == *column);
        let key = ["case_id", "cost_type", "_extra"].contains(&column.as_str());
        assert!(on_wire || key || cell.is_null(), "{context}: {column} is not on the wire");
    }
}

#[tokio::test]
async fn the_state_equals_what_the_endpoints_answer_for_every_case() {
    let caller = Caller::new(quiet()).await;
    for (table, path) in [
        ("case_roles", "/api/Cases/{id}/Roles?$top=500"),
        ("activities", "/api/Cases/{id}/Activities?$top=500"),
        ("entries", "/api/Integrations/Bookkeeping/Cases/{id}/Entries?$top=500"),
        ("entry_drafts", "/api/Integrations/Bookkeeping/Cases/{id}/EntryDrafts?$top=500"),
        ("common_conditions", "/api/Properties/{id}/CommonConditions"),
        ("case_conditions", "/api/Properties/{id}/Conditions"),
        ("property_conditions", "/api/Conditions/Properties/{id}"),
        ("resale_information", "/api/Properties/{id}/ResaleInformation"),
    ] {
        let truth = caller.rows(table);
        assert!(!truth.is_empty(), "{table} is empty");
        for id in caller.sandbox.case_ids() {
            let answer = caller.get(&path.replace("{id}", &id.to_string())).await;
            let wire = match answer {
                Json::Null => Vec::new(),
                Json::Array(list) => list,
                record => vec![record],
            };
            let cells: Vec<&Json> = truth.iter().filter(|row| row["case_id"] == id).collect();
            assert_eq!(cells.len(), wire.len(), "{table} of {id}");
            for (cells, wire) in cells.into_iter().zip(&wire) {
                assert_same_row(cells, wire, &format!("{table} of {id}"));
            }
        }
    }
}

#[tokio::test]
async fn the_state_equals_what_the_searches_and_lists_answer() {
    let caller = Caller::new(quiet()).await;
    for (table, which) in [("cases", "Property"), ("projects", "Project"), ("contacts", "Contact")]
    {
        let answer = caller.search(which, "$top=1000&$orderby=Id asc&$inlinecount=allpages").await;
        let listed = answer["Results"].as_array().unwrap();
        assert_eq!(answer["Count"], listed.len());
        let mut truth = caller.rows(table);
        truth.sort_by_key(|row| row["id"].as_i64());
        if table == "contacts" {
            // Some are found by their id only.
            let found = ids(&answer["Results"], "Id");
            let (searched, others): (Vec<Json>, Vec<Json>) =
                truth.into_iter().partition(|row| found.contains(&row["id"].as_i64().unwrap()));
            assert!(!others.is_empty());
            for row in others {
                let one = caller.get(&format!("/api/Contacts/{}", row["id"])).await;
                assert_same_row(&row, &one, "contact by id");
            }
            truth = searched;
        }
        assert_eq!(truth.len(), listed.len(), "{table}");
        for (cells, wire) in truth.iter().zip(listed) {
            assert_same_row(cells, wire, table);
        }
    }
    for (table, path) in [("offices", "/api/Offices"), ("employees", "/api/Employees")] {
        let listed = caller.get(path).await;
        for (cells, wire) in caller.rows(table).iter().zip(listed.as_array().unwrap()) {
            assert_same_row(cells, wire, table);
        }
        assert_eq!(caller.rows(table).len(), listed.as_array().unwrap().len());
    }
}

#[tokio::test]
async fn the_world_is_large_enough_and_the_same_for_a_seed() {
    let options = || Options { origin: Some("2026-11-20T12:00:00Z".to_owned()), ..quiet() };
    let caller = Caller::new(options()).await;
    assert!(caller.rows("offices").len() >= 5 && caller.rows("employees").len() >= 30);
    let again = Caller::new(options()).await;
    assert_eq!(caller.sandbox.state(), again.sandbox.state());
    let other = Caller::new(Options { seed: 2, ..options() }).await;
    assert_ne!(caller.sandbox.state(), other.sandbox.state());
}

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
async fn all_contacts_are_named_by_roles_or_within_reach_of_the_feed() {
    let caller = Caller::new(quiet()).await;
    let now = caller.sandbox.shared.server_time();
    let from = now.plus_days(-364).exact();
    let feed =
        caller.get(&format!("/api/Integrations/RecentlyModified/Contacts?fromDate={from}")).await;
    let mut known = ids(&feed, "ContactId");
    known.extend(caller.rows("case_roles").iter().map(|row| row["contact_id"].as_i64().unwrap()));
    for row in caller.rows("contacts") {
        assert!(known.contains(&row["id"].as_i64().unwrap()), "{}", row["id"]);
    }
}

#[tokio::test]
async fn every_facet_moves_exactly_its_dates() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    for (facet, expected) in [
        (Facet::Activity, vec!["ActivityChangedDate"]),
        (Facet::Description, vec!["DescriptionChangedDate"]),
        (Facet::RoleAdded, vec!["CaseEntityChangedDate"]),
        (Facet::ContactAdded, vec!["CaseEntityChangedDate"]),
        (Facet::RoleRemoved, vec![]),
        (Facet::Transaction, vec!["TransactionChangedDate"]),
        (Facet::Draft, vec!["TransactionChangedDate"]),
        (Facet::Cost, vec![]),
        (Facet::Bid, vec!["BidChangedDate"]),
        (Facet::Image, vec!["ImageChangedDate"]),
        (Facet::Attachment, vec!["AttachmentChangedDate"]),
        (Facet::Publication, vec!["PublicationChangedDate"]),
        (Facet::Activated, vec!["CaseActivatedDate"]),
        (Facet::Sold, vec!["CaseEntityChangedDate", "CaseSoldDate"]),
        (Facet::Nothing, vec![]),
    ] {
        let before = caller.feed_row(id).await.unwrap();
        let outcome = caller.change(id, facet);
        let after = caller.feed_row(id).await.unwrap();
        let mut moved: Vec<&str> = before
            .as_object()
            .unwrap()
            .iter()
            .filter(|(field, value)| after[field.as_str()] != **value)
            .map(|(field, _)| field.as_str())
            .collect();
        moved.retain(|field| *field != "ModifiedDate");
        moved.sort_unstable();
        assert_eq!(moved, expected, "{facet:?}");
        assert!(after["ModifiedDate"] != before["ModifiedDate"]);
        assert_eq!(outcome.moved.len(), expected.len() + 1);
    }
}

#[tokio::test]
async fn the_search_lags_behind_and_the_feed_does_not() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    caller.sandbox.control(Control::FreezeSearch {});
    let query = format!("$filter=Id eq {id}");
    let which =
        if caller.search("Property", &query).await[0].is_null() { "Project" } else { "Property" };
    let before = caller.search(which, &query).await;
    caller.change(id, Facet::Activity);
    caller.change(id, Facet::Bid);
    assert_eq!(caller.search(which, &query).await, before);
    caller.sandbox.control(Control::SearchLag { ms: 0 });
    let after = caller.search(which, &query).await;
    assert_ne!(after[0]["BidChangedDate"], before[0]["BidChangedDate"]);
}

#[tokio::test]
async fn a_deleted_case_is_nowhere_once_the_index_knows() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    caller.sandbox.control(Control::FreezeSearch {});
    let all = caller.search("Property", "$top=1000&$select=Id").await;
    caller.sandbox.act(&Act::DeleteCase { case_id: id }).unwrap();
    assert_eq!(caller.search("Property", "$top=1000&$select=Id").await, all);
    assert!(caller.feed_row(id).await.is_none());
    let (status, _) = caller.ask(Method::GET, &format!("/api/Cases/{id}/Roles")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    caller.sandbox.control(Control::SearchLag { ms: 0 });
    let left = caller.search("Property", "$top=1000&$select=Id").await;
    assert!(!ids(&left, "Id").contains(&id));
}

#[tokio::test]
async fn a_hidden_case_leaves_the_search_alone() {
    let caller = Caller::new(quiet()).await;
    let id = ids(&caller.search("Property", "$top=1").await, "Id")[0];
    caller.sandbox.act(&Act::HideCase { case_id: id, silent: false }).unwrap();
    assert_eq!(caller.search("Property", &format!("$filter=Id eq {id}")).await, json!([]));
    assert!(caller.feed_row(id).await.is_some());
    caller.get(&format!("/api/Cases/{id}/Roles")).await;
    assert!(!caller.rows("cases").iter().any(|row| row["id"] == id));
    assert!(caller.rows("case_roles").iter().any(|row| row["case_id"] == id));
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

#[tokio::test]
async fn tokens_are_needed_renewed_and_refused() {
    let caller = Caller::new(quiet()).await;
    let (status, granted) = caller
        .grant(&format!(
            "grant_type=client_credentials&client_secret={}",
            caller.sandbox.client_secret()
        ))
        .await;
    assert_eq!((status, &granted["expires_in"]), (StatusCode::OK, &json!(1200)));
    let refresh = format!(
        "grant_type=refresh_token&refresh_token={}",
        granted["refresh_token"].as_str().unwrap()
    );
    let (status, renewed) = caller.grant(&refresh).await;
    assert_eq!(status, StatusCode::OK);
    assert!(renewed.get("refresh_token").is_none());
    caller.sandbox.control(Control::RefuseRefresh { on: true });
    assert_eq!(
        caller.grant(&refresh).await,
        (StatusCode::BAD_REQUEST, json!({"error": "invalid_grant"}))
    );
    let (status, _) = caller.grant("grant_type=client_credentials&client_secret=wrong").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    caller.sandbox.control(Control::ExpireTokens {});
    let (status, _) = caller.ask(Method::GET, "/api/User").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_withdrawn_permission_is_refused_by_name_and_no_longer_listed() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[0];
    let permission = "Activities - Read".to_owned();
    let listed = json!({"Permission": "Activities", "PermissionTypes": ["Read"]});
    assert!(caller.get("/api/User/ApiPermissions").await.as_array().unwrap().contains(&listed));
    caller.sandbox.control(Control::Withdraw { permission: permission.clone() });
    let (status, body) = caller.ask(Method::GET, &format!("/api/Cases/{id}/Activities")).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
    assert_eq!(body["MissingPermissions"], json!(["Activities - Read"]));
    assert!(!caller.get("/api/User/ApiPermissions").await.as_array().unwrap().contains(&listed));
    caller.sandbox.control(Control::Grant { permission });
    caller.get(&format!("/api/Cases/{id}/Activities")).await;
}

#[tokio::test]
async fn unknown_paths_methods_cases_and_options_have_their_own_answers() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[0];
    for (method, path, expected) in [
        (Method::GET, "/api/Nothing".to_owned(), 404),
        (Method::DELETE, "/api/Offices".to_owned(), 405),
        (Method::GET, "/api/Cases/7/Roles".to_owned(), 404),
        (Method::GET, "/api/Cases/seven/Roles".to_owned(), 404),
        (Method::GET, format!("/api/Cases/{id}/Roles?$top=501"), 400),
        (Method::GET, format!("/api/Cases/{id}/Roles?$expand=x"), 400),
        (Method::GET, format!("/api/Cases/{id}/Roles?$select=Nope"), 400),
        (Method::GET, format!("/api/Cases/{id}/Roles?$filter=Type gt 'a'"), 400),
        (Method::POST, "/api/Search/AdvancedPropertySearch?$select=Nope".to_owned(), 400),
        (Method::POST, "/api/Search/AdvancedPropertySearch?$top=1001".to_owned(), 400),
        (Method::GET, "/api/Search/AdvancedPropertySearch".to_owned(), 405),
        (Method::GET, format!("/api/Conditions/Cases/{id}/Costs/Neither"), 400),
        (Method::GET, "/api/Contacts/1".to_owned(), 404),
    ] {
        let answer = caller.send(method, &path, None).await.unwrap();
        assert_eq!(answer.status().as_u16(), expected, "{path}");
        assert!(answer.headers().contains_key("Date"));
        assert!(body(answer).await["Message"].is_string());
    }
}

#[tokio::test]
async fn searches_name_their_columns_and_select_from_them() {
    let caller = Caller::new(quiet()).await;
    for (which, columns) in [("Property", 205), ("Project", 156), ("Contact", 40)] {
        let list = caller.search(which, "$select=").await;
        assert_eq!(list.as_array().unwrap().len(), columns, "{which}");
    }
    let rows = caller.search("Property", "$select=Id, Office&$top=2&$count=true").await;
    assert_eq!(rows["Results"][0].as_object().unwrap().len(), 2);
    assert!(rows["Count"].as_i64().unwrap() > 2);
}

#[tokio::test]
async fn signed_cases_can_be_counted_as_the_reference_says() {
    let caller = Caller::new(quiet()).await;
    let (from, to) = ("2020-01-01T00:00:00Z", "2040-01-01T00:00:00Z");
    let query = format!(
        "$filter=CaseActivatedDate ge datetime'{from}' and CaseActivatedDate le datetime'{to}' and \
         AssignmentType ne 'Valuation'&$orderby=CreatedDate desc&$inlinecount=allpages&$top=1"
    );
    let expected = caller.rows("cases").into_iter().filter(|row| {
        !row["case_activated_date"].is_null() && row["assignment_type"] != "Valuation"
    });
    assert_eq!(caller.search("Property", &query).await["Count"], expected.count());
}

#[tokio::test]
async fn long_lists_are_paged_and_the_default_is_a_hundred() {
    let caller = Caller::new(quiet()).await;
    let case_ids = caller.sandbox.case_ids();
    let activities = format!("/api/Cases/{}/Activities", case_ids[4]);
    assert_eq!(caller.get(&activities).await.as_array().unwrap().len(), 100);
    let counted = caller.get(&format!("{activities}?$inlinecount=allpages&$top=5")).await;
    assert_eq!(counted["Count"], 250);
    let entries = format!("/api/Integrations/Bookkeeping/Cases/{}/Entries", case_ids[6]);
    assert_eq!(caller.get(&entries).await.as_array().unwrap().len(), 100);
    assert_eq!(caller.get(&format!("{entries}?$skip=100")).await.as_array().unwrap().len(), 30);
}

#[tokio::test]
async fn documented_writes_change_the_state_and_the_right_dates() {
    let caller = Caller::new(quiet()).await;
    let truth = caller.rows("costs");
    let cost = truth.iter().find(|row| row["cost_type"] == "Buyer").unwrap();
    let (id, cost_id) = (cost["case_id"].as_i64().unwrap(), &cost["id"]);
    let drafts = format!("/api/Integrations/Bookkeeping/Cases/{id}/EntryDrafts");
    let before = caller.feed_row(id).await.unwrap();
    let order = json!({"EntryDefinitionId": 202, "Amount": 1234.5, "Description": "\"Ny\""});
    let made = caller.send(Method::POST, &drafts, Some(order)).await.unwrap();
    assert_eq!(made.status(), StatusCode::OK);
    let made = body(made).await;
    assert_eq!(made["Source"], "IntegrationsBookkeepingApi");
    let row = caller.rows("entry_drafts").into_iter().find(|row| row["id"] == made["Id"]).unwrap();
    assert_eq!(row["amount"], "1234.50");
    let after = caller.feed_row(id).await.unwrap();
    assert_ne!(before["TransactionChangedDate"], after["TransactionChangedDate"]);

    let path = format!("/api/Conditions/Properties/{id}/Costs/{cost_id}/Buyer");
    let changed =
        caller.send(Method::PATCH, &path, Some(json!({"Amount": 7.07, "Selected": true}))).await;
    assert_eq!(body(changed.unwrap()).await["Amount"], json!(7.07));
    let last = caller.feed_row(id).await.unwrap();
    assert_eq!(last["TransactionChangedDate"], after["TransactionChangedDate"]);
    assert_ne!(last["ModifiedDate"], after["ModifiedDate"]);

    let entries = format!("/api/Integrations/Bookkeeping/Cases/{id}/Entries");
    for (path, order) in [
        (&drafts, json!({"EntryDefinitionId": 201, "Amount": 1})),
        (&drafts, json!({"EntryDefinitionId": 202, "Amount": 1.005})),
        (&drafts, json!({"EntryDefinitionId": 9, "Amount": 1})),
        (&entries, json!({"EntryDefinitionId": 202, "Amount": 1, "EntryDate": "2026-01-01"})),
        (&entries, json!({"EntryDefinitionId": 201, "Amount": 1})),
        (&entries, json!({"EntryDefinitionId": 201, "Amount": 1, "Colour": "red"})),
    ] {
        let refused = caller.send(Method::POST, path, Some(order.clone())).await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{order}");
    }
    assert_eq!(caller.sandbox.stats().writes, 8);
}

fn fault(path: &str, fault: Fault) -> Rule {
    Rule { method: None, path: path.to_owned(), query: None, nth: 1, count: Some(1), fault }
}

#[tokio::test]
async fn faults_befall_the_calls_they_name() {
    let caller = Caller::new(quiet()).await;
    let headers = [("Retry-After".to_owned(), "7".to_owned())].into();
    caller
        .sandbox
        .fault(fault("/api/Offices", Fault::Refuse { status: 503, headers, body: String::new() }));
    let refused = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
    assert_eq!(
        (refused.status().as_u16(), &refused.headers()["Retry-After"]),
        (503, &"7".parse().unwrap())
    );
    caller.get("/api/Offices").await;

    caller.sandbox.fault(fault("/api/*", Fault::CutOff { bytes: Some(20) }));
    let cut = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
    assert!(cut.text().await.is_err());

    let garbage = Fault::Garbage { body: "<html>".to_owned(), status: None, content_type: None };
    caller.sandbox.fault(fault("/api/Offices", garbage));
    let answer = caller.send(Method::GET, "/api/Offices", None).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "<html>");

    let id = caller.sandbox.case_ids()[0];
    let drafts = format!("/api/Integrations/Bookkeeping/Cases/{id}/EntryDrafts");
    let count = caller.rows("entry_drafts").len();
    caller.sandbox.fault(fault(&drafts, Fault::LoseAnswer));
    let order = json!({"EntryDefinitionId": 202, "Amount": 5});
    assert!(caller.send(Method::POST, &drafts, Some(order)).await.is_err());
    assert_eq!(caller.rows("entry_drafts").len(), count + 1);

    caller.sandbox.fault(fault("/api/Employees", Fault::MaxTop { top: 3 }));
    let (status, _) = caller.ask(Method::GET, "/api/Employees?$top=4").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    caller.sandbox.fault(fault("/api/Employees", Fault::IgnorePaging));
    assert!(caller.get("/api/Employees?$top=1").await.as_array().unwrap().len() > 30);
}

#[tokio::test]
async fn an_answer_held_after_it_was_computed_is_old_when_it_comes() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[20];
    let path = format!("/api/Cases/{id}/Activities?$top=500");
    let count = caller.get(&path).await.as_array().unwrap().len();
    for (when, expected) in [(When::After, count), (When::Before, count + 2)] {
        let hold = Fault::Hold { name: "slow".to_owned(), when };
        caller.sandbox.fault(fault("/api/Cases/*/Activities", hold));
        let change = async {
            assert!(caller.sandbox.wait_until_held("slow").await);
            caller.change(id, Facet::Activity);
            caller.sandbox.release("slow");
        };
        let (answer, ()) = tokio::join!(caller.get(&path), change);
        assert_eq!(answer.as_array().unwrap().len(), expected, "{when:?}");
    }
}

#[tokio::test]
async fn the_control_endpoints_say_the_same_as_the_functions() {
    let caller = Caller::new(Options { base_path: "/flow".to_owned(), ..quiet() }).await;
    caller.get("/api/User").await;
    let control = caller.sandbox.control_url();
    let get = async |path: &str| {
        body(caller.http.get(format!("{control}{path}")).send().await.unwrap()).await
    };
    let post = async |path: &str, order: Json| {
        let call = caller.http.post(format!("{control}{path}")).body(order.to_string());
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), body(answer).await)
    };
    assert_eq!(get("/sandbox/state").await, caller.sandbox.state());
    assert_eq!(get("/sandbox/credentials").await["base_url"], caller.sandbox.base_url());
    let (_, outcome) = post("/sandbox/act", json!({"act": "change", "facet": "activity"})).await;
    assert!(outcome["moved"]["ActivityChangedDate"].is_string());
    let (status, refused) = post("/sandbox/act", json!({"act": "delete_case", "case_id": 1})).await;
    assert_eq!((status, refused["Message"].is_string()), (400, true));
    let (status, _) = post("/sandbox/act", json!({"act": "tick", "events": 40})).await;
    assert_eq!(status, 200);
    let rule = json!({"path": "/api/User", "fault": {"kind": "refuse", "status": 500}});
    let (_, made) = post("/sandbox/faults", rule).await;
    let (status, _) = caller.ask(Method::GET, "/api/User").await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(get("/sandbox/faults").await, json!([{"id": made["id"], "hits": 1}]));
    let (status, _) = post("/sandbox/control", json!({"control": "throttle", "calls": 2})).await;
    assert_eq!(status, 200);
    let stats = get("/sandbox/stats").await;
    assert_eq!(serde_json::from_value::<Report>(stats).unwrap(), caller.sandbox.stats());
    assert_eq!(caller.sandbox.stats().of("GET", "/api/User"), 2);
    post("/sandbox/stats/reset", json!({})).await;
    assert_eq!(caller.sandbox.stats().calls, 0);
}

#[tokio::test]
async fn events_of_the_worlds_own_accord_keep_the_feed_in_order() {
    let caller = Caller::new(quiet()).await;
    caller.sandbox.act(&Act::Tick { events: 300 }).unwrap();
    let feed = caller
        .get("/api/Integrations/RecentlyModified/Cases?$top=1000&$orderby=ModifiedDate")
        .await;
    let dates: Vec<Ticks> = feed
        .as_array()
        .unwrap()
        .iter()
        .map(|row| Ticks::parse(row["ModifiedDate"].as_str().unwrap(), false).unwrap())
        .collect();
    assert!(dates.is_sorted() && dates.len() > 60);
}

#[tokio::test]
async fn a_stopped_sandbox_answers_no_more() {
    let caller = Caller::new(quiet()).await;
    let url = format!("{}/api/User", caller.sandbox.base_url());
    caller.sandbox.stop().await;
    assert!(caller.http.get(url).timeout(Duration::from_secs(5)).send().await.is_err());
}
