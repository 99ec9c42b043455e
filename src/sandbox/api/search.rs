//! The three advanced searches (reference 4.13), read from the index and not from the world. All that they take is in
//! the query.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};

use super::super::Shared;
use super::super::faults::Twist;
use super::super::odata::{self, Expr, Limits, Literal, Op, Page, Query, Row};
use super::super::record::{Record, Value};
use super::super::records::{case_row, contact};
use super::super::wire::Ticks;
use super::super::world::case::Moved;
use super::super::world::dice::Dice;
use super::super::world::people::Basis;
use super::super::world::{Handle, generate};
use super::answer::{self, Answer, Refusal};
use super::strict::NoBody;

/// `POST /api/Search/AdvancedPropertySearch`.
pub(crate) async fn properties(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
    _: NoBody,
) -> Answer {
    cases(&shared, false, twist, raw.as_deref())
}

/// `POST /api/Search/AdvancedProjectSearch`.
pub(crate) async fn projects(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
    _: NoBody,
) -> Answer {
    cases(&shared, true, twist, raw.as_deref())
}

fn cases(shared: &Shared, project: bool, twist: Twist, raw: Option<&str>) -> Answer {
    shared.need(&["Cases - Read"])?;
    let mut query = Query::parse(raw, &[])?;
    let (basis, handles) = {
        let mut world = shared.world();
        let (ids, exact) = ids_of(query.filter.as_ref());
        // Where the filter asks for nothing but ids, no row behind the page is looked at.
        let limit = if exact && !query.count && in_order_of_id(&query) {
            query.skip.saturating_add(query.top.unwrap_or(odata::DEFAULT_TOP))
        } else {
            usize::MAX
        };
        (world.basis.clone(), world.search(project, &ids, limit))
    };
    let columns = columns(&basis, project);
    if let Some(list) = available(&query, &columns)? {
        return Ok(list);
    }
    if in_order_of_id(&query) {
        query.orderby = None;
    }
    let rows = handles.into_iter().map(|handle| Entry::new(&basis, handle));
    let limits = Limits::odata(shared.options.max_top.search).twisted(twist);
    let page = odata::page(rows, &query, limits)?;
    let mut out = Vec::with_capacity(page.rows.len() * 6_000 + 64);
    let records = page.rows.iter().map(Entry::record);
    answer::write_page(&mut out, page.count, records, query.select.as_deref());
    Ok(answer::json(out))
}

/// `POST /api/Search/AdvancedContactSearch`.
pub(crate) async fn contacts(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
    _: NoBody,
) -> Answer {
    shared.need(&["Contacts - Read"])?;
    let query = Query::parse(raw.as_deref(), &[])?;
    let (basis, found) = {
        let mut world = shared.world();
        let (ids, _) = ids_of(query.filter.as_ref());
        (world.basis.clone(), world.search_contacts(&ids))
    };
    let sample = contact::search_row(&basis, &basis.contact(basis.contact_ids().start));
    let columns: Vec<&'static str> = sample.names().collect();
    if let Some(list) = available(&query, &columns)? {
        return Ok(list);
    }
    let rows = found.iter().map(|contact| contact::search_row(&basis, contact));
    let limits = Limits::odata(shared.options.max_top.search).twisted(twist);
    let page: Page<Record> = odata::page(rows, &query, limits)?;
    Ok(answer::page(&page, &query))
}

fn in_order_of_id(query: &Query) -> bool {
    query.orderby.as_ref().is_none_or(|(column, down)| column == "Id" && !down)
}

/// The columns of a search, from a row made up for the purpose.
fn columns(basis: &Basis, project: bool) -> Vec<&'static str> {
    let id = generate::case_id(basis.seed, 0);
    let mut case = generate::blank(basis, id, basis.origin, &mut Dice::new(basis.seed, 0));
    case.facts.project = project;
    case_row::search_row(basis, &case).names().collect()
}

/// Checks the named columns. An empty `$select` is answered with the list of the available ones.
fn available(
    query: &Query,
    columns: &[&'static str],
) -> Result<Option<axum::response::Response>, Refusal> {
    let unknown = |name: &String| !columns.contains(&name.as_str());
    let mut named: Vec<&String> = query.select.iter().flatten().collect();
    named.extend(query.orderby.as_ref().map(|(column, _)| column));
    if let Some(expr) = &query.filter {
        fields(expr, &mut named);
    }
    if let Some(name) = named.into_iter().find(|name| unknown(name)) {
        return Err(Refusal::bad_request(format!("There is no column '{name}'")));
    }
    if query.select.as_ref().is_some_and(Vec::is_empty) {
        let list = serde_json::json!(columns).to_string();
        return Ok(Some(answer::json(list.into_bytes())));
    }
    Ok(None)
}

fn fields<'a>(expr: &'a Expr, into: &mut Vec<&'a String>) {
    match expr {
        Expr::And(parts) | Expr::Or(parts) => parts.iter().for_each(|part| fields(part, into)),
        Expr::Compare { field, .. } => into.push(field),
    }
}

/// Ids that a filter can let through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ids {
    Range(RangeInclusive<i64>),
    Set(BTreeSet<i64>),
}

impl Ids {
    fn all() -> Ids {
        Ids::Range(i64::MIN..=i64::MAX)
    }

    pub(crate) fn contains(&self, id: i64) -> bool {
        match self {
            Ids::Range(range) => range.contains(&id),
            Ids::Set(set) => set.contains(&id),
        }
    }

    fn and(self, other: &Ids) -> Ids {
        match (self, other) {
            (Ids::Range(a), Ids::Range(b)) => {
                Ids::Range(*a.start().max(b.start())..=*a.end().min(b.end()))
            }
            (Ids::Set(set), other) => {
                Ids::Set(set.into_iter().filter(|id| other.contains(*id)).collect())
            }
            (range, Ids::Set(set)) => {
                Ids::Set(set.iter().copied().filter(|id| range.contains(*id)).collect())
            }
        }
    }
}

/// The ids that the filter can let through, and whether it asks for nothing else.
fn ids_of(filter: Option<&Expr>) -> (Ids, bool) {
    let Some(expr) = filter else { return (Ids::all(), true) };
    match expr {
        Expr::Compare { field, op, literal: Literal::Number(n) }
            if field == "Id" && n % 1_000_000 == 0 =>
        {
            let Ok(id) = i64::try_from(n / 1_000_000) else { return (Ids::all(), false) };
            match op {
                Op::Eq => (Ids::Set(BTreeSet::from([id])), true),
                Op::Ge => (Ids::Range(id..=i64::MAX), true),
                Op::Le => (Ids::Range(i64::MIN..=id), true),
                Op::Ne => (Ids::all(), false),
            }
        }
        Expr::Compare { .. } => (Ids::all(), false),
        Expr::And(parts) => parts.iter().fold((Ids::all(), true), |(ids, exact), part| {
            let (more, also_exact) = ids_of(Some(part));
            (ids.and(&more), exact && also_exact)
        }),
        Expr::Or(parts) => {
            let mut set = BTreeSet::new();
            let mut all_exact = true;
            for part in parts {
                match ids_of(Some(part)) {
                    (Ids::Set(more), exact) => {
                        set.extend(more);
                        all_exact &= exact;
                    }
                    (Ids::Range(_), _) => return (Ids::all(), false),
                }
            }
            (Ids::Set(set), all_exact)
        }
    }
}

/// A row of the index, written out only when a filter or the answer needs more than its facts.
struct Entry<'a> {
    basis: &'a Basis,
    handle: Handle,
    record: OnceCell<Record>,
}

impl<'a> Entry<'a> {
    fn new(basis: &'a Basis, handle: Handle) -> Entry<'a> {
        Entry { basis, handle, record: OnceCell::new() }
    }

    fn record(&self) -> &Record {
        self.record.get_or_init(|| case_row::search_row(self.basis, &self.handle.case(self.basis)))
    }
}

impl Row for Entry<'_> {
    fn value(&self, field: &str) -> Option<Cow<'_, Value>> {
        let facts = self.handle.facts();
        let quick = match field {
            "Id" => Value::Int(facts.id),
            "OfficeId" => Value::Int(facts.office),
            "AssignmentType" => facts.assignment.into(),
            _ => match Moved::ALL.into_iter().find(|which| which.field() == field) {
                Some(which) => facts.dates.get(which).map(Ticks::local).into(),
                None => return self.record().get(field).map(Cow::Borrowed),
            },
        };
        Some(Cow::Owned(quick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> (Ids, bool) {
        ids_of(Some(&odata::filter(text).unwrap()))
    }

    #[test]
    fn ids_are_read_from_a_filter() {
        assert_eq!(ids("Id ge 5"), (Ids::Range(5..=i64::MAX), true));
        assert_eq!(ids("Id ge 5 and Id le 9"), (Ids::Range(5..=9), true));
        assert_eq!(ids("Id eq 5 or Id eq 9"), (Ids::Set(BTreeSet::from([5, 9])), true));
        assert_eq!(ids("(Id eq 5 or Id eq 9) and Id ge 6"), (Ids::Set(BTreeSet::from([9])), true));
        assert_eq!(ids("Id ge 5 and Office eq 'x'"), (Ids::Range(5..=i64::MAX), false));
        assert_eq!(ids("Id eq 5 or Office eq 'x'"), (Ids::all(), false));
    }
}
