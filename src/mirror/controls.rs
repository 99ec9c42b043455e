//! Whether there is a control behind the revenue journals: what is said of the months that are not their
//! sum, or have none (docs/architecture.md, "Control totals").

use super::state::{State, batch};
use super::statuses::ResourceRow;
use crate::error::Result;
use crate::scope::{DueReason, REVENUE};
use crate::sql;
use duckdb::Connection;

/// Key of `sync.meta`: what is wrong with the controls, in words, below what that was said of.
const PROBLEMS: &str = "control_problems";
/// And the months that it was said of, each with why.
const MONTHS: &str = "control_months";
/// Scopes that are named of many.
const MOST_NAMED: usize = 3;

/// SQL for what decides about the controls: while it stands, they say what they said. Adding up the lines
/// of all months takes seconds, and a status is asked often.
const BASIS: &str = "\
    SELECT md5(concat_ws('|', \
      (SELECT concat_ws(' ', count(*), count(due), count(*) FILTER (complete), \
         count(*) FILTER (wanted), max(read_at), max(sent_at), max(doubted_at), count(doubted_at), \
         count(no_control_at)) FROM sync.journal_months \
       WHERE table_name IN ('revenue_journals', 'revenue_journal_sums')), \
      (SELECT string_agg(status, ' ' ORDER BY table_name) FROM sync.resources \
       WHERE table_name IN ('revenue_journals', 'revenue_journal_annotations', \
         'revenue_journal_sums')), \
      (SELECT concat_ws(' ', count(*), max(last_at)) FROM sync.rejects WHERE resolved_at IS NULL \
         AND table_name IN ('revenue_journals', 'revenue_journal_annotations', \
           'revenue_journal_sums')), \
      (SELECT count(gone_at) FROM sync.journal_scopes), \
      (SELECT count(*) FROM sync.failures WHERE table_name = 'revenue_journals')))";

/// What the controls of the journals say.
pub(crate) struct Controls<'c> {
    pub(super) conn: &'c Connection,
}

impl Controls<'_> {
    /// What is wrong with the controls of the revenue journals, in words: months that do not add up to the
    /// platform's sum, and months that have none. What waits to be read, and what did not fit, is told
    /// elsewhere. Of journals that are not read nothing is.
    pub(crate) fn control_problems(&self) -> Result<Vec<String>> {
        if !self.are_journals_read()? {
            return Ok(Vec::new());
        }
        match self.kept(&self.basis()?)? {
            Some(problems) => Ok(problems),
            None => Ok(told_all(&self.look_for_control_problems()?)),
        }
    }

    /// The months that the last cycle found to be so, each with why, without looking once more.
    pub(crate) fn last_control_months(&self) -> Result<Vec<String>> {
        if !self.are_journals_read()? {
            return Ok(Vec::new());
        }
        let kept = State::new(self.conn).meta(MONTHS)?.unwrap_or_default();
        Ok(kept.lines().map(str::to_owned).collect())
    }

    fn are_journals_read(&self) -> Result<bool> {
        let tables = State::new(self.conn).statuses().all()?;
        Ok(tables.get(REVENUE).is_some_and(ResourceRow::is_asked))
    }

    /// As [`Controls::control_problems`], kept for those who ask later.
    pub(crate) fn keep_control_problems(&self) -> Result<Vec<String>> {
        let basis = self.basis()?;
        let has_months = State::new(self.conn).meta(MONTHS)?.is_some();
        if let Some(problems) = self.kept(&basis)?.filter(|_| has_months) {
            return Ok(problems);
        }
        let found = self.look_for_control_problems()?;
        let problems = told_all(&found);
        let kept: Vec<String> = std::iter::once(basis).chain(problems.clone()).collect();
        let months: Vec<String> = found
            .iter()
            .flat_map(|(why, scopes)| scopes.iter().map(move |scope| format!("{scope} {why}")))
            .collect();
        let state = State::new(self.conn);
        state.set_meta(PROBLEMS, &kept.join("\n"))?;
        state.set_meta(MONTHS, &months.join("\n"))?;
        Ok(problems)
    }

    /// What was kept of this basis.
    fn kept(&self, basis: &str) -> Result<Option<Vec<String>>> {
        let kept = State::new(self.conn).meta(PROBLEMS)?;
        let kept = kept.as_deref().and_then(|kept| kept.strip_prefix(basis));
        Ok(kept.map(|kept| kept.lines().skip(1).map(str::to_owned).collect()))
    }

    fn basis(&self) -> Result<String> {
        Ok(sql::query(self.conn, BASIS, |row| row.get(0))?.pop().unwrap_or_default())
    }

    /// Why, and which months. What did not fit is told elsewhere, and by no sum that is kept from being one. Where annotations are not read, which is only where nobody wants them, it is not known what
    /// the payments come to: that is no more told than a sum that nobody wants.
    fn look_for_control_problems(&self) -> Result<Vec<(String, Vec<String>)>> {
        let found = sql::query(
            self.conn,
            "WITH off AS (SELECT r.status, r.difference IS NULL AS no_sum, \
                 r.journal_level || '/' || r.journal_id || '/' \
                   || strftime(r.journal_month, '%Y-%m') AS scope, t.status AS of_sums, \
                 coalesce(a.status IN ('disabled', 'forbidden', 'absent'), false) AS unread, \
                 s.total_payment IS NOT NULL AND s.total_purchase_price IS NOT NULL AS has_sum, \
                 EXISTS (SELECT 1 FROM sync.rejects j WHERE j.resolved_at IS NULL \
                   AND j.scope = r.journal_level || '/' || r.journal_id || '/' \
                     || strftime(r.journal_month, '%Y-%m') \
                   AND (j.table_name = 'revenue_journal_sums' OR j.table_name = 'revenue_journals' \
                     AND coalesce(j.column_name = 'purchase_price', true))) AS unfit \
               FROM report.journal_reconciliation r \
               LEFT JOIN sync.resources t ON t.table_name = 'revenue_journal_sums' \
               LEFT JOIN sync.resources a ON a.table_name = 'revenue_journal_annotations' \
               LEFT JOIN main.revenue_journal_sums s \
                 USING (journal_level, journal_id, journal_month) \
               WHERE r.status IN ('differs', 'no_control') AND r.payment IS NOT NULL \
                 AND (r.payment_change IS NOT NULL OR unread) \
                 AND NOT EXISTS (SELECT 1 FROM sync.journal_months m WHERE m.due IS NOT NULL \
                   AND (m.table_name = 'revenue_journals' OR m.table_name = 'revenue_journal_sums' \
                     AND t.status NOT IN ('disabled', 'forbidden', 'absent')) \
                   AND m.journal_level = r.journal_level AND m.journal_id = r.journal_id \
                   AND m.journal_month = r.journal_month)), \
             said AS (SELECT *, CASE WHEN status = 'differs' THEN 'differs' \
                 WHEN NOT no_sum THEN 'means' \
                 WHEN of_sums IN ('disabled', 'forbidden', 'absent') THEN of_sums \
                 WHEN unread AND has_sum THEN 'disabled' \
                 WHEN unfit THEN 'rejected' \
                 ELSE 'none' END AS why FROM off) \
             SELECT why, string_agg(scope, ' ' ORDER BY scope) FROM said \
             WHERE why NOT IN ('disabled', 'rejected') GROUP BY why ORDER BY why",
            |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)),
        )?;
        let scopes = |scopes: String| scopes.split(' ').map(str::to_owned).collect();
        Ok(found.into_iter().map(|(why, all)| (why, scopes(all))).collect())
    }

    /// Makes the sums of months due whose lines were read after them, or without them: a control that was
    /// not asked says nothing.
    pub(crate) fn sums_follow_their_lines(&self) -> Result<()> {
        let read = "FROM sync.journal_months l WHERE l.table_name = 'revenue_journals' AND l.complete \
               AND l.wanted AND l.due IS NULL AND NOT EXISTS (SELECT 1 FROM sync.resources \
                 WHERE table_name = 'revenue_journal_sums' \
                   AND status IN ('disabled', 'forbidden', 'absent')) \
               AND NOT EXISTS (SELECT 1 FROM sync.journal_scopes g \
                 WHERE g.journal_level = l.journal_level AND g.journal_id = l.journal_id \
                   AND g.gone_at IS NOT NULL) \
               AND {} EXISTS (SELECT 1 FROM sync.journal_months s \
                 WHERE s.table_name = 'revenue_journal_sums' AND s.journal_level = l.journal_level \
                   AND s.journal_id = l.journal_id AND s.journal_month = l.journal_month {more})";
        let without = read.replace("{}", "NOT").replace("{more}", "");
        let stale = read
            .replace("{}", "")
            .replace("{more}", "AND s.complete AND s.due IS NULL AND s.sent_at < l.sent_at");
        if sql::query(self.conn, &format!("SELECT 1 {without} UNION ALL SELECT 1 {stale}"), |_| {
            Ok(())
        })?
        .is_empty()
        {
            return Ok(());
        }
        let due = sql::text(DueReason::Control.name());
        let never = sql::text(DueReason::NeverFetched.name());
        batch(
            self.conn,
            &format!(
                "INSERT INTO sync.journal_months BY NAME SELECT 'revenue_journal_sums' AS table_name, \
               l.journal_level, l.journal_id, l.journal_month, {never} AS due, false AS complete \
               {without}; \
             UPDATE sync.journal_months m SET due = {due} \
             FROM (SELECT l.journal_level, l.journal_id, l.journal_month {stale}) x \
             WHERE m.table_name = 'revenue_journal_sums' AND m.journal_level = x.journal_level \
               AND m.journal_id = x.journal_id AND m.journal_month = x.journal_month"
            ),
        )
    }
}

fn told_all(found: &[(String, Vec<String>)]) -> Vec<String> {
    found.iter().map(|(why, scopes)| told(why, scopes)).collect()
}

/// What is said of these months.
fn told(why: &str, scopes: &[String]) -> String {
    let months = scopes.len();
    let mut named: Vec<&str> = scopes.iter().take(MOST_NAMED).map(String::as_str).collect();
    if months > MOST_NAMED {
        named.push("...");
    }
    let (named, s) = (named.join(", "), if months == 1 { "" } else { "s" });
    let (have, do_not) = if months == 1 { ("has", "does not") } else { ("have", "do not") };
    let reason = match why {
        "differs" => {
            return format!(
                "revenue_journals: {months} month{s} {do_not} add up to the platform's sum, see \
                 report.journal_reconciliation: {named}"
            );
        }
        "means" => "the platform's sum is that of something else".to_owned(),
        "none" => "the platform gives no sum".to_owned(),
        status => format!("revenue_journal_sums is {status}"),
    };
    format!(
        "revenue_journals: {months} month{s} {have} no control, {reason}, see \
         report.journal_reconciliation: {named}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_months_are_counted_and_some_are_named() {
        let months = |count: usize| -> Vec<String> {
            (1..=count).map(|month| format!("offices/11/2026-{month:02}")).collect()
        };
        assert_eq!(
            told("differs", &months(1)),
            "revenue_journals: 1 month does not add up to the platform's sum, see \
             report.journal_reconciliation: offices/11/2026-01"
        );
        assert_eq!(
            told("forbidden", &months(4)),
            "revenue_journals: 4 months have no control, revenue_journal_sums is forbidden, see \
             report.journal_reconciliation: offices/11/2026-01, offices/11/2026-02, \
             offices/11/2026-03, ..."
        );
    }
}
