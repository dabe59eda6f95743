//! Commands about host channel adapters (ports of kind `hca`), answered by the HCA service.
//!
//! The control API sends them (`GET /v1/hcas`, `GET /v1/hcas/PORT`, and `GET /metrics` the list),
//! and waits in the thread of the connection. The commands read samples and change nothing; the
//! adapters themselves are added and deleted as ports. The list is empty without ports of kind
//! `hca`, ordered by port, and has no queue pairs. The answer to [`Show`] has up to
//! [`HCA_QUEUE_PAIRS_SHOWN_MAX`] (256) of them.
//!
//! [`HCA_QUEUE_PAIRS_SHOWN_MAX`]: crate::limits::HCA_QUEUE_PAIRS_SHOWN_MAX

use crate::{HcaView, Name, TypedRequest};

/// Lists all adapters, without their queue pairs.
#[derive(Debug, Default)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<HcaView>;
}

/// Shows the adapter of the port, with its queue pairs. Refused if no port of kind `hca` has the
/// name.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = HcaView;
}
