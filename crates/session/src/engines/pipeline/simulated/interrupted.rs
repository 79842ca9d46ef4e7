// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resets of a simulated pipeline while packets and accesses of the host are in it.

use flowloom_cosim::{CosimError, Word};

use crate::engines::stream::MAX_CLEARING;

use super::{Arrival, HOST_BATCH, HostAccess, OutputStalls, SETTLE_CYCLES, SendError, Simulated};

/// A reset among packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interruption {
    /// The cycles from the first packet to the reset.
    pub after_cycles: u32,
    /// The cycles of the reset.
    pub reset_cycles: u32,
    /// A further reset while maps are cleared, so many cycles after the first one.
    pub again_cycles: Option<u32>,
    /// Whether the pipeline is idle for some time before it is used again.
    pub settles: bool,
}

/// What had happened before a reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interrupted {
    /// Packets that were taken as a whole.
    pub taken: usize,
    /// Whether part of another one was taken.
    pub is_split: bool,
    /// The verdicts.
    pub verdicts: usize,
    /// Accesses of the host that were made.
    pub made: usize,
    /// Answers to them.
    pub answered: usize,
}

impl Simulated {
    /// Sends packets and makes accesses of the host, resets the pipeline while they are in it, and waits until its maps
    /// are cleared.
    ///
    /// # Errors
    /// The simulation has ended, an access is not possible on its map, or anything leaves the pipeline after the reset.
    pub fn interrupt(
        &mut self,
        packets: &[Arrival<'_>],
        accesses: &[HostAccess],
        stalls: OutputStalls,
        interruption: Interruption,
    ) -> Result<Interrupted, SendError> {
        let (words, before) = self.ports.words(packets, &[]);
        let made: Vec<_> =
            accesses.iter().map(|access| self.host_access(access, &before)).collect::<Result<_, SendError>>()?;
        let rest = vec![0; self.input_bytes];
        let (mut taken, mut delay) = (0, words.first().map_or(0, |word| word.delay_cycles));
        let mut seed = stalls.seed;
        let mut so_far = Interrupted::default();
        let mut host_delay = made.first().map_or(0, |access| access.delay_cycles);
        // The last inputs stay while the pipeline is reset.
        let mut inputs = rest.clone();
        for _ in 0..interruption.after_cycles {
            let word: Option<&Word> = words.get(taken).filter(|_| delay == 0);
            delay = delay.saturating_sub(1);
            inputs.clone_from(word.map_or(&rest, |word| &word.inputs));
            let access = made.get(so_far.made).filter(|access| taken >= access.after_words as usize);
            let is_tried = access.is_some() && host_delay == 0;
            host_delay = host_delay.saturating_sub(u32::from(access.is_some()));
            if let Some(access) = access.filter(|_| is_tried) {
                inputs.iter_mut().zip(&access.inputs).for_each(|(byte, own)| *byte |= own);
            }
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.ports.out_ready.set(&mut inputs, u64::from(seed >> 24 >= u32::from(stalls.of_256)));
            let outputs = self.simulation.run(&inputs)?;
            so_far.verdicts += self.ports.done_valid.get(&outputs) as usize;
            so_far.answered += self.maps.iter().map(|(_, map)| map.answer_valid.get(&outputs) as usize).sum::<usize>();
            if word.is_some() && self.ports.in_ready.get(&outputs) == 1 {
                taken += 1;
                delay = words.get(taken).map_or(0, |word| word.delay_cycles);
            }
            if access.is_some_and(|access| is_tried && access.ready.get(&outputs) == 1) {
                so_far.made += 1;
                host_delay = made.get(so_far.made).map_or(0, |access| access.delay_cycles);
            }
        }
        so_far.taken = before.iter().skip(1).filter(|end| **end <= taken).count();
        so_far.is_split = !before.contains(&taken);
        self.ports.reset.set(&mut inputs, 1);
        let resets = |count: u32| inputs.repeat(count.max(1) as usize);
        self.simulation.run(&resets(interruption.reset_cycles))?;
        if let Some(cycles) = interruption.again_cycles {
            self.runs_empty(cycles)?;
            self.simulation.run(&resets(1))?;
        }
        let mut cycles = 0;
        while self.runs_empty(1)? != 1 {
            cycles += 1;
            if cycles > MAX_CLEARING * HOST_BATCH {
                let what = "its maps are not ready after a reset".to_owned();
                return Err(CosimError::Stuck { top: self.ports.top.clone(), what }.into());
            }
        }
        if interruption.settles {
            self.runs_empty(self.latency_cycles + SETTLE_CYCLES)?;
        }
        Ok(so_far)
    }

    /// Idle cycles in which nothing may leave the pipeline. Returns whether its maps are ready in the last one.
    fn runs_empty(&mut self, cycles: u32) -> Result<u64, SendError> {
        let mut inputs = vec![0; self.input_bytes];
        self.ports.out_ready.set(&mut inputs, 1);
        let outputs = self.simulation.run(&inputs.repeat(cycles as usize))?;
        let ports = &self.ports;
        let mut valid = vec![&ports.out_valid, &ports.done_valid];
        valid.extend(&ports.extra_valid);
        valid.extend(self.maps.iter().map(|(_, map)| &map.answer_valid));
        for (cycle, outputs) in outputs.chunks(self.output_bytes).enumerate() {
            if valid.iter().any(|port| port.get(outputs) == 1) {
                return Err(SendError::Unexpected { cycle: cycle as u64 });
            }
        }
        let last = outputs.chunks(self.output_bytes).last();
        Ok(last.map_or(0, |outputs| ports.ready.get(outputs)))
    }
}
