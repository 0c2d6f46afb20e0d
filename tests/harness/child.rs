//! One child process: it has a private directory and a log, and it never outlives this process.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};
use std::{io, thread};

/// How long a part may take to start. Generous: a loaded machine is not a failure.
pub(crate) const START: Duration = Duration::from_secs(30);
/// How long a part may take to end after it was asked to.
const END: Duration = Duration::from_secs(30);
/// Lines of a child's log that a failed test prints.
const TAIL: usize = 60;

/// The root of the repository.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository")
}

/// The binary that the environment variable names, or else the one at this path of the repository.
pub(crate) fn binary(variable: &str, path: &str, installed_by: &str) -> PathBuf {
    let binary = std::env::var_os(variable).map_or_else(|| workspace().join(path), PathBuf::from);
    assert!(binary.exists(), "{} is missing: run `{installed_by}` first, or set {variable}", binary.display());
    binary
}

/// A running child process, or one that has been killed and can be started again.
pub(crate) struct Child {
    name: &'static str,
    dir: PathBuf,
    command: Box<dyn Fn() -> Command + Send + Sync>,
    process: Option<Process>,
}

impl Child {
    /// Starts what `command` describes. Its working directory is the root of the repository unless it says otherwise.
    /// Standard output goes to `stdout.log` and standard error to `stderr.log` of `dir`.
    pub(crate) fn start(
        name: &'static str,
        dir: PathBuf,
        command: impl Fn() -> Command + Send + Sync + 'static,
    ) -> Self {
        let mut child = Self { name, dir, command: Box::new(command), process: None };
        child.start_again();
        child
    }

    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none(), "{} already runs", self.name);
        let mut command = (self.command)();
        command.stdin(Stdio::null()).stdout(self.log_file("stdout.log")).stderr(self.log_file("stderr.log"));
        if command.get_current_dir().is_none() {
            command.current_dir(workspace());
        }
        let program = command.get_program().to_owned();
        self.process =
            Some(spawn(command).unwrap_or_else(|error| {
                panic!("cannot start {}: {error}; `make setup` installs it", program.display())
            }));
    }

    fn log_file(&self, name: &str) -> File {
        OpenOptions::new().create(true).append(true).open(self.dir.join(name)).expect("a log file")
    }

    /// What it has written to standard error and standard output so far.
    pub(crate) fn log(&self) -> String {
        [self.read("stderr.log"), self.read("stdout.log")].concat()
    }

    /// A file of its directory; empty if it does not exist.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read(self.dir.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    pub(crate) fn signal(&self, signal: i32) {
        let pid = self.pid().unwrap_or_else(|| panic!("{} does not run", self.name));
        let pid = i32::try_from(pid).expect("a process id");
        // SAFETY: kill(2) takes two integers; the process is ours and has not been waited for, so the id is still its.
        #[allow(unsafe_code)]
        let result = unsafe { libc::kill(pid, signal) };
        assert_eq!(result, 0, "cannot signal {}: {}", self.name, io::Error::last_os_error());
    }

    /// SIGKILL; no effect if it has ended.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGTERM, then waits for its end.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(libc::SIGTERM);
        let deadline = Instant::now() + END;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < deadline, "{} is still there {END:?} after SIGTERM", self.name);
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.process.as_mut()?.try_wait().expect("the state of an own child")?;
        self.process = None;
        Some(status)
    }

    /// Waits until `ready`; an error with the log if the process ends first or takes too long.
    pub(crate) async fn ready(&mut self, mut ready: impl AsyncFnMut() -> bool) -> Result<(), String> {
        let deadline = Instant::now() + START;
        loop {
            if ready().await {
                return Ok(());
            }
            if let Some(status) = self.ended() {
                return Err(format!("{} ended while starting ({status}):\n{}", self.name, self.log()));
            }
            if Instant::now() > deadline {
                return Err(format!("{} was not ready after {START:?}:\n{}", self.name, self.log()));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            let log = self.log();
            let lines: Vec<_> = log.lines().collect();
            eprintln!("---- {}: end of its log ({})", self.name, self.dir.display());
            for line in &lines[lines.len().saturating_sub(TAIL)..] {
                eprintln!("{line}");
            }
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// A new private directory.
pub(crate) fn private_dir(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("weir-{}-{number}-{name}", std::process::id()));
    // A process of the same id may have been killed before it could clean up.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("a private directory");
    dir
}

/// Spawns from a thread that lives as long as this process: the kernel's "die with your parent" means the thread that
/// spawned, and the threads of a test runner come and go.
fn spawn(command: Command) -> io::Result<Process> {
    type Order = (Command, mpsc::Sender<io::Result<Process>>);
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (orders, inbox) = mpsc::channel::<Order>();
        thread::Builder::new()
            .name("spawner".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    die_with_parent(&mut command);
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("a thread");
        orders
    });
    let (reply, answer) = mpsc::channel();
    spawner.send((command, reply)).expect("the spawner lives as long as the process");
    answer.recv().expect("the spawner answers every order")
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn die_with_parent(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure calls prctl and getppid, which are async-signal-safe, and allocates
    // nothing.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the call above.
            if libc::getppid().cast_unsigned() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
}

/// Elsewhere only `Drop` ends the children.
#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}
