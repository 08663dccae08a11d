//! What the server sends: arguments of a command, and the frames of `serve`.

pub mod args;
pub mod frame;
