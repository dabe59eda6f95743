//! What happened in a world, as its guests saw it. Checkers know nothing else.

/// A guest of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which stage: its group.
    pub stage: u8,
    /// Which guest of it.
    pub guest: u8,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// To one guest.
    One(u8),
    /// To every other guest of the stage.
    All,
    /// To an address that nobody has, or it is too long: it must be dropped.
    Nobody,
}

/// A connection, by what both ends call it. Callers never use a port number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// Which stage.
    pub stage: u8,
    /// Messages, not a stream.
    pub messages: bool,
    /// The caller's guest and port number.
    pub caller: (u8, u32),
    /// The callee's guest and port number.
    pub callee: (u8, u32),
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The connection.
    pub link: Link,
    /// From caller to callee.
    pub forth: bool,
}

impl Way {
    /// What its bytes are made of.
    pub fn key(&self) -> u64 {
        let Link { stage, messages, caller, callee } = self.link;
        let ends = u64::from(caller.1) << 32 | u64::from(callee.1);
        let guests = [stage, caller.0, callee.0, u8::from(messages), u8::from(self.forth), 0, 0, 1];
        crate::rng::mix(ends ^ crate::rng::mix(u64::from_le_bytes(guests)))
    }

    /// Who sends.
    pub fn sender(&self) -> Place {
        let guest = if self.forth { self.link.caller.0 } else { self.link.callee.0 };
        Place { stage: self.link.stage, guest }
    }

    /// The other direction.
    pub fn back(&self) -> Self {
        Self { forth: !self.forth, ..*self }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The world did something that is no traffic.
    Act {
        /// The time, in nanoseconds.
        now_ns: u64,
        /// Where.
        at: Place,
        /// What.
        what: &'static str,
        /// With which number.
        value: u64,
    },
    /// A guest's device begins a life.
    Joined(Place),
    /// A guest's device ends its life: left, reset or deleted.
    Left(Place),
    /// A guest showed a frame to the backend.
    FrameSent {
        /// The sender.
        from: Place,
        /// Its destination.
        to: To,
        /// Counts the sender's frames.
        serial: u16,
        /// Bytes of payload.
        len: u32,
        /// Whether it may be cut into pieces.
        large: bool,
    },
    /// A guest got a frame, or one piece of it.
    FrameGot {
        /// The receiver.
        at: Place,
        /// Who sent it, by its content.
        from: Place,
        /// The number of the frame.
        serial: u16,
        /// Where in the frame's payload this piece begins.
        offset: u32,
        /// Bytes of payload in this piece.
        len: u32,
        /// The sum of these bytes.
        sum: u64,
        /// Whether headers and checksums are what was negotiated.
        sound: bool,
    },
    /// How many frames of a guest the backend has taken, ever; the others left with it.
    Taken {
        /// The sender.
        at: Place,
        /// Frames.
        count: u64,
    },
    /// What a net port counted in all.
    Tally {
        /// The port.
        at: Place,
        /// Frames and pieces given to it.
        given: u64,
        /// Drops counted at it.
        dropped: u64,
    },
    /// All tallies of a stage are told: they must come out even.
    Balance {
        /// The stage.
        stage: u8,
        /// Its ports.
        ports: u8,
    },
    /// An end of a connection came to be.
    Opened {
        /// By the direction that it sends.
        way: Way,
    },
    /// Bytes of a connection were shown to the backend.
    Sent {
        /// The direction.
        way: Way,
        /// How many.
        len: u32,
        /// Whether a message ends there.
        end: bool,
    },
    /// Bytes of a connection arrived.
    Got {
        /// The direction.
        way: Way,
        /// How many.
        len: u32,
        /// Their sum.
        sum: u64,
        /// Whether a message ends there.
        end: bool,
    },
    /// The receiver of a direction says what room it has.
    Room {
        /// The direction.
        way: Way,
        /// Bytes consumed.
        consumed: u32,
        /// Bytes of buffer.
        buffer: u32,
    },
    /// The sender of a direction is told of that room.
    Told {
        /// The direction.
        way: Way,
        /// Bytes consumed.
        consumed: u32,
        /// Bytes of buffer.
        buffer: u32,
    },
    /// The sender of a direction says that it sends no more.
    Shut(Way),
    /// The receiver of a direction is told that no more comes.
    Eof(Way),
    /// The sender of a direction has ended the whole connection.
    Closed(Way),
    /// The sender of a direction is told that the connection is over.
    Over(Way),
    /// The backend counted connections that it ended for a good reason.
    Excuse {
        /// The stage.
        stage: u8,
    },
    /// At the end, when all guests behaved for long: an end of a connection is open still.
    Still {
        /// By the direction that it sends.
        way: Way,
        /// It has no answer yet.
        asking: bool,
    },
    /// Something happened between hosts.
    Crossing(Crossing),
    /// Something happened between endpoints of boards.
    Post(Post),
    /// At the end: something that must be none.
    Remains {
        /// Where.
        stage: u8,
        /// What.
        what: &'static str,
        /// How much.
        count: u64,
    },
}

/// A message between endpoints of boards: of which life of its sender, and the how manyth from there
/// to there. The stage of a place is its board here, the guest its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Letter {
    /// The sender.
    pub from: Place,
    /// Which of its lives.
    pub life: u8,
    /// The receiver.
    pub to: Place,
    /// Counts from 0.
    pub number: u32,
}

/// What happened between endpoints of boards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Post {
    /// A process asked for a message to be sent.
    Sent {
        /// Which.
        letter: Letter,
        /// Of how many bytes.
        len: u32,
    },
    /// A process hears of a message, which may be yet to be pulled.
    Heard {
        /// The receiver.
        at: Place,
        /// Which of its lives.
        life: u8,
        /// Which message, by its match information.
        letter: Letter,
    },
    /// A process has a message.
    Got {
        /// The receiver.
        at: Place,
        /// Which of its lives.
        life: u8,
        /// Which message, by its match information.
        letter: Letter,
        /// How many bytes came.
        len: u32,
        /// Whether they are the message's.
        sound: bool,
    },
    /// The sender hears that a message is there, or failed.
    Ended {
        /// Which.
        letter: Letter,
        /// It is there.
        well: bool,
    },
    /// A process is gone, or its board is. What was in its rings it took before.
    Died {
        /// Its endpoint.
        at: Place,
        /// Which life of it.
        life: u8,
    },
    /// All is well, and all have heard of each other: what is sent from now on arrives.
    Calm,
    /// What was sent since then has had the time to arrive.
    Arrived,
}

/// What happened in a world of hosts that links join. The stage of a place is its group here,
/// wherever the guest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crossing {
    /// A guest runs on a host.
    Came {
        /// The guest.
        at: Place,
        /// Where.
        host: u8,
    },
    /// It runs there no more.
    Went(Place),
    /// It showed a frame to the backend.
    Sent {
        /// The sender.
        from: Place,
        /// Its destination.
        to: To,
        /// Counts the sender's frames.
        serial: u16,
        /// Bytes of payload.
        len: u32,
    },
    /// It got a frame, or one piece of it.
    Got {
        /// The receiver.
        at: Place,
        /// Who sent it, by its content.
        from: Place,
        /// The number of the frame.
        serial: u16,
        /// Where in the frame's payload this piece begins.
        offset: u32,
        /// Bytes of payload in this piece.
        len: u32,
        /// The sum of these bytes.
        sum: u64,
        /// Whether headers and checksums are what was negotiated.
        sound: bool,
    },
    /// The network has been whole for long, and nobody moves: what is sent from now on arrives.
    Calm,
    /// What was sent since then has had the time to arrive.
    Arrived,
    /// How much of something bounded a host holds.
    Holds {
        /// Which host.
        host: u8,
        /// What.
        what: &'static str,
        /// How much.
        count: u64,
        /// How much it may be.
        most: u64,
    },
}
