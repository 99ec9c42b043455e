//! OData, built from typed pieces (reference 1): filters, order, paging, and the encoding of paths
//! and queries. Text reaches the wire only through here, so quoting is right by construction.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::{Error, Kind, Result};
use crate::ticks::Ticks;

/// What stays as it is in a query: the unreserved characters and those that read well and mean
/// nothing to a server there. `&`, `=`, `+` and `#` would.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'$')
    .remove(b'(')
    .remove(b')')
    .remove(b',')
    .remove(b':')
    .remove(b'/');

/// What stays as it is in a path segment: the unreserved characters.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A literal of a filter expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    Int(i64),
    /// Written in single quotes, its own quotes doubled.
    Text(String),
    Bool(bool),
    /// `datetime'2022-04-28T09:26:41.5334824Z'`: UTC, exact to 100 ns.
    Instant(Ticks),
}

impl From<i64> for Literal {
    fn from(value: i64) -> Self {
        Literal::Int(value)
    }
}

impl From<&str> for Literal {
    fn from(value: &str) -> Self {
        Literal::Text(value.to_owned())
    }
}

impl From<String> for Literal {
    fn from(value: String) -> Self {
        Literal::Text(value)
    }
}

impl From<bool> for Literal {
    fn from(value: bool) -> Self {
        Literal::Bool(value)
    }
}

impl From<Ticks> for Literal {
    fn from(value: Ticks) -> Self {
        Literal::Instant(value)
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Int(value) => write!(f, "{value}"),
            Literal::Text(value) => write!(f, "'{}'", value.replace('\'', "''")),
            Literal::Bool(value) => write!(f, "{value}"),
            Literal::Instant(value) => write!(f, "datetime'{value}'"),
        }
    }
}

/// A filter expression with the operators the reference lists. It is never empty, so it can never
/// silently mean "everything".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filter(Node);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Compare {
        field: String,
        operator: &'static str,
        literal: Literal,
    },
    /// At least two parts each.
    And(Vec<Node>),
    Or(Vec<Node>),
}

impl Filter {
    /// `field eq literal`
    pub(crate) fn eq(field: &str, literal: impl Into<Literal>) -> Self {
        Self::compare(field, "eq", literal.into())
    }

    /// `field ne literal`
    pub(crate) fn ne(field: &str, literal: impl Into<Literal>) -> Self {
        Self::compare(field, "ne", literal.into())
    }

    /// `field ge literal`
    pub(crate) fn ge(field: &str, literal: impl Into<Literal>) -> Self {
        Self::compare(field, "ge", literal.into())
    }

    /// `field le literal`
    pub(crate) fn le(field: &str, literal: impl Into<Literal>) -> Self {
        Self::compare(field, "le", literal.into())
    }

    fn compare(field: &str, operator: &'static str, literal: Literal) -> Self {
        Filter(Node::Compare { field: field.to_owned(), operator, literal })
    }

    /// `field eq a or field eq b or ...`; `None` without any value, because a filter that lets
    /// nothing through is no filter the source knows.
    pub(crate) fn any_of<L: Into<Literal>>(
        field: &str,
        values: impl IntoIterator<Item = L>,
    ) -> Option<Self> {
        values.into_iter().map(|value| Filter::eq(field, value)).reduce(Filter::or)
    }

    /// Both.
    #[must_use]
    pub(crate) fn and(self, other: Filter) -> Self {
        let (mut parts, more) = match (self.0, other.0) {
            (Node::And(parts), Node::And(more)) => (parts, more),
            (Node::And(parts), other) => (parts, vec![other]),
            (first, Node::And(more)) => (vec![first], more),
            (first, other) => (vec![first], vec![other]),
        };
        parts.extend(more);
        Filter(Node::And(parts))
    }

    /// Either.
    #[must_use]
    pub(crate) fn or(self, other: Filter) -> Self {
        let (mut parts, more) = match (self.0, other.0) {
            (Node::Or(parts), Node::Or(more)) => (parts, more),
            (Node::Or(parts), other) => (parts, vec![other]),
            (first, Node::Or(more)) => (vec![first], more),
            (first, other) => (vec![first], vec![other]),
        };
        parts.extend(more);
        Filter(Node::Or(parts))
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, operator) = match self {
            Node::Compare { field, operator, literal } => {
                return write!(f, "{field} {operator} {literal}");
            }
            Node::And(parts) => (parts, " and "),
            Node::Or(parts) => (parts, " or "),
        };
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                f.write_str(operator)?;
            }
            match part {
                Node::Compare { .. } => write!(f, "{part}")?,
                Node::And(_) | Node::Or(_) => write!(f, "({part})")?,
            }
        }
        Ok(())
    }
}

/// The one column a list is ordered by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OrderBy {
    pub(crate) field: String,
    direction: &'static str,
}

impl OrderBy {
    pub(crate) fn asc(field: &str) -> Self {
        OrderBy { field: field.to_owned(), direction: "asc" }
    }

    pub(crate) fn desc(field: &str) -> Self {
        OrderBy { field: field.to_owned(), direction: "desc" }
    }
}

impl fmt::Display for OrderBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.direction)
    }
}

/// The query of a request: the OData parameters and whatever else an endpoint takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) filter: Option<Filter>,
    pub(crate) order_by: Option<OrderBy>,
    pub(crate) top: Option<u32>,
    pub(crate) skip: Option<u64>,
    /// `$inlinecount=allpages`: the answer becomes `{Count, Results}`.
    pub(crate) inline_count: bool,
    pub(crate) select: Vec<String>,
    /// Other parameters, in this order, before the OData ones.
    pub(crate) extra: Vec<(String, String)>,
}

impl Query {
    /// Without any parameter.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn filter(mut self, filter: impl Into<Option<Filter>>) -> Self {
        self.filter = filter.into();
        self
    }

    #[must_use]
    pub(crate) fn order_by(mut self, order_by: impl Into<Option<OrderBy>>) -> Self {
        self.order_by = order_by.into();
        self
    }

    #[must_use]
    pub(crate) fn top(mut self, top: impl Into<Option<u32>>) -> Self {
        self.top = top.into();
        self
    }

    #[must_use]
    pub(crate) fn skip(mut self, skip: impl Into<Option<u64>>) -> Self {
        self.skip = skip.into();
        self
    }

    /// One more parameter that is not OData's.
    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.extra.push((name.to_owned(), value.into()));
        self
    }

    /// Percent-encoded, without the question mark; empty without parameters.
    pub(crate) fn encode(&self) -> String {
        let mut pairs: Vec<(&str, String)> =
            self.extra.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        if let Some(filter) = &self.filter {
            pairs.push(("$filter", filter.to_string()));
        }
        if let Some(order_by) = &self.order_by {
            pairs.push(("$orderby", order_by.to_string()));
        }
        if let Some(top) = self.top {
            pairs.push(("$top", top.to_string()));
        }
        if let Some(skip) = self.skip {
            pairs.push(("$skip", skip.to_string()));
        }
        if self.inline_count {
            pairs.push(("$inlinecount", "allpages".to_owned()));
        }
        if !self.select.is_empty() {
            pairs.push(("$select", self.select.join(",")));
        }
        let encoded: Vec<String> = pairs
            .iter()
            .map(|(name, value)| {
                format!(
                    "{}={}",
                    utf8_percent_encode(name, QUERY),
                    utf8_percent_encode(value, QUERY)
                )
            })
            .collect();
        encoded.join("&")
    }
}

/// Fills the placeholders of a path template (`/api/Cases/{case_id}/Roles`) and percent-encodes
/// everything between the slashes.
///
/// # Errors
/// [`Kind::Internal`] when a placeholder has no value, or a value would change the path itself
/// (empty, `.` or `..`), or a brace is left open.
pub(crate) fn render_path(template: &str, values: &[(&str, &str)]) -> Result<String> {
    let mut path = String::with_capacity(template.len() + 16);
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        encode_literal(&mut path, &rest[..open]);
        let tail = &rest[open + 1..];
        let Some(close) = tail.find('}') else {
            return Err(broken(template, "has an open brace"));
        };
        let name = &tail[..close];
        let value = values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match value {
            None => return Err(broken(template, &format!("lacks a value for {{{name}}}"))),
            Some("" | "." | "..") => {
                return Err(broken(
                    template,
                    &format!("cannot take the value given for {{{name}}}"),
                ));
            }
            Some(value) => path.extend(utf8_percent_encode(value, SEGMENT)),
        }
        rest = &tail[close + 1..];
    }
    encode_literal(&mut path, rest);
    Ok(path)
}

fn encode_literal(path: &mut String, literal: &str) {
    for (index, segment) in literal.split('/').enumerate() {
        if index > 0 {
            path.push('/');
        }
        path.extend(utf8_percent_encode(segment, SEGMENT));
    }
}

fn broken(template: &str, what: &str) -> Error {
    Error::new(Kind::Internal, format!("the path {template} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;
    use proptest::prelude::*;

    fn decoded(query: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(query.as_bytes()).into_owned().collect()
    }

    #[test]
    fn the_reference_s_signed_case_filter_is_built() {
        let from = Ticks::new(16_511_380_015_334_824);
        let filter = Filter::ge("CaseActivatedDate", from)
            .and(Filter::le("CaseActivatedDate", from.next()))
            .and(Filter::ne("AssignmentType", "Valuation"))
            .and(Filter::eq("OfficeId", 3));
        assert_eq!(
            filter.to_string(),
            "CaseActivatedDate ge datetime'2022-04-28T09:26:41.5334824Z' and \
             CaseActivatedDate le datetime'2022-04-28T09:26:41.5334825Z' and \
             AssignmentType ne 'Valuation' and OfficeId eq 3"
        );
    }

    #[test]
    fn mixed_operators_get_parentheses() {
        let either = Filter::eq("Type", "Owner").or(Filter::eq("Type", "Seller"));
        let filter = either.and(Filter::eq("Active", true)).or(Filter::eq("Id", 0));
        assert_eq!(
            filter.to_string(),
            "((Type eq 'Owner' or Type eq 'Seller') and Active eq true) or Id eq 0"
        );
    }

    #[test]
    fn a_choice_of_ids_is_flat_and_never_empty() {
        let filter = Filter::any_of("Id", [17, 18, 19]).unwrap();
        assert_eq!(filter.to_string(), "Id eq 17 or Id eq 18 or Id eq 19");
        assert_eq!(Filter::any_of("Id", Vec::<i64>::new()), None);
    }

    #[test]
    fn a_query_is_percent_encoded_and_keeps_its_dollars() {
        let mut query = Query::new()
            .with("returnOnlyExisting", "true")
            .filter(Filter::eq("Name", "O'Hara & Søn+1"))
            .order_by(OrderBy::asc("Id"))
            .top(1000)
            .skip(200);
        query.inline_count = true;
        query.select = vec!["Id".to_owned(), "Status".to_owned()];
        assert_eq!(
            query.encode(),
            "returnOnlyExisting=true&$filter=Name%20eq%20%27O%27%27Hara%20%26%20S%C3%B8n%2B1%27\
             &$orderby=Id%20asc&$top=1000&$skip=200&$inlinecount=allpages&$select=Id,Status"
        );
        assert_eq!(Query::new().encode(), "");
    }

    #[test]
    fn a_path_takes_its_values_and_encodes_them() {
        let path = render_path(
            "/api/Conditions/Cases/{case_id}/Costs/{type}",
            &[("type", "Boligkjøperforsikring/1"), ("case_id", "17")],
        );
        assert_eq!(path.unwrap(), "/api/Conditions/Cases/17/Costs/Boligkj%C3%B8perforsikring%2F1");
        assert_eq!(render_path("/api/Bøker/{id}", &[("id", "1")]).unwrap(), "/api/B%C3%B8ker/1");
    }

    #[test]
    fn a_path_that_would_lead_elsewhere_is_refused() {
        for value in ["", ".", ".."] {
            let refused = render_path("/api/Cases/{id}/Roles", &[("id", value)]).unwrap_err();
            assert_eq!(refused.kind(), Kind::Internal);
        }
        assert!(render_path("/api/Cases/{id}", &[("case_id", "1")]).is_err());
        assert!(render_path("/api/Cases/{id", &[("id", "1")]).is_err());
    }

    proptest! {
        #[test]
        fn every_text_arrives_as_it_was(text: String, name in "[A-Za-z]{1,8}") {
            let query = Query::new().with(&name, text.clone()).filter(Filter::eq(&name, text.clone()));
            let arrived = decoded(&query.encode());
            prop_assert_eq!(&arrived[0], &(name.clone(), text.clone()));
            let literal = text.replace('\'', "''");
            let filter = format!("{name} eq '{literal}'");
            prop_assert_eq!(&arrived[1], &("$filter".to_owned(), filter));
        }

        #[test]
        fn a_value_stays_one_segment(value in "\\PC{1,20}") {
            prop_assume!(value != "." && value != "..");
            let path = render_path("/a/{v}/b", &[("v", &value)]).unwrap();
            let url = url::Url::parse(&format!("http://host{path}")).unwrap();
            let segments: Vec<&str> = url.path_segments().unwrap().collect();
            prop_assert_eq!(segments.len(), 3);
            let back = percent_encoding::percent_decode_str(segments[1]).decode_utf8().unwrap();
            prop_assert_eq!(back, value);
        }
    }

    /// Whatever a text is, it is one literal in the filter, and the filter one parameter in the address.
    #[test]
    fn fuzz_odata_quoting() {
        bolero::check!().with_type::<(String, String)>().with_test_time(fuzz::TIME).for_each(
            |(one, other)| {
                let filter =
                    Filter::eq("Name", one.as_str()).and(Filter::ne("City", other.as_str()));
                let text = filter.to_string();
                let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
                assert_eq!(text, format!("Name eq {} and City ne {}", quoted(one), quoted(other)));
                // A quote that is not doubled ends a literal: there are two of them.
                assert_eq!(text.matches('\'').count() % 2, 0);
                let address = Query { filter: Some(filter), ..Query::default() }.encode();
                assert!(address.is_ascii() && !address.contains(['&', '#', '+', ' ', '"', '<']));
                let url = url::Url::parse(&format!("http://h/p?{address}")).unwrap();
                let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
                assert_eq!(pairs, [("$filter".to_owned(), text)]);
            },
        );
    }
}
