//! OData as the reference describes it (section 1): `$filter`, `$orderby` with one column, `$top`,
//! `$skip`, `$select`, `$inlinecount` and `$count`. What is not understood is refused with 400.

mod evaluate;
mod page;
mod parse;

pub(crate) use evaluate::Row;
pub(crate) use page::{Limits, Page, page};
pub(crate) use parse::{Expr, Literal, Op, filter};

use super::api::answer::Refusal;

/// `$top` where a call names none (reference section 8).
pub(crate) const DEFAULT_TOP: usize = 100;

/// The query of a call, taken apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query {
    pub(crate) filter: Option<Expr>,
    /// Column, and whether descending.
    pub(crate) orderby: Option<(String, bool)>,
    pub(crate) top: Option<usize>,
    pub(crate) skip: usize,
    /// `Some(empty)` is `$select=`: the list of available fields.
    pub(crate) select: Option<Vec<String>>,
    pub(crate) count: bool,
    /// The endpoint's own parameters.
    others: Vec<(String, String)>,
}

impl Query {
    /// Takes a raw query string apart, of an endpoint that has these parameters beside OData's. Doubled and
    /// unknown ones are refused: a caller's slip must not look like a call without them.
    pub(crate) fn parse(raw: Option<&str>, own: &[&str]) -> Result<Query, Refusal> {
        let mut query = Query::default();
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(raw.unwrap_or_default().as_bytes()) {
            if seen.iter().any(|s| *s == name) {
                return Err(Refusal::bad_request(format!("{name} is given twice")));
            }
            seen.push(name.to_string());
            query.take(&name, value.trim(), own)?;
        }
        Ok(query)
    }

    fn take(&mut self, name: &str, value: &str, own: &[&str]) -> Result<(), Refusal> {
        match name {
            "$filter" => self.filter = Some(filter(value)?),
            "$orderby" => self.orderby = Some(orderby(value)?),
            "$top" => self.top = Some(number(name, value)?),
            "$skip" => self.skip = number(name, value)?,
            "$select" => self.select = Some(select(value)),
            "$inlinecount" => match value {
                "allpages" => self.count = true,
                "none" => {}
                _ => return Err(not_understood(name, value)),
            },
            "$count" => match value {
                "true" => self.count = true,
                "false" => {}
                _ => return Err(not_understood(name, value)),
            },
            _ if name.starts_with('$') => {
                return Err(Refusal::bad_request(format!("The query option {name} is not known")));
            }
            _ if own.contains(&name) => self.others.push((name.to_owned(), value.to_owned())),
            _ => {
                return Err(Refusal::bad_request(format!("The parameter '{name}' is not known")));
            }
        }
        Ok(())
    }

    /// The value of one of the endpoint's own parameters.
    pub(crate) fn other(&self, name: &str) -> Option<&str> {
        self.others.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn not_understood(name: &str, value: &str) -> Refusal {
    Refusal::bad_request(format!("The value '{value}' of {name} is not understood"))
}

fn number(name: &str, value: &str) -> Result<usize, Refusal> {
    value.parse().map_err(|_| not_understood(name, value))
}

fn select(value: &str) -> Vec<String> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn orderby(value: &str) -> Result<(String, bool), Refusal> {
    let mut words = value.split_whitespace();
    let column = words.next().ok_or_else(|| not_understood("$orderby", value))?;
    let descending = match words.next() {
        None | Some("asc") => false,
        Some("desc") => true,
        Some(_) => return Err(not_understood("$orderby", value)),
    };
    if words.next().is_some() || column.contains(',') {
        return Err(Refusal::bad_request("$orderby takes exactly one column"));
    }
    Ok((column.to_owned(), descending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_query_is_taken_apart() {
        let raw = "%24filter=Id%20ge%205&$orderby=Id+desc&$top=3&$skip=2&$select=Id,%20Name\
                   &$inlinecount=allpages&fromDate=x";
        let query = Query::parse(Some(raw), &["fromDate"]).unwrap();
        assert!(query.filter.is_some() && query.count);
        assert_eq!(query.orderby, Some(("Id".to_owned(), true)));
        assert_eq!((query.top, query.skip), (Some(3), 2));
        assert_eq!(query.select, Some(vec!["Id".to_owned(), "Name".to_owned()]));
        assert_eq!(query.other("fromDate"), Some("x"));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for raw in [
            "$top=x",
            "$top=-1",
            "$orderby=Id,Name",
            "$orderby=Id up",
            "$orderby=Id asc, Name",
            "$expand=Roles",
            "$inlinecount=some",
            "$top=1&$top=2",
            "own=1&own=2",
            "Own=1",
            "$filter=",
        ] {
            assert!(Query::parse(Some(raw), &["own"]).is_err(), "{raw}");
        }
    }
}
