//! The token endpoint (reference 4.1 and 5.1) and the check of bearer tokens.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;

use super::super::world::dice::mix;
use super::super::{Options, Shared};
use super::answer::{self, Refusal};

/// The API user's credentials and the tokens that were issued.
pub(crate) struct Tokens {
    client_id: String,
    client_secret: String,
    lifetime: Duration,
    refresh_lifetime: Duration,
    issued: u64,
    access: HashMap<String, Instant>,
    refresh: HashMap<String, Instant>,
    pub(crate) refuse_refresh: bool,
    pub(crate) refuse_credentials: bool,
}

impl std::fmt::Debug for Tokens {
    /// Without the secret and the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl Tokens {
    pub(crate) fn new(options: &Options) -> Tokens {
        Tokens {
            client_id: "sandbox-client".to_owned(),
            client_secret: format!("sandbox-secret-{:016x}", mix(options.seed, 0x5EC2)),
            lifetime: options.token_lifetime,
            refresh_lifetime: options.refresh_token_lifetime,
            issued: 0,
            access: HashMap::new(),
            refresh: HashMap::new(),
            refuse_refresh: false,
            refuse_credentials: false,
        }
    }

    pub(crate) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(crate) fn client_secret(&self) -> &str {
        &self.client_secret
    }

    /// All access tokens expire now.
    pub(crate) fn expire_all(&mut self) {
        self.access.clear();
    }

    /// Refuses with 401 unless the call carries a token that is valid now.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("Bearer "));
        let valid = token
            .and_then(|token| self.access.get(token))
            .is_some_and(|expires| *expires > Instant::now());
        if valid {
            return Ok(());
        }
        let message = "Authorization has been denied for this request";
        Err(Refusal::new(StatusCode::UNAUTHORIZED, message)
            .header(header::WWW_AUTHENTICATE, "Bearer"))
    }

    fn fresh(&mut self, kind: &str) -> String {
        self.issued += 1;
        let secret = mix(mix(0x70CE, self.issued), self.client_secret.len() as u64);
        format!("sandbox-{kind}-{}-{secret:016x}", self.issued)
    }

    fn access_token(&mut self) -> String {
        let token = self.fresh("access");
        let now = Instant::now();
        self.access.retain(|_, expires| *expires > now);
        self.access.insert(token.clone(), now + self.lifetime);
        token
    }

    fn grant(&mut self, form: &HashMap<String, String>) -> Result<serde_json::Value, Refusal> {
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        if field("client_id") != self.client_id {
            return Err(oauth(StatusCode::UNAUTHORIZED, "invalid_client"));
        }
        match field("grant_type") {
            "client_credentials" => {
                if self.refuse_credentials || field("client_secret") != self.client_secret {
                    return Err(oauth(StatusCode::UNAUTHORIZED, "invalid_client"));
                }
                let refresh = self.fresh("refresh");
                self.refresh.insert(refresh.clone(), Instant::now() + self.refresh_lifetime);
                Ok(json!({
                    "access_token": self.access_token(),
                    "token_type": "bearer",
                    "expires_in": self.lifetime.as_secs(),
                    "refresh_token": refresh,
                    "refresh_token_expires_in": self.refresh_lifetime.as_secs(),
                }))
            }
            "refresh_token" => {
                let expires = self.refresh.get(field("refresh_token"));
                let valid = expires.is_some_and(|expires| *expires > Instant::now());
                if self.refuse_refresh || !valid {
                    return Err(oauth(StatusCode::BAD_REQUEST, "invalid_grant"));
                }
                Ok(json!({
                    "access_token": self.access_token(),
                    "token_type": "bearer",
                    "expires_in": self.lifetime.as_secs(),
                }))
            }
            _ => Err(oauth(StatusCode::BAD_REQUEST, "unsupported_grant_type")),
        }
    }
}

fn oauth(status: StatusCode, error: &str) -> Refusal {
    let mut refusal = Refusal::new(status, "");
    refusal.body = json!({ "error": error }).to_string();
    refusal
}

/// `POST /authtoken`, form-encoded.
pub(crate) async fn issue(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.unwrap_or_default().starts_with("application/x-www-form-urlencoded") {
        return Err(oauth(StatusCode::BAD_REQUEST, "invalid_request"));
    }
    let form = url::form_urlencoded::parse(&body).into_owned().collect();
    let granted = shared.tokens().grant(&form)?;
    Ok(answer::json(granted.to_string().into_bytes()))
}
