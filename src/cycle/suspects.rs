//! The question that decides about a case which no search shows (docs/architecture.md, "Deletion").

use jiff::Timestamp;

use super::Cycle;
use super::policy::ends_run;
use crate::error::{Kind, Result};
use crate::mirror::{Settings, State, SuspectStep};
use crate::scope::FailureKind;
use crate::source::{Expected, Request};

/// Asked because it is cheap and every case has roles.
const PATH_ROLES: &str = "/api/Cases/{caseId}/Roles";

impl Cycle<'_> {
    /// Asks whether the case exists. 404 removes it; 200 or 204 twice, `source.search_delay` apart,
    /// means that the search hides it; any other answer decides nothing.
    pub(super) async fn ask_whether_it_exists(&mut self, id: i64) -> Result<()> {
        let sequence = self.run.sequence()?;
        let settings = Settings::new(&self.run.config, &self.run.catalog, true);
        let delay = self.run.config.source.search_delay;
        let run_id = self.run.id;
        let request =
            Request::get(PATH_ROLES, &[("caseId", &id.to_string())])?.expecting(Expected::list());
        // What was loaded so far is committed first: the answer speaks of a later time.
        self.answers.flush().await?;
        let exists = match self.run.client().send(&request).await {
            Ok(_) => {
                self.answers.reached();
                true
            }
            Err(error) if error.kind() == Kind::NotFound => {
                self.answers.reached();
                false
            }
            Err(error) => {
                let error = self.answers.note_reachability("case_roles", error).await?;
                if ends_run(error.kind()) {
                    return Err(error);
                }
                let why = format!(
                    "no search shows the case, and whether it exists is not known: {}",
                    error.chain()
                );
                return self.note_unshown(id, FailureKind::Unknown, &why).await;
            }
        };
        let step = self
            .answers
            .run
            .write(move |conn| {
                let state = State::new(conn);
                let now = Timestamp::now();
                if exists {
                    state.suspects().suspect(&settings, run_id, id, sequence, delay, now)
                } else {
                    state.suspects().remove_case(&settings, run_id, id, now)
                }
            })
            .await?;
        match &step {
            SuspectStep::Removed(outcome) | SuspectStep::Hidden(outcome) => {
                self.answers.report.outcome.add(outcome);
                let hidden = matches!(step, SuspectStep::Hidden(_));
                tracing::info!(case = id, hidden, "a case left");
            }
            SuspectStep::Waiting => {}
        }
        Ok(())
    }
}
