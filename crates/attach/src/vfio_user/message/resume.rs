//! The payload of RESUME, a command of this project.
//!
//! The holder keeps a frontend connected while no daemon runs. It sends the recorded set-up to the
//! next daemon between the two phases: DMA mappings, eventfds and register writes. The server
//! accepts the command on the holder's sockets only
//! ([`may_resume`](crate::vfio_user::DeviceDescription::may_resume)), and the holder refuses it
//! from frontends. A payload of another length or value is no phase. It is parsed in the control
//! thread of the frontend, and emitted in the relay's thread in the holder.

/// The phase of a resumption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumePhase {
    /// The recorded set-up follows. Register writes ring no doorbell.
    Begin,
    /// As `Begin`, for a frontend whose memory no daemon has used: the device has no earlier state.
    BeginNew,
    /// The set-up is complete: the device continues, or reports its loss to the driver.
    End,
}

impl ResumePhase {
    /// Parses the payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        match payload {
            [0, 0, 0, 0] => Some(Self::Begin),
            [1, 0, 0, 0] => Some(Self::End),
            [2, 0, 0, 0] => Some(Self::BeginNew),
            _ => None,
        }
    }

    /// Returns the payload.
    pub fn emit(self) -> Vec<u8> {
        match self {
            Self::Begin => vec![0, 0, 0, 0],
            Self::End => vec![1, 0, 0, 0],
            Self::BeginNew => vec![2, 0, 0, 0],
        }
    }
}
