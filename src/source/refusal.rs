//! What the service said when it did not give what was asked.

use std::fmt;

use reqwest::StatusCode;
use serde_json::Value;

use super::names::without_names;
use super::redact::{REDACTED, redact};
use super::spellings::spellings;
use crate::decode::Privacy;
use crate::error::{Error, Kind};

/// How much of what the service said is shown, in characters.
const LONGEST_SAYING: usize = 300;
/// How much of a permission is shown that is said to be missing, in characters.
const LONGEST_PERMISSION: usize = 80;
/// A secret of fewer characters stands in any text: taking it out would show it, and garble the text.
const SHORTEST_SECRET: usize = 4;

/// What a permission lets do, as the reference names it.
const ACCESSES: [&str; 2] = ["Read", "Write"];

/// An answer of another status than 2xx: the source of the [`Error`] that tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// What the messages of the body say, shortened, safe to print and without personal data; empty
    /// when there are none.
    pub(crate) said: String,
    /// Of a 403: the permissions the body names, such as `Cases - Read`.
    pub(crate) permissions: Vec<String>,
}

impl Refusal {
    /// Reads the body of a refusal, whatever its shape. `secrets` are redacted in it.
    pub(super) fn read(status: u16, body: &[u8], secrets: &[&str]) -> Self {
        let mut permissions = Vec::new();
        let said = match serde_json::from_slice::<Value>(body) {
            Ok(value) => {
                if status == 403 {
                    named_permissions(&value, false, &mut permissions);
                }
                let mut sayings = Vec::new();
                // A bare text, or a bare list of texts, can be nothing else than a message.
                let bare = match &value {
                    Value::Array(values) => values.iter().all(Value::is_string),
                    other => other.is_string(),
                };
                collect_sayings(&value, bare, &mut sayings);
                sayings.join("; ")
            }
            // Of a record that was cut off it cannot be told what is a message.
            Err(_) if matches!(body.trim_ascii_start().first(), Some(b'{' | b'[')) => String::new(),
            Err(_) => beginning(body, LONGEST_SAYING),
        };
        for permission in &mut permissions {
            *permission = safe_text(permission, LONGEST_PERMISSION, secrets);
        }
        permissions.retain(|permission| !permission.is_empty() && permission != REDACTED);
        permissions.sort();
        permissions.dedup();
        // The permissions are found by now: masks hide none of them.
        let known: Vec<&str> = permissions.iter().flat_map(|name| name.split(" - ")).collect();
        let said = safe_saying(&said, LONGEST_SAYING, secrets, &known);
        Refusal { status, said, permissions }
    }

    /// What went wrong, as far as the status tells. Of the token endpoint's answers see `token`.
    pub(super) fn kind(&self) -> Kind {
        match self.status {
            401 => Kind::Credentials,
            403 => Kind::Forbidden,
            404 | 410 => Kind::NotFound,
            405 => Kind::NotAllowed,
            408 | 429 => Kind::Throttled,
            // 501 says that this call is not known, and passes no sooner than a 400.
            400..=499 | 501 => Kind::Refused,
            500..=599 => Kind::Server,
            // A redirect, or a 2xx or 1xx that is no answer.
            _ => Kind::BadAnswer,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        let reason = StatusCode::from_u16(self.status).ok().and_then(|s| s.canonical_reason());
        if let Some(reason) = reason {
            write!(f, " {reason}")?;
        }
        if !self.permissions.is_empty() {
            write!(f, ", missing permissions: {}", self.permissions.join(", "))?;
        }
        // A body that is the list of permissions says nothing beside it.
        let repeats = self
            .said
            .split("; ")
            .all(|part| self.permissions.iter().any(|permission| permission.contains(part)));
        if !self.said.is_empty() && !repeats {
            write!(f, ": {}", self.said)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// The refusal that an error tells of, however deep it lies.
pub(crate) fn refusal(error: &Error) -> Option<&Refusal> {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return Some(refusal);
        }
        next = cause.source();
    }
    None
}

/// The beginning of a text of which `longest` characters are shown.
fn beginning(body: &[u8], longest: usize) -> String {
    // A secret is longer than a character: what is read beyond what is shown lets one be found that
    // begins inside it.
    let read = &body[..body.len().min(longest * 4 + 8_192)];
    String::from_utf8_lossy(read).into_owned()
}

/// What a service says, as [`safe_text`], and without what may be the name of a person; `known`: words that are none.
fn safe_saying(text: &str, longest: usize, secrets: &[&str], known: &[&str]) -> String {
    shortened(without_names(&line_of(text, secrets), known), longest)
}

/// Text of others in one printable line of at most `longest` characters, without secrets, addresses and numbers of
/// persons; none of it where a secret is too short to be found in it.
pub(super) fn safe_text(text: &str, longest: usize, secrets: &[&str]) -> String {
    shortened(line_of(text, secrets), longest)
}

fn line_of(text: &str, secrets: &[&str]) -> String {
    if secrets.iter().any(|secret| (1..SHORTEST_SECRET).contains(&secret.len())) {
        return String::new();
    }
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        for written in spellings(secret) {
            text = replace_in_any_case(&text, &written);
        }
    }
    let visible: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // White space of all kinds is a blank now, inside a number too.
    redact(&visible.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn shortened(line: String, longest: usize) -> String {
    match line.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// `text` with [`REDACTED`] wherever `secret` stands, in capitals or not.
fn replace_in_any_case(text: &str, secret: &str) -> String {
    // Of ASCII alone, so that no place moves.
    let (lower, secret) = (text.to_ascii_lowercase(), secret.to_ascii_lowercase());
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, found) in lower.match_indices(&secret) {
        out.push_str(&text[rest..at]);
        out.push_str(REDACTED);
        rest = at + found.len();
    }
    out.push_str(&text[rest..]);
    out
}

/// Fields in which services say what is wrong, lower case. In others they may repeat what they were
/// asked for.
const MESSAGES: [&str; 14] = [
    "message",
    "messagedetail",
    "exceptionmessage",
    "errormessage",
    "error",
    "error_description",
    "errordescription",
    "odata.error",
    "errors",
    "modelstate",
    "title",
    "detail",
    "details",
    "reason",
];
/// Whether services say what is wrong in a field of this name.
pub(super) fn is_message(field: &str) -> bool {
    MESSAGES.contains(&field.to_lowercase().as_str())
}

/// Those of them that hold messages by the name of the field that these are about.
const BY_FIELD: [&str; 2] = ["errors", "modelstate"];

/// The messages of the body, in its order. `taken`: the value stands where a message does.
fn collect_sayings(value: &Value, taken: bool, sayings: &mut Vec<String>) {
    match value {
        Value::String(text) if taken && !text.trim().is_empty() => sayings.push(text.clone()),
        Value::Array(values) => {
            values.iter().for_each(|value| collect_sayings(value, taken, sayings));
        }
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !is_personal(name)) {
                let lower = name.to_lowercase();
                match value {
                    Value::Object(about) if BY_FIELD.contains(&lower.as_str()) => about
                        .iter()
                        .filter(|(name, _)| !is_personal(name))
                        .for_each(|(_, value)| collect_sayings(value, true, sayings)),
                    _ => {
                        // OData writes a message as {lang, value}.
                        let is_message = is_message(&lower)
                            || lower.contains("permission")
                            || taken && lower == "value";
                        collect_sayings(value, is_message, sayings);
                    }
                }
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_personal(name: &str) -> bool {
    Privacy::class_of_name(name).is_some()
}

/// The permissions a body names: written as the reference writes them (`Cases - Read`), or as `/api/User/ApiPermissions`
/// lists them. `inside` is set below a key that speaks of permissions.
///
/// Any other text is a message, also below such a key: where a permission that nobody has is taken to be missing, a table
/// is not read any more.
fn named_permissions(value: &Value, inside: bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.extend(permissions_in(text)),
        Value::Array(values) => {
            values.iter().for_each(|value| named_permissions(value, inside, found));
        }
        Value::Object(fields) => {
            if let Some(area) = fields.get("Permission").and_then(Value::as_str) {
                found.extend(listed(area, fields.get("PermissionTypes")));
                return;
            }
            for (name, value) in fields.iter().filter(|(name, _)| !is_personal(name)) {
                let names_it = name.to_lowercase().contains("permission");
                if inside {
                    found.extend(listed(name, Some(value)));
                }
                named_permissions(value, inside || names_it, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What a text lists that is nothing else than permissions, or ends in a list of them behind a colon.
fn permissions_in(text: &str) -> Vec<String> {
    let list = text.rsplit(':').next().unwrap_or(text).trim().trim_end_matches('.');
    let all = list.split([',', ';']).map(|part| {
        let (area, access) = part.trim().split_once(" - ")?;
        (is_area(area) && ACCESSES.contains(&access)).then(|| format!("{area} - {access}"))
    });
    all.collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// The permissions of an area and one or more accesses to it; none where that is something else.
fn listed(area: &str, accesses: Option<&Value>) -> Vec<String> {
    let accesses = match accesses {
        Some(Value::Array(accesses)) => accesses.as_slice(),
        Some(access) => std::slice::from_ref(access),
        None => &[],
    };
    if !is_area(area) || !accesses.iter().all(is_access) {
        return Vec::new();
    }
    accesses.iter().filter_map(Value::as_str).map(|access| format!("{area} - {access}")).collect()
}

/// Areas are single words with capitals, such as `BookkeepingIntegrators`.
fn is_area(text: &str) -> bool {
    text.starts_with(char::is_uppercase) && text.chars().all(char::is_alphanumeric)
}

fn is_access(value: &Value) -> bool {
    value.as_str().is_some_and(|text| ACCESSES.contains(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case::list(r#"["Cases - Read", "Notes - Read"]"#)]
    #[case::records(
        r#"{"Message": "No access", "MissingPermissions": [
            {"Permission": "Cases", "PermissionTypes": ["Read"]},
            {"Permission": "Notes", "PermissionTypes": ["Read"]}]}"#
    )]
    #[case::texts(r#"{"error": {"permissions": ["Cases - Read", "Notes - Read"]}}"#)]
    #[case::map(r#"{"Permissions": {"Cases": ["Read"], "Notes": ["Read"]}}"#)]
    #[case::elsewhere(r#"{"Required": {"All": ["Cases - Read", "Notes - Read"]}}"#)]
    #[case::twice(r#"["Notes - Read", "Cases - Read", "Notes - Read"]"#)]
    #[case::behind_a_colon(r#"{"Message": "Missing permissions: Cases - Read, Notes - Read."}"#)]
    fn a_403_names_its_permissions_whatever_its_shape(#[case] body: &str) {
        let refusal = Refusal::read(403, body.as_bytes(), &[]);
        assert_eq!(refusal.permissions, ["Cases - Read", "Notes - Read"]);
        assert!(refusal.to_string().contains("missing permissions: Cases - Read, Notes - Read"));
    }

    #[rstest]
    #[case::text(r#"["You may not read the notes of this case"]"#)]
    #[case::key(r#"{"PermissionError": "case 1018 is confidential"}"#)]
    #[case::word(r#"["Forbidden"]"#)]
    #[case::sentence(r#"{"Message": "Case 1004 is locked - Read only."}"#)]
    #[case::end_of_a_sentence(r#"["This call requires Cases - Read"]"#)]
    #[case::number(r#"{"Message": "403 - Read"}"#)]
    #[case::other_access(r#"{"Permission": "Cases", "PermissionTypes": ["Nope"]}"#)]
    #[case::no_access(r#"{"Permission": "Denied"}"#)]
    #[case::empty(r#"{"PermissionError": {"Details": []}}"#)]
    #[case::other_field(r#"{"Operation": "Read"}"#)]
    #[case::area_of_words(r#"{"Permission": "to this case", "PermissionTypes": ["Read"]}"#)]
    fn what_names_no_permission_is_a_message(#[case] body: &str) {
        assert!(Refusal::read(403, body.as_bytes(), &[]).permissions.is_empty());
    }

    #[test]
    fn a_403_without_structure_is_shown_as_it_is() {
        let refusal = Refusal::read(403, b"You lack Cases - Read\r\n\x1b[31mhere", &[]);
        assert_eq!(refusal.to_string(), "HTTP 403 Forbidden: You lack Cases - Read [31mhere");
        assert_eq!(Refusal::read(403, b"", &[]).to_string(), "HTTP 403 Forbidden");
    }

    #[test]
    fn what_the_service_says_is_shown_without_its_noise() {
        let body = br#"{"type": "https://tools/400", "Message": "The limit of '0' for Top is 500",
            "traceId": "00-1"}"#;
        let refusal = Refusal::read(400, body, &[]);
        assert_eq!(refusal.to_string(), "HTTP 400 Bad Request: The limit of '0' for Top is 500");
    }

    #[rstest]
    #[case::web_api(
        r#"{"Message": "The request is invalid.", "Email": "ola@example.no", "Name": "Ola Nordmann",
            "ModelState": {"request.Age": ["Too old for 010170\u00a012345"],
                           "request.Email": ["ola@example.no"], "IdentityNumber": ["1"]}}"#,
        "The request is invalid.; Too old for ***"
    )]
    #[case::exception(
        r#"{"Message": "An error.", "ExceptionMessage": "Bad row 01017012345",
            "ExceptionType": "X", "StackTrace": "at Y", "InnerException": {"Message": "inner"}}"#,
        "An error.; Bad row ***; inner"
    )]
    #[case::problem(
        r#"{"type": "https://t", "title": "One or more", "errors": {"Top": ["too large"]},
            "detail": "for ola@example.no", "traceId": "00-1", "Request": {"Name": "Ola Nordmann"}}"#,
        "One or more; too large; for ***"
    )]
    #[case::odata(
        r#"{"odata.error": {"code": "7", "message": {"lang": "en-US", "value": "no property"}}}"#,
        "no property"
    )]
    #[case::oauth(
        r#"{"error": "invalid_client", "error_description": "unknown"}"#,
        "invalid_client; unknown"
    )]
    #[case::record(
        r#"{"Id": 5, "Name": "Ola Nordmann", "value": "Ola", "Note": {"Text": "x"}}"#,
        ""
    )]
    #[case::records(r#"[{"Name": "Ola Nordmann"}, {"Name": "Kari"}]"#, "")]
    #[case::list(r#"["no such", "case"]"#, "no such; case")]
    #[case::text(r#""no such case""#, "no such case")]
    #[case::cut_off(r#"{"Message": "x", "Name": "Ola Nor"#, "")]
    #[case::plain("No person 01017012345", "No person ***")]
    #[case::name(r#"{"Message": "Kari Nordmann could not be read"}"#, "*** *** could not be read")]
    #[case::name_in_plain_text("Ola is locked", "*** is locked")]
    #[case::name_in_a_page(
        "<html><title>Error</title><p>Ola</p>",
        "<html><title>Error</title><p>***</p>"
    )]
    fn of_a_body_the_messages_are_told_and_no_personal_data(
        #[case] body: &str,
        #[case] said: &str,
    ) {
        let sorted = |text: &str| {
            let mut parts: Vec<String> = text.split("; ").map(str::to_owned).collect();
            parts.sort();
            parts
        };
        assert_eq!(sorted(&Refusal::read(400, body.as_bytes(), &[]).said), sorted(said));
    }

    #[test]
    fn a_permission_that_no_table_needs_is_shown_and_a_name_beside_it_is_not() {
        let body = br#"{"Message": "Kari Nordmann lacks Moonbases: Moonbases - Read"}"#;
        let refusal = Refusal::read(403, body, &[]);
        assert_eq!(refusal.permissions, ["Moonbases - Read"]);
        assert_eq!(refusal.said, "*** *** lacks Moonbases: Moonbases - Read");
        let list = Refusal::read(403, br#"["Moonbases - Read"]"#, &[]).to_string();
        assert_eq!(list, "HTTP 403 Forbidden, missing permissions: Moonbases - Read");
    }

    #[test]
    fn permissions_hold_no_personal_data() {
        let body = br#"{"MissingPermissions": ["Contacts - Read"], "Email": ["ola@example.no"],
            "For": ["01017012345"]}"#;
        assert_eq!(Refusal::read(403, body, &[]).permissions, ["Contacts - Read"]);
    }

    #[test]
    fn secrets_are_blotted_out() {
        let body = br#"{"Message": "client s3cret is unknown"}"#;
        let refusal = Refusal::read(400, body, &["s3cret", ""]);
        assert_eq!(refusal.said, "client *** is unknown");
        let page = Refusal::read(400, b"<html>s3cret</html>", &["s3cret"]).said;
        assert_eq!(page, "<html>***</html>");
        // One of a letter or two would be shown by the places where something was taken out.
        assert_eq!(Refusal::read(400, body, &["is"]).to_string(), "HTTP 400 Bad Request");
    }

    #[test]
    fn a_secret_is_blotted_out_however_it_is_written() {
        let secret = "p4ss+w\u{f6}rd/=&\"x";
        let form = "grant_type=client_credentials&client_secret=p4ss%2Bw%C3%B6rd%2F%3D%26%22x";
        let json = r#"{"s":"p4ss+w\u00f6rd\/=&\"x"}"#;
        let plain_json = serde_json::json!({ "s": secret }).to_string();
        let basic = STANDARD_NO_PAD.encode(format!("client:{secret}"));
        let spaced = secret.replace('+', " ");
        for text in [form, &form.to_lowercase(), json, &plain_json, &basic, &spaced, secret] {
            let shown = safe_text(text, 300, &[secret]);
            assert!(shown.contains(REDACTED), "{text}: {shown}");
            assert!(!shown.contains("rd"), "{text}: {shown}");
        }
    }

    #[test]
    fn a_secret_cut_by_the_end_of_the_excerpt_is_blotted_out() {
        let body = format!("{}s3cret-and-long", "x".repeat(LONGEST_SAYING - 3));
        let said = Refusal::read(400, body.as_bytes(), &["s3cret-and-long"]).said;
        assert!(said.ends_with("x***"), "{said}");
    }

    #[test]
    fn the_refusal_is_found_below_any_context() {
        let inner = Error::caused(Kind::Forbidden, "GET x", Refusal::read(403, b"", &[]));
        let outer = inner.within("table notes").within("run 3");
        assert_eq!(refusal(&outer).map(|refusal| refusal.status), Some(403));
        assert!(refusal(&Error::new(Kind::Timeout, "late")).is_none());
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body: Vec<u8>, status in 100_u16..600) {
            let text = Refusal::read(status, &body, &["secret"]).to_string();
            prop_assert!(!text.chars().any(char::is_control));
        }
    }
}
