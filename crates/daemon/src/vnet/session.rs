//! A session of the VNET language: lines in, text out. No socket and no clock of its own.
//!
//! [`Session::line`] parses a line, checks the password of HELLO, plans the change, registers a new
//! link with the peer's server, executes the change, notifies that server of a deleted link, and
//! returns the answer. Before a valid HELLO, the first mistake ends the session, and its answer
//! shows no command but HELLO. After it, an error is answered and the session goes on; only DONE,
//! and a further HELLO that is refused (password, delay or version), end it. Empty lines and
//! comments are no mistakes.
//!
//! A call blocks its thread for the time of the fabric, of a resolver, and of the peer's server. A
//! command is not atomic: a peer that was registered keeps its end if the undo of a failed addition
//! does not reach it, and a peer that cannot be notified of a deletion keeps its end, which the
//! answer reports. Sessions run concurrently and share the [`SessionContext`]: the group, the
//! password, the failed attempts and the numbers of links.
//!
//! [`super::server`] creates a session per connection and limits time and length of lines;
//! [`super::plan`] and [`crate::fabric`] come after.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_model::LinkKind;
use causeway_model::Name;
use causeway_model::commands::{links, routes};
use causeway_model::{CommandError, LinkView};

use super::command::{ListKind, Secret, VERSION, VnetCommand, VnetTransport};
use super::parse::parse;
use super::password::{Attempts, Password, PasswordResult};
use super::plan::{GroupState, LinkNumbers, StepExecutor, VnetStep};
use super::print;
use super::registration::RegisterFn;
use super::source::ClientSource;
use crate::api::replies::kind_of;
use crate::fabric::{FabricControl, ask};
use crate::refusals::{ControlRefusals, RefusalReason};
use causeway_model::draft::Resolver;

/// The state that all sessions share.
pub struct SessionContext {
    /// Executes commands.
    pub fabric: Arc<dyn FabricControl>,
    /// Group of the links and routes.
    pub group: Name,
    /// Password of clients.
    pub password: Password,
    /// Resolves names of hosts.
    pub resolve: Resolver,
    /// Counters of refused clients.
    pub refusals: Arc<ControlRefusals>,
    /// Registers links with peers' servers; `None` leaves peers unnotified.
    pub register: Option<RegisterFn>,
    /// Failed passwords of all sources.
    attempts: Mutex<Attempts>,
    /// Numbers of links, which all sessions see alike.
    numbers: Mutex<LinkNumbers>,
}

impl std::fmt::Debug for SessionContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionContext").field("group", &self.group).finish_non_exhaustive()
    }
}

impl SessionContext {
    /// Returns the shared state without sessions and without a registration function.
    pub fn new(
        fabric: Arc<dyn FabricControl>,
        group: Name,
        password: Password,
        resolve: Resolver,
        refusals: Arc<ControlRefusals>,
    ) -> Self {
        let (attempts, numbers) = (Mutex::default(), Mutex::default());
        Self { fabric, group, password, resolve, refusals, register: None, attempts, numbers }
    }
}

/// The answer to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionReply {
    /// Whole lines; empty for an empty line or a comment.
    pub text: String,
    /// Whether the session ends after the answer.
    pub end: bool,
}

impl SessionReply {
    /// Returns the answer `OK text`.
    fn ok(text: &str) -> Self {
        Self { text: format!("OK {text}\n"), end: false }
    }

    /// Returns the answer `ERROR text`; the session goes on.
    fn error(text: impl std::fmt::Display) -> Self {
        // The answer must be one line, independent of the error's text.
        let text = text.to_string().replace(['\n', '\r'], " ");
        Self { text: format!("ERROR {text}\n"), end: false }
    }

    /// Returns the answer, after which the session ends.
    fn last(self) -> Self {
        Self { end: true, ..self }
    }
}

/// A session with one client.
#[derive(Debug)]
pub struct Session {
    context: Arc<SessionContext>,
    /// Address of the client: the peer of `REGISTERLINK MYSELF`.
    from: IpAddr,
    /// The unit by which failed passwords are counted.
    source: ClientSource,
    /// Whether a valid HELLO was received.
    is_authenticated: bool,
}

impl Session {
    /// Starts a session.
    pub fn new(context: Arc<SessionContext>, from: IpAddr) -> Self {
        Self { context, from, source: from.into(), is_authenticated: false }
    }

    /// Counts failed passwords for `source` instead of the client's address.
    pub fn with_source(self, source: ClientSource) -> Self {
        Self { source, ..self }
    }

    /// Returns whether the client has given the password.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Answers a line. Before a valid HELLO, the first mistake ends the session.
    pub fn line(&mut self, now: Instant, line: &[u8]) -> SessionReply {
        let command = match parse(line) {
            Ok(None) => return SessionReply { text: String::new(), end: false },
            Ok(Some(command)) => command,
            Err(error) if self.is_authenticated => {
                return self.refuse(RefusalReason::Garbage, error);
            }
            // A client without the password gets no information about the language.
            Err(_) => return self.refuse(RefusalReason::Garbage, HELLO_EXPECTED).last(),
        };
        match command {
            VnetCommand::Hello { password, version, then } => {
                match self.hello(now, &password, &version) {
                    Err(refused) => refused,
                    Ok(()) => match then {
                        Some(then) => self.command(&then),
                        None => {
                            let group = &self.context.group;
                            SessionReply::ok(&format!("causeway {VERSION}, group {group}"))
                        }
                    },
                }
            }
            _ if !self.is_authenticated => {
                self.refuse(RefusalReason::Garbage, HELLO_EXPECTED).last()
            }
            other => self.command(&other),
        }
    }

    /// Checks the password, then the version. The error is the answer.
    fn hello(&mut self, now: Instant, given: &Secret, version: &str) -> Result<(), SessionReply> {
        let SessionContext { attempts, password, .. } = &*self.context;
        let mut attempts = attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = attempts.attempt(now, self.source, password, given.expose());
        drop(attempts);
        let from = self.source;
        let seconds = |wait: Duration| wait.as_secs().saturating_add(1);
        match verdict {
            PasswordResult::Right => {}
            PasswordResult::Wrong(wait) => {
                let wait_s = seconds(wait);
                if let Some(suppressed) = self.context.refusals.log.admit() {
                    log::warn!(from:% = from, wait_s, suppressed; "VNET connection refused: wrong password");
                }
                return Err(self.refuse(RefusalReason::Password, "wrong password").last());
            }
            PasswordResult::Wait(wait) => {
                let text = format!("too many wrong passwords: try again in {} s", seconds(wait));
                return Err(self.refuse(RefusalReason::Waiting, text).last());
            }
        }
        if version != VERSION {
            let text = format!("version {version:?}: expected {VERSION}");
            return Err(self.refuse(RefusalReason::Version, text).last());
        }
        self.is_authenticated = true;
        Ok(())
    }

    /// Executes a command of an authenticated client.
    fn command(&mut self, command: &VnetCommand) -> SessionReply {
        match command {
            VnetCommand::Done => Ok(SessionReply::ok("goodbye").last()),
            VnetCommand::List(list) => self.list(*list),
            change => self.change(change),
        }
        .unwrap_or_else(|error| {
            let (_, kind) = kind_of(&error);
            self.refuse(RefusalReason::of_kind(kind), error)
        })
    }

    /// Counts a refusal and returns its answer.
    fn refuse(&self, why: RefusalReason, text: impl std::fmt::Display) -> SessionReply {
        self.context.refusals.vnet.count(why);
        SessionReply::error(text)
    }

    /// Returns the current state of the group.
    fn read_group(&self, with_routes: bool) -> Result<GroupState, CommandError> {
        let SessionContext { fabric, group, resolve, numbers, .. } = &*self.context;
        let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
        GroupState::read(&**fabric, group, *resolve, &mut numbers, with_routes)
    }

    /// Plans and executes a command that changes links or routes.
    fn change(&self, command: &VnetCommand) -> Result<SessionReply, CommandError> {
        let with_routes = matches!(command, VnetCommand::DeleteRoute(_) | VnetCommand::RouteDel(_));
        let mut world = self.read_group(with_routes)?;
        let mut executor = StepExecutor::of(&world);
        let step = world.plan(command, Some(self.from)).map_err(CommandError::Invalid)?;
        let Some(step) = step else {
            return Err(CommandError::Invalid("nothing to do".into()));
        };
        let call = self.registration(command, &step);
        let adds = matches!(step, VnetStep::LinkAdd(_));
        // Before the change, so that a peer's refusal leaves nothing behind.
        if let Some(call) = call.as_ref().filter(|_| adds) {
            call.send(true).map_err(|error| {
                let hint = "with control port 0 only this end is created";
                CommandError::Host(format!("the peer does not create its end: {error}; {hint}"))
            })?;
        }
        if let Err(error) = executor.execute(&*self.context.fabric, &step) {
            call.filter(|_| adds).map(|call| call.send(false));
            return Err(error);
        }
        let (from, what) = (self.from, step.shown());
        log::info!(from:% = from, what = what.as_str(); "VNET command executed");
        let sent = call.filter(|_| !adds).map(|call| call.send(false));
        Ok(match sent {
            Some(Err(error)) => {
                SessionReply::ok(&format!("{what}; the peer keeps its end: {error}"))
            }
            _ => SessionReply::ok(&what),
        })
    }

    /// Returns the registration that a change of a link requires at its peer.
    fn registration<'a>(
        &self,
        command: &'a VnetCommand,
        step: &VnetStep,
    ) -> Option<PeerRegistration<'a>> {
        let (VnetCommand::AddLink {
            control_port, password, transport: VnetTransport::Udp, ..
        }
        | VnetCommand::DeleteLink {
            control_port, password, transport: VnetTransport::Udp, ..
        }) = command
        else {
            return None;
        };
        let register_fn = self.context.register.filter(|_| *control_port > 0)?;
        let spec = match step {
            VnetStep::LinkAdd(spec) => spec.as_ref().clone(),
            VnetStep::LinkDel(name) => {
                ask(&*self.context.fabric, links::Show(name.clone())).ok()?.spec
            }
            _ => return None,
        };
        let LinkKind::Vnet(udp) = spec.kind else { return None };
        let at = SocketAddr::new(udp.remote.ip(), *control_port);
        Some(PeerRegistration { register_fn, at, password, data_port: udp.local.port() })
    }

    /// Returns a list of the group's objects.
    fn list(&self, list: ListKind) -> Result<SessionReply, CommandError> {
        let SessionContext { fabric, group, .. } = &*self.context;
        let world = self.read_group(false)?;
        let links = ask(&**fabric, links::List)?;
        let find = |name: &str| links.iter().find(|view| view.spec.name.as_str() == name);
        let mut out = match list {
            ListKind::Devices => print::devices(&world.ports().collect::<Vec<_>>()),
            ListKind::Links => {
                let view = |(n, name): &(u64, Name)| Some((*n, find(name.as_str())?));
                let numbered: Vec<(u64, &LinkView)> =
                    world.numbers().iter().filter_map(view).collect();
                print::links(&numbered)
            }
            ListKind::Routes => {
                let routes = ask(&**fabric, routes::List)?;
                let own: Vec<_> = routes.iter().filter(|v| v.spec.group == *group).collect();
                let edge = |name: &str| {
                    find(name).map_or_else(|| format!("EDGE {name}"), |v| print::edge(&v.spec))
                };
                print::routes(&own, &edge)
            }
        };
        out.push_str("OK\n");
        Ok(SessionReply { text: out, end: false })
    }
}

/// A registration of a link with its peer.
struct PeerRegistration<'a> {
    register_fn: RegisterFn,
    /// The VNET server of the peer.
    at: SocketAddr,
    /// Password of the peer's server.
    password: &'a Secret,
    /// UDP port of this end of the link.
    data_port: u16,
}

impl PeerRegistration<'_> {
    /// Sends the registration or, if the link is deleted, the deregistration.
    fn send(&self, there: bool) -> Result<(), String> {
        let Self { register_fn, at, password, data_port } = *self;
        let register = VnetCommand::RegisterLink { data_port };
        register_fn(at, password, if there { register } else { VnetCommand::DeregisterLink })
    }
}

/// The answer to a first line that is no HELLO.
const HELLO_EXPECTED: &str = "expected HELLO <password> 0.9";
