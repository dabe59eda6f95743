//! Answers peers that measure.

use crate::api::Api;
use crate::args::Serve;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::order::{BYTES, ORDER, Order, Play};
use crate::play::Player;

/// Serves one peer after the other.
pub fn run(api: &Api, how: &Serve) -> Result<(), Error> {
    // Dropped after the endpoint, which may have a receive into it when an error ends this.
    let mut bytes = [0; BYTES];
    let endpoint = Endpoint::open(api, &how.own, how.endpoint.into())?;
    eprintln!("causeway-mx: endpoint {} is open", how.endpoint);
    loop {
        // SAFETY: the room is looked at when the request has ended, and there longer than the endpoint.
        let receive = unsafe { endpoint.receive(ORDER, &mut bytes) }?;
        let status = endpoint.wait_ever(receive)?;
        let player = Player { endpoint: &endpoint, peer: status.source, asked: false };
        let order = Order::parse(bytes.get(..status.len as usize).unwrap_or(&[]));
        match order {
            Some(Order { play: Play::End, .. }) if how.once => return Ok(()),
            Some(Order { play: Play::End, .. }) => {}
            // A peer that dies or talks nonsense is not the end of it.
            Some(order) => match player.play(&order, &mut || {}) {
                Err(error) if how.once => return Err(error),
                Err(error) => eprintln!("causeway-mx: {error}"),
                Ok(()) => {}
            },
            None => eprintln!("causeway-mx: {}", Error::Answer),
        }
    }
}
