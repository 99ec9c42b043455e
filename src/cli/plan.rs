//! `casemirror plan`: what the next `sync` would call.

use std::time::Duration;

use jiff::Timestamp;

use super::output;
use crate::config::Config;
use crate::daemon::Printer;
use crate::error::Result;
use crate::forecast::{self, Forecast, Unread};
use crate::session::Session;

pub(crate) async fn execute(session: &Session, out: &Printer) -> Result<u8> {
    let held = session.ask_feeds().await?;
    let forecast = tokio::task::block_in_place(|| {
        let conn = session.store().connection()?;
        forecast::forecast(&conn, session.config(), session.catalog(), Timestamp::now())
    })?;
    let mut text = text(&forecast, session.config());
    for why in held {
        text.push_str(&format!(
            "Not counted yet: what has changed since the last poll, as {}\n",
            why.chain()
        ));
    }
    out.print(&text)?;
    Ok(0)
}

fn text(forecast: &Forecast, config: &Config) -> String {
    let rate = config.limits.requests_per_second;
    let mut table = output::table(&["", "scopes", "calls", "time"]);
    for line in &forecast.feeds {
        let time = forecast::feed_time(line.calls, config.feed.calls, config.feed.per);
        table.add_row([
            line.what.clone(),
            line.scopes.to_string(),
            line.calls.to_string(),
            shown(time),
        ]);
    }
    for line in &forecast.lines {
        table.add_row([
            line.what.clone(),
            line.scopes.to_string(),
            line.calls.to_string(),
            shown(forecast::time(line.calls, rate)),
        ]);
    }
    let feed_calls: u64 = forecast.feeds.iter().map(|line| line.calls).sum();
    let feed_time = forecast::feed_time(feed_calls, config.feed.calls, config.feed.per);
    let time = forecast::time(forecast.calls(), rate) + feed_time;
    table.add_row([
        "in all".to_owned(),
        String::new(),
        (forecast.calls() + feed_calls).to_string(),
        shown(time),
    ]);
    output::align_numbers(&mut table, 1..4);
    let mut text = format!(
        "The next sync calls:\n{table}\nThe time is the least that {rate} calls a second \
         (limits.requests_per_second) and {} calls to the\nchange feeds in {} (feed.calls, feed.per) \
         leave.\n",
        config.feed.calls,
        humantime::format_duration(config.feed.per)
    );
    if forecast.unlisted {
        text.push_str(
            "Not counted yet: cases that did not change for a year, because no listing has been read.\n",
        );
    }
    for (Unread { table, cases }, tables) in &forecast.uncounted {
        let of = match cases {
            Some(1) => " of 1 case".to_owned(),
            Some(cases) => format!(" of {cases} cases"),
            None => String::new(),
        };
        text.push_str(&format!(
            "Not counted yet, because {table} has not been read{of}: {}\n",
            tables.join(", ")
        ));
    }
    if forecast.waiting > 0 {
        let (scopes, wait, are) = match forecast.waiting {
            1 => ("scope", "waits", "is"),
            _ => ("scopes", "wait", "are"),
        };
        text.push_str(&format!(
            "{} {scopes} failed or {wait} for the search, and {are} tried again later; `casemirror \
             status` says why.\n",
            forecast.waiting
        ));
    }
    text
}

/// To the second, as people say it; less than one is `< 1s`.
fn shown(time: Duration) -> String {
    match time.as_secs() {
        0 if time.is_zero() => "-".to_owned(),
        0 => "< 1s".to_owned(),
        seconds => humantime::format_duration(Duration::from_secs(seconds)).to_string(),
    }
}
