//! UCX.
