//! Small judgements about answers and addresses, as functions of values.

use reqwest::header::{AGE, CONTENT_TYPE, HeaderMap};
use serde::de::IgnoredAny;

use super::names::are_known;
use super::refusal::safe_text;
use super::request::Request;
use crate::text::trim_json;

/// What is wrong with an answer of which nobody can say that it came whole.
pub(super) fn unproven(proven: bool) -> Option<String> {
    let text =
        "the answer ended with the connection, without a length or a last chunk: it may be cut";
    (!proven).then(|| text.to_owned())
}

/// What is wrong with an answer that says it is no JSON. Services that say nothing are believed.
pub(super) fn other_type(headers: &HeaderMap) -> Option<String> {
    let told = headers.get(CONTENT_TYPE)?;
    let told = told.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
    let told = told.trim().to_ascii_lowercase();
    let json = matches!(told.as_str(), "" | "application/json" | "text/json")
        || told.ends_with("+json") && told.contains('/');
    (!json).then(|| format!("the answer is of type {told:.60}, not JSON"))
}

/// What is wrong with an answer that something on the way has kept: it may be older than what is mirrored.
pub(super) fn kept_on_the_way(headers: &HeaderMap) -> Option<String> {
    let age: u64 = headers.get(AGE)?.to_str().ok()?.trim().parse().ok()?;
    (age > 0).then(|| format!("the answer comes from a cache and is {age} s old"))
}

/// What is wrong with a body that should be JSON, as far as its ends tell; the rest is the
/// decoder's to find. It says that it is the answer, and may hold personal data: of a page of HTML its title is shown,
/// where it is a usual one, of anything else nothing.
pub(super) fn faulty_json(body: &[u8]) -> Option<String> {
    let trimmed = trim_json(body);
    let (Some(first), Some(last)) = (trimmed.first(), trimmed.last()) else { return None };
    match (first, last) {
        (b'{', b'}') | (b'[', b']') => None,
        (b'"', b'"') if trimmed.len() > 1 => None,
        (b'{' | b'[' | b'"', _) => {
            Some(format!("the answer is cut off after {} bytes", body.len()))
        }
        (b'<', _) => {
            Some(format!("the answer is {}, not JSON: {} bytes", page(trimmed), body.len()))
        }
        _ if serde_json::from_slice::<IgnoredAny>(trimmed).is_ok() => None,
        _ => Some(format!("the answer is not JSON: {} bytes of something else", body.len())),
    }
}

/// What a page is, and its title where that is a usual one: any other may name a person, and XML may be a record.
fn page(page: &[u8]) -> String {
    let name =
        page.iter().skip(1).take(20).take_while(|b| b.is_ascii_alphanumeric() || **b == b'!');
    let name: String = name.map(|b| char::from(b.to_ascii_lowercase())).collect();
    if !matches!(name.as_str(), "html" | "!doctype") {
        return "XML or the like".to_owned();
    }
    let head = String::from_utf8_lossy(&page[..page.len().min(HEAD)]);
    let title = head.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    match title.and_then(|(title, _)| usual_title(title)) {
        Some(title) => format!("an HTML page, titled {title:?}"),
        None => "an HTML page".to_owned(),
    }
}

/// Where the title of a page is looked for, in bytes.
const HEAD: usize = 8_192;

/// A title as it may be shown: one of which no word may be a name, as those of log-ins and proxies are.
fn usual_title(title: &str) -> Option<String> {
    const LONGEST: usize = 80;
    let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_usual = !title.is_empty() && safe_text(&title, LONGEST, &[]) == title;
    (is_usual && are_known(&title)).then_some(title)
}

/// Where a redirect leads: to which host. The path may hold secrets, and names.
pub(super) fn redirect_target(headers: &HeaderMap, secrets: &[&str]) -> String {
    const LONGEST: usize = 200;
    safe_text(&address_of(headers), LONGEST, secrets)
}

fn address_of(headers: &HeaderMap) -> String {
    let location = headers.get("location").and_then(|value| value.to_str().ok());
    let Some(location) = location else { return "nowhere".to_owned() };
    // Without a scheme it is that of the call.
    let whole = if location.starts_with("//") { &format!("https:{location}") } else { location };
    match url::Url::parse(whole) {
        Ok(url) => match url.host_str() {
            Some(host) => {
                let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
                let said =
                    if whole == location { format!("{}:", url.scheme()) } else { String::new() };
                format!("{said}//{host}{port}")
            }
            None => "an address without a host".to_owned(),
        },
        Err(_) => "another path, given without a host".to_owned(),
    }
}

/// The address as it may be shown: parameters that look like secrets are redacted, a long
/// query is cut.
pub(super) fn shown_address(base: &str, request: &Request) -> String {
    const LONGEST_QUERY: usize = 200;
    let looks_secret = |name: &str| {
        let name = name.to_lowercase();
        ["token", "secret", "password", "key"].iter().any(|word| name.contains(word))
    };
    let mut shown = request.query.clone();
    for (name, value) in &mut shown.extra {
        if looks_secret(name) {
            "***".clone_into(value);
        }
    }
    let mut query = shown.encode().replace("%20", " ").replace("%27", "'").replace("%2A", "*");
    if let Some((end, _)) = query.char_indices().nth(LONGEST_QUERY) {
        query.truncate(end);
        query.push('…');
    }
    let separator = if query.is_empty() { "" } else { "?" };
    format!("{}{}{separator}{query}", base, request.path)
}
