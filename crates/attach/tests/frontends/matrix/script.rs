//! The language of the scripts: one step a line, `#` begins a comment.
//!
//! | line | meaning |
//! |---|---|
//! | `device net PAIRS`, `device vsock` | the model of the server; first line |
//! | `MESSAGE FIELD...` | sends a request; fields are numbers, names of feature bits or `fd` |
//! | `MESSAGE ... = NUMBER` | expects this number in the reply |
//! | `MESSAGE ... = NAME... -NAME...` | expects a reply with and without these feature bits |
//! | `MESSAGE ... ok` | asks for an acknowledgement (REPLY_ACK) and expects success |
//! | `acknowledge` | asks for an acknowledgement of each further request |
//! | `each N...: STEP; STEP` | the steps for each queue, with `q` as its number |
//! | `traffic` | moves a frame through each pair of running queues |
//!
//! A set of bits is `NAME... -NAME...`; `offered` is the last reply to the request's counterpart
//! (GET_FEATURES, GET_PROTOCOL_FEATURES).

use causeway_attach::vhost_user::FrontendReq as R;
use causeway_attach::vhost_user::VhostUserProtocolFeatures as P;

/// One message.
#[derive(Debug, Clone)]
pub struct Message {
    /// The request.
    pub request: R,
    /// The fields.
    pub fields: Vec<String>,
    /// The expected answer.
    pub expected: Vec<String>,
    /// Whether an acknowledgement is requested.
    pub acknowledge: bool,
}

/// A step of a script.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends a message and checks the answer.
    Send(Message),
    /// Moves a frame through each pair of running queues.
    Traffic,
}

/// Requests by the name that scripts use.
const REQUESTS: [R; 28] = [
    R::GET_FEATURES,
    R::SET_FEATURES,
    R::SET_OWNER,
    R::RESET_OWNER,
    R::SET_MEM_TABLE,
    R::SET_VRING_NUM,
    R::SET_VRING_ADDR,
    R::SET_VRING_BASE,
    R::GET_VRING_BASE,
    R::SET_VRING_KICK,
    R::SET_VRING_CALL,
    R::SET_VRING_ERR,
    R::GET_PROTOCOL_FEATURES,
    R::SET_PROTOCOL_FEATURES,
    R::GET_QUEUE_NUM,
    R::SET_VRING_ENABLE,
    R::SET_BACKEND_REQ_FD,
    R::GET_CONFIG,
    R::SET_CONFIG,
    R::GET_INFLIGHT_FD,
    R::SET_INFLIGHT_FD,
    R::RESET_DEVICE,
    R::GET_MAX_MEM_SLOTS,
    R::ADD_MEM_REG,
    R::REM_MEM_REG,
    R::SET_STATUS,
    R::GET_STATUS,
    R::SEND_RARP,
];

/// Feature bits of the ring, the transport and virtio-net (virtio 1.3, 5.1.3 and 6).
const FEATURES: [(&str, u32); 14] = [
    ("CSUM", 0),
    ("GUEST_CSUM", 1),
    ("MAC", 5),
    ("MRG_RXBUF", 15),
    ("STATUS", 16),
    ("CTRL_VQ", 17),
    ("MQ", 22),
    ("SEQPACKET", 1),
    ("LOG_ALL", 26),
    ("INDIRECT", 28),
    ("EVENT_IDX", 29),
    ("PROTOCOL", 30),
    ("VERSION_1", 32),
    ("PACKED", 34),
];

/// Returns the bit of a name in the messages of `request`.
fn bit(request: R, name: &str) -> u64 {
    if matches!(request, R::GET_PROTOCOL_FEATURES | R::SET_PROTOCOL_FEATURES) {
        let known = P::from_name(name).unwrap_or_else(|| panic!("protocol feature {name}"));
        return known.bits();
    }
    let known = FEATURES.iter().find(|(known, _)| *known == name);
    1 << known.unwrap_or_else(|| panic!("feature {name}")).1
}

/// Returns the bits that `words` add and remove.
pub fn bits(request: R, words: &[String], offered: u64) -> (u64, u64) {
    words.iter().fold((0, 0), |(with, without), word| match word.strip_prefix('-') {
        Some(name) => (with, without | bit(request, name)),
        None if word == "offered" => (with | offered, without),
        None => (with | bit(request, word), without),
    })
}

/// The model of the server: queue pairs of a network device, or a socket device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Device {
    Net(usize),
    Vsock,
}

/// Returns the device and the steps of a script, each with its line number.
pub fn parse(text: &str) -> (Device, Vec<(usize, Step)>) {
    let mut lines = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then_some((number, line))
    });
    let device = match lines.next().map(|(_, line)| line.split_whitespace().collect::<Vec<_>>()) {
        Some(words) if words == ["device", "vsock"] => Device::Vsock,
        Some(words) if words.len() == 3 && words[..2] == ["device", "net"] => {
            Device::Net(words[2].parse().unwrap())
        }
        other => panic!("expected a device, found {other:?}"),
    };
    let mut steps = Vec::new();
    let mut acknowledge = false;
    for (number, line) in lines {
        match line.strip_prefix("each ").and_then(|rest| rest.split_once(':')) {
            Some((queues, body)) => {
                for queue in queues.split_whitespace() {
                    let all = body.split(';').map(|one| one.trim());
                    steps.extend(all.map(|one| (number, step(one, queue, acknowledge))));
                }
            }
            None if line == "acknowledge" => acknowledge = true,
            None => steps.push((number, step(line, "", acknowledge))),
        }
    }
    (device, steps)
}

/// Returns one step, with `queue` in place of the word `q`.
fn step(text: &str, queue: &str, acknowledge: bool) -> Step {
    if text == "traffic" {
        return Step::Traffic;
    }
    let (sent, expected) = text.split_once('=').unwrap_or((text, ""));
    let words = |text: &str| -> Vec<String> {
        text.split_whitespace()
            .map(|word| if word == "q" { queue.to_owned() } else { word.to_owned() })
            .collect()
    };
    let mut fields = words(sent);
    let name = fields.remove(0);
    let request = REQUESTS.iter().find(|request| format!("{request:?}") == name);
    let own = fields.pop_if(|last| last == "ok").is_some();
    let request = *request.unwrap_or_else(|| panic!("unknown message {name}"));
    Step::Send(Message {
        request,
        fields,
        expected: words(expected),
        acknowledge: own || acknowledge,
    })
}
