//! Who we are to the service (reference 4.3): whose data it shows us, and what it lets us read.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::client::Client;
use super::request::Request;
use super::shape::{Expected, Shape};
use super::split::records;
use crate::error::{Error, Kind, Result};

/// The customer whose data the API user sees, as text, whatever type the service gives it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TenantId(String);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A permission of the API user: an area (`Cases`) and what is allowed there (`Read`, `Write`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiPermission {
    pub(crate) permission: String,
    pub(crate) types: Vec<String>,
}

impl ApiPermission {
    /// Whether this grants what the reference writes as `Cases - Read`.
    pub(crate) fn grants(&self, needed: &str) -> bool {
        needed.rsplit_once(" - ").is_some_and(|(area, access)| {
            self.permission == area && self.types.iter().any(|granted| granted == access)
        })
    }
}

impl Client {
    /// Whose data the API user sees: `GET /api/User`.
    ///
    /// # Errors
    /// Those of [`Client::send`], and [`Kind::BadAnswer`] when the answer names no tenant.
    pub(crate) async fn tenant(&self) -> Result<TenantId> {
        let request = Request::get("/api/User", &[])?.expecting(Expected {
            table: "user".to_owned(),
            shape: Shape::Record,
            fields: ["TenantId".to_owned()].into(),
            ..Expected::list()
        });
        let answer = self.send(&request).await?;
        let user: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match &user["TenantId"] {
            Value::String(text) if !text.is_empty() => Ok(TenantId(text.clone())),
            Value::Number(number) => Ok(TenantId(number.to_string())),
            _ => Err(Error::new(Kind::BadAnswer, "the answer of /api/User holds no TenantId")),
        }
    }

    /// What the API user may do: `GET /api/User/ApiPermissions`.
    ///
    /// # Errors
    /// Those of [`Client::send`], and [`Kind::BadAnswer`] when the answer is no list of permissions.
    pub(crate) async fn permissions(&self) -> Result<Vec<ApiPermission>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Wire {
            permission: String,
            permission_types: Option<Vec<String>>,
        }
        const PATH: &str = "/api/User/ApiPermissions";
        let request = Request::get(PATH, &[])?.expecting(Expected {
            table: "permissions".to_owned(),
            fields: ["Permission".to_owned()].into(),
            ..Expected::list()
        });
        let answer = self.send(&request).await?;
        let no_list = || format!("the answer of {PATH} is no list of permissions");
        let parts = records(&answer).map_err(|error| error.within(no_list()))?;
        parts
            .records
            .iter()
            .map(|record| {
                let wire: Wire = serde_json::from_str(record.get())
                    .map_err(|cause| Error::caused(Kind::BadAnswer, no_list(), cause))?;
                let types = wire.permission_types.unwrap_or_default();
                Ok(ApiPermission { permission: wire.permission, types })
            })
            .collect()
    }
}
