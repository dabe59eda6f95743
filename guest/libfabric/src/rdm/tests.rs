//! Endpoints of one process, over a board of its own.
