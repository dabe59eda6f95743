//! `causeway-directory init`: makes a site in etcd, shares groups, and prepares roles.
//!
//! The record of the site is written once, by a transaction; a site that exists stays as it is. A
//! role has the rights that a host needs, and is printed as commands of etcdctl(1) or made by etcd's
//! API. Users and their passwords are the operator's: the verb makes none. Runs in the main thread.

use std::time::{SystemTime, UNIX_EPOCH};

use causeway_cluster::record::VERSION;
use causeway_cluster::token::SiteRecord;
use causeway_cluster::{RecordKey, key};
use causeway_model::{AddressKind, Name};
use serde_json::json;

use crate::args::InitArgs;
use crate::client::{Etcd, EtcdError, WriteOutcome, encoded, range_end};
use crate::groups;
use crate::host_name;
use crate::records::VerbError;

/// A right of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Right {
    /// Whether keys may be written too.
    is_write: bool,
    /// A key, or a prefix that ends with `/`.
    path: String,
}

impl Right {
    fn is_prefix(&self) -> bool {
        self.path.ends_with('/')
    }
}

/// Returns the rights of a host: all keys of the site are read; its own record, claims, and tokens
/// are written.
fn rights(site: &Name, host: &Name) -> Vec<Right> {
    let prefix = key::prefix(site);
    let mut paths = vec![RecordKey::Host(host.clone()).path(site)];
    paths.extend(AddressKind::ALL.map(|kind| format!("{prefix}{kind}/")));
    paths.extend([key::token_path(site, ""), key::joins_path(site)]);
    let written = paths.into_iter().map(|path| Right { is_write: true, path });
    std::iter::once(Right { is_write: false, path: prefix }).chain(written).collect()
}

/// Makes a site ready. Returns the commands of etcdctl that make the roles; empty if the verb makes
/// them itself.
///
/// # Errors
/// etcd does not answer or refuses, a group conflicts, or a name is too long for a host.
pub fn init(etcd: &mut Etcd, site: &Name, init: &InitArgs) -> Result<String, VerbError> {
    for host in &init.role {
        host_name::checked(host.clone())?;
    }
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let created = u64::try_from(created.as_nanos()).unwrap_or(u64::MAX);
    let value = SiteRecord { v: VERSION, created }.write();
    match etcd.replace(key::site_path(site), 0, Some(&value), None)? {
        WriteOutcome::Done(_) => eprintln!("causeway-directory: site made (site={site})"),
        WriteOutcome::Failed(known) => {
            let wrong = |error| VerbError::Conflict(format!("the record of site {site}: {error}"));
            SiteRecord::read(&known.value.unwrap_or_default()).map_err(wrong)?;
            eprintln!("causeway-directory: the site exists (site={site})");
        }
    }
    for (group, vni) in &init.group {
        groups::add(etcd, site, group.clone(), *vni)?;
    }
    let mut text = String::new();
    for host in &init.role {
        if init.apply_roles {
            apply(etcd, site, host)?;
            eprintln!("causeway-directory: role made (role={host})");
        } else {
            text.push_str(&commands(site, host));
        }
    }
    if !init.role.is_empty() {
        eprintln!(
            "causeway-directory: for each role, make a user with a password (`etcdctl user add \
             HOST`, `etcdctl user grant-role HOST HOST`), and a user root, before `etcdctl auth \
             enable`"
        );
    }
    Ok(text)
}

/// Returns the commands of etcdctl that make the role of a host.
fn commands(site: &Name, host: &Name) -> String {
    let mut text = format!("etcdctl role add {host}\n");
    for right in rights(site, host) {
        let kind = if right.is_write { "readwrite" } else { "read" };
        let prefix = if right.is_prefix() { " --prefix=true" } else { "" };
        let path = &right.path;
        text.push_str(&format!("etcdctl role grant-permission {host} {kind}{prefix} {path}\n"));
    }
    text
}

/// Makes the role of a host, or adds missing rights to it.
fn apply(etcd: &mut Etcd, site: &Name, host: &Name) -> Result<(), VerbError> {
    match etcd.call("/v3/auth/role/add", &json!({ "name": host })) {
        Err(EtcdError::Refused(_, _, text)) if text.contains("already exists") => {}
        answer => drop(answer?),
    }
    for right in rights(site, host) {
        let kind = if right.is_write { "READWRITE" } else { "READ" };
        let mut permission = json!({ "permType": kind, "key": encoded(&right.path) });
        if let Some(fields) = permission.as_object_mut().filter(|_| right.is_prefix()) {
            fields.insert("range_end".into(), range_end(&right.path).into());
        }
        etcd.call("/v3/auth/role/grant", &json!({ "name": host, "perm": permission }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_of_a_host_writes_its_own_record_and_no_other() {
        let (site, host) = ("lab".parse().unwrap(), "h1".parse().unwrap());
        let all = rights(&site, &host);
        let written: Vec<_> = all.iter().filter(|right| right.is_write).collect();
        assert_eq!((all.len(), written.len()), (8, 7));
        let own = written.iter().find(|right| right.path.contains("/host/")).unwrap();
        assert_eq!((own.path.as_str(), own.is_prefix()), ("/causeway/v1/lab/host/h1", false));
        for none in ["/group/", "/evicted/", "/site"] {
            assert!(written.iter().all(|right| !right.path.contains(none)), "{none}");
        }
        let text = commands(&site, &host);
        assert!(text.contains("grant-permission h1 read --prefix=true /causeway/v1/lab/\n"));
        assert!(text.contains("grant-permission h1 readwrite /causeway/v1/lab/host/h1\n"));
        assert!(text.contains("grant-permission h1 readwrite --prefix=true /causeway/v1/lab/mac/"));
    }
}
