//! `causeway-directory join`: everything that a host needs to join a site, in one command.
//!
//! The verb connects to etcd, shares the given groups, makes the private key of tunnels if there is
//! none, writes the settings of the service to a file of variables, runs systemd-tmpfiles(8), and
//! enables and restarts the service with systemctl(1), or becomes the process where systemd is not
//! used. With `--no-start` it ends after the settings. A key that exists is kept; a file of settings
//! is replaced. Each step that fails ends the verb with an error and the remedy, earlier steps keep
//! their effect, and the verb can be repeated. The endpoints are not examined here: the service
//! refuses wrong ones. Runs in the main thread.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_cluster::limits::HOST_BYTES_MAX;
use causeway_model::Name;
use causeway_model::keys::PrivateKey;
use zeroize::Zeroizing;

use crate::args::{EtcdArgs, JoinArgs};
use crate::client::Etcd;
use crate::keys::{random, write_new};
use crate::verbs::{self, VerbError};

/// The service of the process.
const SERVICE: &str = "causeway-directory.service";
/// Directory that exists where systemd runs the services, sd_booted(3).
const SYSTEMD: &str = "/run/systemd/system";

fn failed(path: &Path, error: &impl ToString) -> VerbError {
    VerbError::File(path.display().to_string(), error.to_string())
}

/// Joins the host to the site.
///
/// # Errors
/// The host's name is too long, etcd does not answer, a group conflicts, a setting has a character
/// that the file cannot hold, a file cannot be written, or the service does not start.
pub fn join(etcd: &mut Etcd, at: &EtcdArgs, join: &JoinArgs) -> Result<(), VerbError> {
    if let Some(host) = join.host.as_ref().filter(|host| host.as_str().len() > HOST_BYTES_MAX) {
        let text = format!("host {host}: expected at most {HOST_BYTES_MAX} bytes");
        return Err(VerbError::Conflict(text));
    }
    for (group, vni) in &join.group {
        verbs::add_group(etcd, &at.site, group.clone(), *vni)?;
    }
    let groups = verbs::list_groups(etcd, &at.site)?;
    eprintln!("causeway-directory: etcd answers (site={} groups={groups})", at.site);
    make_key(&join.key)?;
    let variables = variables(at, join);
    write_settings(&join.settings, &settings(&variables)?)?;
    eprintln!("causeway-directory: settings written (file={})", join.settings.display());
    if join.no_start {
        return Ok(());
    }
    if join.run {
        return Err(become_process(variables));
    }
    if !Path::new(SYSTEMD).exists() {
        return Err(VerbError::NoService(join.settings.display().to_string()));
    }
    // Gives the key to the daemon's user, as the start of causewayd does.
    run("systemd-tmpfiles", &["--create", "causeway.conf"])?;
    run("systemctl", &["enable", SERVICE])?;
    run("systemctl", &["restart", SERVICE])?;
    eprintln!("causeway-directory: the host joins: see `causeway cluster status`");
    Ok(())
}

/// Replaces this process by the one that the service runs, with the same variables. Returns the
/// error if that fails.
fn become_process(variables: Vec<(&str, String)>) -> VerbError {
    let program = std::env::current_exe();
    let program = program.unwrap_or_else(|_| "causeway-directory".into());
    let error = Command::new(&program).arg("run").envs(variables).exec();
    failed(&program, &error)
}

/// Runs a program of systemd.
fn run(program: &str, arguments: &[&str]) -> Result<(), VerbError> {
    let status = Command::new(program).args(arguments).status();
    let status = status.map_err(|error| failed(Path::new(program), &error))?;
    if status.success() {
        return Ok(());
    }
    let text = format!("{} failed: {status}; see journalctl -u {SERVICE}", arguments.join(" "));
    Err(VerbError::File(program.into(), text))
}

/// Makes the private key of tunnels, if the file does not exist.
fn make_key(path: &Path) -> Result<(), VerbError> {
    if path.exists() {
        return Ok(());
    }
    let key = PrivateKey::new(*random().map_err(|error| failed(path, &error))?);
    let text = Zeroizing::new(format!("{}\n", key.to_text().as_str()));
    write_new(path, &text).map_err(|error| failed(path, &error))?;
    eprintln!("causeway-directory: key made (file={} public={})", path.display(), key.public());
    Ok(())
}

/// Returns the variables of the service.
fn variables(at: &EtcdArgs, join: &JoinArgs) -> Vec<(&'static str, String)> {
    let listed = |items: Vec<String>| Some(items.join(","));
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let name = |name: &Option<Name>| name.as_ref().map(ToString::to_string);
    let all = [
        ("CAUSEWAY_ETCD", listed(at.etcd.iter().map(ToString::to_string).collect())),
        ("CAUSEWAY_SITE", Some(at.site.to_string())),
        ("CAUSEWAY_HOST", name(&join.host)),
        ("CAUSEWAY_ENDPOINT", listed(join.endpoint.clone())),
        ("CAUSEWAY_KEY", Some(join.key.display().to_string())),
        ("CAUSEWAY_ETCD_CA", path(&at.etcd_ca)),
        ("CAUSEWAY_ETCD_CERT", path(&at.etcd_cert)),
        ("CAUSEWAY_ETCD_KEY", path(&at.etcd_key)),
        ("CAUSEWAY_ETCD_USER", at.etcd_user.clone()),
        ("CAUSEWAY_ETCD_PASSWORD_FILE", path(&at.etcd_password_file)),
    ];
    all.into_iter().filter_map(|(variable, value)| Some((variable, value?))).collect()
}

/// Returns the file of the variables, a line for each.
fn settings(variables: &[(&str, String)]) -> Result<String, VerbError> {
    let mut text = String::from("# Written by `causeway-directory join`; read by the service.\n");
    for (variable, value) in variables {
        // A line of a file of variables, systemd.exec(5), of which no part needs quotes.
        if value.chars().any(|c| c.is_whitespace() || c.is_control() || "'\"\\$#".contains(c)) {
            let text = format!("{variable}: {value:?} has a character that the file cannot hold");
            return Err(VerbError::Conflict(text));
        }
        text.push_str(&format!("{variable}={value}\n"));
    }
    Ok(text)
}

/// Replaces the file of settings.
fn write_settings(path: &Path, text: &str) -> Result<(), VerbError> {
    let beside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|error| failed(path, &error))
}
