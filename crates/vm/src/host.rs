// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment of a program without its instructions, so that other forms of the program run with the same maps,
//! helpers and outcomes.

use flowloom_engine::{Choices, EngineError, Outcome, Packet};

use super::Interpreter;
use super::calls::Run;
use super::fault::Fault;
use super::memory::{CONTEXT_ADDRESS, HEADROOM, Memory, frame_pointer, map_address, map_at, value_address};
use super::observer::At;
use super::run::Image;
use flowloom_isa::alu;
use flowloom_isa::limits::STACK_BYTES;
use flowloom_isa::op::{AtomicOp, Size};

/// The environment while a packet is processed.
pub struct Host<'a, 'r> {
    run: &'a mut Run<'r, Memory>,
    image: &'a Image,
    at: usize,
}

impl std::fmt::Debug for Host<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("at", &self.at).finish_non_exhaustive()
    }
}

/// An error; after [`Host::at`], with its instruction.
#[derive(Debug)]
pub struct HostError(Fault);

impl Host<'_, '_> {
    /// Attributes what follows to the instruction at this slot.
    pub fn at(&mut self, insn: usize) {
        self.at = insn;
    }

    /// The context as an argument of helpers.
    pub fn context(&self) -> u64 {
        CONTEXT_ADDRESS
    }

    /// A map as an argument of helpers.
    pub fn map(&self, index: usize) -> u64 {
        map_address(index)
    }

    /// The address of the value of a map with one entry.
    pub fn value(&self, map: usize) -> u64 {
        let size = self.run.memory.maps.get(map).map_or(0, |map| map.def().value_bytes);
        value_address(map, size, 0, 0)
    }

    /// Scratch memory for arguments of helpers: address and size.
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

    /// The index plus 1 of the sibling in an entry of a map of programs; 0 if there is none that can run.
    pub fn program(&self, map: u64, index: u32) -> u64 {
        let map = map_at(map).and_then(|map| self.run.memory.maps.get(map));
        let sibling = map.and_then(|map| map.member(&index.to_le_bytes()));
        let number = sibling.map_or(0, |sibling| sibling as usize + 1);
        if number > 0 && self.image.programs.get(number).is_some_and(Option::is_some) { number as u64 } else { 0 }
    }

    /// Loads a number.
    ///
    /// # Errors
    /// An invalid address.
    pub fn load(&self, address: u64, size: Size) -> Result<u64, HostError> {
        self.run.memory.load(address, size).map_err(HostError)
    }

    /// Stores the low bytes of a number.
    ///
    /// # Errors
    /// An invalid address.
    pub fn store(&mut self, address: u64, size: Size, value: u64) -> Result<(), HostError> {
        self.run.memory.store(address, size, value).map_err(HostError)
    }

    /// An atomic operation; returns the old value. `compared` is the expected value of a compare-and-exchange.
    ///
    /// # Errors
    /// An invalid address.
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

    /// Replaces the packet.
    pub fn replace_packet(&mut self, bytes: &[u8]) {
        self.run.memory.replace_packet(bytes);
    }

    /// The size of the headroom, which is zeros at first.
    pub const fn headroom() -> usize {
        HEADROOM
    }
}

impl Interpreter {
    /// Has a packet processed by `body` instead of the program's instructions; it returns what they would leave in
    /// `r0`.
    ///
    /// # Errors
    /// Those of `body`.
    pub fn process_by(
        &mut self,
        packet: &Packet<'_>,
        choices: &Choices,
        body: impl FnOnce(&mut Host<'_, '_>) -> Result<u64, HostError>,
    ) -> Result<Outcome, EngineError> {
        self.environment.space.start(packet.bytes, packet.port.0);
        let returned = self.surrounded(choices, |parts, run| {
            let mut host = Host { run, image: parts.image, at: 0 };
            let result = body(&mut host);
            let at = At { program: 0, slot: host.at };
            result.map_err(|HostError(fault)| (at, fault))
        });
        let returned = returned.map_err(|(at, fault)| self.stopped(at, &fault))?;
        Ok(self.environment.finish(packet.port, returned))
    }
}
