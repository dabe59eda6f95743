//! `causeway-directory join`: everything that a host needs to join a site, in one command.
//!
//! The verb connects to etcd, uses the token if one is given, shares the given groups, makes the
//! private key of tunnels if there is none, writes the settings of the service to a file of
//! variables, runs systemd-tmpfiles(8), and enables and restarts the service with systemctl(1), or
//! becomes the process where systemd is not used. With `--no-start` it ends after the settings. A
//! key that exists is kept; a file of settings is replaced, and keeps the values of `KEPT`. Each
//! step that fails ends the verb with an error and the remedy, and earlier steps keep their effect.
//! The verb can be repeated, after the use of a token with another token only. Endpoints that are
//! given are not examined here: the service refuses wrong ones. Runs in the main thread.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs as _, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use causeway_model::Name;
use causeway_model::keys::PrivateKey;
use zeroize::Zeroizing;

use crate::args::{EtcdArgs, JoinArgs};
use crate::client::Etcd;
use crate::groups;
use crate::host_name;
use crate::keys::random;
use crate::new_file::{self, NewFile};
use crate::records::VerbError;
use crate::stream::Endpoint;
use crate::tokens;

/// The service of the process.
const SERVICE: &str = "causeway-directory.service";
/// Variables of the service that an operator adds to the settings, and the verb keeps.
const KEPT: [&str; 4] =
    ["CAUSEWAY_CONTROL", "CAUSEWAY_DIRECTORY_STATE", "CAUSEWAY_LINK_IDLE", "CAUSEWAY_LOCAL"];
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
    let (mut at, mut join) = (at.clone(), join.clone());
    if join.endpoint.is_empty() {
        join.endpoint.push(own_address(&at.etcd)?);
    }
    let mut checked = None;
    if let Some(text) = &join.token {
        let admitted = tokens::check(etcd, &at.site, text, join.host.clone())?;
        at.site = admitted.token.site().clone();
        join.host = Some(admitted.host.clone());
        checked = Some(admitted);
    }
    join.host = join.host.map(host_name::checked).transpose()?;
    let (at, join) = (&at, &join);
    let mut variables = variables(at, join);
    variables.extend(kept(&join.settings)?);
    let text = settings(&variables)?;
    make_key(&join.key)?;
    for (group, vni) in &join.group {
        groups::add(etcd, &at.site, group.clone(), *vni)?;
    }
    let groups = groups::list(etcd, &at.site)?;
    eprintln!("causeway-directory: etcd answers (site={} groups={groups})", at.site);
    let written = NewFile::write(&join.settings, text.as_bytes(), 0o644);
    let written = written.map_err(|error| failed(&join.settings, &error))?;
    // Behind the steps that may fail on this host: they leave the token unused.
    if let Some(checked) = checked {
        tokens::spend(etcd, &checked)?;
    }
    written.replace().map_err(|error| failed(&join.settings, &error))?;
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

/// Replaces this process by the one that the service runs, with the same variables; those of [`KEPT`]
/// in the environment of this process come before the settings. Returns the error if that fails.
fn become_process(variables: Vec<(&str, String)>) -> VerbError {
    let program = std::env::current_exe();
    let program = program.unwrap_or_else(|_| "causeway-directory".into());
    let is_given = |name: &str| KEPT.contains(&name) && std::env::var_os(name).is_some();
    let variables = variables.into_iter().filter(|(name, _)| !is_given(name));
    let error = Command::new(&program).arg("run").envs(variables).exec();
    failed(&program, &error)
}

/// Returns the address of this host from which etcd is reached; no packet is sent.
fn own_address(etcd: &[Endpoint]) -> Result<String, VerbError> {
    let local = |at: &Endpoint| -> std::io::Result<IpAddr> {
        let mut all = (at.host.as_str(), at.port).to_socket_addrs()?;
        let to = all.next().ok_or(std::io::ErrorKind::NotFound)?;
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        Ok(socket.local_addr()?.ip())
    };
    let found = etcd.first().and_then(|at| local(at).ok());
    let found = found.filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    let address = found.ok_or_else(|| {
        let text = "the address of this host is not known: give --endpoint ADDRESS, at which other \
                    hosts reach this one";
        VerbError::Conflict(text.into())
    })?;
    eprintln!(
        "causeway-directory: other hosts reach this one at the address towards etcd (endpoint={address})"
    );
    Ok(address.to_string())
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
    new_file::replace(path, text.as_bytes(), 0o600).map_err(|error| failed(path, &error))?;
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

/// Returns the variables of [`KEPT`] in the settings of an earlier join; none without a file.
fn kept(settings: &Path) -> Result<Vec<(&'static str, String)>, VerbError> {
    let text = match std::fs::read_to_string(settings) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| failed(settings, &error))?,
    };
    let variable = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = KEPT.into_iter().find(|known| *known == name.trim())?;
        // Quotes are not part of a value, systemd.exec(5).
        Some((name, value.trim().trim_matches(['"', '\'']).to_owned()))
    };
    Ok(text.lines().filter_map(variable).collect())
}

/// Returns the file of the variables, a line for each.
fn settings(variables: &[(&str, String)]) -> Result<String, VerbError> {
    let mut text = String::from("# Written by `causeway-directory join`; read by the service.\n");
    for (variable, value) in variables {
        // A line of a file of variables, systemd.exec(5): what is not special inside double quotes.
        if value.chars().any(|c| c.is_control() || "'\"\\$`".contains(c)) {
            let text = format!(
                "{variable}: {value:?} has a character that a file of variables cannot hold: give \
                 another value, or remove the variable from the file of an earlier join"
            );
            return Err(VerbError::Conflict(text));
        }
        let needs_quotes = value.chars().any(|c| c.is_whitespace() || c == '#');
        let quote = if needs_quotes { "\"" } else { "" };
        text.push_str(&format!("{variable}={quote}{value}{quote}\n"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use causeway_testing::folder::Folder;

    use super::*;

    #[test]
    fn join_keeps_values_with_spaces_and_refuses_those_that_a_file_of_variables_cannot_hold() {
        let folder = Folder::new("join");
        let file = folder.join("settings");
        let named = |value: &str| vec![(KEPT[0], value.to_owned())];
        for value in ["plain", "two words", "a # b"] {
            std::fs::write(&file, settings(&named(value)).unwrap()).unwrap();
            assert_eq!(kept(&file).unwrap(), named(value));
        }
        for value in ["a\"b", "$HOME", "a`b", "two\nlines"] {
            let refused = settings(&named(value)).unwrap_err().to_string();
            assert!(
                refused.contains(KEPT[0]) && refused.contains("give another value"),
                "{refused}"
            );
        }
    }
}
