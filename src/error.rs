//! One error for the whole program: a kind, our own context, and the source attached.
//!
//! The kind decides, each in one exhaustive `match`, whether a call is tried again
//! ([`Kind::is_retryable`]), with which status the process exits ([`Kind::exit_status`]) and which
//! hint the operator gets ([`Kind::hint`]). A source is attached, never printed inside our own text:
//! [`Error`]'s `Display` is the context alone, the report at the edge walks the chain.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::printable;

/// The program's result.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, as far as anybody has to act differently on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// The command line makes no sense (exit status 2).
    Usage,
    /// The configuration or a resource file is wrong.
    Config,
    /// The token endpoint refused the credentials.
    Credentials,
    /// 401: an endpoint refused a fresh token.
    Unauthorized,
    /// 403: a permission is missing.
    Forbidden,
    /// 404: there is no such thing.
    NotFound,
    /// 405: the service has no such call.
    NotAllowed,
    /// 400 or another 4xx that no repetition mends.
    Refused,
    /// 429, or a feed call that was held back.
    Throttled,
    /// A call that was not made: the platform wants none for longer than one waits (`Retry-After`).
    RetryAfter,
    /// A call that was not made: the token endpoint gave no token, and did not say that the credentials are why.
    NoToken,
    /// No connection: DNS, refused, reset, closed in mid-answer.
    Unreachable,
    /// TLS failed: unknown authority, wrong name, expired.
    Tls,
    /// No complete answer within the time limit.
    Timeout,
    /// 5xx.
    Server,
    /// The answer is not what the API promises: HTML, broken JSON, wrong shape.
    BadAnswer,
    /// The answer is larger than `limits.answer_bytes` or `limits.answer_records`.
    TooLarge,
    /// A search row whose `Id` is not its `CaseId`: nothing may be fetched by it.
    WrongId,
    /// The store belongs to another tenant.
    Tenant,
    /// The store is held by another process.
    StoreLocked,
    /// The store was written by a newer version.
    StoreNewer,
    /// The store was written by an earlier version, and this command upgrades none.
    StoreOlder,
    /// DuckDB failed.
    Store,
    /// DuckDB has no memory left, or has given up the store: it has to be opened anew.
    StoreDown,
    /// The store's file is no longer where this process opened it.
    StoreGone,
    /// The disk is full.
    DiskFull,
    /// A file could not be read or written.
    Io,
    /// The object store of the Parquet snapshots cannot be reached, or refuses.
    ObjectStore,
    /// A SQL statement that the user typed is wrong.
    Query,
    /// The run was asked to stop.
    Cancelled,
    /// The lake's catalog or data could not be read or written (docs/lake.md).
    Lake,
    /// Another host asks the change feeds, or may (docs/lake.md, "One host asks the feeds").
    Lease,
    /// A rule of our own is broken: a defect.
    Internal,
    /// A thread that everything hangs on has ended, by a defect: nothing goes on in this process.
    Dead,
}

impl Kind {
    /// Whether the service says that it has no such call.
    pub(crate) fn is_no_such_call(self) -> bool {
        matches!(self, Kind::NotFound | Kind::NotAllowed)
    }

    /// Whether the same call can succeed later without anybody doing anything.
    pub(crate) fn is_retryable(self) -> bool {
        match self {
            Kind::Throttled
            | Kind::NoToken
            | Kind::Unreachable
            | Kind::Timeout
            | Kind::Server
            | Kind::BadAnswer
            | Kind::ObjectStore => true,
            Kind::Usage
            | Kind::Config
            | Kind::Credentials
            | Kind::Unauthorized
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::NotAllowed
            | Kind::Refused
            | Kind::RetryAfter
            | Kind::Tls
            | Kind::TooLarge
            | Kind::WrongId
            | Kind::Tenant
            | Kind::StoreLocked
            | Kind::StoreNewer
            | Kind::StoreOlder
            | Kind::Store
            | Kind::StoreDown
            | Kind::StoreGone
            | Kind::DiskFull
            | Kind::Io
            | Kind::Query
            | Kind::Cancelled
            | Kind::Lake
            | Kind::Lease
            | Kind::Internal
            | Kind::Dead => false,
        }
    }

    /// The exit status of a process that ends by this error (docs/architecture.md, "Commands").
    pub fn exit_status(self) -> u8 {
        match self {
            Kind::Usage | Kind::Config => 2,
            Kind::Credentials
            | Kind::Unauthorized
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::NotAllowed
            | Kind::Refused
            | Kind::Throttled
            | Kind::RetryAfter
            | Kind::NoToken
            | Kind::Unreachable
            | Kind::Tls
            | Kind::Timeout
            | Kind::Server
            | Kind::BadAnswer
            | Kind::TooLarge
            | Kind::WrongId
            | Kind::Tenant
            | Kind::StoreLocked
            | Kind::StoreNewer
            | Kind::StoreOlder
            | Kind::Store
            | Kind::StoreDown
            | Kind::StoreGone
            | Kind::DiskFull
            | Kind::Io
            | Kind::ObjectStore
            | Kind::Query
            | Kind::Cancelled
            | Kind::Lake
            | Kind::Lease
            | Kind::Internal
            | Kind::Dead => 1,
        }
    }

    /// What the operator can do, where there is something to do.
    pub(crate) fn hint(self) -> Option<&'static str> {
        match self {
            Kind::Credentials => Some(
                "check source.client_id and source.client_secret; `casemirror check` logs in and \
                 changes nothing",
            ),
            Kind::Unreachable => {
                Some("check source.base_url, the network, and HTTPS_PROXY if one is needed")
            }
            Kind::Tls => Some(
                "if the service uses a certificate authority of its own, name its PEM file in \
                 source.ca_file; or it does not speak TLS at this port",
            ),
            Kind::Timeout => {
                Some("limits.timeout (journals: limits.journal_timeout) can be raised")
            }
            Kind::RetryAfter => Some(
                "`casemirror status` says until when; `casemirror sync --now` calls all the same. What is committed \
                 stays",
            ),
            Kind::NoToken => Some(
                "no call can be made without a token: what was not asked has not failed, and is asked by the next run. \
                 If there never was one, source.base_url may point to something else than the API",
            ),
            Kind::BadAnswer => Some(
                "source.base_url may point to something else than the API (a login page, a proxy)",
            ),
            Kind::TooLarge => Some(
                "limits.answer_bytes and limits.answer_records can be raised, where there is the memory for it",
            ),
            Kind::Tenant => Some(
                "this store was filled from another customer's data: use another store.path, or \
                 the credentials it was filled with",
            ),
            Kind::StoreLocked => Some(
                "one process at a time works on a store. `casemirror run` takes sync, journals, close, verify, \
                 export, backup, plan and status from other processes; for all else wait until it has ended",
            ),
            Kind::StoreOlder => {
                Some("`casemirror sync` upgrades it, and keeps a copy of what it was")
            }
            Kind::StoreNewer => {
                Some("install the version of casemirror that wrote it, or a newer one")
            }
            Kind::DiskFull => Some(
                "free some space and run again: nothing is lost, the last complete state is kept",
            ),
            Kind::ObjectStore => Some(
                "check publish.parquet, the network, and the credentials in the environment (docs/operations.md); the \
                 store and the published file go on, and the next publishing tries it again",
            ),
            Kind::StoreDown => Some(
                "start it again: nothing is lost. Where it ran out of memory, raise store.memory_limit",
            ),
            Kind::StoreGone => Some(
                "start it again: it works on the file that is there then. Where there is none, `casemirror restore` \
                 makes a backup the store, and `casemirror sync` a new one",
            ),
            Kind::Dead => Some(
                "start it again: nothing is lost. If it comes again it is a defect of casemirror: please report \
                 it with this text",
            ),
            Kind::Internal => {
                Some("this is a defect of casemirror: please report it with this text")
            }
            Kind::Usage
            | Kind::Config
            | Kind::Unauthorized
            | Kind::Forbidden
            | Kind::NotFound
            | Kind::NotAllowed
            | Kind::Refused
            | Kind::Throttled
            | Kind::Server
            | Kind::WrongId
            | Kind::Store
            | Kind::Io
            | Kind::Query
            | Kind::Cancelled
            | Kind::Lake
            | Kind::Lease => None,
        }
    }
}

/// An error: its [`Kind`], what we were doing, and what caused it.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    context: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of our own finding.
    pub(crate) fn new(kind: Kind, context: impl Into<String>) -> Self {
        Error { kind, context: context.into(), source: None }
    }

    /// An error caused by another one, which is attached and not printed in `context`.
    pub fn caused(
        kind: Kind,
        context: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Error { kind, context: context.into(), source: Some(source.into()) }
    }

    /// What went wrong.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The same error, known to be of another kind.
    pub(crate) fn of_kind(self, kind: Kind) -> Self {
        Error { kind, ..self }
    }

    /// The same error with what we were doing around it: `context` becomes the text, this error the
    /// cause; the kind stays.
    pub(crate) fn within(self, context: impl Into<String>) -> Self {
        Error { kind: self.kind, context: context.into(), source: Some(Box::new(self)) }
    }

    /// The texts of all causes, outermost first, each said once.
    ///
    /// Some libraries print their cause inside their own text, and DuckDB's errors end in a cause
    /// that holds nothing but a code.
    pub(crate) fn causes(&self) -> Vec<String> {
        let mut said = self.context.clone();
        let mut causes = Vec::new();
        let mut next = std::error::Error::source(self);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !said.contains(&text) && text != DUCKDB_CODE_ONLY {
                said.push_str(&text);
                causes.push(text);
            }
            next = cause.source();
        }
        causes
    }

    /// What the operator is told: the context, its causes and the hint, a line each, as a terminal may have
    /// it.
    pub fn report(&self) -> String {
        let mut text = format!("error: {self}\n");
        for cause in self.causes() {
            text.push_str(&format!("  caused by: {cause}\n"));
        }
        if let Some(hint) = self.kind.hint() {
            text.push_str(&format!("hint: {hint}\n"));
        }
        printable(&text).into_owned()
    }

    /// Tells the operator the same as one line of the log.
    pub fn log(&self) {
        tracing::error!(reason = self.chain(), hint = self.kind.hint(), "{self}");
    }

    /// The context and all causes in one line, for logs and the `reason` columns of the store.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.context.clone();
        for cause in self.causes() {
            text.push_str(": ");
            text.push_str(&cause);
        }
        text
    }
}

/// An error as another process is told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    kind: Kind,
    context: String,
    causes: Vec<String>,
}

impl Told {
    /// What is told of an error.
    pub(crate) fn of(error: &Error) -> Told {
        Told { kind: error.kind, context: error.context.clone(), causes: error.causes() }
    }

    /// The error, which reports itself as it would where it came up.
    pub(crate) fn into_error(self) -> Error {
        let inner = self.causes.into_iter().rev();
        let source = inner.fold(None, |source, text| Some(Box::new(Cause { text, source })));
        Error { kind: self.kind, context: self.context, source: source.map(|cause| cause as _) }
    }
}

/// A cause of an error of another process.
#[derive(Debug)]
struct Cause {
    text: String,
    source: Option<Box<Cause>>,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|cause| cause as _)
    }
}

/// How the `duckdb` crate prints the cause of most errors.
const DUCKDB_CODE_ONLY: &str = "Error code 1: Unknown error code";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.context)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|s| s as _)
    }
}

/// Whether an I/O error says that the disk (or the quota) is full.
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull
            | std::io::ErrorKind::QuotaExceeded
            | std::io::ErrorKind::FileTooLarge
    )
}

/// An I/O error on a named file.
pub(crate) fn io(doing: &str, path: &std::path::Path, source: std::io::Error) -> Error {
    let kind = if is_disk_full(&source) { Kind::DiskFull } else { Kind::Io };
    Error::caused(kind, format!("cannot {doing} {}", path.display()), source)
}
