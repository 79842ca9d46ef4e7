// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices in network namespaces; skipped without the privileges.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod common;
#[cfg(feature = "dpdk")]
mod dpdk;
mod faults;
mod forwarding;
mod passing;
mod programs;
