//! A private redis-server.

use std::path::PathBuf;
use std::process::Command;

use crate::child::{self, Child, workspace};
use crate::ports::free_port;

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
        let dir = child::private_dir("redis");
        let working_dir = dir.clone();
        let child = Child::start("redis", dir, move || {
            let mut command = Command::new(program());
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
