// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The FlowBlaze machine: a pipeline of hardware elements that is programmed while packets flow [FlowBlaze 3.2, 4].
//!
//! ```text
//!  model of a function ─► compile ─► Image ─┬─► Overlay, the machine in software
//!                            │              └─► encode ─► writes of configuration words ─► hdl/overlay
//!                            └─► uses and problems: why it does not fit
//! ```
//!
//! - [`Parameters`] are the sizes of a machine, which synthesis fixes.
//! - [`compile`] makes the [`Image`] of a function, and says what of the machine it uses.
//! - [`Overlay`] runs an image.
//! - [`encode`] and [`rtl`] are the way to the hardware, [`Driver`] programs it through its [`registers`].
//! - [`Timing`] is the model of the machine's cycles, [`Scheduler`] that of a scheduler with several queues.
//! - [`LineTest`] measures loss and waits of a machine at line rate.
#![forbid(unsafe_code)]

mod compile;
pub mod driver;
mod encode;
mod error;
pub mod image;
mod line;
mod listing;
mod model;
mod parameters;
pub mod registers;
pub mod rtl;
mod scheduler;
mod stored;
mod ternary;
mod timing;
pub mod vector;
mod word;

pub use compile::{Compilation, Problem, Refusal, Use, compile};
pub use driver::{Bus, Driver, DriverError};
pub use encode::{ConfigWrite, configure, encode};
pub use error::OverlayError;
pub use image::Image;
pub use line::{Hazards, LineReport, LineTest};
pub use listing::{configuration, listing};
pub use model::{Access, Departed, HeaderVector, KeyedContexts, Overlay};
pub use parameters::Parameters;
pub use scheduler::{Grant, Scheduler, SchedulerParameters};
pub use stored::StoredContext;
pub use timing::{Passage, Timing};
pub use word::Word;
