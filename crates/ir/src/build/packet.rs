// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packet: the bytes as received, and those written since.
//!
//! ```text
//!   base    the reference of an offset: the first byte of the packet, or an offset known only at run time
//!   loads   bytes written at that base; else bytes written at others, if the offsets are equal; else bytes as received
//! ```
//!
//! Bytes written at constant offsets are a map (`State::packet`) from offset to value. Those written at other offsets
//! are overlays, one a base, later ones above earlier ones; the map lies above all of them.

use std::collections::{BTreeMap, BTreeSet};

use super::builder::Builder;
use super::offset::Sum;
use super::state::{Place, Region, State, leak};
use crate::bdd::Bdd;
use crate::dataflow::{Laid, Overlay};
use crate::graph::{Id, Kind};
use crate::refusal::Reason;

/// The most constant offsets that a byte is selected from: a mux of four is one six-input LUT a bit. With more, the
/// byte is at a variable offset, and loads of one base share the shifter that aligns the packet.
const FEW: usize = 4;

impl Builder<'_> {
    /// The place in the packet at an offset.
    pub(super) fn packet_place(&mut self, sum: &Sum) -> Place {
        Place { region: Region::Packet, offset: sum.constant, moved: self.base(sum) }
    }

    /// The offset of a place in the packet, from its first byte as received.
    pub(super) fn place_sum(&mut self, state: &State, place: &Place) -> Result<Sum, Reason> {
        let start = match place.region {
            Region::Packet => Sum::of(place.offset),
            Region::End => self.sum_of(state.tail).plus(&Sum::of(place.offset), 1),
            _ => return Err(leak()),
        };
        Ok(match place.moved {
            None => start,
            Some(moved) => start.plus(&self.sum_of(moved), 1),
        })
    }

    /// The offset of an address in the packet: 32 bits, signed.
    pub(super) fn packet_offset(&mut self, state: &State, places: &[(Bdd, Place)]) -> Result<Id, Reason> {
        let mut offsets = Vec::new();
        let mut care = Bdd::FALSE;
        for (condition, place) in places {
            let sum = self.place_sum(state, place)?;
            offsets.push((*condition, self.offset(&sum)));
            care = self.conditions.or(care, *condition);
        }
        Ok(self.mux(&offsets, care))
    }

    pub(super) fn packet_sum(&mut self, state: &State, places: &[(Bdd, Place)]) -> Result<Sum, Reason> {
        if let [(_, place)] = places {
            return self.place_sum(state, place);
        }
        let offset = self.packet_offset(state, places)?;
        Ok(self.sum_of(offset))
    }

    pub(super) fn joined_place(&mut self, places: Vec<(Bdd, Place)>) -> (Bdd, Place) {
        let mut care = Bdd::FALSE;
        let mut offsets = Vec::new();
        for (condition, place) in places {
            let mut sum = Sum::of(place.offset);
            if let Some(moved) = place.moved {
                sum = sum.plus(&self.sum_of(moved), 1);
            }
            offsets.push((condition, self.offset(&sum)));
            care = self.conditions.or(care, condition);
        }
        let offset = self.mux(&offsets, care);
        let sum = self.sum_of(offset);
        (care, self.packet_place(&sum))
    }

    /// Bytes of the packet in its current state.
    pub(super) fn packet_bytes(&mut self, state: &State, base: Option<Id>, at: i64, len: usize) -> Vec<Id> {
        (0..len as i64).map(|byte| self.packet_byte(state, base, at + byte)).collect()
    }

    fn packet_byte(&mut self, state: &State, base: Option<Id>, at: i64) -> Id {
        if let (None, Some(byte)) = (base, state.packet.get(&at)) {
            return *byte;
        }
        let mut byte = self.received_byte(state, base, at);
        for overlay in &state.overlays {
            if base == Some(overlay.base) {
                if let Some(laid) = overlay.bytes.get(&at) {
                    byte = self.graph.select(vec![laid.when, laid.byte, byte]);
                }
                continue;
            }
            let distance_of_bases = self.distance_of_bases(base, Some(overlay.base));
            for (other, laid) in &overlay.bytes {
                let is_there = self.offsets_equal(&distance_of_bases, at - other);
                let bit = self.graph.and(is_there, laid.when);
                byte = self.graph.select(vec![bit, laid.byte, byte]);
            }
        }
        if base.is_some() {
            let distance_of_bases = self.distance_of_bases(base, None);
            for (other, written) in &state.packet {
                let bit = self.offsets_equal(&distance_of_bases, at - other);
                byte = self.graph.select(vec![bit, *written, byte]);
            }
        }
        byte
    }

    /// A byte of the packet as received.
    pub(super) fn original(&mut self, base: Option<Id>, at: i64) -> Id {
        let Some(base) = base else { return self.graph.byte(at) };
        let node = self.graph.node(base).clone();
        let values: Vec<Option<u64>> = node.args.iter().map(|arg| self.graph.as_const(*arg)).collect();
        let are_known =
            || (0..values.len()).all(|place| place % 2 == 0 && place + 1 != values.len() || values[place].is_some());
        if node.kind == Kind::Select && values.len() < 2 * FEW && are_known() {
            let parts = node.args.iter().zip(&values).enumerate().map(|(place, (arg, value))| match value {
                Some(value) if place % 2 == 1 || place + 1 == values.len() => {
                    self.graph.byte(i64::from(*value as i32) + at)
                }
                _ => *arg,
            });
            let parts = parts.collect();
            return self.graph.select(parts);
        }
        self.graph.make(Kind::Bytes { ahead: at as i32 }, vec![base], 8)
    }

    /// The distance between two bases.
    fn distance_of_bases(&mut self, one: Option<Id>, other: Option<Id>) -> Sum {
        let mut sum = |base: Option<Id>| base.map_or(Sum::of(0), |base| self.sum_of(base));
        let (one, other) = (sum(one), sum(other));
        one.plus(&other, -1)
    }

    /// The bit that two offsets are equal, given the distance of their bases.
    fn offsets_equal(&mut self, distance_of_bases: &Sum, distance: i64) -> Id {
        let sum = distance_of_bases.clone().plus(&Sum::of(distance), 1);
        let bit = self.is_zero(&sum);
        // The caller has recorded the accesses at both offsets: a packet with either beyond the window takes the slow
        // path.
        self.note_test(Bdd::FALSE, bit);
        bit
    }

    fn offsets_may_be_equal(&mut self, distance_of_bases: &Sum, distance: i64) -> bool {
        let sum = distance_of_bases.clone().plus(&Sum::of(distance), 1);
        self.may_be_zero(&sum)
    }

    /// Writes bytes of the packet if a bit is 1.
    pub(super) fn write_packet(&mut self, state: &mut State, base: Option<Id>, at: i64, bytes: &[Id], when: Id) {
        let is_sure = self.graph.as_const(when) == Some(1);
        let offsets = || (at..).zip(bytes.iter().copied());
        let Some(base) = base else {
            for (at, byte) in offsets() {
                let byte = match is_sure {
                    true => byte,
                    false => {
                        let before = self.packet_byte(state, None, at);
                        self.graph.select(vec![when, byte, before])
                    }
                };
                state.packet.insert(at, byte);
            }
            return;
        };
        let distance_of_bases = self.distance_of_bases(Some(base), None);
        for (known, before) in &mut state.packet {
            for (at, byte) in offsets() {
                let is_there = self.offsets_equal(&distance_of_bases, at - known);
                let bit = self.graph.and(is_there, when);
                *before = self.graph.select(vec![bit, byte, *before]);
            }
        }
        let place = self.overlay_for(state, base, at, bytes.len() as i64);
        for (at, byte) in offsets() {
            let known = &mut state.overlays[place].bytes;
            let laid = match known.get(&at) {
                Some(before) if !is_sure => Laid {
                    when: self.graph.or(before.when, when),
                    byte: self.graph.select(vec![when, byte, before.byte]),
                },
                _ => Laid { when, byte },
            };
            known.insert(at, laid);
        }
    }

    /// The overlay of a base, if no later one may overlap these bytes; else a new one.
    fn overlay_for(&mut self, state: &mut State, base: Id, at: i64, len: i64) -> usize {
        for place in (0..state.overlays.len()).rev() {
            let overlay = &state.overlays[place];
            if overlay.base == base {
                return place;
            }
            let distance_of_bases = self.distance_of_bases(Some(base), Some(overlay.base));
            let mut pairs = overlay.bytes.keys().flat_map(|other| (at..at + len).map(move |at| at - other));
            if pairs.any(|distance| self.offsets_may_be_equal(&distance_of_bases, distance)) {
                break;
            }
        }
        state.overlays.push(Overlay { base, bytes: BTreeMap::new() });
        state.overlays.len() - 1
    }

    /// The bytes at constant offsets at a join point.
    pub(super) fn joined_packet(&mut self, paths: &[(Bdd, State)]) -> BTreeMap<i64, Id> {
        let all: BTreeSet<i64> = paths.iter().flat_map(|(_, state)| state.packet.keys().copied()).collect();
        let mut packet = BTreeMap::new();
        for at in all {
            let values: Vec<(Bdd, Id)> =
                paths.iter().map(|(condition, state)| (*condition, self.packet_byte(state, None, at))).collect();
            packet.insert(at, self.mux(&values, Bdd::TRUE));
        }
        packet
    }

    /// The overlays at a join point of two paths. Only one path was taken, so that the overlays of each keep their own
    /// order only.
    pub(super) fn joined_overlays(&mut self, paths: &[(Bdd, State)]) -> Vec<Overlay> {
        if paths.iter().all(|(_, state)| state.overlays == paths[0].1.overlays) {
            return paths[0].1.overlays.clone();
        }
        let mut joined: Vec<(Id, Vec<(Bdd, &Overlay)>)> = Vec::new();
        for (condition, state) in paths {
            let mut from = 0;
            for overlay in &state.overlays {
                let known = (from..joined.len()).find(|place| joined[*place].0 == overlay.base);
                let place = known.unwrap_or_else(|| {
                    joined.insert(from, (overlay.base, Vec::new()));
                    from
                });
                joined[place].1.push((*condition, overlay));
                from = place + 1;
            }
        }
        let never = self.graph.number(0, 1);
        let mut overlays = Vec::new();
        for (base, owns) in joined {
            let all: BTreeSet<i64> = owns.iter().flat_map(|(_, own)| own.bytes.keys().copied()).collect();
            let mut bytes = BTreeMap::new();
            for at in all {
                let laid: Vec<(Bdd, Laid)> =
                    owns.iter().filter_map(|(condition, own)| Some((*condition, *own.bytes.get(&at)?))).collect();
                let (mut has, mut values, mut whens) = (Bdd::FALSE, Vec::new(), Vec::new());
                for (condition, laid) in laid {
                    has = self.conditions.or(has, condition);
                    values.push((condition, laid.byte));
                    whens.push((condition, laid.when));
                }
                let others = self.conditions.not(has);
                if others != Bdd::FALSE {
                    whens.push((others, never));
                }
                bytes.insert(at, Laid { when: self.mux(&whens, Bdd::TRUE), byte: self.mux(&values, has) });
            }
            overlays.push(Overlay { base, bytes });
        }
        overlays
    }

    /// The length of the packet: 32 bits.
    pub(super) fn length(&mut self, state: &State) -> Id {
        let length = self.sum_of(state.tail).plus(&self.sum_of(state.head), -1);
        self.offset(&length)
    }

    /// An offset or distance sign-extended to 64 bits.
    pub(super) fn widened(&mut self, sum: &Sum) -> Id {
        let is_positive = self.is_positive(sum);
        let offset = self.offset(sum);
        if is_positive { self.graph.fit(offset, 64) } else { self.graph.sign_extend(offset, 64) }
    }
}
