//! Links as an operator writes them: with defaults by kind, and hosts by name.
//!
//! [`LinkDraft`] holds the given values and nothing more. [`LinkDraft::into_spec`] fills in
//! defaults, checks which keys the kind accepts and requires, resolves the peer's name and returns
//! the [`LinkSpec`] that the `link` service opens. `causewayd` calls it: in its start for the
//! configuration file and the state file, and in threads of the control socket and the VNET
//! language for commands. `causeway` uses [`LINK_FIELDS`] alone, for its options.
//!
//! The module opens no socket and reads no key file. It resolves names only by the [`Resolver`] of
//! its caller, which may block. It does not compare links: names and addresses in use are refused
//! by the service. [`LinkDraft::read`] and [`LinkDraft::problems`] report all problems,
//! [`LinkDraft::into_spec`] the first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::Name;
use crate::limits::{
    INTERFACE_BYTES_MAX, LINK_IDLE_SECONDS_MAX, LINK_IDLE_SECONDS_MIN, UNDERLAY_MTU, VNI_MAX,
};
use crate::{
    Dscp, LinkKind, LinkSpec, PublicKeyText, RawSpec, SpecError, StreamSpec, TlsSpec, TrafficClass,
    TunnelSpec, UdpSpec, VXLAN_BYTES, datagram_mtu, ecn_default, metric_default,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::host::{self, HostPort, Resolver};
use crate::schema::{
    self, DefaultValue, Form, Problem, ProblemKind, ValueType, check, parses, table, text,
};

/// The name of a link's kind. The default is `causeway`, so that a link without encryption must be
/// requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKindName {
    /// UDP, encrypted and authenticated.
    #[default]
    Causeway,
    /// UDP in Causeway's own format, not encrypted.
    CausewayPlain,
    /// The bare frame in UDP.
    Vnet,
    /// VXLAN (RFC 7348).
    Vxlan,
    /// VNET/U's framing over TCP.
    Tcp,
    /// VNET/U's framing over TLS.
    Tls,
    /// An interface of this host.
    Raw,
}

impl LinkKindName {
    /// The names in the order of the variants, as operators write them.
    pub const NAMES: [&'static str; 7] =
        ["causeway", "causeway-plain", "vnet", "vxlan", "tcp", "tls", "raw"];

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Causeway => "causeway",
            Self::CausewayPlain => "causeway-plain",
            Self::Vnet => "vnet",
            Self::Vxlan => "vxlan",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Raw => "raw",
        }
    }

    /// Returns the protocol that encrypts and authenticates the frames; `None` if the frames cross
    /// in the clear.
    pub fn encryption(self) -> Option<&'static str> {
        match self {
            Self::Causeway => Some("noise"),
            Self::Tls => Some("tls"),
            Self::CausewayPlain | Self::Vnet | Self::Vxlan | Self::Tcp | Self::Raw => None,
        }
    }

    /// Returns the default port of both ends; 0 for kinds without ports.
    pub fn port(self) -> u16 {
        match self {
            Self::Causeway | Self::CausewayPlain => 51871,
            Self::Vnet => 9000,
            Self::Vxlan => 4789,
            Self::Tcp => 9001,
            Self::Tls => 9002,
            Self::Raw => 0,
        }
    }

    /// Returns the keys that links of this kind accept beside the common keys, and whether each is
    /// required.
    pub fn keys(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::Causeway => &[
                ("remote", false),
                ("local", false),
                ("key", true),
                ("private_key", false),
                ("vni", false),
                ("dscp", false),
                ("ecn", false),
                ("idle", false),
            ],
            Self::CausewayPlain => &[
                ("remote", true),
                ("local", false),
                ("vni", false),
                ("dscp", false),
                ("ecn", false),
            ],
            Self::Vnet => &[("remote", true), ("local", false), ("dscp", false), ("ecn", false)],
            Self::Vxlan => &[
                ("remote", true),
                ("local", false),
                ("vni", true),
                ("dscp", false),
                ("ecn", false),
            ],
            Self::Tcp => &[("remote", true), ("listen", false)],
            Self::Tls => &[
                ("remote", true),
                ("listen", false),
                ("certificate", true),
                ("private_key", true),
                ("authorities", true),
                ("peer_name", false),
            ],
            Self::Raw => &[("interface", true)],
        }
    }
}

/// The keys of links of every kind.
const COMMON: [&str; 6] = ["name", "group", "kind", "peer", "metric", "transit"];

/// Returns the type of an integer from 0 to `max`.
const fn integer(max: u64, unit: &'static str) -> ValueType {
    ValueType::Integer { min: 0, max, unit }
}

/// Returns the type of a text that [`LinkDraft::problems`] checks together with other keys.
const fn any_text(placeholder: &'static str) -> ValueType {
    ValueType::Text(Form { placeholder, check: |_| Ok(()) })
}

table! {
    /// A link with the given values only; defaults are not filled in.
    pub struct LinkDraft, pub const LINK_FIELDS {
        /// Name of the link, unique in the daemon.
        name: Name => text::<Name>("NAME"),
            DefaultValue::Required("expected a name unique in this file");
        /// Group of the frames that the link carries.
        group: Name => text::<Name>("NAME"), DefaultValue::Required("expected the name of a [[group]]");
        /// Encapsulation of the frames.
        #[serde(default)]
        kind: LinkKindName => ValueType::Word(&LinkKindName::NAMES), DefaultValue::Text("causeway");
        /// Name of the peer (the host at the other end). Links to the same peer are alternatives to
        /// each other.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<Name> => text::<Name>("NAME"), DefaultValue::None;
        /// Priority among links to the same peer: the lowest metric that is up carries the frames.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metric: Option<u16> => integer(u16::MAX as u64, "N"), DefaultValue::Number(100);
        /// Forward frames that arrived by other links.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transit: Option<bool> => ValueType::Boolean, DefaultValue::Boolean(false);
        /// Name or address of the peer. causeway: not needed if the peer connects to this host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<String> => any_text("HOST[:PORT]"), DefaultValue::None;
        /// UDP: address and port of this host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        local: Option<String> => any_text("ADDRESS[:PORT]"), DefaultValue::Derived("any address, the port of the kind");
        /// causeway: public key of the peer, as `causeway key public` prints it there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<PublicKeyText> => text::<PublicKeyText>("KEY"), DefaultValue::None;
        /// causeway: file of this host's private key. tls: file of the certificate's private key
        /// (PEM).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        private_key: Option<PathBuf> => ValueType::Path, DefaultValue::Derived("causeway: key_file in [daemon]");
        /// Number of the group on the wire, the same at both ends.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vni: Option<u32> => integer(VNI_MAX as u64, "N"), DefaultValue::Derived("derived from the group's name; vxlan: must be given");
        /// UDP: DSCP of outer headers: a number, or inherit for the DSCP of the inner packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dscp: Option<Dscp> => ValueType::NumberOrText(Form { placeholder: "inherit|0-63", check: parses::<Dscp> }), DefaultValue::Number(0);
        /// UDP: copy the ECN field of the inner packet to outer headers; false for a peer that does
        /// not copy marks back into the inner packet, such as VNET/P.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ecn: Option<bool> => ValueType::Boolean, DefaultValue::Boolean(true);
        /// causeway: time without traffic after which the link goes dormant, until the next frame. The
        /// peer needs an idle time for this link too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idle: Option<u32> => ValueType::Integer { min: LINK_IDLE_SECONDS_MIN as u64, max: LINK_IDLE_SECONDS_MAX as u64, unit: "SECONDS" }, DefaultValue::NoneMeans("the link is always awake");
        /// tcp, tls: address and port at which this host listens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listen: Option<String> => any_text("ADDRESS[:PORT]"), DefaultValue::NoneMeans("this host connects");
        /// tls: file of this host's certificate (PEM).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        certificate: Option<PathBuf> => ValueType::Path, DefaultValue::None;
        /// tls: file of the authorities that may have signed the peer's certificate (PEM).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        authorities: Option<PathBuf> => ValueType::Path, DefaultValue::None;
        /// tls: name in the peer's certificate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer_name: Option<String> => any_text("HOST"), DefaultValue::Derived("the host of remote");
        /// raw: name of the interface of this host.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String> => any_text("NAME"), DefaultValue::None;
    }
}

/// Returns the number of a group on the wire, derived from its name alone so that both ends agree:
/// FNV-1a, folded to 24 bits.
pub fn derived_vni(group: &Name) -> u32 {
    let hash = group
        .as_str()
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, b| (hash ^ u32::from(b)).wrapping_mul(0x0100_0193));
    (hash >> 24) ^ (hash & VNI_MAX)
}

/// Reads this host's end of a link: `ADDRESS`, `:PORT`, `ADDRESS:PORT` or `[IPV6]:PORT`.
fn own_end(text: &str, any: IpAddr, port: u16) -> Result<SocketAddr, String> {
    let wrong = || format!("{text:?}: expected ADDRESS, ADDRESS:PORT or :PORT of this host");
    let host_port: HostPort = match text.strip_prefix(':') {
        Some(port) if !port.contains(':') => format!("{}:{port}", Ipv4Addr::UNSPECIFIED).parse(),
        _ => text.parse(),
    }
    .map_err(|_| wrong())?;
    let port = host_port.port.unwrap_or(port);
    if text.starts_with(':') && !text.starts_with("::") {
        return Ok(SocketAddr::new(any, port));
    }
    let address: IpAddr = host_port.host.parse().map_err(|_| wrong())?;
    Ok(SocketAddr::new(address, port))
}

/// Returns the unspecified address of the family of `like`; that of IPv6 without one.
fn unspecified(like: Option<IpAddr>) -> IpAddr {
    match like {
        Some(IpAddr::V4(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        // A peer that connects to this host may use either family.
        Some(IpAddr::V6(_)) | None => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// Returns the problem of a required key that is not given.
fn missing(key: &str, kind: LinkKindName) -> Problem {
    let text = format!("a link of kind {:?} needs it", kind.as_str());
    Problem { path: key.to_owned(), kind: ProblemKind::Missing, text }
}

impl LinkDraft {
    /// Returns the MTU of the link before the peer's name is resolved, in bytes. A peer by name is
    /// assumed to have an IPv6 address, whose headers are longer, unless this host's end is an IPv4
    /// address. `underlay` returns the MTU of the path to the peer, or `None` if it is not known.
    /// See [`crate::LinkKind::mtu`].
    pub fn mtu(&self, underlay: impl FnOnce() -> Option<u16>) -> u16 {
        let encapsulation = match self.kind {
            LinkKindName::Vnet => Some(0),
            LinkKindName::Vxlan => Some(VXLAN_BYTES),
            LinkKindName::Raw => None,
            _ => return u16::MAX,
        };
        let underlay = underlay().unwrap_or(UNDERLAY_MTU);
        let address = |text: &Option<String>| text.as_ref()?.parse::<HostPort>().ok()?.address();
        let known = address(&self.remote).or(address(&self.local));
        let is_ipv4 = known.is_some_and(|address| address.is_ipv4());
        encapsulation.map_or(underlay, |bytes| datagram_mtu(underlay, is_ipv4, bytes))
    }

    /// Returns a draft with the required keys only.
    pub fn new(name: Name, group: Name, kind: LinkKindName) -> Self {
        Self {
            name,
            group,
            kind,
            peer: None,
            metric: None,
            transit: None,
            remote: None,
            local: None,
            key: None,
            private_key: None,
            vni: None,
            dscp: None,
            ecn: None,
            idle: None,
            listen: None,
            certificate: None,
            authorities: None,
            peer_name: None,
            interface: None,
        }
    }

    /// Reads the table of a link.
    ///
    /// # Errors
    /// All problems of the table. Names are not resolved.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let draft: Self = schema::read(LINK_FIELDS, values)?;
        let problems = draft.problems();
        if problems.is_empty() { Ok(draft) } else { Err(problems) }
    }

    /// Returns the given values by key.
    pub fn values(&self) -> Map<String, Value> {
        schema::values(self)
    }

    /// Returns all problems of the draft. Names are not resolved.
    pub fn problems(&self) -> Vec<Problem> {
        let keys = self.kind.keys();
        let values = self.values();
        let mut problems = check(LINK_FIELDS, &values);
        for key in LINK_FIELDS.iter().map(|field| field.key).filter(|key| !COMMON.contains(key)) {
            let given = values.contains_key(key);
            let known = keys.iter().find(|(known, _)| *known == key);
            match (known, given) {
                (None, true) => {
                    let text = format!("a link of kind {:?} has no such key", self.kind.as_str());
                    problems.push(Problem::wrong(key, text));
                }
                (Some((_, true)), false) => {
                    problems.push(missing(key, self.kind));
                }
                _ => {}
            }
        }
        if !problems.is_empty() {
            return problems;
        }
        if let Some(name) = self.peer_name.as_ref().filter(|name| !host::is_host(name)) {
            let text = format!("expected a host's name or address, found {name:?}");
            problems.push(Problem::wrong("peer_name", text));
        }
        if !problems.is_empty() {
            return problems;
        }
        if self.idle.is_some() && self.remote.is_none() {
            let text = "a dormant link needs remote, to reach the peer first".to_owned();
            problems.push(Problem::wrong("idle", text));
            return problems;
        }
        match self.build(Path::new("/"), host::assume_resolved) {
            Err(problem) => problems.push(problem),
            Ok(spec) => {
                if let Err(error) = spec.check() {
                    let key = if self.kind == LinkKindName::Raw { "interface" } else { "remote" };
                    problems.push(Problem::wrong(key, error.to_string()));
                }
            }
        }
        problems
    }

    /// Returns the full link: defaults filled in, ranges checked, and names resolved.
    ///
    /// # Errors
    /// The first wrong key, or the host that cannot be resolved.
    pub fn into_spec(self, key_file: &Path, resolve: Resolver) -> Result<LinkSpec, SpecError> {
        let spec_error = |problem: &Problem| {
            SpecError(format!("link {}: {}: {}", self.name, problem.path, problem.text))
        };
        if let Some(problem) = self.problems().first() {
            return Err(spec_error(problem));
        }
        let spec = self.build(key_file, resolve).map_err(|problem| spec_error(&problem))?;
        spec.check()?;
        Ok(spec)
    }

    /// Returns the draft with every default filled in that does not depend on a resolved address.
    pub fn filled(mut self, key_file: &Path) -> Self {
        let kind = self.kind;
        self.metric = self.metric.or(Some(metric_default()));
        self.transit = self.transit.or(Some(false));
        let host_port: Option<HostPort> =
            self.remote.as_ref().and_then(|remote| remote.parse().ok());
        let address = host_port.as_ref().map(HostPort::address);
        if let Some(host_port) = host_port {
            self.remote = Some(self.with_port(&host_port).to_string());
            if kind == LinkKindName::Tls {
                self.peer_name = self.peer_name.or(Some(host_port.host));
            }
        }
        let any = match address {
            Some(None) => None,
            Some(Some(address)) => Some(unspecified(Some(address))),
            None => Some(unspecified(None)),
        };
        if let (Some(any), true) = (any, matches!(kind.keys(), [_, ("local", _), ..])) {
            let local = self.local.take().unwrap_or_else(|| any.to_string());
            let end = own_end(&local, any, kind.port());
            self.local = Some(end.map_or(local, |end| end.to_string()));
        }
        if kind == LinkKindName::Causeway {
            self.private_key = self.private_key.or_else(|| Some(key_file.to_owned()));
        }
        if matches!(kind, LinkKindName::Causeway | LinkKindName::CausewayPlain) {
            self.vni = self.vni.or_else(|| Some(derived_vni(&self.group)));
        }
        if kind.keys().iter().any(|(key, _)| *key == "dscp") {
            self.dscp = self.dscp.or(Some(Dscp::default()));
            self.ecn = self.ecn.or(Some(ecn_default()));
        }
        self
    }

    /// Returns the host with its port, by default that of the link's kind.
    fn with_port(&self, host_port: &HostPort) -> HostPort {
        HostPort { host: host_port.host.clone(), port: host_port.port.or(Some(self.kind.port())) }
    }

    /// Returns `HOST:PORT` of a peer that is given by name.
    fn remote_host(&self) -> Option<String> {
        let host_port: HostPort = self.remote.as_ref()?.parse().ok()?;
        let named = host_port.address().is_none() && self.kind != LinkKindName::Raw;
        named.then(|| self.with_port(&host_port).to_string())
    }

    /// Returns the peer's address, preferably of the family of this host's end.
    fn remote_end(&self, resolve: Resolver) -> Result<Option<SocketAddr>, Problem> {
        let Some(text) = &self.remote else { return Ok(None) };
        let wrong = |text| Problem::wrong("remote", text);
        let host_port: HostPort = text.parse().map_err(wrong)?;
        let HostPort { host, port } = self.with_port(&host_port);
        let found = resolve(&host, port.unwrap_or_default()).map_err(wrong)?;
        let ours = self.local.as_ref().or(self.listen.as_ref());
        let ours = ours.and_then(|ours| own_end(ours, unspecified(None), 0).ok());
        let named = ours.filter(|_| host_port.address().is_none() && !self.any_address());
        let fits = |remote: &&SocketAddr| named.is_none_or(|o| o.is_ipv4() == remote.is_ipv4());
        let one = found.iter().find(fits).or(found.first()).copied();
        one.map(Some).ok_or_else(|| wrong(format!("host {host:?} has no address")))
    }

    /// Returns whether this host's end is given by its port alone.
    fn any_address(&self) -> bool {
        let ours = self.local.as_ref().or(self.listen.as_ref());
        ours.is_none_or(|ours| ours.starts_with(':') && !ours.starts_with("::"))
    }

    /// Returns this host's end of the link; `text` is the value of `key`.
    fn end(
        &self,
        key: &'static str,
        text: Option<&str>,
        remote: Option<SocketAddr>,
    ) -> Result<SocketAddr, Problem> {
        let any = unspecified(remote.map(|remote| remote.ip()));
        let port = self.kind.port();
        let Some(text) = text else { return Ok(SocketAddr::new(any, port)) };
        own_end(text, any, port).map_err(|text| Problem::wrong(key, text))
    }

    /// Returns the full link, or its first problem. The values were not checked against the fields.
    fn build(&self, key_file: &Path, resolve: Resolver) -> Result<LinkSpec, Problem> {
        let missing = |key| missing(key, self.kind);
        let remote = self.remote_end(resolve)?;
        let vni = self.vni.unwrap_or_else(|| derived_vni(&self.group));
        let class = TrafficClass {
            dscp: self.dscp.unwrap_or_default(),
            ecn: self.ecn.unwrap_or_else(ecn_default),
        };
        let udp = |vni| -> Result<UdpSpec, Problem> {
            let local = self.end("local", self.local.as_deref(), remote)?;
            let remote = remote.ok_or_else(|| missing("remote"))?;
            Ok(UdpSpec { remote, local, vni, class })
        };
        let stream = || -> Result<StreamSpec, Problem> {
            let listen = self.listen.as_deref();
            let listen = listen.map(|text| self.end("listen", Some(text), remote)).transpose()?;
            Ok(StreamSpec { remote: remote.ok_or_else(|| missing("remote"))?, listen })
        };
        let kind = match self.kind {
            LinkKindName::Causeway => LinkKind::Causeway(TunnelSpec {
                remote,
                local: self.end("local", self.local.as_deref(), remote)?,
                key: self.key.clone().ok_or_else(|| missing("key"))?,
                private_key: self.private_key.clone().unwrap_or_else(|| key_file.to_owned()),
                vni,
                idle: self.idle,
                has_directory: false,
                class,
            }),
            LinkKindName::CausewayPlain => LinkKind::CausewayPlain(udp(vni)?),
            LinkKindName::Vnet => LinkKind::Vnet(udp(0)?),
            LinkKindName::Vxlan => LinkKind::Vxlan(udp(self.vni.ok_or_else(|| missing("vni"))?)?),
            LinkKindName::Tcp => LinkKind::Tcp(stream()?),
            LinkKindName::Tls => LinkKind::Tls(self.tls(stream()?)?),
            LinkKindName::Raw => {
                let interface = self.interface.clone().ok_or_else(|| missing("interface"))?;
                if interface.len() > INTERFACE_BYTES_MAX {
                    let text = format!("{interface:?}: expected 1 to {INTERFACE_BYTES_MAX} bytes");
                    return Err(Problem::wrong("interface", text));
                }
                LinkKind::Raw(RawSpec { interface })
            }
        };
        Ok(LinkSpec {
            name: self.name.clone(),
            group: self.group.clone(),
            peer: self.peer.clone(),
            metric: self.metric.unwrap_or_else(metric_default),
            transit: self.transit.unwrap_or(false),
            remote_host: self.remote_host(),
            kind,
        })
    }

    /// Returns the TLS ends; a key of a file that is not given is a problem.
    fn tls(&self, stream: StreamSpec) -> Result<TlsSpec, Problem> {
        let file = |key: &'static str, path: &Option<PathBuf>| {
            path.clone().ok_or_else(|| missing(key, LinkKindName::Tls))
        };
        let remote: Option<HostPort> = self.remote.as_ref().and_then(|remote| remote.parse().ok());
        let host = remote.map(|host_port| host_port.host).unwrap_or_default();
        Ok(TlsSpec {
            stream,
            certificate: file("certificate", &self.certificate)?,
            private_key: file("private_key", &self.private_key)?,
            authorities: file("authorities", &self.authorities)?,
            peer_name: self.peer_name.clone().unwrap_or(host),
        })
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
