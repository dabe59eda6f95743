//! The live view of `causeway top`: samples of the daemon's state, rates, tables and the screen.
//!
//! [`sample`] requests the state, [`report`] computes rates from two samples,
//! [`listing`](mod@listing) makes sorted and filtered tables of them, and [`tables`] defines the
//! columns. A batch prints these tables. The full-screen view adds [`app`], the state that keys
//! change, [`screen`], which draws the state, and [`session`], which owns the terminal and the
//! thread that sends the requests.
//!
//! All but [`sample`] and [`session`] do no I/O. A refresh sends five requests, bounded as all
//! replies are; connections are limited to [`TOP_CONNECTIONS_MAX`]. A failed refresh keeps the last
//! report on the screen, marked as old. `commands::top` is the caller.
//!
//! [`TOP_CONNECTIONS_MAX`]: crate::limits::TOP_CONNECTIONS_MAX

pub mod app;
pub mod listing;
pub mod report;
pub mod sample;
mod screen;
pub mod session;
mod tables;
#[cfg(test)]
mod tests;

pub use tables::{column_names, listing};
