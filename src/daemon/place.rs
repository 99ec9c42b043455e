//! Where the socket is (docs/architecture.md, "Commands"): beside the store, or in the system's
//! temporary folder under a hash of its path.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tokio::net::UnixListener;

use crate::config::resolved;
use crate::error::{self, Result};
use crate::text::hex;

/// The name that the socket has while it is made, in a folder of its own: `.cm` and six letters.
const BIRTHPLACE: (&str, usize, &str) = (".cm", 6, "s");
const OWNER_ONLY: u32 = 0o600;

/// The socket of the daemon that holds the store at `store`, one for all paths that lead to it.
pub(crate) fn of(store: &Path) -> PathBuf {
    let store = resolved(store);
    let mut name = OsString::from(store.as_os_str());
    name.push(".sock");
    let beside = PathBuf::from(name);
    if fits(&beside) {
        return beside;
    }
    let digest = Sha256::digest(store.as_os_str().as_bytes());
    let hash = hex(&digest[..12]);
    std::env::temp_dir().join(format!("casemirror-{hash}.sock"))
}

/// Whether the system takes the path for a socket, and the one at which it is made.
fn fits(path: &Path) -> bool {
    let (prefix, letters, name) = BIRTHPLACE;
    let made = path.with_file_name(format!("{prefix}{}", "x".repeat(letters))).join(name);
    [path, &made].iter().all(|path| std::os::unix::net::SocketAddr::from_pathname(path).is_ok())
}

/// A socket that others can connect to; its file is removed with it.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    path: PathBuf,
}

impl Bound {
    /// Binds the socket of the store that this process holds. A file that is there was left by a
    /// process that was killed, because the store is held by one at a time.
    ///
    /// It is made in a folder that only the owner can enter, and moved to its place when nobody else
    /// can use it.
    ///
    /// # Errors
    /// `Io`, `DiskFull`.
    pub(super) fn at(path: &Path) -> Result<Bound> {
        let parent = path.parent().unwrap_or(Path::new("."));
        let (prefix, letters, name) = BIRTHPLACE;
        let private = tempfile::Builder::new()
            .prefix(prefix)
            .rand_bytes(letters)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(|e| error::io("create a folder in", parent, e))?;
        let made = private.path().join(name);
        let listener = UnixListener::bind(&made).map_err(|e| error::io("bind", &made, e))?;
        fs::set_permissions(&made, fs::Permissions::from_mode(OWNER_ONLY))
            .map_err(|e| error::io("protect", &made, e))?;
        fs::rename(&made, path).map_err(|e| error::io("put the socket at", path, e))?;
        Ok(Bound { listener, path: path.to_owned() })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // One that cannot be removed is replaced by the next daemon.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_stands_beside_the_store_or_where_its_path_is_short_enough() {
        assert_eq!(of(Path::new("/a/store.duckdb")), Path::new("/a/store.duckdb.sock"));
        let deep = PathBuf::from("/").join("deep/".repeat(30));
        let (one, other) = (of(&deep.join("a.duckdb")), of(&deep.join("b.duckdb")));
        assert_eq!(one.parent().unwrap(), std::env::temp_dir());
        assert_ne!(one, other);
        assert_eq!(one, of(&deep.join("a.duckdb")));
        // Fits itself, but not where it is made.
        let edge = PathBuf::from("/").join("x".repeat(96)).join("s");
        assert_eq!(of(&edge).parent().unwrap(), std::env::temp_dir());
    }

    #[test]
    fn all_paths_to_a_store_lead_to_one_socket() {
        let folder = tempfile::tempdir().unwrap();
        // Too long for a socket, unlike the link to it.
        let real = folder.path().join("deep/".repeat(30));
        fs::create_dir_all(&real).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        for made in [false, true] {
            let socket = of(&real.join("store.duckdb"));
            assert_eq!(socket.parent().unwrap(), std::env::temp_dir());
            assert_eq!(of(&link.join("store.duckdb")), socket, "{made}");
            assert_eq!(of(&real.join("../deep/store.duckdb")), socket, "{made}");
            fs::write(real.join("store.duckdb"), "").unwrap();
        }
    }

    #[tokio::test]
    async fn only_its_owner_can_use_it_and_it_goes_with_the_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.duckdb.sock");
        // Of a daemon that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let bound = Bound::at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, OWNER_ONLY);
        assert!(tokio::net::UnixStream::connect(&path).await.is_ok());
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        drop(bound);
        assert!(!path.exists());
    }
}
