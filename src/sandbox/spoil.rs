//! Dishonest answers: the work is done, status 200 stands on it, and what it says is not so.

use std::fmt;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// What a foreign id differs by.
const ELSEWHERE: i64 = 1_000_000;
const MESSAGE: &str = r#"{"Message":"An error has occurred."}"#;
const HTML: &str = "<!DOCTYPE html><html><body><h1>Please log in</h1></body></html>";

/// How an answer is spoilt. Only answers of status 2xx are; a refusal stays one. An answer without
/// content (204) has no records that could be changed, but another body can take its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spoil {
    /// The first record of a list stands in the place of the last one too, so that there are as
    /// many as before; in `{Count, Results}` too.
    DuplicateRecord,
    /// The last record of a list is missing; `Count` stays.
    DropRecord,
    /// A list is empty, `{"Count":0,"Results":[]}` where it was counted; so is all else.
    EmptyList,
    /// Every record's `CaseId` is another case's; where there is none, the `Id` of a single record
    /// and of a counted list's (a search's) is another thing's.
    ForeignId,
    /// Every record has its first key twice, the first of the two with `null`.
    DuplicateKey,
    /// Half of the body, and a `Content-Length` that fits it.
    Truncate,
    /// A list, counted or not, or a scalar becomes an object with an error's message; an object
    /// becomes a list.
    WrongShape,
    /// Status 200, `Content-Length: 0`.
    EmptyBody,
    /// Bytes in the middle that are no UTF-8.
    NotUtf8,
    /// A page for people, with the content type of one.
    Html,
    /// `Content-Encoding: gzip` over bytes that are none.
    GzipGarbage,
}

impl Spoil {
    /// All there are.
    pub const ALL: [Spoil; 11] = [
        Spoil::DuplicateRecord,
        Spoil::DropRecord,
        Spoil::EmptyList,
        Spoil::ForeignId,
        Spoil::DuplicateKey,
        Spoil::Truncate,
        Spoil::WrongShape,
        Spoil::EmptyBody,
        Spoil::NotUtf8,
        Spoil::Html,
        Spoil::GzipGarbage,
    ];
}

/// The same answer, spoilt. It must not be compressed.
pub(crate) async fn spoil(response: Response, how: Spoil) -> Response {
    if !response.status().is_success() {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    let spoilt = match how {
        Spoil::EmptyBody => Vec::new(),
        Spoil::Html => {
            parts.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
            HTML.into()
        }
        Spoil::GzipGarbage => {
            parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            // The magic number of gzip, and then nothing of it.
            [b"\x1f\x8b\x08\x00", &whole[..]].concat()
        }
        Spoil::NotUtf8 => {
            let (head, tail) = whole.split_at(whole.len() / 2);
            [head, b"\xff\xfe\x80", tail].concat()
        }
        Spoil::Truncate => whole[..whole.len() / 2].to_vec(),
        _ => said(&whole).and_then(|said| said.spoilt(how)).unwrap_or_else(|| whole.to_vec()),
    };
    let replaces = matches!(
        how,
        Spoil::EmptyBody
            | Spoil::Html
            | Spoil::GzipGarbage
            | Spoil::NotUtf8
            | Spoil::EmptyList
            | Spoil::WrongShape
    );
    if replaces {
        parts.status = StatusCode::OK;
    }
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(spoilt.len()));
    Response::from_parts(parts, Body::from(spoilt))
}

/// A body as far as it has to be understood; numbers keep their digits.
enum Said {
    List(Vec<Box<RawValue>>),
    Counted(Counted),
    Record(Fields),
    /// A scalar, or nothing.
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct Counted {
    count: u64,
    results: Vec<Box<RawValue>>,
}

fn said(body: &[u8]) -> Option<Said> {
    match body.trim_ascii().first() {
        Some(b'[') => serde_json::from_slice(body).ok().map(Said::List),
        Some(b'{') => match serde_json::from_slice(body) {
            Ok(counted) => Some(Said::Counted(counted)),
            Err(_) => serde_json::from_slice(body).ok().map(Said::Record),
        },
        _ => Some(Said::Other),
    }
}

impl Said {
    /// The spoilt body; `None` where this kind of answer cannot be spoilt so.
    fn spoilt(mut self, how: Spoil) -> Option<Vec<u8>> {
        if how == Spoil::EmptyList {
            return Some(match self {
                Said::Counted(_) => br#"{"Count":0,"Results":[]}"#.to_vec(),
                _ => b"[]".to_vec(),
            });
        }
        if how == Spoil::WrongShape {
            return Some(match self {
                Said::Record(fields) => text(&[fields]),
                _ => MESSAGE.into(),
            });
        }
        let by_id = matches!(self, Said::Record(_) | Said::Counted(_));
        let change = |fields: &mut Fields| match how {
            Spoil::ForeignId => fields.move_elsewhere(by_id),
            Spoil::DuplicateKey => fields.repeat_the_first(),
            _ => {}
        };
        match &mut self {
            Said::Record(fields) => change(fields),
            Said::List(records) | Said::Counted(Counted { results: records, .. }) => {
                match how {
                    Spoil::DropRecord => {
                        records.pop();
                    }
                    Spoil::DuplicateRecord => {
                        if let (Some(first), Some(last)) =
                            (records.first().cloned(), records.last_mut())
                        {
                            *last = first;
                        }
                    }
                    _ => {
                        for record in records {
                            // Names and numbers stand as they are.
                            let Ok(mut fields) = serde_json::from_str(record.get()) else {
                                continue;
                            };
                            change(&mut fields);
                            if let Ok(changed) = serde_json::value::to_raw_value(&fields) {
                                *record = changed;
                            }
                        }
                    }
                }
            }
            Said::Other => {}
        }
        match self {
            Said::List(records) => Some(text(&records)),
            Said::Counted(counted) => Some(text(&counted)),
            Said::Record(fields) => Some(text(&fields)),
            Said::Other => None,
        }
    }
}

fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// A record's fields in their order, one more than once if it is.
struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    fn move_elsewhere(&mut self, by_id: bool) {
        for name in ["CaseId", "Id"] {
            let of_name = self.0.iter_mut().filter(|(key, _)| key == name);
            let mut moved = false;
            for (_, value) in of_name {
                if let Ok(id) = value.get().parse::<i64>()
                    && let Ok(foreign) = serde_json::value::to_raw_value(&(id + ELSEWHERE))
                {
                    *value = foreign;
                    moved = true;
                }
            }
            if moved || !by_id {
                return;
            }
        }
    }

    fn repeat_the_first(&mut self) {
        if let Some((first, _)) = self.0.first() {
            let again = (first.clone(), RawValue::NULL.to_owned());
            self.0.insert(0, again);
        }
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
