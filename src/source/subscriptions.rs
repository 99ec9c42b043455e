//! Webhook subscriptions (reference 2.18 and 4.17): the only thing that casemirror ever changes at the source,
//! and only its own.

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::client::Client;
use super::request::{CallClass, Method, Request};
use super::shape::Expected;
use super::split::records;
use crate::error::{Error, Kind, Result};

const ALL: &str = "/api/WebHooks/Subscriptions";
const ONE: &str = "/api/WebHooks/Subscriptions/{id}";

/// A subscription of the API user, whoever made it. Its `Secret` is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) id: i64,
    /// Its name; `None` where the platform gives a number, whose meaning is not documented, or nothing.
    pub(crate) event_type: Option<String>,
    pub(crate) url: String,
}

/// What the platform lists.
#[derive(Default)]
pub(crate) struct Subscriptions {
    pub(crate) read: Vec<Subscription>,
    /// The texts of records without an id or address that could be read, which may hold secrets.
    pub(crate) unread: Vec<String>,
}

impl Client {
    /// All subscriptions of the API user.
    ///
    /// # Errors
    /// Those of [`Client::send`].
    pub(crate) async fn subscriptions(&self) -> Result<Subscriptions> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Wire {
            id: i64,
            #[serde(default)]
            event_type: Value,
            url: String,
        }
        let request = Request::get(ALL, &[])?.expecting(Expected {
            table: "webhook_subscriptions".to_owned(),
            fields: ["EventType".to_owned()].into(),
            ..Expected::list()
        });
        let answer = self.send(&request).await?;
        let no_list = || format!("the answer of {ALL} is no list of subscriptions");
        let all = records(&answer).map_err(|error| error.within(no_list()))?;
        let mut listed = Subscriptions::default();
        for record in &all.records {
            match serde_json::from_str(record.get()) {
                Ok(Wire { id, event_type, url }) => {
                    let event_type = event_type.as_str().map(str::to_owned);
                    listed.read.push(Subscription { id, event_type, url });
                }
                Err(_) => listed.unread.push(record.get().to_owned()),
            }
        }
        Ok(listed)
    }

    /// Lets events of this type be sent to `url`.
    ///
    /// # Errors
    /// Those of [`Client::send`]; what its answer would have been is not known then.
    pub(crate) async fn subscribe(&self, event_type: &str, url: &SecretString) -> Result<()> {
        let request = Request::post("/api/WebHooks/Subscribe", &[])?;
        self.change(request, event_type, url).await
    }

    /// Makes a subscription one of this type to `url`.
    ///
    /// # Errors
    /// As [`Client::subscribe`].
    pub(crate) async fn change_subscription(
        &self,
        id: i64,
        event_type: &str,
        url: &SecretString,
    ) -> Result<()> {
        let request = Request::new(Method::Put, ONE, &[("id", &id.to_string())])?;
        self.change(request, event_type, url).await
    }

    /// Ends a subscription. One that is gone is fine.
    ///
    /// # Errors
    /// As [`Client::subscribe`].
    pub(crate) async fn unsubscribe(&self, id: i64) -> Result<()> {
        let request = Request::new(Method::Delete, ONE, &[("id", &id.to_string())])?;
        match self.send(&request.class(CallClass::Change)).await {
            Err(error) if error.kind() == Kind::NotFound => Ok(()),
            sent => sent.map(drop),
        }
    }

    async fn change(&self, request: Request, event_type: &str, url: &SecretString) -> Result<()> {
        let body = json!({ "EventType": event_type, "Url": url.expose_secret() }).to_string();
        // A service may repeat the address otherwise than it was written: what is secret of it is its end.
        let token = url.expose_secret().rsplit('/').next().unwrap_or_default().to_owned();
        let request = request.body(body).hiding(url.clone()).hiding(token.into());
        let request = request.class(CallClass::Change);
        let of_type = |error: Error| error.within(format!("events of type {event_type}"));
        self.send(&request).await.map(drop).map_err(of_type)
    }
}
