//! The state, compared with what the endpoints answer.

use super::*;

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
        ("external_entries", "/api/Cases/{id}/ExternalEntries"),
        ("bank_transfers", "/api/Integrations/Invoicing/Cases/{id}/BankTransfers"),
        ("publications", "/api/Cases/{id}/Publications?returnOnlyExisting=true"),
        ("notes", "/api/Notes/Case/{id}"),
        ("settlement_statuses", "/api/Properties/{id}/SettlementStatuses"),
        ("property_information", "/api/Properties/{id}/Information"),
        ("housing_associations", "/api/Properties/{id}/HousingAssociation"),
        ("dynamic_sale_text_use", "/api/DynamicSaleText/Cases/{id}/UseDynamicSaleText"),
        ("dynamic_sale_texts", "/api/DynamicSaleText/Cases/{id}/DynamicSaleTextItems"),
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
    assert!(caller.sandbox.stats().never_to_do.is_empty());
    assert_eq!(caller.sandbox.stats().writes, 0);
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
    for (table, path) in [
        ("offices", "/api/Offices"),
        ("employees", "/api/Employees"),
        ("file_tags", "/api/FileTags"),
        ("api_permissions", "/api/User/ApiPermissions"),
    ] {
        let listed = caller.get(path).await;
        for (cells, wire) in caller.rows(table).iter().zip(listed.as_array().unwrap()) {
            assert_same_row(cells, wire, table);
        }
        assert_eq!(caller.rows(table).len(), listed.as_array().unwrap().len());
    }
}
