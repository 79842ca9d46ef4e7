// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads, stores and atomic operations: checks, and their effect on the state.

use super::expected::Expected;
use super::marks::Place;
use super::number::Range;
use super::path::Path;
use super::proof::{Contents, Memory, Sink, Touch, alignment};
use super::refusal::Unsafe;
use super::stack::{self, Byte, Loaded, SLOT_BYTES};
use super::text;
use super::value::{Address, MapId, Number, Region, Value};
use super::walk::Walk;
use flowloom_isa::ProgramKind;
use flowloom_isa::op::{AtomicOp, Reg, Size, Width};
use flowloom_isa::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG};

/// The size of a stack frame in bytes.
const STACK_BYTES: i64 = flowloom_isa::limits::STACK_BYTES as i64;
const LOCK_BYTES: i64 = flowloom_isa::limits::LOCK_BYTES as i64;

/// The verb for an access, in messages.
const fn verb(touch: Touch) -> &'static str {
    match touch {
        Touch { writes: false, .. } => "read",
        Touch { reads: false, .. } => "write",
        Touch { .. } => "change",
    }
}

/// An access, for messages.
struct Access<'a> {
    address: &'a Address,
    on: i64,
    len: usize,
    touch: Touch,
}

impl Walk<'_> {
    /// Checks an access; returns the least and greatest offset of its first byte.
    pub(super) fn reach(
        &mut self,
        path: &Path,
        address: &Address,
        on: i64,
        len: usize,
        touch: Touch,
    ) -> Result<(i64, i64), Unsafe> {
        let access = Access { address, on, len, touch };
        if address.nullable {
            return Err(self.outside(&access, Expected::NotNull));
        }
        let (first, last) = address.offsets(on).ok_or_else(|| self.outside(&access, Expected::NearOffset))?;
        let end = last.saturating_add(len as i64);
        let memory = match address.to {
            Region::Stack { frame } => {
                if first < -STACK_BYTES || end > 0 {
                    return Err(self.outside(&access, Expected::OnStack));
                }
                Memory::Stack { up: path.depth() as u8 - frame }
            }
            Region::Packet | Region::Metadata => {
                let start = address.fixed.saturating_add(on);
                let is_known = start >= 0 && address.var.smin() >= 0;
                if !is_known || start.saturating_add(len as i64) > address.checked.into() {
                    let there = address.checked;
                    let is_packet = address.to == Region::Packet;
                    let expected =
                        if is_packet { Expected::InPacket { there } } else { Expected::InMetadata { there } };
                    return Err(self.outside(&access, expected));
                }
                if address.to == Region::Packet { Memory::Packet } else { Memory::Metadata }
            }
            Region::Value(map) => {
                self.value_access(&access, map, (first, end))?;
                Memory::Value(map)
            }
            Region::Key { map, .. } => {
                let size = text::def(self.program, map).map_or(0, |def| i64::from(def.key_bytes));
                if touch.writes || first < 0 || end > size {
                    return Err(self.outside(&access, Expected::InKey { bytes: size }));
                }
                Memory::Key(map)
            }
            Region::Record { bytes, .. } => {
                if first < 0 || end > bytes.into() {
                    return Err(self.outside(&access, Expected::Inside { bytes }));
                }
                Memory::Record
            }
            Region::Argument { bytes, .. } => {
                if first < 0 || end > bytes.into() {
                    return Err(self.outside(&access, Expected::Inside { bytes }));
                }
                // The proof of the program itself has the actual memory for each caller.
                return Ok((first, last));
            }
            Region::Context => Memory::Context,
            Region::PacketEnd | Region::Map(_) | Region::Function { .. } => {
                return Err(self.outside(&access, Expected::Memory));
            }
        };
        let at = path.state.at;
        self.proof.touch(at, memory, (first, end), alignment(low_bits(address, on).trailing_zeros()), touch);
        // Engines rewrite accesses to the context, unlike those to memory, so an instruction may do only one of both.
        let touched = &self.proof.insns[at].memory;
        if touched.len() > 1 && touched.contains_key(&Memory::Context) {
            return Err(self.outside(&access, Expected::AsOnOtherPaths));
        }
        Ok((first, last))
    }

    fn value_access(&self, access: &Access<'_>, map: MapId, (first, end): (i64, i64)) -> Result<(), Unsafe> {
        let Some(def) = text::def(self.program, map) else {
            return Err(self.outside(access, Expected::KnownMap));
        };
        if first < 0 || end > def.value_bytes.into() {
            return Err(self.outside(access, Expected::Inside { bytes: def.value_bytes }));
        }
        let is_of_devices = def.kind.is_redirect();
        if access.touch.writes && (is_of_devices || def.flags & BPF_F_RDONLY_PROG != 0) {
            return Err(self.outside(access, Expected::MapRead));
        }
        if access.touch.reads && def.flags & BPF_F_WRONLY_PROG != 0 {
            return Err(self.outside(access, Expected::MapWrite));
        }
        if let Some(lock) = def.spin_lock.map(i64::from)
            && first < lock + LOCK_BYTES
            && end > lock
        {
            return Err(self.outside(access, Expected::OutsideLock { at: lock }));
        }
        Ok(())
    }

    fn outside(&self, access: &Access<'_>, expected: Expected) -> Unsafe {
        let mut address = *access.address;
        address.fixed = address.fixed.wrapping_add(access.on);
        let found = self.text_of(&Value::Address(address));
        Unsafe::Access { access: verb(access.touch), bytes: access.len, found, expected }
    }

    pub(super) fn load(
        &mut self,
        path: &Path,
        address: &Address,
        off: i64,
        size: Size,
        signed: bool,
    ) -> Result<Value, Unsafe> {
        let len = size.bytes();
        if address.to == Region::Context {
            return self.load_context(path, address, off, size, signed);
        }
        let (first, last) = self.reach(path, address, off, len, Touch::READ)?;
        let value = match address.to {
            Region::Stack { frame } => self.load_stack(path, usize::from(frame), (first, last), len)?,
            Region::Value(MapId::Of(map)) if first == last => match self.constant(map, first, len) {
                Some(value) => self.fresh(Range::constant(value)),
                None => self.fresh(Range::of_size(size)),
            },
            _ => self.fresh(Range::of_size(size)),
        };
        Ok(match value {
            Value::Number(number) if signed => {
                Value::Number(self.made(number.range.sign_extended(size, Width::W64), number.origin, None))
            }
            Value::Address(_) if size != Size::Dw => {
                let at = path.state.at;
                self.leak(at, Range::of_size(size))
            }
            value => value,
        })
    }

    /// A load from constant data.
    fn constant(&self, map: u32, offset: i64, len: usize) -> Option<u64> {
        let def = self.program.maps.get(map as usize)?;
        let initial = def.initial.as_ref().filter(|_| def.flags & BPF_F_RDONLY_PROG != 0)?;
        let offset = usize::try_from(offset).ok()?;
        let bytes = initial.get(offset..offset.checked_add(len)?)?;
        Some(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn load_context(
        &mut self,
        path: &Path,
        address: &Address,
        off: i64,
        size: Size,
        signed: bool,
    ) -> Result<Value, Unsafe> {
        let access = Access { address, on: off, len: size.bytes(), touch: Touch::READ };
        let Some(at) = address.offset().and_then(|at| at.checked_add(off)) else {
            return Err(self.outside(&access, Expected::ContextField));
        };
        let is_field = size == Size::W && !signed;
        let is_behind_devmap = self.program.kind == ProgramKind::XdpDevmap;
        let value = match at {
            0 | 4 | 8 | 12 | 16 if !is_field => None,
            0 => Some(Value::Address(Address::new(Region::Packet))),
            4 => Some(Value::Address(Address::new(Region::PacketEnd))),
            8 => Some(Value::Address(Address::new(Region::Metadata))),
            12 | 16 => Some(self.fresh(Range::of_size(Size::W))),
            20 if is_field && is_behind_devmap => Some(self.fresh(Range::of_size(Size::W))),
            _ => None,
        };
        let value = value.ok_or_else(|| self.outside(&access, Expected::ContextField))?;
        self.reach(path, address, off, size.bytes(), Touch::READ)?;
        Ok(value)
    }

    fn load_stack(
        &mut self,
        path: &Path,
        frame: usize,
        (first, last): (i64, i64),
        len: usize,
    ) -> Result<Value, Unsafe> {
        let any = if len == SLOT_BYTES { Range::ANY } else { Range::unsigned(0, (1 << (8 * len)) - 1) };
        if first != last {
            self.used_stack(path, frame, first, (last - first) as usize + len);
            let at = path.state.at;
            self.proof.insns[at].reads_unwritten = true;
            self.proof.insns[at].leaks |= holds_address(path, frame, first, (last - first) as usize + len);
            return Ok(self.fresh(any));
        }
        self.used_stack(path, frame, first, len);
        let at = path.state.at;
        Ok(match path.state.frames[frame].stack.load(first, len) {
            Loaded::Value(value) => self.copied(value),
            Loaded::Low(number) => {
                self.proof.insns[at].leaks |= number.was_address();
                let range = number.range.low(size_of(len));
                match range == number.range {
                    true => self.copied(Value::Number(number)),
                    false => Value::Number(self.made(range, number.origin, None)),
                }
            }
            Loaded::Part(number) => {
                self.proof.insns[at].leaks |= number.was_address();
                Value::Number(self.made(number.range.low(size_of(len)), number.origin, None))
            }
            Loaded::Zero => self.fresh(Range::constant(0)),
            Loaded::Any { written } => {
                self.proof.insns[at].leaks |= holds_address(path, frame, first, len);
                self.proof.insns[at].reads_unwritten |= !written;
                self.fresh(any)
            }
        })
    }

    pub(super) fn store(
        &mut self,
        path: &mut Path,
        address: &Address,
        off: i64,
        size: Size,
        value: Value,
    ) -> Result<(), Unsafe> {
        let len = size.bytes();
        if address.to == Region::Context {
            let access = Access { address, on: off, len, touch: Touch::WRITE };
            return Err(self.outside(&access, Expected::ContextRead));
        }
        let (first, last) = self.reach(path, address, off, len, Touch::WRITE)?;
        let at = path.state.at;
        let Region::Stack { frame } = address.to else {
            if matches!(value, Value::Address(_)) {
                self.proof.insns[at].leaks = true;
                if let Some(sink) = self.sink(path, address.to) {
                    self.proof.sends(at, sink, Contents::Address, (first, last + len as i64));
                }
            }
            return Ok(());
        };
        if let Value::Address(Address { to: Region::Stack { frame: own }, .. }) = value
            && own > frame
        {
            return Err(Unsafe::ReturnsStack);
        }
        let frame = usize::from(frame);
        // The rest of a partly overwritten address is a number.
        if first != last || size != Size::Dw {
            let span = (last - first) as usize + len;
            self.proof.insns[at].leaks |= holds_address(path, frame, first, span);
        }
        if first != last {
            if matches!(value, Value::Address(_)) {
                self.proof.insns[at].leaks = true;
            }
            path.state.frames[frame].stack.smear(first, last + len as i64);
            return Ok(());
        }
        let is_aligned = first.rem_euclid(len as i64) == 0;
        if matches!(value, Value::Address(_)) && (size != Size::Dw || !is_aligned) {
            return Err(Unsafe::Access {
                access: "write",
                bytes: len,
                found: format!("the stack - {}, of an address", first.unsigned_abs()),
                expected: Expected::WholeAddress,
            });
        }
        let stored = match value {
            Value::Number(number) if size != Size::Dw => {
                let range = number.range.low(size);
                match range == number.range {
                    true => self.copied(value),
                    false => Value::Number(self.made(range, number.origin, None)),
                }
            }
            value => self.copied(value),
        };
        let zero = stored.number().filter(|number| number.range.as_constant() == Some(0));
        let is_kept = is_aligned && first.rem_euclid(SLOT_BYTES as i64) == 0;
        if let Some(number) = zero.filter(|_| !is_kept) {
            // The bytes are recorded as zeros and read as such: no number with this origin is loaded from them.
            self.origins.mark(number.origin);
        }
        if !is_aligned {
            let is_zero = zero.is_some();
            let byte = if is_zero { Byte::Zero } else { Byte::Any };
            path.state.frames[frame].stack.fill(first, len, byte);
            return Ok(());
        }
        path.state.frames[frame].stack.store(first, len, stored);
        if len == SLOT_BYTES {
            let number = *stack::touched(first, len).start();
            path.overwritten(Place::Slot { frame, number });
        }
        Ok(())
    }

    /// Where bytes stored in a region leave the program to.
    fn sink(&self, path: &Path, region: Region) -> Option<Sink> {
        match region {
            Region::Value(map) => Some(Sink::Value(map)),
            Region::Packet | Region::Metadata => Some(Sink::Packet),
            Region::Record { reference, .. } => {
                let held = path.state.held.iter().find(|held| held.reference == reference)?;
                self.proof.insns[held.insn].maps.first().copied().map(Sink::Event)
            }
            _ => None,
        }
    }

    pub(super) fn atomic(
        &mut self,
        path: &mut Path,
        op: AtomicOp,
        size: Size,
        base: Reg,
        off: i64,
        src: Reg,
    ) -> Result<(), Unsafe> {
        let at = path.state.at;
        let source = self.read(path, src)?;
        let expected = if op == AtomicOp::CmpXchg { self.read(path, Reg::R0)? } else { source };
        if [source, expected].iter().any(|value| matches!(value, Value::Address(_))) {
            self.proof.insns[at].leaks = true;
        }
        let value = self.read(path, base)?;
        let Value::Address(address) = value else {
            let found = self.text_of(&value);
            return Err(Unsafe::Kind { register: base.to_string(), found, expected: "an address" });
        };
        let len = size.bytes();
        let is_memory = matches!(
            address.to,
            Region::Stack { .. } | Region::Value(_) | Region::Record { .. } | Region::Argument { .. }
        );
        if !is_memory {
            let access = Access { address: &address, on: off, len, touch: Touch::BOTH };
            return Err(self.outside(&access, Expected::Atomic));
        }
        let (first, last) = self.reach(path, &address, off, len, Touch::BOTH)?;
        if !low_bits(&address, off).is_multiple_of(len as u64) {
            // On most machines they fault, or are not atomic.
            let access = Access { address: &address, on: off, len, touch: Touch::BOTH };
            return Err(self.outside(&access, Expected::Aligned { bytes: len }));
        }
        let mut old = self.fresh(Range::of_size(size));
        if let Region::Stack { frame } = address.to {
            let frame = usize::from(frame);
            let loaded = self.load_stack(path, frame, (first, last), len)?;
            if first == last {
                path.state.frames[frame].stack.fill(first, len, Byte::Any);
            } else {
                path.state.frames[frame].stack.smear(first, last + len as i64);
            }
            old = match loaded {
                Value::Number(number) => Value::Number(Number { link: None, room: None, ..number }),
                _ => self.leak(at, Range::of_size(size)),
            };
        }
        let fetches = match op {
            AtomicOp::CmpXchg => Some(Reg::R0),
            AtomicOp::Xchg => Some(src),
            AtomicOp::Add { fetch } | AtomicOp::Or { fetch } | AtomicOp::And { fetch } | AtomicOp::Xor { fetch } => {
                fetch.then_some(src)
            }
        };
        if let Some(register) = fetches {
            path.set(register, old);
        }
        Ok(())
    }

    /// A helper writes memory, with a least and a greatest length.
    pub(super) fn filled(&mut self, path: &mut Path, address: &Address, len: std::ops::Range<usize>) {
        let Region::Stack { frame } = address.to else { return };
        let Some((first, last)) = address.offsets(0) else { return };
        let frame = usize::from(frame);
        // Bytes that are not certainly written may keep their contents.
        let sure = if first == last { len.start } else { 0 };
        let (rest, end) = (first + sure as i64, last + len.end as i64);
        if first < end {
            // Nothing is kept of slots that are overwritten completely.
            let is_left = |number: usize| {
                let start = -(SLOT_BYTES as i64) * (number as i64 + 1);
                start < first || start + SLOT_BYTES as i64 > rest
            };
            let stack = &path.state.frames[frame].stack;
            let left = stack::touched(first, (end - first) as usize).filter(|number| is_left(*number));
            self.proof.insns[path.state.at].leaks |= left.into_iter().any(|number| stack.slot(number).is_address());
        }
        let stack = &mut path.state.frames[frame].stack;
        stack.fill(first, sure, Byte::Any);
        stack.smear(rest, end);
    }
}

/// A number with the alignment of all offsets of the address, a power of two.
fn low_bits(address: &Address, on: i64) -> u64 {
    (address.fixed.wrapping_add(on) as u64) | address.var.bits().most()
}

/// Whether one of these stack slots holds an address, or the remains of one.
fn holds_address(path: &Path, frame: usize, first: i64, len: usize) -> bool {
    let stack = &path.state.frames[frame].stack;
    stack::touched(first, len).any(|number| stack.slot(number).is_address())
}

fn size_of(len: usize) -> Size {
    Size::ALL.into_iter().find(|size| size.bytes() == len).unwrap_or(Size::Dw)
}
