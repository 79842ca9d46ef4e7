// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Construction of the flow key on the stack.

use std::collections::BTreeMap;

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::KeySpec;
use flowloom_wire::field::{FieldId, Source};
use flowloom_wire::graph::{Header, Slice};

use super::asm::{FP, Label, Op, Operand, Reg, Size, access_size, is_access};
use super::fields::mask_of;
use super::lowering::Lowering;
use flowloom_efsm::layout;
use flowloom_efsm::model::{Key, KeyPart};

/// Bytes 8 to 11 of `::ffff:0:0`, as a little-endian word.
const MAPPED_WORD: i32 = 0xffff_0000_u32 as i32;

/// Limit on classes of a key; beyond it the field locations are selected while the key is built.
const MAX_CLASSES: usize = 8;

/// Key bytes that are also contiguous in the packet, for each header that can hold them.
#[derive(Debug, Clone)]
struct Piece {
    at: u32,
    bytes: u32,
    places: Vec<(Header, Slice)>,
    /// A value that the parse left in a register.
    register: Option<Reg>,
}

/// Aligned accesses that together cover `bytes` bytes from each offset.
fn chunks(offsets: &[u32], bytes: u32) -> Vec<(u32, Size)> {
    let mut done = 0;
    let mut out = Vec::new();
    while done < bytes {
        let size = [8, 4, 2, 1]
            .into_iter()
            .find(|&s| s <= bytes - done && offsets.iter().all(|o| (o + done) % s == 0))
            .unwrap_or(1);
        out.push((done, access_size(size)));
        done += size;
    }
    out
}

impl Lowering<'_> {
    /// True if a packet with these valid headers has all key fields of the element.
    pub(super) fn key_is_present(&self, element: usize, mask: u32) -> bool {
        self.key_masks(element).iter().all(|&any| mask & any != 0)
    }

    /// For each key field, the headers of which one must be valid.
    pub(super) fn key_masks(&self, element: usize) -> Vec<u32> {
        let key = self.function.elements[element].stateful.as_ref().and_then(|s| s.key.as_ref());
        key.map_or(Vec::new(), |key| key.fields().map(mask_of).filter(|&m| m != 0).collect())
    }

    /// Partition of the valid-header sets that have a key: within a class, each key field is read from one location.
    /// Empty for a stateless element.
    pub(super) fn key_classes(&mut self, element: usize) -> Vec<(Vec<u32>, Label)> {
        let Some(stateful) = &self.function.elements[element].stateful else { return Vec::new() };
        let fields: Vec<FieldId> = stateful.key.iter().flat_map(Key::fields).collect();
        let masks: Vec<u32> =
            self.masks(element).into_iter().filter(|&mask| self.key_is_present(element, mask)).collect();
        let place = |field: FieldId, mask: u32| {
            let places = Lowering::places(field);
            let found = places.iter().find(|(header, _)| mask & header.bit() != 0);
            found.map(|&(header, slice)| (self.pointers[&header], slice))
        };
        let mut classes: BTreeMap<Vec<_>, Vec<u32>> = BTreeMap::new();
        for &mask in &masks {
            classes.entry(fields.iter().map(|&field| place(field, mask)).collect()).or_default().push(mask);
        }
        let classes: Vec<Vec<u32>> =
            if classes.len() > MAX_CLASSES { vec![masks] } else { classes.into_values().collect() };
        classes.into_iter().map(|masks| (masks, self.builder.label())).collect()
    }

    /// Writes the flow key of the element to its slot; all key fields are present.
    pub(super) fn emit_key(&mut self, element: usize) {
        let slot = self.plans[element].key_slot;
        let stateful = self.function.elements[element].stateful.as_ref();
        let Some((spec, key)) = stateful.and_then(|s| Some((layout::key_spec(self.function, s)?, s.key.as_ref()?)))
        else {
            self.builder.store(Size::W, FP, slot, Operand::Imm(0));
            return;
        };
        if spec.pairs().is_empty() {
            self.emit_parts(&spec, &key.parts, slot);
            return;
        }
        let parts = key.parts.clone();
        let mut swapped = parts.clone();
        spec.pairs().iter().for_each(|&(a, b)| swapped.swap(a, b));
        let (swap, done) = (self.builder.label(), self.builder.label());
        self.compare_ends(&spec, &parts, swap);
        self.emit_parts(&spec, &parts, slot);
        self.builder.goto(done);
        self.builder.place(swap);
        self.emit_parts(&spec, &swapped, slot);
        self.builder.place(done);
    }

    fn emit_parts(&mut self, spec: &KeySpec, parts: &[KeyPart], slot: i16) {
        let len = spec.key_bytes() as u32;
        let (addresses, pieces) = self.pieces(spec, parts);
        // Addresses of the same headers share a branch on the family.
        let mut families: BTreeMap<Vec<Header>, Vec<(FieldId, u32)>> = BTreeMap::new();
        for &(field, at) in &addresses {
            families.entry(field.headers()).or_default().push((field, at));
        }
        for addresses in families.into_values() {
            let places = Lowering::places(addresses[0].0);
            self.for_each_place(&places, |this, header, slice| {
                for &(field, at) in &addresses {
                    let Some(&(_, place)) = Lowering::places(field).iter().find(|(h, _)| *h == header) else {
                        continue;
                    };
                    this.store_address(header, slice.width_bits, place, slot, at);
                }
            });
        }
        let used: u32 = pieces.iter().map(|p| p.bytes).sum::<u32>() + 16 * addresses.len() as u32;
        let padding = (used < len).then(|| Piece { at: used, bytes: len - used, places: Vec::new(), register: None });
        let mut word = 0;
        while word < len {
            let size = if len - word >= 8 { 8 } else { 4 };
            let inside: Vec<&Piece> =
                pieces.iter().chain(&padding).filter(|p| p.at < word + size && p.at + p.bytes > word).collect();
            let covered: u32 = inside.iter().map(|p| p.bytes).sum();
            let padding_only = inside.iter().filter(|p| p.register.is_none() && p.places.is_empty()).count();
            let data_fits = inside
                .iter()
                .filter(|p| p.register.is_some() || !p.places.is_empty())
                .all(|p| p.at >= word && p.at + p.bytes <= word + size && is_access(p.bytes));
            let misaligned = inside
                .iter()
                .any(|p| (p.register.is_some() || !p.places.is_empty()) && p.at % p.bytes.next_power_of_two() != 0);
            if covered == size && data_fits && misaligned && padding_only <= 1 {
                let inside: Vec<Piece> = inside.into_iter().cloned().collect();
                self.compose_word(&inside, word, size, slot);
            } else {
                let starting: Vec<Piece> = inside.into_iter().filter(|p| p.at >= word).cloned().collect();
                for piece in &starting {
                    self.store_piece(piece, slot);
                }
            }
            word += size;
        }
    }

    /// The key's addresses with their offsets, and all other parts, with parts contiguous in the packet merged.
    fn pieces(&self, spec: &KeySpec, parts: &[KeyPart]) -> (Vec<(FieldId, u32)>, Vec<Piece>) {
        let mut addresses = Vec::new();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut at = 0;
        for (part, of) in spec.parts().iter().zip(parts) {
            let bytes = part.key_bytes() as u32;
            let field = match *of {
                KeyPart::Field(field) => field,
                KeyPart::Metadata(i) => {
                    let (high, low) = self.metadata[usize::from(i)];
                    let mut piece = |at, bytes, register| {
                        pieces.push(Piece { at, bytes, places: Vec::new(), register: Some(register) });
                    };
                    if bytes > 8 {
                        piece(at, bytes - 8, high);
                    }
                    piece(at + bytes.saturating_sub(8), bytes.min(8), low);
                    at += bytes;
                    continue;
                }
            };
            let register = match field.source() {
                Source::Address { .. } => {
                    addresses.push((field, at));
                    at += bytes;
                    continue;
                }
                Source::IpProto(scope) => self.ip_proto.get(&scope).copied(),
                Source::TcpPayloadLen(header) => self.payload_len.get(&header).copied(),
                Source::PacketLen => Some(self.packet_len),
                Source::PacketPort => Some(self.port),
                Source::Header(..) | Source::Either(_) => None,
            };
            let places = Lowering::places(field);
            let follows = |last: &Piece| {
                last.at + last.bytes == at
                    && register.is_none()
                    && last.register.is_none()
                    && is_access(last.bytes + bytes)
                    && last.places.len() == places.len()
                    && last.places.iter().zip(&places).all(|((h, s), (g, t))| {
                        h == g
                            && s.offset_bits % 8 == 0
                            && s.width_bits % 8 == 0
                            && t.width_bits % 8 == 0
                            && s.offset_bits + u16::from(s.width_bits) == t.offset_bits
                    })
            };
            match pieces.last_mut() {
                Some(last) if follows(last) => {
                    last.bytes += bytes;
                    for ((_, slice), (_, more)) in last.places.iter_mut().zip(&places) {
                        slice.width_bits += more.width_bits;
                    }
                }
                _ => pieces.push(Piece { at, bytes, places, register }),
            }
            at += bytes;
        }
        (addresses, pieces)
    }

    fn store_address(&mut self, header: Header, width_bits: u8, place: Slice, slot: i16, at: u32) {
        let base = self.pointers[&header];
        let offset = (place.offset_bits / 8) as i16;
        let key = |at: u32| slot + at as i16;
        let b = &mut self.builder;
        if width_bits == 128 {
            for (done, size) in chunks(&[at], 16) {
                let value = b.reg();
                b.load(size, value, base, offset + done as i16);
                b.store(size, FP, key(at + done), Operand::Reg(value));
            }
        } else if at.is_multiple_of(8) {
            b.store(Size::Dw, FP, key(at), Operand::Imm(0));
            b.store(Size::W, FP, key(at + 8), Operand::Imm(MAPPED_WORD));
            let value = b.reg();
            b.load(Size::W, value, base, offset);
            b.store(Size::W, FP, key(at + 12), Operand::Reg(value));
        } else {
            for i in 0..12 {
                let byte = if i < 10 { 0 } else { 0xff };
                b.store(Size::B, FP, key(at + i), Operand::Imm(byte));
            }
            for (done, size) in chunks(&[at + 12], 4) {
                let value = b.reg();
                b.load(size, value, base, offset + done as i16);
                b.store(size, FP, key(at + 12 + done), Operand::Reg(value));
            }
        }
    }

    /// The bytes of the piece in memory order, at most 8, in a new register.
    fn load_raw(&mut self, piece: &Piece) -> Reg {
        let value = self.builder.reg();
        if let Some(register) = piece.register {
            self.builder.copy(value, register);
            self.put_in_memory_order(value, piece.bytes);
            return value;
        }
        let bytes = piece.bytes;
        let places = piece.places.clone();
        self.for_each_place(&places, |this, header, slice| {
            let base = this.pointers[&header];
            let whole = slice.offset_bits % 8 == 0 && u32::from(slice.width_bits) == bytes * 8;
            if whole && is_access(bytes) {
                this.builder.load(access_size(bytes), value, base, (slice.offset_bits / 8) as i16);
            } else {
                this.load_slice(value, base, slice, this.min_bytes(header));
                this.put_in_memory_order(value, bytes);
            }
        });
        value
    }

    /// Converts a number so that a little-endian store of `bytes` bytes writes it big endian.
    fn put_in_memory_order(&mut self, value: Reg, bytes: u32) {
        let b = &mut self.builder;
        match bytes {
            1 => {}
            2 | 4 | 8 => b.push(Op::FromBe { dst: value, bits: bytes as i32 * 8 }),
            _ => {
                b.push(Op::FromBe { dst: value, bits: 64 });
                b.alu64(AluOp::Rsh, value, Operand::Imm(64 - bytes as i32 * 8));
            }
        }
    }

    /// Composes the pieces of one word in a register and stores it.
    fn compose_word(&mut self, inside: &[Piece], word: u32, size: u32, slot: i16) {
        let mut composed: Option<Reg> = None;
        for piece in inside {
            if piece.register.is_none() && piece.places.is_empty() {
                continue;
            }
            let value = self.load_raw(piece);
            let b = &mut self.builder;
            if piece.at > word {
                b.alu64(AluOp::Lsh, value, Operand::Imm((piece.at - word) as i32 * 8));
            }
            match composed {
                None => composed = Some(value),
                Some(all) => b.alu64(AluOp::Or, all, Operand::Reg(value)),
            }
        }
        if let Some(all) = composed {
            self.builder.store(access_size(size), FP, slot + word as i16, Operand::Reg(all));
        }
    }

    fn store_piece(&mut self, piece: &Piece, slot: i16) {
        if piece.register.is_none() && piece.places.is_empty() {
            for (done, size) in chunks(&[piece.at], piece.bytes) {
                self.builder.store(size, FP, slot + (piece.at + done) as i16, Operand::Imm(0));
            }
            return;
        }
        if piece.bytes > 8 {
            let (bytes, at, places) = (piece.bytes, piece.at, piece.places.clone());
            self.for_each_place(&places, |this, header, slice| {
                let base = this.pointers[&header];
                for (done, size) in chunks(&[at], bytes) {
                    let value = this.builder.reg();
                    this.builder.load(size, value, base, (slice.offset_bits / 8) as i16 + done as i16);
                    this.builder.store(size, FP, slot + (at + done) as i16, Operand::Reg(value));
                }
            });
            return;
        }
        let value = self.load_raw(piece);
        let b = &mut self.builder;
        let chunks = chunks(&[piece.at], piece.bytes);
        let last = chunks.len() - 1;
        for (i, (done, size)) in chunks.into_iter().enumerate() {
            b.store(size, FP, slot + (piece.at + done) as i16, Operand::Reg(value));
            if i < last {
                let bytes = match size {
                    Size::B => 1,
                    Size::H => 2,
                    Size::W => 4,
                    Size::Dw => 8,
                };
                b.alu64(AluOp::Rsh, value, Operand::Imm(bytes * 8));
            }
        }
    }

    /// Jumps to `swap` if the first endpoint of the connection is larger: by address as a number, then by port.
    fn compare_ends(&mut self, spec: &KeySpec, parts: &[KeyPart], swap: Label) {
        let keep = self.builder.label();
        for &(a, b) in spec.pairs() {
            let (KeyPart::Field(a), KeyPart::Field(b)) = (parts[a], parts[b]) else { continue };
            let others = Lowering::places(b);
            self.for_each_place(&Lowering::places(a), |this, header, left| {
                let Some(&(_, right)) = others.iter().find(|(h, _)| *h == header) else { return };
                let base = this.pointers[&header];
                let offsets = [left, right].map(|slice| u32::from(slice.offset_bits) / 8);
                for (at, size) in chunks(&[0], u32::from(left.width_bits) / 8) {
                    let b = &mut this.builder;
                    let [left, right] = offsets.map(|offset| {
                        let value = b.reg();
                        b.load(size, value, base, (offset + at) as i16);
                        value
                    });
                    let equal = b.label();
                    b.jump64(Cond::Eq, left, Operand::Reg(right), equal);
                    if size != Size::B {
                        let bits = size.bytes() as i32 * 8;
                        b.push(Op::FromBe { dst: left, bits });
                        b.push(Op::FromBe { dst: right, bits });
                    }
                    b.jump64(Cond::Gt, left, Operand::Reg(right), swap);
                    b.goto(keep);
                    b.place(equal);
                }
            });
        }
        self.builder.place(keep);
    }
}
