//! The configuration file: what it says, checked, or everything that is wrong with it.

mod check;
mod dispatch;
pub mod environment;
mod links;
mod print;
mod problem;
mod read;
mod section;
mod sockets;
mod table;
pub mod underlay;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use causeway_model::GroupSpec;
use causeway_model::Name;
use causeway_model::{Kind, PortSpec, RouteSpec, RuleSpec};
use log::LevelFilter;

use crate::limits::CONFIG_BYTES_MAX;
use causeway_model::draft::LinkDraft;

/// Where the configuration is unless `--config` says otherwise.
pub const CONFIG_DEFAULT: &str = "/etc/causeway/causeway.toml";
/// Permissions of the control socket unless configured.
pub const CONTROL_MODE_DEFAULT: u32 = 0o660;
/// Where the private key of links is unless configured.
pub const KEY_FILE_DEFAULT: &str = "/etc/causeway/key";

/// A checked configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[daemon]`.
    pub daemon: DaemonConfig,
    /// `[[group]]`, in the file's order.
    pub groups: Vec<GroupSpec>,
    /// `[[port]]`, in the file's order.
    pub ports: Vec<PortSpec>,
    /// Those of them whose MTU the file leaves to us.
    pub mtu_is_ours: BTreeSet<Name>,
    /// `[[rule]]`, in the file's order.
    pub rules: Vec<RuleSpec>,
    /// `[[link]]`, in the file's order; host names are resolved when the link is added.
    pub links: Vec<LinkDraft>,
    /// `[[route]]`, in the file's order.
    pub routes: Vec<RouteSpec>,
    /// `[control]`.
    pub vnet: VnetConfig,
}

/// The `[control]` table: who speaks the VNET language to us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VnetConfig {
    /// Where its TCP server listens; none unless given.
    pub listen: Option<SocketAddr>,
    /// File of the password that clients say.
    pub password_file: Option<PathBuf>,
    /// Whose links and routes are spoken of.
    pub group: Option<Name>,
    /// File of commands that are carried out at the start.
    pub file: Option<PathBuf>,
}

/// Which ports the holder keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hold {
    /// vsock ports: QEMU never connects these twice.
    #[default]
    Vsock,
    /// All.
    All,
    /// None: no holder is started.
    None,
}

impl Hold {
    /// All of them, as the file says them.
    pub const WORDS: [(&str, Self); 3] =
        [("vsock", Self::Vsock), ("all", Self::All), ("none", Self::None)];

    /// As the file says it.
    pub fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, hold)| *hold == self).map_or("none", |(word, _)| word)
    }
}

/// The `[daemon]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// The control socket.
    pub control: PathBuf,
    /// Where port sockets are unless a port says otherwise.
    pub run_dir: PathBuf,
    /// Log lines of this level and worse are written.
    pub log: LevelFilter,
    /// `[dispatch]`.
    pub dispatch: causeway_fabric::Options,
    /// Whose frontends stay connected while causewayd is replaced.
    pub hold: Hold,
    /// File of the private key of links that name none.
    pub key_file: PathBuf,
    /// Permissions of the control socket.
    pub control_mode: u32,
    /// Whose members may use the control socket, beside root and the daemon's own user.
    pub control_group: Option<String>,
    /// Permissions of the port sockets; as the umask leaves them if none.
    pub socket_mode: Option<u32>,
    /// The group that owns the port sockets (QEMU's, say); the daemon's if none.
    pub socket_group: Option<String>,
    /// Whether sockets on interfaces may be opened; if none, where the file has an interface.
    pub raw_sockets: Option<bool>,
    /// Directories that the sandbox opens for sockets and files, beside those that it knows.
    pub sandbox_paths: Vec<PathBuf>,
}

/// Why a configuration cannot be used; the text is for the operator, line by line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{path}: {error}; write one, or name another with --config FILE")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The file is larger than any configuration.
    #[error("{0}: expected a configuration of at most {CONFIG_BYTES_MAX} bytes")]
    TooLarge(PathBuf),
    /// The file says something wrong; each problem with file, line, key and what was expected.
    #[error("{0}")]
    Wrong(String),
}

/// What the configuration leaves to where it is read.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The directory for the control socket and the ports' sockets.
    pub run_dir: Option<PathBuf>,
    /// The kinds of ports that there are.
    pub kinds: &'static [&'static Kind],
    /// How long packets may be on a link's way, where that is known.
    pub underlay: fn(&LinkDraft) -> Option<u16>,
}

impl Surroundings {
    /// Reads them from the process: systemd's `RUNTIME_DIRECTORY`, else `/run/causeway` for
    /// root, else `$XDG_RUNTIME_DIR/causeway`.
    pub fn of_process(kinds: &'static [&'static Kind]) -> Self {
        let env = |key| std::env::var_os(key).filter(|v| !v.is_empty());
        let run_dir = if let Some(dirs) = env("RUNTIME_DIRECTORY") {
            dirs.to_str().and_then(|d| d.split(':').next()).map(PathBuf::from)
        } else if rustix::process::geteuid().is_root() {
            Some(PathBuf::from("/run/causeway"))
        } else {
            env("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("causeway"))
        };
        let run_dir = run_dir.filter(|dir| dir.is_absolute());
        Self { run_dir, kinds, underlay: underlay::underlay }
    }
}

impl Config {
    /// Reads and checks a file.
    pub fn load(path: &Path, around: &Surroundings) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut source = String::new();
        file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut source).map_err(unreadable)?;
        if source.len() as u64 > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge(path.to_owned()));
        }
        Self::parse(path, &source, around)
    }

    /// Checks a configuration's text; `path` is only for the messages.
    pub fn parse(path: &Path, source: &str, around: &Surroundings) -> Result<Self, ConfigError> {
        read::read(source, around).map_err(|problems| {
            ConfigError::Wrong(problems.render(path, source).trim_end().to_owned())
        })
    }

    /// Whether a link or a NIC is on an interface of this host.
    pub fn has_interface(&self) -> bool {
        let on_interface = |port: &PortSpec| port.kind.interface().is_some();
        self.links.iter().any(|link| link.interface.is_some())
            || self.ports.iter().any(on_interface)
    }

    /// The configuration as a file that says everything, defaults too.
    pub fn to_toml(&self) -> String {
        print::to_toml(self)
    }
}
