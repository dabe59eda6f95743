//! Routes: rules that send frames to a port or link (VNET/P, 4.2).
//!
//! The control API reads routes by [`RouteSpec::read`], the readers of the configuration file and
//! the state file by [`schema::read`], each in its thread; the Ethernet service looks up each
//! frame: routes first, then learnt addresses ([`crate::Forwarding`]). Routes match addresses and
//! the port or link of arrival, and not VLANs, protocols or IP addresses.
//!
//! All matching routes of the highest priority apply, so routes can copy a frame; the priority
//! follows from how specific the match is ([`crate::RouteView::priority`]), and the operator does
//! not choose it. Both ends are in the group of the route. The types check the form of a route; the
//! service checks that its ends exist.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::schema::{self, DefaultValue, Field, Problem, ValueType, table, text};
use crate::{Mac, Name, SpecError};

/// The source or destination addresses that a route matches (VNET/P, 4.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum MacMatch {
    /// Every address.
    Any,
    /// No address: such a route never applies.
    None,
    /// Every address but this one.
    Not(Mac),
    /// This address only.
    Only(Mac),
}

impl FromStr for MacMatch {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "any" => Ok(Self::Any),
            "none" => Ok(Self::None),
            other => match other.strip_prefix("not-") {
                Some(mac) => mac.parse().map(Self::Not),
                Option::None => other.parse().map(Self::Only),
            },
        }
        .map_err(|_: SpecError| {
            SpecError(format!("address {text:?}: expected any, none, a MAC address, or not-MAC"))
        })
    }
}

impl TryFrom<String> for MacMatch {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<MacMatch> for String {
    fn from(mac: MacMatch) -> String {
        mac.to_string()
    }
}

impl fmt::Display for MacMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::None => f.write_str("none"),
            Self::Not(mac) => write!(f, "not-{mac}"),
            Self::Only(mac) => mac.fmt(f),
        }
    }
}

/// An end of a route: a port (VNET's *interface*) or a link (its *edge*). The local network is a
/// link of kind `raw`.
///
/// Views have the form `{"type": …, "name": …}`; operators also write `{"edge": LINK}` or
/// `{"interface": PORT}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "type", content = "name", rename_all = "lowercase", try_from = "EndForm")]
pub enum RouteEnd {
    /// A port of the group.
    Interface(Name),
    /// A link of the group.
    Edge(Name),
}

/// The keys of an end of a route.
pub const ROUTE_END_FIELDS: &[Field] = &[
    Field::new("edge", "A link of the group.", text::<Name>("LINK"), DefaultValue::None),
    Field::new("interface", "A port of the group.", text::<Name>("PORT"), DefaultValue::None),
];

/// The forms of an end of a route.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndForm {
    edge: Option<Name>,
    interface: Option<Name>,
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<Name>,
}

impl TryFrom<EndForm> for RouteEnd {
    type Error = SpecError;
    fn try_from(form: EndForm) -> Result<Self, SpecError> {
        match (form.edge, form.interface, form.kind.as_deref(), form.name) {
            (Some(link), None, None, None) => Ok(Self::Edge(link)),
            (None, Some(port), None, None) => Ok(Self::Interface(port)),
            (None, None, Some("edge"), Some(link)) => Ok(Self::Edge(link)),
            (None, None, Some("interface"), Some(port)) => Ok(Self::Interface(port)),
            _ => Err(SpecError("expected {\"edge\": LINK} or {\"interface\": PORT}".into())),
        }
    }
}

impl RouteEnd {
    /// Returns the table of the end, as operators write it.
    fn table(&self) -> Value {
        match self {
            Self::Interface(port) => json!({ "interface": port }),
            Self::Edge(link) => json!({ "edge": link }),
        }
    }
}

impl fmt::Display for RouteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface(name) => write!(f, "interface {name}"),
            Self::Edge(name) => write!(f, "edge {name}"),
        }
    }
}

table! {
    /// A rule that sends frames to a port or a link.
    #[derive(Hash)]
    pub struct RouteSpec, pub const ROUTE_FIELDS {
        /// Group of the frames.
        group: Name => text::<Name>("NAME"), DefaultValue::Required("expected the name of a [[group]]");
        /// Source addresses that match.
        #[serde(default = "any_address")]
        source: MacMatch => text::<MacMatch>("ADDRESS"), DefaultValue::Text("any");
        /// Destination addresses that match.
        #[serde(default = "any_address")]
        destination: MacMatch => text::<MacMatch>("ADDRESS"), DefaultValue::Text("any");
        /// Link or port to which matching frames go.
        to: RouteEnd => ValueType::Choice(ROUTE_END_FIELDS),
            DefaultValue::Required("expected { edge = \"LINK\" } or { interface = \"PORT\" }");
        /// Link or port from which frames must have come.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<RouteEnd> => ValueType::Choice(ROUTE_END_FIELDS), DefaultValue::NoneMeans("any");
    }
}

impl fmt::Display for RouteSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, source, destination, to, from } = self;
        write!(f, "{group}: {source} > {destination}")?;
        if let Some(from) = from {
            write!(f, " from {from}")?;
        }
        write!(f, ", to {to}")
    }
}

fn any_address() -> MacMatch {
    MacMatch::Any
}

/// The keys of a route whose values are ends.
const END_KEYS: [&str; 2] = ["to", "from"];

impl RouteSpec {
    /// Reads the table of a route, whose ends may also have the form of views.
    ///
    /// # Errors
    /// All problems of the table.
    pub fn read(values: &Map<String, Value>) -> Result<Self, Vec<Problem>> {
        let mut values = values.clone();
        for key in END_KEYS {
            let end = values.get(key).and_then(|end| RouteEnd::deserialize(end).ok());
            values.extend(end.map(|end| (key.to_owned(), end.table())));
        }
        schema::read(ROUTE_FIELDS, &values)
    }

    /// Returns the values by key, as operators write them.
    pub fn values(&self) -> Map<String, Value> {
        let mut values = schema::values(self);
        let ends = [Some(&self.to), self.from.as_ref()];
        for (key, end) in END_KEYS.into_iter().zip(ends) {
            values.extend(end.map(|end| (key.to_owned(), end.table())));
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_address_matches_read_and_print() {
        for text in ["any", "none", "not-02:00:00:00:00:01", "02:00:00:00:00:01"] {
            assert_eq!(text.parse::<MacMatch>().unwrap().to_string(), text);
        }
        assert_eq!("ANY".parse::<MacMatch>().unwrap(), MacMatch::Any);
        for bad in ["", "not-", "not-any", "02:00", "some"] {
            assert!(bad.parse::<MacMatch>().is_err(), "{bad}");
        }
    }

    fn read(json: &str) -> Result<RouteSpec, String> {
        let values: Map<String, Value> = serde_json::from_str(json).unwrap();
        RouteSpec::read(&values)
            .map_err(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn route_is_read_as_written_and_as_shown() {
        let short = read(r#"{"group":"g","to":{"edge":"l"},"from":{"interface":"p"}}"#).unwrap();
        assert_eq!((short.source, short.destination), (MacMatch::Any, MacMatch::Any));
        let shown = serde_json::to_string(&short).unwrap();
        assert!(shown.contains(r#""to":{"type":"edge","name":"l"}"#), "{shown}");
        assert_eq!(read(&shown).unwrap(), short);
        let values = short.values();
        assert_eq!(values["from"], json!({ "interface": "p" }));
        assert_eq!(schema::read::<RouteSpec>(ROUTE_FIELDS, &values).unwrap(), short);
    }

    #[test]
    fn route_hostile_ends_are_refused() {
        for (end, expected) in [
            ("{}", "to: expected { edge = \"LINK\" } or { interface = \"PORT\" }"),
            (r#"{"edge":"l","interface":"p"}"#, "to: expected { edge"),
            (r#""l""#, "to: expected a table, found string"),
            (r#"{"type":"edge"}"#, "expected one of edge, interface"),
            (r#"{"type":"both","name":"l"}"#, "expected one of edge, interface"),
            (r#"{"edge":"l","name":"l"}"#, "unknown key \"name\""),
            (r#"{"edges":"l"}"#, "did you mean \"edge\"?"),
            (r#"{"edge":"a b"}"#, "to.edge: "),
        ] {
            let error = read(&format!(r#"{{"group":"g","to":{end}}}"#)).unwrap_err();
            assert!(error.contains(expected), "{end}: {error}");
        }
        for json in [r#"{"group":"g"}"#, r#"{"group":"g","source":"some","to":{"edge":"l"}}"#] {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
