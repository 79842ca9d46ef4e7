// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces of single packets of a run: a batch is parted at each packet that is traced, so that the entries before and
//! after it are those of this packet alone.
//!
//! ```text
//!  batch   ─ run ─┤ traced │─ run ─────┤ traced │─ run ─
//! ```

use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, EngineError, Fate, Frame, Outcome, Output, Packet, Ports};
use flowloom_exec::Description;
use flowloom_isa::{Program, ProgramError};
use flowloom_session::engines::InPlaceEngine;
use flowloom_vm::fib;

use crate::trace::{Trace, Tracer};

/// A traced packet, as it came.
#[derive(Debug)]
pub struct TracedPacket<'p> {
    /// Its number in the run, from 1.
    pub number: u64,
    /// The packet.
    pub packet: Packet<'p>,
    /// The time of its arrival.
    pub time_ns: u64,
    /// What the engine has made of it; without records for user space.
    pub outcome: &'p Outcome,
}

/// The receiver of traces, on the thread of the packets.
pub trait TraceSink {
    /// True if the packet is to be traced.
    fn wants(&mut self, bytes: &[u8]) -> bool;

    /// The program whose packets are traced from now on.
    fn begin(&mut self, program: &Arc<Program>, description: &Description);

    /// Takes a trace.
    fn take(&mut self, packet: &TracedPacket<'_>, trace: &Trace);
}

/// The traces of a run.
pub struct Tracing {
    tracer: Tracer,
    routes: Option<fib::Table>,
    sink: Box<dyn TraceSink>,
    seed: u64,
    /// The packets of the run, and those that were run before the engine came.
    packets: u64,
    before: u64,
}

impl std::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracing").field("tracer", &self.tracer).finish_non_exhaustive()
    }
}

impl Tracing {
    /// Traces packets of `program`, with the routes and the seed of its engine.
    ///
    /// # Errors
    /// The interpreter does not run the program.
    pub fn new(
        (program, function): (&Arc<Program>, Option<Arc<Function>>),
        description: &Description,
        routes: Option<fib::Table>,
        seed: u64,
        mut sink: Box<dyn TraceSink>,
    ) -> Result<Tracing, ProgramError> {
        let tracer = Tracer::new(Arc::clone(program), function, routes.clone())?;
        sink.begin(program, description);
        Ok(Tracing { tracer, routes, sink, seed, packets: 0, before: 0 })
    }

    /// A tracer of another program.
    ///
    /// # Errors
    /// The interpreter does not run the program.
    pub(crate) fn tracer_of(
        &self,
        program: &Arc<Program>,
        function: Option<Arc<Function>>,
    ) -> Result<Tracer, ProgramError> {
        Tracer::new(Arc::clone(program), function, self.routes.clone())
    }

    /// Traces packets of another program from now on.
    pub(crate) fn replace(&mut self, mut tracer: Tracer, ports: &Ports, description: &Description) {
        tracer.bind_ports(ports);
        self.sink.begin(tracer.program(), description);
        (self.tracer, self.before) = (tracer, self.packets);
    }

    pub(crate) fn bind_ports(&mut self, ports: &Ports) {
        self.tracer.bind_ports(ports);
    }

    /// Runs a batch on the engine.
    pub(crate) fn run(
        &mut self,
        engine: &mut dyn InPlaceEngine,
        frames: &mut [Frame<'_>],
        extra: &mut Vec<(usize, Output)>,
    ) -> Result<(), EngineError> {
        let mut from = 0;
        for at in 0..frames.len() {
            if self.sink.wants(frames[at].bytes()) {
                part(engine, frames, from..at, extra)?;
                self.one(engine, frames, at, extra)?;
                from = at + 1;
            }
        }
        let all = frames.len();
        part(engine, frames, from..all, extra)?;
        self.packets += all as u64;
        Ok(())
    }

    /// Runs a packet and traces it.
    fn one(
        &mut self,
        engine: &mut dyn InPlaceEngine,
        frames: &mut [Frame<'_>],
        at: usize,
        extra: &mut Vec<(usize, Output)>,
    ) -> Result<(), EngineError> {
        let frame = &frames[at];
        let (bytes, port, time_ns) = (frame.bytes().to_vec(), frame.port, frame.time_ns);
        let packet = Packet { bytes: &bytes, port };
        let number = self.packets + at as u64;
        // Engines count their own packets.
        let choices = Choices::seeded(time_ns, self.seed, number - self.before);
        let begun = self.tracer.begin(engine.tables(), &packet, &choices)?;
        let others = extra.len();
        part(engine, frames, at..at + 1, extra)?;
        let frame = &frames[at];
        let mut outputs: Vec<Output> = extra[others..].iter().map(|(_, output)| output.clone()).collect();
        let own = match frame.fate {
            Fate::Pass | Fate::Tx => Some(port),
            Fate::Redirect(port) => Some(port),
            Fate::Aborted | Fate::Drop | Fate::Replaced(_) => None,
        };
        outputs.extend(own.map(|port| Output { port, bytes: frame.bytes().to_vec() }));
        let outcome = Outcome { verdict: frame.fate.verdict(), outputs, events: Vec::new() };
        let trace = self.tracer.end(begun, engine.tables(), Some((outcome.verdict, &outcome.outputs)));
        self.sink.take(&TracedPacket { number: number + 1, packet, time_ns, outcome: &outcome }, &trace);
        Ok(())
    }
}

/// Runs a part of a batch.
fn part(
    engine: &mut dyn InPlaceEngine,
    frames: &mut [Frame<'_>],
    range: std::ops::Range<usize>,
    extra: &mut Vec<(usize, Output)>,
) -> Result<(), EngineError> {
    if range.is_empty() {
        return Ok(());
    }
    let (first, before) = (range.start, extra.len());
    engine.run(&mut frames[range], extra)?;
    extra[before..].iter_mut().for_each(|(index, _)| *index += first);
    Ok(())
}
