//! Which file a path leads to: another spelling, a link and a hard link lead to the same one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Whether both paths lead to one file or folder, whether there is one yet or not.
pub(crate) fn lead_to_one(one: &Path, other: &Path) -> bool {
    let identity = |path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let same = identity(one).is_some_and(|one| identity(other) == Some(one));
    same || resolved(one) == resolved(other)
}

/// The path without links, as far as it exists; behind that by its words.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let parts: Vec<Component<'_>> = path.components().collect();
    for length in (0..=parts.len()).rev() {
        let (there, rest) = parts.split_at(length);
        let Ok(mut real) = fs::canonicalize(there.iter().collect::<PathBuf>()) else { continue };
        for part in rest {
            match part {
                Component::ParentDir => {
                    real.pop();
                }
                part => real.push(part),
            }
        }
        return real;
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn spellings_links_and_hard_links_lead_to_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("data")).unwrap();
        symlink(at("data"), at("link")).unwrap();
        // Before there is a file, and when there is one.
        for made in [false, true] {
            if made {
                fs::write(at("data/store"), "").unwrap();
                fs::hard_link(at("data/store"), at("hard")).unwrap();
                symlink(at("data/store"), at("soft")).unwrap();
            }
            for other in ["data/store", "./data/store", "data/../data/store", "link/store"] {
                assert!(lead_to_one(&at("data/store"), &at(other)), "{other}, {made}");
            }
            for other in ["data/store2", "data/store/x", "store", "new/../store", "data"] {
                assert!(!lead_to_one(&at("data/store"), &at(other)), "{other}, {made}");
            }
            assert!(lead_to_one(&at("new/../x"), &at("x")));
        }
        for other in ["hard", "soft"] {
            assert!(lead_to_one(&at("data/store"), &at(other)), "{other}");
        }
    }
}
