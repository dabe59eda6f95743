//! Policies of the site: reports of the whole state, and policies that were kept on disk.

use causeway_model::commands::cluster::{Policies, Remote, RestorePolicies};
use causeway_model::{ClusterUpdate, Forwarding, RuleAction, RuleSpec, SitePolicy};

use crate::hosts::{Host, name};
use crate::verified::update;

fn policy(group: &str, to: &str) -> SitePolicy {
    let (action, from, to) = (RuleAction::Reject, "*".parse().unwrap(), to.parse().unwrap());
    let rules = vec![RuleSpec { action, from, to }];
    SitePolicy { rules, ..SitePolicy::none(name(group)) }
}

#[test]
fn policies_follow_reports_and_a_refused_one_keeps_that_before() {
    let host = Host::with_sockets();
    let (red, blue) = (policy("red", "red/*:22"), policy("blue", "blue/*:22"));
    host.ask(RestorePolicies(vec![blue.clone(), red.clone()]));
    assert_eq!(host.ask(Policies), [blue.clone(), red.clone()]);

    // A report of the whole state removes a kept policy that it does not name.
    let report = |begin, end, policies: &[SitePolicy]| {
        let (policies, empty) = (policies.to_vec(), update(&host, 63, 21629));
        host.ask(Remote(Box::new(ClusterUpdate { begin, end, policies, ..empty })))
    };
    report(true, false, &[]);
    assert_eq!(host.ask(Policies), [blue, red.clone()], "the state is not whole yet");
    report(false, true, std::slice::from_ref(&red));
    assert_eq!(host.ask(Policies), std::slice::from_ref(&red));

    let foreign = policy("red", "blue/*:22");
    let view = report(false, false, &[foreign]);
    assert!(view.status.alarm.contains("red"), "{}", view.status.alarm);
    assert_eq!(host.ask(Policies), std::slice::from_ref(&red));

    let routes = SitePolicy { forwarding: Some(Forwarding::Routes), ..red };
    let view = report(false, false, std::slice::from_ref(&routes));
    assert_eq!((host.ask(Policies), view.status.alarm.as_str()), (vec![routes], ""));
    let (removed_policies, empty) = (vec![name("red")], update(&host, 63, 21629));
    host.ask(Remote(Box::new(ClusterUpdate { removed_policies, ..empty })));
    assert!(host.ask(Policies).is_empty());
}
