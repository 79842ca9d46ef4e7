// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs as machine code of Flowloom, on frames in memory.

use std::path::Path;
use std::sync::Arc;

use flowloom_engine::{Fate, Frame, HEADROOM_BYTES, InPlace, Output, Port, Verdict};
use flowloom_isa::insn::{alu, class, jmp};
use flowloom_isa::{Insn, Program};
use flowloom_jit::Jit;
use flowloom_session::{FunctionFile, Loaded};
use flowloom_verifier::Options;

use crate::error::BenchError;

/// The packets of a batch.
pub(crate) const BATCH: usize = 256;
/// The frames that batches come from by turns.
pub(crate) const FRAMES: usize = 4 * BATCH;
/// The room after a packet.
const TAILROOM_BYTES: usize = 128;

/// The program of an object, whose table `flows` gets this number of entries.
pub(crate) fn program(object: &Path, entries: Option<u32>) -> Result<Arc<Program>, BenchError> {
    let file = FunctionFile { path: object.to_owned(), ..FunctionFile::default() };
    let program = Loaded::open(&file)?.program()?;
    let Some(entries) = entries else { return Ok(program) };
    let mut program = Arc::unwrap_or_clone(program);
    for map in program.maps.iter_mut().filter(|map| map.name == "flows") {
        map.max_entries = entries;
    }
    Ok(Arc::new(program))
}

/// A program that returns at once: what it takes is the harness.
pub(crate) fn empty() -> Arc<Program> {
    let insn = |code, imm| Insn { code, imm, ..Insn::default() };
    Arc::new(Program {
        name: "empty".to_owned(),
        section: "xdp".to_owned(),
        insns: vec![insn(class::ALU64 | alu::MOV, Verdict::Pass.number() as i32), insn(class::JMP | jmp::EXIT, 0)],
        license: "GPL".to_owned(),
        ..Program::default()
    })
}

/// Compiles a program.
pub(crate) fn compiled(program: &Arc<Program>) -> Result<Jit, BenchError> {
    let proof = flowloom_verifier::verify(program, &Options::default())
        .map_err(|error| BenchError::Wrong { what: format!("`{}`: {error}", program.name) })?;
    Ok(Jit::new(Arc::clone(program), &proof)?)
}

/// The memory of a ring of frames.
pub(crate) struct Buffers {
    memory: Vec<u8>,
    /// The bytes of a buffer: an odd number of cache lines, so that the packets of a batch spread over the cache.
    room_bytes: usize,
    packet_bytes: usize,
}

impl Buffers {
    /// A ring whose frames all hold this packet.
    pub(crate) fn of(packet: &[u8]) -> Buffers {
        let lines = (HEADROOM_BYTES + packet.len() + TAILROOM_BYTES).div_ceil(64) | 1;
        let room_bytes = lines * 64;
        let mut memory = vec![0; FRAMES * room_bytes];
        for room in memory.chunks_exact_mut(room_bytes) {
            room[HEADROOM_BYTES..HEADROOM_BYTES + packet.len()].copy_from_slice(packet);
        }
        Buffers { memory, room_bytes, packet_bytes: packet.len() }
    }

    /// The packets.
    pub(crate) fn packets(&mut self) -> Vec<&mut [u8]> {
        let range = HEADROOM_BYTES..HEADROOM_BYTES + self.packet_bytes;
        self.memory.chunks_exact_mut(self.room_bytes).map(|room| &mut room[range.clone()]).collect()
    }

    /// An engine on these frames.
    pub(crate) fn ring(&mut self, engine: Jit) -> Ring<'_> {
        let (start, end) = (HEADROOM_BYTES, HEADROOM_BYTES + self.packet_bytes);
        let rooms = self.memory.chunks_exact_mut(self.room_bytes);
        let frames = rooms.map(|room| Frame::new(room, start, end, Port(1), 0)).collect();
        Ring { engine, frames, extra: Vec::new(), begin: 0 }
    }
}

/// An engine, and the frames that it runs on.
pub(crate) struct Ring<'a> {
    engine: Jit,
    frames: Vec<Frame<'a>>,
    extra: Vec<(usize, Output)>,
    /// The first frame of the next batch.
    begin: usize,
}

impl Ring<'_> {
    /// Runs a batch of at most [`BATCH`] packets, which `prepare` writes by their number in it, and which arrive at
    /// this time.
    #[inline]
    pub(crate) fn run(
        &mut self,
        packets: usize,
        time_ns: u64,
        mut prepare: impl FnMut(usize, &mut [u8]),
    ) -> Result<(), BenchError> {
        let batch = &mut self.frames[self.begin..self.begin + packets];
        self.begin = (self.begin + BATCH) % FRAMES;
        for (number, frame) in batch.iter_mut().enumerate() {
            frame.time_ns = time_ns;
            prepare(number, frame.bytes_mut());
        }
        Ok(self.engine.run(batch, &mut self.extra)?)
    }

    /// The fate and the bytes of the first packet of the ring.
    pub(crate) fn first(&self) -> (Fate, &[u8]) {
        (self.frames[0].fate, self.frames[0].bytes())
    }
}
