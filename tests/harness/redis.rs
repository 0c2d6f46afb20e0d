//! A private redis-server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::{self, Child, START, workspace};
use crate::ports::free_port;
use crate::time::eventually;

/// A redis-server of its own, without persistence. Killed on drop.
pub struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    /// Whether there is one to start.
    pub fn is_installed() -> bool {
        Command::new(program()).arg("--version").output().is_ok_and(|output| output.status.success())
    }

    /// Starts the redis-server that the environment variable `REDIS_SERVER` names, or the one that `make setup` found,
    /// or the one in PATH.
    pub async fn start() -> Self {
        Self::start_on(free_port()).await
    }

    /// As [`Self::start`], on this port.
    pub async fn start_on(port: u16) -> Self {
        Self::start_with(port, |_| Vec::new()).await
    }

    /// As [`Self::start`], with a clock that is so many seconds off; negative is behind.
    #[cfg(target_os = "linux")]
    pub async fn start_with_clock_off(seconds: i64) -> Self {
        Self::start_with(free_port(), |dir| {
            let library = clock_offset(dir);
            vec![("LD_PRELOAD", library.into_os_string()), ("CLOCK_OFFSET_S", seconds.to_string().into())]
        })
        .await
    }

    async fn start_with(port: u16, environment: impl FnOnce(&Path) -> Vec<(&'static str, OsString)>) -> Self {
        let dir = child::private_dir("redis");
        let working_dir = dir.clone();
        let environment = environment(&dir);
        let child = Child::start("redis", dir, move || {
            let mut command = Command::new(program());
            command.envs(environment.iter().cloned());
            command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
            command.current_dir(&working_dir);
            command
        });
        let mut redis = Self { child, port };
        redis.ready().await;
        redis
    }

    async fn ready(&mut self) {
        let port = self.port;
        self.child.ready(async || ping(port).await).await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Becomes a replica of another one, and returns when it holds all that the other holds.
    pub async fn replicate(&self, master: &Self) {
        let () = self.command(&["REPLICAOF", "127.0.0.1", &master.port.to_string()]).await;
        eventually("a replica in step", START, async || {
            let info: String = self.command(&["INFO", "replication"]).await;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    /// Waits until a replica has all that was written.
    pub async fn replicated(&self) {
        // `WAIT` counts what its own connection wrote, so it writes.
        let mut pipeline = redis::pipe();
        pipeline.cmd("SET").arg("replicated").arg(1).arg("PX").arg(1).ignore().cmd("WAIT").arg(1).arg(10_000);
        let mut connection = connect(self.port).await.expect("a connection to Redis");
        let (replicas,): (u32,) = pipeline.query_async(&mut connection).await.expect("a number");
        assert_eq!(replicas, 1, "no replica is in step");
    }

    /// A replica becomes the master, at the address of the one that it followed, which is gone.
    pub async fn take_over(&mut self, from: &mut Self) {
        from.kill();
        let () = self.command(&["REPLICAOF", "NO", "ONE"]).await;
        let () = self.command(&["CONFIG", "SET", "port", &from.port.to_string()]).await;
        self.port = from.port;
    }

    /// kill -9; connections break and new ones are refused.
    pub fn kill(&mut self) {
        self.child.kill();
    }

    /// Starts it again, empty, on the same port.
    pub async fn restart(&mut self) {
        self.child.kill();
        self.child.start_again();
        self.ready().await;
    }

    /// Stops it in its tracks (SIGSTOP): connections stay open and nothing is answered.
    pub fn pause(&self) {
        self.child.signal(libc::SIGSTOP);
    }

    /// Ends [`Self::pause`].
    pub fn resume(&self) {
        self.child.signal(libc::SIGCONT);
    }

    /// Runs one command, on a connection of its own: `redis.command(&["PTTL", "key"]).await`.
    pub async fn command<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let mut connection = connect(self.port).await.expect("a connection to Redis");
        let (name, arguments) = words.split_first().expect("the name of a command");
        redis::cmd(name)
            .arg(arguments)
            .query_async(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Every key it holds, in order.
    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.command(&["KEYS", "*"]).await;
        keys.sort();
        keys
    }

    /// Its log.
    pub fn log(&self) -> String {
        self.child.log()
    }
}

/// Builds what is preloaded into a server whose clock is off.
#[cfg(target_os = "linux")]
fn clock_offset(dir: &Path) -> PathBuf {
    let library = dir.join("clock_offset.so");
    let source = workspace().join("tests/harness/clock_offset.c");
    let status = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(status.expect("cc, a C compiler").success(), "cc");
    library
}

fn program() -> PathBuf {
    let installed = workspace().join(".weir/tools/bin/redis-server");
    match std::env::var_os("REDIS_SERVER") {
        Some(program) => program.into(),
        None if installed.exists() => installed,
        None => "redis-server".into(),
    }
}

async fn connect(port: u16) -> redis::RedisResult<redis::aio::MultiplexedConnection> {
    redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_multiplexed_async_connection().await
}

async fn ping(port: u16) -> bool {
    match connect(port).await {
        Ok(mut connection) => redis::cmd("PING").query_async::<String>(&mut connection).await.is_ok(),
        Err(_) => false,
    }
}
