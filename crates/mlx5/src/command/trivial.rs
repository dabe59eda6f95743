//! Commands about objects that are only numbers, and the query of pages that the function wants
//! (none).
//!
//! Protection domains, transport domains, XRC domains and counter sets have no content: other
//! objects name them. Doorbell pages (UAR) are pages of BAR 0 that the driver maps into processes;
//! each is handed out to a single owner at a time, so that processes have distinct pages. Nothing
//! in them is ever read.
//!
//! A full table, and a BAR without free pages, answer *limit exceeded*; an unknown number answers
//! *bad resource*. A protection or transport domain or counter set is destroyed although other
//! objects name it: these keep working. An XRC domain with target queue pairs or shared receive
//! queues is not destroyed (*bad resource state*): a driver keeps the targets of processes that
//! exited, and destroys them when the domain is closed. Only new queue pairs look their domain up;
//! memory keys and receive queues do not. Numbers return late (`verbs::number`; those of counter
//! sets have 8 bits only), pages in the order of their release.
//!
//! `super::dispatch` calls the handlers, in the dispatcher's turn of the port's group.

use causeway_verbs::number::Table;
use causeway_wire::mlx5::command::Status;

use super::{Input, Outcome, Output};
use crate::function::Function;

/// Makes an object without content, and returns its number to the driver.
fn create(table: &mut Table<()>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let number = table.insert(()).map_err(|_| Status::ExceededLimit)?;
    output.put_number(number)
}

/// Destroys an object without content.
fn destroy(table: &mut Table<()>, input: Input<'_>) -> Outcome {
    table.remove(input.number()?).ok_or(Status::BadResource)
}

/// Executes ALLOC_PD: makes a protection domain.
pub(crate) fn alloc_pd(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    create(&mut f.objects.domains, output)
}

/// Executes DEALLOC_PD.
pub(crate) fn dealloc_pd(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    destroy(&mut f.objects.domains, input)
}

/// Executes ALLOC_TRANSPORT_DOMAIN.
pub(crate) fn alloc_td(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    create(&mut f.objects.transport_domains, output)
}

/// Executes DEALLOC_TRANSPORT_DOMAIN.
pub(crate) fn dealloc_td(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    destroy(&mut f.objects.transport_domains, input)
}

/// Executes ALLOC_XRCD: makes an XRC domain without users.
pub(crate) fn alloc_xrcd(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let number = f.objects.xrc_domains.insert(0).map_err(|_| Status::ExceededLimit)?;
    output.put_number(number)
}

/// Executes DEALLOC_XRCD, unless the domain has users.
pub(crate) fn dealloc_xrcd(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    let number = input.number()?;
    match f.objects.xrc_domains.get(number).ok_or(Status::BadResource)? {
        0 => f.objects.xrc_domains.remove(number).map(drop).ok_or(Status::BadResource),
        _ => Err(Status::BadResourceState),
    }
}

/// Executes ALLOC_Q_COUNTER: makes a counter set.
pub(crate) fn alloc_counter(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    // The number of a counter set has 8 bits.
    create(&mut f.objects.counter_sets, output)
}

/// Executes DEALLOC_Q_COUNTER.
pub(crate) fn dealloc_counter(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    destroy(&mut f.objects.counter_sets, input)
}

/// Executes ALLOC_UAR: hands out a doorbell page.
pub(crate) fn alloc_uar(f: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.check_number()?;
    let page = f.objects.uar_pages.allocate().ok_or(Status::ExceededLimit)?;
    output.put_number(page)
}

/// Executes DEALLOC_UAR.
pub(crate) fn dealloc_uar(f: &mut Function, input: Input<'_>, _: &mut Output<'_>) -> Outcome {
    if f.objects.uar_pages.release(input.number()?) { Ok(()) } else { Err(Status::BadResource) }
}

/// Answers a query of pages that the function wants: none, ever.
pub(crate) fn query_pages(_: &mut Function, _: Input<'_>, output: &mut Output<'_>) -> Outcome {
    output.put(0xc, &[0; 4])
}
