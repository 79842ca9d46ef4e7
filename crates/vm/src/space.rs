// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory as helpers see it, so that engines with different addresses share them.
//!
//! | engine | addresses | checks |
//! | --- | --- | --- |
//! | interpreter ([`Memory`](super::memory::Memory)) | numbers of its own | every access |
//! | machine code | those of the machine | none: the proof has them |

use super::fault::Fault;
use super::maps::{Backing, Map};
use super::rings::Rings;

/// The memory of an engine.
pub trait Space {
    /// The tables of its maps.
    type Tables: Backing;

    /// Memory that a helper reads.
    ///
    /// # Errors
    /// The program may not read all of it.
    fn read(&self, address: u64, len: usize) -> Result<&[u8], Fault>;
    /// Memory that a helper writes.
    ///
    /// # Errors
    /// The program may not write all of it.
    fn write_any(&mut self, address: u64, len: usize) -> Result<&mut [u8], Fault>;
    /// Checks memory that a helper may write: stack bytes that it leaves unchanged stay uninitialised.
    ///
    /// # Errors
    /// The program may not write all of it.
    fn may_fill(&mut self, address: u64, len: usize) -> Result<(), Fault>;
    /// Whether an address is one that programs are given, or near it.
    fn is_some_object(&self, address: u64) -> bool;

    /// The bytes between `data` and `data_end`.
    fn packet(&self) -> &[u8];
    /// The bytes between `data` and `data_end`, mutable.
    fn packet_mut(&mut self) -> &mut [u8];
    /// Moves the start of the packet; returns whether that was possible.
    fn adjust_head(&mut self, distance: i32) -> bool;
    /// Moves the end of the packet; returns whether that was possible.
    fn adjust_tail(&mut self, distance: i32) -> bool;
    /// Moves the start of the metadata area: 0, or a negative error number.
    fn adjust_meta(&mut self, distance: i32) -> i64;
    /// The ingress port.
    fn ingress(&self) -> u32;

    /// The number of CPUs.
    fn cpus(&self) -> u32;
    /// The maps of the program.
    fn maps(&self) -> &[Map<Self::Tables>];
    /// The maps of the program, mutable.
    fn maps_mut(&mut self) -> &mut [Map<Self::Tables>];
    /// The run of a packet has ended: deleted entries are no longer referenced.
    fn end_run(&mut self) {
        self.maps_mut().iter_mut().for_each(Map::end_run);
    }
    /// Replaces all maps.
    fn set_maps(&mut self, maps: Vec<Map<Self::Tables>>);
    /// Called after maps in [`Space::maps_mut`] have been exchanged.
    fn maps_moved(&mut self) {}
    /// The address of a value.
    fn value_address(&self, map: usize, cell: u32) -> u64;
    /// The map of the lock at an address.
    fn lock_at(&self, address: u64) -> Option<usize>;

    /// The buffers of records.
    fn rings(&self) -> &Rings;
    /// The buffers of records, mutable.
    fn rings_mut(&mut self) -> &mut Rings;
    /// The address of a reserved ring buffer record.
    fn record_address(&self, number: usize) -> u64;
    /// The number of a record by its address.
    fn record_at(&self, address: u64) -> Option<usize>;
}
