//! The program's surroundings without its instructions: what other forms of a program run on, so that maps, helpers and what
//! becomes of packets are the same for all of them.

use flowloom_engine::{Choices, EngineError, Outcome, Packet};

use super::calls::Run;
use super::fault::Fault;
use super::memory::{CONTEXT_ADDRESS, HEADROOM, STACK_BYTES, frame_pointer, map_address, map_at, value_address};
use super::run::{At, Image};
use super::{Interpreter, alu};
use crate::op::{AtomicOp, Size};

/// What a form of the program sees while it has a packet.
pub struct Host<'a, 'r> {
    run: &'a mut Run<'r>,
    image: &'a Image,
    at: usize,
}

impl std::fmt::Debug for Host<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("at", &self.at).finish_non_exhaustive()
    }
}

/// What went wrong; with [`Host::at`] said before, the instruction too.
#[derive(Debug)]
pub struct HostError(Fault);

impl Host<'_, '_> {
    /// What follows is done for the instruction at this slot.
    pub fn at(&mut self, insn: usize) {
        self.at = insn;
    }

    /// The context as helpers want it.
    pub fn context(&self) -> u64 {
        CONTEXT_ADDRESS
    }

    /// A map as helpers want it.
    pub fn map(&self, index: usize) -> u64 {
        map_address(index)
    }

    /// The first byte of the only value of a map.
    pub fn value(&self, map: usize) -> u64 {
        let size = self.run.memory.maps.get(map).map_or(0, |map| map.def().value_bytes);
        value_address(map, size, 0, 0)
    }

    /// Memory for what helpers are shown: the address of the first of so many bytes.
    pub fn scratch(&self) -> (u64, usize) {
        (frame_pointer(0) - STACK_BYTES as u64, STACK_BYTES)
    }

    /// Calls a helper.
    ///
    /// # Errors
    /// As the interpreter.
    pub fn call(&mut self, helper: i32, args: [u64; 5]) -> Result<u64, HostError> {
        let known = self.image.helpers.get(helper).ok_or(HostError(Fault::Unchecked))?;
        (known.run)(self.run, args).map_err(HostError)
    }

    /// The number, from 1, of the sibling that an entry of a map of programs holds; 0 where it holds none that can be run.
    pub fn program(&self, map: u64, index: u32) -> u64 {
        let map = map_at(map).and_then(|map| self.run.memory.maps.get(map));
        let sibling = map.and_then(|map| map.member(&index.to_le_bytes()));
        let number = sibling.map_or(0, |sibling| sibling as usize + 1);
        if number > 0 && self.image.programs.get(number).is_some_and(Option::is_some) { number as u64 } else { 0 }
    }

    /// Reads a number.
    ///
    /// # Errors
    /// Where nothing lies there.
    pub fn load(&self, address: u64, size: Size) -> Result<u64, HostError> {
        self.run.memory.load(address, size).map_err(HostError)
    }

    /// Writes the low bytes of a number.
    ///
    /// # Errors
    /// Where nothing lies there.
    pub fn store(&mut self, address: u64, size: Size, value: u64) -> Result<(), HostError> {
        self.run.memory.store(address, size, value).map_err(HostError)
    }

    /// Changes a number; what it was. `compared` is what an exchange compares with.
    ///
    /// # Errors
    /// Where nothing lies there.
    pub fn atomic(
        &mut self,
        address: u64,
        (op, size): (AtomicOp, Size),
        value: u64,
        compared: u64,
    ) -> Result<u64, HostError> {
        let change = |old| alu::atomic(op, size, old, value, compared);
        self.run.memory.change(address, size, change).map_err(HostError)
    }

    /// Puts other bytes in the packet's place.
    pub fn replace_packet(&mut self, bytes: &[u8]) {
        self.run.memory.replace_packet(bytes);
    }

    /// Bytes before the packet, all of them zeros at first.
    pub const fn headroom() -> usize {
        HEADROOM
    }
}

impl Interpreter {
    /// Has a packet processed by something else than the program's instructions, which gives what they would leave in `r0`.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn process_by(
        &mut self,
        packet: &Packet<'_>,
        choices: &Choices,
        body: impl FnOnce(&mut Host<'_, '_>) -> Result<u64, HostError>,
    ) -> Result<Outcome, EngineError> {
        self.memory.start(packet.bytes, packet.port.0);
        let returned = self.surrounded(choices, |image, run, _, _| {
            let mut host = Host { run, image, at: 0 };
            let result = body(&mut host);
            let at = At { program: 0, slot: host.at };
            result.map_err(|HostError(fault)| (at, fault))
        });
        let returned = returned.map_err(|(at, fault)| self.stopped(at, &fault))?;
        self.finish(packet, returned)
    }
}
