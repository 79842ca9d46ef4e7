// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Functions on interfaces: hosts in network namespaces, connected by veth pairs, with real sockets. The tests run in
//! mount and network namespaces that end with the process that made them.
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
mod logs;
mod maps;
mod marks;
mod nat;
mod observe;
mod peer;
mod queues;
mod timers;
mod user;
