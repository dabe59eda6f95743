//! Objects that are added while the daemon runs come back after a restart: the state file.
//!
//! [`Kept`] wraps the fabric outermost, and follows each command that adds or deletes an object
//! ([`objects`]). After a change it writes the objects that the configuration file does not list to
//! the state file ([`writer`], [`store`], [`crate::config::state`]); the next start adds them to
//! those of the configuration ([`restore`]).
//!
//! | at the next start | |
//! |---|---|
//! | object of the configuration file | added; a start at which it is refused fails |
//! | object of the state file | added after those of its type; a refused object is logged |
//! | object in both, with other values | as in the configuration file |
//! | deleted or replaced at run time, and in the configuration file | as in the configuration file |
//!
//! A command that adds or deletes a group, rule, port or an object of a section that follows requests
//! ([`causeway_model::SectionRequests::follow`]) is executed under a lock, so that the order of changes here is that of the fabric. A refused command changes nothing here,
//! with one exception: the deletion of an object with a name that only the state file has removes
//! it there, and succeeds. Disk writes happen in the thread `state`; a reply of the control API
//! ([`ChangeScope::finish`]) and [`Kept::close`] wait for them, at most 4 s. Without a usable state
//! file, commands are executed, and the reply of the control API says that the change is lost when
//! causewayd ends. Services are known by their sections only: objects of other sections are listed
//! anew at the end of a request of the control API that sent a command to a service, except the
//! commands that a section follows.
//!
//! The policies of the site about groups have a file of their own (`site`).
//!
//! [`crate::lifecycle`] opens, fills and closes it: changes after [`Kept::close`] are not followed.
//! [`crate::api`] and [`crate::vnet`] send commands in the threads of their connections.

pub mod objects;
pub mod restore;
mod site;
pub mod store;
pub mod table;
pub mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use causeway_model::{
    Answer, Command, CommandError, Name, PortState, PortView, RequestEffect, SectionDefinition,
    ServiceRequest, ServiceResponse, SitePolicy,
};

use self::objects::{Change, Origin, RunningObjects, Standing};
use self::restore::Restored;
use self::store::StateLock;
use self::table::{ObjectKey, ObjectTable, ObjectTables};
use self::writer::StateWriter;
use crate::config::{Config, ConfigObject, state};
use crate::fabric::FabricControl;
use crate::limits::STATE_RETRY;
use crate::plan::{list, read_running};

/// A fabric whose changes are kept.
pub struct Kept {
    inner: Arc<dyn FabricControl>,
    config: Config,
    /// The configuration file.
    config_file: PathBuf,
    sections: &'static [SectionDefinition],
    objects: Mutex<RunningObjects>,
    /// The objects of the state file, until they are added.
    restored: Mutex<Restored>,
    /// Text of the state file at the start.
    loaded: Mutex<Option<String>>,
    /// Started when the objects of both files are there.
    writer: OnceLock<StateWriter>,
    /// Set at the stop: the closing of ports is no change.
    is_closed: Mutex<bool>,
    /// Reason why nothing is kept.
    off: OnceLock<String>,
    /// Ports whose guests a stop has cut off: by the last daemon, or at the end by this one.
    cut_off: Mutex<BTreeSet<Name>>,
    lock: Mutex<Option<StateLock>>,
    /// The policies of the site that their file has; `None` if that is not known.
    site: Mutex<Option<Vec<SitePolicy>>>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("config_file", &self.config_file).finish_non_exhaustive()
    }
}

/// Changes that a scope has made.
#[derive(Debug, Default)]
struct Touched {
    keys: BTreeSet<ObjectKey>,
    /// A rule of the configuration file was deleted.
    listed_rule: bool,
    /// A request went to a service that may have objects of its own.
    service: bool,
    changed: bool,
}

/// Locks a mutex; after a panic its value is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Kept {
    /// Executes a command and follows its change.
    fn execute(
        &self,
        command: Command,
        origin: Origin,
        touched: &Mutex<Touched>,
    ) -> Result<Answer, CommandError> {
        let change = match &command {
            Command::GroupAdd(spec) => Change::Add(ObjectTable::group(spec)),
            Command::PortAdd(spec) => Change::Add(ObjectTable::port(spec)),
            Command::GroupDel(name) => delete("group", name),
            Command::PortDel(name) => delete("port", name),
            Command::RuleAdd { index, rule } => Change::AddRule(*index, rule.clone()),
            Command::RuleDel { index } => Change::DeleteRule(*index),
            Command::Service(_) => return self.execute_service(command, origin, touched),
            _ => return self.inner.call(command),
        };
        self.change(command, origin, touched, |answer| (answer, Some(change)))
    }

    /// Executes a command of a service, and follows its effect on the objects of a section.
    fn execute_service(
        &self,
        command: Command,
        origin: Origin,
        touched: &Mutex<Touched>,
    ) -> Result<Answer, CommandError> {
        let Command::Service(request) = command else { return self.inner.call(command) };
        match self.effect(&request) {
            Some((section, RequestEffect::Add(values))) => {
                let change = Change::Add(ObjectTable::section(section, values));
                let follow = |answer| (answer, Some(change));
                return self.change(Command::Service(request), origin, touched, follow);
            }
            Some((section, RequestEffect::AddNumbered(values, number))) => {
                let table = ObjectTable::section(section, values);
                let follow = |answer: Answer| {
                    let number = match &answer {
                        Answer::Service(response) => number(response),
                        // The caller gets an answer of another type, and reports it.
                        _ => None,
                    };
                    let change = number.map(|number| Change::AddNumbered(number, table));
                    (answer, change)
                };
                return self.change(Command::Service(request), origin, touched, follow);
            }
            Some((section, RequestEffect::Delete(id))) => {
                let change = Change::Delete(ObjectKey { section: section.name, id });
                let follow = |answer| (answer, Some(change));
                return self.change(Command::Service(request), origin, touched, follow);
            }
            Some((section, RequestEffect::DeleteNumber(number))) => {
                let change = Change::DeleteNumber(section.name, number);
                let follow = |answer| (answer, Some(change));
                return self.change(Command::Service(request), origin, touched, follow);
            }
            Some((_, RequestEffect::Nothing)) => {}
            Some((_, RequestEffect::Unknown)) | None => lock(touched).service = true,
        }
        let (waiting, is_report) = (self.retained_of(&request), site::is_report(&request));
        let answer = self.inner.call(Command::Service(request));
        if is_report && answer.is_ok() {
            self.save_site();
        }
        match answer {
            Err(error @ CommandError::NotFound { .. }) => {
                let gone = waiting.filter(|key| self.drop_waiting(key, touched));
                gone.map(|_| Answer::Service(ServiceResponse::done())).ok_or(error)
            }
            answer => answer,
        }
    }

    /// Returns the effect of a request, and the section with the objects that it changes.
    fn effect(
        &self,
        request: &ServiceRequest,
    ) -> Option<(&'static SectionDefinition, RequestEffect)> {
        let effect = |section: &'static SectionDefinition| {
            let effect = section.requests.follow?(request);
            (!matches!(effect, RequestEffect::Unknown)).then_some((section, effect))
        };
        self.sections.iter().find_map(effect)
    }

    /// Returns the object of a registered section that only the state file has and that a request
    /// deletes.
    fn retained_of(&self, request: &ServiceRequest) -> Option<ObjectKey> {
        let deletes = |table: &&ObjectTable| {
            let is_of = |section: &&SectionDefinition| {
                section.name == table.key.section && section.requests.follow.is_none()
            };
            let delete = self.sections.iter().find(is_of).and_then(|section| section.delete);
            let own = delete.and_then(|delete| delete(&table.values).ok());
            // Requests of one type that print alike delete the same object.
            own.is_some_and(|own| {
                own.name() == request.name() && format!("{own:?}") == format!("{request:?}")
            })
        };
        let objects = lock(&self.objects);
        objects.retained().iter().find(deletes).map(|table| table.key.clone())
    }

    /// Drops an object that only the state file has. Returns whether there was one.
    fn drop_waiting(&self, key: &ObjectKey, touched: &Mutex<Touched>) -> bool {
        let is_dropped = lock(&self.objects).drop_retained(key);
        lock(touched).changed |= is_dropped;
        is_dropped
    }

    /// Executes a command that changes an object; `follow` returns the change of an answer.
    fn change(
        &self,
        command: Command,
        origin: Origin,
        touched: &Mutex<Touched>,
        follow: impl FnOnce(Answer) -> (Answer, Option<Change>),
    ) -> Result<Answer, CommandError> {
        let mut objects = lock(&self.objects);
        let is_service = matches!(command, Command::Service(_));
        let answer = self.inner.call(command);
        let is_missing = matches!(answer, Err(CommandError::NotFound { .. }));
        let (answer, change) = match answer {
            Ok(answer) => follow(answer),
            Err(error) => {
                let (_, change) = follow(Answer::Done);
                let Some(Change::Delete(gone)) = change else { return Err(error) };
                // Only the state file has the object: the host refused it at the start.
                if !is_missing || !objects.drop_retained(&gone) {
                    return Err(error);
                }
                lock(touched).changed = true;
                let done = Answer::Service(ServiceResponse::done());
                return Ok(if is_service { done } else { Answer::Done });
            }
        };
        if let Some(change) = change
            && !*lock(&self.is_closed)
        {
            let mut touched = lock(touched);
            touched.changed = true;
            if let Change::Add(ObjectTable { key, .. })
            | Change::AddNumbered(_, ObjectTable { key, .. })
            | Change::Delete(key) = &change
            {
                touched.keys.insert(key.clone());
            }
            if let Change::DeleteNumber(section, number) = &change {
                touched.keys.extend(objects.numbered(section, *number));
            }
            let deleted = objects.deleted_rules();
            objects.apply(change, origin);
            touched.listed_rule |= objects.deleted_rules() > deleted;
        }
        Ok(answer)
    }

    /// Returns the fabric for the commands of the configuration file.
    pub fn of_file(&self) -> ChangeScope<'_> {
        self.scope_of(Origin::File)
    }

    /// Returns the fabric for the commands of one request. `is_ephemeral`: the changes last until
    /// the next start.
    pub fn scope(&self, is_ephemeral: bool) -> ChangeScope<'_> {
        self.scope_of(if is_ephemeral { Origin::Ephemeral } else { Origin::Operator })
    }

    fn scope_of(&self, origin: Origin) -> ChangeScope<'_> {
        ChangeScope { kept: self, origin, touched: Mutex::default() }
    }

    /// Returns the configuration file.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// Returns the state file, unless the daemon keeps no state.
    pub fn state_file(&self) -> Option<&Path> {
        self.off.get().is_none().then_some(&*self.config.daemon.state_file)
    }

    /// Returns the reason why changes are not kept, if they are not.
    pub fn error(&self) -> Option<String> {
        let failed = || self.writer.get().and_then(StateWriter::error);
        self.off.get().cloned().or_else(failed)
    }

    /// Returns the text of the state file for the present objects.
    fn state_text(&self) -> String {
        let objects = lock(&self.objects).kept();
        let tables = objects.iter().map(|object| (object.section, object.values()));
        let cut_off: Vec<Name> = lock(&self.cut_off).iter().cloned().collect();
        state::print(tables, &cut_off, self.sections)
    }

    /// Returns the text to write; `None` without the lock, because the file may be that of the next
    /// daemon.
    fn text_to_write(&self) -> Option<String> {
        lock(&self.lock).is_some().then(|| self.state_text())
    }

    /// Writes the state file and waits for the result.
    ///
    /// # Errors
    /// The reason why the changes are not kept.
    fn save(&self) -> Result<(), String> {
        if let Some(reason) = self.off.get() {
            return Err(reason.clone());
        }
        let Some(writer) = self.writer.get() else { return Ok(()) };
        writer.wait(writer.request()).map_err(|error| {
            let seconds = STATE_RETRY.as_secs();
            format!("{error}; correct the cause, and causewayd writes it within {seconds} s")
        })
    }

    /// Ends the following of changes, before the ports of a stopped daemon are closed. `is_held`
    /// returns whether a port's guest stays connected.
    pub fn close(&self, is_held: &dyn Fn(&Name) -> bool) {
        *lock(&self.is_closed) = true;
        if self.off.get().is_none() && self.writer.get().is_some() {
            self.note_cut_off(is_held);
            // Also waits for the last change of a session of the VNET language.
            if let Err(error) = self.save() {
                log::warn!(error = error.as_str(); "the state file has not the last changes");
            }
        }
        lock(&self.lock).take();
    }

    /// Notes the ports whose guests the stop disconnects for good, for the next daemon.
    fn note_cut_off(&self, is_held: &dyn Fn(&Name) -> bool) {
        let Ok(Answer::Ports(ports)) = self.inner.call(Command::PortList) else { return };
        let mut cut_off = lock(&self.cut_off);
        let is_cut_off = |port: &&PortView| {
            let name = &port.spec.name;
            let is_attached = matches!(port.state, PortState::Connected | PortState::Running);
            let was_cut_off = port.connects_total == 0 && cut_off.contains(name);
            port.spec.kind.kind().loses_frontend && (was_cut_off || is_attached && !is_held(name))
        };
        let all = ports.iter().filter(is_cut_off).map(|port| port.spec.name.clone()).collect();
        *cut_off = all;
    }

    /// Returns the reason why the guest of a port is cut off, with the remedy.
    pub fn cut_off(&self, port: &PortView) -> Option<String> {
        let kind = port.spec.kind.kind();
        let name = &port.spec.name;
        if !kind.loses_frontend {
            return None;
        }
        let remedy = format!(
            "reboot the guest by stopping and starting its VM: its VMM does not reconnect {}",
            kind.name
        );
        match port.state {
            PortState::Listening if port.connects_total == 0 => lock(&self.cut_off)
                .contains(name)
                .then(|| format!("the last causewayd disconnected the guest; {remedy}")),
            PortState::Faulted => {
                Some(format!("causewayd closed the connection for a fault; {remedy}"))
            }
            _ => None,
        }
    }

    /// Returns the running objects as a configuration, with the settings of the configuration that
    /// was read at the start, and its objects of sections that cannot be listed.
    ///
    /// # Errors
    /// The fabric or a service does not answer.
    pub fn export(&self) -> Result<String, CommandError> {
        let running = read_running(&*self.inner, self.sections)?;
        let mut config = self.config.clone();
        let objects = lock(&self.objects);
        config.derived_mtus.retain(|name| objects.standing(&key("port", name)) == Standing::Same);
        drop(objects);
        config.groups = running.groups;
        config.rules = running.rules;
        config.ports = running.ports;
        config.objects.retain(|object| object.section.list.is_none());
        let listed = running.objects.iter();
        config
            .objects
            .extend(listed.map(|object| ConfigObject::new(object.section, &object.table)));
        let place = |object: &ConfigObject| {
            self.sections.iter().position(|section| section == object.section)
        };
        config.objects.sort_by_key(place);
        // Its objects are listed below.
        let vnet_file = config.control.vnet_file.take();
        let note = vnet_file
            .map(|file| format!("# The links and routes of {} are listed here.\n", file.display()));
        Ok(note.unwrap_or_default() + &config.to_toml())
    }

    /// Takes a configuration to which the running state was changed for the configuration file, if
    /// the file, which is read here, has this text and names no file of VNET commands.
    pub fn adopt(&self, config: &Config, text: &str) {
        let is_file = std::fs::read_to_string(&self.config_file).is_ok_and(|file| file == text);
        // The objects of a file of VNET commands are not in the configuration.
        if !is_file || self.config.control.vnet_file.is_some() {
            return;
        }
        let tables = ObjectTables::of_config(config, &self.config.daemon.key_file);
        let changed = self.sections.iter().filter(|section| section.delete.is_some());
        let sections: Vec<_> =
            ["group", "port"].into_iter().chain(changed.map(|section| section.name)).collect();
        lock(&self.objects).adopt(tables, &sections);
    }

    /// Compares the objects of registered sections with those before a request.
    fn follow_sections(&self, origin: Origin, touched: &mut Touched) {
        let Ok(tables) = self.list_others() else { return };
        let mut objects = lock(&self.objects);
        for section in self.sections.iter().filter(|section| is_listed_anew(section)) {
            let before = objects.running_of(section.name);
            let is_there = |list: &[ObjectTable], table: &ObjectTable| list.contains(table);
            let after: Vec<_> =
                tables.iter().filter(|table| table.key.section == section.name).cloned().collect();
            let gone = before.iter().filter(|table| !is_there(&after, table));
            let changes = gone.map(|table| Change::Delete(table.key.clone()));
            let new = after.iter().filter(|table| !is_there(&before, table));
            let changes: Vec<_> =
                changes.chain(new.map(|table| Change::Add(table.clone()))).collect();
            for change in changes {
                if let Change::Add(ObjectTable { key, .. }) | Change::Delete(key) = &change {
                    touched.keys.insert(key.clone());
                }
                touched.changed = true;
                objects.apply(change, origin);
            }
        }
    }

    /// Returns the objects of sections that follow no requests.
    fn list_others(&self) -> Result<Vec<ObjectTable>, CommandError> {
        let sections = self.sections.iter().filter(|section| is_listed_anew(section));
        let objects = list(&*self.inner, sections)?;
        Ok(objects.iter().map(ObjectTable::of_object).collect())
    }

    /// Returns notes about touched objects of the configuration file.
    fn notes(&self, touched: &Touched) -> Vec<String> {
        let objects = lock(&self.objects);
        let file = self.config_file.display();
        let mut notes = Vec::new();
        for key in &touched.keys {
            match objects.standing(key) {
                Standing::Deleted => notes.push(format!(
                    "{key} returns at the next start of causewayd, because {file} has it: delete it \
                     there too"
                )),
                Standing::Differs => notes.push(format!(
                    "{key} gets other values at the next start of causewayd, because {file} has it \
                     with others: change it there too"
                )),
                _ => {}
            }
        }
        if touched.listed_rule && objects.deleted_rules() > 0 {
            notes.push(format!(
                "the rule returns at the next start of causewayd, because {file} has it: delete it \
                 there too"
            ));
        }
        notes
    }

    /// Returns the relation of an object to the configuration file and the next start.
    pub fn standing(&self, key: &ObjectKey) -> Standing {
        lock(&self.objects).standing(key)
    }

    /// Returns the objects that only the state file has.
    pub fn retained(&self) -> Vec<ObjectTable> {
        lock(&self.objects).retained().to_vec()
    }

    /// Returns whether the rule at this position is kept.
    pub fn keeps_rule(&self, at: usize) -> bool {
        lock(&self.objects).keeps_rule(at)
    }
}

/// Returns the key of an object with a name.
fn key(section: &'static str, name: &Name) -> ObjectKey {
    ObjectKey { section, id: name.to_string() }
}

fn delete(section: &'static str, name: &Name) -> Change {
    Change::Delete(key(section, name))
}

/// Returns whether the objects of a section are listed after a request, instead of followed.
fn is_listed_anew(section: &SectionDefinition) -> bool {
    section.list.is_some() && section.requests.follow.is_none()
}

impl FabricControl for Kept {
    /// Executes a command whose change is kept, without a wait for the state file.
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        let touched = Mutex::default();
        let answer = self.execute(command, Origin::Operator, &touched)?;
        if lock(&touched).changed
            && let (Some(writer), None) = (self.writer.get(), self.off.get())
        {
            writer.request();
        }
        Ok(answer)
    }

    fn is_held(&self, port: &Name) -> bool {
        self.inner.is_held(port)
    }

    fn holder(&self) -> Option<u32> {
        self.inner.holder()
    }
}

/// The fabric for the commands of one origin.
#[derive(Debug)]
pub struct ChangeScope<'a> {
    kept: &'a Kept,
    origin: Origin,
    touched: Mutex<Touched>,
}

impl ChangeScope<'_> {
    /// Waits until the changes are in the state file, at most 4 s; ephemeral changes are not waited
    /// for. Returns notes for the operator: changes that do not outlast the next start, except
    /// those that were requested so.
    pub fn finish(self) -> Vec<String> {
        let mut touched = self.touched.into_inner().unwrap_or_else(PoisonError::into_inner);
        if touched.service {
            self.kept.follow_sections(self.origin, &mut touched);
        }
        if !touched.changed {
            return Vec::new();
        }
        if self.origin == Origin::Ephemeral {
            return Vec::new();
        }
        let mut notes = self.kept.notes(&touched);
        if let Err(reason) = self.kept.save() {
            notes.push(format!("the change is lost when causewayd ends: {reason}"));
        }
        notes
    }
}

impl FabricControl for ChangeScope<'_> {
    fn call(&self, command: Command) -> Result<Answer, CommandError> {
        self.kept.execute(command, self.origin, &self.touched)
    }

    fn is_held(&self, port: &Name) -> bool {
        self.kept.inner.is_held(port)
    }

    fn holder(&self) -> Option<u32> {
        self.kept.inner.holder()
    }
}
