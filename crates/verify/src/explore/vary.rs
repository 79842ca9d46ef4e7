// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Initial frames, and random mutations.

use std::collections::BTreeSet;

use flowloom_engine::Port;
use flowloom_isa::op::{AluOp, Op, Operand};
use flowloom_isa::{Program, ProgramError};

use super::case::{Case, Span, holds_constants};
use super::{FRAME_BYTES, Search};
use crate::arrival::Arrival;
use crate::frame::{self, Shape};
use flowloom_random::{Draw, Xorshift64Star as Rng};

/// Constants of a program.
pub(super) struct Dictionary {
    numbers: Vec<u64>,
}

impl Dictionary {
    pub(super) fn of(program: &Program) -> Dictionary {
        let mut numbers = BTreeSet::new();
        let mut at = 0;
        while let Some(insn) = program.insns.get(at) {
            if let Ok(op) = Op::decode(&program.insns, at) {
                match op {
                    Op::Branch { src: Operand::Imm(imm), .. }
                    | Op::Store { src: Operand::Imm(imm), .. }
                    | Op::Alu {
                        op: AluOp::And | AluOp::Or | AluOp::Xor | AluOp::Mov | AluOp::Add | AluOp::Sub,
                        src: Operand::Imm(imm),
                        ..
                    } => drop(numbers.insert(imm as u64)),
                    Op::LoadImm { value, .. } => drop(numbers.insert(value)),
                    _ => {}
                }
            }
            at += insn.slots();
        }
        Dictionary { numbers: numbers.into_iter().collect() }
    }

    /// Draws one of the constants or a commonly useful number.
    fn draw(&self, rng: &mut Rng) -> u64 {
        match self.numbers.get(rng.index(self.numbers.len())) {
            Some(&number) if rng.percent(70) => number.wrapping_add(rng.one_of([0, 0, 0, 1, u64::MAX])),
            _ => rng.one_of([
                0,
                1,
                2,
                4,
                6,
                8,
                17,
                0x45,
                0x60,
                0x7f,
                0x80,
                0xff,
                0x0800,
                0x86dd,
                0x8100,
                0xffff,
                u64::MAX,
            ]),
        }
    }
}

/// Encodes a number in a random byte order and width that programs read.
fn bytes_of(rng: &mut Rng, number: u64, room: usize) -> Vec<u8> {
    let widths: Vec<usize> = [1, 2, 4, 8].into_iter().filter(|&width| width <= room).collect();
    let Some(&width) = rng.pick(&widths) else { return Vec::new() };
    if rng.percent(50) { number.to_be_bytes()[8 - width..].to_vec() } else { number.to_le_bytes()[..width].to_vec() }
}

/// A frame of every shape, IP tunnels, and a few unusual ones.
pub(super) fn seeds(rng: &mut Rng) -> Vec<Arrival> {
    let mut frames: Vec<Vec<u8>> = Shape::all().map(|shape| frame::build(rng, shape, &[])).collect();
    let plain = |frames: &[Vec<u8>], ethertype: [u8; 2]| {
        frames.iter().find(|f| f.get(12..14) == Some(&ethertype) && f.len() > 50).cloned().unwrap_or_default()
    };
    // IPv4 in IPv4, IPv6 in IPv4, IPv4 in IPv6, IPv6 in IPv6.
    for (outer, at, len) in [([8, 0], 23, 34), ([0x86, 0xdd], 20, 54)] {
        for (inner, proto) in [([8, 0], 4), ([0x86, 0xdd], 41)] {
            let (mut packet, inside) = (plain(&frames, outer), plain(&frames, inner));
            packet.truncate(len);
            packet.extend(inside.get(14..).unwrap_or_default());
            if let Some(next) = packet.get_mut(at) {
                *next = proto;
            }
            frames.push(packet);
        }
    }
    for _ in 0..16 {
        let usual = frames.get(rng.index(frames.len())).cloned().unwrap_or_default();
        frames.push(frame::unusual(rng, usual));
    }
    frames.into_iter().map(|bytes| Arrival { time_ns: 1_000_000_000, port: Port(1), bytes }).collect()
}

impl Search<'_> {
    /// Applies one or a few random mutations to a kept case.
    pub(super) fn mutate_randomly(&mut self) -> Result<(), ProgramError> {
        let len = self.pool.len();
        // Prefer late cases, which reach deep.
        let index = if self.rng.percent(50) { self.rng.index(len) } else { len - 1 - self.rng.index(len.div_ceil(4)) };
        let Some(mut case) = self.pool.get(index).map(|kept| kept.case.clone()) else { return Ok(()) };
        for _ in 0..1 + self.rng.below(5) {
            self.vary(&mut case);
        }
        self.attempt(case).map(drop)
    }

    fn vary(&mut self, case: &mut Case) {
        let Some(last) = case.packets.len().checked_sub(1) else { return };
        let rng = &mut self.rng;
        match rng.below(20) {
            0..=9 => self.vary_span(case, &Span::Packet(last)),
            10 | 11 => {
                // An earlier packet may have changed the state.
                let other = rng.index(self.pool.len());
                let Some(mut packet) = self.pool[other].case.packets.last().cloned() else { return };
                if case.packets.len() < 6 {
                    packet.time_ns =
                        case.packets[last].time_ns.saturating_add(rng.one_of([0, 1, 1_000, 1_000_000_000]));
                    case.packets.push(packet);
                } else {
                    case.packets[last].bytes = packet.bytes;
                }
            }
            12 => {
                let number = self.dictionary.draw(rng);
                let gap = rng.one_of([1, 1_000, 1_000_000, 1_000_000_000, 60_000_000_000, 3_600_000_000_000, number]);
                case.packets[last].time_ns = case.packets[last].time_ns.saturating_add(gap);
            }
            13 => case.packets[last].port = Port(rng.below(8) as u32),
            14 => case.seed = rng.next_u64(),
            15 => {
                let packet = case.packets[last].clone();
                if case.packets.len() < 6 {
                    case.packets.push(packet);
                }
            }
            16 => {
                let len = match rng.below(3) {
                    0 => rng.index(128),
                    1 => rng.index(*FRAME_BYTES.end()),
                    _ => self.dictionary.draw(rng) as u16 as usize,
                };
                case.packets[last].bytes.resize(len.min(*FRAME_BYTES.end()), 0);
            }
            17 => {
                let sections: Vec<usize> = self.sections();
                if let Some(&map) = self.rng.pick(&sections) {
                    self.vary_span(case, &Span::Constants { map });
                }
            }
            _ => {
                let entries: Vec<(usize, Vec<u8>)> = case
                    .state
                    .maps
                    .iter()
                    .filter_map(|(name, entries)| Some((self.runner.program.map_index(name)?, entries)))
                    .flat_map(|(map, entries)| entries.keys().map(move |key| (map, key.clone())))
                    .collect();
                if let Some((map, key)) = self.rng.pick(&entries).cloned() {
                    self.vary_span(case, &Span::Value { map, key });
                }
            }
        }
    }

    /// Read-only data sections that a loader may set.
    pub(super) fn sections(&self) -> Vec<usize> {
        let maps = self.runner.program.maps.iter().enumerate();
        maps.filter(|(_, def)| holds_constants(def)).map(|(index, _)| index).collect()
    }

    /// Tries uniform settings: all zeros, all ones, small numbers.
    pub(super) fn constants(&mut self) -> Result<(), ProgramError> {
        let Some(first) = self.pool.first().map(|kept| kept.case.clone()) else { return Ok(()) };
        for map in self.sections() {
            let def = &self.runner.program.maps[map];
            let (name, len) = (def.name.clone(), def.initial.as_ref().map_or(0, Vec::len));
            for pattern in [[0xff; 4], [1; 4], [1, 0, 0, 0], [2, 0, 0, 0]] {
                let mut case = first.clone();
                case.constants.insert(name.clone(), pattern.into_iter().cycle().take(len).collect());
                self.attempt(case)?;
            }
        }
        Ok(())
    }

    fn vary_span(&mut self, case: &mut Case, span: &Span) {
        let runner = &self.runner;
        let Some(mut bytes) = span.bytes(case, &runner.program.maps, &runner.value_bytes) else { return };
        let rng = &mut self.rng;
        let reach = if rng.percent(80) { bytes.len().min(96) } else { bytes.len() };
        let at = rng.index(reach);
        if at >= bytes.len() {
            return;
        }
        let is_packet = matches!(span, Span::Packet(_));
        match rng.below(10) {
            0 => bytes[at] ^= 1 << rng.below(8),
            1 | 2 => bytes[at] = rng.next_u64() as u8,
            3..=6 => {
                let number = self.dictionary.draw(rng);
                let new = bytes_of(rng, number, bytes.len() - at);
                bytes[at..at + new.len()].copy_from_slice(&new);
            }
            7 => bytes[at] = bytes[at].wrapping_add(rng.one_of([1, 2, 0xff, 0xfe])),
            8 if is_packet => {
                // Insert room for a tag, an option or a header.
                let room = rng.one_of([1usize, 2, 4, 8, 20, 40]);
                let fill: Vec<u8> = (0..room).map(|_| rng.next_u64() as u8).collect();
                bytes.splice(at..at, fill);
            }
            9 if is_packet => {
                let end = (at + rng.one_of([1, 2, 4, 8, 20, 40])).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let from = rng.index(bytes.len());
                let len = rng.one_of([1usize, 2, 4, 6, 8, 16]).min(bytes.len() - at).min(bytes.len() - from);
                let copied = bytes[from..from + len].to_vec();
                bytes[at..at + len].copy_from_slice(&copied);
            }
        }
        span.set(case, &self.runner.program.maps, bytes);
    }

    /// Candidate values to store under a key.
    pub(super) fn values(&mut self, map: usize) -> Vec<Vec<u8>> {
        let Some(def) = self.runner.program.maps.get(map) else { return Vec::new() };
        let Some(&len) = self.runner.value_bytes.get(&def.name) else { return Vec::new() };
        if let Some(inner) = &def.inner {
            // Values of a map of maps are indices of maps.
            let maps = self.runner.program.maps.iter().enumerate();
            let maps = maps.filter(|(_, map)| map.fits_inside(inner));
            return maps.map(|(index, _)| (index as u32).to_le_bytes().to_vec()).collect();
        }
        let random = |rng: &mut Rng| (0..len).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
        let counting = |step: usize| (0..len).map(|i| if i % step == 0 { 1 } else { 0 }).collect::<Vec<u8>>();
        let mut values = vec![vec![0; len], counting(4), vec![1; len], vec![0xff; len], counting(8)];
        if def.kind.is_redirect() {
            values.truncate(2);
        } else {
            values.push(random(&mut self.rng));
        }
        values
    }
}
