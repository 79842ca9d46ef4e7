// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tests of the crate in one binary, which is compiled and linked once.

mod common;

mod arithmetic;
mod book;
mod diagnostics;
mod drawings;
mod format;
mod functions;
mod grammar;
mod language;
mod robust;
