//! A private Redis for one test, gone with the value that owns it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub struct Server {
    process: Child,
    folder: PathBuf,
}

impl Server {
    pub fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("weir-lua-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // A unix socket: no port to find free, and none open to others.
        let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.weir/tools/bin/redis-server");
        let program = if installed.exists() { installed } else { "redis-server".into() };
        let process = Command::new(program)
            .args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--appendonly", "no", "--dir"])
            .arg(&folder)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("redis-server: {error}; run `make setup`"));
        Self { process, folder }
    }

    pub fn url(&self) -> String {
        format!("redis+unix://{}", self.folder.join("redis.sock").display())
    }

    pub fn connect(&self) -> redis::Connection {
        let client = redis::Client::open(self.url()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match client.get_connection() {
                Ok(connection) => return connection,
                Err(error) if Instant::now() > deadline => panic!("redis-server does not answer: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
