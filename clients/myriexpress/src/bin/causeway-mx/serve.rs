//! The `serve` command: answers peers that measure.
//!
//! One measurement is served at a time, in the order of the requests; other peers wait, each at
//! most for its own patience. A request that is invalid or longer than 24 bytes is reported and
//! ignored, and with `--once` too long a request is the command's error. A peer without a message
//! for the patience of the command line is given up, after which the next is served. The command
//! ends when it is stopped, when the library refuses the next receive, or with `--once` after the
//! first peer that has finished or failed; the error of that peer is then the command's error. It
//! authenticates no peer: the key of the tool is public. `main` calls [`run`], in the only thread.

use crate::api::Api;
use crate::args::ServeArgs;
use crate::bench_request::{BYTES, BenchRequest, MessagePattern, REQUEST};
use crate::endpoint::BenchEndpoint;
use crate::error::Error;
use crate::traffic::BenchSide;

/// Serves one peer after the other.
pub fn run(api: &Api, how: &ServeArgs) -> Result<(), Error> {
    // Dropped after the endpoint, which may have a pending receive into it after an error.
    let mut bytes = [0; BYTES];
    let endpoint = BenchEndpoint::open(api, &how.own, how.endpoint.into())?;
    eprintln!("causeway-mx: endpoint {} is open", how.endpoint);
    loop {
        // SAFETY: the buffer is read after the request has ended, and outlives the endpoint.
        let receive = unsafe { endpoint.receive(REQUEST, &mut bytes) }?;
        let status = match endpoint.wait_ever(receive) {
            Ok(status) => status,
            // A receive from any peer fails by itself only if the message is longer.
            Err(error @ Error::Status(_)) if !how.once => {
                eprintln!("causeway-mx: {error}");
                continue;
            }
            Err(error) => return Err(error),
        };
        let side = BenchSide { endpoint: &endpoint, peer: status.source, asked: false };
        let order = BenchRequest::parse(bytes.get(..status.len as usize).unwrap_or(&[]));
        match order {
            Some(BenchRequest { pattern: MessagePattern::End, .. }) if how.once => return Ok(()),
            Some(BenchRequest { pattern: MessagePattern::End, .. }) => {}
            // A peer that ends or sends invalid data does not end the service.
            Some(order) => match side.run(&order, &mut || {}) {
                Err(error) if how.once => return Err(error),
                Err(error) => eprintln!("causeway-mx: {error}"),
                Ok(()) => {}
            },
            None => eprintln!("causeway-mx: {}", Error::Answer),
        }
    }
}
