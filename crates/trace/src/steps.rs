// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A source that is read in steps of equal length.

use std::io::{Read, Result};

/// The bytes of a step.
const STEP_BYTES: usize = 16 << 10;

/// Reads steps, whatever is asked for. A decompressor that fails keeps what it has unpacked in the same call to itself:
/// so the least is lost of a damaged file, and as much in whatever pieces its user reads.
pub(crate) struct Steps<R> {
    source: R,
    step: Vec<u8>,
    /// The bytes of the step that have been returned.
    taken: usize,
}

impl<R: Read> Steps<R> {
    pub(crate) fn new(source: R) -> Steps<R> {
        Steps { source, step: Vec::with_capacity(STEP_BYTES), taken: 0 }
    }
}

impl<R: Read> Read for Steps<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.taken == self.step.len() {
            self.step.resize(STEP_BYTES, 0);
            let read = self.source.read(&mut self.step);
            self.step.truncate(*read.as_ref().unwrap_or(&0));
            self.taken = 0;
            read?;
        }
        let count = buffer.len().min(self.step.len() - self.taken);
        buffer[..count].copy_from_slice(&self.step[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
