//! Commands about forwards ([`crate::ForwardSpec`]), answered by the socket service.
//!
//! The service keeps the list of forwards and the last report of the process `causeway forward
//! --all`, which listens and connects; it opens no socket for a forward. At most
//! [`FORWARDS_MAX`](crate::limits::FORWARDS_MAX) (256) forwards; a further forward, a name in use,
//! or a source of another forward is refused. A port that an address names need not exist. A
//! forward cannot be changed: it is deleted and added again. The control API (`GET /metrics` too),
//! `causeway apply` and the start (configuration file and state file) send the commands, and wait
//! in their threads.

use crate::{ForwardSpec, ForwardTask, ForwardView, ForwarderReport, Name, TypedRequest};

/// Lists the forwards, in order of the names.
#[derive(Debug, Default)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<ForwardView>;
}

/// Shows one forward.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = ForwardView;
}

/// Adds a forward. The forwarder begins to listen within about a second.
#[derive(Debug)]
pub struct Add(pub ForwardSpec);

impl TypedRequest for Add {
    type Answer = ForwardView;
}

/// Deletes a forward. The forwarder closes its listener and connections within about a second.
#[derive(Debug)]
pub struct Delete(pub Name);

impl TypedRequest for Delete {
    type Answer = ();
}

/// Takes the report of a forwarder, and answers with its tasks. Refused while another forwarder
/// reports. Forwards whose port has no host socket are no tasks.
#[derive(Debug)]
pub struct Report(pub ForwarderReport);

impl TypedRequest for Report {
    type Answer = Vec<ForwardTask>;
}
