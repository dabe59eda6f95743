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

    // A process of an older release reports no policies.
    let older =
        ClusterUpdate { begin: true, end: true, has_policies: false, ..update(&host, 63, 21629) };
    host.ask(Remote(Box::new(older)));
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

#[test]
fn policies_refused_one_has_an_alarm_until_a_whole_state_does_not_name_it() {
    let host = Host::with_sockets();
    let report = |begin, end, policies: &[SitePolicy]| {
        let (policies, empty) = (policies.to_vec(), update(&host, 63, 21629));
        let update = ClusterUpdate { begin, end, policies, ..empty };
        host.ask(Remote(Box::new(update))).status.alarm
    };
    // The group has no policy in force, so the fabric does not list it.
    let foreign = policy("green", "blue/*:22");
    let alarm = report(true, true, std::slice::from_ref(&foreign));
    assert!(alarm.contains("group green is not applied"), "{alarm}");
    assert_eq!(report(true, true, &[foreign]), alarm, "the record is there and still wrong");

    // The record was deleted while no watch delivered it.
    assert_eq!(report(true, false, &[]), alarm, "the state is not whole yet");
    assert_eq!(report(false, true, &[]), "");
    assert!(host.ask(Policies).is_empty());
}
