//! An S3 server of a test's own, on a loopback port, with one bucket.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::shown;
use crate::readers::environment;

const BUCKET: &str = "mirror";
/// Its user's key: it must be in no output.
pub(crate) const SECRET: &str = "an-access-key-that-is-shown-nowhere";
/// Long enough for a slow machine.
const LONGEST: Duration = Duration::from_secs(120);

/// The server; killed when it is dropped.
pub(crate) struct ObjectStore {
    bin: std::path::PathBuf,
    pub(crate) port: u16,
    child: Option<Child>,
}

impl ObjectStore {
    /// With one empty bucket; `None` where there is no Python for it.
    pub(crate) fn start() -> Option<ObjectStore> {
        let mut server = ObjectStore::down()?;
        server.come_up();
        Some(server)
    }

    /// An address where nobody answers yet.
    pub(crate) fn down() -> Option<ObjectStore> {
        let bin = environment("s3")?;
        // Free now; nobody else on this machine takes ports by their number.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Some(ObjectStore { bin, port, child: None })
    }

    pub(crate) fn come_up(&mut self) {
        let mut command = Command::new(self.bin.join("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &self.port.to_string()]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        self.child = Some(child);
        let start = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(start.elapsed() < LONGEST, "moto_server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        self.script("make", &[]);
    }

    /// What the program finds it by.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "AKIAMIRROR".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ]
    }

    /// `tests/buckets.py` with the bucket.
    pub(crate) fn script(&self, act: &str, more: &[&str]) -> Vec<u8> {
        let output = Command::new(self.bin.join("python"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/buckets.py"))
            .args([act, &format!("127.0.0.1:{}", self.port), BUCKET])
            .args(more)
            .envs(self.environment())
            .env_remove("AWS_ENDPOINT")
            .output()
            .unwrap();
        assert!(output.status.success(), "{act}: {}", shown(&output));
        output.stdout
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
