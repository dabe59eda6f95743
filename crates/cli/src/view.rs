//! Views in the form that the tool reads, and how it shows their configurations.
//!
//! `causeway_model` has the types.
//!
//! The verbs of [`crate::commands`] read replies into the aliases below by `client::view`, and
//! print configurations by the functions; `top`, `doctor`, `vmm` and `web` read the same types.
//! Kinds, states and keys of a newer daemon are read as text; a missing or malformed field of a
//! view is an error of the reader. Nothing here sends a request, and a missing value is shown as
//! `-`.

use causeway_model::{SpecValues, Textual};
use serde_json::Value;

/// The state of a port.
pub type PortView = causeway_model::PortView<Textual>;
/// The state of a group.
pub type GroupView = causeway_model::GroupView<Textual>;
/// The state of a link.
pub type LinkView = causeway_model::LinkView<Textual>;
/// The state of a route.
pub type RouteView = causeway_model::RouteView<Textual>;
/// The state of a forward.
pub type ForwardView = causeway_model::ForwardView<Textual>;
/// A rule, and the number of connects that it decided.
pub type RuleView = causeway_model::RuleView<Textual>;
/// The state of a dispatcher.
pub type DispatcherView = causeway_model::DispatcherView<Textual>;
/// The ports of one group and service that a dispatcher serves.
pub type ShardView = causeway_model::ShardView<Textual>;
/// A NIC of another host.
pub type PeerView = causeway_model::PeerView<Textual>;
/// A NIC of this host.
pub type NicView = causeway_model::NicView<Textual>;
/// A process that is attached to a NIC.
pub type NicProcessView = causeway_model::NicProcessView<Textual>;
/// An open endpoint of a NIC.
pub type NicEndpointView = causeway_model::NicEndpointView<Textual>;
/// A host channel adapter.
pub type HcaView = causeway_model::HcaView<Textual>;
/// A queue pair of an adapter.
pub type HcaQueuePairView = causeway_model::HcaQueuePairView<Textual>;
/// An AF_VSOCK connection.
pub type ConnectionView = causeway_model::ConnectionView<Textual>;
/// A side of a connection.
pub type ConnectionEnd = causeway_model::ConnectionEnd<Textual>;
/// The traffic matrix of a group.
pub type TrafficView = causeway_model::TrafficView<Textual>;
/// A sample of all counters.
pub type StatsView = causeway_model::StatsView<Textual>;
/// Counters of a port or a link.
pub type ObjectStats = causeway_model::ObjectStats<Textual>;

/// Returns a text or number of a configuration; `-` if there is none.
pub fn cell(spec: &SpecValues, key: &str) -> String {
    match spec.0.get(key) {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns a port's MAC address, its CID, or `-`.
pub fn address(spec: &SpecValues) -> String {
    match (spec.text("mac"), spec.number("cid")) {
        (Some(mac), _) => mac.to_owned(),
        (None, Some(cid)) => format!("cid {cid}"),
        (None, None) => "-".into(),
    }
}

/// Returns where the peer of a port attaches: its network address, if it has one, or its socket.
pub fn endpoint(spec: &SpecValues) -> String {
    let udp = || Some(format!("{} from {}", spec.text("udp")?, spec.text("remote")?));
    let address = spec.text("tcp").map(str::to_owned).or_else(udp);
    address.unwrap_or_else(|| cell(spec, "socket"))
}

/// Returns a port's address with that of its guest, if the guest has another: `cid 10 (guest 3)`.
pub fn address_and_guest(spec: &SpecValues) -> String {
    let own = address(spec);
    let guest = spec.text("guest_mac").map(str::to_owned);
    let guest = guest.or_else(|| spec.number("guest_cid").map(|cid| cid.to_string()));
    match guest {
        Some(guest) => format!("{own} (guest {guest})"),
        None => own,
    }
}

/// Returns an end of a route as `interface:NAME` or `edge:NAME`; `None` if the route has no such
/// end.
pub fn route_end(spec: &SpecValues, key: &str) -> Option<String> {
    let end = spec.0.get(key)?.as_object()?;
    let word = |key: &str| end.get(key).and_then(Value::as_str).unwrap_or("-");
    Some(format!("{}:{}", word("type"), word("name")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn address_of_a_clone_shows_that_of_its_guest() {
        for (spec, shown) in [
            (json!({"mac": "02:00:00:00:00:01"}), "02:00:00:00:00:01"),
            (
                json!({"mac": "02:00:00:00:00:01", "guest_mac": "52:54:00:00:00:09"}),
                "02:00:00:00:00:01 (guest 52:54:00:00:00:09)",
            ),
            (json!({"cid": 10}), "cid 10"),
            (json!({"cid": 10, "guest_cid": 3}), "cid 10 (guest 3)"),
            (json!({}), "-"),
        ] {
            let spec: SpecValues = serde_json::from_value(spec).unwrap();
            assert_eq!(address_and_guest(&spec), shown);
        }
    }
}
