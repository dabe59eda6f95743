//! Control plane of links: configured links, their groups, and their commands.
//!
//! [`LinkController`] runs in the thread that gives the command (of a control connection or a VNET
//! session, or the thread `lifecycle` at the start and at SIGHUP), one command at a time under the
//! lock of the registry. It checks a link's specification and the limit [`LINKS_MAX`] (4,096),
//! keeps the two shards of a link alive (the shard of links, and the shard that forwards the
//! group's frames), and sends requests to both: open and join when a link is added, leave and close
//! when it is deleted. If one of these steps of an addition fails, the earlier steps are undone and
//! the command fails; if only reading the new link's view fails, the command fails and the link
//! stays.
//!
//! Commands wait for the answers of the shards; views need the answer of the shard of links and of
//! the group's shard, else the command fails. The controller touches no socket and no frame, keeps
//! of a link only its specification and its identifier, and does not retry: `super::pending` does.
//! Whether a link that cannot be opened is refused or kept depends on the command ([`OnFailure`]).

use std::collections::{BTreeMap, HashMap};

use causeway_fabric::carrier::{
    CARRIES_SOCKETS, FORWARDS_FRAMES, FindLink, Join, Leave, LinkDeleted, LinkId, OpenInbox,
    ReadDrops,
};
use causeway_fabric::{Control, Controller, ServiceObject, ShardKey};
use causeway_model::commands::links;
use causeway_model::limits::LINKS_MAX;
use causeway_model::{
    CommandError, GroupView, LinkKind, LinkSpec, LinkView, Name, RequestDispatch, ServiceRequest,
};

use super::cluster::Cluster;
use super::request::{
    CloseLink, OnFailure, OpenLink, OpenedLink, ReadViews, ReloadKeys, StartLink,
};
use super::service::NAME;

/// Controller of the `link` commands.
#[derive(Debug, Default)]
pub(crate) struct LinkController {
    /// By name: the specification, and the identifier in the shard of links.
    pub(super) links: BTreeMap<Name, (LinkSpec, LinkId)>,
    /// The other hosts of the site.
    pub(super) cluster: Cluster,
}

/// The shards that a link needs.
#[derive(Debug)]
struct Shards {
    /// Forwards frames of the link's group.
    frames: ShardKey,
    /// Owns all links, of every group.
    links: ShardKey,
    /// Connects sockets of the link's group, if the link carries them.
    sockets: Option<ShardKey>,
}

impl Shards {
    /// Returns the shards for a link.
    fn of(control: &Control<'_>, spec: &LinkSpec) -> Result<Self, CommandError> {
        let frames = ShardKey::new(&spec.group, control.provider(FORWARDS_FRAMES)?);
        // A daemon without sockets has no such service.
        let service = control.provider(CARRIES_SOCKETS).ok().filter(|_| carries_sockets(spec));
        let sockets = service.map(|service| ShardKey::new(&spec.group, service));
        Ok(Self { frames, links: control.host_shard(NAME)?, sockets })
    }

    /// Returns all shards.
    fn all(&self) -> impl Iterator<Item = &ShardKey> {
        [&self.frames, &self.links].into_iter().chain(&self.sockets)
    }

    /// Keeps the shards alive until [`Self::release`].
    fn hold(&self, control: &mut Control<'_>) -> Result<(), CommandError> {
        for (nth, shard) in self.all().enumerate() {
            control.hold(shard).inspect_err(|_| {
                self.all().take(nth).for_each(|held| control.release(held));
            })?;
        }
        Ok(())
    }

    /// Undoes [`Self::hold`].
    fn release(&self, control: &mut Control<'_>) {
        self.all().for_each(|shard| control.release(shard));
    }

    /// Opens a link and joins it to its group.
    fn open(
        &self,
        control: &Control<'_>,
        spec: &LinkSpec,
        on_failure: OnFailure,
    ) -> Result<LinkId, CommandError> {
        let to = control.ask(&self.frames, OpenInbox)?;
        let segments =
            self.sockets.as_ref().map(|shard| control.ask(shard, OpenInbox)).transpose()?;
        let open = OpenLink { spec: Box::new(spec.clone()), to, segments, on_failure };
        let OpenedLink { frames, segments } = control.ask(&self.links, open)?;
        let id = frames.id;
        let mut joined = control.ask(&self.frames, Join(frames));
        if let (Some(shard), Some(member)) = (&self.sockets, segments) {
            joined = joined.and_then(|()| control.ask(shard, Join(member)));
        }
        let started = joined.and_then(|()| control.ask(&self.links, StartLink(id)));
        if let Err(error) = started {
            let _ = self.leave(control, id);
            let _ = control.ask(&self.links, CloseLink(id));
            return Err(error);
        }
        Ok(id)
    }

    /// Removes a link from the shards of its group.
    fn leave(&self, control: &Control<'_>, id: LinkId) -> Result<(), CommandError> {
        control.ask(&self.frames, Leave(id))?;
        self.sockets.as_ref().map_or(Ok(()), |shard| control.ask(shard, Leave(id)))
    }
}

/// Returns whether a link carries sockets.
const fn carries_sockets(spec: &LinkSpec) -> bool {
    matches!(spec.kind, LinkKind::Causeway(_) | LinkKind::CausewayPlain(_))
}

/// Returns the error for a name that no link has.
fn no_link(name: &Name) -> CommandError {
    CommandError::NotFound { what: "link", name: name.to_string() }
}

impl LinkController {
    /// Adds a link and returns its view. An invalid specification, an unknown group, a name in use
    /// and a link beyond [`LINKS_MAX`] (4,096) are refused.
    pub(super) fn add(
        &mut self,
        control: &mut Control<'_>,
        spec: LinkSpec,
        on_failure: OnFailure,
    ) -> Result<LinkView, CommandError> {
        spec.check().map_err(|e| CommandError::Invalid(e.to_string()))?;
        control.group(&spec.group)?;
        if self.links.contains_key(&spec.name) {
            return Err(CommandError::Conflict(format!("link {} exists already", spec.name)));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(CommandError::Full(format!("there are {LINKS_MAX} links already")));
        }
        let shards = Shards::of(control, &spec)?;
        shards.hold(control)?;
        let opened = shards.open(control, &spec, on_failure);
        let id = opened.inspect_err(|_| shards.release(control))?;
        let name = spec.name.clone();
        log::info!(link = name.as_str(), kind = spec.kind.name(); "link added");
        self.links.insert(name.clone(), (spec, id));
        self.show(control, &name)
    }

    /// Deletes a link: its group leaves it, then the shard of links closes it. If one of them does
    /// not answer, the command fails and the link stays configured, perhaps without its group: the
    /// command can be repeated. If a controller cannot forget the link (routes that name it), the
    /// command fails although the link is deleted.
    pub(super) fn delete(
        &mut self,
        control: &mut Control<'_>,
        name: &Name,
    ) -> Result<(), CommandError> {
        let (spec, id) = self.links.get(name).ok_or_else(|| no_link(name))?;
        let (group, id) = (spec.group.clone(), *id);
        let shards = Shards::of(control, spec)?;
        shards.leave(control, id)?;
        control.ask(&shards.links, CloseLink(id))?;
        self.links.remove(name);
        let forgotten = control.consult(&LinkDeleted { name: name.clone(), group });
        shards.release(control);
        forgotten?;
        log::info!(link = name.as_str(); "link deleted");
        Ok(())
    }

    /// Makes all links read their keys and certificates again.
    fn reload(&self, control: &Control<'_>) -> Result<(), CommandError> {
        if self.links.is_empty() {
            return Ok(());
        }
        control.ask(&control.host_shard(NAME)?, ReloadKeys)
    }

    /// Returns the views of all links, by name.
    fn list(&self, control: &Control<'_>) -> Result<Vec<LinkView>, CommandError> {
        if self.links.is_empty() {
            return Ok(Vec::new());
        }
        let groups = self.links.values().map(|(spec, _)| &spec.group).collect();
        self.views(control, None, groups)
    }

    /// Returns the view of the link with this name.
    fn show(&self, control: &Control<'_>, name: &Name) -> Result<LinkView, CommandError> {
        let (spec, id) = self.links.get(name).ok_or_else(|| no_link(name))?;
        let view = self.views(control, Some(*id), vec![&spec.group])?.pop();
        view.ok_or_else(|| no_link(name))
    }

    /// Returns views of one link, or of all, with the drops that `groups` counted.
    fn views(
        &self,
        control: &Control<'_>,
        id: Option<LinkId>,
        groups: Vec<&Name>,
    ) -> Result<Vec<LinkView>, CommandError> {
        let mut views = control.ask(&control.host_shard(NAME)?, ReadViews(id))?;
        for view in &mut views {
            view.is_of_cluster = self.cluster.has_link(&view.spec.name);
        }
        views.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        self.add_drops(control, &mut views, id, groups)?;
        Ok(views)
    }

    /// Adds the drops that groups counted for one link, or for all, to views.
    fn add_drops(
        &self,
        control: &Control<'_>,
        views: &mut [LinkView],
        id: Option<LinkId>,
        mut groups: Vec<&Name>,
    ) -> Result<(), CommandError> {
        // Adding a link shows its view. Reading the counters of all links each time would make
        // adding many links quadratic.
        let id_of = |view: &LinkView| self.links.get(&view.spec.name).map(|(_, id)| *id);
        let shown = views.iter().enumerate();
        let places: HashMap<LinkId, usize> =
            shown.filter_map(|(at, view)| Some((id_of(view)?, at))).collect();
        groups.sort_unstable();
        groups.dedup();
        let service = control.provider(FORWARDS_FRAMES)?;
        let frames = groups.iter().map(|group| ShardKey::new(group, service));
        let mut shards: Vec<ShardKey> = frames.collect();
        if let Ok(service) = control.provider(CARRIES_SOCKETS) {
            let linked = |group: &&&Name| {
                self.links.values().any(|(spec, _)| spec.group == ***group && carries_sockets(spec))
            };
            shards.extend(groups.iter().filter(linked).map(|group| ShardKey::new(group, service)));
        }
        for shard in shards {
            for (id, counts) in control.ask(&shard, ReadDrops(id))? {
                let place = places.get(&id);
                let Some(view) = place.and_then(|at| views.get_mut(*at)) else { continue };
                for (counter, count) in counts {
                    let sum = view.counters.entry(counter).or_insert(0);
                    *sum = sum.saturating_add(count);
                }
            }
        }
        Ok(())
    }

    /// Returns the names of a group's links.
    fn of_group<'a>(&'a self, group: &'a Name) -> impl Iterator<Item = &'a Name> {
        let of = self.links.iter().filter(move |(_, (spec, _))| spec.group == *group);
        of.map(|(name, _)| name)
    }
}

impl Controller for LinkController {
    fn ask(&mut self, control: &mut Control<'_>, request: ServiceRequest) -> RequestDispatch {
        let request = self.ask_cluster(control, RequestDispatch::new(request));
        request
            .on(|links::List| self.list(control))
            .on(|links::Show(name)| self.show(control, &name))
            .on(|links::Add(spec)| self.add(control, *spec, OnFailure::Refuse))
            .on(|links::Keep(spec)| self.add(control, *spec, OnFailure::Retry))
            .on(|links::Reload| self.reload(control))
            .on(|links::Delete(name)| self.delete(control, &name))
            .on(|FindLink(name)| Ok(self.links.get(&name).map(|(spec, _)| spec.group.clone())))
    }

    fn object_in(&self, group: &Name) -> Option<ServiceObject> {
        let name = self.of_group(group).next()?.clone();
        Some(ServiceObject { kind: "link", name })
    }

    fn extend_group(&self, view: &mut GroupView) {
        let GroupView { name, links, .. } = view;
        links.extend(self.of_group(name).cloned());
    }
}
