// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FlowBlaze machine: a pipeline of hardware elements that is programmed while packets flow [FlowBlaze 3.2, 4].
#![forbid(unsafe_code)]

mod parameters;

pub use parameters::Parameters;
