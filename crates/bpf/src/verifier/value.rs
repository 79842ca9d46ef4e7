//! What a register or a slot of the stack may hold.

use super::number::Range;
use super::origin::Origin;

/// What a register or a slot of the stack may hold.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    /// It was never written, or a call has spoilt it.
    Unwritten,
    /// A number.
    Number(Number),
    /// An address.
    Address(Address),
}

/// A number, and what it has to do with others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// What it may be.
    pub(super) range: Range,
    /// What it was made from.
    pub(super) origin: Origin,
    /// Numbers with one link differ by a constant: what is learnt of one is learnt of all.
    pub(super) link: Option<Link>,
    /// It is how far the end of the packet is behind an address.
    pub(super) room: Option<Room>,
    /// It was an address, and leads nowhere any more.
    pub(super) stale: Option<Stale>,
}

/// Why what was an address leads nowhere any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stale {
    pub(super) gone: Gone,
    /// The instruction that did it.
    pub(super) insn: u32,
}

/// What an address has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The packet as it lay before a call moved it.
    Packet,
    /// A record, before a call gave it away.
    Record,
    /// The key that a callback was shown, before the callback ended.
    Key,
}

/// Numbers of one family, and how far this one is from its base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) family: u32,
    pub(super) plus: i32,
}

/// The distance from an address in the packet to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Which addresses know of it.
    pub(super) id: u32,
    /// Distance of the address from where those begin.
    pub(super) fixed: i64,
}

/// What an address leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Region {
    /// `struct xdp_md`.
    Context,
    /// The stack of a frame; offsets count from its end, so they are negative.
    Stack { frame: u8 },
    /// The packet, from its first byte.
    Packet,
    /// What lies before the packet, from `data_meta`.
    Metadata,
    /// The first byte behind the packet.
    PacketEnd,
    /// A map itself.
    Map(MapId),
    /// A value of a map.
    Value(MapId),
    /// A key that a callback in this frame is shown.
    Key { map: MapId, frame: u8 },
    /// A record reserved in a ring buffer.
    Record { reference: u32, bytes: u32 },
    /// Memory that callers hand to a global function, which is verified by itself: argument `number`, from 1.
    Argument { function: u16, number: u8, bytes: u32 },
    /// A function of the program, by its first slot.
    Function { slot: u32 },
}

impl Region {
    /// Whether there are bytes that helpers can be given.
    pub(super) fn has_bytes(self) -> bool {
        !matches!(self, Region::Context | Region::PacketEnd | Region::Map(_) | Region::Function { .. })
    }
}

/// A map as programs name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MapId {
    /// The map of this index.
    Of(u32),
    /// A map out of the map of maps with this index.
    In(u32),
}

/// An address: a region and an offset in it, of which a part is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    pub(super) to: Region,
    /// The part of the offset that is a constant.
    pub(super) fixed: i64,
    /// The rest of it.
    pub(super) var: Range,
    /// What addresses have in common that are null together, or that were moved by the same variable distance.
    pub(super) id: u32,
    /// It may be null.
    pub(super) nullable: bool,
    /// In the packet or the metadata: so many bytes from where the addresses of one `id` begin are there.
    pub(super) checked: u32,
}

impl Number {
    /// A number of its own.
    pub(super) fn new(range: Range, origin: Origin) -> Number {
        Number { range, origin, link: None, room: None, stale: None }
    }

    /// What was an address until the instruction at this slot.
    pub(super) fn gone(gone: Gone, insn: usize, origin: Origin) -> Number {
        Number { stale: Some(Stale { gone, insn: insn as u32 }), ..Number::new(Range::ANY, origin) }
    }

    /// Whether it was an address of what is gone: the proof tells where such a one is read as a number.
    pub(super) fn was_address(&self) -> bool {
        self.stale.is_some()
    }
}

impl Address {
    /// The start of a region.
    pub(super) fn new(to: Region) -> Address {
        Address { to, fixed: 0, var: Range::constant(0), id: 0, nullable: false, checked: 0 }
    }

    /// The least and the largest offset, so many bytes on; `None` where they do not fit.
    pub(super) fn offsets(&self, on: i64) -> Option<(i64, i64)> {
        let fixed = self.fixed.checked_add(on)?;
        Some((fixed.checked_add(self.var.smin())?, fixed.checked_add(self.var.smax())?))
    }

    /// In the packet or the metadata: whether even where the addresses of its `id` begin may lie behind the end. What was moved by
    /// a variable distance may, as long as no comparison has shown anything to be there.
    pub(super) fn may_be_behind_end(&self) -> bool {
        self.id != 0 && self.checked == 0
    }

    /// The offset where there is only one.
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
