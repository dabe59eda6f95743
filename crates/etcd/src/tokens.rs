//! Verbs about tokens, and their use by `join`. The rules are in [`causeway_cluster::token`]; this
//! module has the requests to etcd. A refusal is counted in etcd, in the site of the token, as far
//! as the site exists and the caller may write. Each verb runs in the main thread.

use causeway_cluster::limits::TOKEN_KEPT_SECONDS;
use causeway_cluster::token::{JoinToken, JoinsRecord, TokenRecord, TokenRefusal};
use causeway_cluster::{KeyEvent, key};
use causeway_model::Name;
use serde_json::{Value, json};

use crate::client::{Etcd, WriteOutcome};
use crate::host_name;
use crate::keys::random;
use crate::limits::COUNT_TRIES;
use crate::records::VerbError;

/// Makes a token for a host, or for any host, which expires after `seconds`.
///
/// # Errors
/// The site was not made by `init`, the name is too long for a host, etcd does not answer or refuses, or the kernel has no random
/// bytes.
pub fn create(
    etcd: &mut Etcd,
    site: &Name,
    host: Option<Name>,
    seconds: u64,
) -> Result<JoinToken, VerbError> {
    if etcd.get(&key::site_path(site))?.is_none() {
        let text =
            format!("site {site} is not made in this etcd: use `causeway cluster init` first");
        return Err(VerbError::Conflict(text));
    }
    let host = host.map(host_name::checked).transpose()?;
    let failed = |error: std::io::Error| VerbError::File("random bytes".into(), error.to_string());
    let (secret, id) = (random().map_err(failed)?, random().map_err(failed)?);
    let token = JoinToken::new(site.clone(), &secret, &id);
    let lease = etcd.grant(seconds.saturating_add(TOKEN_KEPT_SECONDS))?;
    let value = token.record(host, lease).write();
    match etcd.replace(token.path(), 0, Some(&value), Some(lease))? {
        WriteOutcome::Done(_) => Ok(token),
        WriteOutcome::Failed(_) => {
            Err(VerbError::Conflict("the number of the token is in use: try again".into()))
        }
    }
}

/// Returns the tokens of a site and the refused joins, as JSON.
///
/// # Errors
/// etcd does not answer or refuses.
pub fn list(etcd: &mut Etcd, site: &Name) -> Result<Value, VerbError> {
    let prefix = key::token_path(site, "");
    let mut tokens = Vec::new();
    for KeyEvent { key, value, .. } in etcd.list(&prefix)?.items {
        let id = String::from_utf8(key).unwrap_or_default();
        let id = id.strip_prefix(&prefix).filter(|id| key::is_token_id(id));
        let (Some(id), Ok(record)) = (id, TokenRecord::read(&value.unwrap_or_default())) else {
            continue;
        };
        let left = etcd.time_left(record.lease)?.saturating_sub(TOKEN_KEPT_SECONDS);
        let state = match record.used_by {
            Some(_) => "used",
            None if left == 0 => "expired",
            None => "valid",
        };
        let (host, used_by) = (&record.host, &record.used_by);
        tokens.push(json!({
            "id": id, "state": state, "host": host, "used_by": used_by, "seconds_left": left,
        }));
    }
    let refused = etcd.get(&key::joins_path(site))?.and_then(|event| event.value);
    let refused = refused.map(|value| JoinsRecord::read(&value).refused).unwrap_or_default();
    Ok(json!({ "tokens": tokens, "refused_joins": refused }))
}

/// Deletes a token.
///
/// # Errors
/// The token does not exist, or etcd does not answer or refuses.
pub fn delete(etcd: &mut Etcd, site: &Name, id: &str) -> Result<(), VerbError> {
    if key::is_token_id(id) && etcd.delete(&key::token_path(site, id))? {
        return Ok(());
    }
    Err(VerbError::NotFound(format!("token {id:?}")))
}

/// A token that admits a host, and is not used yet.
#[derive(Debug)]
pub struct CheckedToken {
    /// The token.
    pub token: JoinToken,
    /// The host.
    pub host: Name,
    /// The record that marks the token as used, and the revision that it replaces.
    used: (TokenRecord, u64),
}

/// Checks a token for a host: by default the one that the token names, or this host. `site` is that
/// of the options; the default stands for any. The token stays unused.
///
/// # Errors
/// The token is refused, or etcd does not answer or refuses.
pub fn check(
    etcd: &mut Etcd,
    site: &Name,
    text: &str,
    host: Option<Name>,
) -> Result<CheckedToken, VerbError> {
    let token = match text.trim().parse::<JoinToken>() {
        Ok(token) => token,
        Err(refusal) => return Err(refused(etcd, site, refusal)),
    };
    if site.as_str() != "default" && site != token.site() {
        return Err(refused(etcd, site, TokenRefusal::Site(token.site().clone())));
    }
    match admission(etcd, &token, host) {
        Err(VerbError::Token(refusal)) => Err(refused(etcd, token.site(), refusal)),
        result => result,
    }
}

fn admission(
    etcd: &mut Etcd,
    token: &JoinToken,
    host: Option<Name>,
) -> Result<CheckedToken, VerbError> {
    if etcd.get(&key::site_path(token.site()))?.is_none() {
        return Err(TokenRefusal::Site(token.site().clone()).into());
    }
    let known = etcd.get(&token.path())?.and_then(|event| {
        let record = TokenRecord::read(event.value.as_deref()?).ok()?;
        Some((record, event.revision))
    });
    let (record, revision) = known.ok_or(TokenRefusal::Unknown)?;
    let host = host.or_else(|| record.host.clone()).map_or_else(host_name::own, Ok)?;
    let is_expired = etcd.time_left(record.lease)? <= TOKEN_KEPT_SECONDS;
    let used = token.check(&record, &host, is_expired)?;
    Ok(CheckedToken { token: token.clone(), host, used: (used, revision) })
}

/// Marks a checked token as used, by a transaction.
///
/// # Errors
/// The token was used or deleted since the check, or etcd does not answer or refuses.
pub fn spend(etcd: &mut Etcd, checked: &CheckedToken) -> Result<(), VerbError> {
    let CheckedToken { token, used: (used, revision), .. } = checked;
    match etcd.replace(token.path(), *revision, Some(&used.write()), Some(used.lease))? {
        WriteOutcome::Done(_) => Ok(()),
        WriteOutcome::Failed(_) => Err(refused(etcd, token.site(), TokenRefusal::Raced)),
    }
}

/// Counts a refusal in a site that exists. The count is lost if etcd does not take it.
fn refused(etcd: &mut Etcd, site: &Name, refusal: TokenRefusal) -> VerbError {
    let mut count = || -> Result<bool, VerbError> {
        if etcd.get(&key::site_path(site))?.is_none() {
            return Ok(true);
        }
        let path = key::joins_path(site);
        let known = etcd.get(&path)?;
        let (value, revision) = known.map_or((None, 0), |event| (event.value, event.revision));
        let record = JoinsRecord::read(&value.unwrap_or_default());
        let done = etcd.replace(path, revision, Some(&record.count(&refusal)), None)?;
        Ok(matches!(done, WriteOutcome::Done(_)))
    };
    for _ in 0..COUNT_TRIES {
        if !matches!(count(), Ok(false)) {
            break;
        }
    }
    refusal.into()
}
