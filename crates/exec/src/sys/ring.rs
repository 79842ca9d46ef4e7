// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ring buffers: records from programs, in order, for all CPUs together.

use std::io;

use super::RawMap;
use super::memory::{Memory, page_bytes};

/// Flags in the length of a record: busy, and discarded.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_BYTES: usize = 8;

/// The reader of a ring buffer.
#[derive(Debug)]
pub(crate) struct Ring {
    /// The consumer position.
    consumer: Memory,
    /// The producer position, and after a page the data, twice.
    producer: Memory,
    data_bytes: u64,
}

impl Ring {
    /// The reader of `map`, whose data have this size.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn of(map: &RawMap, data_bytes: u32) -> io::Result<Ring> {
        let consumer = map.memory(0, page_bytes(), true)?;
        let producer = map.memory(page_bytes(), page_bytes() + 2 * data_bytes as usize, false)?;
        Ok(Ring { consumer, producer, data_bytes: data_bytes.into() })
    }

    /// Calls `each` with every new record that was submitted.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Vec<u8>)) -> io::Result<()> {
        let mut position = self.consumer.load(0)?;
        let end = self.producer.load(0)?;
        while position < end {
            let at = page_bytes() + (position % self.data_bytes) as usize;
            let mut header = [0; 4];
            self.producer.read(at, &mut header)?;
            let header = u32::from_ne_bytes(header);
            if header & BUSY != 0 {
                break;
            }
            let bytes = (header & !DISCARDED) as usize;
            if header & DISCARDED == 0 {
                let mut record = vec![0; bytes];
                self.producer.read(at + HEADER_BYTES, &mut record)?;
                each(record);
            }
            position += (bytes + HEADER_BYTES).next_multiple_of(8) as u64;
        }
        self.consumer.store(0, position)
    }
}
