// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Abstract values of registers and stack slots.

use super::number::Range;
use super::origin::Origin;

#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// Uninitialised, or clobbered by a call.
    Unwritten,
    Number(Number),
    Address(Address),
}

/// A number, and its relations to others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// The possible values.
    pub(super) range: Range,
    /// What it was computed from.
    pub(super) origin: Origin,
    /// Numbers that share a link differ by a constant: refinements of one apply to all.
    pub(super) link: Option<Link>,
    /// Set if it is the distance from an address to the end of the packet.
    pub(super) room: Option<Room>,
    /// Set if it was an address that became invalid.
    pub(super) invalid: Option<Invalid>,
}

/// Why an address is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Invalid {
    pub(super) cause: Cause,
    /// The instruction that invalidated it.
    pub(super) insn: u32,
}

/// What invalidated an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// A call moved the packet.
    PacketMoved,
    /// A call released the record.
    RecordReleased,
    /// The callback that got the key ended.
    CallbackEnded,
}

/// A link, and the distance from its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) family: u32,
    pub(super) plus: i32,
}

/// The distance from an address in the packet to the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// The id of the addresses that it applies to.
    pub(super) id: u32,
    /// The offset of the address.
    pub(super) fixed: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Region {
    /// `struct xdp_md`.
    Context,
    /// The stack of a frame; offsets are relative to its end, and negative.
    Stack { frame: u8 },
    /// The packet, from its first byte.
    Packet,
    /// The metadata area, from `data_meta`.
    Metadata,
    /// The end of the packet.
    PacketEnd,
    /// A map.
    Map(MapId),
    /// A map value.
    Value(MapId),
    /// The key that a callback in this frame got.
    Key { map: MapId, frame: u8 },
    /// A reserved ring buffer record.
    Record { reference: u32, bytes: u32 },
    /// Memory that callers pass to a global function, which is verified separately: argument `number`, from 1.
    Argument { function: u16, number: u8, bytes: u32 },
    /// A function of the program, by its first slot.
    Function { slot: u32 },
}

impl Region {
    /// Whether it is memory that helpers can access.
    pub(super) fn has_bytes(self) -> bool {
        !matches!(self, Region::Context | Region::PacketEnd | Region::Map(_) | Region::Function { .. })
    }
}

/// A map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapId {
    /// The map of this index.
    Of(u32),
    /// A map from the map of maps of this index.
    In(u32),
}

/// An address: a region and an offset, part of which may be variable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    pub(super) to: Region,
    /// The constant part of the offset.
    pub(super) fixed: i64,
    /// The variable part.
    pub(super) var: Range,
    /// The id shared by addresses that are null together, or have the same variable offset.
    pub(super) id: u32,
    pub(super) nullable: bool,
    /// In the packet or metadata area: the number of bytes known to be present from the common base of an `id`.
    pub(super) checked: u32,
}

impl Number {
    /// A number without relations.
    pub(super) fn new(range: Range, origin: Origin) -> Number {
        Number { range, origin, link: None, room: None, invalid: None }
    }

    /// An address that the instruction in this slot invalidated.
    pub(super) fn invalid(cause: Cause, insn: usize, origin: Origin) -> Number {
        Number { invalid: Some(Invalid { cause, insn: insn as u32 }), ..Number::new(Range::ANY, origin) }
    }

    /// Whether it was an address that is invalid now: the proof reports where such a value is read as a number.
    pub(super) fn was_address(&self) -> bool {
        self.invalid.is_some()
    }
}

impl Address {
    /// The start of a region.
    pub(super) fn new(to: Region) -> Address {
        Address { to, fixed: 0, var: Range::constant(0), id: 0, nullable: false, checked: 0 }
    }

    /// The least and the greatest offset, `on` bytes further; `None` on overflow.
    pub(super) fn offsets(&self, on: i64) -> Option<(i64, i64)> {
        let fixed = self.fixed.checked_add(on)?;
        Some((fixed.checked_add(self.var.smin())?, fixed.checked_add(self.var.smax())?))
    }

    /// In the packet or metadata area: whether even the base of its `id` may lie past the end. With a variable offset
    /// it may, until a comparison has shown some byte to be present.
    pub(super) fn may_be_behind_end(&self) -> bool {
        self.id != 0 && self.checked == 0
    }

    /// The offset, if it is constant.
    pub(super) fn offset(&self) -> Option<i64> {
        self.fixed.checked_add(self.var.as_constant()? as i64)
    }
}

impl Value {
    pub(super) fn number(self) -> Option<Number> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn address(self) -> Option<Address> {
        if let Value::Address(address) = self { Some(address) } else { None }
    }
}
