//! Reports of refused source addresses to the operator.
//!
//! `crate::forward` checks the source of each frame, and `crate::classify` drops frames with a
//! foreign source and counts them as `SpoofedSource`; after a batch `crate::forward` calls
//! [`Ethernet::report_refused_source`]. The report is a remark on the port (`Context::remark`: a
//! notice in `causeway port show`, no fault) with the remedy. It is not repeated until another
//! address is refused, and it covers only the last refused address of a batch. `place` is the
//! switch index of the sending port (`crate::port`). All of it runs in the dispatcher's thread of
//! the group.

use causeway_fabric::Context;
use causeway_model::Mac;
use causeway_wire::ethernet;

use crate::service::Ethernet;

impl Ethernet {
    /// Reports a refused source address, once until another address is refused.
    #[inline]
    pub(crate) fn report_refused_source(&mut self, cx: &mut Context<'_>, place: u32) {
        let Some(me) = self.switch.get_mut(place) else { return };
        if let Some((source, shown @ false)) = &mut me.refused_source {
            *shown = true;
            // In the guest's own addresses, which the operator finds in the guest.
            let source = ethernet::address(*source);
            let source = Mac(me.exchange.map_or(source, |exchange| exchange.address(source)));
            let (own, id) = (me.spec.shown_mac(), me.id);
            let text = match me.spec.learn {
                false => format!(
                    "frames from {source} are dropped: the guest's address is {own}; give the \
                     guest's device that address, or set learn = true for a bridge in the guest"
                ),
                true => format!("frames from {source} are dropped: another port has that address"),
            };
            cx.remark(id, text);
        }
    }
}
