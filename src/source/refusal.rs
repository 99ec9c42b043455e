//! What the service said when it did not give what was asked.

use std::fmt;

use reqwest::StatusCode;
use serde_json::Value;

use crate::error::{Error, Kind};

/// How much of what the service said is shown, in characters.
const LONGEST_SAYING: usize = 300;
/// How much of an answer is shown that is not what was expected, in characters.
const LONGEST_EXCERPT: usize = 80;

/// An answer of another status than 2xx: the source of the [`Error`] that tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// What the body says, shortened and made safe to print; empty when it says nothing.
    pub said: String,
    /// Of a 403: the permissions the body names, such as `Cases - Read`.
    pub permissions: Vec<String>,
}

impl Refusal {
    /// Reads the body of a refusal, whatever its shape. `secrets` are blotted out of it.
    pub(super) fn read(status: u16, body: &[u8], secrets: &[&str]) -> Self {
        let mut permissions = Vec::new();
        let said = match serde_json::from_slice::<Value>(body) {
            Ok(value) => {
                if status == 403 {
                    named_permissions(&value, false, &mut permissions);
                }
                let mut sayings = Vec::new();
                collect_sayings(&value, &mut sayings);
                safe_text(&sayings.join("; "), LONGEST_SAYING, secrets)
            }
            Err(_) => excerpt_within(body, LONGEST_SAYING, secrets),
        };
        for permission in &mut permissions {
            *permission = safe_text(permission, LONGEST_EXCERPT, secrets);
        }
        permissions.sort();
        permissions.dedup();
        Refusal { status, said, permissions }
    }

    /// What went wrong, as far as the status tells. Of the token endpoint's answers see `token`.
    pub(super) fn kind(&self) -> Kind {
        match self.status {
            401 => Kind::Credentials,
            403 => Kind::Forbidden,
            404 | 410 => Kind::NotFound,
            405 | 501 => Kind::NotAllowed,
            408 | 429 => Kind::Throttled,
            400..=499 => Kind::Refused,
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
pub fn refusal(error: &Error) -> Option<&Refusal> {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(refusal) = cause.downcast_ref::<Refusal>() {
            return Some(refusal);
        }
        next = cause.source();
    }
    None
}

/// The beginning of an answer that is not what was expected, in one printable line.
pub(super) fn excerpt(body: &[u8], secrets: &[&str]) -> String {
    excerpt_within(body, LONGEST_EXCERPT, secrets)
}

fn excerpt_within(body: &[u8], longest: usize, secrets: &[&str]) -> String {
    // A secret is longer than a character: what is read beyond the excerpt lets one be found that
    // begins inside it.
    let read = &body[..body.len().min(longest * 4 + 8_192)];
    safe_text(&String::from_utf8_lossy(read), longest, secrets)
}

/// Text of others in one printable line of at most `longest` characters, without secrets.
pub(super) fn safe_text(text: &str, longest: usize, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret, "***");
    }
    let visible: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Keys under which services put what only their own operators understand.
const NOISE: [&str; 6] = ["traceid", "type", "stacktrace", "exceptiontype", "instance", "token"];

/// Every text of the body, in its order.
fn collect_sayings(value: &Value, sayings: &mut Vec<String>) {
    match value {
        Value::String(text) if !text.trim().is_empty() => sayings.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect_sayings(value, sayings)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if !NOISE.contains(&name.to_lowercase().as_str()) {
                    collect_sayings(value, sayings);
                }
            }
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The permissions a body names: under a key that speaks of permissions, or written as the
/// reference writes them (`Cases - Read`). `inside` is set below such a key.
fn named_permissions(value: &Value, inside: bool, found: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            if inside || text.ends_with(" - Read") || text.ends_with(" - Write") {
                found.push(text.clone());
            }
        }
        Value::Array(values) => {
            // A bare list of texts can be nothing else than the list of permissions.
            let bare = values.iter().all(Value::is_string);
            values.iter().for_each(|value| named_permissions(value, inside || bare, found));
        }
        Value::Object(fields) => {
            if let Some(area) = fields.get("Permission").and_then(Value::as_str) {
                push_accesses(area, fields.get("PermissionTypes"), found);
                return;
            }
            for (name, value) in fields {
                let names_it = name.to_lowercase().contains("permission");
                match value {
                    Value::Array(accesses) if inside && accesses.iter().all(is_access) => {
                        push_accesses(name, Some(value), found);
                    }
                    Value::String(_) if is_access(value) => push_accesses(name, Some(value), found),
                    _ => named_permissions(value, inside || names_it, found),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn is_access(value: &Value) -> bool {
    matches!(value.as_str(), Some("Read" | "Write"))
}

fn push_accesses(area: &str, accesses: Option<&Value>, found: &mut Vec<String>) {
    let mut push = |access: &str| found.push(format!("{area} - {access}"));
    match accesses {
        Some(Value::String(access)) => push(access),
        Some(Value::Array(accesses)) if !accesses.is_empty() => {
            accesses.iter().filter_map(Value::as_str).for_each(push);
        }
        _ => found.push(area.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn a_403_names_its_permissions_whatever_its_shape(#[case] body: &str) {
        let refusal = Refusal::read(403, body.as_bytes(), &[]);
        assert_eq!(refusal.permissions, ["Cases - Read", "Notes - Read"]);
        assert!(refusal.to_string().contains("missing permissions: Cases - Read, Notes - Read"));
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

    #[test]
    fn secrets_are_blotted_out() {
        let body = br#"{"Message": "client s3cret is unknown"}"#;
        let refusal = Refusal::read(400, body, &["s3cret", ""]);
        assert_eq!(refusal.said, "client *** is unknown");
        assert_eq!(excerpt(b"<html>s3cret</html>", &["s3cret"]), "<html>***</html>");
    }

    #[test]
    fn a_secret_cut_by_the_end_of_the_excerpt_is_blotted_out() {
        let body = format!("{}s3cret-and-long", "x".repeat(LONGEST_EXCERPT - 3));
        assert!(!excerpt(body.as_bytes(), &["s3cret-and-long"]).contains("s3c"));
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
