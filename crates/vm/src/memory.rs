// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that has an address.
//!
//! An address is a tag in the high 16 bits, which says what is addressed, and 48 bits of place. Nothing starts at place
//! 0 and nothing ends where the next thing begins, so arithmetic that leaves an object meets no other one:
//!
//! ```text
//!  1  context     fields of struct xdp_md
//!  2  stack       frame << 16 | 0x8000 + byte                     frames of 512 bytes
//!  3  packet      0x1_0000_0000 + byte                            256 bytes of headroom, then the packet
//!  4  map         index << 8                                      for helpers; has no bytes
//!  5  function    program << 32 | slot << 8                       for helpers; has no bytes
//!  6  plain       0x1_0000_0000 + byte                            what a plugin's program gets instead of a packet
//!  7  record      number << 32 | 0x8000 + byte                    reserved in a ring buffer
//!  8  key         frame << 32 | 0x8000 + byte                     of an entry that a callback is shown
//! 16+ map value   cell << stride_bits | stride / 4 + byte         stride: a power of two, at least twice the value
//! ```

use std::cell::RefCell;

use super::fault::{Access, Fault};
use super::maps::{MAX_PAGED_BYTES, Map, Standard};
use super::observer::{self, Region};
use super::rings::Rings;
use super::space::Space;
use flowloom_isa::MapDef;
use flowloom_isa::limits::{LOCK_BYTES, MAX_FRAMES, PLACE_BITS, STACK_BYTES, value_stride_bits};
use flowloom_isa::op::Size;

/// The headroom before the packet in bytes.
pub(super) const HEADROOM: usize = 256;
/// The kernel's own record before a frame, `sizeof(struct xdp_frame)`: the packet cannot grow over it.
const FRAME_RECORD_BYTES: usize = 40;
/// The least length of a packet in bytes.
const ETHERNET_BYTES: i64 = 14;
/// The limit to which the kernel's test runs let a packet grow, from the beginning of the headroom: a page without the
/// record of a packet's fragments at its end.
const GROWTH_LIMIT: usize = 4096 - 320;
const MAX_META_BYTES: i64 = 252;
/// -EINVAL
const INVALID: i64 = -22;
/// -EACCES
const NO_ACCESS: i64 = -13;

const TAG_SHIFT: u32 = PLACE_BITS;
const PLACE: u64 = (1 << TAG_SHIFT) - 1;
const CONTEXT: u64 = 1;
const STACK: u64 = 2;
const PACKET: u64 = 3;
const MAP: u64 = 4;
const FUNCTION: u64 = 5;
const PLAIN: u64 = 6;
const RECORD: u64 = 7;
const KEY: u64 = 8;
const VALUES: u64 = 16;

const CONTEXT_BASE: u64 = CONTEXT << TAG_SHIFT | 1 << 32;
const PACKET_BASE: u64 = PACKET << TAG_SHIFT | 1 << 32;
const FRAME_BASE: u64 = 0x8000;

/// The context pointer, in `r1` at the start, on every engine.
pub const CONTEXT_ADDRESS: u64 = CONTEXT_BASE;

/// The first byte of plain memory.
pub(super) const PLAIN_ADDRESS: u64 = PLAIN << TAG_SHIFT | 1 << 32;

/// The end of a frame's stack: its `r10`.
pub(super) fn frame_pointer(frame: usize) -> u64 {
    STACK << TAG_SHIFT | (frame as u64 + 1) << 16 | (FRAME_BASE + STACK_BYTES as u64)
}

/// The number of a map as an argument of helpers, on every engine.
pub fn map_address(map: usize) -> u64 {
    MAP << TAG_SHIFT | (map as u64) << 8
}

/// The map of such a number.
pub fn map_at(address: u64) -> Option<usize> {
    (address >> TAG_SHIFT == MAP && address & 0xff == 0).then_some(((address & PLACE) >> 8) as usize)
}

pub(super) fn function_address(program: usize, slot: usize) -> u64 {
    FUNCTION << TAG_SHIFT | (program as u64) << 32 | (slot as u64) << 8
}

/// The program and slot of a function by its address.
pub(super) fn function_at(address: u64) -> Option<(usize, usize)> {
    let is_function = address >> TAG_SHIFT == FUNCTION && address & 0xff == 0;
    is_function.then_some((((address & PLACE) >> 32) as usize, (address as u32 >> 8) as usize))
}

/// The address of a reserved ring buffer record.
pub(super) fn record_address(number: usize) -> u64 {
    RECORD << TAG_SHIFT | (number as u64) << 32 | FRAME_BASE
}

/// The number of a record by its address.
pub(super) fn record_at(address: u64) -> Option<usize> {
    let is_start = address >> TAG_SHIFT == RECORD && address as u32 as u64 == FRAME_BASE;
    is_start.then_some(((address & PLACE) >> 32) as usize)
}

/// The number of the key or record at an address, and the offset in it.
fn numbered(address: u64) -> (usize, i64) {
    (((address & PLACE) >> 32) as usize, i64::from(address as u32) - FRAME_BASE as i64)
}

/// The address of a byte of a map value.
pub(super) fn value_address(map: usize, value_bytes: u32, cell: u32, at: u32) -> u64 {
    let bits = value_stride_bits(value_bytes);
    (VALUES + map as u64) << TAG_SHIFT | u64::from(cell) << bits | ((1 << (bits - 2)) + u64::from(at))
}

/// A stack frame, and which of its bytes are initialised.
#[derive(Debug, Clone)]
struct Frame {
    bytes: [u8; STACK_BYTES],
    written: [bool; STACK_BYTES],
}

impl Frame {
    const FRESH: Frame = Frame { bytes: [0; STACK_BYTES], written: [false; STACK_BYTES] };

    /// Bytes that are about to be written.
    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize) -> Option<&mut [u8; N]> {
        *self.written.get_mut(at..)?.first_chunk_mut::<N>()? = [true; N];
        self.bytes.get_mut(at..)?.first_chunk_mut()
    }
}

/// What fast accesses to the values of a map need to know.
#[derive(Debug, Clone, Copy)]
struct Shape {
    stride_bits: u32,
    /// The size of a value; 0 for maps whose accesses need further checks or are not in one vector.
    value_bytes: u32,
}

impl Shape {
    fn of(map: &Map) -> Shape {
        let def = map.def();
        let is_plain =
            map.is_readable() && map.is_writable() && def.spin_lock.is_none() && map.cells().in_one().is_some();
        let value_bytes = if is_plain { def.value_bytes } else { 0 };
        Shape { stride_bits: value_stride_bits(def.value_bytes), value_bytes }
    }

    /// The place of an access of this length in the vector of values, if it is inside of a value.
    #[inline(always)]
    fn place(self, address: u64, len: usize) -> Option<usize> {
        let at = (address & ((1 << self.stride_bits) - 1)).wrapping_sub(1 << (self.stride_bits - 2));
        if at.checked_add(len as u64)? > u64::from(self.value_bytes) {
            return None;
        }
        // A value is smaller than the stride, so this is less than 2^48.
        Some((((address & PLACE) >> self.stride_bits) * u64::from(self.value_bytes) + at) as usize)
    }
}

/// All memory of a run.
#[derive(Debug)]
pub(super) struct Memory {
    frames: Vec<Frame>,
    /// The current frame; deeper ones are dead.
    frame: usize,
    /// Headroom and packet.
    packet: Vec<u8>,
    /// The offsets of `data` and `data_meta` in `packet`; `data_end` is its length.
    data: usize,
    meta: usize,
    /// The original end of the packet.
    longest: usize,
    pub(super) ingress: u32,
    pub(super) maps: Vec<Map>,
    /// By map.
    shapes: Vec<Shape>,
    /// Plain memory, for a plugin's program only.
    pub(super) plain: Vec<u8>,
    pub(super) rings: Rings,
    pub(super) cpus: u32,
    /// The key passed to a callback, by its frame.
    keys: Vec<Vec<u8>>,
    /// Whether reading uninitialised stack bytes is a fault; otherwise they are zeros.
    pub(super) is_strict: bool,
    /// Whether the context has `egress_ifindex`.
    pub(super) has_egress: bool,
    /// The accesses of helpers since they were last taken, if recorded.
    accesses: Option<RefCell<Vec<observer::Access>>>,
}

impl Memory {
    /// Memory with the maps of these definitions in their initial states.
    pub(super) fn new(defs: &[MapDef], cpus: u32) -> Memory {
        let maps: Vec<Map> = defs.iter().map(|def| Map::standard(def, cpus)).collect();
        Memory {
            frames: vec![Frame::FRESH; MAX_FRAMES],
            frame: 0,
            packet: Vec::new(),
            data: HEADROOM,
            meta: HEADROOM,
            longest: 0,
            ingress: 0,
            rings: Rings::new(defs),
            cpus,
            keys: Vec::new(),
            plain: Vec::new(),
            shapes: maps.iter().map(Shape::of).collect(),
            maps,
            is_strict: false,
            has_egress: false,
            accesses: None,
        }
    }

    /// Begins to record the accesses of helpers.
    pub(super) fn record_accesses(&mut self) {
        self.accesses = Some(RefCell::default());
    }

    /// The accesses of helpers to known regions since the last call.
    pub(super) fn take_accesses(&mut self) -> Vec<observer::Access> {
        self.accesses.as_mut().map(|accesses| std::mem::take(accesses.get_mut())).unwrap_or_default()
    }

    fn record(&self, address: u64, len: usize, access: Access) {
        let Some(accesses) = &self.accesses else { return };
        let Some((region, first)) = self.located(address).filter(|_| len > 0) else { return };
        let (reads, writes) = (access != Access::Write, access != Access::Read);
        let mut accesses = accesses.borrow_mut();
        match accesses.last_mut() {
            // Strings are read byte by byte.
            Some(last)
                if (last.region, last.reads, last.writes) == (region, reads, writes)
                    && last.first + last.len as i64 == first =>
            {
                last.len += len;
            }
            _ => accesses.push(observer::Access { region, first, len, reads, writes }),
        }
    }

    /// Sets the packet, and clears the stack.
    pub(super) fn start(&mut self, packet: &[u8], ingress: u32) {
        self.packet.clear();
        self.packet.resize(HEADROOM, 0);
        self.packet.extend_from_slice(packet);
        (self.data, self.meta, self.ingress) = (HEADROOM, HEADROOM, ingress);
        self.longest = self.packet.len();
        self.enter(0);
    }

    /// Enters `frame`, whose stack is uninitialised.
    pub(super) fn enter(&mut self, frame: usize) {
        self.frame = frame;
        match self.frames.get_mut(frame) {
            Some(stack) => *stack = Frame::FRESH,
            // Frames of programs after tail calls add up; tail calls are limited, so this is bounded.
            None => self.frames.resize(frame + 1, Frame::FRESH),
        }
    }

    /// Returns to a caller's frame; its stack is unchanged.
    pub(super) fn leave(&mut self, frame: usize) {
        self.frame = frame;
    }

    /// The bytes between `data` and `data_end`.
    pub(super) fn packet(&self) -> &[u8] {
        &self.packet[self.data..]
    }

    /// Moves the start of the packet, at most to the kernel's record of a frame and to the last Ethernet header;
    /// returns whether that was possible [Linux net/core/filter.c].
    pub(super) fn adjust_head(&mut self, distance: i32) -> bool {
        let start = self.data as i64 + i64::from(distance);
        let meta_bytes = self.data - self.meta;
        let (first, last) = ((FRAME_RECORD_BYTES + meta_bytes) as i64, self.packet.len() as i64 - ETHERNET_BYTES);
        if start < first || start > last {
            return false;
        }
        let start = start as usize;
        self.packet.copy_within(self.meta..self.data, start - meta_bytes);
        (self.data, self.meta) = (start, start - meta_bytes);
        true
    }

    /// Moves the end of the packet, at most to an Ethernet header and to the kernel's limit; new bytes are zeros.
    /// Returns whether that was possible [Linux net/core/filter.c].
    pub(super) fn adjust_tail(&mut self, distance: i32) -> bool {
        let end = self.packet.len() as i64 + i64::from(distance);
        if end > GROWTH_LIMIT.max(self.longest) as i64 || end < self.data as i64 + ETHERNET_BYTES {
            return false;
        }
        self.packet.resize(end as usize, 0);
        true
    }

    /// Moves the start of the metadata area: 0, or a negative error number [Linux net/core/filter.c].
    pub(super) fn adjust_meta(&mut self, distance: i32) -> i64 {
        let meta = self.meta as i64 + i64::from(distance);
        let len = self.data as i64 - meta;
        if meta < FRAME_RECORD_BYTES as i64 || len < 0 {
            return INVALID;
        }
        if len % 4 != 0 || len > MAX_META_BYTES {
            return NO_ACCESS;
        }
        self.meta = meta as usize;
        0
    }

    pub(super) fn replace_packet(&mut self, bytes: &[u8]) {
        self.packet.truncate(self.data);
        self.packet.extend_from_slice(bytes);
    }

    pub(super) fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.packet[self.data..]
    }

    /// Passes a key to the callback in a frame; returns its address.
    pub(super) fn show_key(&mut self, frame: usize, key: Vec<u8>) -> u64 {
        self.keys.resize(self.keys.len().max(frame + 1), Vec::new());
        self.keys[frame] = key;
        KEY << TAG_SHIFT | (frame as u64) << 32 | FRAME_BASE
    }

    /// Checks memory that a helper may write: stack bytes that it leaves unchanged stay uninitialised.
    pub(super) fn may_fill(&mut self, address: u64, len: usize) -> Result<(), Fault> {
        match address >> TAG_SHIFT {
            _ if len == 0 => Ok(()),
            STACK => {
                self.record(address, len, Access::Write);
                self.stack_place(address, len, Access::Write).map(drop)
            }
            _ => self.write(address, len).map(drop),
        }
    }

    /// Memory that a helper writes.
    pub(super) fn write_any(&mut self, address: u64, len: usize) -> Result<&mut [u8], Fault> {
        if len == 0 { Ok(&mut []) } else { self.write(address, len) }
    }

    /// Memory that a helper reads.
    pub(super) fn read(&self, address: u64, len: usize) -> Result<&[u8], Fault> {
        let bytes = self.bytes(address, len)?;
        self.record(address, len, Access::Read);
        Ok(bytes)
    }

    /// Memory that a helper writes.
    fn write(&mut self, address: u64, len: usize) -> Result<&mut [u8], Fault> {
        self.record(address, len, Access::Write);
        self.bytes_mut(address, len, Access::Write)
    }

    /// The bytes at an address in the packet, on the stack or in most values; `None` elsewhere, and for what is no
    /// valid access.
    #[inline(always)]
    pub(super) fn near<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        match address >> TAG_SHIFT {
            PACKET => {
                let place = address.wrapping_sub(PACKET_BASE) as usize;
                let bytes = self.packet.get(place..)?.first_chunk::<N>()?;
                (place >= self.meta).then_some(*bytes)
            }
            STACK => {
                let frame = ((address & PLACE) >> 16).wrapping_sub(1);
                let at = (address & 0xffff).wrapping_sub(FRAME_BASE) as usize;
                if frame > self.frame as u64 || self.is_strict {
                    return None;
                }
                self.frames.get(frame as usize)?.bytes.get(at..)?.first_chunk().copied()
            }
            tag => {
                let map = tag.wrapping_sub(VALUES) as usize;
                let place = self.shapes.get(map)?.place(address, N)?;
                self.maps.get(map)?.cells().in_one()?.get(place..)?.first_chunk().copied()
            }
        }
    }

    /// As [`Memory::near`], for writing.
    #[inline(always)]
    pub(super) fn near_mut<const N: usize>(&mut self, address: u64) -> Option<&mut [u8; N]> {
        match address >> TAG_SHIFT {
            PACKET => {
                let place = address.wrapping_sub(PACKET_BASE) as usize;
                if place < self.meta {
                    return None;
                }
                self.packet.get_mut(place..)?.first_chunk_mut::<N>()
            }
            STACK => {
                let frame = ((address & PLACE) >> 16).wrapping_sub(1);
                let at = (address & 0xffff).wrapping_sub(FRAME_BASE) as usize;
                if frame > self.frame as u64 {
                    return None;
                }
                self.frames.get_mut(frame as usize)?.put::<N>(at)
            }
            tag => {
                let map = tag.wrapping_sub(VALUES) as usize;
                let place = self.shapes.get(map)?.place(address, N)?;
                self.maps.get_mut(map)?.cells_mut().in_one_mut()?.get_mut(place..)?.first_chunk_mut()
            }
        }
    }

    /// The bytes at a byte of the current frame; `None` if some may have to be written first.
    #[inline(always)]
    pub(super) fn in_frame<const N: usize>(&self, at: u16) -> Option<[u8; N]> {
        let frame = self.frames.get(self.frame)?;
        let at = usize::from(at);
        if self.is_strict && frame.written.get(at..)?.first_chunk::<N>()? != &[true; N] {
            return None;
        }
        frame.bytes.get(at..)?.first_chunk().copied()
    }

    /// Writes at a byte of the current frame, in which the bytes are.
    #[inline(always)]
    pub(super) fn put_in_frame<const N: usize>(&mut self, at: u16, bytes: [u8; N]) -> Option<()> {
        *self.frames.get_mut(self.frame)?.put::<N>(at.into())? = bytes;
        Some(())
    }

    #[inline(never)]
    pub(super) fn load(&self, address: u64, size: Size) -> Result<u64, Fault> {
        if address >> TAG_SHIFT == CONTEXT {
            return self.load_context(address, size);
        }
        Ok(match self.bytes(address, size.bytes())? {
            [a] => (*a).into(),
            [a, b] => u16::from_le_bytes([*a, *b]).into(),
            [a, b, c, d] => u32::from_le_bytes([*a, *b, *c, *d]).into(),
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
            _ => return Err(Fault::Unchecked),
        })
    }

    /// Loads a number that is to be sign-extended, which fields of the context do not allow.
    #[inline]
    pub(super) fn load_signed(&self, address: u64, size: Size) -> Result<u64, Fault> {
        if address >> TAG_SHIFT == CONTEXT {
            return Err(self.elsewhere(address, size.bytes(), Access::Read));
        }
        self.load(address, size)
    }

    /// Stores the low bytes of a number.
    #[inline(never)]
    pub(super) fn store(&mut self, address: u64, size: Size, value: u64) -> Result<(), Fault> {
        let len = size.bytes();
        self.bytes_mut(address, len, Access::Write)?.copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }

    /// Replaces a number by `change` of it; returns the old one.
    pub(super) fn change(&mut self, address: u64, size: Size, change: impl FnOnce(u64) -> u64) -> Result<u64, Fault> {
        if address >> TAG_SHIFT == PACKET {
            return Err(Fault::AtomicInPacket);
        }
        let len = size.bytes();
        if address >> TAG_SHIFT == CONTEXT {
            self.bytes_mut(address, len, Access::Atomic)?;
        }
        let old = self.load(address, size)?;
        self.bytes_mut(address, len, Access::Atomic)?.copy_from_slice(&change(old).to_le_bytes()[..len]);
        Ok(old)
    }

    /// The fields of `struct xdp_md`; addresses are whole, although the fields are 4 bytes [Linux uapi/bpf.h].
    fn load_context(&self, address: u64, size: Size) -> Result<u64, Fault> {
        let at = address.wrapping_sub(CONTEXT_BASE) as i64;
        let packet = |place: usize| PACKET_BASE + place as u64;
        match at {
            _ if size != Size::W => Err(Fault::Context { access: Access::Read, len: size.bytes(), at }),
            0 => Ok(packet(self.data)),
            4 => Ok(packet(self.packet.len())),
            8 => Ok(packet(self.meta)),
            12 => Ok(self.ingress.into()),
            // Offline there is one receive queue.
            16 => Ok(0),
            // No program runs on an entry of a device map.
            20 if self.has_egress => Ok(0),
            20 => Err(Fault::Egress),
            _ => Err(Fault::Context { access: Access::Read, len: size.bytes(), at }),
        }
    }

    #[inline]
    fn bytes(&self, address: u64, len: usize) -> Result<&[u8], Fault> {
        if len == 0 {
            return Ok(&[]);
        }
        match address >> TAG_SHIFT {
            STACK => {
                let (frame, at) = self.stack_place(address, len, Access::Read)?;
                let frame = &self.frames[frame];
                match frame.written[at..at + len].iter().position(|written| !written) {
                    Some(first) if self.is_strict => Err(Fault::StackUnwritten { len, at, first: at + first }),
                    _ => Ok(&frame.bytes[at..at + len]),
                }
            }
            PACKET => {
                let at = self.packet_place(address, len, Access::Read)?;
                Ok(&self.packet[at..at + len])
            }
            PLAIN => {
                let at = self.plain_place(address, len, Access::Read)?;
                Ok(&self.plain[at..at + len])
            }
            tag if tag >= VALUES => {
                let (map, cell, at) = self.value_place(address, len, Access::Read)?;
                if !self.maps[map].is_readable() {
                    return Err(Fault::WriteOnly { map: self.maps[map].def().name.clone() });
                }
                let value = self.maps[map].value(cell).and_then(|value| value.get(at..at + len));
                value.ok_or_else(|| self.outside_value(map, at as i64, len, Access::Read))
            }
            KEY => {
                let (frame, at) = numbered(address);
                let key = self.keys.get(frame);
                let bytes = key.and_then(|key| key.get(usize::try_from(at).ok()?..)?.get(..len));
                bytes.ok_or(Fault::NoAddress { access: Access::Read, len, address })
            }
            RECORD => {
                let (number, at) = numbered(address);
                let record = self.rings.record(number);
                let bytes = record.and_then(|record| record.get(usize::try_from(at).ok()?..)?.get(..len));
                bytes.ok_or_else(|| self.outside_record(address, len, Access::Read))
            }
            _ => Err(self.elsewhere(address, len, Access::Read)),
        }
    }

    /// Memory for writing; stack bytes count as initialised from now on.
    #[inline]
    fn bytes_mut(&mut self, address: u64, len: usize, access: Access) -> Result<&mut [u8], Fault> {
        match address >> TAG_SHIFT {
            STACK => {
                let (frame, at) = self.stack_place(address, len, access)?;
                let frame = &mut self.frames[frame];
                frame.written[at..at + len].fill(true);
                Ok(&mut frame.bytes[at..at + len])
            }
            PACKET => {
                let at = self.packet_place(address, len, access)?;
                Ok(&mut self.packet[at..at + len])
            }
            PLAIN => {
                let at = self.plain_place(address, len, access)?;
                Ok(&mut self.plain[at..at + len])
            }
            tag if tag >= VALUES => {
                let (map, cell, at) = self.value_place(address, len, access)?;
                if !self.maps[map].is_writable() {
                    return Err(Fault::ReadOnly { access, map: self.maps[map].def().name.clone() });
                }
                // Looked up twice, because the borrow checker does not accept a conditional return of the first borrow.
                if self.maps[map].value(cell).is_none() {
                    return Err(self.outside_value(map, at as i64, len, access));
                }
                if !self.maps[map].has_room(cell) {
                    return Err(Fault::MapMemory { map: self.maps[map].def().name.clone(), limit: MAX_PAGED_BYTES });
                }
                let value = self.maps[map].value_mut(cell).and_then(|value| value.get_mut(at..at + len));
                value.ok_or(Fault::Unchecked)
            }
            RECORD => {
                let (number, at) = numbered(address);
                let inside = self.rings.record(number).is_some_and(|r| at >= 0 && at as usize + len <= r.len());
                if !inside {
                    return Err(self.outside_record(address, len, access));
                }
                let bytes = self.rings.record_mut(number).and_then(|r| r.get_mut(at as usize..at as usize + len));
                bytes.ok_or(Fault::Unchecked)
            }
            _ => Err(self.elsewhere(address, len, access)),
        }
    }

    #[cold]
    fn elsewhere(&self, address: u64, len: usize, access: Access) -> Fault {
        if address >> TAG_SHIFT == CONTEXT {
            return Fault::Context { access, len, at: address.wrapping_sub(CONTEXT_BASE) as i64 };
        }
        Fault::NoAddress { access, len, address }
    }

    #[inline]
    fn stack_place(&self, address: u64, len: usize, access: Access) -> Result<(usize, usize), Fault> {
        let frame = ((address & PLACE) >> 16).wrapping_sub(1);
        if frame > self.frame as u64 {
            return Err(Fault::NoAddress { access, len, address });
        }
        let at = (address & 0xffff) as i64 - FRAME_BASE as i64;
        if at < 0 || at as usize + len > STACK_BYTES {
            let region = "the stack".to_owned();
            return Err(Fault::Bounds { access, len, at, region, size: STACK_BYTES });
        }
        Ok((frame as usize, at as usize))
    }

    #[inline]
    fn packet_place(&self, address: u64, len: usize, access: Access) -> Result<usize, Fault> {
        let place = address.wrapping_sub(PACKET_BASE) as i64;
        if place >= self.meta as i64 && place as usize + len <= self.packet.len() {
            return Ok(place as usize);
        }
        let at = place - self.data as i64;
        Err(Fault::Bounds { access, len, at, region: "the packet".to_owned(), size: self.packet().len() })
    }

    fn plain_place(&self, address: u64, len: usize, access: Access) -> Result<usize, Fault> {
        let at = address.wrapping_sub(PLAIN_ADDRESS) as i64;
        let end = at.checked_add(len as i64).filter(|_| at >= 0);
        if end.is_some_and(|end| end as usize <= self.plain.len()) {
            return Ok(at as usize);
        }
        Err(Fault::Bounds { access, len, at, region: "the memory".to_owned(), size: self.plain.len() })
    }

    /// The map, cell and offset of an address; the offset is inside of the value, the cell may not exist.
    #[inline]
    fn value_place(&self, address: u64, len: usize, access: Access) -> Result<(usize, u64, usize), Fault> {
        let Some((map, cell, at)) = self.value_at(address) else {
            return Err(Fault::NoAddress { access, len, address });
        };
        let def = self.maps[map].def();
        if at < 0 || at + len as i64 > i64::from(def.value_bytes) {
            return Err(self.outside_value(map, at, len, access));
        }
        if let Some(lock) = def.spin_lock
            && at < i64::from(lock + LOCK_BYTES)
            && at + len as i64 > i64::from(lock)
        {
            return Err(Fault::Lock { map: def.name.clone(), what: "its bytes are accessed" });
        }
        Ok((map, cell, at as usize))
    }

    /// The map, the cell and the offset of an address of a map value; the offset may be outside of the value.
    #[inline]
    fn value_at(&self, address: u64) -> Option<(usize, u64, i64)> {
        let map = (address >> TAG_SHIFT).checked_sub(VALUES)? as usize;
        let bits = value_stride_bits(self.maps.get(map)?.def().value_bytes);
        let at = (address & ((1 << bits) - 1)) as i64 - (1 << (bits - 2));
        Some((map, (address & PLACE) >> bits, at))
    }

    #[cold]
    fn outside_value(&self, map: usize, at: i64, len: usize, access: Access) -> Fault {
        let def = self.maps[map].def();
        let region = format!("a value of map `{}`", def.name);
        Fault::Bounds { access, len, at, region, size: def.value_bytes as usize }
    }

    #[cold]
    fn outside_record(&self, address: u64, len: usize, access: Access) -> Fault {
        let (number, at) = numbered(address);
        match self.rings.record(number) {
            Some(record) => {
                Fault::Bounds { access, len, at, region: "a reserved record".to_owned(), size: record.len() }
            }
            None => Fault::NoAddress { access, len, address },
        }
    }

    /// Whether an address is one that programs are given, or near it.
    pub(super) fn is_some_object(&self, address: u64) -> bool {
        let tag = address >> TAG_SHIFT;
        (CONTEXT..=KEY).contains(&tag) || (VALUES..VALUES + self.maps.len() as u64).contains(&tag)
    }

    /// The region of an address, and the offset in it.
    pub(super) fn located(&self, address: u64) -> Option<(Region, i64)> {
        let place = address & PLACE;
        let in_frame = i64::from(address as u16) - FRAME_BASE as i64;
        Some(match address >> TAG_SHIFT {
            CONTEXT => (Region::Context, address.wrapping_sub(CONTEXT_BASE) as i64),
            STACK => {
                let up = self.frame as i64 - ((place >> 16) as i64 - 1);
                (Region::Stack { up: u8::try_from(up).ok()? }, in_frame - STACK_BYTES as i64)
            }
            PACKET => {
                let place = address.wrapping_sub(PACKET_BASE) as i64;
                match place - self.data as i64 {
                    at @ 0.. => (Region::Packet, at),
                    _ => (Region::Metadata, place - self.meta as i64),
                }
            }
            KEY => (Region::Key, numbered(address).1),
            RECORD => (Region::Record, numbered(address).1),
            _ => {
                let (map, _, at) = self.value_at(address)?;
                (Region::Value(map as u32), at)
            }
        })
    }

    pub(super) fn lock_at(&self, address: u64) -> Option<usize> {
        let (map, _, at) = self.value_at(address)?;
        (Some(at) == self.maps[map].def().spin_lock.map(i64::from)).then_some(map)
    }
}

impl Space for Memory {
    type Tables = Standard;

    fn read(&self, address: u64, len: usize) -> Result<&[u8], Fault> {
        Memory::read(self, address, len)
    }

    fn write_any(&mut self, address: u64, len: usize) -> Result<&mut [u8], Fault> {
        Memory::write_any(self, address, len)
    }

    fn may_fill(&mut self, address: u64, len: usize) -> Result<(), Fault> {
        Memory::may_fill(self, address, len)
    }

    fn is_some_object(&self, address: u64) -> bool {
        Memory::is_some_object(self, address)
    }

    fn packet(&self) -> &[u8] {
        Memory::packet(self)
    }

    fn packet_mut(&mut self) -> &mut [u8] {
        Memory::packet_mut(self)
    }

    fn adjust_head(&mut self, distance: i32) -> bool {
        Memory::adjust_head(self, distance)
    }

    fn adjust_tail(&mut self, distance: i32) -> bool {
        Memory::adjust_tail(self, distance)
    }

    fn adjust_meta(&mut self, distance: i32) -> i64 {
        Memory::adjust_meta(self, distance)
    }

    fn ingress(&self) -> u32 {
        self.ingress
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn maps(&self) -> &[Map] {
        &self.maps
    }

    fn maps_mut(&mut self) -> &mut [Map] {
        &mut self.maps
    }

    fn set_maps(&mut self, maps: Vec<Map>) {
        self.shapes = maps.iter().map(Shape::of).collect();
        self.maps = maps;
    }

    fn value_address(&self, map: usize, cell: u32) -> u64 {
        value_address(map, self.maps[map].def().value_bytes, cell, 0)
    }

    fn lock_at(&self, address: u64) -> Option<usize> {
        Memory::lock_at(self, address)
    }

    fn rings(&self) -> &Rings {
        &self.rings
    }

    fn rings_mut(&mut self) -> &mut Rings {
        &mut self.rings
    }

    fn record_address(&self, number: usize) -> u64 {
        record_address(number)
    }

    fn record_at(&self, address: u64) -> Option<usize> {
        record_at(address)
    }
}
