//! casemirror's own webhook subscriptions: made where one is missing, repaired where one leads elsewhere,
//! removed where one is too many. Those of others are never touched.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use url::Url;

use super::event::KNOWN;
use crate::error::{Error, Kind, Result};
use crate::source::{Client, Subscription, Subscriptions};
use crate::text::counted;

/// The subscriptions that were made here, each with the event type that was asked for. They are ours wherever
/// they lead: the token may have been lost, and not every list names the event types.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    events: BTreeMap<i64, String>,
    /// An event type that was asked for, and of which the list has nothing: this process asks for no other, which it
    /// would do for ever.
    #[serde(skip)]
    unlisted: Option<&'static str>,
}

/// What the path of an address has before its token.
const WEBHOOKS: &str = "webhooks";

/// Where the platform sends events to.
pub(crate) struct Address {
    url: Url,
    /// What of it is secret.
    token: SecretString,
}

/// What was done, and what could not be.
#[derive(Debug, Default)]
pub(crate) struct Aligned {
    pub(crate) made: usize,
    pub(crate) repaired: usize,
    pub(crate) removed: usize,
    pub(crate) failed: Vec<Error>,
}

impl Aligned {
    /// Whether anything was done.
    pub(crate) fn changed(&self) -> bool {
        self.made + self.repaired + self.removed > 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Subscribe(&'static str),
    Repair(i64, &'static str),
    Remove(i64),
}

/// Whose a subscription is.
enum Owner {
    /// Made here, or one to this address of the event type that it is for.
    Ours(&'static str),
    /// Made here, of an event type that is not known any more.
    Retired,
    /// It leads to this address, and what for is not said.
    Unclear,
    Other,
}

impl Made {
    fn owner(&self, one: &Subscription, leads_here: bool) -> Owner {
        let made = self.events.get(&one.id);
        if made.is_none() && !leads_here {
            return Owner::Other;
        }
        let named = one.event_type.as_ref();
        let event = [named, made].into_iter().flatten().find_map(|name| known(name));
        match (event, made, named) {
            (Some(event), ..) => Owner::Ours(event),
            (None, Some(_), _) => Owner::Retired,
            (None, None, None) => Owner::Unclear,
            // Somebody has taken the address for what only they know.
            (None, None, Some(_)) => Owner::Other,
        }
    }

    /// Removes all of ours; those that lead to an address with this token, below `public_url` where that is set, are
    /// too: a process that was killed may not have kept what it made.
    ///
    /// # Errors
    /// Those of listing them. What cannot be removed is in [`Aligned::failed`].
    pub(crate) async fn remove(
        &self,
        client: &Client,
        public_url: Option<&Url>,
        token: &SecretString,
    ) -> Result<Aligned> {
        let address = public_url.map(|url| Address::below(url, token.clone()));
        let end = format!("/{WEBHOOKS}/{}", token.expose_secret());
        let leads_here = |url: &str| match &address {
            Some(address) => address.is(url),
            None => Url::parse(url).is_ok_and(|url| url.path().ends_with(&end)),
        };
        let mut aligned = Aligned::default();
        for one in client.subscriptions().await?.read {
            if matches!(self.owner(&one, leads_here(&one.url)), Owner::Other) {
                continue;
            }
            match client.unsubscribe(one.id).await {
                Ok(()) => aligned.removed += 1,
                Err(error) => aligned.failed.push(error),
            }
        }
        Ok(aligned)
    }
}

fn known(name: &str) -> Option<&'static str> {
    KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name))
}

impl Address {
    /// The address below `serve.public_url`.
    pub(crate) fn below(public_url: &Url, token: SecretString) -> Address {
        let mut url = public_url.clone();
        let base = url.path().trim_end_matches('/');
        let path = format!("{base}/{WEBHOOKS}/{}", token.expose_secret());
        url.set_path(&path);
        Address { url, token }
    }

    /// The address itself.
    pub(crate) fn url(&self) -> SecretString {
        self.url.as_str().into()
    }

    /// Whether this is the address, however it is written.
    fn is(&self, url: &str) -> bool {
        Url::parse(url).is_ok_and(|url| url == self.url)
    }

    /// Whether a text, of whatever kind, has the address in it.
    fn is_in(&self, text: &str) -> bool {
        text.contains(self.token.expose_secret())
    }

    /// What is to be done, and how many subscriptions to this address cannot be told apart. Of what was made, what
    /// is still there stays.
    fn plan(&self, listed: &Subscriptions, made: &mut Made) -> (Vec<Step>, usize) {
        let mut steps = Vec::new();
        let mut met = BTreeMap::new();
        let mut unclear = listed.unread.iter().filter(|text| self.is_in(text)).count();
        // Those that are right first, so that none of them is one too many.
        let mut all: Vec<&Subscription> = listed.read.iter().collect();
        all.sort_by_key(|one| (!self.is(&one.url), one.id));
        for one in all {
            match made.owner(one, self.is(&one.url)) {
                Owner::Ours(event) if !met.contains_key(event) => {
                    met.insert(event, one.id);
                    if !self.is(&one.url) {
                        steps.push(Step::Repair(one.id, event));
                    }
                }
                Owner::Ours(_) | Owner::Retired => steps.push(Step::Remove(one.id)),
                Owner::Unclear => unclear += 1,
                Owner::Other => {}
            }
        }
        made.unlisted = made.unlisted.filter(|event| !met.contains_key(event));
        // What is to be removed stays ours until it is gone.
        let is_there = |id: &i64| listed.read.iter().any(|one| one.id == *id);
        made.events.retain(|id, _| is_there(id));
        made.events.extend(met.iter().map(|(event, id)| (*id, (*event).to_owned())));
        let missing: Vec<_> = KNOWN.into_iter().filter(|event| !met.contains_key(event)).collect();
        if missing.is_empty() {
            unclear = 0;
        }
        if unclear == 0 && made.unlisted.is_none() {
            steps.extend(missing.into_iter().map(Step::Subscribe));
        }
        (steps, unclear)
    }

    /// Makes the subscriptions what they should be: one of each event type; `made` becomes what is ours then.
    ///
    /// # Errors
    /// Those of listing them. What cannot be changed is in [`Aligned::failed`].
    pub(crate) async fn align(&self, client: &Client, made: &mut Made) -> Result<Aligned> {
        let (mut aligned, url) = (Aligned::default(), self.url());
        let mut listed = client.subscriptions().await?;
        let (steps, unclear) = self.plan(&listed, made);
        if unclear > 0 {
            aligned.failed.push(unclear_error(unclear));
        }
        aligned.failed.extend(made.unlisted.map(unlisted_error));
        for step in steps {
            let (done, count) = match step {
                Step::Subscribe(event) => {
                    let subscribed = self.subscribe(client, event, &mut listed, made).await;
                    (subscribed, &mut aligned.made)
                }
                Step::Repair(id, event) => {
                    (client.change_subscription(id, event, &url).await, &mut aligned.repaired)
                }
                Step::Remove(id) => (client.unsubscribe(id).await, &mut aligned.removed),
            };
            match done {
                Ok(()) => *count += 1,
                Err(error) => aligned.failed.push(error),
            }
            if matches!(step, Step::Subscribe(_)) && made.unlisted.is_some() {
                break;
            }
        }
        Ok(aligned)
    }

    /// Subscribes, and learns from the list by which id: what the platform answers is not documented. One whose
    /// answer was lost may have been made: the list is read after a refusal as well, or the next event type
    /// would be taken for that one's.
    async fn subscribe(
        &self,
        client: &Client,
        event: &'static str,
        listed: &mut Subscriptions,
        made: &mut Made,
    ) -> Result<()> {
        let taken = client.subscribe(event, &self.url()).await;
        let before = match (client.subscriptions().await, &taken) {
            (Ok(now), _) => std::mem::replace(listed, now),
            (Err(error), Ok(())) => return Err(error),
            (Err(_), Err(_)) => return taken,
        };
        let is_new = |one: &&Subscription| before.read.iter().all(|other| other.id != one.id);
        let new = listed.read.iter().filter(is_new).filter(|one| self.is_in(&one.url));
        let new: Vec<&Subscription> = new.collect();
        // One of another event type is what was asked for then.
        let of = |event: Option<&str>| -> Vec<i64> {
            let is_of = |one: &&&Subscription| one.event_type.as_deref().and_then(known) == event;
            new.iter().filter(is_of).map(|one| one.id).collect()
        };
        match (of(Some(event)).first(), &of(None)[..], taken) {
            (Some(id), ..) | (None, [id], _) => {
                made.events.insert(*id, event.to_owned());
                Ok(())
            }
            (None, _, Err(error)) => Err(error),
            (None, [], Ok(())) => {
                made.unlisted = Some(event);
                Err(unlisted_error(event))
            }
            (None, several, Ok(())) => Err(unclear_error(several.len())),
        }
    }
}

fn unlisted_error(event: &str) -> Error {
    Error::new(
        Kind::BadAnswer,
        format!(
            "the platform took a subscription to events of type {event} and does not list it: no other is made until \
             casemirror starts anew"
        ),
    )
}

fn unclear_error(count: usize) -> Error {
    let what = counted(count, "webhook subscription");
    Error::new(
        Kind::BadAnswer,
        format!(
            "of {what} to the address of this mirror the platform does not say what for, so none is made beside \
             them: `casemirror webhooks remove` removes those that have an id"
        ),
    )
}

#[cfg(test)]
mod tests;
