// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the crate in one binary, which is compiled and linked once. Those that measure the memory of their process are others.

mod common;

mod captures;
mod damage;
mod evidence;
mod info;
mod interop;
mod merge;
mod round_trip;
mod traffic;
