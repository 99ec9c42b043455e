//! Which calls a resource file may make: reads, and none of those that change the source
//! (docs/architecture.md, "Only reads").

use super::super::{Group, Method, Resource};
use super::placeholders;

/// An address that a resource is read from.
struct Address<'r> {
    /// The key of the file that names it.
    key: &'static str,
    method: Method,
    path: &'r str,
    query: &'r [(String, String)],
}

/// All of them.
fn addresses(resource: &Resource) -> Vec<Address<'_>> {
    let get = |key, path, query| Address { key, method: Method::Get, path, query };
    let mut all = Vec::new();
    if let Some(read) = &resource.read {
        all.push(Address {
            key: "read.path",
            method: read.method,
            path: &read.path,
            query: &read.query,
        });
        all.extend(read.by_id.as_deref().map(|path| get("read.by_id", path, &[])));
        if !read.optional_query.is_empty() {
            all.push(get("read.optional_query", &read.path, &read.optional_query));
        }
        let fallback = read.fallback.as_ref();
        all.extend(fallback.map(|f| get("read.fallback.path", &f.path, &f.query)));
    }
    if let Group::ForEach(each) = &resource.group {
        all.extend(each.list.as_deref().map(|path| get("for_each.list", path, &[])));
    }
    all
}

/// Refuses what is no read, or a read that changes the source or shows what is never stored. `reads`
/// are the calls of the built-in tables.
pub(super) fn check<'r>(
    resource: &Resource,
    reads: impl Iterator<Item = (Method, &'r str)> + Clone,
    faults: &mut Vec<String>,
) {
    for Address { key, method, path, query } in addresses(resource) {
        if method != Method::Get && !reads.clone().any(|(m, p)| m == method && same(path, p)) {
            let known: Vec<String> = reads
                .clone()
                .filter(|(m, _)| *m != Method::Get)
                .map(|(m, p)| format!("{m} {p}"))
                .collect();
            faults.push(format!(
                "read.method = \"{method}\": {method} {path} is not known to be a read, and nothing \
                 else is called; right are GET and {}",
                known.join(", ")
            ));
        }
        for path in with_values(resource, path) {
            if let Some(why) = forbidden(resource, &path, query) {
                faults.push(format!("{key} = \"{path}\": {why}"));
            }
        }
    }
    secrets(resource, faults);
}

/// The path with each of the values of its parameter, or as it is.
fn with_values(resource: &Resource, path: &str) -> Vec<String> {
    let values = resource.read.as_ref().and_then(|read| read.values.as_ref());
    match values.filter(|(name, _)| placeholders(path).contains(&name.as_str())) {
        Some((name, values)) => {
            values.iter().map(|value| path.replace(&format!("{{{name}}}"), value)).collect()
        }
        None => vec![path.to_owned()],
    }
}

/// The parts of a path as a service compares them: without regard to case.
fn segments(path: &str) -> Vec<String> {
    path.split('/').filter(|part| !part.is_empty()).map(str::to_lowercase).collect()
}

/// Whether `path` is a call of the template `known`, whose parameters stand for anything.
fn same(path: &str, known: &str) -> bool {
    let (path, known) = (segments(path), segments(known));
    path.len() == known.len()
        && path.iter().zip(&known).all(|(own, other)| other.starts_with('{') || own == other)
}

/// Why a path is never called, and what would be right.
fn forbidden(resource: &Resource, path: &str, query: &[(String, String)]) -> Option<&'static str> {
    let parts = segments(path);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    // A parameter that the source's data fill can become any text.
    let open = resource.lookup.as_ref().map(|given| format!("{{{}}}", given.param.to_lowercase()));
    let may_be = |part: &str, word: &str| part == word || open.as_deref() == Some(part);
    if parts.iter().any(|part| matches!(*part, "." | "..")) {
        return Some("\".\" and \"..\" lead elsewhere; name the address itself");
    }
    if parts.contains(&"fullidentitynumber")
        || matches!(parts[..], [.., "persons", _, last] if may_be(last, "fullidentitynumber"))
    {
        return Some("part of a national identity number is never asked for");
    }
    if parts.contains(&"recentlymodified") {
        return Some(
            "the change feeds have a throttle of their own and are asked by nobody else; \
             what they say is in sync.seen",
        );
    }
    if matches!(parts[..], [.., "cases", _, last] if may_be(last, "publications")) {
        const EXISTING: &str = "returnOnlyExisting";
        let mut fixed = query.iter().filter(|(name, _)| name.eq_ignore_ascii_case(EXISTING));
        let right = fixed.next().is_some_and(|(name, value)| name == EXISTING && value == "true");
        if !right || fixed.next().is_some() {
            return Some(
                "without query = { returnOnlyExisting = \"true\" } the call creates publications",
            );
        }
    }
    let estimate = parts.iter().position(|part| *part == "estimatedcosts");
    if estimate.is_some_and(|at| parts.get(at + 1) != Some(&"false")) {
        return Some("the call recalculates the estimate; .../EstimatedCosts/false reads it");
    }
    None
}

/// The secrets of subscriptions are never stored (docs/architecture.md, "Privacy").
fn secrets(resource: &Resource, faults: &mut Vec<String>) {
    for column in &resource.columns {
        if column.path.last().is_some_and(|field| field.eq_ignore_ascii_case("Secret")) {
            faults.push(format!("column \"{}\": a Secret is never stored", column.name));
        }
    }
    let Some(path) = resource.path_of_secrets() else { return };
    let left_out = |field: &str| resource.leave_out.iter().any(|left| left == field);
    if !left_out("Secret") {
        faults.push(format!(
            "leave_out = [\"Secret\"] is missing: {path} shows the secrets of subscriptions"
        ));
    }
    let cut = resource.columns.iter().any(|c| c.path == ["Url"] && c.cut.is_some());
    if !cut && !left_out("Url") {
        faults.push(
            "field Url can hold a secret: it needs a column with cut = \"after_host\", or to be in \
             leave_out"
                .to_owned(),
        );
    }
}
