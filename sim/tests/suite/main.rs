//! What a world is and what its checkers find. One program: each links the services.

mod budget;
mod checkers;
mod guest;
mod letters;
mod replay;
mod stage;
