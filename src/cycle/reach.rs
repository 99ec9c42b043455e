//! Whether the source can be reached at all, by what its endpoints answer in a row.

use std::collections::BTreeSet;

use super::Cycle;
use super::policy;
use crate::error::{Error, Result};

/// So many different endpoints in a row that cannot be reached are the source.
const SEVERAL_ENDPOINTS: usize = 3;

/// The endpoints that could not be reached, in a row.
#[derive(Debug, Default)]
pub(super) struct Unreached {
    endpoints: BTreeSet<String>,
}

impl Cycle {
    /// A call was answered: the source is there.
    pub(super) fn reached(&mut self) {
        self.unreached.endpoints.clear();
    }

    /// Counts the different endpoints that cannot be reached, in a row. When several cannot, one more
    /// is asked; when that cannot either, the rest of the run would fail as well.
    ///
    /// # Errors
    /// The error itself, where it ends the run.
    pub(super) async fn note_reachability(
        &mut self,
        endpoint: &str,
        error: Error,
    ) -> Result<Error> {
        if !policy::is_unreached(error.kind()) {
            self.reached();
            return Ok(error);
        }
        self.unreached.endpoints.insert(endpoint.to_owned());
        if self.unreached.endpoints.len() < SEVERAL_ENDPOINTS {
            return Ok(error);
        }
        self.ask_another(error).await
    }

    /// After an endpoint could not be reached: asks another one, and where that cannot be reached
    /// either, ends the run.
    ///
    /// # Errors
    /// The error itself, where it ends the run.
    pub(super) async fn ask_another(&mut self, error: Error) -> Result<Error> {
        match self.extractor.client().permissions().await {
            Err(again) if policy::is_unreached(again.kind()) => Err(error),
            _ => {
                self.reached();
                Ok(error)
            }
        }
    }
}
