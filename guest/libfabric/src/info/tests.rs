//! What is asked for and what is offered, without the core.
