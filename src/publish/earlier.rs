//! The snapshot before: its files are those of the next one too where nothing can have changed: linked in a
//! folder, named again in a bucket (docs/architecture.md, "Published means finished").

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::bucket::Found;
use super::footer;
use super::manifest::{File, Manifest};
use super::parts::Part;
use super::snapshots;

/// The files of the newest snapshot, as far as they can be compared.
pub(super) struct Earlier<'a> {
    place: Place<'a>,
    /// By their path within the snapshot.
    files: BTreeMap<String, File>,
}

/// Where they are.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    /// `publish.parquet`.
    Folder(&'a Path),
    Bucket(&'a Found),
}

impl<'a> Earlier<'a> {
    /// What can be taken over into the snapshot that `now` describes.
    pub(super) fn of(place: Place<'a>, now: &Manifest) -> Earlier<'a> {
        let earlier = match place {
            Place::Folder(root) => read(root),
            Place::Bucket(found) => found.latest.clone(),
        };
        let files = match earlier {
            // Another store counts differently, another DuckDB or program may write differently.
            Some(earlier)
                if earlier.store_id == now.store_id
                    && earlier.duckdb_version == now.duckdb_version
                    && earlier.program_version == now.program_version =>
            {
                // In a bucket it may be a file of the snapshot before the earlier one.
                let within = |file: &File| {
                    let (_, path) = file.path.strip_prefix("snapshots/")?.split_once('/')?;
                    Some(path.to_owned())
                };
                earlier
                    .files
                    .into_iter()
                    .filter_map(|file| within(&file).map(|path| (path, file)))
                    .collect()
            }
            _ => BTreeMap::new(),
        };
        Earlier { place, files }
    }

    /// Nothing can be taken over.
    pub(super) fn none(place: Place<'a>) -> Earlier<'a> {
        Earlier { place, files: BTreeMap::new() }
    }

    /// Takes over the file of this part, if its rows and columns are the same now: in a folder as a link to
    /// `path`, which the snapshot calls `name`. What the manifest is to say of it; `None`: it is to be written.
    pub(super) fn take(&self, part: &Part, path: &Path, name: &str) -> Option<File> {
        let file = self.files.get(&part.path())?;
        let known = part.changes.is_some() || part.inputs.is_some();
        let same = file.changes == part.changes
            && file.inputs == part.inputs
            && part.columns.as_ref().is_none_or(|columns| file.columns == columns.hash);
        if !(known && same) {
            return None;
        }
        let root = match self.place {
            Place::Folder(root) => root,
            Place::Bucket(found) => {
                let whole = file.statistics.is_some() && found.is_whole(&file.path, file.bytes);
                return whole.then(|| file.clone());
            }
        };
        let earlier = root.join(&file.path);
        let statistics = match &file.statistics {
            Some(statistics) => statistics.clone(),
            None => footer::read(&earlier, &file.path, &part.columns.as_ref()?.all, file.rows)
                .inspect_err(|e| tracing::warn!("it is written anew: {}", e.chain()))
                .ok()?,
        };
        let linked = link(&earlier, path, file.bytes);
        let (path, statistics) = (name.to_owned(), Some(statistics));
        linked.then(|| File { path, statistics, ..file.clone() })
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
