//! Lists, page by page.

use std::sync::Arc;

use jiff::Timestamp;

use super::call::{page_plan, request_with_all};
use super::{Extractor, Parts};
use crate::catalog::{Answer as Shape, Read, Resource};
use crate::decode::Params;
use crate::error::Result;
use crate::source::{PagePlan, Pages, Request, Verdict, refusal};

impl Extractor {
    /// A list with all that may be asked of it; where the service refuses that (400), as `request` asks it.
    pub(super) async fn list_with_all(
        &self,
        resource: &Resource,
        read: &Read,
        request: Request,
        params: &Params,
        parts: &mut Parts,
    ) -> Result<Option<Timestamp>> {
        if let Some(all) = request_with_all(read, params)? {
            let listed = self.list(resource, page_plan(resource, read, all), params, parts).await;
            let refused = |error| refusal(error).is_some_and(|refusal| refusal.status == 400);
            match listed {
                Err(error) if refused(&error) => {
                    let reason = error.chain();
                    tracing::debug!(table = resource.table, reason, "asked for less");
                }
                listed => return listed,
            }
        }
        self.list(resource, page_plan(resource, read, request), params, parts).await
    }

    /// All pages of a list. Returns the service's `Date` of the last one.
    pub(super) async fn list(
        &self,
        resource: &Resource,
        mut plan: PagePlan,
        params: &Params,
        parts: &mut Parts,
    ) -> Result<Option<Timestamp>> {
        plan.request = plan.request.expecting(self.expected(resource, Shape::List, params));
        let mut pages = Pages::new(&self.client, plan);
        let params = Arc::new(params.clone());
        let mut date = None;
        while let Some(page) = pages.next().await? {
            parts.records.extend(page.records.into_iter().map(|r| (r, Arc::clone(&params))));
            date = page.answer.server_date;
        }
        if let Some(sent_at) = pages.sent_at() {
            parts.sent_at.get_or_insert(sent_at);
        }
        parts.dated_at = parts.dated_at.max(date);
        if let Some(Verdict::Incomplete(why)) = pages.verdict() {
            tracing::warn!(table = resource.table, ?params, why, "an answer is incomplete");
            parts.complete = false;
        }
        Ok(date)
    }
}
