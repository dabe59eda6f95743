//! Our layouts and numbers against those of the installed headers.
