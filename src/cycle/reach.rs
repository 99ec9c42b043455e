//! Whether the source can be reached at all, by what its endpoints answer in a row.

use std::collections::BTreeSet;

use super::policy;
use crate::error::{Error, Kind, Result};
use crate::source::Client;

/// So many different endpoints in a row that cannot be reached are the source.
const SEVERAL_ENDPOINTS: usize = 3;

/// The endpoints that could not be reached, in a row.
#[derive(Debug, Default)]
pub(crate) struct Unreached {
    endpoints: BTreeSet<String>,
}

impl Unreached {
    /// A call was answered: the source is there.
    pub(crate) fn reached(&mut self) {
        self.endpoints.clear();
    }

    /// A call failed. Returns whether so many different endpoints could not be reached that one more has
    /// to be asked.
    pub(crate) fn failed(&mut self, endpoint: &str, kind: Kind) -> bool {
        // A call that was not made reached nothing.
        if policy::ends_run(kind) {
            return false;
        }
        if !policy::is_unreached(kind) {
            self.reached();
            return false;
        }
        self.endpoints.insert(endpoint.to_owned());
        self.endpoints.len() >= SEVERAL_ENDPOINTS
    }
    /// Counts the different endpoints that cannot be reached, in a row. When several cannot, one more
    /// is asked; when that cannot either, the rest of the run would fail as well.
    ///
    /// # Errors
    /// The error itself, where it ends the run.
    pub(super) async fn note(
        &mut self,
        client: &Client,
        endpoint: &str,
        error: Error,
    ) -> Result<Error> {
        if self.failed(endpoint, error.kind()) {
            return self.ask_another(client, error).await;
        }
        Ok(error)
    }

    /// After an endpoint could not be reached: asks another one, and where that cannot be reached
    /// either, ends the run.
    ///
    /// # Errors
    /// The error itself, where it ends the run.
    pub(super) async fn ask_another(&mut self, client: &Client, error: Error) -> Result<Error> {
        if is_out_of_reach(client).await {
            return Err(error);
        }
        self.reached();
        Ok(error)
    }
}

/// Asks one more endpoint after others could not be reached: whether that cannot be either, so that
/// everything else would fail as well.
pub(crate) async fn is_out_of_reach(client: &Client) -> bool {
    let asked = client.permissions().await;
    asked.is_err_and(|error| policy::is_unreached(error.kind()) || policy::ends_run(error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_different_endpoints_that_cannot_be_reached_speak_for_the_source() {
        let mut unreached = Unreached::default();
        for _ in 0..100 {
            assert!(!unreached.failed("notes", Kind::Unreachable));
        }
        assert!(!unreached.failed("costs", Kind::Tls));
        assert!(unreached.failed("cases", Kind::Timeout));
        unreached.reached();
        assert!(!unreached.failed("cases", Kind::Timeout));
    }

    #[test]
    fn any_status_is_an_answer_of_the_source() {
        let mut unreached = Unreached::default();
        assert!(!unreached.failed("notes", Kind::Unreachable));
        assert!(!unreached.failed("costs", Kind::Unreachable));
        assert!(!unreached.failed("cases", Kind::Server));
        assert!(!unreached.failed("cases", Kind::Unreachable));
    }

    #[test]
    fn a_call_that_could_not_be_made_is_no_answer() {
        for kind in [Kind::NoToken, Kind::RetryAfter, Kind::Credentials] {
            let mut unreached = Unreached::default();
            assert!(!unreached.failed("notes", Kind::Unreachable));
            assert!(!unreached.failed("costs", Kind::Unreachable));
            assert!(!unreached.failed("cases", kind));
            assert!(unreached.failed("cases", Kind::Unreachable), "{kind:?}");
        }
    }
}
