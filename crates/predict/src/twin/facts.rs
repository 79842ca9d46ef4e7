// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From packets to what decides their cycles: keys, conditions, changes of entries, the length on departure.

use std::rc::Rc;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, EngineError, Packet, Snapshot, Verdict};
use flowloom_ir::{Dataflow, Evaluator, Graph, Id};
use flowloom_isa::{Program, ProgramError};
use flowloom_rtl::control::{Control, Entry, Redirect};
use flowloom_state::{Change, MapAccess};

/// What decides the cycles of a packet.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) words_in: u32,
    /// 0 if it is dropped.
    pub(super) words_out: u32,
    /// By hold, the key if it uses the map.
    pub(super) holds: Vec<Option<Rc<[u8]>>>,
    /// By table, the access.
    pub(super) tables: Vec<Option<MapAccess>>,
}

/// The program as dataflow, on the maps and helpers of the interpreter, which hold what the pipeline's do.
#[derive(Debug)]
pub(super) struct Evaluation {
    evaluator: Evaluator,
    graph: Graph,
    control: Control,
    word_bytes: usize,
}

impl Evaluation {
    pub(super) fn new(
        program: Arc<Program>,
        dataflow: &Dataflow,
        control: Control,
        word_bytes: u32,
    ) -> Result<Evaluation, ProgramError> {
        let evaluator = Evaluator::new(program, dataflow.clone())?.keeping_slow();
        Ok(Evaluation { evaluator, graph: dataflow.graph.clone(), control, word_bytes: word_bytes as usize })
    }

    pub(super) fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.evaluator.restore(state)
    }

    pub(super) fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.evaluator.snapshot()
    }

    /// Runs the next packet.
    pub(super) fn packet(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Facts, EngineError> {
        self.evaluator.process(packet, choices)?;
        let value = |id: Id| self.evaluator.value(id);
        let key = |ids: &[Id]| -> Rc<[u8]> {
            let bytes = ids.iter().flat_map(|id| {
                let len = usize::from(self.graph.bits(*id)).div_ceil(8);
                value(*id).to_le_bytes().into_iter().take(len)
            });
            bytes.collect()
        };
        let waits = self.control.queue.iter().flat_map(|queue| &queue.holds);
        let holds: Vec<Option<Rc<[u8]>>> =
            waits.map(|wait| wait.uses.holds(&value).then(|| key(wait.key.as_deref().unwrap_or_default()))).collect();
        let tables = self.control.tables.iter().map(|table| {
            let changes = table.changes.iter().filter(|entry| value(entry.when) & 1 == 1);
            table.uses.holds(&value).then(|| MapAccess { key: key(&table.key), changes: changes.map(change).collect() })
        });
        let tables = tables.collect();
        let words_in = packet.bytes.len().div_ceil(self.word_bytes) as u32;
        Ok(Facts { words_in, words_out: self.words_out(packet.bytes.len()), holds, tables })
    }

    fn words_out(&self, len: usize) -> u32 {
        let value = |id: Id| self.evaluator.value(id);
        let outputs = &self.control.outputs;
        let words = |bytes: usize| bytes.div_ceil(self.word_bytes).max(1) as u32;
        if value(outputs.slow) != 0 {
            return words(len);
        }
        let has_target = outputs.redirects.iter().fold(false, |has, redirect| match *redirect {
            Redirect::Port(id) => value(id) != 0 || has,
            Redirect::Map { when, .. } if value(when) == 0 => has,
            Redirect::Map { verdict, .. } => value(verdict) == u64::from(Verdict::Redirect.number()),
            Redirect::All(when) => value(when) != 0 || has,
        });
        let is_sent = match Verdict::from_number(value(outputs.verdict) as u32) {
            Verdict::Pass | Verdict::Tx => true,
            Verdict::Redirect => has_target,
            Verdict::Aborted | Verdict::Drop => false,
        };
        // The offsets have 16 bits.
        let bytes = (value(outputs.tail) as u16).wrapping_sub(value(outputs.head) as u16);
        if is_sent { words(bytes.into()) } else { 0 }
    }
}

fn change(entry: &Entry) -> Change {
    match entry.flags {
        None => Change::Delete,
        Some(1) => Change::UpdateAbsent,
        Some(2) => Change::UpdatePresent,
        Some(_) => Change::Update,
    }
}
