// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the crate in one binary, which is compiled and linked once.

mod blocks;
mod blocks_functions;
