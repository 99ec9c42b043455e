//! The calls that a resource file describes.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{
    Address, Answer as Shape, Catalog, Column, Group, Method, Origin, Paging as Documented, Read,
    Resource, Scalar, Windows,
};
use crate::decode::{Param, Params};
use crate::error::{Error, Kind, Result};
use crate::source::{
    self, Expected, Filter, Identity, OrderBy, PagePlan, Paging, Pardons, Query, Request,
};
use crate::ticks::Ticks;

/// The longest window of a list by time: few calls, and none that is too much for the source.
const WINDOW: SignedDuration = SignedDuration::from_hours(365 * 24);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Of the day that windows reach behind now so much has to be left by the service's `Date`.
pub(super) const HALF_A_DAY: SignedDuration = SignedDuration::from_hours(12);
/// A `Date` farther ahead of our clock is not believed: a window of a year is a call.
pub(super) const FARTHEST_AHEAD: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

pub(crate) fn read_of(resource: &Resource) -> Result<&Read> {
    resource.read.as_ref().ok_or_else(|| {
        Error::new(Kind::Internal, format!("{} is read with its parent", resource.table))
    })
}

pub(super) fn request(read: &Read, params: &Params) -> Result<Request> {
    let request = match read.method {
        Method::Get => Request::get(&read.path, &values(&texts(params)))?,
        Method::Post => Request::post(&read.path, &values(&texts(params)))?,
        Method::Put => Request::new(source::Method::Put, &read.path, &values(&texts(params)))?,
    };
    Ok(request.query(fixed_query(&read.query)))
}

/// Path parameters as text, by name.
fn texts(params: &Params) -> Vec<(&str, String)> {
    params.iter().map(|(name, value)| (name.as_str(), value.to_string())).collect()
}

fn values<'t>(texts: &'t [(&str, String)]) -> Vec<(&'t str, &'t str)> {
    texts.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

/// A list's call with what the service may refuse to know, where there is such a thing.
pub(super) fn request_with_all(read: &Read, params: &Params) -> Result<Option<Request>> {
    if read.optional_query.is_empty() {
        return Ok(None);
    }
    let mut request = request(read, params)?;
    for (name, value) in &read.optional_query {
        request.query = request.query.with(name, value);
    }
    Ok(Some(request))
}

/// The call of a list's second address.
pub(super) fn fallback_plan(
    resource: &Resource,
    address: &Address,
    params: &Params,
) -> Result<PagePlan> {
    let request = Request::get(&address.path, &values(&texts(params)))?;
    Ok(unpaged_plan(resource, request.query(fixed_query(&address.query))))
}

fn fixed_query(fixed: &[(String, String)]) -> Query {
    fixed.iter().fold(Query::new(), |query, (name, value)| query.with(name, value))
}

/// What the answers of calls for `resource` have to be; `params` are what they were asked by, and the
/// ids among them what a record repeats, if it does.
pub(crate) fn expected(
    catalog: &Catalog,
    resource: &Resource,
    shape: Shape,
    params: &Params,
) -> Expected {
    let model = resource.model.as_deref().and_then(|table| catalog.get(table));
    let columns = resource.columns.iter().chain(model.iter().flat_map(|model| &model.columns));
    let own = columns.filter(|c| matches!(c.origin, Origin::Field | Origin::Path));
    let lists = catalog.children(&resource.table).filter_map(|child| match &child.group {
        Group::Child(of) => Some(&of.field),
        _ => None,
    });
    let fields = own.filter_map(|column| column.path.first()).chain(lists);
    let asked = params.iter().filter_map(|(name, param)| match param {
        Param::Int(id) => Some((repeating(resource, name)?.to_owned(), *id)),
        Param::Text(_) => None,
    });
    Expected {
        table: resource.table.clone(),
        shape: match shape {
            Shape::Record => source::Shape::Record,
            Shape::Scalar => source::Shape::Scalar,
            Shape::List => source::Shape::List,
        },
        fields: fields.chain(&resource.leave_out).cloned().collect(),
        asked: asked.collect(),
        pardons: Pardons::Nothing,
    }
}

/// The field in which a record repeats a path parameter: the column says so, and of cases it always
/// has the same name.
fn repeating<'r>(resource: &'r Resource, param: &str) -> Option<&'r str> {
    const CASE: (&str, &str) = ("case_id", "CaseId");
    let column = resource.column(param).filter(|column| column.origin == Origin::Path)?;
    match column.path.as_slice() {
        [field] => Some(field),
        [] if param == CASE.0 => {
            let another = resource.columns.iter().any(|c| c.path == [CASE.1]);
            (!another).then_some(CASE.1)
        }
        _ => None,
    }
}

/// How a list is paged, from its resource file.
pub(super) fn page_plan(resource: &Resource, read: &Read, mut request: Request) -> PagePlan {
    let identity = identity(resource);
    match (read.paging, &read.order) {
        (Documented::Odata, Some(order)) => {
            let whole_number = resource
                .columns
                .iter()
                .any(|c| c.path == [order.clone()] && c.kind.scalar == Scalar::Int);
            let paging =
                if whole_number && resource.key.iter().any(|k| is_field(resource, k, order)) {
                    Paging::Keyset { field: Arc::from(order.as_str()) }
                } else {
                    request.query.order_by = Some(OrderBy::asc(order));
                    Paging::Skip
                };
            PagePlan { request, paging, identity, count: true }
        }
        _ => unpaged_plan(resource, request),
    }
}

/// The windows of a list by time, from `since` to a day behind `now`, because the source's clock may
/// be ahead: the first and the last instant of each, both included.
pub(super) fn windows(since: Timestamp, now: Timestamp) -> Vec<(Timestamp, Timestamp)> {
    let end = now + DAY;
    let mut all = Vec::new();
    let mut start = since;
    while start < end {
        let last = start.checked_add(WINDOW).map_or(end, |last| last.min(end));
        all.push((start, last));
        start = last;
    }
    all
}

/// The pages of one window.
pub(super) fn window_plan(
    resource: &Resource,
    read: &Read,
    windows: &Windows,
    (start, end): (Timestamp, Timestamp),
) -> Result<PagePlan> {
    // The source counts in 100 ns.
    let body = serde_json::json!({
        windows.start.as_str(): Ticks::from(start).to_string(),
        windows.end.as_str(): Ticks::from(end).to_string(),
    });
    Ok(PagePlan {
        request: request(read, &Params::new())?.body(body.to_string()),
        paging: Paging::Body {
            offset: Arc::from(windows.offset.as_str()),
            limit: Arc::from(windows.limit.as_str()),
        },
        identity: identity(resource),
        count: false,
    })
}

/// The list that names the scopes of a table.
pub(super) fn naming_plan(resource: &Resource, path: &str) -> Result<PagePlan> {
    let read = Address { path: path.to_owned(), query: Vec::new() };
    fallback_plan(resource, &read, &Params::new())
}

/// A list for which no paging is documented.
fn unpaged_plan(resource: &Resource, request: Request) -> PagePlan {
    let identity = identity(resource);
    PagePlan { request, paging: Paging::Undocumented, identity, count: false }
}

/// What tells the records of a list apart: the fields of its key, or nothing where their order
/// completes it.
fn identity(resource: &Resource) -> Identity {
    let columns: Vec<&Column> =
        resource.key.iter().filter_map(|key| resource.column(key)).collect();
    if columns.iter().any(|column| column.origin == Origin::Position) {
        return Identity::Lines;
    }
    let fields = columns.iter().filter_map(|column| column.path.first());
    Identity::Fields(fields.map(|field| Arc::from(field.as_str())).collect())
}

fn is_field(resource: &Resource, column: &str, field: &str) -> bool {
    resource.column(column).is_some_and(|c| c.path == [field.to_owned()])
}

pub(super) fn search_plan(
    catalog: &Catalog,
    resource: &Resource,
    filter: Option<Filter>,
) -> Result<PagePlan> {
    let (read, params) = (read_of(resource)?, Params::new());
    let mut request =
        request(read, &params)?.expecting(expected(catalog, resource, Shape::List, &params));
    request.query.filter = filter;
    Ok(page_plan(resource, read, request))
}
