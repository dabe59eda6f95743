//! Tests of the matching engine, one module per subject.

mod cancel;
mod channels;
mod cooperative_copy;
mod direct_read;
mod directed;
mod failed;
mod fair;
mod fast_path;
mod handler;
mod matching;
mod model;
mod peers;
mod requests;
mod rings;
