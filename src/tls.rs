//! What encrypts the connections that casemirror makes.

/// Sets the cryptography of every TLS connection of this process. To be called before a client is made.
pub(crate) fn provide() {
    // An error only says that there is a provider already, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
