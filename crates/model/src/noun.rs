//! Nouns of the control API that services register: `/v1/NOUN`.
//!
//! A service registers a [`NounDefinition`] for each of its nouns. The daemon reads the request,
//! admits its sender, and calls the definition with a [`NounCall`], by which the handler asks the
//! controllers of services. Bodies and replies are JSON. Nouns of the fabric and the daemon (ports,
//! rules, apply) stand in the daemon.
//!
//! A handler runs on the thread of the client's connection and may block; it keeps no state. The
//! length of a request is limited by the daemon, that of a reply by the handler. Errors map to
//! status codes: [`NounError`]. Two definitions of one name are not detected: the first answers.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::draft::Resolver;
use crate::{CommandError, Name, ServiceRequest, ServiceResponse, TypedRequest};

/// Sends a request to the controllers, and waits for the answer.
pub type Asker<'a> = &'a dyn Fn(ServiceRequest) -> Result<ServiceResponse, CommandError>;

/// The outcome of a request to a noun.
pub type NounResult = Result<NounReply, NounError>;

/// A noun of a service.
#[derive(Debug, Clone, Copy)]
pub struct NounDefinition {
    /// Name in the path, a plural: `routes`.
    pub name: &'static str,
    /// Answers the requests.
    pub answer: fn(&NounCall<'_>) -> NounResult,
    /// Whether programs report values to the noun at short intervals. Its requests change no object
    /// that the daemon keeps, and are logged at the level debug.
    pub is_report: bool,
}

impl NounDefinition {
    /// Defines a noun for requests of operators.
    pub const fn new(name: &'static str, answer: fn(&NounCall<'_>) -> NounResult) -> Self {
        Self { name, answer, is_report: false }
    }

    /// Defines the noun as one for reports.
    #[must_use]
    pub const fn for_reports(self) -> Self {
        Self { is_report: true, ..self }
    }
}

/// Values of the daemon that complete the objects of requests.
#[derive(Debug, Clone, Copy)]
pub struct NounDefaults<'a> {
    /// File of the private key of objects that name none (`key_file` of `[daemon]`).
    pub key_file: &'a Path,
    /// Resolves host names; blocks the calling thread for as long as the host's resolver takes.
    pub resolve: Resolver,
}

/// A request to a noun.
#[derive(Clone, Copy)]
pub struct NounCall<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Segments of the path behind the noun.
    pub path: &'a [&'a str],
    /// Values that complete an object of the body.
    pub defaults: NounDefaults<'a>,
    body: &'a [u8],
    asker: Asker<'a>,
}

impl std::fmt::Debug for NounCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NounCall")
            .field("method", &self.method)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A successful reply.
#[derive(Debug)]
pub enum NounReply {
    /// An object or a list (200).
    Shown(Value),
    /// The added object (201).
    Added(Value),
    /// No content (204).
    Done,
}

/// The reason of a refusal.
#[derive(Debug)]
pub enum NounError {
    /// The path names nothing (404).
    Path,
    /// The path has other methods, which are listed (405).
    Method(&'static str),
    /// The body is no JSON (400), or does not fit (422).
    Body(serde_json::Error),
    /// A service refuses the command, or a value is invalid; the status follows the error.
    Command(CommandError),
}

impl From<CommandError> for NounError {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

impl NounError {
    /// Returns the refusal of an invalid value (422).
    pub fn invalid(text: String) -> Self {
        Self::Command(CommandError::Invalid(text))
    }
}

impl<'a> NounCall<'a> {
    /// Describes a request. `asker` reaches the controllers.
    pub fn new(
        method: &'a str,
        path: &'a [&'a str],
        body: &'a [u8],
        defaults: NounDefaults<'a>,
        asker: Asker<'a>,
    ) -> NounCall<'a> {
        Self { method, path, defaults, body, asker }
    }

    /// Returns the body as a `T`.
    ///
    /// # Errors
    /// The body is no JSON or does not fit.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T, NounError> {
        serde_json::from_slice(self.body).map_err(NounError::Body)
    }

    /// Sends a command to the service that has it, and waits for the answer.
    ///
    /// # Errors
    /// The service refuses the command.
    pub fn ask<T: TypedRequest>(&self, command: T) -> Result<T::Answer, NounError> {
        Ok((self.asker)(ServiceRequest::new(command))?.take::<T>()?)
    }

    /// Sends a command and replies with its answer.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn show<T: TypedRequest<Answer: Serialize>>(&self, command: T) -> NounResult {
        Ok(NounReply::Shown(json(&self.ask(command)?)?))
    }

    /// Sends a command that adds an object, and replies with the object.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn add<T: TypedRequest<Answer: Serialize>>(&self, command: T) -> NounResult {
        Ok(NounReply::Added(json(&self.ask(command)?)?))
    }

    /// Sends a command without an answer.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub fn execute<T: TypedRequest<Answer = ()>>(&self, command: T) -> NounResult {
        self.ask(command).map(|()| NounReply::Done)
    }
}

/// Reads a name of the path.
///
/// # Errors
/// The text is no name (422).
pub fn name(text: &str) -> Result<Name, NounError> {
    text.parse().map_err(|error: crate::SpecError| NounError::invalid(error.to_string()))
}

/// Returns a value as JSON.
fn json(value: &impl Serialize) -> Result<Value, CommandError> {
    serde_json::to_value(value).map_err(|error| CommandError::Host(format!("reply: {error}")))
}
