//! Tables that are read as whole lists, or per row of another table, by schedule.

use std::sync::Arc;

use super::Cycle;
use super::signals::Halt;
use crate::catalog::{Group, Resource};
use crate::error::{Kind, Result};
use crate::mirror::{Stamp, State};

impl Cycle {
    /// Reads the lists of `schedule.reference`: all when it is due, else those that are stale
    /// because they failed, are newly permitted or were asked for. `false` when the process ends
    /// before all are read.
    pub(super) async fn read_lists(&mut self, due: bool) -> Result<bool> {
        let mut lists = Vec::new();
        for resource in &self.active {
            let wanted = resource.schedule.is_some() && self.options.wants(&resource.table);
            if wanted && (due || self.list_is_stale(resource)?) {
                lists.push(Arc::clone(resource));
            }
        }
        // What is read per row of another table comes after that table.
        lists.sort_by_key(|r| matches!(r.group, Group::Each(_)));
        for resource in lists {
            self.progress.step(&format!("reading {}", resource.table));
            let ids = match &resource.group {
                Group::Each(each) => {
                    self.flush().await?;
                    State::new(&self.store.connection()?).column_ids(&each.table, &each.column)?
                }
                Group::List => vec![0],
                Group::Case | Group::Ids | Group::Child(_) => continue,
            };
            for id in ids {
                self.fresh_first().await?;
                if self.signals.halt() == Halt::Stop {
                    self.flush().await?;
                    return Ok(false);
                }
                if !self.read_list(&resource, id).await? {
                    break;
                }
            }
        }
        self.flush().await?;
        Ok(true)
    }

    fn list_is_stale(&self, resource: &Resource) -> Result<bool> {
        let conn = self.store.connection()?;
        State::new(&conn).list_is_stale(&resource.table, resource.group == Group::List)
    }

    /// Reads one scope of a list; `false` when the table cannot be read at all.
    async fn read_list(&mut self, resource: &Arc<Resource>, id: i64) -> Result<bool> {
        let stamp = Stamp::Known(String::new());
        match self.extractor.scope(resource, id, stamp).await {
            Ok(load) => {
                self.reached(None);
                self.answered.insert(resource.table.clone());
                if load.scopes.iter().any(|s| !s.complete) || load.decoded.any_keyless() {
                    let why = "the answer was not complete: nothing is deleted";
                    self.note_failure(&resource.table, id, "Incomplete", why).await?;
                }
                self.writer.load(load).await?;
                Ok(true)
            }
            Err(error) => match error.kind() {
                Kind::Forbidden => {
                    self.set_aside(&resource.table, "forbidden", &error.chain()).await?;
                    Ok(false)
                }
                // A whole list that is not there is an endpoint that is not there.
                Kind::NotFound | Kind::NotAllowed if id == 0 => {
                    self.set_aside(&resource.table, "absent", &error.chain()).await?;
                    Ok(false)
                }
                Kind::Credentials | Kind::Tls | Kind::Store | Kind::DiskFull => Err(error),
                kind => {
                    if !self.reached(Some(&error)) {
                        return Err(error);
                    }
                    let text = error.chain();
                    tracing::warn!(table = resource.table, id, reason = text, "a list failed");
                    self.failed.insert(resource.table.clone(), text.clone());
                    self.note_failure(&resource.table, id, &format!("{kind:?}"), &text).await?;
                    Ok(true)
                }
            },
        }
    }
}
