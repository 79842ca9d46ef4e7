// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helper calls: those that move or read the packet become values, the others effects (`effect.rs`).

use flowloom_isa::insn::helper;
use flowloom_isa::op::Reg;

use super::builder::{Builder, MAX_BYTES};
use super::offset::{OFFSET_BITS, Sum};
use super::state::{Place, State, Value, places, set};
use crate::bdd::Bdd;
use crate::graph::{Binary, Compare, Id, Input, Kind};
use crate::refusal::Reason;

/// -EINVAL
pub(super) const INVALID: u64 = -22i64 as u64;
/// -EFAULT
const BAD_ADDRESS: u64 = -14i64 as u64;
/// The largest offset that `xdp_load_bytes` and `xdp_store_bytes` accept.
const LAST_OFFSET: u64 = 0xffff;
/// The least length of a packet, in bytes.
const ETHERNET_BYTES: u64 = 14;
/// The headroom: how far before its first byte as received a packet may begin, and the offset up to which it may grow
/// [Linux net/core/filter.c; as the interpreter].
pub(super) const FIRST_HEAD: i64 = 40 - 256;
const LAST_TAIL: u64 = 4096 - 320 - 256;

/// The arguments of a copy from or to the packet.
struct Copied {
    /// The place in the packet.
    place: [(Bdd, Place); 1],
    /// Whether all bytes are in the packet: one bit.
    fine: Id,
    /// The result of the helper: 64 bits.
    status: Id,
}

impl Builder<'_> {
    pub(super) fn call(&mut self, path: Bdd, state: &mut State, number: i32) -> Result<(), Reason> {
        let answer = match number {
            helper::XDP_ADJUST_HEAD => Value::Number(self.adjust_head(state)?),
            helper::XDP_ADJUST_META => Value::Number(self.adjust_meta(state)?),
            helper::XDP_ADJUST_TAIL => Value::Number(self.adjust_tail(state)?),
            helper::XDP_GET_BUFF_LEN => {
                let len = self.length(state);
                Value::Number(self.graph.fit(len, 64))
            }
            helper::XDP_LOAD_BYTES => Value::Number(self.load_packet(path, state)?),
            helper::XDP_STORE_BYTES => Value::Number(self.store_packet(path, state)?),
            helper::FL_PARSE => Value::Number(self.parse_headers(state)?),
            helper::CSUM_DIFF => Value::Number(self.csum_diff(path, state)?),
            // All effects of a packet are atomic already.
            helper::SPIN_LOCK | helper::SPIN_UNLOCK => Value::Nothing,
            _ => self.effect(path, state, number)?,
        };
        for number in 1..=5 {
            state.frame_mut().registers[number] = Value::Nothing;
        }
        set(state, Reg::R0, answer);
        Ok(())
    }

    pub(super) fn argument(&mut self, state: &State, number: u8) -> Value {
        Reg::new(number).map_or(Value::Nothing, |register| self.value(state, register))
    }

    pub(super) fn number_argument(&mut self, state: &State, number: u8) -> Result<Id, Reason> {
        let value = self.argument(state, number);
        self.as_number(value)
    }

    /// 0 if the bit is 1, an error otherwise.
    fn status(&mut self, fine: Id) -> Id {
        let (zero, invalid) = (self.graph.number(0, 64), self.graph.number(INVALID, 64));
        self.graph.select(vec![fine, zero, invalid])
    }

    fn adjust_head(&mut self, state: &mut State) -> Result<Id, Reason> {
        let by = self.number_argument(state, 2)?;
        let by = self.graph.slice(by, 0, OFFSET_BITS);
        let new = self.graph.binary(Binary::Add, state.head, by);
        // The metadata area moves along, and takes room.
        let first = match self.metadata_bytes(state) {
            None => self.graph.number(FIRST_HEAD as u64, OFFSET_BITS),
            Some(len) => self.offset(&len.plus(&Sum::of(FIRST_HEAD), 1)),
        };
        let is_before = self.compared_anywhere(Compare::SignedBelow, new, first);
        // Too late for an Ethernet header to remain. The end is a small number; an invalid start may be any number.
        let is_late = match self.graph.as_const(new) {
            Some(new) if (new as i32) < LAST_TAIL as i32 => {
                let least = self.graph.number(new.wrapping_add(ETHERNET_BYTES), OFFSET_BITS);
                self.compared_anywhere(Compare::SignedBelow, state.tail, least)
            }
            _ => {
                let ethernet = self.graph.number(ETHERNET_BYTES, OFFSET_BITS);
                let last = self.graph.binary(Binary::Sub, state.tail, ethernet);
                self.compared_anywhere(Compare::SignedBelow, last, new)
            }
        };
        let refused = self.graph.or(is_before, is_late);
        let fine = self.graph.not(refused);
        let head = self.graph.select(vec![fine, new, state.head]);
        self.move_metadata(state, head, fine);
        state.head = head;
        Ok(self.status(fine))
    }

    fn adjust_tail(&mut self, state: &mut State) -> Result<Id, Reason> {
        if std::mem::replace(&mut state.is_cut, true) {
            self.clear_past_tail(state);
        }
        let by = self.number_argument(state, 2)?;
        let by = self.graph.slice(by, 0, 32);
        let new = self.graph.binary(Binary::Add, state.tail, by);
        let least = self.graph.number(ETHERNET_BYTES, 32);
        let least = self.graph.binary(Binary::Add, state.head, least);
        let short = self.compared_anywhere(Compare::SignedBelow, new, least);
        let length = self.graph.make(Kind::Input(Input::Length), Vec::new(), 16);
        let length = self.graph.fit(length, 32);
        let most = self.graph.number(LAST_TAIL, 32);
        let past_room = self.compared_anywhere(Compare::SignedBelow, most, new);
        let past_first = self.compared_anywhere(Compare::SignedBelow, length, new);
        let long = self.graph.and(past_room, past_first);
        let refused = self.graph.or(short, long);
        let fine = self.graph.not(refused);
        state.tail = self.graph.select(vec![fine, new, state.tail]);
        Ok(self.status(fine))
    }

    /// The range of `len` bytes at an offset from the packet's start.
    fn copied(&mut self, state: &State, len: u64) -> Result<Copied, Reason> {
        let offset = self.number_argument(state, 2)?;
        let offset = self.graph.slice(offset, 0, OFFSET_BITS);
        let last = self.graph.number(LAST_OFFSET, OFFSET_BITS);
        let is_far = self.compared_anywhere(Compare::Below, last, offset);
        let from = self.sum_of(offset);
        let (length, end) = (self.length(state), self.offset(&from.clone().plus(&Sum::of(len as i64), 1)));
        // Neither is negative unless the offset is out of range.
        let is_short = self.compared_anywhere(Compare::SignedBelow, length, end);
        let wrong = self.graph.or(is_far, is_short);
        let errors = [BAD_ADDRESS, INVALID, 0].map(|error| self.graph.number(error, 64));
        let status = self.graph.select(vec![is_far, errors[0], is_short, errors[1], errors[2]]);
        let sum = self.sum_of(state.head).plus(&from, 1);
        let place = [(Bdd::TRUE, self.packet_place(&sum))];
        Ok(Copied { place, fine: self.graph.not(wrong), status })
    }

    fn constant_length(&mut self, state: &State, argument: u8) -> Result<u64, Reason> {
        let len = self.number_argument(state, argument)?;
        let len = self.graph.as_const(len).filter(|len| *len <= MAX_BYTES as u64);
        len.ok_or(Reason::Length { most: MAX_BYTES })
    }

    fn load_packet(&mut self, path: Bdd, state: &mut State) -> Result<Id, Reason> {
        let len = self.constant_length(state, 4)?;
        let Copied { place, fine, status } = self.copied(state, len)?;
        let bytes = self.load_bytes(path, state, &place, 0, len as usize)?;
        let to = places(self.argument(state, 3))?;
        let there = self.conditions.of(&self.graph, fine);
        let here = self.conditions.and(path, there);
        self.store_bytes_within(path, here, state, &to, &bytes)?;
        Ok(status)
    }

    fn store_packet(&mut self, path: Bdd, state: &mut State) -> Result<Id, Reason> {
        let len = self.constant_length(state, 4)?;
        let Copied { place, fine, status } = self.copied(state, len)?;
        let from = places(self.argument(state, 3))?;
        let bytes = self.load_bytes(path, state, &from, 0, len as usize)?;
        let there = self.conditions.of(&self.graph, fine);
        let here = self.conditions.and(path, there);
        self.store_bytes_within(path, here, state, &place, &bytes)?;
        Ok(status)
    }

    /// Stores bytes where a condition holds on a path.
    pub(super) fn store_bytes_within(
        &mut self,
        path: Bdd,
        here: Bdd,
        state: &mut State,
        to: &[(Bdd, Place)],
        bytes: &[Id],
    ) -> Result<(), Reason> {
        let mut to: Vec<(Bdd, Place)> = to.to_vec();
        for (condition, _) in &mut to {
            *condition = self.conditions.and(*condition, here);
        }
        self.store_bytes(path, state, &to, 0, bytes, None)
    }

    /// The difference of two one's complement sums of 32-bit words [Linux net/core/filter.c bpf_csum_diff].
    fn csum_diff(&mut self, path: Bdd, state: &State) -> Result<Id, Reason> {
        let (from_len, to_len) = (self.constant_length(state, 2)?, self.constant_length(state, 4)?);
        let seed = self.number_argument(state, 5)?;
        let seed = self.graph.slice(seed, 0, 32);
        let words = |builder: &mut Self, argument: u8, len: u64| -> Result<Vec<Id>, Reason> {
            if len == 0 {
                return Ok(Vec::new());
            }
            let from = places(builder.argument(state, argument))?;
            let bytes = builder.load_bytes(path, state, &from, 0, len as usize)?;
            let words = bytes.chunks(4).map(|word| builder.graph.concat(word.to_vec())).collect::<Vec<Id>>();
            Ok(words.into_iter().map(|word| builder.graph.fit(word, 64)).collect())
        };
        let (from, to) = (words(self, 1, from_len)?, words(self, 3, to_len)?);
        let difference = match (from_len, to_len) {
            (0, 0) => seed,
            (0, _) => self.words_sum(&to, Some(seed)),
            (_, 0) => {
                let not = self.graph.not(seed);
                let sum = self.words_sum(&from, Some(not));
                self.graph.not(sum)
            }
            _ => {
                let (to, from) = (self.words_sum(&to, Some(seed)), self.words_sum(&from, None));
                let not = self.graph.not(from);
                let (a, b) = (self.graph.fit(to, 64), self.graph.fit(not, 64));
                let total = self.graph.binary(Binary::Add, a, b);
                self.carried(total, 32)
            }
        };
        let folded = self.carried_once(difference, 16);
        let folded = self.carried_once(folded, 16);
        Ok(self.graph.fit(folded, 64))
    }

    fn words_sum(&mut self, words: &[Id], seed: Option<Id>) -> Id {
        let mut total = self.graph.number(0, 64);
        let seed = seed.map(|seed| self.graph.fit(seed, 64));
        for word in words.iter().copied().chain(seed) {
            total = self.graph.binary(Binary::Add, total, word);
        }
        self.carried(total, 32)
    }

    /// Adds the carries above the low bits, twice.
    fn carried(&mut self, total: Id, bits: u16) -> Id {
        let once = self.carried_once(total, bits);
        let twice = self.carried_once(once, bits);
        self.graph.slice(twice, 0, bits)
    }

    fn carried_once(&mut self, total: Id, bits: u16) -> Id {
        let all = self.graph.bits(total);
        let (low, high) = (self.graph.slice(total, 0, bits), self.graph.slice(total, bits, all - bits));
        let (low, high) = (self.graph.fit(low, all), self.graph.fit(high, all));
        self.graph.binary(Binary::Add, low, high)
    }
}
