//! Commands about links.

use crate::{Ask, LinkSpec, LinkView, Name};

/// Lists every link, in order of the names.
#[derive(Debug)]
pub struct List;

impl Ask for List {
    type Answer = Vec<LinkView>;
}

/// Shows one link.
#[derive(Debug)]
pub struct Show(pub Name);

impl Ask for Show {
    type Answer = LinkView;
}

/// Adds a link. Its group must exist.
#[derive(Debug)]
pub struct Add(pub Box<LinkSpec>);

impl Ask for Add {
    type Answer = LinkView;
}

/// Adds a link as [`Add`] does, and keeps a link that cannot be opened now: it stays down, with the
/// reason, until a later attempt succeeds.
#[derive(Debug)]
pub struct Keep(pub Box<LinkSpec>);

impl Ask for Keep {
    type Answer = LinkView;
}

/// Reads keys and certificates of links again, and retries at once links that could not be opened.
#[derive(Debug)]
pub struct Reload;

impl Ask for Reload {
    type Answer = ();
}

/// Closes a link and deletes the routes that name it.
#[derive(Debug)]
pub struct Delete(pub Name);

impl Ask for Delete {
    type Answer = ();
}
