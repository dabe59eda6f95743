//! A folder with a causewayd, and the example programs that are started there.
//!
//! The tests of `run` create a [`Host`] each. causewayd is the test program itself, started again
//! as a child process with the ignored test `causewayd`, without a holder. Failures panic in the
//! test. Children are killed on drop, and the folder is removed; after a kill of the test both
//! stay.

use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The variable with the path of the configuration file for the daemon's process.
pub const CONFIG: &str = "CAUSEWAY_EXAMPLES_CONFIG";
/// Time limit of a program.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A causewayd with one group, `blue`; it ends with this value, and its folder is removed.
pub struct Host {
    daemon: Child,
    folder: PathBuf,
}

/// A running example program beside another; killed when this value is dropped.
pub struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Host {
    /// Starts a causewayd with these ports, and waits until it serves.
    pub fn start(ports: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("causeway-examples-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let (path, config) = (folder.display(), folder.join("causeway.toml"));
        let text = format!(
            "[daemon]\ncontrol = \"{path}/control.sock\"\nrun_dir = \"{path}\"\nlog = \"warn\"\n\
             hold = \"none\"\n[[group]]\nname = \"blue\"\n{ports}"
        );
        std::fs::write(&config, text).unwrap();
        let daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "causewayd", "--nocapture"])
            .env(CONFIG, &config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut host = Self { daemon, folder };
        host.await_ports(ports.matches("[[port]]").count());
        host
    }

    /// Waits until the control socket and the sockets of `count` ports are there.
    fn await_ports(&mut self, count: usize) {
        let (control, since) = (self.folder.join("control.sock"), Instant::now());
        let sockets = |folder: &Path| {
            let names = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
            names.filter(|path| path.extension().is_some_and(|end| end == "sock")).count()
        };
        while UnixStream::connect(&control).is_err() || sockets(&self.folder) <= count {
            assert!(self.daemon.try_wait().unwrap().is_none(), "causewayd ended");
            assert!(since.elapsed() < LIMIT, "causewayd is not ready");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the socket of a port.
    pub fn socket(&self, port: &str) -> String {
        self.folder.join(format!("{port}.sock")).display().to_string()
    }

    /// Returns a command in this folder. The first argument of a Rust example is the name of a
    /// port.
    fn command(&self, program: &str, args: &[&str], env: &[(&str, String)]) -> Command {
        let mut command = Command::new(program);
        match args {
            [port, rest @ ..] if env.is_empty() => command.arg(self.socket(port)).args(rest),
            args => command.args(args),
        };
        command.envs(env.iter().map(|(key, value)| (key, value))).stdin(Stdio::null());
        command
    }

    /// Starts a program that keeps running.
    pub fn spawn(&self, program: &str, args: &[&str], env: &[(&str, String)]) -> Running {
        let mut child = self.command(program, args, env).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Running { child, out }
    }

    /// Runs a program to its end.
    pub fn output(&self, program: &str, args: &[&str], env: &[(&str, String)]) -> Output {
        self.command(program, args, env).output().unwrap()
    }

    /// Runs a program to its end, which must be successful, and returns its output.
    #[track_caller]
    pub fn run(&self, program: &str, args: &[&str], env: &[(&str, String)]) -> String {
        let output = self.output(program, args, env);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "{program} {args:?}: {text}");
        text
    }

    /// Compiles an MX program; `None` without a C compiler.
    pub fn compile_mx(&self, name: &str) -> Option<String> {
        let include = example("../clients/myriexpress/include");
        let library = built("libmyriexpress.so");
        let library = library.parent().unwrap().display().to_string();
        let options = [
            format!("-I{}", include.display()),
            format!("-L{library}"),
            format!("-Wl,-rpath,{library}"),
            "-lmyriexpress".into(),
        ];
        self.compile(name, &options)
    }

    /// Compiles a libfabric program; `None` where libfabric's headers are not installed.
    pub fn compile_fi(&self, name: &str) -> Option<String> {
        let there = Command::new("cc")
            .args(["-E", "-include", "rdma/fabric.h", "-x", "c", "/dev/null", "-o", "/dev/null"])
            .stderr(Stdio::null())
            .status();
        if !there.is_ok_and(|status| status.success()) {
            eprintln!("skipped: libfabric's headers are not installed (libfabric-dev)");
            return None;
        }
        self.compile(name, &["-lfabric".into()])
    }

    fn compile(&self, name: &str, options: &[String]) -> Option<String> {
        let program = self.folder.join(name.trim_end_matches(".c"));
        let done = Command::new("cc")
            .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
            .args([program.clone(), example("c").join(name)])
            .args(options)
            .status();
        let Ok(done) = done else {
            eprintln!("skipped: there is no C compiler");
            return None;
        };
        assert!(done.success(), "{name} compiles");
        Some(program.display().to_string())
    }

    /// Returns a folder that has the provider under the name by which libfabric finds it.
    pub fn provider(&self) -> String {
        let folder = self.folder.join("provider");
        std::fs::create_dir_all(&folder).unwrap();
        let link = folder.join("libcauseway-fi.so");
        std::os::unix::fs::symlink(built("libcauseway_provider.so"), link).unwrap();
        folder.display().to_string()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Running {
    /// Reads the next line, which must begin with `text`.
    #[track_caller]
    pub fn expect_line(&mut self, text: &str) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert!(line.starts_with(text), "expected {text:?}, got {line:?}");
    }

    /// Waits for the program's end, which must be successful.
    #[track_caller]
    pub fn ends_well(&mut self) {
        let since = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(since.elapsed() < LIMIT, "the program does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a path relative to this package.
fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns a library that cargo built as a dependency of this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let found = [folder, folder.parent().unwrap()].into_iter().map(|folder| folder.join(name));
    found.into_iter().find(|path| path.exists()).expect("cargo built the library")
}
