// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Contexts as the hardware stores them.

use crate::encode::timeouts_of;
use crate::image::Stage;
use crate::model::Context;
use crate::parameters::Parameters;

/// A context without its key, as the hardware stores it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredContext {
    /// The registers.
    pub registers: Vec<u32>,
    /// The state.
    pub state: u8,
    /// The number of the pair of timeouts that its state has.
    pub timeouts: u8,
    /// The idle deadline; `u64::MAX` for none.
    pub idle_deadline_ns: u64,
    /// The hard deadline; `u64::MAX` for none.
    pub hard_deadline_ns: u64,
}

impl StoredContext {
    /// The context of a stage in the software model.
    ///
    /// The number of the pair is that of the pair with the context's idle timeout, and a hard one only if the context has
    /// one.
    pub(crate) fn of(parameters: &Parameters, stage: &Stage, context: &Context) -> StoredContext {
        let idle = if context.idle_ns == 0 { u64::MAX } else { context.idle_ns };
        let has_hard = context.hard_deadline_ns != u64::MAX;
        let pair = |&(of_idle, hard): &(u64, u64)| of_idle == idle && (hard != u64::MAX) == has_hard;
        StoredContext {
            registers: context.registers[..parameters.registers as usize].to_vec(),
            state: context.state as u8,
            timeouts: timeouts_of(stage).iter().position(pair).unwrap_or(0) as u8,
            idle_deadline_ns: context.idle_deadline_ns,
            hard_deadline_ns: context.hard_deadline_ns,
        }
    }

    /// The context in the software model.
    pub(crate) fn to_model(&self, stage: &Stage) -> Context {
        let mut registers = [0; crate::model::MAX_REGISTERS];
        registers[..self.registers.len()].copy_from_slice(&self.registers);
        let idle = timeouts_of(stage).get(usize::from(self.timeouts)).map_or(u64::MAX, |(idle, _)| *idle);
        Context {
            state: self.state.into(),
            registers,
            idle_ns: if idle == u64::MAX { 0 } else { idle },
            idle_deadline_ns: self.idle_deadline_ns,
            hard_deadline_ns: self.hard_deadline_ns,
        }
    }

    /// The words of the register `CONTEXT`.
    pub(crate) fn to_words(&self) -> Vec<u32> {
        let mut words = self.registers.clone();
        words.push(u32::from(self.state) | u32::from(self.timeouts) << 8);
        for deadline in [self.idle_deadline_ns, self.hard_deadline_ns] {
            words.extend([deadline as u32, (deadline >> 32) as u32]);
        }
        words
    }

    /// The context of the words of the register `CONTEXT`, the first of which are the registers.
    pub(crate) fn of_words(words: &[u32]) -> Option<StoredContext> {
        let (registers, &[state, idle_low, idle_high, hard_low, hard_high]) = words.split_last_chunk()?;
        let deadline = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        Some(StoredContext {
            registers: registers.to_vec(),
            state: state as u8,
            timeouts: (state >> 8) as u8 & 0xf,
            idle_deadline_ns: deadline(idle_low, idle_high),
            hard_deadline_ns: deadline(hard_low, hard_high),
        })
    }

    /// The bits of the hardware in bytes, little endian: registers, state, number of the pair of timeouts, deadlines.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.registers.iter().flat_map(|register| register.to_le_bytes()).collect();
        let deadlines = u128::from(self.idle_deadline_ns) | u128::from(self.hard_deadline_ns) << 64;
        bytes.push(self.state);
        // The deadlines begin in the middle of a byte.
        bytes.push(self.timeouts | (deadlines as u8) << 4);
        bytes.extend((deadlines >> 4).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_all_parts() {
        let context = StoredContext {
            registers: vec![1, 2, 3],
            state: 0xfe,
            timeouts: 9,
            idle_deadline_ns: 0x0123_4567_89ab_cdef,
            hard_deadline_ns: u64::MAX - 1,
        };
        assert_eq!(StoredContext::of_words(&context.to_words()).as_ref(), Some(&context));
        let bytes = context.to_bytes();
        assert_eq!(bytes.len(), (128_usize + 4 + 8 + 96).div_ceil(8));
        assert_eq!(bytes[12..15], [0xfe, 0xf9, 0xde]);
        assert_eq!(bytes[bytes.len() - 1], 0x0f);
        assert_eq!(StoredContext::of_words(&[1, 2]), None);
    }
}
