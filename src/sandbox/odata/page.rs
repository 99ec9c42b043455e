//! Filtering, ordering and cutting a list into the page that was asked for.

use super::super::api::answer::Refusal;
use super::super::faults::Twist;
use super::evaluate::{Row, matches};
use super::{DEFAULT_TOP, Query};

/// How an endpoint pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The largest `$top` that is taken; beyond it the answer is 400.
    pub(crate) max_top: usize,
    /// The endpoint reads no `$` parameter at all and answers with everything.
    pub(crate) ignores_paging: bool,
    /// Only `$top` and `$skip` are read.
    pub(crate) skip_only: bool,
}

impl Limits {
    pub(crate) fn odata(max_top: usize) -> Limits {
        Limits { max_top, ignores_paging: false, skip_only: false }
    }

    /// The same as a test has twisted it.
    pub(crate) fn twisted(self, twist: Twist) -> Limits {
        Limits {
            max_top: twist.max_top.unwrap_or(self.max_top),
            ignores_paging: self.ignores_paging || twist.ignore_paging,
            skip_only: self.skip_only || twist.skip_only,
        }
    }
}

/// One page of rows.
#[derive(Debug)]
pub(crate) struct Page<R> {
    /// All rows that match, where the call asked for it.
    pub(crate) count: Option<usize>,
    pub(crate) rows: Vec<R>,
}

/// Cuts the page. `rows` come in the endpoint's own order, which is kept where no `$orderby` is
/// given and among rows that tie.
pub(crate) fn page<R: Row>(
    rows: impl Iterator<Item = R>,
    query: &Query,
    limits: Limits,
) -> Result<Page<R>, Refusal> {
    if limits.ignores_paging {
        return Ok(Page { count: None, rows: rows.collect() });
    }
    let top = query.top.unwrap_or(DEFAULT_TOP);
    if top > limits.max_top {
        return Err(Refusal::bad_request(format!(
            "The value {top} of $top is too large; at most {} are returned",
            limits.max_top
        )));
    }
    let full = !limits.skip_only;
    let order = query.orderby.as_ref().filter(|_| full);
    let filter = query.filter.as_ref().filter(|_| full);
    let count = query.count && full;
    // In the endpoint's own order nothing behind the page needs to be looked at.
    let enough =
        if order.is_none() && !count { query.skip.saturating_add(top) } else { usize::MAX };

    let mut found = Vec::new();
    for row in rows {
        if found.len() >= enough {
            break;
        }
        if filter.map_or(Ok(true), |expr| matches(expr, &row))? {
            found.push(row);
        }
    }
    if let Some((column, descending)) = order {
        sort(&mut found, column, *descending)?;
    }
    if let (Some(select), Some(row)) = (query.select.as_ref().filter(|_| full), found.first())
        && let Some(name) = select.iter().find(|name| row.value(name).is_none())
    {
        return Err(Refusal::bad_request(format!("There is no column '{name}'")));
    }
    let total = found.len();
    let rows = found.into_iter().skip(query.skip).take(top).collect();
    Ok(Page { count: count.then_some(total), rows })
}

fn sort<R: Row>(rows: &mut Vec<R>, column: &str, descending: bool) -> Result<(), Refusal> {
    let mut keyed = Vec::with_capacity(rows.len());
    for row in rows.drain(..) {
        let key = row
            .value(column)
            .ok_or_else(|| Refusal::bad_request(format!("There is no column '{column}'")))?
            .into_owned();
        keyed.push((key, row));
    }
    keyed.sort_by(|(a, _), (b, _)| if descending { b.order(a) } else { a.order(b) });
    rows.extend(keyed.into_iter().map(|(_, row)| row));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::record::Record;
    use super::*;

    fn rows() -> impl Iterator<Item = Record> {
        (1..=150).map(|id| {
            let mut row = Record::default();
            row.put("Id", id).put("Group", id % 3);
            row
        })
    }

    fn ids(raw: &str, limits: Limits) -> (Option<usize>, Vec<i64>) {
        let page = page(rows(), &Query::parse(Some(raw), &[]).unwrap(), limits).unwrap();
        let id = |row: &Record| i64::try_from(row.get("Id").unwrap().number().unwrap() / 1_000_000);
        (page.count, page.rows.iter().map(|row| id(row).unwrap()).collect())
    }

    #[test]
    fn without_top_a_page_has_a_hundred_rows() {
        let (count, found) = ids("", Limits::odata(500));
        assert_eq!((count, found.len()), (None, 100));
    }

    #[test]
    fn keyset_count_order_and_skip_work_together() {
        let raw = "$filter=Id ge 10 and Group eq 0&$orderby=Id desc&$top=2&$skip=1&$count=true";
        assert_eq!(ids(raw, Limits::odata(500)), (Some(47), vec![147, 144]));
    }

    #[test]
    fn a_top_beyond_the_largest_is_refused() {
        let query = Query::parse(Some("$top=501"), &[]).unwrap();
        assert!(page(rows(), &query, Limits::odata(500)).is_err());
        assert!(
            page(rows(), &Query::parse(Some("$orderby=Nope"), &[]).unwrap(), Limits::odata(5000))
                .is_err()
        );
    }

    #[test]
    fn an_endpoint_can_ignore_paging_or_know_only_skip() {
        let twist = Twist { ignore_paging: true, ..Twist::default() };
        assert_eq!(ids("$top=1&$skip=3", Limits::odata(500).twisted(twist)).1.len(), 150);
        let twist = Twist { skip_only: true, ..Twist::default() };
        let raw = "$filter=Id ge 100&$top=2&$skip=3&$count=true";
        assert_eq!(ids(raw, Limits::odata(500).twisted(twist)), (None, vec![4, 5]));
    }
}
