//! The driver side, for processes that attach themselves.
