//! Commands about links ([`crate::LinkSpec`]), answered by the link service.
//!
//! The daemon makes a specification of the draft before it sends [`Add`] or [`Keep`], and resolves
//! the peer's name for [`Add`]; the service resolves it for [`Keep`], and opens the sockets. A link
//! cannot be changed: it is deleted and added again. At most
//! [`LINKS_MAX`](crate::limits::LINKS_MAX) (4,096) links; a further link, a name in use, or a group
//! that does not exist is refused. [`Show`] and [`Delete`] refuse a link that does not exist.
//!
//! The control API, `causeway apply` and the VNET language send the commands from their threads.
//! The thread `lifecycle` of the daemon sends [`Keep`] at the start (configuration file and state
//! file), [`Reload`] at SIGHUP, and [`Delete`] for all links at the end.

use crate::{LinkSpec, LinkView, Name, TypedRequest};

/// Lists every link, in order of the names.
#[derive(Debug, Default)]
pub struct List;

impl TypedRequest for List {
    type Answer = Vec<LinkView>;
}

/// Shows one link.
#[derive(Debug)]
pub struct Show(pub Name);

impl TypedRequest for Show {
    type Answer = LinkView;
}

/// Adds a link. Its group must exist. A link that cannot be opened is refused.
#[derive(Debug)]
pub struct Add(pub Box<LinkSpec>);

impl TypedRequest for Add {
    type Answer = LinkView;
}

/// Adds a link as [`Add`] does, and keeps a link that cannot be opened now: it stays down, with the
/// reason, until a later attempt succeeds.
#[derive(Debug)]
pub struct Keep(pub Box<LinkSpec>);

impl TypedRequest for Keep {
    type Answer = LinkView;
}

/// Reads keys and certificates of links again, and retries at once links that could not be opened.
/// With a missing or faulty file a link keeps its old key or certificates, and the daemon logs a
/// warning; the command succeeds all the same.
#[derive(Debug)]
pub struct Reload;

impl TypedRequest for Reload {
    type Answer = ();
}

/// Closes a link and deletes the routes that name it.
#[derive(Debug)]
pub struct Delete(pub Name);

impl TypedRequest for Delete {
    type Answer = ();
}
