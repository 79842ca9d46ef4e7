// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trial of one program of a public package, and the page with all results.
#![allow(unreachable_pub, missing_docs)]

pub mod page;
pub mod trial;
