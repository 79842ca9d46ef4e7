//! Functions on interfaces: hosts in network name spaces, joined by veth pairs, talking with real sockets. Everything
//! happens in mount and network name spaces that die with the process that made them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, clippy::print_stdout)]

#[path = "../common/mod.rs"]
mod common;

mod actor;
mod attach;
mod balancer;
mod firewall;
mod flood;
mod guide;
mod knocking;
mod lab;
mod logs;
mod maps;
mod marks;
mod nat;
mod peer;
mod queues;
mod timers;
