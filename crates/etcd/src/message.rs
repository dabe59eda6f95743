//! The messages that the threads of the process send to its main thread.

use causeway_model::ClusterLocal;

use crate::client::WatchMessage;
use crate::control::ControlError;

/// A message to the main thread.
#[derive(Debug)]
pub enum ProcessMessage {
    /// Of the watch with a number, and by how many keys their number grew.
    Watch(u64, WatchMessage, i64),
    /// The addresses of this host.
    Local(Result<ClusterLocal, ControlError>),
    /// A signal asks for the end.
    Stop,
}
