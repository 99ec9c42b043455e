//! casemirror's own webhook subscriptions: made where one is missing, repaired where one leads elsewhere,
//! removed where one is too many. Those of others are never touched.

use std::collections::BTreeSet;

use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::event::KNOWN;
use crate::error::{Error, Result};
use crate::source::{Client, Subscription};

/// Where the platform sends events to.
pub(crate) struct Address {
    /// Every address of this daemon's webhooks begins like this.
    prefix: String,
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

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Subscribe(&'static str),
    Repair(i64, &'static str),
    Remove(i64),
}

impl Address {
    /// The address below `serve.public_url`.
    pub(crate) fn below(public_url: &Url, token: SecretString) -> Address {
        let base = public_url.as_str().trim_end_matches('/');
        Address { prefix: format!("{base}/webhooks/"), token }
    }

    /// The address itself.
    pub(crate) fn url(&self) -> SecretString {
        format!("{}{}", self.prefix, self.token.expose_secret()).into()
    }

    /// A subscription is ours where it leads to this daemon, or to whatever address by our token.
    fn is_ours(&self, url: &str) -> bool {
        let path = format!("/webhooks/{}", self.token.expose_secret());
        url.starts_with(&self.prefix) || url.ends_with(&path)
    }

    fn steps(&self, existing: &[Subscription]) -> Vec<Step> {
        let url = self.url();
        let mut met = BTreeSet::new();
        let mut steps = Vec::new();
        // Those that are right first, so that none of them is one too many.
        let mut ours: Vec<&Subscription> =
            existing.iter().filter(|one| self.is_ours(&one.url)).collect();
        ours.sort_by_key(|one| (one.url != url.expose_secret(), one.id));
        for one in ours {
            match KNOWN.into_iter().find(|known| *known == one.event_type) {
                Some(known) if met.insert(known) => {
                    if one.url != url.expose_secret() {
                        steps.push(Step::Repair(one.id, known));
                    }
                }
                _ => steps.push(Step::Remove(one.id)),
            }
        }
        steps.extend(KNOWN.into_iter().filter(|known| !met.contains(known)).map(Step::Subscribe));
        steps
    }

    /// Makes the subscriptions what they should be: one of each event type.
    ///
    /// # Errors
    /// Those of listing them. What cannot be changed is in [`Aligned::failed`].
    pub(crate) async fn align(&self, client: &Client) -> Result<Aligned> {
        let (mut aligned, url) = (Aligned::default(), self.url());
        for step in self.steps(&client.subscriptions().await?) {
            let (done, count) = match step {
                Step::Subscribe(event) => (client.subscribe(event, &url).await, &mut aligned.made),
                Step::Repair(id, event) => {
                    (client.change_subscription(id, event, &url).await, &mut aligned.repaired)
                }
                Step::Remove(id) => (client.unsubscribe(id).await, &mut aligned.removed),
            };
            match done {
                Ok(()) => *count += 1,
                Err(error) => aligned.failed.push(error),
            }
        }
        Ok(aligned)
    }

    /// Removes all of ours.
    ///
    /// # Errors
    /// As [`Address::align`].
    pub(crate) async fn remove(&self, client: &Client) -> Result<Aligned> {
        let mut aligned = Aligned::default();
        for one in client.subscriptions().await?.iter().filter(|one| self.is_ours(&one.url)) {
            match client.unsubscribe(one.id).await {
                Ok(()) => aligned.removed += 1,
                Err(error) => aligned.failed.push(error),
            }
        }
        Ok(aligned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        let url = Url::parse("https://mirror.example.com/here/").unwrap();
        Address::below(&url, SecretString::from("t0k"))
    }

    fn subscription(id: i64, event_type: &str, url: &str) -> Subscription {
        Subscription { id, event_type: event_type.to_owned(), url: url.to_owned() }
    }

    const OURS: &str = "https://mirror.example.com/here/webhooks/t0k";

    fn all() -> Vec<Subscription> {
        let all = KNOWN.into_iter().zip(1..);
        all.map(|(event, id)| subscription(id, event, OURS)).collect()
    }

    #[test]
    fn each_event_type_is_subscribed_once_and_nothing_is_done_again() {
        let steps = address().steps(&[]);
        assert_eq!(steps, KNOWN.into_iter().map(Step::Subscribe).collect::<Vec<_>>());
        assert_eq!(address().steps(&all()), []);
    }

    #[test]
    fn what_leads_elsewhere_is_repaired_and_what_is_too_many_is_removed() {
        let mut existing = all();
        existing[0].url = "https://mirror.example.com/here/webhooks/old".to_owned();
        existing[1].url = "https://elsewhere.example.com/webhooks/t0k".to_owned();
        existing.push(subscription(90, KNOWN[2], OURS));
        existing.push(subscription(91, "RetiredEvent", OURS));
        let steps = address().steps(&existing);
        assert_eq!(
            steps,
            [
                Step::Remove(90),
                Step::Remove(91),
                Step::Repair(1, KNOWN[0]),
                Step::Repair(2, KNOWN[1])
            ]
        );
    }

    #[test]
    fn those_of_others_are_not_touched() {
        let mut existing = all();
        existing.push(subscription(90, "CaseSold", "https://hooks.example.com/sold"));
        existing.push(subscription(91, "CaseSold", "https://mirror.example.com/webhooks/other"));
        assert_eq!(address().steps(&existing), []);
    }
}
