//! Options that derive from the fields of a table, for example `--mtu` from `mtu`.
//!
//! For `add` of ports, links, groups, rules, routes and forwards, each [`FieldInfo`] of
//! `causeway-model` becomes an option or the positional argument with its help, and given options
//! become JSON values in the daemon's form. [`add_kinds`] adds the kinds of a newer daemon; it must
//! be called before the command line is parsed, and only its first call has an effect.
//!
//! A value outside the form or range of its field is refused with exit status 2. Absent options are
//! absent in the values: the daemon knows the defaults. The options of all kinds of ports are
//! accepted for every kind, and the daemon refuses those that the kind does not have. [`shown`] is
//! the other direction, for `port show` and `link show`. `super` includes the types in the command
//! line.

use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::OnceLock;

use causeway_model::draft::link::LINK_FIELDS;
use causeway_model::draft::{LinkDraft, LinkKindName};
use causeway_model::port::{KINDS, PORT_FIELDS};
use causeway_model::schema::{self, Field, FieldInfo, TypeInfo};
use causeway_model::{
    FORWARD_FIELDS, ForwardSpec, GROUP_FIELDS, GroupSpec, KindInfo, ROUTE_FIELDS, RULE_FIELDS,
    RULE_INDEX, RouteSpec, RuleSpec,
};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Kinds of the daemon that this release does not have.
static FURTHER: OnceLock<Vec<KindInfo>> = OnceLock::new();

/// Adds the kinds of a daemon, before the command line is parsed.
pub fn add_kinds(kinds: Vec<KindInfo>) {
    let known = |kind: &KindInfo| KINDS.iter().any(|own| own.name == kind.name);
    // A second call has no effect: a process parses one command line.
    let _ = FURTHER.set(kinds.into_iter().filter(|kind| !known(kind)).collect());
}

/// Returns whether this release has a kind of ports or links of this name.
pub fn is_known(kind: &str) -> bool {
    KINDS.iter().any(|own| own.name == kind) || LinkKindName::NAMES.contains(&kind)
}

/// Returns the kinds of ports, those of this release first.
pub fn kinds() -> Vec<KindInfo> {
    let further = FURTHER.get().cloned().unwrap_or_default();
    KINDS.iter().map(|kind| KindInfo::from(*kind)).chain(further).collect()
}

/// Values of a port in the daemon's form, from the options of a command line.
#[derive(Debug, Clone, Default)]
pub struct PortOptionValues(pub Map<String, Value>);

/// A table whose keys are arguments of a command, each stated once in `causeway-model`.
pub trait ArgumentTable: DeserializeOwned {
    /// The keys.
    const FIELDS: &'static [Field];
    /// The key whose value stands without an option.
    const POSITIONAL: Option<&'static str>;
    /// An option that is no key of the table.
    const FURTHER: Option<&'static Field> = None;
}

impl ArgumentTable for LinkDraft {
    const FIELDS: &'static [Field] = LINK_FIELDS;
    const POSITIONAL: Option<&'static str> = Some("name");
}

impl ArgumentTable for GroupSpec {
    const FIELDS: &'static [Field] = GROUP_FIELDS;
    const POSITIONAL: Option<&'static str> = Some("name");
}

impl ArgumentTable for RuleSpec {
    const FIELDS: &'static [Field] = RULE_FIELDS;
    const POSITIONAL: Option<&'static str> = Some("action");
    const FURTHER: Option<&'static Field> = Some(&RULE_INDEX);
}

impl ArgumentTable for ForwardSpec {
    const FIELDS: &'static [Field] = FORWARD_FIELDS;
    const POSITIONAL: Option<&'static str> = Some("name");
}

impl ArgumentTable for RouteSpec {
    const FIELDS: &'static [Field] = ROUTE_FIELDS;
    const POSITIONAL: Option<&'static str> = None;
}

/// Values of a table in the daemon's form, from the arguments of a command line.
#[derive(Debug, Clone)]
pub struct TableArguments<T> {
    /// The given values.
    pub values: Map<String, Value>,
    table: PhantomData<T>,
}

impl<T: ArgumentTable> TableArguments<T> {
    /// Returns the table with its defaults. The values were checked one by one.
    ///
    /// # Errors
    /// [`Error::Usage`]: a required value is missing, or a value lacks another that it requires.
    pub fn read(&self) -> Result<T> {
        let mut values = self.values.clone();
        T::FURTHER.and_then(|field| values.remove(field.key));
        schema::read(T::FIELDS, &values).map_err(|problems| {
            let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Error::Usage(all.join("; "))
        })
    }

    /// Returns a text, or an empty text if it is not given.
    pub fn text(&self, key: &str) -> &str {
        self.values.get(key).and_then(Value::as_str).unwrap_or_default()
    }
}

/// An option of the command line.
#[derive(Debug)]
struct TableOption {
    info: FieldInfo,
    /// Kinds of ports that have the key, with their help texts; empty if all have it.
    of: Vec<(String, String)>,
}

/// Returns the options of ports: keys of all ports, then those of some kinds, each once.
fn port_options() -> Vec<TableOption> {
    let common = PORT_FIELDS.iter().filter(|field| field.key != "name").map(FieldInfo::from);
    let mut all: Vec<TableOption> =
        common.map(|info| TableOption { info, of: Vec::new() }).collect();
    for kind in kinds() {
        for info in kind.options {
            // Nested tables can be given in the configuration file only.
            if matches!(info.value, TypeInfo::Table | TypeInfo::Tables) {
                continue;
            }
            let of = (kind.name.clone(), info.help.clone());
            match all.iter_mut().find(|opt| opt.info.key == info.key) {
                Some(opt) => {
                    opt.of.push(of);
                    // The daemon checks what only some kinds require.
                    if opt.info.requires != info.requires {
                        opt.info.requires = None;
                    }
                }
                None => all.push(TableOption { info, of: vec![of] }),
            }
        }
    }
    all
}

/// Returns the arguments of a table.
fn table_options<T: ArgumentTable>() -> Vec<TableOption> {
    let fields = T::FIELDS.iter().chain(T::FURTHER).map(FieldInfo::from);
    fields.map(|info| TableOption { info, of: Vec::new() }).collect()
}

impl TableOption {
    /// Returns the help text, for example `net, vsock: limit …; mx: … [default: …]`, without the
    /// full stop.
    fn help(&self) -> String {
        let mut parts: Vec<(Vec<&str>, &str)> = Vec::new();
        for (kind, help) in &self.of {
            match parts.iter_mut().find(|(_, known)| known == help) {
                Some((kinds, _)) => kinds.push(kind),
                None => parts.push((vec![kind], help)),
            }
        }
        let texts: Vec<String> = match parts.is_empty() {
            true => vec![self.info.help.trim_end_matches('.').to_owned()],
            false => parts
                .iter()
                .map(|(kinds, help)| {
                    format!("{}: {}", kinds.join(", "), continued(help.trim_end_matches('.')))
                })
                .collect(),
        };
        let mut text = texts.join("; ");
        if let (Some(min), Some(max)) = (self.info.min, self.info.max)
            && self.info.value == TypeInfo::Integer
        {
            text.push_str(&format!(", {min} to {max}"));
        }
        if let Some(default) = &self.info.default {
            text.push_str(&format!(" [default: {default}]"));
        }
        text
    }

    /// Returns whether the option takes no value: a boolean that is false by default.
    fn is_flag(&self) -> bool {
        // A boolean that is true by default takes a value.
        self.info.value == TypeInfo::Boolean && self.info.default.is_none()
    }

    /// Returns clap's argument `--KEY`, with `-` for each `_` of the key.
    fn arg(&self) -> Arg {
        let key = self.info.key.clone();
        self.with_value(Arg::new(key.clone()).long(key.replace('_', "-")))
    }

    /// Returns the argument with help, the option that it requires, and the parser of its value.
    fn with_value(&self, arg: Arg) -> Arg {
        let arg = arg.help(self.help());
        let arg = match &self.info.requires {
            Some(other) => arg.requires(other.clone()),
            None => arg,
        };
        if self.is_flag() {
            return arg.action(ArgAction::SetTrue);
        }
        let (info, is_path) = (self.info.clone(), self.info.value == TypeInfo::Path);
        let is_required = self.of.is_empty() && self.info.required;
        if self.info.value == TypeInfo::Word {
            // Shells can complete the words.
            let words = PossibleValuesParser::new(self.info.words.clone()).map(Value::from);
            return arg.value_name("WORD").value_parser(words).required(is_required);
        }
        let name = match self.info.value {
            TypeInfo::Boolean => "true|false".to_owned(),
            _ => self.info.placeholder.clone(),
        };
        let read = move |text: &str| {
            let text = if is_path { absolute(text)? } else { text.to_owned() };
            info.read(&text)
        };
        // The daemon fills in defaults; clap checks the keys that every table requires.
        arg.value_name(name).value_parser(read).required(is_required)
    }
}

/// Returns a sentence for the position after a colon: with a small first letter, unless it begins
/// with an acronym.
fn continued(sentence: &str) -> String {
    let mut letters = sentence.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            first.to_lowercase().chain(sentence.chars().skip(1)).collect()
        }
        _ => sentence.to_owned(),
    }
}

/// Returns an absolute path: the daemon has another working directory.
fn absolute(text: &str) -> std::result::Result<String, String> {
    let path: PathBuf = std::path::absolute(text).map_err(|error| error.to_string())?;
    path.into_os_string().into_string().map_err(|_| "expected text in UTF-8".to_owned())
}

/// Adds an argument for each option to a command.
fn augment(command: Command, options: &[TableOption]) -> Command {
    options.iter().fold(command, |command, opt| command.arg(opt.arg()))
}

/// Returns the values of the options that were given, by key.
fn values(matches: &ArgMatches, options: &[TableOption]) -> Map<String, Value> {
    let mut values = Map::new();
    for opt in options {
        let key = opt.info.key.as_str();
        let value = match opt.is_flag() {
            true => matches.get_flag(key).then_some(Value::Bool(true)),
            false => matches.get_one::<Value>(key).cloned(),
        };
        values.extend(value.map(|value| (key.to_owned(), value)));
    }
    values
}

/// Returns the option `--kind` of `port add`, with the names of all known kinds.
fn kind_arg() -> Arg {
    let names: Vec<String> = kinds().into_iter().map(|kind| kind.name).collect();
    let shown =
        kinds().iter().map(|kind| format!("{}: {}", kind.name, kind.help)).collect::<Vec<_>>();
    Arg::new("kind")
        .long("kind")
        .value_name("KIND")
        .help(format!("Kind of the port. {}", shown.join("; ")))
        .value_parser(PossibleValuesParser::new(names))
        .required(true)
}

impl Args for PortOptionValues {
    fn augment_args(command: Command) -> Command {
        augment(command.arg(kind_arg()), &port_options())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PortOptionValues {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let mut all = values(matches, &port_options());
        let kind = matches.get_one::<String>("kind");
        let kind = kind.ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))?;
        all.insert("kind".into(), kind.as_str().into());
        Ok(Self(all))
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: ArgumentTable> Args for TableArguments<T> {
    fn augment_args(command: Command) -> Command {
        table_options::<T>().iter().fold(command, |command, opt| {
            let key = opt.info.key.as_str();
            if T::POSITIONAL != Some(key) {
                return command.arg(opt.arg());
            }
            let arg = opt.with_value(Arg::new(key.to_owned()));
            command.arg(arg.value_name(key.to_uppercase()))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: ArgumentTable> FromArgMatches for TableArguments<T> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let values = values(matches, &table_options::<T>());
        Ok(Self { values, table: PhantomData })
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the given options of a table as text, in the order of its fields.
pub fn shown<'a>(
    fields: impl IntoIterator<Item = &'a FieldInfo>,
    values: &Map<String, Value>,
) -> Vec<(String, String)> {
    let mut list = Vec::new();
    for info in fields {
        let text = match values.get(&info.key) {
            None | Some(Value::Null) => continue,
            Some(Value::Bool(yes)) => if *yes { "yes" } else { "no" }.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) if info.placeholder == "MIB" => format!("{number} MiB"),
            Some(other) => other.to_string(),
        };
        list.push((info.key.replace('_', " "), text));
    }
    list
}
