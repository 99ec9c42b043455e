//! A lease as a row in the catalog's PostgreSQL. A process of its own reads and writes it, as it does the lake: DuckDB's
//! client of PostgreSQL is never loaded into the daemon.

use std::fmt;
use std::io::{BufRead, Write};
use std::process::Stdio;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::child::begin;
use super::engine::{Engine, LOCK, in_postgres};
use super::errand::Errand;
use crate::error::{self, Error, Kind, Result};
use crate::lease::{Entry, Register, Written};
use crate::sql;

/// The table of all leases, in a schema of its own: mirrors of one API user may have any schemas.
const SCHEMA: &str = "casemirror";
const TABLE: &str = "casemirror.leases";

/// What the process is told first.
#[derive(Serialize, Deserialize)]
struct Order {
    errand: Errand,
    api_user: String,
}

/// What it is asked, a line each.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ask {
    Read,
    Write { content: String, known: Option<i64> },
}

/// What it answers, a line each.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Found(Option<Row>),
    Written(bool),
    Failed { text: String, for_people: bool },
}

#[derive(Serialize, Deserialize)]
struct Row {
    content: String,
    version: i64,
}

/// The lease of one API user.
pub(crate) struct CatalogRegister {
    errand: Errand,
    api_user: String,
    process: Mutex<Option<Process>>,
}

/// It ends with this.
struct Process {
    _child: Child,
    asks: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Errand {
    /// The lease of the API user of that name, in the catalog's PostgreSQL.
    pub(crate) fn register(&self, api_user: &str) -> CatalogRegister {
        CatalogRegister {
            errand: self.clone(),
            api_user: api_user.to_owned(),
            process: Mutex::default(),
        }
    }
}

impl fmt::Debug for CatalogRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CatalogRegister").field(&self.place()).finish()
    }
}

impl CatalogRegister {
    async fn ask(&self, ask: &Ask) -> Result<Answer> {
        // Taken out: what is dropped in the middle of an answer is ended, and the next one begins anew.
        let mut held = self.process.lock().await;
        let mut process = match held.take() {
            Some(process) => process,
            None => Process::begin(&self.errand, &self.api_user).await?,
        };
        match process.ask(ask).await? {
            Answer::Failed { text, for_people } => {
                Err(Error::new(if for_people { Kind::Config } else { Kind::Lake }, text))
            }
            answer => {
                *held = Some(process);
                Ok(answer)
            }
        }
    }
}

impl Process {
    async fn begin(errand: &Errand, api_user: &str) -> Result<Process> {
        let mut child = begin("--lease", Stdio::null())?;
        let (Some(asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(Kind::Internal, "the process for the lease has no output"));
        };
        let answers = BufReader::new(answers).lines();
        let mut process = Process { _child: child, asks, answers };
        let order = Order { errand: errand.clone(), api_user: api_user.to_owned() };
        process.say(&order).await?;
        Ok(process)
    }

    async fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        self.say(ask).await?;
        let ended = || Error::new(Kind::Lake, "the process for the lease ended");
        loop {
            let line = self.answers.next_line().await.map_err(lost)?.ok_or_else(ended)?;
            // A library may write to standard output.
            if let Ok(answer) = serde_json::from_str(&line) {
                return Ok(answer);
            }
        }
    }

    async fn say(&mut self, what: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(what)
            .map_err(|e| Error::caused(Kind::Internal, "what is asked is no JSON", e))?;
        line.push(b'\n');
        self.asks.write_all(&line).await.map_err(lost)
    }
}

fn lost(e: std::io::Error) -> Error {
    Error::caused(Kind::Lake, "the process for the lease cannot be reached", e)
}

impl Register for CatalogRegister {
    fn place(&self) -> String {
        format!("{TABLE} of lake.catalog")
    }

    fn read(&self) -> BoxFuture<'_, Result<Option<Entry>>> {
        async {
            match self.ask(&Ask::Read).await? {
                Answer::Found(row) => Ok(row.map(|row| Entry {
                    content: row.content.into_bytes(),
                    version: row.version.to_string(),
                })),
                _ => Err(unexpected()),
            }
        }
        .boxed()
    }

    fn write<'a>(
        &'a self,
        content: Vec<u8>,
        known: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Written>> {
        async move {
            let content = String::from_utf8(content).map_err(|_| unexpected())?;
            let known = known.map(str::parse).transpose().map_err(|_| unexpected())?;
            match self.ask(&Ask::Write { content, known }).await? {
                Answer::Written(true) => Ok(Written::Done),
                Answer::Written(false) => Ok(Written::Late),
                _ => Err(unexpected()),
            }
        }
        .boxed()
    }
}

fn unexpected() -> Error {
    Error::new(Kind::Internal, "the process for the lease says what it was not asked")
}

/// For the process that began this one: asks come in, answers go out, until nobody asks any more.
///
/// # Errors
/// `Usage` where no order comes; `Io`.
pub(crate) fn serve(asks: impl BufRead, mut answers: impl Write) -> Result<()> {
    let mut lines = asks.lines();
    let failed = |e| error::io("read", std::path::Path::new("standard input"), e);
    let order = lines.next().transpose().map_err(failed)?.unwrap_or_default();
    let order: Order = serde_json::from_str(&order)
        .map_err(|_| Error::new(Kind::Usage, "standard input holds no order: leave out --lease"))?;
    let mut row = None;
    for line in lines {
        let Ok(ask) = serde_json::from_str(&line.map_err(failed)?) else { continue };
        let answer = answer(&order, &mut row, ask).unwrap_or_else(|error| Answer::Failed {
            text: error.chain(),
            for_people: error.kind() == Kind::Config,
        });
        let mut line = serde_json::to_vec(&answer)
            .map_err(|e| Error::caused(Kind::Internal, "an answer is no JSON", e))?;
        line.push(b'\n');
        let failed = |e| error::io("write to", std::path::Path::new("standard output"), e);
        answers.write_all(&line).and_then(|()| answers.flush()).map_err(failed)?;
    }
    Ok(())
}

fn answer(order: &Order, row: &mut Option<LeaseRow>, ask: Ask) -> Result<Answer> {
    let row = match row {
        Some(row) => row,
        None => row.insert(LeaseRow::open(order)?),
    };
    match ask {
        Ask::Read => row.read().map(Answer::Found),
        Ask::Write { content, known } => row.write(&content, known).map(Answer::Written),
    }
}

/// The row, in an open catalog.
struct LeaseRow {
    engine: Engine,
    api_user: String,
}

impl LeaseRow {
    fn open(order: &Order) -> Result<LeaseRow> {
        let engine = Engine::catalog(&order.errand)?;
        let row = LeaseRow { engine, api_user: sql::text(&order.api_user) };
        if !row.is_table_there()? {
            // Several hosts may do so at once.
            let made = row.execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS {SCHEMA}; CREATE TABLE IF NOT EXISTS {TABLE} \
                   (api_user TEXT PRIMARY KEY, version BIGINT NOT NULL, content TEXT NOT NULL)"
            ));
            if !row.is_table_there()? {
                made?;
            }
        }
        Ok(row)
    }

    fn is_table_there(&self) -> Result<bool> {
        let sql = format!("SELECT to_regclass({}) IS NOT NULL", sql::text(TABLE));
        self.engine.one("look for leases in the catalog", &in_postgres(&sql))
    }

    fn execute(&self, sql: &str) -> Result<()> {
        let sql = format!("CALL postgres_execute({}, {})", sql::text(LOCK), sql::text(sql));
        self.engine.run("write the lease", &sql)
    }

    fn read(&self) -> Result<Option<Row>> {
        let sql =
            format!("SELECT content, version FROM {TABLE} WHERE api_user = {}", self.api_user);
        let rows = self.engine.query("read the lease", &in_postgres(&sql), |row| {
            Ok(Row { content: row.get(0)?, version: row.get(1)? })
        })?;
        Ok(rows.into_iter().next())
    }

    /// Each writing is told from every other one by its content: it holds when and by whom.
    fn write(&self, content: &str, known: Option<i64>) -> Result<bool> {
        let (user, text) = (&self.api_user, sql::text(content));
        let written = self.execute(&match known {
            None => format!(
                "INSERT INTO {TABLE} VALUES ({user}, 1, {text}) ON CONFLICT (api_user) DO NOTHING"
            ),
            Some(known) => format!(
                "UPDATE {TABLE} SET version = version + 1, content = {text} \
                 WHERE api_user = {user} AND version = {known}"
            ),
        });
        let version = known.unwrap_or(0) + 1;
        let found = self.read()?;
        let is_written = found.is_some_and(|row| row.version == version && row.content == content);
        if !is_written {
            // Another one who wrote at the same moment makes it fail, and is seen at the next reading.
            written?;
        }
        Ok(is_written)
    }
}
