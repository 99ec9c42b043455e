//! Affiliations, accounts, and a service that lists no offices.

use std::collections::BTreeMap;

use super::*;

#[tokio::test]
async fn the_state_equals_affiliations_and_accounts() {
    let caller = Caller::new(quiet()).await;
    let affiliations = caller.rows("employee_offices");
    for employee in caller.rows("employees") {
        let path = format!("/api/Employees/{}/Offices", employee["id"]);
        let wire = caller.get(&path).await;
        let cells: Vec<&Json> =
            affiliations.iter().filter(|row| row["employee_id"] == employee["id"]).collect();
        assert_eq!(cells.len(), wire.as_array().unwrap().len(), "{path}");
        let mut times: BTreeMap<String, i64> = BTreeMap::new();
        for (cells, wire) in cells.into_iter().zip(wire.as_array().unwrap()) {
            let mut cells = cells.clone();
            let own = cells.as_object_mut().unwrap();
            // Each office of an employee is counted for itself.
            let n = times.entry(own["office_id"].to_string()).or_default();
            *n += 1;
            assert_eq!(own.remove("affiliation"), Some(json!(*n)));
            assert_eq!(own.remove("employee_id").as_ref(), Some(&employee["id"]));
            assert_same_row(&cells, wire, &path);
        }
    }
    let accounts = caller.rows("accounts");
    for office in caller.rows("offices") {
        let path = format!("/api/Offices/{}/Accounts", office["id"]);
        let wire = caller.get(&path).await;
        let cells: Vec<&Json> =
            accounts.iter().filter(|row| row["office_id"] == office["id"]).collect();
        assert_eq!(cells.len(), wire.as_array().unwrap().len(), "{path}");
        for (cells, wire) in cells.into_iter().zip(wire.as_array().unwrap()) {
            let mut cells = cells.clone();
            cells.as_object_mut().unwrap().remove("office_id");
            assert_same_row(&cells, wire, &path);
        }
    }
    for path in ["/api/Employees/7/Offices", "/api/Offices/7/Accounts"] {
        assert_eq!(caller.ask(Method::GET, path).await.0, StatusCode::NOT_FOUND);
    }
}

#[tokio::test]
async fn some_have_left_and_some_came_back_to_the_same_office() {
    let caller = Caller::new(quiet()).await;
    let rows = caller.rows("employee_offices");
    assert!(rows.iter().any(|row| row["active"] == false));
    let key = |row: &Json| (row["employee_id"].to_string(), row["office_id"].to_string());
    let keys: std::collections::BTreeSet<_> = rows.iter().map(key).collect();
    assert!(keys.len() < rows.len(), "two affiliations with the same office");
}

#[tokio::test]
async fn an_employee_who_moves_leaves_an_affiliation_behind() {
    let caller = Caller::new(quiet()).await;
    let of_employee = || {
        let mut rows = caller.rows("employee_offices");
        rows.retain(|row| row["employee_id"] == 101);
        rows
    };
    let count = of_employee().len();
    caller.sandbox.act(&Act::MoveEmployee { employee_id: 101, office_id: 15 }).unwrap();
    let rows = of_employee();
    assert_eq!(rows.len(), count + 1);
    let active: Vec<&Json> = rows.iter().filter(|row| row["active"] == true).collect();
    assert_eq!((active.len(), &active[0]["office_id"]), (1, &json!(15)));
    assert!(caller.sandbox.act(&Act::MoveEmployee { employee_id: 1, office_id: 15 }).is_err());
    assert!(caller.sandbox.act(&Act::MoveEmployee { employee_id: 101, office_id: 1 }).is_err());
}

#[tokio::test]
async fn accounts_come_change_and_go() {
    let caller = Caller::new(quiet()).await;
    let before = caller.rows("accounts");
    let account = |edit| caller.sandbox.act(&Act::Account { office_id: 12, edit });
    account(ListEdit::Added).unwrap();
    assert_eq!(caller.rows("accounts").len(), before.len() + 1);
    account(ListEdit::Removed).unwrap();
    assert_eq!(caller.rows("accounts"), before);
    account(ListEdit::Changed).unwrap();
    let after = caller.rows("accounts");
    let changed = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert_eq!(changed.count(), 1);
}

#[tokio::test]
async fn a_service_can_list_no_offices() {
    let caller = Caller::new(Options { lists_offices: false, ..quiet() }).await;
    assert_eq!(caller.ask(Method::GET, "/api/Offices").await.0, StatusCode::NOT_FOUND);
    let named: std::collections::BTreeSet<i64> = caller
        .rows("employee_offices")
        .iter()
        .map(|row| row["office_id"].as_i64().unwrap())
        .collect();
    let rows = caller.rows("offices");
    let listed: Vec<i64> = rows.iter().map(|row| row["id"].as_i64().unwrap()).collect();
    assert_eq!(listed, named.into_iter().collect::<Vec<_>>());
    assert!(rows[0]["name"].is_string() && rows[0]["telephone"].is_null());
}
