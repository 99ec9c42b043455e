//! Folders and files as metadata (reference 4.11).

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use bytes::Bytes;
use serde::Deserialize;

use super::super::Shared;
use super::super::faults::Twist;
use super::super::odata::Query;
use super::super::record::Record;
use super::super::records::{dossier as records, registers};
use super::super::wire::Ticks;
use super::super::world::case::{Case, Moved};
use super::super::world::dossier::{ATTACHMENTS, Dossier, File, FileKind, Upload};
use super::answer::{self, Answer, Refusal};
use super::read;
use super::strict::NoBody;

type Shares = State<Arc<Shared>>;

/// `GET /api/FileTags`.
pub(crate) async fn tags(
    State(shared): Shares,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    let rows = shared.world().registers.tags.iter().map(registers::tag).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

/// `POST /api/Cases/{id}/Directory/Search`, without a body.
pub(crate) async fn search(
    State(shared): Shares,
    Path(id): Path<String>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
    _: NoBody,
) -> Answer {
    let (_, dossier) = shared.find_dossier(&id)?;
    let rows: Vec<Record> = dossier.files.iter().map(records::file).collect();
    shared.list(rows, Twist { ignore_paging: true, ..twist }, raw)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct NewFolder {
    name: String,
}

/// `POST /api/Cases/{caseId}/Directory/CreateFolder`: the existing one where there is one.
pub(crate) async fn create_folder(
    State(shared): Shares,
    Path(id): Path<String>,
    body: Bytes,
) -> Answer {
    let NewFolder { name } = read(&body)?;
    shared.change_files(&id, |dossier, case, at| Some(dossier.create_folder(case, name, at)))
}

/// `POST /api/Cases/{caseId}/Directory/{folderId}/File?externalId=`: form data with the parts
/// `request` (`{"TagIds": [...]}`) and `file`.
pub(crate) async fn upload(
    State(shared): Shares,
    Path((id, folder)): Path<(String, String)>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let query = Query::parse(raw.as_deref(), &["externalId"])?;
    let external_id = query.other("externalId").map(str::to_owned);
    if external_id.as_ref().is_some_and(|id| id.chars().count() > 36) {
        return Err(Refusal::bad_request("externalId has at most 36 characters"));
    }
    let mut upload = Form::parse(&headers, &body)?.upload(&shared)?;
    upload.external_id = external_id;
    let folder = guid(&folder)?;
    shared.change_files(&id, |dossier, case, at| dossier.upload(case, folder, upload, at))
}

/// `DELETE /api/Cases/{caseId}/File/{fileId}`.
pub(crate) async fn delete(
    State(shared): Shares,
    Path((id, file)): Path<(String, String)>,
) -> Answer {
    let file = guid(&file)?;
    shared.change_files(&id, |dossier, _, _| {
        let is = |known: &File| known.id == file && known.kind != FileKind::Folder;
        let gone = dossier.files.iter().find(|known| is(known)).cloned();
        dossier.remove_file(is);
        gone
    })?;
    Ok(answer::none())
}

fn guid(text: &str) -> Result<u128, Refusal> {
    let parsed = uuid::Uuid::parse_str(text);
    parsed
        .map(|guid| guid.as_u128())
        .map_err(|_| Refusal::new(StatusCode::NOT_FOUND, format!("{text} does not exist")))
}

impl Shared {
    /// Changes the files of a case; 404 where the item concerned is not there. The date of the
    /// attachments or of the images moves where it is one of theirs.
    fn change_files(
        &self,
        id: &str,
        edit: impl FnOnce(&mut Dossier, &Case, Ticks) -> Option<File>,
    ) -> Answer {
        let id = self.find(id)?.id();
        let mut world = self.world();
        let case = world.case(id).ok_or_else(|| Refusal::not_found("Case", id))?;
        let basis = world.basis.clone();
        let mut dossier = Dossier::clone(&case.dossier(&basis));
        let count = dossier.files.len();
        let at = world.stamp();
        let concerned = edit(&mut dossier, &case, at)
            .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, "There is no such item"))?;
        if dossier.files.len() == count {
            // A folder that is there already: nothing has changed.
            return Ok(answer::record(&records::file(&concerned)));
        }
        world.change(id, at, |case, _| {
            if concerned.folder == Some(ATTACHMENTS) {
                case.facts.dates.set(Moved::Attachment, Some(at));
            }
            if concerned.kind == FileKind::Media {
                case.facts.dates.set(Moved::Image, Some(at));
            }
            case.dossier = Some(Arc::new(dossier));
        });
        Ok(answer::record(&records::file(&concerned)))
    }
}

/// The parts of form data: name, file name, type, and what they hold.
#[derive(Debug)]
struct Form<'a> {
    parts: Vec<Part<'a>>,
}

#[derive(Debug)]
struct Part<'a> {
    name: String,
    file_name: Option<String>,
    mime: Option<String>,
    body: &'a [u8],
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct UploadRequest {
    #[serde(default)]
    tag_ids: Vec<i64>,
}

impl<'a> Form<'a> {
    fn parse(headers: &HeaderMap, body: &'a [u8]) -> Result<Form<'a>, Refusal> {
        let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let boundary = kind
            .filter(|kind| kind.starts_with("multipart/form-data"))
            .and_then(|kind| kind.split("boundary=").nth(1))
            .map(|rest| rest.split(';').next().unwrap_or_default().trim().trim_matches('"'))
            .filter(|boundary| !boundary.is_empty())
            .ok_or_else(|| Refusal::bad_request("The body has to be multipart/form-data"))?;
        let delimiter = format!("--{boundary}");
        let mut parts = Vec::new();
        let mut rest = body;
        while let Some(at) = find(rest, delimiter.as_bytes()) {
            if let Some(part) = Part::parse(&rest[..at]) {
                parts.push(part);
            }
            rest = &rest[at + delimiter.len()..];
        }
        Ok(Form { parts })
    }

    /// What was uploaded, with the names of its tags.
    fn upload(&self, shared: &Shared) -> Result<Upload, Refusal> {
        let part = |name: &str| self.parts.iter().find(|part| part.name == name);
        let file = part("file").ok_or_else(|| Refusal::bad_request("There is no part 'file'"))?;
        let asked: UploadRequest = match part("request") {
            Some(request) => read(request.body)?,
            None => UploadRequest { tag_ids: Vec::new() },
        };
        let world = shared.world();
        let mut tags = Vec::new();
        for id in asked.tag_ids {
            let tag = world.registers.tags.iter().find(|tag| tag.id == id);
            let tag = tag.ok_or_else(|| Refusal::bad_request(format!("There is no tag {id}")))?;
            tags.extend(tag.name.clone());
        }
        Ok(Upload {
            name: file.file_name.clone().unwrap_or_else(|| "file".to_owned()),
            mime: file.mime.clone(),
            size: i64::try_from(file.body.len()).unwrap_or(i64::MAX),
            external_id: None,
            tags,
        })
    }
}

impl<'a> Part<'a> {
    /// A part between two delimiters: headers, an empty line, what it holds, and a line break.
    fn parse(bytes: &'a [u8]) -> Option<Part<'a>> {
        let head_end = find(bytes, b"\r\n\r\n")?;
        let head = std::str::from_utf8(&bytes[..head_end]).ok()?;
        let body = &bytes[head_end + 4..];
        let body = body.strip_suffix(b"\r\n").unwrap_or(body);
        let line = |name: &str| {
            head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then_some(value.trim())
            })
        };
        let disposition = line("Content-Disposition")?;
        let value = |name: &str| {
            let start = format!("; {name}=\"");
            let from = disposition.find(&start)? + start.len();
            let until = disposition[from..].find('"')?;
            Some(disposition[from..from + until].to_owned())
        };
        Some(Part {
            name: value("name")?,
            file_name: value("filename"),
            mime: line("Content-Type").map(str::to_owned),
            body,
        })
    }
}

/// Where `part` first stands in `whole`.
fn find(whole: &[u8], part: &[u8]) -> Option<usize> {
    whole.windows(part.len()).position(|window| window == part)
}
