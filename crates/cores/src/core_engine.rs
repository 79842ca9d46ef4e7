// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The trait of a core's engine, for machine code and the interpreter.

use std::any::Any;
use std::sync::Arc;

use flowloom_engine::{Arrival, Copying, Datapath, Draws, EngineError, Frame, InPlace, Output, PacketError, Tally};
use flowloom_isa::Program;
use flowloom_jit::Jit;
use flowloom_vm::{Interpreter, Tables};

/// The engine of a core.
pub trait CoreEngine: InPlace + Send {
    /// As [`InPlace::run`], on frames that do not lie side by side.
    ///
    /// # Errors
    /// Those of [`InPlace::run`].
    fn run_each(&mut self, frames: &mut [&mut Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError>;

    /// As [`Datapath::tally`], of some of the packets: those with the numbers `own`, ascending.
    ///
    /// # Errors
    /// Those of [`Datapath::tally`], with the number of the packet among all.
    fn tally_own(
        &mut self,
        packets: &[Arrival<'_>],
        own: &[u32],
        draws: Draws,
        tally: &mut Tally,
    ) -> Result<(), PacketError>;

    /// The engine as one of single packets, and its state.
    fn datapath(&mut self) -> &mut dyn Datapath;

    /// The program.
    fn program(&self) -> &Arc<Program>;

    /// The number of entries of a hash table, by the number of its map in the program.
    fn entries(&self, map: usize) -> Option<usize>;

    /// Its maps, entry by entry, for reading.
    fn tables(&self) -> &dyn Tables;

    /// Its maps, entry by entry.
    fn tables_mut(&mut self) -> &mut dyn Tables;

    /// Takes the contents of maps from another engine: pairs of own and other map. Returns false, and changes nothing,
    /// if that is of another kind.
    fn exchange_maps(&mut self, other: &mut dyn CoreEngine, maps: &[(usize, usize)]) -> bool;

    /// For [`CoreEngine::exchange_maps`].
    fn as_any(&mut self) -> &mut dyn Any;

    /// The packets that the engine cannot run, which are aborted.
    fn refused(&self) -> u64 {
        0
    }
}

impl CoreEngine for Jit {
    fn run_each(&mut self, frames: &mut [&mut Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        Jit::run_each(self, frames, extra)
    }

    fn tally_own(
        &mut self,
        packets: &[Arrival<'_>],
        own: &[u32],
        draws: Draws,
        tally: &mut Tally,
    ) -> Result<(), PacketError> {
        self.run_copies(packets, Some(own), draws, tally)
    }

    fn datapath(&mut self) -> &mut dyn Datapath {
        self
    }

    fn program(&self) -> &Arc<Program> {
        Jit::program(self)
    }

    fn entries(&self, map: usize) -> Option<usize> {
        Jit::entries(self, map)
    }

    fn tables(&self) -> &dyn Tables {
        Jit::tables_ref(self)
    }

    fn tables_mut(&mut self) -> &mut dyn Tables {
        Jit::tables(self)
    }

    fn exchange_maps(&mut self, other: &mut dyn CoreEngine, maps: &[(usize, usize)]) -> bool {
        let Some(other) = other.as_any().downcast_mut::<Jit>() else { return false };
        Jit::exchange_maps(self, other, maps);
        true
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl CoreEngine for Copying<Interpreter> {
    fn run_each(&mut self, frames: &mut [&mut Frame<'_>], extra: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        Copying::run_each(self, frames, extra)
    }

    fn tally_own(
        &mut self,
        packets: &[Arrival<'_>],
        own: &[u32],
        draws: Draws,
        tally: &mut Tally,
    ) -> Result<(), PacketError> {
        own.iter().map(|number| *number as usize).try_for_each(|number| {
            let one = self.datapath_mut().tally(&packets[number..=number], draws.from(number), tally);
            one.map_err(|error| PacketError { packet: number, ..error })
        })
    }

    fn datapath(&mut self) -> &mut dyn Datapath {
        self.datapath_mut()
    }

    fn program(&self) -> &Arc<Program> {
        self.datapath_ref().program()
    }

    fn entries(&self, map: usize) -> Option<usize> {
        self.datapath_ref().entries(map)
    }

    fn tables(&self) -> &dyn Tables {
        self.datapath_ref().tables_ref()
    }

    fn tables_mut(&mut self) -> &mut dyn Tables {
        self.datapath_mut().tables()
    }

    fn exchange_maps(&mut self, other: &mut dyn CoreEngine, maps: &[(usize, usize)]) -> bool {
        let Some(other) = other.as_any().downcast_mut::<Copying<Interpreter>>() else { return false };
        self.datapath_mut().exchange_maps(other.datapath_mut(), maps);
        true
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn refused(&self) -> u64 {
        Copying::refused(self)
    }
}
