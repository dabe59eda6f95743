//! The start: reads the state file, and adds its objects to those of the configuration file.
//!
//! [`Kept::open`] locks and reads the file. A file that cannot be used is moved aside and named in
//! the log, and the daemon starts with the configuration file alone. If another causewayd has the
//! lock, the directory cannot be used, or the file cannot be moved, the file stays as it is, and
//! changes of this daemon are not kept; the log names the reason.
//!
//! [`Kept::restore_before_ports`] adds groups and rules once those of the configuration file are
//! there, each rule at its stored index, and puts the policies in force, before any port is opened: a
//! route drops the frames that it matches while its target is missing. It puts the policies of the
//! site in force too (`super::site`). [`Kept::restore_rest`] adds
//! ports and objects of services after all objects of the configuration file, and completes
//! the policies: from then on, the deletion of a target deletes its policy.
//!
//! An object that the configuration file has with the same values is that of the file. An object
//! that conflicts with the file or with another object, or is invalid, loses: it is named in the
//! log, and a copy of the state file is kept aside. An object that the host refuses (a missing
//! interface, a directory that is not there) stays in the state file and is tried again at the next
//! start; a refused rule loses in any case. No refusal ends the start.
//!
//! [`crate::lifecycle`] calls each function once, in this order, in the thread `lifecycle`, and
//! [`Kept::begin`] last: before it, no change is written. A start that a signal ends does not call
//! [`Kept::begin`], so that the state file stays as it is; an error of [`Kept::begin`] ends the
//! start. Later writes are those of the thread `state` ([`super::writer`]).

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

use causeway_model::draft::host::resolve_later;
use causeway_model::schema::joined;
use causeway_model::{
    Command, CommandError, KindDefinition, SectionDefinition, TableContext, TableReader,
    TableValues,
};

use super::objects::{Change, Origin, RunningObjects};
use super::store::{self, StateLock};
use super::table::ObjectTable;
use super::writer::StateWriter;
use super::{Kept, Touched, lock};
use crate::config::state::{self, StateContext, StateObject, StateText};
use crate::config::{Config, ConfigObject};
use crate::fabric::FabricControl;

/// The objects of the state file on their way to the fabric.
#[derive(Debug, Default)]
pub struct Restored {
    /// Objects that are not added yet.
    objects: Vec<StateObject>,
    /// Refused objects, each with the reason.
    lost: Vec<String>,
    /// Number of added objects.
    added: usize,
    /// Number of objects that the configuration file has too.
    merged: usize,
    /// Number of objects that the host refused.
    waiting: usize,
}

impl Kept {
    /// Wraps a fabric and reads the state file of `config`. With `is_ephemeral` the file is neither
    /// read nor written.
    pub fn open(
        inner: Arc<dyn FabricControl>,
        config: &Config,
        config_file: PathBuf,
        (kinds, sections): (&'static [&'static KindDefinition], &'static [SectionDefinition]),
        is_ephemeral: bool,
    ) -> Self {
        let kept = Self {
            inner,
            config: config.clone(),
            config_file,
            sections,
            objects: Mutex::new(RunningObjects::new(sections)),
            restored: Mutex::default(),
            loaded: Mutex::default(),
            writer: OnceLock::new(),
            is_closed: Mutex::default(),
            off: OnceLock::new(),
            cut_off: Mutex::default(),
            lock: Mutex::default(),
            site: Mutex::default(),
        };
        if is_ephemeral {
            kept.turn_off("causewayd runs with --ephemeral");
            return kept;
        }
        let file = &config.daemon.state_file;
        match store::make_dir(file).and_then(|()| StateLock::take(file)) {
            Ok(taken) => *lock(&kept.lock) = Some(taken),
            Err(error) => {
                let error = error.to_string();
                log::warn!(
                    error = error.as_str();
                    "the state file is not used: objects that are added while causewayd runs are \
                     lost when it ends; name a usable file by state_file in [daemon]"
                );
                kept.turn_off(&error);
                return kept;
            }
        }
        kept.load(kinds);
        kept
    }

    /// Notes that the state file is neither read nor written; only the first reason counts.
    fn turn_off(&self, reason: &str) {
        self.off.get_or_init(|| reason.to_owned());
    }

    /// Reads the state file.
    fn load(&self, kinds: &'static [&'static KindDefinition]) {
        let daemon = &self.config.daemon;
        let (file, run_dir, sections) = (&*daemon.state_file, &*daemon.run_dir, self.sections);
        let cx = StateContext { file, kinds, sections, run_dir, key_file: &daemon.key_file };
        let read = store::load(file).map_err(|error| error.to_string()).and_then(|text| {
            let Some(text) = text else { return Ok(None) };
            let read = state::read(&text, &cx);
            read.map(|read| Some((text, read))).map_err(|e| format!("{}: {e}", file.display()))
        });
        let (text, read) = match read {
            Ok(None) => return,
            Ok(Some(read)) => read,
            Err(error) => return self.set_aside(&error),
        };
        let StateText { objects, problems, cut_off } = read;
        *lock(&self.cut_off) = cut_off.into_iter().collect();
        *lock(&self.loaded) = Some(text);
        let mut restored = lock(&self.restored);
        restored.objects = objects.into_iter().map(|(_, object)| object).collect();
        restored.lost = problems;
    }

    /// Moves a state file aside that cannot be used. If that fails, changes are not kept.
    fn set_aside(&self, reason: &str) {
        match store::set_aside(&self.config.daemon.state_file) {
            Ok(aside) => log::warn!(
                kept_aside:% = aside.display();
                "the state file cannot be used: {reason}; objects that were added while causewayd \
                 ran are missing: correct the file that is kept aside, stop causewayd and rename it \
                 back, or add the objects again"
            ),
            Err(error) => {
                log::warn!(
                    error:% = error;
                    "the state file cannot be used: {reason}; it cannot be moved aside either, so \
                     that changes are lost when causewayd ends: remove it"
                );
                self.turn_off(reason);
            }
        }
    }

    /// Adds the groups and rules of the state file, and puts its policies in force. All groups and
    /// rules of the configuration file must be there.
    pub fn restore_before_ports(&self) {
        self.restore_site();
        let objects = std::mem::take(&mut lock(&self.restored).objects);
        let mut later = Vec::new();
        let mut rules = Vec::new();
        for object in objects {
            match object {
                StateObject::Group(spec) => {
                    let table = ObjectTable::group(&spec);
                    self.restore(&table, Command::GroupAdd(spec));
                }
                StateObject::Rule(at, rule) => rules.push((at.unwrap_or(usize::MAX), rule)),
                StateObject::Section(object) => {
                    self.prepare(&object);
                    later.push(StateObject::Section(object));
                }
                other => later.push(other),
            }
        }
        rules.sort_by_key(|(at, _)| *at);
        for (at, rule) in rules {
            if lock(&self.objects).has_rule_before(at, &rule) {
                // An equal rule decides before this one.
                lock(&self.restored).merged += 1;
                continue;
            }
            let what = format!("rule from {} to {}", rule.from, rule.to);
            let end = lock(&self.objects).rules();
            let command = Command::RuleAdd { index: Some(at.min(end)), rule };
            let result = self.execute(command, Origin::State, &Mutex::<Touched>::default());
            self.count(&what, None, result.map(drop));
        }
        lock(&self.restored).objects = later;
    }

    /// Adds the other objects of the state file. All objects of the configuration file must be
    /// there. `stops` is called before each; if it returns true, the others are left out.
    pub fn restore_rest(&self, stops: &dyn Fn() -> bool) {
        self.follow_new(Origin::File);
        let objects = std::mem::take(&mut lock(&self.restored).objects);
        for object in objects {
            if stops() {
                return;
            }
            match object {
                StateObject::Port(port) => {
                    let table = ObjectTable::port(&port);
                    self.restore(&table, Command::PortAdd(*port));
                }
                StateObject::Section(object) => self.restore_section(&object),
                StateObject::Group(_) | StateObject::Rule(..) => {}
            }
        }
        self.follow_new(Origin::State);
    }

    /// Follows objects of registered sections that are not followed yet.
    fn follow_new(&self, origin: Origin) {
        let Ok(tables) = self.list_others() else { return };
        let mut objects = lock(&self.objects);
        for table in tables {
            if objects.listed(&table.key).is_none() {
                objects.apply(Change::Add(table), origin);
            }
        }
    }

    /// Completes an object of a registered section.
    fn complete(&self, object: &ConfigObject) -> Result<TableValues, String> {
        let key_file = &self.config.daemon.key_file;
        let cx = TableContext { key_file, resolve: resolve_later };
        object.section.complete(&object.values(), cx)
    }

    /// Puts a policy in force. Its refusal shows when the policy is completed.
    fn prepare(&self, object: &ConfigObject) {
        let Some(prepare) = object.section.requests.prepare else { return };
        if let Ok(complete) = self.complete(object) {
            self.send(prepare, &complete);
        }
    }

    /// Sends a request about complete values, and ignores its refusal.
    fn send(&self, read: TableReader, complete: &TableValues) {
        if let Ok(request) = read(complete) {
            let _ = self.inner.call(Command::Service(request));
        }
    }

    /// Adds an object of a registered section, or completes a policy.
    fn restore_section(&self, object: &ConfigObject) {
        let section = object.section;
        let complete = match self.complete(object) {
            Ok(complete) => complete,
            Err(text) => {
                let what = format!("{} {}", section.name, section.id(&object.values()));
                return self.count(&what, None, Err(CommandError::Invalid(text)));
            }
        };
        let table = ObjectTable::section(section, section.table(&complete));
        let read = section.requests.keep.unwrap_or(section.read);
        let request = match read(&complete) {
            Ok(request) => request,
            Err(problems) => {
                let error = CommandError::Invalid(joined(section.title, &problems));
                return self.count(&table.key.to_string(), None, Err(error));
            }
        };
        let is_there = self.restore(&table, Command::Service(request));
        if let (false, Some(_), Some(delete)) = (is_there, section.requests.prepare, section.delete)
        {
            // It was put in force before the ports, and would go on to apply.
            self.send(delete, &complete);
        }
    }

    /// Adds an object, unless the configuration file has it. Returns whether it runs now.
    fn restore(&self, table: &ObjectTable, command: Command) -> bool {
        let what = table.key.to_string();
        let listed = lock(&self.objects).listed(&table.key);
        if let Some(values) = listed {
            if values == table.values {
                lock(&self.restored).merged += 1;
                return true;
            }
            let file = self.config_file.display();
            let text = format!("{file} has it with other values, which apply");
            self.count(&what, None, Err(CommandError::Conflict(text)));
            return false;
        }
        let result = self.execute(command, Origin::State, &Mutex::<Touched>::default());
        let is_added = result.is_ok();
        self.count(&what, Some(table), result.map(drop));
        is_added
    }

    /// Counts the result of an object.
    fn count(&self, what: &str, table: Option<&ObjectTable>, result: Result<(), CommandError>) {
        let mut restored = lock(&self.restored);
        match (result, table) {
            (Ok(()), _) => restored.added += 1,
            (Err(error @ CommandError::Host(_)), Some(table)) => {
                let section = self.sections.iter().find(|one| one.name == table.key.section);
                let delete = match section.is_none_or(SectionDefinition::is_named) {
                    false => "stop causewayd and delete its table in the state file",
                    true => "delete it with causeway",
                };
                log::warn!(
                    error:% = error;
                    "{what} of the state file cannot be added now; the next start of causewayd tries \
                     again: correct the cause and restart, or {delete}"
                );
                restored.waiting += 1;
                lock(&self.objects).retain(table.clone());
            }
            (Err(error), _) => restored.lost.push(format!("{what}: {error}")),
        }
    }

    /// Reports the outcome, and starts to write changes.
    ///
    /// # Errors
    /// The writer's thread cannot be started.
    pub fn begin(self: &Arc<Self>) -> std::io::Result<()> {
        let Restored { lost, added, merged, waiting, .. } =
            std::mem::take(&mut *lock(&self.restored));
        if self.off.get().is_some() {
            return Ok(());
        }
        let file = &self.config.daemon.state_file;
        let loaded = lock(&self.loaded).take();
        if added > 0 || waiting > 0 {
            log::info!(
                path:% = file.display(), added, waiting;
                "objects of the state file were added"
            );
        }
        if let (Some(text), false) = (&loaded, lost.is_empty()) {
            let aside = match store::copy_aside(file, text) {
                Ok(aside) => aside.display().to_string(),
                Err(error) => format!("none: {error}"),
            };
            for reason in &lost {
                log::warn!(
                    copy = aside.as_str();
                    "an object of the state file is dropped: {reason}; add it again if it is needed"
                );
            }
        }
        let kept = Arc::downgrade(self);
        let source = move || kept.upgrade()?.text_to_write();
        // Nothing is written as long as there is nothing to keep.
        let written = loaded.unwrap_or_else(|| state::print([], &[], self.sections));
        let writer = StateWriter::start(file.clone(), written, Arc::new(source))?;
        if !lost.is_empty() || merged > 0 {
            writer.request();
        }
        let _ = self.writer.set(writer);
        Ok(())
    }
}
