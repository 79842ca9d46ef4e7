// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Helper calls: checks of arguments, and their effect on the state.

use std::ops::Range;

use super::expected::Expected;
use super::number::Range as Numbers;
use super::path::{Next, Path};
use super::proof::{Contents, Lookup, Sink, Touch};
use super::refusal::Unsafe;
use super::stack::{Byte, Loaded};
use super::state::{Held, Locked};
use super::text;
use super::value::{Address, Cause, MapId, Region, Value};
use super::walk::Walk;
use flowloom_isa::MapKind;
use flowloom_isa::helpers::{self, Parameter, Returns, Usage};
use flowloom_isa::insn::helper;
use flowloom_isa::op::Reg;
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef};

/// The greatest length that a helper accepts [Linux BPF_MAX_VAR_SIZ].
const MAX_LENGTH: u64 = 1 << 29;

const ARRAY_KEY_BYTES: usize = 4;

/// A call while its arguments are checked.
struct Site {
    helper: &'static str,
    number: i32,
    /// Whether keys, values and buffers may be in the packet.
    packet: bool,
    map: Option<MapId>,
    /// Where the bytes being checked leave the program to.
    sink: Option<Sink>,
    /// The value of the key, if constant.
    key: Option<u64>,
    /// The memory argument whose length comes next, its index, and whether it is written.
    memory: Option<(usize, Value, Usage)>,
    /// The memory that is written once all checks have passed, with the least and greatest length.
    filled: Vec<(Address, Range<usize>)>,
    /// The record that is released.
    released: Option<u32>,
    /// The length of the acquired record in bytes.
    length: u32,
    callback: Option<usize>,
}

impl Walk<'_> {
    pub(super) fn call(&mut self, path: &mut Path, number: i32) -> Result<Next, Unsafe> {
        let at = path.state.at;
        // Unknown helpers were refused before.
        let Some(signature) = helpers::by_number(number) else { return Ok(Next::End) };
        if let Some(locked) = path.state.locked.filter(|_| number != helper::SPIN_UNLOCK) {
            return Err(Unsafe::Locked { what: signature.name.to_owned(), acquired: locked.insn });
        }
        let mut site = Site {
            helper: signature.name,
            number,
            packet: signature.takes_packet,
            map: None,
            sink: None,
            key: None,
            memory: None,
            filled: Vec::new(),
            released: None,
            length: 0,
            callback: None,
        };
        for (register, expected) in (1..=5).filter_map(Reg::new).zip(signature.parameters) {
            let value = self.read(path, register)?;
            self.argument(path, &mut site, register.number().into(), *expected, value)?;
        }
        if let Some(map) = site.map {
            self.proof.insns[at].maps.insert(map);
            self.writable(number, signature.name, map)?;
        }
        self.proof.insns[at].probes |= signature.probes;
        if number == helper::MAP_LOOKUP_ELEM {
            let entries = site.map.and_then(|map| self.array_entries(map));
            let outside = site.key.filter(|key| entries.is_some_and(|entries| *key >= entries));
            let lookup = &mut self.proof.insns[at].lookup;
            *lookup = match (*lookup, outside) {
                (Lookup::None, Some(key)) => Lookup::Outside(key),
                (known @ Lookup::Outside(_), Some(_)) => known,
                _ => Lookup::MayFind,
            };
        }
        match number {
            helper::LOOP | helper::FOR_EACH_MAP_ELEM => {
                let Some(callback) = site.callback else { return Ok(Next::End) };
                return self.rounds_begin(path, callback, site.map.filter(|_| number != helper::LOOP));
            }
            helper::TAIL_CALL => {
                if let Some(held) = path.state.held.first() {
                    return Err(Unsafe::NotReleased { what: "a record", acquired: held.insn });
                }
                if path.depth() > 0 {
                    self.ended_by_tail_call(path)?;
                }
            }
            helper::SPIN_LOCK | helper::SPIN_UNLOCK => self.lock(path, number == helper::SPIN_LOCK)?,
            _ => {}
        }
        for (address, len) in &site.filled {
            self.filled(path, address, len.clone());
        }
        if let Some(reference) = site.released {
            self.released(path, reference, at);
        }
        if signature.moves_packet() {
            self.moved_packet(path, at);
        }
        let given = self.returned(path, signature.returns, &site);
        self.clobber(path);
        path.set(Reg::R0, given);
        Ok(Next::At(at + 1))
    }

    /// A tail call in a function ends the function, not its caller: the other program's result is returned to the
    /// caller, and the packet may have moved.
    fn ended_by_tail_call(&mut self, path: &Path) -> Result<(), Unsafe> {
        let at = path.state.at;
        let mut other = path.clone();
        self.moved_packet(&mut other, at);
        let returned = self.fresh(Numbers::ANY);
        other.set(Reg::R0, returned);
        if let Next::At(next) = self.exit(&mut other)? {
            other.state.at = next;
            self.fork(&other, other.state.clone(), at, true)?;
        }
        Ok(())
    }

    /// Refuses writes to maps that are read-only for programs.
    fn writable(&self, number: i32, helper: &'static str, map: MapId) -> Result<(), Unsafe> {
        let flags = text::def(self.program, map).map_or(0, |def| def.flags);
        let changes = matches!(number, helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM | helper::FL_EVICT);
        if !changes || flags & BPF_F_RDONLY_PROG == 0 {
            return Ok(());
        }
        Err(Unsafe::ReadOnly { helper, map: text::map_name(self.program, map) })
    }

    fn argument(
        &mut self,
        path: &mut Path,
        site: &mut Site,
        argument: usize,
        expected: Parameter,
        value: Value,
    ) -> Result<(), Unsafe> {
        let refuse = |walk: &Self, expected| Unsafe::Argument {
            helper: site.helper,
            argument,
            found: walk.text_of(&value),
            expected,
        };
        match expected {
            Parameter::Any | Parameter::CallbackContext => {}
            Parameter::Number => {
                if value.number().is_none() {
                    // The numeric value of an address differs between targets.
                    let at = path.state.at;
                    self.proof.insns[at].leaks = true;
                }
            }
            Parameter::Context => {
                let is_context = matches!(value, Value::Address(a) if a.to == Region::Context && a.offset() == Some(0));
                if !is_context {
                    return Err(refuse(self, Expected::Context));
                }
            }
            Parameter::Map(fits, kinds) => {
                let map = match value {
                    Value::Address(Address { to: Region::Map(map), nullable: false, .. }) => Some(map),
                    _ => None,
                };
                let kind = map.and_then(|map| text::def(self.program, map)).map(|def| def.kind);
                if !kind.is_some_and(fits) {
                    return Err(refuse(self, Expected::Map(kinds)));
                }
                site.map = map;
            }
            Parameter::Key | Parameter::Value => {
                let def = site.map.and_then(|map| text::def(self.program, map));
                let is_key = matches!(expected, Parameter::Key);
                let bytes = |def: &MapDef| if is_key { def.key_bytes } else { def.value_bytes } as usize;
                let len = def.map_or(0, bytes);
                let what = if is_key { "a key" } else { "a value" };
                site.sink = site.map.map(if is_key { Sink::Key } else { Sink::Value });
                self.bytes(path, site, argument, &value, len..len, Usage::Read, what)?;
                if is_key && len == ARRAY_KEY_BYTES {
                    site.key = self.constant_at(path, &value);
                }
            }
            Parameter::Fixed { bytes, usage } => {
                self.bytes(path, site, argument, &value, bytes..bytes, usage, "a number to fill")?;
            }
            Parameter::Sized(usage) => site.memory = Some((argument, value, usage)),
            Parameter::Length { zero } => {
                let Some((of, memory, usage)) = site.memory.take() else { return Ok(()) };
                let Value::Number(number) = value else { return Err(refuse(self, Expected::Length)) };
                self.origins.mark(number.origin);
                let most = number.range.umax();
                if most >= MAX_LENGTH {
                    return Err(refuse(self, Expected::BoundedLength));
                }
                if !zero && number.range.umin() == 0 {
                    return Err(refuse(self, Expected::SomeLength));
                }
                let is_null = memory.number().is_some_and(|number| number.range.as_constant() == Some(0));
                if most == 0
                    && (is_null || memory.address().is_some_and(|address| address.to.has_bytes() && !address.nullable))
                {
                    return Ok(());
                }
                let len = number.range.umin() as usize..most as usize;
                site.sink = match site.number {
                    helper::RINGBUF_OUTPUT | helper::PERF_EVENT_OUTPUT => site.map.map(Sink::Event),
                    helper::XDP_STORE_BYTES | helper::FL_EMIT => Some(Sink::Packet),
                    _ => None,
                };
                self.bytes(path, site, of, &memory, len, usage, "as many bytes")?;
            }
            Parameter::ConstantLength => {
                let constant = value.number().and_then(|number| number.range.as_constant());
                let length = constant.and_then(|length| u32::try_from(length).ok()).filter(|length| *length < 1 << 30);
                site.length = length.ok_or_else(|| refuse(self, Expected::ConstantLength))?;
                if let Value::Number(number) = value {
                    self.origins.mark(number.origin);
                }
            }
            Parameter::Record => match value {
                Value::Address(Address { to: Region::Record { reference, .. }, nullable: false, .. })
                    if value.address().and_then(|address| address.offset()) == Some(0) =>
                {
                    site.released = Some(reference);
                }
                _ => return Err(refuse(self, Expected::Record)),
            },
            Parameter::Lock => {
                if self.lock_of(&value).is_none() {
                    return Err(refuse(self, Expected::Lock));
                }
            }
            Parameter::Callback => match value {
                Value::Address(Address { to: Region::Function { slot }, .. }) => site.callback = Some(slot as usize),
                _ => return Err(refuse(self, Expected::AddressOf("a function of the program"))),
            },
            Parameter::Text => {
                let Some(bytes) = value.address().and_then(|address| self.text_bytes(&address)) else {
                    return Err(refuse(self, Expected::Text));
                };
                self.bytes(path, site, argument, &value, bytes..bytes, Usage::Read, "a text")?;
            }
        }
        Ok(())
    }

    /// Checks a memory argument of `what` with a least and a greatest length.
    #[allow(clippy::too_many_arguments, reason = "one call of a helper has so many sides")]
    fn bytes(
        &mut self,
        path: &mut Path,
        site: &mut Site,
        argument: usize,
        value: &Value,
        lens: Range<usize>,
        usage: Usage,
        what: &'static str,
    ) -> Result<(), Unsafe> {
        let len = lens.end;
        let helper = site.helper;
        let refuse =
            |walk: &Self, expected| Unsafe::Argument { helper, argument, found: walk.text_of(value), expected };
        let Value::Address(address) = value else { return Err(refuse(self, Expected::AddressOf(what))) };
        let is_packet = matches!(address.to, Region::Packet | Region::Metadata);
        if is_packet && !site.packet {
            return Err(refuse(self, Expected::OutsidePacket));
        }
        if matches!(address.to, Region::Context) {
            return Err(refuse(self, Expected::AddressOf(what)));
        }
        let touch = match usage {
            Usage::Read => Touch::READ,
            Usage::Fill | Usage::MayFill => Touch::WRITE,
            Usage::ReadWrite => Touch::BOTH,
        };
        let (first, last) = self.reach(path, address, 0, len, touch).map_err(|found| match found {
            Unsafe::Access { expected, .. } => {
                refuse(self, Expected::BytesThere { bytes: len, each: Box::new(expected) })
            }
            other => other,
        })?;
        if let Region::Stack { frame } = address.to {
            let frame = usize::from(frame);
            if touch.reads {
                self.used_stack(path, frame, first, (last - first) as usize + len);
                self.read_by_helper(path, frame, first, (last - first) as usize + len, site.sink.take());
            }
            if touch.writes {
                let sure = if usage == Usage::Fill { lens.start } else { 0 };
                site.filled.push((*address, sure..len));
            }
        }
        Ok(())
    }

    /// A helper reads bytes of the stack, so they count as precise.
    fn read_by_helper(&mut self, path: &Path, frame: usize, first: i64, len: usize, sink: Option<Sink>) {
        let at = path.state.at;
        let mut sent = |what, byte: i64| {
            if let Some(sink) = sink {
                self.proof.sends(at, sink, what, (byte - first, byte - first + 1));
            }
        };
        let (mut reads_unwritten, mut leaks, read) = (false, false, first..first + len as i64);
        for number in super::stack::touched(first, len) {
            let slot = path.state.frames[frame].stack.slot(number);
            leaks |= slot.is_address();
            let start = -8 * (number as i64 + 1);
            for (at_byte, byte) in (start..).zip(&slot.bytes).filter(|(at_byte, _)| read.contains(at_byte)) {
                reads_unwritten |= *byte == Byte::Unwritten;
                match byte {
                    Byte::Unwritten => sent(Contents::Unwritten, at_byte),
                    Byte::Whole if slot.is_address() => sent(Contents::Address, at_byte),
                    _ => {}
                }
            }
        }
        let known = &mut self.proof.insns[at];
        known.reads_unwritten |= reads_unwritten;
        known.leaks |= leaks;
    }

    /// The length of the terminated string in constant data at an address.
    fn text_bytes(&self, address: &Address) -> Option<usize> {
        let Region::Value(MapId::Of(map)) = address.to else { return None };
        let def = self.program.maps.get(map as usize).filter(|def| def.flags & BPF_F_RDONLY_PROG != 0)?;
        let rest = def.initial.as_ref()?.get(usize::try_from(address.offset()?).ok()?..)?;
        rest.iter().position(|byte| *byte == 0).map(|end| end + 1)
    }

    /// The lock at an address: the region of its value and the id of the value.
    fn lock_of(&self, value: &Value) -> Option<(Region, u32)> {
        let address = value.address().filter(|address| !address.nullable)?;
        let Region::Value(map) = address.to else { return None };
        let lock = text::def(self.program, map)?.spin_lock?;
        (address.offset() == Some(lock.into())).then_some((address.to, address.id))
    }

    /// The constant in four bytes of the stack, if they hold one on this path.
    fn constant_at(&mut self, path: &Path, value: &Value) -> Option<u64> {
        let Value::Address(address @ Address { to: Region::Stack { frame }, .. }) = value else { return None };
        let stack = &path.state.frames[usize::from(*frame)].stack;
        let number = match stack.load(address.offset()?, ARRAY_KEY_BYTES) {
            Loaded::Value(Value::Number(number)) | Loaded::Low(number) | Loaded::Part(number) => number,
            Loaded::Zero => return Some(0),
            Loaded::Value(_) | Loaded::Any { .. } => return None,
        };
        let constant = number.range.as_constant()?;
        self.origins.mark(number.origin);
        Some(constant & u64::from(u32::MAX))
    }

    /// The number of entries of an array, which has a value under every key below it.
    fn array_entries(&self, map: MapId) -> Option<u64> {
        let def = text::def(self.program, map)?;
        matches!(def.kind, MapKind::Array | MapKind::PerCpuArray).then_some(def.max_entries.into())
    }

    fn lock(&mut self, path: &mut Path, takes: bool) -> Result<(), Unsafe> {
        let insn = path.state.at;
        let value = self.read(path, Reg::R1)?;
        let Some((region, id)) = self.lock_of(&value) else { return Ok(()) };
        match (takes, path.state.locked) {
            (true, None) => path.state.locked = Some(Locked { region, id, insn }),
            (true, Some(_)) => {
                return Err(Unsafe::Lock { found: "acquired while another is held", expected: "one at a time" });
            }
            (false, Some(held)) if (held.region, held.id) == (region, id) => path.state.locked = None,
            (false, Some(_)) => {
                return Err(Unsafe::Lock {
                    found: "released that is not the one held",
                    expected: "the one that is held",
                });
            }
            (false, None) => {
                return Err(Unsafe::Lock { found: "released, and none is held", expected: "`spin_lock` before" });
            }
        }
        Ok(())
    }

    /// Releases a record: its addresses become invalid.
    fn released(&mut self, path: &mut Path, reference: u32, at: usize) {
        path.state.held.retain(|held| held.reference != reference);
        let is_of = |to| matches!(to, Region::Record { reference: other, .. } if other == reference);
        path.state.invalidate(&mut self.origins, Cause::RecordReleased, at, is_of);
    }

    /// The packet has moved: its addresses become invalid.
    pub(super) fn moved_packet(&mut self, path: &mut Path, at: usize) {
        let is_in_packet = |to| matches!(to, Region::Packet | Region::Metadata | Region::PacketEnd);
        path.state.invalidate(&mut self.origins, Cause::PacketMoved, at, is_in_packet);
        let is_room = |value: &Value| value.number().is_some_and(|number| number.room.is_some());
        path.state.change(is_room, |value| {
            if let Value::Number(number) = value {
                number.room = None;
            }
        });
    }

    fn returned(&mut self, path: &mut Path, returns: Returns, site: &Site) -> Value {
        let at = path.state.at;
        match returns {
            Returns::Nothing => Value::Unwritten,
            Returns::AnyNumber => self.fresh(Numbers::ANY),
            Returns::Number(least, most) => self.fresh(Numbers::signed(least, most)),
            Returns::ValueOrNull => {
                let Some(map) = site.map else { return self.fresh(Numbers::ANY) };
                let is_of_maps = text::def(self.program, map).is_some_and(|def| def.kind.is_of_maps());
                let region = match (is_of_maps, map) {
                    (true, MapId::Of(outer)) => Region::Map(MapId::In(outer)),
                    _ => Region::Value(map),
                };
                let is_in_array = |key: u64| self.array_entries(map).is_some_and(|entries| key < entries);
                // Every entry of an array exists, but not every CPU.
                let nullable = site.number != helper::MAP_LOOKUP_ELEM || !site.key.is_some_and(is_in_array);
                Value::Address(Address { id: self.id(), nullable, ..Address::new(region) })
            }
            Returns::RecordOrNull => {
                let reference = self.id();
                path.state.held.push(Held { reference, insn: at });
                let region = Region::Record { reference, bytes: site.length };
                Value::Address(Address { id: reference, nullable: true, ..Address::new(region) })
            }
        }
    }
}
