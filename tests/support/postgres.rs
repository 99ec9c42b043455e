//! A PostgreSQL of a test's own, on a loopback port, in a temporary folder.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use super::shown;

/// Under it a missing PostgreSQL is a failure; the gate sets it.
const REQUIRED: &str = "CASEMIRROR_REQUIRE_POSTGRES";
/// Its user's password: it must be in no output.
pub(crate) const PASSWORD: &str = "pg-pa55word";

/// Stopped and removed when it is dropped.
pub(crate) struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    pub(crate) port: u16,
}

impl Postgres {
    /// `None`, with a word on it, where PostgreSQL is not installed and may be missing.
    pub(crate) fn start() -> Option<Postgres> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os(REQUIRED).is_none(),
                "PostgreSQL is missing (Debian: postgresql)"
            );
            eprintln!("skipped: PostgreSQL is not installed (Debian: postgresql)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let password = folder.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        let postgres = Postgres { folder, programs, port };
        for path in [&data, &password] {
            postgres.hand_over(path);
        }
        let made = postgres
            .program("initdb")
            .args([
                "--auth=scram-sha-256",
                "--username=casemirror",
                "--no-sync",
                "--no-instructions",
                &format!("--pwfile={}", password.display()),
                &format!("--pgdata={}", data.display()),
            ])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", shown(&made));
        postgres.begin();
        Some(postgres)
    }

    /// What a configuration connects with; the password is in the secret file.
    pub(crate) fn connection(&self) -> String {
        format!("host=127.0.0.1 port={} dbname=postgres user=casemirror", self.port)
    }

    /// Starts it, again too.
    pub(crate) fn begin(&self) {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off -c max_connections=60",
            self.port
        );
        let log = self.data().join("log");
        let started = self.control(&["-o", &options, "-l", log.to_str().unwrap(), "-w", "start"]);
        assert!(started.status.success(), "{}", shown(&started));
    }

    /// Stops it at once: connections break.
    pub(crate) fn end(&self) {
        let stopped = self.control(&["-m", "immediate", "-w", "stop"]);
        assert!(stopped.status.success(), "{}", shown(&stopped));
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn control(&self, args: &[&str]) -> Output {
        // The server inherits what is piped, and would hold it open.
        let out = self.folder.path().join("control");
        let file = fs::File::create(&out).unwrap();
        let mut command = self.program("pg_ctl");
        command.arg(format!("--pgdata={}", self.data().display())).args(args);
        let status = command.stdout(file.try_clone().unwrap()).stderr(file).status().unwrap();
        Output { status, stdout: fs::read(out).unwrap(), stderr: Vec::new() }
    }

    /// One of its programs; none of them runs as root.
    fn program(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        if !is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
        command
    }

    fn hand_over(&self, path: &Path) {
        if is_root() {
            let given = Command::new("chown").arg("postgres").arg(path).status().unwrap();
            assert!(given.success());
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.control(&["-m", "immediate", "stop"]);
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Where the newest installed one has its programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .filter(|bin| bin.join("initdb").exists())
        .collect();
    found.sort();
    found.pop()
}
