//! Tokens, permissions, and addresses that are none.

use super::*;

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
async fn a_stopped_sandbox_answers_no_more() {
    let caller = Caller::new(quiet()).await;
    let url = format!("{}/api/User", caller.sandbox.base_url());
    caller.sandbox.stop().await;
    assert!(caller.http.get(url).timeout(Duration::from_secs(5)).send().await.is_err());
}
