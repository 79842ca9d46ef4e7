// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the program on each packet to determine its keys and writes.

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_ir::{Dataflow, Evaluator, Graph, Id};
use flowloom_isa::Program;

use super::arrival::Arrival;
use super::error::PredictError;
use super::frames::Frame;
use super::keyed::{hashed, leaving_bytes};
use super::known::Facts;

/// The longest frame that a pipeline takes.
const MAX_BYTES: usize = 1 << 16;

/// A program as dataflow, on the maps and helpers of the interpreter.
pub(super) struct Run {
    dataflow: Dataflow,
    evaluator: Evaluator,
    bytes: Vec<u8>,
    index: u64,
    now_ns: u64,
}

impl Run {
    pub(super) fn new(program: &Arc<Program>, dataflow: Dataflow) -> Result<Run, PredictError> {
        let evaluator = Evaluator::new(Arc::clone(program), dataflow.clone())?;
        Ok(Run { dataflow, evaluator, bytes: Vec::new(), index: 0, now_ns: 0 })
    }

    /// Runs a packet, and returns its accesses.
    pub(super) fn packet(
        &mut self,
        facts: &Facts,
        frame: &Frame<'_>,
        arrival: &mut Arrival,
    ) -> Result<(), PredictError> {
        (arrival.time_ns, arrival.len_bytes) = (frame.time_ns, frame.len_bytes);
        self.bytes.clear();
        self.bytes.extend_from_slice(frame.bytes);
        self.bytes.resize((frame.len_bytes as usize).clamp(frame.bytes.len(), MAX_BYTES), 0);
        // As in `run`: time does not go back.
        self.now_ns = self.now_ns.max(frame.time_ns);
        let choices = Choices::seeded(self.now_ns, 1, self.index);
        self.index += 1;
        let Run { dataflow, evaluator, bytes, .. } = self;
        evaluator.process(&Packet { bytes, port: Port(frame.port) }, &choices)?;
        let of = |id: Id| evaluator.value(id);
        let ending = &dataflow.ending;
        let ends = (of(ending.head), of(ending.tail));
        arrival.leaving_bytes = leaving_bytes(Some(of(ending.verdict)), Some(ends), frame.len_bytes);
        (arrival.uses, arrival.writes) = (0, 0);
        arrival.keys.resize(facts.maps.len(), 0);
        for (map, uses) in facts.maps.iter().enumerate() {
            if let Some(access) = uses.accesses.iter().find(|access| evaluator.has_happened(access.effect)) {
                arrival.uses |= 1 << map;
                arrival.keys[map] =
                    access.parts.iter().fold(0, |hash, part| hashed(hash, whole(evaluator, &dataflow.graph, part)));
            }
            let is_changed = uses.changes.iter().any(|change| evaluator.has_happened(change.effect));
            arrival.writes |= u64::from(is_changed) << map;
        }
        Ok(())
    }
}

/// The bytes or the number of a key as one number.
fn whole(evaluator: &Evaluator, graph: &Graph, ids: &[Id]) -> u64 {
    let mut at = 0;
    ids.iter().fold(0, |value, id| {
        let value = value | evaluator.value(*id) << at;
        at += graph.bits(*id);
        value
    })
}
