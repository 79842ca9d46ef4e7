// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Independent models of single functions: the kernel's connection tracking, models of protocols.
#![allow(unreachable_pub, missing_docs, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

pub mod gtpu;
pub mod kvs;
pub mod netfilter;
pub mod paxos;
pub mod tcp;
pub mod tracked;
