//! What the catalog and the object store want to know, from `lake.secret_file`, and that no text shows it.

use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::Url;

use super::errand::{Catalog, Errand};
use crate::config::Conninfo;
use crate::error::{self, Error, Kind, Result};
use crate::sql;

/// What stands in the place of a secret.
const HIDDEN: &str = "***";
/// Shorter texts would hide half of every message, and are no secret.
const SHORTEST_SECRET: usize = 3;

/// How libpq is to notice that its server is gone. What the user's own connection says goes before it.
const PATIENCE: [(&str, &str); 5] = [
    ("connect_timeout", "10"),
    ("keepalives_idle", "30"),
    ("keepalives_interval", "10"),
    ("keepalives_count", "3"),
    ("tcp_user_timeout", "60000"),
];

/// `lake.secret_file`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Secrets {
    postgres_password: Option<SecretString>,
    s3_key_id: Option<SecretString>,
    s3_secret: Option<SecretString>,
    s3_session_token: Option<SecretString>,
    s3_region: Option<String>,
    s3_endpoint: Option<String>,
    s3_url_style: Option<String>,
    s3_use_ssl: Option<bool>,
}

impl Secrets {
    /// Of the file that the errand names.
    ///
    /// # Errors
    /// `Io`; `Config` naming the key that is wrong, and no value.
    pub(super) fn read(errand: &Errand) -> Result<Secrets> {
        let Some(path) = &errand.secret_file else { return Ok(Secrets::default()) };
        let text = std::fs::read_to_string(path).map_err(|e| error::io("read", path, e))?;
        toml::from_str(&text).map_err(|e| refused(path, &text, &e))
    }

    /// What libpq connects with, with the password of the file.
    ///
    /// # Errors
    /// `Config`.
    pub(super) fn connection(&self, connection: &str) -> Result<String> {
        let password = self.postgres_password.as_ref().map(ExposeSecret::expose_secret);
        if !connection.starts_with("postgresql://") {
            let before: Vec<String> =
                PATIENCE.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let after = password.map_or(String::new(), |password| {
                format!(" password='{}'", Conninfo::quoted(password))
            });
            return Ok(format!("{} {connection}{after}", before.join(" ")));
        }
        let mut url = Url::parse(connection).map_err(|_| not_understood())?;
        if let Some(password) = password
            && url.set_password(Some(password)).is_err()
        {
            // Without a host, which may be a socket among the parameters, it is one itself.
            let others = parts_of(&url).filter(|part| name_of(part) != "password");
            let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
            let all: Vec<String> =
                others.map(str::to_owned).chain([format!("password={password}")]).collect();
            url.set_query(Some(&all.join("&")));
        }
        for (key, value) in PATIENCE {
            if !url.query_pairs().any(|(known, _)| known == key) {
                url.query_pairs_mut().append_pair(key, value);
            }
        }
        Ok(url.into())
    }

    /// What libpq connects with, as it may be shown.
    ///
    /// # Errors
    /// `Config`.
    pub(super) fn without_password(connection: &str) -> Result<String> {
        if !connection.starts_with("postgresql://") {
            let conninfo = Conninfo::parse(connection).ok_or_else(not_understood)?;
            return Ok(conninfo.without_secrets().to_string());
        }
        let mut url = Url::parse(connection).map_err(|_| not_understood())?;
        if url.password().is_some() {
            url.set_password(None).map_err(|()| not_understood())?;
        }
        // As they are written: libpq knows no `+` for a space.
        let others: Vec<&str> =
            parts_of(&url).filter(|part| !Conninfo::is_secret(&name_of(part))).collect();
        let others = (!others.is_empty()).then(|| others.join("&"));
        url.set_query(others.as_deref());
        Ok(url.into())
    }

    /// The statement that lets DuckDB into the object store at `address`; `None` where nothing is known of it.
    pub(super) fn object_store(&self, address: &str) -> Option<String> {
        let bucket = address.strip_prefix("s3://").and_then(|rest| rest.split('/').next())?;
        let text = |name: &str, value: Option<&str>| Some(format!("{name} {}", sql::text(value?)));
        let secret =
            |value: &Option<SecretString>| value.as_ref().map(|v| v.expose_secret().to_owned());
        let parts: Vec<String> = [
            text("KEY_ID", secret(&self.s3_key_id).as_deref()),
            text("SECRET", secret(&self.s3_secret).as_deref()),
            text("SESSION_TOKEN", secret(&self.s3_session_token).as_deref()),
            text("REGION", self.s3_region.as_deref()),
            text("ENDPOINT", self.s3_endpoint.as_deref()),
            text("URL_STYLE", self.s3_url_style.as_deref()),
            self.s3_use_ssl.map(|is| format!("USE_SSL {is}")),
        ]
        .into_iter()
        .flatten()
        .collect();
        let scope = sql::text(&format!("s3://{bucket}"));
        (!parts.is_empty()).then(|| {
            format!("CREATE SECRET lake_data (TYPE s3, {}, SCOPE {scope})", parts.join(", "))
        })
    }

    /// All that must be in no text.
    pub(super) fn hider(&self, errand: &Errand) -> Hider {
        let mut hidden = Vec::new();
        if let Catalog::Postgres(connection) = &errand.catalog {
            if let Ok(whole) = self.connection(connection) {
                hidden.extend(passwords_in(&whole));
                hidden.push(whole);
            }
            hidden.push(connection.clone());
            hidden.extend(passwords_in(connection));
        }
        let of_file =
            [&self.postgres_password, &self.s3_key_id, &self.s3_secret, &self.s3_session_token];
        for secret in of_file.into_iter().flatten() {
            let secret = secret.expose_secret();
            hidden.push(secret.to_owned());
            hidden.push(Conninfo::quoted(secret));
            hidden.push(utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string());
        }
        hidden.retain(|text| text.len() >= SHORTEST_SECRET);
        // The longest first: one may hold another.
        hidden.sort_by_key(|text| std::cmp::Reverse(text.len()));
        hidden.dedup();
        Hider { hidden }
    }
}

/// Takes secrets out of texts.
#[cfg_attr(test, derive(Default))]
pub(super) struct Hider {
    hidden: Vec<String>,
}

impl Hider {
    /// The text without any of them.
    pub(super) fn hide(&self, text: &str) -> String {
        self.hidden.iter().fold(text.to_owned(), |text, secret| text.replace(secret, HIDDEN))
    }
}

fn not_understood() -> Error {
    Error::new(Kind::Config, "lake.catalog is no address that PostgreSQL understands")
}

/// The passwords that stand in what libpq connects with, as they are and as they are written there.
fn passwords_in(connection: &str) -> Vec<String> {
    if !connection.starts_with("postgresql://") {
        let conninfo = Conninfo::parse(connection);
        let secrets = conninfo.iter().flat_map(Conninfo::secrets);
        return secrets.flat_map(|secret| [secret.to_owned(), Conninfo::quoted(secret)]).collect();
    }
    let Ok(url) = Url::parse(connection) else { return Vec::new() };
    let raw = url.password().unwrap_or_default();
    let asked = parts_of(&url).filter(|part| Conninfo::is_secret(&name_of(part)));
    let asked = asked.filter_map(|part| Some(part.split_once('=')?.1));
    let both = |written: &str| [written.to_owned(), decoded(written)];
    [raw].into_iter().chain(asked).flat_map(both).collect()
}

/// The parameters of an address, as they are written.
fn parts_of(url: &Url) -> impl Iterator<Item = &str> {
    url.query().into_iter().flat_map(|query| query.split('&'))
}

fn name_of(part: &str) -> String {
    decoded(part.split('=').next().unwrap_or_default())
}

fn decoded(written: &str) -> String {
    percent_decode_str(written).decode_utf8_lossy().into_owned()
}

/// What is wrong with the file, without a line of it: serde's own words may show a value.
fn refused(path: &Path, text: &str, wrong: &toml::de::Error) -> Error {
    let line = wrong.span().map(|at| text[..at.start.min(text.len())].matches('\n').count() + 1);
    let at = line.map_or(String::new(), |line| format!(", line {line}"));
    Error::new(
        Kind::Config,
        format!(
            "lake.secret_file: {}{at} is not as it should be: a TOML file with the keys postgres_password, \
             s3_key_id, s3_secret, s3_session_token, s3_region, s3_endpoint, s3_url_style (texts) and \
             s3_use_ssl (true or false), any of them",
            path.display()
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(text: &str) -> Secrets {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_password_of_the_file_is_added_in_either_notation() {
        let own = secrets(r#"postgres_password = "it's \\ me""#);
        let pairs = own.connection("host=db user=me").unwrap();
        assert!(pairs.ends_with(r"host=db user=me password='it\'s \\ me'"), "{pairs}");
        assert!(pairs.starts_with("connect_timeout=10 "), "{pairs}");
        let url = own.connection("postgresql://me@db/lake?connect_timeout=3").unwrap();
        assert!(
            url.starts_with("postgresql://me:it's%20%5C%20me@db/lake?connect_timeout=3&"),
            "{url}"
        );
        let socket = own.connection("postgresql:///lake?host=/tmp&password=other").unwrap();
        let expected = "postgresql:///lake?host=/tmp&password=it%27s%20%5C%20me&connect_timeout=10";
        assert!(socket.starts_with(expected), "{socket}");
        assert!(passwords_in(&socket).contains(&"it's \\ me".to_owned()), "{socket}");
    }

    #[test]
    fn passwords_are_found_where_people_write_them() {
        let found = |connection, secret: &str| {
            assert!(passwords_in(connection).iter().any(|found| found == secret), "{connection}");
        };
        found("host=db password=s3cret user=me", "s3cret");
        found(r"password = 'it\'s s3cret' host=db", "it's s3cret");
        found(r"password = 'it\'s s3cret' host=db", r"it\'s s3cret");
        found("host=db sslpassword=one password=two", "two");
        found("postgresql://me@db/lake?sslpassword=s3cret", "s3cret");
        assert!(passwords_in("postgresql://me:s3%20cret@db/lake").contains(&"s3 cret".to_owned()));
        assert_eq!(passwords_in("host=db user=me"), Vec::<String>::new());
    }

    #[test]
    fn the_password_is_taken_out_wherever_it_stands() {
        for (with, without) in [
            ("host=db password=s3cret user=me", "host=db user=me"),
            (r"password = 'it\'s s3cret' host=db", "host=db"),
            ("host=db user=me", "host=db user=me"),
            (
                "postgresql://me:s3cret@db/lake?password=s3cret&sslmode=require",
                "postgresql://me@db/lake?sslmode=require",
            ),
            (
                "postgresql:///lake?host=/tmp/sock&password=s3cret&options=-c%20a%3Db+c",
                "postgresql:///lake?host=/tmp/sock&options=-c%20a%3Db+c",
            ),
            ("postgresql://me@db/lake?passwor%64=s3cret", "postgresql://me@db/lake"),
        ] {
            assert_eq!(Secrets::without_password(with).unwrap(), without);
        }
    }

    #[test]
    fn a_wrong_file_is_named_without_a_word_of_it() {
        let text = "s3_region = \"eu\"\ns3_key = \"s3cret\"\n";
        let wrong = toml::from_str::<Secrets>(text).err().unwrap();
        let shown = refused(Path::new("/etc/lake.toml"), text, &wrong).to_string();
        assert!(shown.contains("/etc/lake.toml, line 2"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn only_what_is_known_of_the_object_store_is_said() {
        assert_eq!(secrets("").object_store("s3://b/p"), None);
        let some = secrets("s3_key_id = \"k\"\ns3_use_ssl = false");
        let sql = some.object_store("s3://b/p").unwrap();
        assert_eq!(
            sql,
            "CREATE SECRET lake_data (TYPE s3, KEY_ID 'k', USE_SSL false, SCOPE 's3://b')"
        );
    }
}
