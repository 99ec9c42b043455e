//! The two change feeds (reference 2.2 and 4.2, field notes "RecentlyModified"), in both styles:
//! OData parameters, or `?fromDate=` without paging.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};

use super::super::Shared;
use super::super::faults::Twist;
use super::super::odata::{self, Expr, Limits, Literal, Op, Query};
use super::super::record::{Record, Value};
use super::super::wire::Ticks;
use super::super::world::case::{ChangeDates, Moved};
use super::answer::{self, Answer, Refusal};
use super::strict::date_time_offset;

const FROM_DATE: &str = "fromDate";
/// It reaches this many days back.
const REACH_DAYS: i64 = 365;
const OLDEST: Ticks = Ticks(i64::MIN / 2);

/// `GET /api/Integrations/RecentlyModified/Cases`.
pub(crate) async fn cases(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["Cases - Read"])?;
    let call = Call::parse(&shared, raw.as_deref())?;
    let mut world = shared.world();
    let hidden: Vec<i64> = world.feed_hides.keys().copied().collect();
    for id in &hidden {
        let left = world.feed_hides.get_mut(id).map_or(0, |left| {
            *left = left.saturating_sub(1);
            *left
        });
        if left == 0 {
            world.feed_hides.remove(id);
        }
    }
    let rows = world
        .modified_since(call.since)
        .filter(|(id, _)| !hidden.contains(id))
        .map(|(id, dates)| case_row(id, &dates));
    call.answer(rows, shared.options.max_top.feed, twist)
}

/// `GET /api/Integrations/RecentlyModified/Contacts`.
pub(crate) async fn contacts(
    State(shared): State<Arc<Shared>>,
    Extension(twist): Extension<Twist>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(&["Contacts - Read"])?;
    let call = Call::parse(&shared, raw.as_deref())?;
    let world = shared.world();
    let rows = world.contacts_modified_since(call.since).map(|(id, at)| {
        let mut row = Record::with_capacity(2);
        row.put("ContactId", id).put("ModifiedDate", at);
        row
    });
    call.answer(rows, shared.options.max_top.feed, twist)
}

/// `RecentlyModifiedCase`.
fn case_row(id: i64, dates: &ChangeDates) -> Record {
    let mut row = Record::with_capacity(12);
    row.put("CaseId", id).put("ModifiedDate", dates.modified);
    for which in Moved::ALL {
        // A date that never was is null, or unset, as the platform pleases.
        let never = || if id % 5 == 0 { Value::Unset { zoned: true } } else { Value::Null };
        row.put(which.field(), dates.get(which).map_or_else(never, Value::Zoned));
    }
    row
}

/// A call to a feed.
struct Call {
    query: Query,
    /// Rows before this cannot be in the answer.
    since: Ticks,
    from_date: bool,
}

impl Call {
    fn parse(shared: &Shared, raw: Option<&str>) -> Result<Call, Refusal> {
        let mut query = Query::parse(raw, &[FROM_DATE])?;
        if let Some(text) = query.other(FROM_DATE) {
            let since = date_time_offset(FROM_DATE, text)?;
            if since < shared.server_time().plus_days(-REACH_DAYS) {
                return Err(Refusal::bad_request("fromDate can be at most 365 days back"));
            }
            return Ok(Call { query, since, from_date: true });
        }
        // The feed stands in this order already.
        let in_order = query.orderby.as_ref().is_some_and(|(c, down)| c == "ModifiedDate" && !down);
        if in_order {
            query.orderby = None;
        }
        let since = query.filter.as_ref().map_or(OLDEST, lower_bound);
        Ok(Call { query, since, from_date: false })
    }

    fn answer(&self, rows: impl Iterator<Item = Record>, max_top: usize, twist: Twist) -> Answer {
        let mut limits = Limits::odata(max_top).twisted(twist);
        limits.ignores_paging |= self.from_date;
        let page = odata::page(rows, &self.query, limits)?;
        Ok(answer::page(&page, &self.query))
    }
}

/// The earliest `ModifiedDate` that the filter can let through.
fn lower_bound(expr: &Expr) -> Ticks {
    match expr {
        Expr::And(parts) => parts.iter().map(lower_bound).max().unwrap_or(OLDEST),
        Expr::Or(parts) => parts.iter().map(lower_bound).min().unwrap_or(OLDEST),
        Expr::Compare { field, op: Op::Ge | Op::Eq, literal: Literal::Instant(at) }
            if field == "ModifiedDate" =>
        {
            *at
        }
        Expr::Compare { .. } => OLDEST,
    }
}
