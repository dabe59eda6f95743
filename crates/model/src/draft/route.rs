//! Routes as an operator writes them.
//!
//! The daemon reads a [`RouteDraft`] from the configuration file or the control socket;
//! [`RouteDraft::into_spec`] makes the [`RouteSpec`] that the Ethernet service adds. Source and
//! destination default to any address. Unknown keys and an end that is neither a port nor a link
//! are refused; that the group, port or link exists is checked by the service.

use crate::Name;
use crate::{MacMatch, RouteEnd, RouteSpec, SpecError};
use serde::Deserialize;

/// A route with the given values only.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteDraft {
    /// Group of the frames.
    pub group: Name,
    /// Source addresses that match; by default any.
    #[serde(default = "any")]
    pub source: MacMatch,
    /// Destination addresses that match; by default any.
    #[serde(default = "any")]
    pub destination: MacMatch,
    /// Port or link to which matching frames go.
    pub to: EndDraft,
    /// Port or link from which frames must have come; by default any.
    #[serde(default)]
    pub from: Option<EndDraft>,
}

fn any() -> MacMatch {
    MacMatch::Any
}

/// An end of a route: `{"edge": LINK}` or `{"interface": PORT}`; also `{"type": …, "name": …}`, the
/// form of views.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EndDraft {
    edge: Option<Name>,
    interface: Option<Name>,
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<Name>,
}

impl EndDraft {
    fn into_end(self, key: &str) -> Result<RouteEnd, SpecError> {
        match (self.edge, self.interface, self.kind.as_deref(), self.name) {
            (Some(link), None, None, None) => Ok(RouteEnd::Edge(link)),
            (None, Some(port), None, None) => Ok(RouteEnd::Interface(port)),
            (None, None, Some("edge"), Some(link)) => Ok(RouteEnd::Edge(link)),
            (None, None, Some("interface"), Some(port)) => Ok(RouteEnd::Interface(port)),
            _ => Err(SpecError(format!(
                "route: {key}: expected {{\"edge\": LINK}} or {{\"interface\": PORT}}"
            ))),
        }
    }
}

impl RouteDraft {
    /// Returns the full route, with defaults filled in.
    ///
    /// # Errors
    /// The end (`to` or `from`) that is malformed.
    pub fn into_spec(self) -> Result<RouteSpec, SpecError> {
        Ok(RouteSpec {
            group: self.group,
            source: self.source,
            destination: self.destination,
            to: self.to.into_end("to")?,
            from: self.from.map(|from| from.into_end("from")).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(json: &str) -> Result<RouteSpec, String> {
        let draft: RouteDraft = serde_json::from_str(json).map_err(|e| e.to_string())?;
        draft.into_spec().map_err(|e| e.to_string())
    }

    #[test]
    fn route_is_read_as_written_and_as_shown() {
        let short = draft(r#"{"group":"g","to":{"edge":"l"},"from":{"interface":"p"}}"#).unwrap();
        assert_eq!((short.source, short.destination), (MacMatch::Any, MacMatch::Any));
        let shown = serde_json::to_string(&short).unwrap();
        assert_eq!(draft(&shown).unwrap(), short);
    }

    #[test]
    fn route_hostile_ends_are_refused() {
        for end in [
            "{}",
            r#"{"edge":"l","interface":"p"}"#,
            r#"{"type":"edge"}"#,
            r#"{"type":"both","name":"l"}"#,
            r#"{"edge":"l","name":"l"}"#,
        ] {
            let error = draft(&format!(r#"{{"group":"g","to":{end}}}"#)).unwrap_err();
            assert!(error.contains("to: expected"), "{end}: {error}");
        }
        for json in [
            r#"{"group":"g"}"#,
            r#"{"group":"g","to":{"edge":"a b"}}"#,
            r#"{"group":"g","source":"some","to":{"edge":"l"}}"#,
            r#"{"group":"g","to":{"edges":"l"}}"#,
        ] {
            assert!(draft(json).is_err(), "{json}");
        }
    }
}
