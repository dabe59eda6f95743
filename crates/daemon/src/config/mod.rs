//! The configuration file: reads, checks and prints it.
//!
//! [`Config::parse`] takes a text of at most [`CONFIG_BYTES_MAX`] (4 MiB) and reports up to 20 of
//! its problems at once, each with its line, and the number of the others; errors of the TOML
//! syntax are reported alone. A file with a problem is refused as a whole, and an unknown key is a
//! problem. Values are checked by the tables of [`causeway_model::schema`].
//!
//! [`crate::run`] reads the file once, in the main thread before the dispatchers start, and
//! [`crate::api`] the text of `POST /v1/apply` and `POST /v1/config/diff`, in the thread of the
//! connection; no dispatcher calls the module. The module changes nothing on the host and watches
//! no file. Names of peers are not resolved here. The objects go on to [`crate::fabric::apply`], or
//! to [`crate::plan`]; [`crate::lifecycle`] uses the settings of the daemon.
//!
//! [`environment`] has [`Config::check_host`], which `--check-config` calls: it checks for the
//! presence of files, CPUs, accounts and interfaces, and reads the VNET password. [`state`] has the
//! text of the state file. The private parts: `read` reads the tables, `table` and `file_value` keep
//! the positions of keys, `check` and `sections` compare tables by `conditions`, `problem` collects
//! and prints problems, `dispatch` converts `[dispatch]`, `print` writes a configuration.

mod check;
mod conditions;
mod dispatch;
pub mod environment;
mod file_value;
mod print;
mod problem;
mod read;
mod sections;
pub mod state;
mod table;

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use causeway_model::GroupSpec;
use causeway_model::Name;
use causeway_model::settings::{ControlSettings, HoldPolicy, MetricsSettings};
use causeway_model::{
    HostNeed, KindDefinition, PathMtu, PortSpec, RuleSpec, SectionDefinition, TableValues,
};
use log::LevelFilter;

use crate::limits::CONFIG_BYTES_MAX;
use crate::services::Registered;

/// Path of the configuration file unless `--config` is given.
pub const CONFIG_DEFAULT: &str = "/etc/causeway/causeway.toml";

/// A checked configuration with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// `[daemon]`.
    pub daemon: DaemonConfig,
    /// `[[group]]`, in the file's order.
    pub groups: Vec<GroupSpec>,
    /// `[[port]]`, in the file's order.
    pub ports: Vec<PortSpec>,
    /// Ports for which the file gives no MTU, so that it follows the links of the group.
    pub derived_mtus: BTreeSet<Name>,
    /// `[[rule]]`, in the file's order.
    pub rules: Vec<RuleSpec>,
    /// `[control]`.
    pub control: ControlSettings,
    /// `[metrics]`.
    pub metrics: MetricsSettings,
    /// Tables of the sections that services registered, by section, in the file's order. Host names
    /// are resolved when an object is added.
    pub objects: Vec<ConfigObject>,
}

/// A table of a section that a service registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigObject {
    /// The section.
    pub section: &'static SectionDefinition,
    /// The checked values with defaults, as JSON: a file may have thousands of tables, and a table
    /// takes several times the memory of its text.
    text: Box<str>,
}

impl ConfigObject {
    /// Returns the object of checked values with defaults.
    pub fn new(section: &'static SectionDefinition, values: &TableValues) -> Self {
        Self { section, text: serde_json::to_string(values).unwrap_or_default().into() }
    }

    /// Returns the checked values, with defaults.
    pub fn values(&self) -> TableValues {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// The `[daemon]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// Path of the control socket.
    pub control: PathBuf,
    /// Directory of ports' sockets.
    pub run_dir: PathBuf,
    /// File of the objects that are added while the daemon runs.
    pub state_file: PathBuf,
    /// Most verbose level of the log.
    pub log: LevelFilter,
    /// `[dispatch]`.
    pub dispatch: causeway_fabric::Options,
    /// The ports whose frontends stay connected while causewayd is replaced.
    pub hold: HoldPolicy,
    /// File of the private key of links that give none.
    pub key_file: PathBuf,
    /// Permissions of the control socket.
    pub control_mode: u32,
    /// Group whose members may use the control socket, beside root and the daemon's own user.
    pub control_group: Option<String>,
    /// Permissions of the port sockets; `None` leaves those of the umask.
    pub socket_mode: Option<u32>,
    /// Group of the port sockets, for example QEMU's; `None` leaves the daemon's group.
    pub socket_group: Option<String>,
    /// Whether sockets on interfaces may be opened; `None` means if the file has an interface.
    pub raw_sockets: Option<bool>,
    /// Additional directories in which the sandbox permits sockets and files.
    pub sandbox_paths: Vec<PathBuf>,
}

/// The reason why a configuration cannot be used; the text is for the operator, line by line.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("{path}: {error}; write one, or name another with --config FILE")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        error: std::io::Error,
    },
    /// The file exceeds [`CONFIG_BYTES_MAX`] (4 MiB).
    #[error("{0}: expected a configuration of at most {CONFIG_BYTES_MAX} bytes")]
    TooLarge(PathBuf),
    /// The file has problems; the text gives line, key and expected value of each.
    #[error("{0}")]
    Wrong(String),
}

/// Values that the configuration takes from the process and the host.
#[derive(Debug, Clone)]
pub struct ConfigContext {
    /// Directory of the control socket and the ports' sockets unless `[daemon]` gives them.
    pub run_dir: Option<PathBuf>,
    /// Directory of the state file if `run_dir` is the default and `[daemon]` gives no file.
    pub state_dir: Option<PathBuf>,
    /// The kinds of ports of this daemon.
    pub kinds: &'static [&'static KindDefinition],
    /// The sections that services registered.
    pub sections: &'static [SectionDefinition],
    /// Replaces the function of a section that asks the host for the MTU of an object's path.
    pub underlay: Option<PathMtu>,
}

impl ConfigContext {
    /// Reads the values from the process: the run directory is systemd's `RUNTIME_DIRECTORY`, else
    /// `/run/causeway` for root, else `$XDG_RUNTIME_DIR/causeway`; the state directory is systemd's
    /// `STATE_DIRECTORY`, else `/var/lib/causeway` for root, else that of the XDG base directory
    /// specification. A relative directory counts as none.
    pub fn of_process(registered: Registered) -> Self {
        let env = |key| std::env::var_os(key).filter(|v| !v.is_empty());
        let of_unit = |key| {
            let dirs = env(key)?;
            dirs.to_str().and_then(|d| d.split(':').next()).map(PathBuf::from)
        };
        let is_root = rustix::process::geteuid().is_root();
        let own = |key, system: &str| match is_root {
            true => Some(PathBuf::from(system)),
            false => env(key).map(|dir| Path::new(&dir).join("causeway")),
        };
        let run_dir = of_unit("RUNTIME_DIRECTORY").or(own("XDG_RUNTIME_DIR", "/run/causeway"));
        let at_home = || env("HOME").map(|home| Path::new(&home).join(".local/state/causeway"));
        let state_dir = of_unit("STATE_DIRECTORY")
            .or(own("XDG_STATE_HOME", "/var/lib/causeway"))
            .or_else(at_home);
        let absolute = |dir: Option<PathBuf>| dir.filter(|dir| dir.is_absolute());
        let Registered { kinds, sections, .. } = registered;
        Self {
            run_dir: absolute(run_dir),
            state_dir: absolute(state_dir),
            kinds,
            sections,
            underlay: None,
        }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or has problems.
    pub fn load(path: &Path, around: &ConfigContext) -> Result<Self, ConfigError> {
        let unreadable = |error| ConfigError::Unreadable { path: path.to_owned(), error };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut source = String::new();
        file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut source).map_err(unreadable)?;
        Self::parse(path, &source, around)
    }

    /// Checks the text of a configuration. `path` is used in messages only.
    ///
    /// # Errors
    /// The text exceeds [`CONFIG_BYTES_MAX`] (4 MiB), or has problems.
    pub fn parse(path: &Path, source: &str, around: &ConfigContext) -> Result<Self, ConfigError> {
        if source.len() as u64 > CONFIG_BYTES_MAX {
            return Err(ConfigError::TooLarge(path.to_owned()));
        }
        read::read(source, around).map_err(|problems| {
            ConfigError::Wrong(problems.render(path, source).trim_end().to_owned())
        })
    }

    /// Returns whether an object, or a raw socket of a port, uses an interface of this host.
    pub fn has_interface(&self) -> bool {
        let on_interface = |port: &PortSpec| port.kind.interface().is_some();
        self.needs().any(|(_, need)| matches!(need, HostNeed::Interface { .. }))
            || self.ports.iter().any(on_interface)
    }

    /// Returns the values of the tables of a section.
    pub fn tables_of<'a>(&'a self, section: &'a str) -> impl Iterator<Item = TableValues> + 'a {
        let of = self.objects.iter().filter(move |object| object.section.name == section);
        of.map(ConfigObject::values)
    }

    /// Returns the parts of the host that objects of sections use, each with a description of its
    /// object.
    pub fn needs(&self) -> impl Iterator<Item = (String, HostNeed)> {
        let of = |object: &ConfigObject| {
            let needs = object.section.relations.needs?;
            let values = object.values();
            let what = format!("{} {}", object.section.name, object.section.id(&values));
            Some(needs(&values).into_iter().map(move |need| (what.clone(), need)))
        };
        self.objects.iter().filter_map(of).flatten()
    }

    /// Returns the configuration as TOML, with defaults written out.
    pub fn to_toml(&self) -> String {
        print::to_toml(self)
    }
}
