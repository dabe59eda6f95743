//! The boards of this host that are there.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use causeway_endpoint::Error;
use causeway_endpoint::board::{Conversation, sockets};

/// A board that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Board {
    /// By which endpoints of it are opened.
    pub number: u32,
    pub nic: u64,
    pub name: String,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The first socket, if there is one.
    path: Option<PathBuf>,
    why: Error,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Some(path) = &self.path else {
            return f.write_str(
                "no board of this host is found: give causewayd a port of kind mx whose socket is \
                 /run/causeway/mx*.sock, or name its socket by CAUSEWAY_MX",
            );
        };
        write!(f, "{}: ", path.display())?;
        match self.why {
            Error::NoPermission => f.write_str(
                "permission denied: socket_group and socket_mode of causewayd's configuration say \
                 who may use the board",
            ),
            Error::Version => f.write_str(
                "the daemon is of another version: use the library and the daemon of one release",
            ),
            Error::NoDaemon | Error::DaemonGone => f.write_str(
                "the daemon does not answer: start causewayd, or name a board's socket by \
                 CAUSEWAY_MX",
            ),
            why => write!(f, "{why}"),
        }
    }
}

/// Who took so long to answer nothing is not asked for more boards: daemons have several.
const SLOW: Duration = Duration::from_secs(1);
/// Nor is it asked again so soon: an MPI library looks ten times when it starts.
const AGAIN: Duration = Duration::from_secs(60);

/// Who was slow, and when.
static SLOWEST: Mutex<Option<(Instant, Missing)>> = Mutex::new(None);

/// All boards that answer now.
pub fn all() -> Result<Vec<Board>, Missing> {
    // Whoever looks at the same time waits for what the first finds.
    let mut slowest = SLOWEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, missing)) = slowest.as_ref().filter(|(when, _)| when.elapsed() < AGAIN) {
        return Err(missing.clone());
    }
    *slowest = None;
    let sockets = sockets();
    let mut missing = Missing { path: sockets.first().cloned(), why: Error::NoBoard };
    let mut boards: Vec<Board> = Vec::new();
    for (number, path) in (0_u32..).zip(sockets) {
        let since = Instant::now();
        match Conversation::new(number) {
            Ok(conversation) => {
                let known = conversation.board;
                if boards.iter().all(|board| board.nic != known.nic) {
                    boards.push(Board { number, nic: known.nic, name: known.name });
                }
            }
            Err(why) => {
                if missing.why == Error::NoBoard {
                    missing = Missing { path: Some(path), why };
                }
                if since.elapsed() > SLOW {
                    *slowest = boards.is_empty().then(|| (Instant::now(), missing.clone()));
                    break;
                }
            }
        }
    }
    if boards.is_empty() { Err(missing) } else { Ok(boards) }
}

#[cfg(test)]
mod tests {
    use super::{Error, Missing};

    #[test]
    fn what_is_missing_is_said_with_its_remedy() {
        for (path, why, remedy) in [
            (None, Error::NoBoard, "CAUSEWAY_MX"),
            (Some("/x/mx0.sock"), Error::NoPermission, "/x/mx0.sock: permission denied"),
            (Some("/x/mx0.sock"), Error::NoDaemon, "start causewayd"),
            (Some("/x/mx0.sock"), Error::Version, "of one release"),
            (Some("/x/mx0.sock"), Error::NoResources, "/x/mx0.sock: a limit is reached"),
        ] {
            let said = Missing { path: path.map(Into::into), why }.to_string();
            assert!(said.contains(remedy) && !said.contains('\n'), "{said}");
        }
    }
}
