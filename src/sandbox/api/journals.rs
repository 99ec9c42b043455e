//! The journals of offices, broker companies and the chain (reference 4.7, field notes "Journals").

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use super::super::Shared;
use super::super::odata::{DEFAULT_TOP, Query};
use super::super::record::Record;
use super::super::records::journal as records;
use super::super::wire::{self, Ticks};
use super::super::world::journals::{Journal, Level, Line, day_start};
use super::answer::{self, Answer, Refusal};
use super::strict::NoQuery;

/// How the journal endpoints page: nothing is documented but that it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalPaging {
    /// Everything is returned, whatever is asked.
    #[default]
    IgnoresPaging,
    /// `$top` and `$skip` are read, and a call without `$top` gets the default 100.
    SkipTop,
    /// At most this many lines are returned, whatever `$top` says; whether `$skip` is read.
    Truncates { lines: usize, skips: bool },
}

/// A journal that cannot be read at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeavyJournal {
    /// Calls that this office's lines are a part of are concerned, at every level.
    pub office_id: i64,
    /// A call for more days than this gets no answer.
    pub days: i64,
    #[serde(default)]
    pub answer: HeavyAnswer,
}

/// What becomes of a call for too many days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeavyAnswer {
    /// 504, at once.
    #[default]
    GatewayTimeout,
    /// 503, at once.
    Unavailable,
    /// No answer within an hour.
    Never,
}

/// Whole days, both included.
struct Period {
    from: NaiveDate,
    to: NaiveDate,
}

impl Period {
    fn parse(from: Option<&str>, to: Option<&str>) -> Result<Period, Refusal> {
        let day = |name: &str, text: Option<&str>| {
            let text = text.ok_or_else(|| Refusal::bad_request(format!("{name} is required")))?;
            wire::day(text).ok_or_else(|| {
                Refusal::bad_request(format!("The value '{text}' of {name} is no day"))
            })
        };
        let period = Period { from: day("fromDate", from)?, to: day("toDate", to)? };
        if period.to < period.from {
            return Err(Refusal::bad_request("toDate is before fromDate"));
        }
        Ok(period)
    }

    fn days(&self) -> i64 {
        (self.to - self.from).num_days() + 1
    }

    /// The first instant, and the first one behind the last.
    fn instants(&self) -> (Ticks, Ticks) {
        (day_start(self.from), day_start(self.to.succ_opt().unwrap_or(self.to)))
    }
}

/// What reference 4.7 documents: nothing of revenue, its sums and settlements.
fn needed(journal: Journal) -> &'static [&'static str] {
    match journal {
        Journal::CaseJournals | Journal::DepotJournals => &["OfficeAdministration - Read"],
        Journal::RevenueJournals | Journal::SettlementJournals => &[],
    }
}

/// `GET /api/{Offices|BrokerCompanies|Chain}/{id}/{...Journals}?fromDate=&toDate=`.
pub(crate) async fn lines(
    (level, journal): (Level, Journal),
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    RawQuery(raw): RawQuery,
) -> Answer {
    shared.need(needed(journal))?;
    let offices = shared.journal_offices(level, &id)?;
    let query = Query::parse(raw.as_deref(), &["fromDate", "toDate"])?;
    if query.filter.is_some() || query.orderby.is_some() || query.select.is_some() || query.count {
        return Err(Refusal::bad_request("A journal takes a period, $top and $skip"));
    }
    let period = Period::parse(query.other("fromDate"), query.other("toDate"))?;
    let heavy = shared.knobs().heavy_journal;
    if let Some(heavy) = heavy
        && offices.contains(&heavy.office_id)
        && period.days() > heavy.days
    {
        return Ok(too_heavy(heavy.answer).await.into_response());
    }
    let lines = shared.read_journal(journal, &offices, &period);
    let lines = lines.into_iter();
    let paging = shared.knobs().journal_paging;
    let lines: Vec<(i64, Line)> = match paging {
        JournalPaging::IgnoresPaging => lines.collect(),
        JournalPaging::SkipTop => {
            let top = query.top.unwrap_or(DEFAULT_TOP);
            if top > shared.options.max_top.lists {
                return Err(Refusal::bad_request(format!("The value {top} of $top is too large")));
            }
            lines.skip(query.skip).take(top).collect()
        }
        JournalPaging::Truncates { lines: most, skips } => {
            lines.skip(if skips { query.skip } else { 0 }).take(most).collect()
        }
    };
    let (basis, all_offices) = {
        let world = shared.world();
        (world.basis.clone(), world.offices().cloned().collect::<Vec<_>>())
    };
    let rows: Vec<Record> = lines
        .iter()
        .filter_map(|(office, line)| {
            let office = all_offices.iter().find(|known| known.id == *office)?;
            Some(records::line(&basis, journal, office, line))
        })
        .collect();
    let mut out = Vec::with_capacity(rows.len() * 512 + 2);
    answer::write_page(&mut out, None, rows.iter(), None);
    Ok(answer::json(out))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct SumOf {
    from_date: String,
    to_date: String,
}

/// `PUT /api/{Offices|BrokerCompanies|Chain}/{id}/RevenueJournals/Sum`: a control total. It is
/// summed where the lines are kept, so no journal is too heavy for it.
pub(crate) async fn sum(
    level: Level,
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    _: NoQuery,
    body: Bytes,
) -> Answer {
    let offices = shared.journal_offices(level, &id)?;
    let asked: SumOf = super::read(&body)?;
    let period = Period::parse(Some(day_of(&asked.from_date)), Some(day_of(&asked.to_date)))?;
    let lines = shared.read_journal(Journal::RevenueJournals, &offices, &period);
    Ok(answer::record(&records::sum(lines.iter().map(|(_, line)| line))))
}

/// A time of day behind the day is taken, and does not count.
fn day_of(text: &str) -> &str {
    match text.split_once('T') {
        Some((day, _)) if Ticks::parse(text, true).is_some() => day,
        _ => text,
    }
}

async fn too_heavy(answer: HeavyAnswer) -> Refusal {
    let status = match answer {
        HeavyAnswer::GatewayTimeout => StatusCode::GATEWAY_TIMEOUT,
        HeavyAnswer::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        HeavyAnswer::Never => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            StatusCode::GATEWAY_TIMEOUT
        }
    };
    Refusal::new(status, "The journal took too long")
}

impl Shared {
    /// The offices behind an id of a level, or 404.
    fn journal_offices(&self, level: Level, id: &str) -> Result<Vec<i64>, Refusal> {
        let number = id.parse().ok();
        let offices = number.map(|id| self.world().journal_offices(level, id));
        offices.filter(|list| !list.is_empty()).ok_or_else(|| {
            let what = format!("{} {id} does not exist", level.segment());
            Refusal::new(StatusCode::NOT_FOUND, what)
        })
    }

    /// The lines of a period; the world goes on while they are made.
    fn read_journal(&self, journal: Journal, offices: &[i64], period: &Period) -> Vec<(i64, Line)> {
        let (basis, journals) = {
            let world = self.world();
            (world.basis.clone(), world.journals.clone())
        };
        journals.read(&basis, journal, offices, period.instants())
    }
}
