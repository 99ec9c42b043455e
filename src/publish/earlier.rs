//! The snapshot before: its files are linked where nothing can have changed
//! (docs/architecture.md, "Published means finished").

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::footer;
use super::manifest::{File, Manifest};
use super::parts::Part;
use super::snapshots;

/// The files of the snapshot that `latest` shows, as far as they can be compared.
pub(super) struct Earlier {
    root: PathBuf,
    /// By their path within the snapshot.
    files: BTreeMap<String, File>,
}

impl Earlier {
    /// What can be linked into the snapshot that `now` describes.
    pub(super) fn of(root: &Path, now: &Manifest) -> Earlier {
        let files = match read(root) {
            // Another store counts differently, another DuckDB or program may write differently.
            Some(earlier)
                if earlier.store_id == now.store_id
                    && earlier.duckdb_version == now.duckdb_version
                    && earlier.program_version == now.program_version =>
            {
                let folder = format!("snapshots/{}/", earlier.snapshot_id);
                let within = |file: &File| file.path.strip_prefix(&folder).map(str::to_owned);
                earlier
                    .files
                    .into_iter()
                    .filter_map(|file| within(&file).map(|path| (path, file)))
                    .collect()
            }
            _ => BTreeMap::new(),
        };
        Earlier { root: root.to_owned(), files }
    }

    /// Nothing can be linked.
    pub(super) fn none(root: &Path) -> Earlier {
        Earlier { root: root.to_owned(), files: BTreeMap::new() }
    }

    /// Links the file of this part to `path`, if its rows and columns are the same now, and says what
    /// the manifest said of it. `None`: it is to be written.
    pub(super) fn link(&self, part: &Part, path: &Path) -> Option<File> {
        let file = self.files.get(&part.path())?;
        let known = part.changes.is_some() || part.inputs.is_some();
        let same = file.changes == part.changes
            && file.inputs == part.inputs
            && part.columns.as_ref().is_none_or(|columns| file.columns == columns.hash);
        if !(known && same) {
            return None;
        }
        let earlier = self.root.join(&file.path);
        let statistics = match &file.statistics {
            Some(statistics) => statistics.clone(),
            None => footer::read(&earlier, &file.path, &part.columns.as_ref()?.all, file.rows)
                .inspect_err(|e| tracing::warn!("it is written anew: {}", e.chain()))
                .ok()?,
        };
        let linked = link(&earlier, path, file.bytes);
        linked.then(|| File { statistics: Some(statistics), ..file.clone() })
    }
}

/// The manifest of the snapshot that `latest` shows.
fn read(root: &Path) -> Option<Manifest> {
    let link = snapshots::latest(root);
    if !link.exists() {
        return None;
    }
    Manifest::read(&link)
        .inspect_err(|e| tracing::warn!("every file is written anew: {}", e.chain()))
        .ok()
}

/// Links an earlier file, if it is still what its manifest says and nobody may write to it; where it
/// cannot be linked (another file system, too many links) it is written anew.
fn link(earlier: &Path, path: &Path, bytes: u64) -> bool {
    let whole = fs::symlink_metadata(earlier).is_ok_and(|found| {
        found.is_file() && found.len() == bytes && found.permissions().mode() & 0o777 == 0o444
    });
    whole
        && match fs::hard_link(earlier, path) {
            Ok(()) => true,
            Err(e) => {
                tracing::debug!("cannot link {}: {e}", earlier.display());
                false
            }
        }
}
