// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the tables.
#![allow(clippy::unwrap_used, clippy::panic)]

mod model;
