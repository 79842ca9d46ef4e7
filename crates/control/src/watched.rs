// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The engine of an observed run.

use std::cell::RefCell;
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_engine::{EngineError, Event, Frame, InPlace, Output, Ports};
use flowloom_exec::Description;
use flowloom_isa::ProgramError;
use flowloom_session::engines::InPlaceEngine;

use crate::sample::Samples;
use crate::trace::Tracer;
use crate::tracing::Tracing;

/// An engine that is observed and can be replaced.
pub struct Watched {
    engine: Box<dyn InPlaceEngine>,
    ports: Ports,
    samples: Samples,
    /// The packets that engines which have been replaced could not run.
    refused: u64,
    tracing: Option<Tracing>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("engine", &self.engine.name()).finish_non_exhaustive()
    }
}

impl Watched {
    /// Observes `engine`; `seed` is that of the choice of samples.
    pub fn new(engine: Box<dyn InPlaceEngine>, seed: u64) -> Watched {
        Watched { engine, ports: Ports::default(), samples: Samples::new(seed), refused: 0, tracing: None }
    }

    /// Traces packets from now on.
    pub fn trace(&mut self, mut tracing: Tracing) {
        tracing.bind_ports(&self.ports);
        self.tracing = Some(tracing);
    }

    /// A tracer for an engine that is to replace this one, if packets are traced.
    pub(crate) fn next_tracer(
        &self,
        engine: &dyn InPlaceEngine,
        function: Option<Arc<Function>>,
    ) -> Result<Option<Tracer>, ProgramError> {
        self.tracing.as_ref().map(|tracing| tracing.tracer_of(engine.program(), function)).transpose()
    }

    /// Has a tracer follow the engine that has come.
    pub(crate) fn follow(&mut self, tracer: Tracer, description: &Description) {
        if let Some(tracing) = &mut self.tracing {
            tracing.replace(tracer, &self.ports, description);
        }
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut dyn InPlaceEngine {
        self.engine.as_mut()
    }

    /// The samples of packets.
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The packets that no engine of the run could run.
    pub fn refused(&self) -> u64 {
        self.refused + self.engine.refused()
    }

    /// Replaces the engine, between two batches; returns the old one.
    pub fn replace(&mut self, mut engine: Box<dyn InPlaceEngine>) -> Box<dyn InPlaceEngine> {
        engine.bind_ports(&self.ports);
        self.refused += self.engine.refused();
        std::mem::replace(&mut self.engine, engine)
    }
}

impl InPlace for Watched {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
        self.engine.bind_ports(ports);
        if let Some(tracing) = &mut self.tracing {
            tracing.bind_ports(ports);
        }
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        self.samples.take(frames);
        match &mut self.tracing {
            None => self.engine.run(frames, extra),
            Some(tracing) => tracing.run(self.engine.as_mut(), frames, extra),
        }
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.engine.sweep(now_ns)
    }

    fn sweep_step(&mut self, now_ns: u64, share: f64, most: u32) -> Result<bool, EngineError> {
        self.engine.sweep_step(now_ns, share, most)
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        self.engine.take_events(events);
    }
}

/// A watched engine that the packet loop shares with the tasks between its batches.
#[derive(Debug)]
pub struct Shared<'a> {
    watched: &'a RefCell<Watched>,
    name: String,
}

impl<'a> Shared<'a> {
    /// The packet loop's part.
    pub fn new(watched: &'a RefCell<Watched>) -> Shared<'a> {
        Shared { name: watched.borrow().name().to_owned(), watched }
    }
}

impl InPlace for Shared<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.watched.borrow_mut().bind_ports(ports);
    }

    fn run(&mut self, frames: &mut [Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        self.watched.borrow_mut().run(frames, extra)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.watched.borrow_mut().sweep(now_ns)
    }

    fn sweep_step(&mut self, now_ns: u64, share: f64, most: u32) -> Result<bool, EngineError> {
        self.watched.borrow_mut().sweep_step(now_ns, share, most)
    }

    fn take_events(&mut self, events: &mut Vec<Event>) {
        self.watched.borrow_mut().take_events(events);
    }
}
