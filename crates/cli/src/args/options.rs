//! Options that derive from the fields of a table, for example `--mtu` from `mtu`.

use std::path::PathBuf;
use std::sync::OnceLock;

use causeway_model::KindInfo;
use causeway_model::draft::LinkKindName;
use causeway_model::draft::link::LINK_FIELDS;
use causeway_model::port::{KINDS, PORT_FIELDS};
use causeway_model::schema::{FieldInfo, TypeInfo};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use serde_json::{Map, Value};

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

/// Values of a link in the daemon's form.
#[derive(Debug, Clone, Default)]
pub struct LinkOptionValues(pub Map<String, Value>);

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
                Some(opt) => opt.of.push(of),
                None => all.push(TableOption { info, of: vec![of] }),
            }
        }
    }
    all
}

fn link_options() -> Vec<TableOption> {
    let fields = LINK_FIELDS.iter().filter(|field| field.key != "name").map(FieldInfo::from);
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

    fn is_flag(&self) -> bool {
        // A boolean that is true by default takes a value.
        self.info.value == TypeInfo::Boolean && self.info.default.is_none()
    }

    fn arg(&self) -> Arg {
        let key = self.info.key.clone();
        let arg = Arg::new(key.clone()).long(key.replace('_', "-")).help(self.help());
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
fn absolute(text: &str) -> Result<String, String> {
    let path: PathBuf = std::path::absolute(text).map_err(|error| error.to_string())?;
    path.into_os_string().into_string().map_err(|_| "expected text in UTF-8".to_owned())
}

fn augment(command: Command, options: &[TableOption]) -> Command {
    options.iter().fold(command, |command, opt| command.arg(opt.arg()))
}

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
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut all = values(matches, &port_options());
        let kind = matches.get_one::<String>("kind");
        let kind = kind.ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))?;
        all.insert("kind".into(), kind.as_str().into());
        Ok(Self(all))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for LinkOptionValues {
    fn augment_args(command: Command) -> Command {
        augment(command, &link_options())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LinkOptionValues {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(values(matches, &link_options())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
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
