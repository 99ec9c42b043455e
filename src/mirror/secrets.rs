//! Secrets that casemirror makes itself: `<store.path>.secrets`, mode 0600, never in the store
//! (docs/architecture.md, "Privacy").

use std::io::Write;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::config::{self, PrivacyMode};
use crate::decode::Privacy;
use crate::durable;
use crate::error::{self, Error, Kind, Result};
use crate::text::hex;

#[derive(Serialize, Deserialize)]
struct File {
    /// Key of the privacy hashes, 64 hexadecimal digits.
    hash_key: String,
    /// The secret part of the address of webhooks, from when it was first asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_token: Option<String>,
}

/// The key of this mirror's privacy hashes; made when the store is. `fingerprint` is that of the key
/// that the store has hashed with ([`Privacy::fingerprint`]), if it has.
///
/// # Errors
/// `Config` where the file is not what we wrote, or the store needs it and it is gone or another one's:
/// with another key, equal values would get other hashes.
pub(super) fn hash_key(store: &Path, fingerprint: Option<&str>) -> Result<[u8; 32]> {
    match known(store, fingerprint)? {
        Some((key, _)) => Ok(key),
        None => create(&file(store)),
    }
}

/// What the file holds; `None` where there is none and none is needed.
///
/// # Errors
/// Those of [`hash_key`].
pub(super) fn text(store: &Path, fingerprint: Option<&str>) -> Result<Option<String>> {
    Ok(known(store, fingerprint)?.map(|(_, text)| text))
}

/// Where they are.
pub(super) fn file(store: &Path) -> PathBuf {
    durable::with_suffix(store, ".secrets")
}

fn known(store: &Path, fingerprint: Option<&str>) -> Result<Option<([u8; 32], String)>> {
    let path = file(store);
    let refused = |what: &str| {
        Error::new(
            Kind::Config,
            format!(
                "{} {what}: restore it from a backup; or remove {} and, if it is there, this file, and \
                 begin again with a new store, whose history is empty and whose hashes are others",
                path.display(),
                store.display()
            ),
        )
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let key = parse(&text).ok_or_else(|| {
                refused("is damaged, it should hold hash_key = \"64 hexadecimal digits\"")
            })?;
            if fingerprint.is_some_and(|known| known != fingerprint_of(key)) {
                return Err(refused(
                    "holds another key than the one that the store was hashed with",
                ));
            }
            Ok(Some((key, text)))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && fingerprint.is_some() => {
            Err(refused("is gone, with the key that the store was hashed with"))
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(error::io("read", &path, e)),
    }
}

/// The secret part of the address of webhooks; made and kept when it is first asked for. Whoever asks holds the
/// store.
///
/// # Errors
/// `Config` where there is no such file or it is not what we wrote; `Io`.
pub(crate) fn webhook_token(store: &Path) -> Result<SecretString> {
    let (path, mut file) = file_of(store)?;
    if let Some(token) = file.webhook_token {
        return Ok(token.into());
    }
    let token = hex(&rand::random::<[u8; 24]>());
    file.webhook_token = Some(token.clone());
    write(&path, &file)?;
    Ok(token.into())
}

/// The same, where there is one.
///
/// # Errors
/// As [`webhook_token`].
pub(crate) fn known_webhook_token(store: &Path) -> Result<Option<SecretString>> {
    if !super::is_there(&durable::with_suffix(store, ".secrets"))? {
        return Ok(None);
    }
    Ok(file_of(store)?.1.webhook_token.map(Into::into))
}

fn file_of(store: &Path) -> Result<(PathBuf, File)> {
    let path = durable::with_suffix(store, ".secrets");
    let text = std::fs::read_to_string(&path).map_err(|e| error::io("read", &path, e))?;
    let file = toml::from_str(&text).map_err(|_| {
        // Not with its text, which is secret.
        Error::new(
            Kind::Config,
            format!("{} is damaged: it is not what casemirror wrote", path.display()),
        )
    })?;
    Ok((path, file))
}

/// What the store keeps of the key, to know it again.
pub(super) fn fingerprint_of(key: [u8; 32]) -> String {
    let keep =
        config::Privacy { identifiers: PrivacyMode::Keep, contact_details: PrivacyMode::Keep };
    Privacy::new(&keep, key).fingerprint()
}

fn parse(text: &str) -> Option<[u8; 32]> {
    let file: File = toml::from_str(text).ok()?;
    let digits = file.hash_key.as_bytes();
    let mut key = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(key)
}

fn create(path: &Path) -> Result<[u8; 32]> {
    let key: [u8; 32] = rand::random();
    write(path, &File { hash_key: hex(&key), webhook_token: None })?;
    Ok(key)
}

fn write(path: &Path, file: &File) -> Result<()> {
    let text = toml::to_string(file)
        .map_err(|e| Error::caused(Kind::Internal, "cannot write the secrets", e))?;
    let replacement = durable::Replacement::of(path)?;
    durable::create_private(replacement.path())?
        .write_all(text.as_bytes())
        .map_err(|e| error::io("write", replacement.path(), e))?;
    replacement.finish(durable::Access::AsCreated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let key = hash_key(&store, None).unwrap();
        assert_eq!(hash_key(&store, None).unwrap(), key);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let file = folder.path().join("store.duckdb.secrets");
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn the_token_of_the_webhooks_is_made_once_beside_the_key() {
        use secrecy::ExposeSecret;
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        assert!(known_webhook_token(&store).unwrap().is_none());
        let key = hash_key(&store, None).unwrap();
        assert!(known_webhook_token(&store).unwrap().is_none());
        let token = webhook_token(&store).unwrap();
        assert_eq!(token.expose_secret().len(), 48);
        let known = known_webhook_token(&store).unwrap().unwrap();
        assert_eq!(known.expose_secret(), token.expose_secret());
        assert_eq!(webhook_token(&store).unwrap().expose_secret(), token.expose_secret());
        assert_eq!(hash_key(&store, None).unwrap(), key);
    }

    #[test]
    fn a_damaged_file_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        std::fs::write(folder.path().join("store.duckdb.secrets"), "hash_key = \"12\"").unwrap();
        assert_eq!(hash_key(&store, None).unwrap_err().kind(), Kind::Config);
    }

    #[test]
    fn a_key_that_the_store_was_hashed_with_is_not_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.duckdb");
        let file = folder.path().join("store.duckdb.secrets");
        let key = hash_key(&store, None).unwrap();
        let known = fingerprint_of(key);
        assert!(!std::fs::read_to_string(&file).unwrap().contains(&known));
        assert_eq!(hash_key(&store, Some(&known)).unwrap(), key);
        let refused = || {
            let error = hash_key(&store, Some(&known)).unwrap_err();
            assert_eq!(error.kind(), Kind::Config);
            assert!(error.to_string().contains(&file.display().to_string()), "{error}");
            error.to_string()
        };
        std::fs::remove_file(&file).unwrap();
        assert!(refused().contains("is gone"));
        assert!(!file.exists(), "none is made in its place");
        hash_key(&store, None).unwrap();
        assert!(refused().contains("another key"));
    }
}
