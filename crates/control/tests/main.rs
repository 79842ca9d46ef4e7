// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run on packets in memory, observed and changed through its control socket.
#![allow(clippy::unwrap_used, clippy::panic)]

mod run;
mod tables;
