//! Tests of all layouts.
