//! The last reply to each read and query of a frontend.
//!
//! The relay ([`super::relay`], in its thread) remembers successful replies of causewayd;
//! [`super::away`] returns them while no causewayd runs, and during a replay, so that a driver that
//! polls a register reads its last value. A query is a command that changes nothing ([`is_query`]).
//! The value of a register that the driver has written since is the value before the write.
//!
//! At most [`ANSWERS_MAX`] (1,024) replies of [`ANSWER_BYTES_MAX`] (2,048) bytes with their
//! command, and [`ANSWERS_BYTES_MAX`] (256 KiB) together, are kept, and at most
//! [`ANSWER_FILES_MAX`] (16) of them have a file, which stays open. Other replies are not
//! remembered: such a query waits for the next causewayd, and is refused with EIO after 4 s. A
//! remembered reply stays until a reply of the same length, and as before with or without a file,
//! to the same command replaces it.

use std::collections::BTreeMap;
use std::sync::Arc;

use causeway_attach::vfio_user::message::command;
use causeway_attach::vfio_user::stream::RawMessage;
use causeway_host::ReceivedFd;

use crate::limits::{ANSWER_BYTES_MAX, ANSWER_FILES_MAX, ANSWERS_BYTES_MAX, ANSWERS_MAX};

/// A reply.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The payload.
    pub payload: Vec<u8>,
    /// The file that is sent with the reply.
    pub file: Option<Arc<ReceivedFd>>,
}

/// Remembered replies, by command and its payload.
#[derive(Debug, Default)]
pub struct Answers {
    entries: BTreeMap<(u16, Vec<u8>), Answer>,
    /// Bytes of all keys and payloads.
    bytes: usize,
    /// Replies with a file.
    files: usize,
}

/// Returns whether a command reads and changes nothing.
pub fn is_query(code: u16) -> bool {
    matches!(
        code,
        command::DEVICE_GET_INFO
            | command::DEVICE_GET_REGION_INFO
            | command::DEVICE_GET_IRQ_INFO
            | command::REGION_READ
    )
}

impl Answers {
    /// Remembers the reply to a command, if the command is a query and there is room.
    pub fn note(&mut self, message: &RawMessage, answer: &Answer) {
        if !is_query(message.header.command) {
            return;
        }
        let size = message.payload.len().saturating_add(answer.payload.len());
        let key = (message.header.command, message.payload.clone());
        if let Some(old) = self.entries.get_mut(&key) {
            if old.payload.len() == answer.payload.len()
                && old.file.is_some() == answer.file.is_some()
            {
                *old = answer.clone();
            }
            return;
        }
        let bytes = self.bytes.saturating_add(size);
        if size <= ANSWER_BYTES_MAX
            && bytes <= ANSWERS_BYTES_MAX
            && self.entries.len() < ANSWERS_MAX
            && (answer.file.is_none() || self.files < ANSWER_FILES_MAX)
        {
            self.bytes = bytes;
            self.files = self.files.saturating_add(usize::from(answer.file.is_some()));
            self.entries.insert(key, answer.clone());
        }
    }

    /// Returns the remembered reply to a command with the same payload.
    pub fn get(&self, message: &RawMessage) -> Option<&Answer> {
        self.entries.get(&(message.header.command, message.payload.clone()))
    }
}

#[cfg(test)]
mod tests {
    use causeway_attach::vfio_user::message::Header;

    use super::*;

    #[test]
    fn vfio_answers_keep_a_bounded_number_of_files() {
        let mut answers = Answers::default();
        let query = |n: usize| RawMessage {
            header: Header::command(1, command::DEVICE_GET_REGION_INFO, 8),
            payload: n.to_le_bytes().to_vec(),
            fds: Vec::new(),
            is_odd: false,
        };
        let file: Arc<ReceivedFd> =
            Arc::new(causeway_memory::create("pages", 4096).unwrap().into());
        for n in 0..ANSWERS_MAX {
            let answer = Answer { payload: vec![0; 8], file: Some(Arc::clone(&file)) };
            answers.note(&query(n), &answer);
        }
        assert_eq!(Arc::strong_count(&file), 1 + ANSWER_FILES_MAX);
        assert!(answers.get(&query(0)).is_some() && answers.get(&query(ANSWERS_MAX - 1)).is_none());
    }
}
