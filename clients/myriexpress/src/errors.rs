//! Error handlers: every call that fails is put to one before it returns.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use causeway_message::status::Status;

use crate::abi::{ErrorHandler, Given};
use crate::code::{Code, Return, describe, describe_status};

/// `MX_ERRORS_ARE_FATAL`: an object that holds the handler.
#[unsafe(no_mangle)]
pub static MX_ERRORS_ARE_FATAL: ErrorHandler = fatal;
/// `MX_ERRORS_RETURN`.
#[unsafe(no_mangle)]
pub static MX_ERRORS_RETURN: ErrorHandler = pass;

/// Prints what happened and ends the process.
extern "C" fn fatal(text: Given<c_char>, code: Code) -> Code {
    let more = crate::abi::text(text, 256).unwrap_or_default();
    end(&format!("{more}: {} ({code})", describe(code).to_string_lossy()))
}

/// Ends the process.
fn end(why: &str) -> ! {
    eprintln!("MX: {why}; fatal, as no other handler is set");
    std::process::exit(-1);
}

/// Leaves it to the caller.
extern "C" fn pass(_text: Given<c_char>, code: Code) -> Code {
    code
}

/// Null: none was set.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// What the environment says of those that were not set: 0 not asked yet, 1 fatal, 2 not.
static DEFAULT: AtomicU8 = AtomicU8::new(0);

fn default_handler() -> ErrorHandler {
    let known = DEFAULT.load(Ordering::Relaxed);
    let known = if known == 0 {
        let names = ["MX_ERRORS_ARE_FATAL", "MX_FATAL_ERRORS", "OMX_FATAL_ERRORS"];
        let said = names.iter().find_map(std::env::var_os);
        let known = if said.is_some_and(|value| value == "0") { 2 } else { 1 };
        DEFAULT.store(known, Ordering::Relaxed);
        known
    } else {
        known
    };
    if known == 2 { pass } else { fatal }
}

fn from_pointer(pointer: *mut ()) -> ErrorHandler {
    if pointer.is_null() {
        return default_handler();
    }
    // SAFETY: only `set` stores here, and only handlers.
    unsafe { std::mem::transmute::<*mut (), ErrorHandler>(pointer) }
}

/// Sets the handler of the process; gives the one before.
pub fn set(handler: Option<ErrorHandler>) -> ErrorHandler {
    let pointer = handler.map_or(std::ptr::null_mut(), |handler| handler as *mut ());
    from_pointer(HANDLER.swap(pointer, Ordering::AcqRel))
}

/// Puts a failure to a handler: the endpoint's own or the process's. Called without any lock.
#[cold]
pub fn raise(own: Option<ErrorHandler>, what: &'static std::ffi::CStr, error: Return) -> Code {
    let handler = own.unwrap_or_else(|| from_pointer(HANDLER.load(Ordering::Acquire)));
    handler(Given::text(what), error as Code)
}

/// Puts the status of a request that failed to a handler, which says what the application is told:
/// the status, for one that returns what it is given.
#[cold]
pub fn raise_status(own: Option<ErrorHandler>, status: Status) -> u32 {
    let handler = own.unwrap_or_else(|| from_pointer(HANDLER.load(Ordering::Acquire)));
    let (text, code) = (describe_status(status as u32), status as u32);
    if handler as usize == fatal as *const () as usize {
        // Its codes are those of calls.
        end(&format!("a request ended: {} ({code})", text.to_string_lossy()));
    }
    handler(Given::text(text), code)
}

/// What a call that failed or not returns.
pub fn ended(what: &'static std::ffi::CStr, result: Result<(), Return>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => raise(None, what, error),
    }
}

/// `mx_set_error_handler`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_set_error_handler(handler: Option<ErrorHandler>) -> ErrorHandler {
    set(handler)
}

/// `mx_strerror`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_strerror(code: Code) -> *const c_char {
    describe(code).as_ptr()
}

/// `mx_strstatus`.
#[unsafe(no_mangle)]
pub extern "C" fn mx_strstatus(status: c_int) -> *const c_char {
    describe_status(status.cast_unsigned()).as_ptr()
}
