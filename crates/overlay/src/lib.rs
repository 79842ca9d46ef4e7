// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FlowBlaze machine: a pipeline of hardware elements that is programmed while packets flow [FlowBlaze 3.2, 4].
#![forbid(unsafe_code)]

mod compile;
mod encode;
pub mod image;
mod model;
mod parameters;
pub mod rtl;
mod ternary;
mod word;

pub use compile::{Compilation, Problem, Use, compile};
pub use encode::{ConfigWrite, encode};
pub use image::Image;
pub use model::{Departed, HeaderVector, Overlay};
pub use parameters::Parameters;
pub use word::Word;
