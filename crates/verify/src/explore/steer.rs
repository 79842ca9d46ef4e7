// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Directed changes: the other edge of a jump, the entry that a lookup missed.
//!
//! For a jump with one edge taken, every byte of the case is changed once to find the bytes that influence its
//! operands. These are then set: to values that make one operand equal to the other (or adjacent to it), directly and
//! by adding the difference, in both byte orders; and a single byte to each of its values, which covers masks and
//! shifts.
//!
//! A byte may also be part of the key of an entry, without which the jump is not reached: then the entry is copied to
//! the changed key.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_engine::Port;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{MapKind, ProgramError};
use flowloom_random::Draw;
use flowloom_vm::{Branch, Lookup};

use super::case::{Case, Span, holds_variables};
use super::{FRAME_BYTES, Search};

/// A jump of a case whose other edge was never taken.
#[derive(Debug, Clone)]
struct Target {
    packet: usize,
    /// Index of this execution of the instruction among those for this packet.
    occurrence: usize,
    branch: Branch,
}

/// Bytes that influence the operands of a jump.
#[derive(Debug, Clone)]
struct Move {
    span: Span,
    places: Vec<usize>,
    /// The lookups of the case, if its entries have to follow a changed packet.
    known: Vec<Lookup>,
}

/// Maximum number of attempts to steer towards an edge, each from another case.
const MAX_STEERED: u32 = 6;
/// Maximum numbers of bytes of a packet and of state that are probed.
const MAX_PACKET_BYTES: usize = 160;
const MAX_STATE_BYTES: usize = 320;
/// Maximum number of keys inserted into one map for lookups that missed.
const MAX_ADDED: usize = 512;
/// Maximum number of entries that are copied to the keys of a changed packet.
const MAX_FOLLOWED: usize = 6;
/// Size limit of tables that are tried full.
const MAX_FILLED: u32 = 1024;

impl Search<'_> {
    /// Applies all directed changes to a case.
    pub(super) fn apply_directed_changes(&mut self, case: &Case) -> Result<(), ProgramError> {
        self.entries(case)?;
        self.full_tables(case)?;
        self.lengths(case)?;
        self.times(case)?;
        let (targets, spans) = self.targets(case)?;
        for target in &targets {
            self.resize(case, target)?;
        }
        if !targets.is_empty() {
            self.steer(case, &targets, &spans)?;
        }
        Ok(())
    }

    /// Inserts keys that lookups missed, and removes keys that lookups found.
    fn entries(&mut self, case: &Case) -> Result<(), ProgramError> {
        let mut asked = Vec::new();
        self.run(case, |_, trail| {
            for lookup in &trail.lookups {
                if !asked.contains(lookup) {
                    asked.push(lookup.clone());
                }
            }
        })?;
        for lookup in asked {
            if self.is_budget_exhausted() {
                break;
            }
            let Some(def) = self.runner.program.maps.get(lookup.map) else { continue };
            let name = def.name.clone();
            if lookup.found {
                if case.state.maps.get(&name).is_some_and(|entries| entries.contains_key(&lookup.key)) {
                    let mut without = case.clone();
                    without.state.maps.entry(name).or_default().remove(&lookup.key);
                    self.attempt(without)?;
                }
                continue;
            }
            if matches!(def.kind, MapKind::Array | MapKind::PerCpuArray) {
                // The key is out of bounds: it cannot be inserted.
                continue;
            }
            let is_full = self.added.iter().filter(|(map, _)| *map == lookup.map).count() >= MAX_ADDED;
            // Occasionally retry the same key: the rest of the case may differ.
            if is_full || !self.added.insert((lookup.map, lookup.key.clone())) && !self.rng.percent(25) {
                continue;
            }
            for value in self.values(lookup.map) {
                let mut with = case.clone();
                with.state.maps.entry(name.clone()).or_default().insert(lookup.key.clone(), value);
                self.attempt(with)?;
            }
        }
        Ok(())
    }

    /// Fills tables that the program updates, so that insertions fail.
    fn full_tables(&mut self, case: &Case) -> Result<(), ProgramError> {
        let program = Arc::clone(&self.runner.program);
        let updates = Op::Call { helper: helper::MAP_UPDATE_ELEM };
        if !(0..program.insns.len()).any(|at| Op::decode(&program.insns, at) == Ok(updates)) {
            return Ok(());
        }
        for def in program.maps.iter().filter(|def| matches!(def.kind, MapKind::Hash | MapKind::PerCpuHash)) {
            let Some(&len) = self.runner.value_bytes.get(&def.name) else { continue };
            if def.max_entries > MAX_FILLED {
                continue;
            }
            let mut full = case.clone();
            let entries = full.state.maps.entry(def.name.clone()).or_default();
            for number in 1u32.. {
                if entries.len() >= def.max_entries as usize || number > 2 * MAX_FILLED {
                    break;
                }
                // Keys that no packet has: ones, then the number in big-endian order.
                let mut key = vec![0xff; def.key_bytes as usize];
                for (byte, part) in key.iter_mut().rev().zip(number.to_le_bytes()) {
                    *byte = part;
                }
                entries.insert(key, vec![0; len]);
            }
            self.attempt(full)?;
        }
        Ok(())
    }

    /// Truncates and extends the last packet.
    fn lengths(&mut self, case: &Case) -> Result<(), ProgramError> {
        let Some(last) = case.packets.last() else { return Ok(()) };
        let here = last.bytes.len();
        let cut = *FRAME_BYTES.start()..here.min(130);
        for len in cut.chain([here + 1, here + 4, here + 20, here + 40, 128, 256, 590, 610, 1024, 1514, 3000, 3520]) {
            let mut case = case.clone();
            if let Some(last) = case.packets.last_mut() {
                last.bytes.resize(len, 0);
            }
            self.attempt(case)?;
        }
        Ok(())
    }

    /// Delays the last packet, repeats it, and changes its port.
    fn times(&mut self, case: &Case) -> Result<(), ProgramError> {
        let Some(last) = case.packets.last() else { return Ok(()) };
        for gap_ns in [1, 1_000_000, 1_000_000_000, 30_000_000_000, 3_600_000_000_000] {
            let (mut later, mut again) = (case.clone(), case.clone());
            let mut packet = last.clone();
            packet.time_ns = packet.time_ns.saturating_add(gap_ns);
            if let Some(last) = later.packets.last_mut() {
                *last = packet.clone();
            }
            again.packets.push(packet);
            self.attempt(later)?;
            if again.packets.len() <= 8 {
                self.attempt(again)?;
            }
        }
        for port in [0, 2, 3, 7] {
            let mut case = case.clone();
            if let Some(last) = case.packets.last_mut() {
                last.port = Port(port);
            }
            self.attempt(case)?;
        }
        Ok(())
    }

    /// Jumps to steer, and the byte strings that may influence them.
    fn targets(&mut self, case: &Case) -> Result<(Vec<Target>, Vec<Span>), ProgramError> {
        let mut targets: Vec<Target> = Vec::new();
        let mut spans: Vec<Span> = Vec::new();
        let mut branches: Vec<(usize, usize, Branch)> = Vec::new();
        self.run(case, |packet, trail| {
            let mut times: BTreeMap<usize, usize> = BTreeMap::new();
            for branch in &trail.branches {
                let occurrence = times.entry(branch.insn).or_default();
                branches.push((packet, *occurrence, *branch));
                *occurrence += 1;
            }
            for lookup in trail.lookups.iter().filter(|lookup| lookup.found) {
                let span = Span::Value { map: lookup.map, key: lookup.key.clone() };
                if !spans.contains(&span) {
                    spans.push(span);
                }
            }
        })?;
        for (packet, occurrence, branch) in branches {
            let other = (branch.insn, !branch.taken);
            let is_chosen = targets.iter().any(|t| t.branch.insn == branch.insn);
            if is_chosen || self.runner.edges.contains(&other) {
                continue;
            }
            let times = self.steered.entry(other).or_default();
            if *times < MAX_STEERED {
                *times += 1;
                targets.push(Target { packet, occurrence, branch });
            }
        }
        for (map, def) in self.runner.program.maps.iter().enumerate() {
            if holds_variables(def) {
                spans.push(Span::Value { map, key: vec![0; 4] });
            }
        }
        spans.extend(self.sections().into_iter().map(|map| Span::Constants { map }));
        Ok((targets, spans))
    }

    /// Operands of the targets in `case`, where it reaches them, and true if it was run to its end.
    #[allow(clippy::type_complexity, reason = "a pair of operands for each target")]
    fn operands(&mut self, case: &Case, targets: &[Target]) -> Result<(Vec<Option<(u64, u64)>>, bool), ProgramError> {
        let mut found = vec![None; targets.len()];
        let ran = self.run(case, |packet, trail| {
            for (target, found) in targets.iter().zip(&mut found) {
                if target.packet == packet {
                    let mut same = trail.branches.iter().filter(|b| b.insn == target.branch.insn);
                    *found = same.nth(target.occurrence).map(|b| b.operands);
                }
            }
        })?;
        Ok((found, ran.is_some()))
    }

    fn steer(&mut self, case: &Case, targets: &[Target], state: &[Span]) -> Result<(), ProgramError> {
        // The packets first: the last one is the one that reached something new.
        let packets = (0..case.packets.len()).rev().map(Span::Packet);
        let mut left = MAX_STATE_BYTES;
        // For each target, the bytes that influence its operands.
        let mut moves: Vec<Vec<Move>> = vec![Vec::new(); targets.len()];
        let known = self.lookups(case)?;
        let packets: Vec<Span> = packets.take(2).collect();
        for span in packets.iter().chain(state) {
            let Some(bytes) = span.bytes(case, &self.runner.program.maps, &self.runner.value_bytes) else { continue };
            let len = match span {
                Span::Packet(_) => bytes.len().min(MAX_PACKET_BYTES),
                _ => bytes.len().min(left),
            };
            if !matches!(span, Span::Packet(_)) {
                left -= len;
            }
            let mut by_target: Vec<(Vec<usize>, bool)> = vec![(Vec::new(), false); targets.len()];
            for at in 0..len {
                // All bits, the lowest one, and those between TCP and UDP.
                let flips: &[u8] = if matches!(span, Span::Packet(_)) { &[0xff, 1, 6 ^ 17] } else { &[0xff, 1] };
                for flip in flips {
                    let mut bytes = bytes.clone();
                    bytes[at] ^= flip;
                    let mut changed = case.clone();
                    span.set(&mut changed, &self.runner.program.maps, bytes);
                    let before = self.runner.edges.len();
                    let (operands, ran) = self.operands(&changed, targets)?;
                    let is_new = ran && self.runner.edges.len() > before;
                    let mut followed = vec![None; targets.len()];
                    if matches!(span, Span::Packet(_)) && operands.contains(&None) {
                        let before = self.runner.edges.len();
                        if let Some(case) = self.follow(case, &known, changed.clone())? {
                            let (operands, ran) = self.operands(&case, targets)?;
                            followed = operands;
                            if ran && self.runner.edges.len() > before {
                                self.keep(case);
                            }
                        }
                    }
                    if is_new {
                        self.keep(changed);
                    }
                    let operands = operands.into_iter().zip(followed);
                    for ((target, (own, followed)), (places, follows)) in
                        targets.iter().zip(operands).zip(&mut by_target)
                    {
                        let moved = own.or(followed).is_some_and(|operands| operands != target.branch.operands);
                        if moved && places.last() != Some(&at) {
                            places.push(at);
                            *follows |= own.is_none();
                        }
                    }
                }
            }
            for ((places, follows), moves) in by_target.into_iter().zip(&mut moves) {
                if !places.is_empty() {
                    let known = if follows { known.clone() } else { Vec::new() };
                    moves.push(Move { span: span.clone(), places, known });
                }
            }
        }
        for (target, moves) in targets.iter().zip(moves) {
            for bytes in moves {
                if self.flip_branch(case, target, &bytes)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Changes the length of the packet by the difference of the operands, for jumps that compare lengths, or addresses
    /// with the packet's end.
    fn resize(&mut self, case: &Case, target: &Target) -> Result<(), ProgramError> {
        let (left, right) = target.branch.operands;
        let Some(packet) = case.packets.get(target.packet) else { return Ok(()) };
        let here = packet.bytes.len();
        let difference = left.abs_diff(right) as usize;
        if difference > *FRAME_BYTES.end() || self.runner.edges.contains(&(target.branch.insn, !target.branch.taken)) {
            return Ok(());
        }
        for near in [difference, difference + 1, difference.saturating_sub(1)] {
            for len in [here.saturating_sub(near), here + near] {
                let mut case = case.clone();
                if let Some(packet) = case.packets.get_mut(target.packet) {
                    packet.bytes.resize(len, 0);
                }
                self.attempt(case)?;
            }
        }
        Ok(())
    }

    /// Sets the bytes so that the jump takes the other edge; true if it did.
    fn flip_branch(&mut self, case: &Case, target: &Target, own: &Move) -> Result<bool, ProgramError> {
        let Move { span, places, .. } = own;
        let other = (target.branch.insn, !target.branch.taken);
        let Some(bytes) = span.bytes(case, &self.runner.program.maps, &self.runner.value_bytes) else {
            return Ok(false);
        };
        let (left, right) = target.branch.operands;
        let mut wanted: Vec<u64> = Vec::new();
        for number in [right, left, right | left, right & left, !right] {
            wanted.extend([number, number.wrapping_add(1), number.wrapping_sub(1)]);
        }
        wanted.extend([0, 1, u64::MAX, right.swap_bytes(), right.swap_bytes() >> 32, right.swap_bytes() >> 48]);
        wanted.sort_unstable();
        wanted.dedup();
        let difference = right.wrapping_sub(left);
        for &at in places {
            for width in [8usize, 4, 2, 1] {
                let fits = (at..at + width).all(|place| places.contains(&place));
                if !fits || (at > 0 && width > 1 && places.contains(&(at - 1)) && !at.is_multiple_of(2)) {
                    continue;
                }
                let field = &bytes[at..at + width];
                for big in [true, false] {
                    let fold = |n: u64, b: &u8| n << 8 | u64::from(*b);
                    let here = if big { field.iter().fold(0, fold) } else { field.iter().rev().fold(0, fold) };
                    let by = |delta: u64| [here.wrapping_add(delta), here.wrapping_sub(delta)];
                    let moved = [0, 1, u64::MAX].map(|near| difference.wrapping_add(near));
                    let moved = moved.into_iter().flat_map(|d| [by(d), by(d.swap_bytes()), by(d >> 2)]).flatten();
                    for number in wanted.iter().copied().chain(moved) {
                        let all = if big { number.to_be_bytes() } else { number.to_le_bytes() };
                        let new = if big { &all[8 - width..] } else { &all[..width] };
                        if new == field {
                            continue;
                        }
                        let mut bytes = bytes.clone();
                        bytes[at..at + width].copy_from_slice(new);
                        if self.set(case, own, bytes, other)? {
                            return Ok(true);
                        }
                    }
                }
            }
        }
        // A single byte, for masks and shifts; where many bytes contribute, one of them seldom decides.
        for &at in places.iter().take(6) {
            for value in 0..=255 {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                if self.set(case, own, bytes, other)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn set(&mut self, case: &Case, own: &Move, bytes: Vec<u8>, wanted: (usize, bool)) -> Result<bool, ProgramError> {
        let mut changed = case.clone();
        own.span.set(&mut changed, &self.runner.program.maps, bytes);
        self.attempt(changed.clone())?;
        if !self.runner.edges.contains(&wanted)
            && !own.known.is_empty()
            && let Some(followed) = self.follow(case, &own.known, changed)?
        {
            self.attempt(followed)?;
        }
        Ok(self.runner.edges.contains(&wanted))
    }

    /// The lookups of a case, in order.
    fn lookups(&mut self, case: &Case) -> Result<Vec<Lookup>, ProgramError> {
        let mut all = Vec::new();
        self.run(case, |_, trail| all.extend(trail.lookups.iter().cloned()))?;
        Ok(all)
    }

    /// A changed case with the entries of `case`, whose lookups are `known`, under its own keys too; none if it asks for the
    /// same ones.
    fn follow(&mut self, case: &Case, known: &[Lookup], mut changed: Case) -> Result<Option<Case>, ProgramError> {
        let mut is_followed = false;
        for _ in 0..MAX_FOLLOWED {
            let found = self.lookups(&changed)?;
            let same = known.iter().zip(&found).take_while(|(known, found)| known.map == found.map);
            // The first lookup that would find another value.
            let other = same.into_iter().find_map(|(known, found)| {
                let name = &self.runner.program.maps.get(known.map)?.name;
                let value = case.state.maps.get(name)?.get(&known.key)?;
                let own = changed.state.maps.get(name).and_then(|entries| entries.get(&found.key));
                (own != Some(value)).then(|| (name.clone(), found.key.clone(), value.clone()))
            });
            let Some((name, key, value)) = other else { break };
            changed.state.maps.entry(name).or_default().insert(key, value);
            is_followed = true;
        }
        Ok(is_followed.then_some(changed))
    }
}
