//! Cases that no search shows: whether the guard holds them, and the question that decides about each
//! (docs/architecture.md, "Deletion").

use std::time::Duration;

use duckdb::Connection;
use jiff::Timestamp;

use super::answers::Answers;
use super::policy::ends_run;
use crate::error::{Kind, Result};
use crate::mirror::{Asked, Failure, Settings, State, SuspectStep};
use crate::scope::FailureKind;
use crate::source::{Answer, Expected, Request};
use crate::ticks::Ticks;

/// The table of what is asked, because it is cheap and every case has roles.
pub(super) const ROLES: &str = "case_roles";
const PATH_ROLES: &str = "/api/Cases/{caseId}/Roles";
/// Of so many other cases at most the roles are asked for, to see whether they are there at all.
const MOST_ASKED: usize = 3;

/// What asking for the roles of a case came to.
enum Roles {
    Answered(Box<Answer>),
    NotFound,
    /// Neither, and why.
    Unknown(String),
}

/// Cases that no search shows.
pub(super) struct Suspects<'a, 'r> {
    pub(super) answers: &'a mut Answers<'r>,
}

impl Suspects<'_, '_> {
    /// Of cases that the property search lacks those that are looked for in the other one: so many at once are not
    /// believed to be projects now.
    pub(crate) async fn may_be_projects(&mut self, ids: Vec<i64>) -> Result<Vec<i64>> {
        if self.are_too_many(&ids)? { self.unless_held(ids).await } else { Ok(ids) }
    }

    /// Those of these cases that the guard does not hold. Only what the mirror shows can be held: a case that is new,
    /// or hidden, takes no row along.
    pub(crate) async fn unless_held(&mut self, ids: Vec<i64>) -> Result<Vec<i64>> {
        let (shown, others): (Vec<i64>, Vec<i64>) = {
            let conn = self.answers.run.store.connection()?;
            let shown = State::new(&conn).standings().shown_of(&ids)?;
            ids.iter().partition(|id| shown.contains(id))
        };
        let is_held = !shown.is_empty() && self.hold(&shown).await?;
        Ok(if is_held { others } else { ids })
    }

    /// Whether the guard would hold these alone, of those that the mirror shows.
    fn are_too_many(&self, ids: &[i64]) -> Result<bool> {
        let run = self.answers.run;
        let (leaving, shown) = leaving_of_shown(&run.store.connection()?, ids)?;
        Ok(leaving > 0 && run.holds(leaving, shown))
    }

    /// Whether the guard holds cases that both searches lack by their ids: an index that suddenly
    /// lists nothing must not empty the mirror case by case.
    async fn hold(&mut self, unknown: &[i64]) -> Result<bool> {
        let run = self.answers.run;
        let (leaving, shown, of_late) = {
            let conn = run.store.connection()?;
            let of_late = State::new(&conn).suspects().hidden_of_late(Timestamp::now())?;
            let (leaving, shown) = leaving_of_shown(&conn, unknown)?;
            (leaving, shown, of_late)
        };
        if !run.holds(leaving + of_late, shown + of_late) {
            return Ok(false);
        }
        self.answers.report.problem(format!(
            "the searches no longer show {leaving} of {shown} cases{}; reconcile.max_removed holds \
             them (if they are really gone, run `casemirror sync --allow-removals`)",
            left_of_late(of_late)
        ));
        self.note_held().await?;
        let why = "no search shows the case, nor many others: reconcile.max_removed holds it";
        for id in unknown {
            self.note(*id, FailureKind::Held, why).await?;
        }
        Ok(true)
    }

    /// Notes that the guard holds cases: what hangs on them is held too.
    pub(crate) async fn note_held(&mut self) -> Result<()> {
        self.answers.holds_cases = true;
        self.answers.run.write(|conn| State::new(conn).suspects().hold(Timestamp::now())).await
    }

    /// Notes why nothing was decided about a case that no search shows: it is looked for again after a
    /// backoff.
    pub(crate) async fn note(&mut self, id: i64, kind: FailureKind, why: &str) -> Result<()> {
        let run = self.answers.run;
        let place = State::new(&run.store.connection()?).standings().place(id)?;
        self.answers.planned.failed(place.table(), id, kind);
        let (run_id, why) = (run.id, why.to_owned());
        run.write(move |conn| {
            let failure = Failure::new(kind, &why);
            State::new(conn).suspects().undecided(run_id, id, &failure, Timestamp::now())
        })
        .await
    }

    /// Asks whether the case exists that searches `asked` then lack. 404 removes it; 200 or 204 twice,
    /// `source.search_delay` apart, means that the search hides it; any other answer decides nothing.
    pub(crate) async fn ask(&mut self, id: i64, asked: Asked) -> Result<()> {
        let run = self.answers.run;
        let settings = Settings::new(&run.config, &run.catalog, true);
        let run_id = run.id;
        // What was loaded so far is committed first: the answer speaks of a later time.
        self.answers.flush().await?;
        let (asked_at, doubt) = match self.roles(id).await? {
            Roles::Answered(answer) => (Some(by_the_server(asked, &answer)), None),
            Roles::NotFound => (None, self.doubt_of_404(id).await?),
            Roles::Unknown(why) => (None, Some(why)),
        };
        if let Some(doubt) = doubt {
            let why =
                format!("no search shows the case, and whether it exists is not known: {doubt}");
            return self.note(id, FailureKind::Unknown, &why).await;
        }
        let step = run
            .write(move |conn| {
                let state = State::new(conn);
                let now = Timestamp::now();
                match asked_at {
                    Some(asked_at) => {
                        state.suspects().suspect(&settings, run_id, id, asked, asked_at, now)
                    }
                    None => state.suspects().remove_case(&settings, run_id, id, now),
                }
            })
            .await?;
        match &step {
            SuspectStep::Removed(outcome) | SuspectStep::Hidden(outcome) => {
                self.answers.report.outcome.add(outcome);
                let hidden = matches!(step, SuspectStep::Hidden(_));
                tracing::debug!(case = id, hidden, "a case left");
            }
            SuspectStep::Waiting => {}
        }
        Ok(())
    }

    /// Why a 404 for the roles of a case says nothing of it; `None` where it does. What is not there answers 404 for
    /// every case: where the roles of no case have ever been read, those of others are asked for, which a search shows.
    async fn doubt_of_404(&mut self, id: i64) -> Result<Option<String>> {
        if self.answers.has_answered(ROLES)? {
            return Ok(None);
        }
        if !self.answers.roles_are_missing {
            let others = {
                let conn = self.answers.run.store.connection()?;
                State::new(&conn).standings().shown_beside(id, MOST_ASKED)?
            };
            for other in others {
                match self.roles(other).await? {
                    Roles::Answered(_) => {
                        self.answers.findings.answered(ROLES);
                        return Ok(None);
                    }
                    Roles::NotFound => {}
                    Roles::Unknown(why) => return Ok(Some(why)),
                }
            }
            self.answers.roles_are_missing = true;
        }
        Ok(Some(format!("{PATH_ROLES} has answered 404 for every case so far")))
    }

    /// Whether the roles of a case are answered: then it is there.
    pub(crate) async fn is_there(&mut self, id: i64) -> Result<bool> {
        Ok(matches!(self.roles(id).await?, Roles::Answered(_)))
    }

    /// Asks for the roles of a case.
    async fn roles(&mut self, id: i64) -> Result<Roles> {
        let request =
            Request::get(PATH_ROLES, &[("caseId", &id.to_string())])?.expecting(Expected::list());
        match self.answers.run.client().send(&request).await {
            Ok(answer) => {
                self.answers.reached();
                Ok(Roles::Answered(Box::new(answer)))
            }
            Err(error) if error.kind() == Kind::NotFound => {
                self.answers.reached();
                Ok(Roles::NotFound)
            }
            Err(error) => {
                let error = self.answers.note_reachability(ROLES, error).await?;
                if ends_run(error.kind()) { Err(error) } else { Ok(Roles::Unknown(error.chain())) }
            }
        }
    }
}

/// How many of these cases the mirror shows, and of how many.
fn leaving_of_shown(conn: &Connection, ids: &[i64]) -> Result<(u64, u64)> {
    let standings = State::new(conn).standings();
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    Ok((count(standings.leaving(ids)?), count(standings.shown_cases()?)))
}

/// When searches were asked, by the server's clock as a later answer shows it.
fn by_the_server(asked: Asked, later: &Answer) -> Ticks {
    let since = later.ended_at.duration_since(asked.sent_at);
    Ticks::from(later.server_date.unwrap_or(later.ended_at))
        .earlier_by(Duration::try_from(since).unwrap_or_default())
}

/// Of cases that left in the last hour: they count for the guard, though they are not among those shown.
pub(super) fn left_of_late(cases: u64) -> String {
    if cases == 0 { String::new() } else { format!(" ({cases} more left in the last hour)") }
}
