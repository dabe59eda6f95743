//! The events of a world, as its guests observe them. Events are the only input of the checkers.
//!
//! Guests, processes and worlds make events and put them on the tape ([`crate::tape`]), in the
//! thread of the world; the hash of a world is that of the printed events, so that a change of an
//! event's text changes the hashes of all seeds. Events hold no payload, only lengths and sums
//! ([`crate::bytes`]). The types have no behaviour beyond the keys and the ends of flows. A type is
//! a plain value that checks nothing; [`crate::check`] judges.

/// A guest of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The stage, which has one group.
    pub stage: u8,
    /// The guest of the stage.
    pub guest: u8,
}

/// The destination of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// One guest.
    One(u8),
    /// Every other guest of the stage.
    All,
    /// No guest has the address, or the frame is too long: the frame must be dropped.
    Nobody,
}

/// A connection, by the identifiers common to both ends. Callers never reuse a port number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    /// The stage.
    pub stage: u8,
    /// A `SOCK_SEQPACKET` connection instead of a stream.
    pub messages: bool,
    /// The caller's guest and port number.
    pub caller: (u8, u32),
    /// The callee's guest and port number.
    pub callee: (u8, u32),
}

/// One direction of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Direction {
    /// The connection.
    pub link: Link,
    /// From caller to callee.
    pub forth: bool,
}

impl Direction {
    /// Returns the key from which the payload bytes of this direction are derived.
    pub fn key(&self) -> u64 {
        let Link { stage, messages, caller, callee } = self.link;
        let ends = u64::from(caller.1) << 32 | u64::from(callee.1);
        let guests = [stage, caller.0, callee.0, u8::from(messages), u8::from(self.forth), 0, 0, 1];
        crate::rng::mix(ends ^ crate::rng::mix(u64::from_le_bytes(guests)))
    }

    /// Returns the sending guest.
    pub fn sender(&self) -> Place {
        let guest = if self.forth { self.link.caller.0 } else { self.link.callee.0 };
        Place { stage: self.link.stage, guest }
    }

    /// Returns the other direction.
    pub fn back(&self) -> Self {
        Self { forth: !self.forth, ..*self }
    }
}

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The world performed an action other than traffic.
    Act {
        /// The time, in nanoseconds.
        now_ns: u64,
        /// The guest concerned.
        at: Place,
        /// The name of the action.
        what: &'static str,
        /// The parameter of the action.
        value: u64,
    },
    /// A guest's device starts.
    Joined(Place),
    /// A guest's device ends: detached, reset or deleted.
    Left(Place),
    /// A guest made a frame available to the backend.
    FrameSent {
        /// The sender.
        from: Place,
        /// The destination.
        to: To,
        /// The sender's frame counter.
        serial: u16,
        /// Payload bytes.
        len: u32,
        /// Segmentation is allowed.
        large: bool,
    },
    /// A guest received a frame or one segment of a frame.
    FrameGot {
        /// The receiver.
        at: Place,
        /// The sender, according to the content.
        from: Place,
        /// The frame number.
        serial: u16,
        /// The offset of this segment in the frame's payload.
        offset: u32,
        /// Payload bytes in this segment.
        len: u32,
        /// The checksum of these bytes.
        sum: u64,
        /// Headers and checksums comply with the negotiated features.
        sound: bool,
    },
    /// The number of frames that the backend has ever taken from a guest; later frames were
    /// discarded with the device.
    FramesTaken {
        /// The sender.
        at: Place,
        /// Number of frames.
        count: u64,
    },
    /// The final counters of a net port.
    Tally {
        /// The port.
        at: Place,
        /// Frames and segments delivered to the port.
        given: u64,
        /// Drops counted at the port.
        dropped: u64,
    },
    /// Every tally of a stage is on the tape: sums of sent, delivered and dropped frames must
    /// agree.
    Balance {
        /// The stage.
        stage: u8,
        /// Number of ports.
        ports: u8,
    },
    /// An end of a connection was created.
    Opened {
        /// The direction in which this end sends.
        direction: Direction,
    },
    /// Payload of a connection was made available to the backend.
    Sent {
        /// The direction.
        direction: Direction,
        /// Number of bytes.
        len: u32,
        /// These bytes end a message.
        end: bool,
    },
    /// Payload of a connection arrived.
    Got {
        /// The direction.
        direction: Direction,
        /// Number of bytes.
        len: u32,
        /// The checksum of these bytes.
        sum: u64,
        /// These bytes end a message.
        end: bool,
    },
    /// The receiver of a direction advertises its receive buffer.
    CreditAdvertised {
        /// The direction.
        direction: Direction,
        /// Bytes consumed (`fwd_cnt`).
        consumed: u32,
        /// Bytes of buffer (`buf_alloc`).
        buffer: u32,
    },
    /// The sender of a direction receives a credit advertisement.
    CreditReceived {
        /// The direction.
        direction: Direction,
        /// Bytes consumed (`fwd_cnt`).
        consumed: u32,
        /// Bytes of buffer (`buf_alloc`).
        buffer: u32,
    },
    /// The sender of a direction shuts the direction down.
    Shut(Direction),
    /// The receiver of a direction observes the end of the stream.
    Eof(Direction),
    /// The sender of a direction has closed the whole connection.
    Closed(Direction),
    /// The sender of a direction is notified that the connection is over.
    Over(Direction),
    /// The backend counted connections that it ended for a documented reason.
    Excuse {
        /// The stage.
        stage: u8,
    },
    /// At the end, after all guests behaved correctly: an end of a connection is still open.
    Still {
        /// The direction in which this end sends.
        direction: Direction,
        /// The connection request has no answer yet.
        asking: bool,
    },
    /// An event between hosts joined by links.
    Crossing(Crossing),
    /// An event between endpoints of NICs.
    Message(MessageEvent),
    /// At the end: a resource count that must be zero.
    Remains {
        /// The stage.
        stage: u8,
        /// The resource.
        what: &'static str,
        /// The count.
        count: u64,
    },
}

/// A message between MX endpoints, identified by the sender's life and a sequence number for each
/// pair of sender and receiver. In a [`Place`], `stage` is the NIC and `guest` the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// The sender.
    pub from: Place,
    /// The life of the sender.
    pub life: u8,
    /// The receiver.
    pub to: Place,
    /// Sequence number, from 0.
    pub number: u32,
}

/// An event between MX endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageEvent {
    /// A process posted a message.
    Sent {
        /// The message.
        id: MessageId,
        /// Length in bytes.
        len: u32,
    },
    /// A process is notified of a message, whose data may still have to be pulled.
    Heard {
        /// The receiver.
        at: Place,
        /// The life of the receiver.
        life: u8,
        /// The message, according to its match information.
        id: MessageId,
    },
    /// A process has received a message completely.
    Got {
        /// The receiver.
        at: Place,
        /// The life of the receiver.
        life: u8,
        /// The message, according to its match information.
        id: MessageId,
        /// Number of bytes received.
        len: u32,
        /// The content equals the sent content.
        sound: bool,
    },
    /// The sender gets the completion of a message.
    Ended {
        /// The message.
        id: MessageId,
        /// The message was delivered; otherwise it failed.
        well: bool,
    },
    /// A process or its NIC died, after the process took the events in its rings.
    Died {
        /// The endpoint.
        at: Place,
        /// The life of the process.
        life: u8,
    },
    /// The network is healthy and all NICs know each other: every message sent from now on must
    /// arrive.
    Calm,
    /// Messages sent since `Calm` have had the time to arrive.
    Arrived,
}

/// An event in a world of hosts joined by links. In a [`Place`], `stage` is the group; it does not
/// depend on the guest's host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crossing {
    /// A guest starts on a host.
    Came {
        /// The guest.
        at: Place,
        /// The host.
        host: u8,
    },
    /// A guest stops on its host.
    Went(Place),
    /// A guest made a frame available to the backend.
    Sent {
        /// The sender.
        from: Place,
        /// The destination.
        to: To,
        /// The sender's frame counter.
        serial: u16,
        /// Payload bytes.
        len: u32,
    },
    /// A guest received a frame or one segment of a frame.
    Got {
        /// The receiver.
        at: Place,
        /// The sender, according to the content.
        from: Place,
        /// The frame number.
        serial: u16,
        /// The offset of this segment in the frame's payload.
        offset: u32,
        /// Payload bytes in this segment.
        len: u32,
        /// The checksum of these bytes.
        sum: u64,
        /// Headers and checksums comply with the negotiated features.
        sound: bool,
    },
    /// The network has been healthy for `HEAL_NS`, no guest moves, and the last move was `MOVE_NS`
    /// ago: every frame sent from now on must arrive.
    Calm,
    /// Frames sent since `Calm` have had the time to arrive.
    Arrived,
    /// The amount of a bounded resource in use on a host.
    Holds {
        /// The host.
        host: u8,
        /// The resource.
        what: &'static str,
        /// The amount in use.
        count: u64,
        /// The limit.
        most: u64,
    },
}
