//! Extended finite state machines over packets [FlowBlaze 3].
#![forbid(unsafe_code)]

pub mod model;
