//! Typed requests through interfaces that do not know the types.
//!
//! An operator's command to a service, a request to a shard of a service, and a request from one
//! service to another are types of their own; each names the type of its answer ([`TypedRequest`]).
//! The control plane and the fabric carry a [`ServiceRequest`] and a [`ServiceResponse`] without
//! knowing either type. The answering service lists its request types with [`RequestDispatch::on`],
//! so the compiler checks that each is answered with its own answer type.
//!
//! The module does not deliver requests: the fabric's registry offers a request to the controllers
//! in order, and calls the shard that a controller names. A request of a type that no service lists
//! ends as [`CommandError::Invalid`] in [`RequestDispatch::finish`]. Requests stay in the process
//! and have no encoding; they are not on the data path: each costs allocations and type checks.
//!
//! ```
//! use causeway_model::{TypedRequest, RequestDispatch, ServiceRequest};
//!
//! #[derive(Debug)]
//! struct CountFrames;
//! impl TypedRequest for CountFrames {
//!     type Answer = u64;
//! }
//!
//! let request = ServiceRequest::new(CountFrames);
//! let response = RequestDispatch::new(request).on(|CountFrames| Ok(7)).finish().unwrap();
//! assert_eq!(response.take::<CountFrames>().unwrap(), 7);
//! ```

use std::any::{Any, type_name};
use std::fmt;

use crate::CommandError;

/// A request that names the type of its answer.
pub trait TypedRequest: Any + fmt::Debug + Send {
    /// Type of the answer.
    type Answer: Any + Send;
}

/// A request of any type, erased.
pub struct ServiceRequest {
    request: Box<dyn Any + Send>,
    /// Name of the type, for messages.
    name: &'static str,
    /// Prints the request as its own type.
    print: fn(&dyn Any, &mut fmt::Formatter<'_>) -> fmt::Result,
}

impl fmt::Debug for ServiceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.print)(&*self.request, f)
    }
}

/// Prints a request that was erased from a `T`.
fn print<T: TypedRequest>(request: &dyn Any, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    request.downcast_ref::<T>().map_or(Ok(()), |request| request.fmt(f))
}

impl ServiceRequest {
    /// Erases the type of `request`.
    pub fn new<T: TypedRequest>(request: T) -> Self {
        Self { request: Box::new(request), name: type_name::<T>(), print: print::<T> }
    }

    /// Returns the name of the request's type, for messages.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether the request has the type `T`.
    pub fn is<T: TypedRequest>(&self) -> bool {
        self.request.is::<T>()
    }

    /// Returns the request, if it is a `T`.
    pub fn get<T: TypedRequest>(&self) -> Option<&T> {
        self.request.downcast_ref()
    }

    /// Returns the request as a `T`.
    ///
    /// # Errors
    /// The request itself, unchanged, if it has another type.
    pub fn take<T: TypedRequest>(self) -> Result<T, Self> {
        let Self { request, name, print } = self;
        let taken = request.downcast::<T>().map(|request| *request);
        taken.map_err(|request| Self { request, name, print })
    }
}

/// The answer to a [`ServiceRequest`], erased.
pub struct ServiceResponse(Box<dyn Any + Send>);

impl fmt::Debug for ServiceResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceResponse").finish_non_exhaustive()
    }
}

impl ServiceResponse {
    /// Erases the type of the answer to a request of type `T`.
    pub fn new<T: TypedRequest>(answer: T::Answer) -> Self {
        Self(Box::new(answer))
    }

    /// Returns the answer to a request that has an empty answer.
    pub fn done() -> Self {
        Self(Box::new(()))
    }

    /// Returns the answer, if it has the type of the answer to a `T`.
    pub fn get<T: TypedRequest>(&self) -> Option<&T::Answer> {
        self.0.downcast_ref()
    }

    /// Returns the answer to a request of type `T`.
    ///
    /// # Errors
    /// The response answers a request of another type.
    pub fn take<T: TypedRequest>(self) -> Result<T::Answer, CommandError> {
        let answer = self.0.downcast::<T::Answer>();
        answer.map(|answer| *answer).map_err(|_| {
            CommandError::Host(format!("{} got the answer to another request", type_name::<T>()))
        })
    }
}

/// A request on its way past the handlers: each takes the request if it has the type, or leaves it
/// open for the next handler.
#[derive(Debug)]
#[must_use = "a request without an answer is refused by `finish`"]
pub enum RequestDispatch {
    /// No handler so far accepts the type.
    Open(ServiceRequest),
    /// A handler answered the request.
    Answered(Result<ServiceResponse, CommandError>),
}

impl RequestDispatch {
    /// Starts with a request that no handler has been offered.
    pub fn new(request: ServiceRequest) -> Self {
        Self::Open(request)
    }

    /// Answers the request with `handle` if it is a `T` and not answered yet.
    pub fn on<T: TypedRequest>(
        self,
        handle: impl FnOnce(T) -> Result<T::Answer, CommandError>,
    ) -> Self {
        match self {
            Self::Open(request) => match request.take::<T>() {
                Ok(request) => Self::Answered(handle(request).map(ServiceResponse::new::<T>)),
                Err(request) => Self::Open(request),
            },
            answered @ Self::Answered(_) => answered,
        }
    }

    /// Returns the answer of the handler.
    ///
    /// # Errors
    /// The handler's error; [`CommandError::Invalid`] if no handler accepts the type.
    pub fn finish(self) -> Result<ServiceResponse, CommandError> {
        match self {
            Self::Answered(answer) => answer,
            Self::Open(request) => {
                Err(CommandError::Invalid(format!("no service answers {}", request.name())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Double(u32);
    impl TypedRequest for Double {
        type Answer = u32;
    }

    #[derive(Debug)]
    struct Greet;
    impl TypedRequest for Greet {
        type Answer = String;
    }

    fn dispatch(request: ServiceRequest) -> RequestDispatch {
        RequestDispatch::new(request)
            .on(|Double(number)| {
                let double = number.checked_mul(2);
                double.ok_or_else(|| CommandError::Invalid("too large".into()))
            })
            .on(|Double(_)| panic!("the first handler of a type answers"))
    }

    #[test]
    fn ask_reaches_the_handler_of_its_type() {
        let answer = dispatch(ServiceRequest::new(Double(21))).finish().unwrap();
        assert_eq!(answer.take::<Double>().unwrap(), 42);
        let refused = dispatch(ServiceRequest::new(Double(u32::MAX))).finish().unwrap_err();
        assert_eq!(refused, CommandError::Invalid("too large".into()));
    }

    #[test]
    fn ask_without_a_handler_is_refused_by_name() {
        let refused = dispatch(ServiceRequest::new(Greet)).finish().unwrap_err().to_string();
        assert!(refused.contains("no service answers") && refused.contains("Greet"), "{refused}");
        let kept = ServiceRequest::new(Greet).take::<Double>().unwrap_err();
        assert!(kept.is::<Greet>(), "a request of another type is given back");
    }

    #[test]
    fn ask_refuses_the_answer_to_another_request() {
        let answer = ServiceResponse::new::<Greet>("hello".into());
        assert!(answer.take::<Double>().is_err());
    }
}
