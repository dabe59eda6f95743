//! Error handlers. Each failed call is reported to a handler before the call returns.
//!
//! The handler of the endpoint has precedence over that of the process. It is the parameter
//! `MX_PARAM_ERROR_HANDLER` of `mx_open_endpoint` (`call::lifecycle`) and stays until the endpoint
//! is closed; null selects none. Calls without an endpoint argument (`mx_init`, `mx_open_endpoint`,
//! calls about NICs and addresses), and calls with an invalid endpoint, report to that of the
//! process, which `mx_set_error_handler` sets; null removes it. Without either, the default is
//! `MX_ERRORS_ARE_FATAL`, which prints the error and ends the process; the value 0 of the
//! environment variable `MX_ERRORS_ARE_FATAL`, `MX_FATAL_ERRORS` or `OMX_FATAL_ERRORS` (the first
//! that is set) selects `MX_ERRORS_RETURN`. The code that a handler returns becomes the result of
//! the call, or the status code of the failed request.
//!
//! A handler runs in the calling thread, without any lock of the library, and may call the library.
//! Failed requests, also those without a handle, are reported by `wait::report_failures`, one at a
//! time per endpoint, in the thread of a call that finds them: a thread that reports already takes
//! later failures too. A truncated message is a failed request. Setting a handler while another
//! thread fails may report to either handler.

use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

use causeway_message::status::Status;

use crate::abi::{CallerPtr, ErrorHandler};
use crate::code::{Code, Return, describe, describe_status};

/// `MX_ERRORS_ARE_FATAL`: a symbol with the address of the handler.
#[unsafe(no_mangle)]
pub static MX_ERRORS_ARE_FATAL: ErrorHandler = fatal;
/// `MX_ERRORS_RETURN`.
#[unsafe(no_mangle)]
pub static MX_ERRORS_RETURN: ErrorHandler = pass;

/// Prints the error and ends the process.
extern "C" fn fatal(text: CallerPtr<c_char>, code: Code) -> Code {
    let more = crate::abi::text(text, 256).unwrap_or_default();
    end(&format!("{more} failed: {} ({code})", describe(code).to_string_lossy()))
}

/// Ends the process with a message.
fn end(why: &str) -> ! {
    eprintln!("MX: {why}; the process ends, because no error handler is set (MX_ERRORS_RETURN)");
    std::process::exit(-1);
}

/// Returns the code to the caller.
extern "C" fn pass(_text: CallerPtr<c_char>, code: Code) -> Code {
    code
}

/// The handler of the process. Null: no handler is set, and the default applies.
static HANDLER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Default handler by the environment, which is read once: 0 unknown, 1 fatal, 2 returning.
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
    // SAFETY: only `set` stores here, and it stores only handlers.
    unsafe { std::mem::transmute::<*mut (), ErrorHandler>(pointer) }
}

/// Sets the handler of the process; `None` returns to the default. Returns the previous handler,
/// or the default handler if none was set.
pub fn set(handler: Option<ErrorHandler>) -> ErrorHandler {
    let pointer = handler.map_or(std::ptr::null_mut(), |handler| handler as *mut ());
    from_pointer(HANDLER.swap(pointer, Ordering::AcqRel))
}

/// Reports a failure to the handler of the endpoint or of the process. Must be called without a
/// lock.
#[cold]
pub fn raise(own: Option<ErrorHandler>, call: &'static std::ffi::CStr, error: Return) -> Code {
    let handler = own.unwrap_or_else(|| from_pointer(HANDLER.load(Ordering::Acquire)));
    handler(CallerPtr::text(call), error as Code)
}

/// Reports the status of a failed request to a handler. Returns the code for the application: that
/// of the handler, which is usually the same.
#[cold]
pub fn raise_status(own: Option<ErrorHandler>, status: Status) -> u32 {
    let handler = own.unwrap_or_else(|| from_pointer(HANDLER.load(Ordering::Acquire)));
    let (text, code) = (describe_status(status as u32), status as u32);
    if handler as usize == fatal as *const () as usize {
        // The codes of `fatal` are return codes, not status codes.
        end(&format!("a request failed: {} ({code})", text.to_string_lossy()));
    }
    handler(CallerPtr::text(text), code)
}

/// Returns the code of a call, after a failure was reported to the handler of the process.
pub fn finish(call: &'static std::ffi::CStr, result: Result<(), Return>) -> Code {
    match result {
        Ok(()) => 0,
        Err(error) => raise(None, call, error),
    }
}

/// `mx_set_error_handler`: null returns to the default. Never returns null.
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
