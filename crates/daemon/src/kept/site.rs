//! The policies of the site on disk, so that a restarted daemon has them before its first port.
//!
//! The process `causeway-directory` reports policies within a second of the start, if it runs;
//! connects of that time would pass the rules of the site. [`Kept`] therefore writes the policies
//! to the file `<state file>.site` after each report that changes them, and
//! [`Kept::restore_before_ports`] sends them to the link service. The next report of the process
//! replaces them. A file that cannot be used is moved aside and logged, and the daemon starts
//! without. A file that cannot be written is logged, and written with the next report that changes
//! policies. Without a state file nothing is kept.
//!
//! The file is written in the thread of the report's connection, and read in the thread
//! `lifecycle`. At most 16 MiB; a longer text is not written.

use std::path::PathBuf;

use causeway_model::commands::cluster::{Policies, Remote, RestorePolicies};
use causeway_model::{ClusterUpdate, ServiceRequest, SitePolicy};

use super::{Kept, lock, store};
use crate::fabric::ask_service;

/// Returns whether a request may change the policies.
pub(super) fn is_report(request: &ServiceRequest) -> bool {
    let has_policies = |update: &ClusterUpdate| {
        update.end || !update.policies.is_empty() || !update.removed_policies.is_empty()
    };
    request.get::<Remote>().is_some_and(|Remote(update)| has_policies(update))
}

impl Kept {
    /// Returns the file; `None` if the daemon keeps no state.
    fn site_file(&self) -> Option<PathBuf> {
        let mut name = self.state_file()?.as_os_str().to_owned();
        name.push(".site");
        Some(name.into())
    }

    /// Writes the policies, if they are others than those of the file.
    pub(super) fn save_site(&self) {
        let Some(file) = self.site_file() else { return };
        // Two reports write in the order in which they ask.
        let mut known = lock(&self.site);
        let asked = ask_service(&*self.inner, ServiceRequest::new(Policies));
        let Ok(policies) = asked.and_then(|response| response.take::<Policies>()) else { return };
        if lock(&self.lock).is_none() || known.as_ref() == Some(&policies) {
            return;
        }
        let text = serde_json::to_string_pretty(&policies).unwrap_or_default();
        match store::replace(&file, &(text + "\n")) {
            Ok(()) => *known = Some(policies),
            Err(error) => {
                log::warn!(error:% = error; "the policies of the site are not kept: a restarted causewayd has them when causeway-directory reports; correct the cause");
            }
        }
    }

    /// Puts the policies of the file in force.
    pub(super) fn restore_site(&self) {
        let Some(file) = self.site_file() else { return };
        let read = store::load(&file).map_err(|error| error.to_string()).and_then(|text| {
            let parse = |text: String| serde_json::from_str::<Vec<SitePolicy>>(&text);
            text.map_or(Ok(Vec::new()), |text| parse(text).map_err(|error| error.to_string()))
        });
        match read {
            Ok(policies) if policies.is_empty() => *lock(&self.site) = Some(policies),
            Ok(policies) => {
                let restore = ServiceRequest::new(RestorePolicies(policies.clone()));
                match ask_service(&*self.inner, restore) {
                    Ok(_) => *lock(&self.site) = Some(policies),
                    Err(error) => {
                        log::warn!(error:% = error; "a policy of the site is not in force until causeway-directory reports");
                    }
                }
            }
            Err(error) => {
                let aside = store::set_aside(&file).map(|path| path.display().to_string());
                let aside = aside.unwrap_or_else(|error| error.to_string());
                log::warn!(file:% = file.display(), error = error.as_str(), aside = aside.as_str(); "cannot read the policies of the site: they are not in force until causeway-directory reports");
            }
        }
    }
}
