//! Opening of links, by kind: on a source that similar links share, or on a new source.
//!
//! [`super::service`] and `super::pending` call [`Links::open_kind`] in the shard of links; the
//! returned carrier goes to the group. Links of one kind share a UDP socket with the same local
//! address (tunnels: and the same private key); `tcp` and `tls` links together share the listening
//! socket of an address. The module binds sockets, reads key and certificate files (at most
//! [`KEY_FILE_BYTES_MAX`] (4,096) bytes for a key), and does not wait for peers; the file system
//! may block it.
//!
//! If an address, a file or an interface is missing, an error is returned and the caller drops the
//! sources that no link uses; `super::pending` retries if the command allows it. Two links that
//! would match the same received data (same peer and network, or same peer address at a listener)
//! are refused as a conflict; connecting stream links and `raw` links receive by a source of their
//! own and are not compared. The module checks neither quotas of links nor the specification:
//! `super::control` does.

use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;

use causeway_fabric::Context;
use causeway_fabric::carrier::{Carrier, LinkId};
use causeway_fabric::udp::{Fragmentation, Udp};
use causeway_model::CommandError;
use causeway_model::limits::UNDERLAY_MTU;
use causeway_model::{LinkKind, LinkSpec, StreamSpec, TrafficClass, TunnelSpec, UdpSpec};
use zeroize::Zeroizing;

use super::bare::{BareSocket, Encapsulation};
use super::inbox::LinkInbox;
use super::limits::KEY_FILE_BYTES_MAX;
use super::path;
use super::raw::RawLink;
use super::service::{LinkSource, Links, NO_SOURCE, SourceKind, with_clock};
use super::stream::{StreamLink, StreamListener};
use super::tls::ReloadableTls;
use super::tunnels::{LinkAddError, TunnelSocket};
use crate::limits::PACKET_BYTES_VXLAN;
use crate::tunnel::OnDemand;
use causeway_model::keys::{PrivateKey, PublicKey};

/// Key by which links share a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SourceKey {
    /// A UDP socket at this local address, with this encapsulation.
    Bare(SocketAddr, Encapsulation),
    /// A UDP socket at this local address, with our public key if the tunnels are encrypted.
    Tunnels(SocketAddr, Option<PublicKey>),
    /// A listening socket at this local address.
    Listener(SocketAddr),
    /// The source of one link; not shared.
    Own(LinkId),
}

/// An opened link: its source value; its tunnel's number and virtual network, if it has a tunnel;
/// and its carrier.
type OpenedLink = (u32, Option<(u16, u32)>, Box<dyn Carrier>);

/// Returns an error of this host about a link.
fn host(spec: &LinkSpec, text: impl std::fmt::Display) -> CommandError {
    CommandError::Host(format!("link {}: {text}", spec.name))
}

impl Links {
    /// Opens a link of any kind.
    pub(crate) fn open_kind(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        inbox: &LinkInbox,
    ) -> Result<OpenedLink, CommandError> {
        match &spec.kind {
            LinkKind::Vnet(udp) => self.open_bare(cx, spec, udp, Encapsulation::Vnet, inbox),
            LinkKind::Vxlan(udp) => self.open_bare(cx, spec, udp, Encapsulation::Vxlan, inbox),
            LinkKind::Causeway(tunnel) => {
                let TunnelSpec { remote, local, key, vni, private_key, class, .. } = tunnel;
                let TunnelSpec { idle, has_directory, .. } = tunnel;
                let own = read_key(private_key).map_err(|text| host(spec, text))?;
                let peer: PublicKey = key
                    .as_str()
                    .parse()
                    .map_err(|e| CommandError::Invalid(format!("link {}: key: {e}", spec.name)))?;
                if peer == own.public() {
                    let text = format!(
                        "link {}: key: it is this daemon's own public key; give the peer's",
                        spec.name
                    );
                    return Err(CommandError::Invalid(text));
                }
                let ends = (*local, *remote);
                let on_demand = idle.map(|seconds| OnDemand {
                    idle: u64::from(seconds).saturating_mul(1_000_000_000),
                    has_directory: *has_directory,
                });
                let network = (*vni, *class, on_demand);
                self.open_tunnel(cx, spec, ends, Some((own, peer)), network, inbox)
            }
            LinkKind::CausewayPlain(udp) => {
                let ends = (udp.local, Some(udp.remote));
                self.open_tunnel(cx, spec, ends, None, (udp.vni, udp.class, None), inbox)
            }
            LinkKind::Tcp(stream) => self.open_stream(cx, spec, stream, None, inbox),
            LinkKind::Tls(tls) => {
                let security = ReloadableTls::read(tls).map_err(|text| host(spec, text))?;
                self.open_stream(cx, spec, &tls.stream, Some(security), inbox)
            }
            LinkKind::Raw(raw) => {
                let value = self.vacancy();
                let link = RawLink::open(cx, inbox.clone(), &raw.interface, value)
                    .map_err(|e| host(spec, e))?;
                let carrier = link.carrier();
                let (local, kind) = (SourceKey::Own(inbox.id), SourceKind::Raw(Box::new(link)));
                self.sources.insert(value, LinkSource { local, kind, watch: None });
                Ok((value, None, Box::new(carrier)))
            }
        }
    }

    /// Returns the source with that key.
    fn shared(&self, local: SourceKey) -> Option<u32> {
        let found = self.sources.iter().find(|(_, source)| source.local == local);
        found.map(|(value, _)| *value)
    }

    /// Returns an unused source value.
    fn vacancy(&self) -> u32 {
        let next = self.sources.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        if next < NO_SOURCE {
            return next;
        }
        (0..NO_SOURCE).find(|value| !self.sources.contains_key(value)).unwrap_or(NO_SOURCE)
    }

    /// Binds a UDP socket, and adds the source that `make` returns for it.
    fn bind(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        (at, cut): (SocketAddr, Fragmentation),
        local: SourceKey,
        make: impl FnOnce(&Self, Udp) -> SourceKind,
    ) -> Result<u32, CommandError> {
        // A peer may call by either address family, and a port belongs to one socket.
        let bound = match local {
            SourceKey::Tunnels(_, Some(_)) if at.ip().is_unspecified() => {
                Udp::bind_both(at.port(), cut)
            }
            _ => Udp::bind(at, cut),
        };
        let udp = bound.map_err(|error| {
            let other = self.has_port(spec, at.port()).map(|other| {
                format!(": link {other} uses UDP port {} with other settings", at.port())
            });
            host(spec, format_args!("local {at}: {error}{}", other.unwrap_or_default()))
        })?;
        let value = self.vacancy();
        let watch = cx.watch_source(udp.as_fd(), value).map_err(|e| host(spec, e))?;
        let kind = make(self, udp);
        self.sources.insert(value, LinkSource { local, kind, watch: Some(watch) });
        Ok(value)
    }

    /// Returns the name of another link with this UDP port.
    fn has_port(&self, spec: &LinkSpec, port: u16) -> Option<&str> {
        let datagrams = |kind: &LinkKind| {
            !matches!(kind, LinkKind::Tcp(_) | LinkKind::Tls(_) | LinkKind::Raw(_))
        };
        let other = self.links.values().map(|link| &link.spec).find(|other| {
            other.name != spec.name
                && datagrams(&other.kind)
                && other.local().is_some_and(|local| local.port() == port)
        });
        other.map(|other| other.name.as_str())
    }

    /// Returns a link's name, or `?` for a link that was closed.
    fn name_of(&self, id: LinkId) -> &str {
        self.links.get(&id).map_or("?", |link| link.spec.name.as_str())
    }

    /// Opens a `vnet` or `vxlan` link.
    fn open_bare(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        udp: &UdpSpec,
        encapsulation: Encapsulation,
        inbox: &LinkInbox,
    ) -> Result<OpenedLink, CommandError> {
        let local = SourceKey::Bare(udp.local, encapsulation);
        let value = match self.shared(local) {
            Some(value) => value,
            None => {
                self.bind(cx, spec, (udp.local, Fragmentation::Allowed), local, |links, socket| {
                    let pool = links.pool.clone();
                    SourceKind::Bare(Box::new(BareSocket::new(socket, encapsulation, pool)))
                })?
            }
        };
        let Some(LinkSource { kind: SourceKind::Bare(socket), .. }) = self.sources.get_mut(&value)
        else {
            return Err(host(spec, "its socket was closed"));
        };
        let route = path::route_mtu(udp.local.ip(), udp.remote.ip());
        let packet = spec.kind.mtu(route.unwrap_or(UNDERLAY_MTU));
        // Independent of the underlay's MTU: guests have an ordinary MTU unless configured
        // otherwise.
        let packet = usize::from(packet).min(PACKET_BYTES_VXLAN);
        let added = socket.add(udp.remote, udp.vni, inbox.clone(), packet);
        let carrier = socket.carrier(udp.remote, udp.vni, udp.class, inbox.stats.clone());
        if let Err(other) = added {
            let (name, other) = (&spec.name, self.name_of(other));
            let (peer, local) = (udp.remote.ip(), udp.local);
            let network = match encapsulation {
                Encapsulation::Vnet => String::new(),
                Encapsulation::Vxlan => format!(" of vni {}", udp.vni),
            };
            let text = format!(
                "link {name}: link {other} already receives datagrams{network} from {peer} to {local}"
            );
            return Err(CommandError::Conflict(text));
        }
        Ok((value, None, Box::new(carrier)))
    }

    /// Opens a `tcp` or `tls` link.
    fn open_stream(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        stream: &StreamSpec,
        security: Option<ReloadableTls>,
        inbox: &LinkInbox,
    ) -> Result<OpenedLink, CommandError> {
        let listener = stream.listen.map(|at| self.listener(cx, spec, at)).transpose()?;
        let value = self.vacancy();
        let connects = listener.is_none();
        let link = StreamLink::new(inbox.clone(), value, stream.remote, connects, security);
        let carrier = link.carrier();
        let taken = match listener.and_then(|at| self.sources.get_mut(&at)) {
            Some(LinkSource { kind: SourceKind::Listener(listener), .. }) => {
                listener.add(stream.remote.ip(), value)
            }
            _ => Ok(()),
        };
        if let Err(other) = taken {
            let other = self.links.values().find(|link| link.source == other);
            let other = other.map_or("?", |link| link.spec.name.as_str());
            let (name, peer) = (&spec.name, stream.remote.ip());
            let text = format!(
                "link {name}: link {other} already accepts connections from {peer} there: listen at another port"
            );
            return Err(CommandError::Conflict(text));
        }
        let kind = SourceKind::Stream(Box::new(link));
        self.sources
            .insert(value, LinkSource { local: SourceKey::Own(inbox.id), kind, watch: None });
        Ok((value, None, Box::new(carrier)))
    }

    /// Returns the source that listens at an address, and creates it if necessary.
    fn listener(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        at: SocketAddr,
    ) -> Result<u32, CommandError> {
        let local = SourceKey::Listener(at);
        if let Some(value) = self.shared(local) {
            return Ok(value);
        }
        let listener =
            StreamListener::bind(at).map_err(|e| host(spec, format_args!("listen {at}: {e}")))?;
        let value = self.vacancy();
        let watch = cx.watch_listener(listener.as_fd(), value).map_err(|e| host(spec, e))?;
        let kind = SourceKind::Listener(Box::new(listener));
        self.sources.insert(value, LinkSource { local, kind, watch: Some(watch) });
        Ok(value)
    }

    /// Opens a link on a tunnel; with keys (ours and the peer's) an encrypted one.
    fn open_tunnel(
        &mut self,
        cx: &Context<'_>,
        spec: &LinkSpec,
        (at, remote): (SocketAddr, Option<SocketAddr>),
        keys: Option<(PrivateKey, PublicKey)>,
        (vni, class, on_demand): (u32, TrafficClass, Option<OnDemand>),
        inbox: &LinkInbox,
    ) -> Result<OpenedLink, CommandError> {
        let (own, peer) = keys.unzip();
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, at.port()));
        let shared = if own.is_some() && at.ip().is_unspecified() { any } else { at };
        let local = SourceKey::Tunnels(shared, own.as_ref().map(PrivateKey::public));
        let value = match self.shared(local) {
            Some(value) => value,
            None => self.bind(cx, spec, (at, Fragmentation::Refused), local, |links, socket| {
                let pool = links.pool.clone();
                let tunnels =
                    with_clock(cx.now_ns, |clock| TunnelSocket::new(socket, own, pool, clock));
                SourceKind::Tunnels(Box::new(tunnels))
            })?,
        };
        let notices = self.notice_sender();
        let Some(LinkSource { kind: SourceKind::Tunnels(socket), .. }) =
            self.sources.get_mut(&value)
        else {
            return Err(host(spec, "its socket was closed"));
        };
        let added = with_clock(cx.now_ns, |clock| {
            let host = spec.remote_host.clone();
            socket.add(peer, (remote, host), (vni, on_demand), inbox.clone(), clock)
        });
        let carrier = added.map(|number| {
            let out = (inbox.stats.clone(), notices);
            let carrier = socket.carrier(number, vni, class, out);
            (number, carrier)
        });
        match carrier {
            Ok((number, Some(carrier))) => Ok((value, Some((number, vni)), Box::new(carrier))),
            Ok((_, None)) => Err(host(spec, "its tunnel was removed")),
            Err(LinkAddError::Refused(error)) => {
                Err(CommandError::Conflict(format!("link {}: {error}", spec.name)))
            }
            Err(LinkAddError::By(other)) => {
                let (name, other) = (&spec.name, self.name_of(other));
                let text = format!(
                    "link {name}: link {other} has vni {vni} to the same peer: choose another vni"
                );
                Err(CommandError::Conflict(text))
            }
        }
    }
}

/// Reads our private key. Error texts never quote the file's contents.
pub(super) fn read_key(path: &Path) -> Result<PrivateKey, String> {
    let shown = path.display();
    let wrong = |text: String| format!("private key {shown}: {text}");
    let file = std::fs::metadata(path)
        .map_err(|e| wrong(format!("{e}; `causeway key generate --out {shown}` makes one")))?;
    if file.len() > KEY_FILE_BYTES_MAX {
        return Err(wrong("it is too long for a key".into()));
    }
    warn_if_readable(path);
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?);
    text.trim().parse().map_err(|_| {
        wrong("it does not hold the 44 characters that `causeway key generate` writes".into())
    })
}

/// Logs a warning if other users may read a private key.
pub(crate) fn warn_if_readable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
    if mode & 0o077 != 0 {
        log::warn!(path:% = path.display(); "other users may read this private key: restrict it with chmod 600");
    }
}
