//! Folders and files as metadata.

use super::*;

impl Caller {
    async fn directory(&self, id: i64) -> Vec<Json> {
        let path = format!("/api/Cases/{id}/Directory/Search");
        let (status, answer) = self.ask(Method::POST, &path).await;
        assert!(status.is_success());
        answer.as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn the_state_equals_the_directory_and_its_shares() {
    let caller = Caller::new(quiet()).await;
    let files = caller.rows("case_files");
    let access = caller.rows("case_file_access");
    let (mut records, mut bare) = (0, 0);
    for id in caller.sandbox.case_ids() {
        let wire = caller.directory(id).await;
        let cells: Vec<&Json> = files.iter().filter(|row| row["case_id"] == id).collect();
        assert_eq!(cells.len(), wire.len());
        for (cells, wire) in cells.into_iter().zip(&wire) {
            assert_same_row(cells, wire, &format!("file of {id}"));
            let shares = wire["FileAccessRoles"].as_array().cloned().unwrap_or_default();
            let rows: Vec<&Json> =
                access.iter().filter(|row| row["file_id"] == wire["Id"]).collect();
            assert_eq!(rows.len(), shares.len());
            for (n, (row, share)) in (1_i64..).zip(rows.into_iter().zip(&shares)) {
                assert_eq!(row["position"], n);
                if share.is_string() {
                    assert_eq!((&row["case_role"], &row["id"]), (share, &Json::Null));
                    bare += 1;
                } else {
                    let mut row = row.clone();
                    row.as_object_mut().unwrap().remove("position");
                    assert_same_row(&row, share, "share");
                    records += 1;
                }
            }
        }
    }
    assert!(records > 10 && bare > 10);
    assert_eq!(caller.sandbox.stats().writes, 0);
}

#[tokio::test]
async fn a_folder_is_created_once_filled_and_emptied() {
    let caller = Caller::new(quiet()).await;
    let id = caller.sandbox.case_ids()[10];
    let path = format!("/api/Cases/{id}/Directory/CreateFolder");
    let create = async || {
        let order = json!({"Name": "Oppgjør & \"bilag\""});
        body(caller.send(Method::POST, &path, Some(order)).await.unwrap()).await
    };
    let folder = create().await;
    let before = caller.feed_row(id).await.unwrap();
    assert_eq!(create().await, folder);
    assert_eq!(caller.feed_row(id).await.unwrap(), before, "nothing has changed");

    let upload = async |folder: &Json| {
        let path = format!(
            "/api/Cases/{id}/Directory/{}/File?externalId=min-1",
            folder["Id"].as_str().unwrap()
        );
        let form = "--xx\r\nContent-Disposition: form-data; name=\"request\"\r\n\r\n\
                    {\"TagIds\":[21]}\r\n--xx\r\n\
                    Content-Disposition: form-data; name=\"file\"; filename=\"å.pdf\"\r\n\
                    Content-Type: application/pdf\r\n\r\n12345\r\n--xx--\r\n";
        let call = caller
            .http
            .post(format!("{}{path}", caller.sandbox.base_url()))
            .bearer_auth(&caller.token)
            .header("Content-Type", "multipart/form-data; boundary=xx")
            .body(form);
        body(call.send().await.unwrap()).await
    };
    let file = upload(&folder).await;
    let rows = caller.rows("case_files");
    let row = rows.iter().find(|row| row["id"] == file["Id"]).unwrap();
    assert_eq!(
        (&row["name"], &row["size"], &row["mime_type"], &row["external_id"], &row["parent_id"]),
        (&json!("å.pdf"), &json!(5), &json!("application/pdf"), &file["ExternalId"], &folder["Id"])
    );
    assert_eq!(row["file_tags"].as_array().unwrap().len(), 1);
    let after = caller.feed_row(id).await.unwrap();
    assert_ne!(after["ModifiedDate"], before["ModifiedDate"]);
    assert_eq!(after["AttachmentChangedDate"], before["AttachmentChangedDate"]);

    let directory = caller.directory(id).await;
    let attachments = directory.iter().find(|item| item["Name"] == "Attachments").unwrap();
    let attached = upload(attachments).await;
    let moved = caller.feed_row(id).await.unwrap();
    assert_ne!(moved["AttachmentChangedDate"], before["AttachmentChangedDate"]);

    let count = caller.rows("case_files").len();
    let path = format!("/api/Cases/{id}/File/{}", attached["Id"].as_str().unwrap());
    assert_eq!(caller.ask(Method::DELETE, &path).await.0, StatusCode::NO_CONTENT);
    assert_eq!(caller.rows("case_files").len(), count - 1);
    assert_eq!(caller.ask(Method::DELETE, &path).await.0, StatusCode::NOT_FOUND);
    let path = format!("/api/Cases/{id}/Directory/{}/File", uuid::Uuid::nil());
    let answer = caller.send(Method::POST, &path, Some(json!({}))).await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "no form data");
}

#[tokio::test]
async fn tags_come_change_and_go() {
    let caller = Caller::new(quiet()).await;
    let before = caller.rows("file_tags");
    for (edit, count) in [
        (ListEdit::Added, before.len() + 1),
        (ListEdit::Removed, before.len()),
        (ListEdit::Changed, before.len()),
    ] {
        caller.sandbox.act(&Act::FileTag { edit }).unwrap();
        assert_eq!(caller.rows("file_tags").len(), count, "{edit:?}");
    }
    assert_ne!(caller.rows("file_tags")[0], before[0]);
}
