//! Settings of the daemon that it reads when it starts: the tables `[daemon]`, `[dispatch]`,
//! `[control]` and `[metrics]` of the configuration file.
//!
//! The daemon (`daemon::config`) calls the `read` functions with the tables of the file, and makes
//! the options of the fabric, the sandbox, the VNET language and the server of metrics from the
//! result, in its main thread. All problems of a table are reported together, and the daemon then
//! does not start. Keys that are not given get their defaults; derived defaults (`Option` members)
//! are filled in by the daemon.
//!
//! The settings cannot be changed at run time: `causeway apply` checks the four tables and ignores
//! them otherwise. The module checks forms, ranges and conditions between keys. It does not check
//! that a path, group of users or CPU exists on this host, and opens no file.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::{
    DISPATCHERS_MAX, LOWER_RATE_DEFAULT, PERIOD_US_DEFAULT, PERIOD_US_MAX, PERIOD_US_MIN, RATE_MAX,
    SOCKET_PATH_BYTES_MAX, SPIN_US_DEFAULT, SPIN_US_MAX, UPPER_RATE_DEFAULT,
};
use crate::schema::{
    self, DefaultValue, Form, Problem, ProblemKind, ValueType, check_path, parses, table, text,
};
use crate::{FileMode, Name, PollPolicy};

/// The levels of the log, as operators write them.
const LOG_LEVELS: [&str; 4] = ["error", "warn", "info", "debug"];
/// Largest CPU number that is accepted; the kernel supports no more.
const CPU_MAX: usize = 8191;

/// The ports whose frontends the holder keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldPolicy {
    /// Ports whose frontends do not reconnect: QEMU's vsock and `hca` devices.
    #[default]
    Needed,
    /// vsock ports.
    Vsock,
    /// All ports.
    All,
    /// No port: no holder is started.
    None,
}

impl HoldPolicy {
    /// The names, as operators write them.
    pub const NAMES: [&'static str; 4] = ["needed", "vsock", "all", "none"];
}

/// Returns the type of the name of a group of users, which only the host can check.
const fn user_group() -> ValueType {
    ValueType::Text(Form { placeholder: "GROUP", check: |_| Ok(()) })
}

/// Returns the type of permission bits.
const fn mode() -> ValueType {
    ValueType::Text(Form { placeholder: "MODE", check: check_mode })
}

fn check_mode(text: &str) -> Result<(), String> {
    parses::<FileMode>(text)
        .map_err(|_| format!("expected octal permissions in quotes, as \"0660\"; found {text:?}"))
}

table! {
    /// The `[daemon]` table.
    pub struct DaemonSettings, pub const DAEMON_FIELDS {
        /// Path of the control socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<PathBuf> => ValueType::SocketPath(SOCKET_PATH_BYTES_MAX),
            DefaultValue::Derived("control.sock in run_dir");
        /// Directory of ports' sockets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_dir: Option<PathBuf> => ValueType::Path,
            DefaultValue::Derived("the directory of the control socket");
        /// File in which objects are kept that are added while the daemon runs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state_file: Option<PathBuf> => ValueType::Path,
            DefaultValue::Derived("state.toml in /var/lib/causeway, or in run_dir if that is given");
        /// Most verbose level of the log.
        log: String => ValueType::Word(&LOG_LEVELS), DefaultValue::Text("info");
        /// The ports whose frontends stay connected while causewayd is replaced.
        hold: HoldPolicy => ValueType::Word(&HoldPolicy::NAMES), DefaultValue::Text("needed");
        /// File of the private key of links that give none.
        key_file: PathBuf => ValueType::Path, DefaultValue::Text("/etc/causeway/key");
        /// Permissions of the control socket.
        control_mode: FileMode => mode(), DefaultValue::Text("0660");
        /// Group whose members may use the control socket, beside root and the daemon's own user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control_group: Option<String> => user_group(), DefaultValue::None;
        /// Permissions of the port sockets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket_mode: Option<FileMode> => mode(), DefaultValue::NoneMeans("those of the umask");
        /// Group of the port sockets, for example QEMU's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        socket_group: Option<String> => user_group(), DefaultValue::NoneMeans("the daemon's group");
        /// Whether sockets on interfaces may be opened.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_sockets: Option<bool> => ValueType::Boolean,
            DefaultValue::Derived("true if the file has an interface");
        /// Additional directories in which the sandbox permits sockets and files.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sandbox_paths: Vec<PathBuf> => ValueType::Texts(Form { placeholder: "PATH", check: |path| check_path(path, usize::MAX) }),
            DefaultValue::None;
    }
}

impl DaemonSettings {
    /// Reads the table, with defaults filled in.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        schema::read_filled(DAEMON_FIELDS, values)
    }
}

/// Processors in the kernel's list format: `2,4-7`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CpuList(pub Vec<usize>);

impl FromStr for CpuList {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: expected CPU numbers and ranges, as \"2,4-7\"");
        let number = |part: &str| part.trim().parse::<usize>().ok().filter(|cpu| *cpu <= CPU_MAX);
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        let most = DISPATCHERS_MAX;
        if cpus.len() > most {
            return Err(format!("{text:?}: expected at most {most} CPUs, one for each dispatcher"));
        }
        Ok(Self(cpus))
    }
}

impl TryFrom<String> for CpuList {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CpuList> for String {
    fn from(cpus: CpuList) -> String {
        cpus.to_string()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&list.join(","))
    }
}

/// Returns the type of an integer.
const fn integer(min: u64, max: u64, unit: &'static str) -> ValueType {
    ValueType::Integer { min, max, unit }
}

table! {
    /// The `[dispatch]` table: number and placement of dispatchers, and their poll mode.
    pub struct DispatchSettings, pub const DISPATCH_FIELDS {
        /// Number of dispatchers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dispatchers: Option<usize> => integer(1, DISPATCHERS_MAX as u64, "N"),
            DefaultValue::Derived("as many as cpus, or half of the processors, 1 to 8");
        /// Processors to which dispatchers are bound.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cpus: Option<CpuList> => text::<CpuList>("LIST"), DefaultValue::NoneMeans("not bound");
        /// Poll mode of queues.
        mode: PollPolicy => ValueType::Word(&PollPolicy::NAMES), DefaultValue::Text("adaptive");
        /// More chains a second than this make a queue VMM-driven.
        upper: u32 => integer(1, RATE_MAX as u64, "N"),
            DefaultValue::Number(UPPER_RATE_DEFAULT as u64);
        /// Fewer chains a second than this make a queue guest-driven.
        lower: u32 => integer(0, RATE_MAX as u64, "N"),
            DefaultValue::Number(LOWER_RATE_DEFAULT as u64);
        /// Period over which rates are measured, in microseconds.
        period_us: u64 => integer(PERIOD_US_MIN, PERIOD_US_MAX, "US"),
            DefaultValue::Number(PERIOD_US_DEFAULT);
        /// Time for which an empty VMM-driven queue is polled before its doorbell is armed, in
        /// microseconds.
        spin_us: u64 => integer(0, SPIN_US_MAX, "US"), DefaultValue::Number(SPIN_US_DEFAULT);
    }
}

impl DispatchSettings {
    /// Reads the table, with defaults filled in.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let settings: Self = schema::read_filled(DISPATCH_FIELDS, values)?;
        let Self { upper, lower, .. } = settings;
        if lower <= upper {
            return Ok(settings);
        }
        let key = if values.contains_key("lower") { "lower" } else { "upper" };
        let text = format!("expected lower to be at most upper; found {lower} and {upper}");
        Err(vec![Problem::wrong(key, text)])
    }
}

table! {
    /// The `[control]` table: access to the VNET language.
    #[derive(Default)]
    pub struct ControlSettings, pub const CONTROL_FIELDS {
        /// Address of the TCP server of the VNET language.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vnet_listen: Option<SocketAddr> => text::<SocketAddr>("ADDRESS:PORT"),
            DefaultValue::NoneMeans("no server");
        /// File of the password of clients.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vnet_password_file: Option<PathBuf> => ValueType::Path, DefaultValue::None;
        /// Group of the links and routes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vnet_group: Option<Name> => text::<Name>("NAME"), DefaultValue::None;
        /// File of commands that are executed at the start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vnet_file: Option<PathBuf> => ValueType::Path, DefaultValue::None;
    }
}

impl ControlSettings {
    /// Reads the table.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let settings: Self = schema::read_filled(CONTROL_FIELDS, values)?;
        let mut problems = Vec::new();
        let mut missing = |key: &str, text: &str| {
            let (path, kind) = (key.to_owned(), ProblemKind::Missing);
            problems.push(Problem { path, kind, text: text.to_owned() });
        };
        if settings.vnet_listen.is_some() && settings.vnet_password_file.is_none() {
            missing("vnet_password_file", "clients of vnet_listen must give a password");
        }
        let has_commands = settings.vnet_listen.is_some() || settings.vnet_file.is_some();
        if has_commands && settings.vnet_group.is_none() {
            missing("vnet_group", "VNET commands apply to the links and routes of one group");
        }
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }
}

table! {
    /// The `[metrics]` table: access to metrics by TCP.
    #[derive(Default)]
    pub struct MetricsSettings, pub const METRICS_FIELDS {
        /// Address of this host's loopback interface at which metrics are served.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listen: Option<SocketAddr> => text::<SocketAddr>("ADDRESS:PORT"),
            DefaultValue::NoneMeans("the control socket alone");
    }
}

impl MetricsSettings {
    /// Reads the table.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let settings: Self = schema::read_filled(METRICS_FIELDS, values)?;
        match settings.listen {
            Some(listen) if !listen.ip().is_loopback() => {
                let text = format!(
                    "expected an address of the loopback interface, as \"127.0.0.1:9464\": metrics \
                     are served without encryption and to every client; found {listen}. Forward \
                     the address by a proxy with access control to reach it from other hosts"
                );
                Err(vec![Problem::wrong("listen", text)])
            }
            _ => Ok(settings),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_cpus_have_the_kernels_list_format() {
        let cpus: CpuList = "2,4-6".parse().unwrap();
        assert_eq!((cpus.to_string().as_str(), cpus.0), ("2,4,5,6", vec![2, 4, 5, 6]));
        for wrong in ["", "a", "3-1", "1,", "9999", "0-99"] {
            assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_without_values_have_the_defaults_of_their_tables() {
        let daemon = DaemonSettings::read(&Map::new()).unwrap();
        assert_eq!((daemon.log.as_str(), daemon.hold), ("info", HoldPolicy::default()));
        assert_eq!(daemon.control_mode, FileMode(0o660));
        let dispatch = DispatchSettings::read(&Map::new()).unwrap();
        assert_eq!((dispatch.mode, dispatch.upper), (PollPolicy::default(), UPPER_RATE_DEFAULT));
        assert_eq!(ControlSettings::read(&Map::new()), Ok(ControlSettings::default()));
    }
}
