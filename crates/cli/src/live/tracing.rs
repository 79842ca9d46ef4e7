// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run -i --trace`: traces of single packets while others pass.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flowloom_control::{Trace, TraceSink, TracedPacket, Tracing};
use flowloom_exec::Description;
use flowloom_isa::Program;
use flowloom_session::Loaded;
use flowloom_session::engines::{EngineOptions, InPlaceEngine};

use crate::args::RunArgs;
use crate::describe::describe;
use crate::failure::{Failure, with_causes};
use crate::traced::{TracePrinter, Wanted};

/// The most packets traced in a second: each runs an interpreter beside the engine, and parts a batch.
const MOST_A_SECOND: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// Traces that wait to be printed.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) text: String,
    /// The packets that were to be traced, but were too many.
    pub(super) omitted: u64,
}

struct Traces {
    wanted: Wanted,
    printer: TracePrinter,
    waiting: Rc<RefCell<Waiting>>,
    /// The begin of the current second, and the packets traced in it.
    second: Instant,
    in_second: u32,
}

/// The traces of a run, and where they wait to be printed.
type WaitingTraces = (Tracing, Rc<RefCell<Waiting>>);

/// The traces of a run, if there are to be any.
pub(super) fn tracing(
    args: &RunArgs,
    loaded: &Loaded,
    engine: &dyn InPlaceEngine,
    options: &EngineOptions,
) -> Result<Option<WaitingTraces>, Failure> {
    let Some(wanted) = Wanted::parse(&args.trace)? else { return Ok(None) };
    let waiting = Rc::new(RefCell::new(Waiting::default()));
    let program = engine.program();
    let description = describe(loaded, &args.function.path.display().to_string(), program);
    let (own, program_of) = (description.clone(), Arc::clone(program));
    let printer = TracePrinter { description: own, program: program_of, json: args.json, to_stderr: false };
    let sink = Traces { wanted, printer, waiting: Rc::clone(&waiting), second: Instant::now(), in_second: 0 };
    let form = (program, loaded.function().cloned());
    let tracing = Tracing::new(form, &description, options.routes.clone(), options.seed, Box::new(sink));
    Ok(Some((tracing.map_err(|error| Failure::Input(with_causes(&error)))?, waiting)))
}

impl TraceSink for Traces {
    fn wants(&mut self, bytes: &[u8]) -> bool {
        if !self.wanted.matches(bytes) {
            return false;
        }
        if self.second.elapsed() >= SECOND {
            (self.second, self.in_second) = (Instant::now(), 0);
        }
        if self.in_second >= MOST_A_SECOND {
            self.waiting.borrow_mut().omitted += 1;
            return false;
        }
        self.in_second += 1;
        self.wanted.count();
        true
    }

    fn begin(&mut self, program: &Arc<Program>, description: &Description) {
        self.printer.program = Arc::clone(program);
        self.printer.description = description.clone();
    }

    fn take(&mut self, packet: &TracedPacket<'_>, trace: &Trace) {
        self.waiting.borrow_mut().text.push_str(&self.printer.lines_of(packet, trace));
    }
}
