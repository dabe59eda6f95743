//! A session of the VNET language: lines in, text out. No socket and no clock of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_model::LinkKind;
use causeway_model::Name;
use causeway_model::commands::{links, routes};
use causeway_model::{CommandError, LinkView};

use super::parse::parse;
use super::password::{Attempts, Password, Verdict};
use super::plan::{Doer, Numbers, Step, World};
use super::print;
use super::source::Source;
use super::speech::{Command, List, Secret, Transport, VERSION};
use super::tell::Teller;
use crate::api::kind_of;
use crate::fabric::{Fabric, ask};
use crate::refusals::{Doors, Refusal};
use causeway_model::draft::Resolver;

/// The state that all sessions share.
pub struct House {
    /// Executes commands.
    pub fabric: Arc<dyn Fabric>,
    /// Group of the links and routes.
    pub group: Name,
    /// Password of clients.
    pub password: Password,
    /// Resolves names of hosts.
    pub resolve: Resolver,
    /// Counters of refused clients.
    pub doors: Arc<Doors>,
    /// Registers links with peers' servers; `None` leaves peers unnotified.
    pub tell: Option<Teller>,
    attempts: Mutex<Attempts>,
    numbers: Mutex<Numbers>,
}

impl std::fmt::Debug for House {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("House").field("group", &self.group).finish_non_exhaustive()
    }
}

impl House {
    /// Returns the shared state without sessions and without a registration function.
    pub fn new(
        fabric: Arc<dyn Fabric>,
        group: Name,
        password: Password,
        resolve: Resolver,
        doors: Arc<Doors>,
    ) -> Self {
        let (attempts, numbers) = (Mutex::default(), Mutex::default());
        Self { fabric, group, password, resolve, doors, tell: None, attempts, numbers }
    }
}

/// The answer to a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Whole lines; empty for an empty line or a comment.
    pub text: String,
    /// Whether the session ends after the answer.
    pub end: bool,
}

impl Said {
    fn ok(text: &str) -> Self {
        Self { text: format!("OK {text}\n"), end: false }
    }

    fn error(text: impl std::fmt::Display) -> Self {
        // The answer must be one line, independent of the error's text.
        let text = text.to_string().replace(['\n', '\r'], " ");
        Self { text: format!("ERROR {text}\n"), end: false }
    }

    fn last(self) -> Self {
        Self { end: true, ..self }
    }
}

/// A session with one client.
#[derive(Debug)]
pub struct Session {
    house: Arc<House>,
    from: IpAddr,
    source: Source,
    greeted: bool,
}

impl Session {
    /// Starts a session.
    pub fn new(house: Arc<House>, from: IpAddr) -> Self {
        Self { house, from, source: from.into(), greeted: false }
    }

    /// Counts failed passwords for `source` instead of the client's address.
    pub fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    /// Returns whether the client has given the password.
    pub fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Answers a line. Before a valid HELLO, the first mistake ends the session.
    pub fn line(&mut self, now: Instant, line: &[u8]) -> Said {
        let command = match parse(line) {
            Ok(None) => return Said { text: String::new(), end: false },
            Ok(Some(command)) => command,
            Err(error) if self.greeted => return self.refuse(Refusal::Garbage, error),
            // A client without the password gets no information about the language.
            Err(_) => return self.refuse(Refusal::Garbage, GREET).last(),
        };
        match command {
            Command::Hello { password, version, then } => {
                match self.hello(now, &password, &version) {
                    Err(refused) => refused,
                    Ok(()) => match then {
                        Some(then) => self.command(&then),
                        None => {
                            let group = &self.house.group;
                            Said::ok(&format!("causeway {VERSION}, group {group}"))
                        }
                    },
                }
            }
            _ if !self.greeted => self.refuse(Refusal::Garbage, GREET).last(),
            other => self.command(&other),
        }
    }

    fn hello(&mut self, now: Instant, said: &Secret, version: &str) -> Result<(), Said> {
        let House { attempts, password, .. } = &*self.house;
        let mut attempts = attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let verdict = attempts.attempt(now, self.source, password, said.expose());
        drop(attempts);
        let from = self.source;
        let seconds = |wait: Duration| wait.as_secs().saturating_add(1);
        match verdict {
            Verdict::Right => {}
            Verdict::Wrong(wait) => {
                let wait_s = seconds(wait);
                if let Some(suppressed) = self.house.doors.log.admit() {
                    log::warn!(from:% = from, wait_s, suppressed; "VNET control: wrong password");
                }
                return Err(self.refuse(Refusal::Password, "wrong password").last());
            }
            Verdict::Wait(wait) => {
                let text = format!("too many wrong passwords: try again in {} s", seconds(wait));
                return Err(self.refuse(Refusal::Waiting, text).last());
            }
        }
        if version != VERSION {
            let text = format!("version {version:?}: expected {VERSION}");
            return Err(self.refuse(Refusal::Version, text).last());
        }
        self.greeted = true;
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Said {
        match command {
            Command::Done => Ok(Said::ok("goodbye").last()),
            Command::List(list) => self.list(*list),
            change => self.change(change),
        }
        .unwrap_or_else(|error| {
            let (_, kind) = kind_of(&error);
            self.refuse(Refusal::of_kind(kind), error)
        })
    }

    /// Counts a refusal and returns its answer.
    fn refuse(&self, why: Refusal, text: impl std::fmt::Display) -> Said {
        self.house.doors.vnet.count(why);
        Said::error(text)
    }

    fn look(&self, with_routes: bool) -> Result<World, CommandError> {
        let House { fabric, group, resolve, numbers, .. } = &*self.house;
        let mut numbers = numbers.lock().unwrap_or_else(PoisonError::into_inner);
        World::look(&**fabric, group, *resolve, &mut numbers, with_routes)
    }

    fn change(&self, command: &Command) -> Result<Said, CommandError> {
        let with_routes = matches!(command, Command::DeleteRoute(_) | Command::RouteDel(_));
        let mut world = self.look(with_routes)?;
        let mut doer = Doer::of(&world);
        let step = world.plan(command, Some(self.from)).map_err(CommandError::Invalid)?;
        let Some(step) = step else {
            return Err(CommandError::Invalid("nothing to do".into()));
        };
        let call = self.telling(command, &step);
        let adds = matches!(step, Step::LinkAdd(_));
        // Before the change, so that a peer's refusal leaves nothing behind.
        if let Some(call) = call.as_ref().filter(|_| adds) {
            call.say(true).map_err(|error| {
                let hint = "with control port 0 only this end is created";
                CommandError::Host(format!("the peer does not create its end: {error}; {hint}"))
            })?;
        }
        if let Err(error) = doer.take(&*self.house.fabric, &step) {
            call.filter(|_| adds).map(|call| call.say(false));
            return Err(error);
        }
        let (from, what) = (self.from, step.shown());
        log::info!(from:% = from, what = what.as_str(); "VNET control");
        let told = call.filter(|_| !adds).map(|call| call.say(false));
        Ok(match told {
            Some(Err(error)) => Said::ok(&format!("{what}; the peer keeps its end: {error}")),
            _ => Said::ok(&what),
        })
    }

    /// Returns the registration that a change of a link requires at its peer.
    fn telling<'a>(&self, command: &'a Command, step: &Step) -> Option<Call<'a>> {
        let (Command::AddLink { control_port, password, transport: Transport::Udp, .. }
        | Command::DeleteLink { control_port, password, transport: Transport::Udp, .. }) = command
        else {
            return None;
        };
        let teller = self.house.tell.filter(|_| *control_port > 0)?;
        let spec = match step {
            Step::LinkAdd(spec) => spec.as_ref().clone(),
            Step::LinkDel(name) => ask(&*self.house.fabric, links::Show(name.clone())).ok()?.spec,
            _ => return None,
        };
        let LinkKind::Vnet(udp) = spec.kind else { return None };
        let at = SocketAddr::new(udp.remote.ip(), *control_port);
        Some(Call { teller, at, password, data_port: udp.local.port() })
    }

    fn list(&self, list: List) -> Result<Said, CommandError> {
        let House { fabric, group, .. } = &*self.house;
        let world = self.look(false)?;
        let links = ask(&**fabric, links::List)?;
        let find = |name: &str| links.iter().find(|view| view.spec.name.as_str() == name);
        let mut out = match list {
            List::Devices => print::devices(&world.ports().collect::<Vec<_>>()),
            List::Links => {
                let view = |(n, name): &(u64, Name)| Some((*n, find(name.as_str())?));
                let numbered: Vec<(u64, &LinkView)> =
                    world.numbers().iter().filter_map(view).collect();
                print::links(&numbered)
            }
            List::Routes => {
                let routes = ask(&**fabric, routes::List)?;
                let own: Vec<_> = routes.iter().filter(|v| v.spec.group == *group).collect();
                let edge = |name: &str| {
                    find(name).map_or_else(|| format!("EDGE {name}"), |v| print::edge(&v.spec))
                };
                print::routes(&own, &edge)
            }
        };
        out.push_str("OK\n");
        Ok(Said { text: out, end: false })
    }
}

/// A registration of a link with its peer.
struct Call<'a> {
    teller: Teller,
    at: SocketAddr,
    password: &'a Secret,
    data_port: u16,
}

impl Call<'_> {
    /// Sends the registration or, if the link is deleted, the deregistration.
    fn say(&self, there: bool) -> Result<(), String> {
        let Self { teller, at, password, data_port } = *self;
        let register = Command::RegisterLink { data_port };
        teller(at, password, if there { register } else { Command::DeregisterLink })
    }
}

const GREET: &str = "expected HELLO <password> 0.9";
