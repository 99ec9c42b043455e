//! Web addresses that hold a secret: whoever knows a chat's incoming webhook may write there.

use secrecy::{ExposeSecret, SecretString};
use url::Url;

/// An address that is shown nowhere.
#[derive(Debug, Clone)]
pub(crate) struct SecretUrl(SecretString);

impl SecretUrl {
    pub(super) fn new(url: &Url) -> SecretUrl {
        SecretUrl(SecretString::from(url.as_str()))
    }

    /// The address as it is written.
    pub(super) fn expose_secret(&self) -> &str {
        self.0.expose_secret()
    }

    /// The address, to be called.
    pub(crate) fn expose(&self) -> Url {
        Url::parse(self.0.expose_secret()).expect("it was one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_nowhere() {
        let url = Url::parse("https://chat.example.com/hooks/T0/s3cret?key=s3cret").unwrap();
        let secret = SecretUrl::new(&url);
        assert_eq!(secret.expose(), url);
        assert!(!format!("{secret:?}").contains("s3cret"), "{secret:?}");
    }
}
