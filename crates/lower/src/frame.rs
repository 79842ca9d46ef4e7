// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Insertion and removal of bytes in a frame.
//!
//! Goal: insert or remove headers at a place at most six tags and labels after the addresses.
//!
//! ```text
//!  grow:    call xdp_adjust_head(-n)             shrink:  move the bytes before the place up by n, last first
//!           move the bytes before it down by n            call xdp_adjust_head(n)
//! ```
//!
//! The bytes before the place are the 12 bytes of addresses, or those, tags and labels, and the EtherType. They are
//! moved in pieces at constant offsets from the packet's start; pieces for tags and labels that the frame lacks are
//! skipped.
//!
//! Holds before: the parse has found the bytes to remove. Holds after: the packet's start and end are reloaded, and all
//! other packet addresses are invalid.
//!
//! Limits: [`HEADROOM_BYTES`] before the packet.

use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, Cond};

use super::asm::{Operand, R0, R1, R2, Reg, Size};
use super::lowering::Lowering;

/// Headroom: 256 bytes, of which the kernel needs 40 to send the packet [Linux include/net/xdp.h].
pub(super) const HEADROOM_BYTES: u32 = 256 - 40;
/// Length of both MAC addresses.
const ADDRESSES_BYTES: i16 = 12;
/// Length of a tag or a label.
const TAG_BYTES: i16 = 4;
/// Mask of the distance to an EtherType, which at most 6 tags and labels precede.
const NEAR: i32 = 0x3f;

/// Bytes before the place where a frame changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before {
    /// Both addresses.
    Addresses,
    /// All bytes up to and including an EtherType at this distance, with at most this number of tags and labels.
    Type(Reg, i16),
}

/// A base address and an offset.
pub(super) type StackSlot = (Reg, i16);

impl Lowering<'_> {
    /// Checks that `bytes` bytes from `base` on are in the packet. The parse has already found them; the kernel's
    /// verifier wants a bounds check for each address.
    fn ensure(&mut self, base: Reg, bytes: i16) {
        let headroom_exit = self.headroom_exit();
        let b = &mut self.builder;
        let end = b.dup(base);
        b.alu64(AluOp::Add, end, Operand::Imm(bytes.into()));
        b.jump64(Cond::Gt, end, Operand::Reg(self.data_end), headroom_exit);
    }

    /// The address of the EtherType at a distance, with `beyond_bytes` checked bytes after it.
    pub(super) fn type_address(&mut self, distance: Reg, beyond_bytes: i16) -> Reg {
        let b = &mut self.builder;
        let near = b.dup(distance);
        b.alu64(AluOp::And, near, Operand::Imm(NEAR));
        let address = b.dup(self.data);
        b.alu64(AluOp::Add, address, Operand::Reg(near));
        self.ensure(address, 2 + beyond_bytes);
        address
    }

    /// The address after both MAC addresses, with `bytes` checked bytes.
    pub(super) fn ensure_after_addresses(&mut self, bytes: i16) -> StackSlot {
        self.ensure(self.data, ADDRESSES_BYTES + bytes);
        (self.data, ADDRESSES_BYTES)
    }

    fn adjust_head(&mut self, distance: Operand) {
        let Some(ctx) = self.ctx else { return };
        let headroom_exit = self.headroom_exit();
        let b = &mut self.builder;
        match distance {
            Operand::Imm(imm) => b.set(R2, imm as u64),
            Operand::Reg(reg) => b.copy(R2, reg),
        }
        b.copy(R1, ctx);
        b.call(helper::XDP_ADJUST_HEAD, 2);
        b.jump64(Cond::Ne, R0, Operand::Imm(0), headroom_exit);
        self.load_ends(ctx);
    }

    /// Inserts `bytes` bytes.
    pub(super) fn grow(&mut self, before: Before, bytes: i16) {
        self.adjust_head(Operand::Imm(-i32::from(bytes)));
        let data = self.data;
        let (from, to) = ((data, bytes), (data, 0));
        let (fixed, tags) = before.parts();
        self.ensure(data, bytes + fixed);
        let mut at = 0;
        for size in pieces(fixed) {
            self.move_piece(size, at, from, to);
            at += size.bytes() as i16;
        }
        let moved = self.builder.label();
        if let Before::Type(distance, _) = before {
            for tag in 0..tags {
                let at = fixed + tag * TAG_BYTES;
                self.builder.jump64(Cond::Le, distance, Operand::Imm((at - 2).into()), moved);
                self.ensure(data, bytes + at + TAG_BYTES);
                self.move_piece(Size::W, at, from, to);
            }
        }
        self.builder.place(moved);
    }

    /// Removes `bytes` bytes; a register holds at most `0x7fff`.
    pub(super) fn shrink(&mut self, before: Before, bytes: Operand) {
        let data = self.data;
        let to = match bytes {
            Operand::Imm(imm) => (data, imm as i16),
            Operand::Reg(reg) => {
                let to = self.builder.dup(data);
                self.builder.alu64(AluOp::Add, to, Operand::Reg(reg));
                (to, 0)
            }
        };
        let (fixed, tags) = before.parts();
        if let Before::Type(distance, _) = before {
            for tag in (0..tags).rev() {
                let (at, none) = (fixed + tag * TAG_BYTES, self.builder.label());
                self.builder.jump64(Cond::Le, distance, Operand::Imm((at - 2).into()), none);
                self.ensure_both(to, at + TAG_BYTES);
                self.move_piece(Size::W, at, (data, 0), to);
                self.builder.place(none);
            }
        }
        self.ensure_both(to, fixed);
        let mut at = fixed;
        for size in pieces(fixed).rev() {
            at -= size.bytes() as i16;
            self.move_piece(size, at, (data, 0), to);
        }
        self.adjust_head(bytes);
    }

    /// Checks `bytes` bytes at the packet's start and at `to`.
    fn ensure_both(&mut self, to: StackSlot, bytes: i16) {
        let data = self.data;
        if to.0 != data {
            self.ensure(data, bytes);
        }
        self.ensure(to.0, to.1 + bytes);
    }

    fn move_piece(&mut self, size: Size, at: i16, from: StackSlot, to: StackSlot) {
        let b = &mut self.builder;
        let piece = b.reg();
        b.load(size, piece, from.0, from.1 + at);
        b.store(size, to.0, to.1 + at, Operand::Reg(piece));
    }
}

impl Before {
    /// Number of bytes that are always there, and the largest number of tags and labels after them.
    fn parts(self) -> (i16, i16) {
        match self {
            Before::Addresses => (ADDRESSES_BYTES, 0),
            Before::Type(_, tags) => (ADDRESSES_BYTES + 2, tags),
        }
    }
}

/// Access sizes that together cover 12 or 14 bytes.
fn pieces(bytes: i16) -> impl DoubleEndedIterator<Item = Size> {
    let all = [Size::Dw, Size::W, Size::H];
    all.into_iter().filter(move |size| bytes & size.bytes() as i16 != 0)
}
