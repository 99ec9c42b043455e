//! Where the Parquet snapshots go: a folder, or a prefix in a bucket of an object store.

use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use super::places::resolved;

/// The value of `publish.parquet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParquetRoot {
    Folder(PathBuf),
    Bucket(BucketUrl),
}

impl ParquetRoot {
    /// The folder, where it is one.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            ParquetRoot::Folder(folder) => Some(folder),
            ParquetRoot::Bucket(_) => None,
        }
    }

    /// What it is called, the same by whatever path.
    pub(crate) fn address(&self) -> String {
        match self {
            ParquetRoot::Folder(folder) => resolved(folder).display().to_string(),
            ParquetRoot::Bucket(url) => url.to_string(),
        }
    }
}

/// As people write it.
impl fmt::Display for ParquetRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParquetRoot::Folder(folder) => folder.display().fmt(f),
            ParquetRoot::Bucket(url) => url.fmt(f),
        }
    }
}

/// Whose protocol an object store speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Amazon S3, and all that speak its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

impl Provider {
    const ALL: [(&'static str, Provider); 3] =
        [("s3", Provider::S3), ("gs", Provider::Google), ("az", Provider::Azure)];

    fn scheme(self) -> &'static str {
        Self::ALL.iter().find(|(_, provider)| *provider == self).map_or("", |(scheme, _)| scheme)
    }
}

/// `s3://bucket/prefix`. It holds no credentials: an address that does is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketUrl {
    provider: Provider,
    bucket: String,
    /// Without slashes at its ends; may be empty.
    prefix: String,
}

/// What an address of an object store has to look like.
pub(super) const RULE: &str =
    "must be a folder, or an address such as \"s3://bucket/prefix\", with s3, gs or az";

impl BucketUrl {
    /// Whether a text is meant as an address, be it right or not, and not as a path. What begins as one and lacks a
    /// slash is: a folder `s3:` would be made of it.
    pub(super) fn is_one(text: &str) -> bool {
        let is_scheme = |text: &str| Provider::ALL.iter().any(|(scheme, _)| *scheme == text);
        let begins = text.trim_start().to_ascii_lowercase();
        let first = begins.split('/').next().unwrap_or_default();
        text.contains("://")
            || first.ends_with(':')
            || first.split_once(':').is_some_and(|(scheme, _)| is_scheme(scheme))
    }

    /// # Errors
    /// The rule that is broken, without the address: it may hold a key.
    pub(super) fn parse(text: &str) -> Result<BucketUrl, &'static str> {
        let (scheme, rest) = text.split_once("://").ok_or(RULE)?;
        let known = Provider::ALL.iter().find(|(known, _)| *known == scheme);
        let (_, provider) = known.ok_or(RULE)?;
        if rest.contains(['@', '?', '#']) {
            return Err(
                "must hold no credentials, no query (?) and no fragment (#): where keys belong is said in \
                 docs/operations.md, and for a lake in docs/lake.md",
            );
        }
        // What is not as it would be sent (spaces, `..`, `%`) would be another object than it looks like.
        let url = Url::parse(text).map_err(|_| RULE)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.=".contains(c);
        let is_segment = |s: &str| !s.is_empty() && s != "." && s != ".." && s.chars().all(plain);
        let is_small = !bucket.contains(|c: char| c.is_ascii_uppercase());
        let is_bucket = is_segment(bucket)
            && is_small
            && url.host_str() == Some(bucket)
            && url.port().is_none();
        if !is_bucket {
            return Err("must name a bucket (az: a container) in small letters, digits, - and .");
        }
        if !prefix.is_empty() && !prefix.split('/').all(is_segment) {
            return Err("must have a prefix of letters, digits, -, _, ., = and single slashes");
        }
        Ok(BucketUrl { provider: *provider, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    pub(crate) fn provider(&self) -> Provider {
        self.provider
    }

    /// The address of the bucket alone: `s3://bucket`.
    pub(crate) fn bucket(&self) -> String {
        format!("{}://{}", self.provider.scheme(), self.bucket)
    }

    /// Whether all that is in this place is in the other one too.
    pub(super) fn is_within(&self, other: &BucketUrl) -> bool {
        let is_same_bucket = (self.provider, &self.bucket) == (other.provider, &other.bucket);
        let rest = self.prefix.strip_prefix(&other.prefix);
        is_same_bucket
            && rest.is_some_and(|rest| {
                other.prefix.is_empty() || rest.is_empty() || rest.starts_with('/')
            })
    }

    /// What the names of all objects begin with, without slashes at its ends; may be empty.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "{}{slash}{}", self.bucket(), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_bucket_and_a_prefix() {
        for (text, bucket, prefix, shown) in [
            ("s3://mirror", "s3://mirror", "", "s3://mirror"),
            ("s3://mirror/", "s3://mirror", "", "s3://mirror"),
            (
                "gs://mirror.example.com/a/b/",
                "gs://mirror.example.com",
                "a/b",
                "gs://mirror.example.com/a/b",
            ),
            ("az://box/Team=1/x_y", "az://box", "Team=1/x_y", "az://box/Team=1/x_y"),
        ] {
            let url = BucketUrl::parse(text).unwrap();
            assert_eq!((url.bucket().as_str(), url.prefix()), (bucket, prefix), "{text}");
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn an_address_that_lacks_a_slash_is_an_address_and_a_path_is_none() {
        for text in [
            "s3://mirror/x",
            "s3:/mirror/x",
            "s3:mirror",
            "S3:/mirror",
            " s3:/mirror",
            "gs:/mirror",
            "az:/box",
            "file:/tmp",
            "s3:",
        ] {
            assert!(BucketUrl::is_one(text), "{text}");
        }
        for text in ["s3", "s3/mirror", "data/s3:/x", "./s3:/x", "/srv/12:30/x", "a:b/x", ""] {
            assert!(!BucketUrl::is_one(text), "{text}");
        }
    }

    #[test]
    fn places_within_each_other_are_told_from_those_beside_each_other() {
        let url = |text| BucketUrl::parse(text).unwrap();
        for (inner, outer, is) in [
            ("s3://b/x", "s3://b/x", true),
            ("s3://b/x/y", "s3://b/x", true),
            ("s3://b/x", "s3://b", true),
            ("s3://b/xy", "s3://b/x", false),
            ("s3://b", "s3://b/x", false),
            ("s3://c/x", "s3://b/x", false),
            ("gs://b/x", "s3://b/x", false),
        ] {
            assert_eq!(url(inner).is_within(&url(outer)), is, "{inner} in {outer}");
        }
    }

    #[test]
    fn what_is_no_plain_address_is_refused_and_never_repeated() {
        for text in [
            "s3://key:s3cret@mirror/x",
            "s3://mirror?secret=s3cret",
            "s3://mirror/x#s3cret",
            "http://mirror/x",
            "file:///tmp",
            "s3://",
            "s3:///x",
            "s3://Mirror/x",
            "s3://mirror:9000/x",
            "s3://mirror//x",
            "s3://mirror/../x",
            "s3://mirror/a b",
            "s3://mirror/%41",
        ] {
            let broken = BucketUrl::parse(text).unwrap_err();
            assert!(!broken.contains("s3cret"), "{text}: {broken}");
        }
    }
}
