// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes of an instruction, and its effect on the known values.

use flowloom_isa::helpers::{self, Effect};
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AtomicOp, Op, Operand, Reg, Size};
use flowloom_verifier::MapId;

use super::access::{Access, Region};
use super::graph::{Step, Walk};
use super::refusal::Reason;
use super::value::{Memory, State, Value};

/// Offsets in `struct xdp_md` of addresses: of the packet, of its end, of the metadata before it.
const DATA: i64 = 0;
const DATA_END: i64 = 4;
const DATA_META: i64 = 8;

/// The region of a register; `None` for the stack pointer, which is a constant.
fn register(depth: u8, reg: Reg) -> Option<Region> {
    let number = reg.number();
    (number < 10).then_some(Region::Register { depth: if number < 6 { 0 } else { depth }, number })
}

/// All of a register.
const WHOLE: Option<(i64, i64)> = Some((0, 1));

impl Memory {
    fn region(self) -> Region {
        match self {
            Memory::Context => Region::Context,
            Memory::Stack { depth } => Region::Stack { depth },
            Memory::Packet => Region::Packet,
            Memory::Metadata => Region::Metadata,
            Memory::Value(map) => Region::Value(map),
            Memory::Record => Region::Record,
        }
    }
}

/// Accesses of an instruction, as they are collected.
struct Touched {
    depth: u8,
    /// Registers with constant addresses: see [`super::value::Frame::wires`].
    wires: [bool; 11],
    accesses: Vec<Access>,
}

impl Touched {
    fn reads(&mut self, reg: Reg) {
        if self.wires[usize::from(reg.number())] {
            return;
        }
        self.accesses.extend(register(self.depth, reg).map(|region| Access::read(region, WHOLE)));
    }

    fn writes(&mut self, reg: Reg) {
        self.accesses.extend(register(self.depth, reg).map(|region| Access::write(region, WHOLE)));
    }

    fn operand(&mut self, operand: Operand) {
        if let Operand::Reg(reg) = operand {
            self.reads(reg);
        }
    }

    fn read(&mut self, region: Region, bytes: Option<(i64, i64)>) {
        self.accesses.push(Access::read(region, bytes));
    }

    fn write(&mut self, region: Region, bytes: Option<(i64, i64)>) {
        self.accesses.push(Access::write(region, bytes));
    }
}

impl Walk<'_> {
    /// The step for an instruction, `None` if it takes no hardware; updates the known values.
    pub(super) fn step(&mut self, state: &mut State, at: usize, op: Op) -> Result<Option<Step>, Reason> {
        let mut touched = Touched { depth: state.depth(), wires: state.frame().wires, accesses: Vec::new() };
        let frame = state.frame_mut();
        match op {
            Op::Alu { width, op: alu, dst, src } => {
                touched.operand(src);
                if alu != flowloom_isa::op::AluOp::Mov {
                    touched.reads(dst);
                }
                touched.writes(dst);
                frame.set(dst, frame.get(dst).alu(width, alu, frame.value(src)));
            }
            Op::MovSx { dst, src, .. } => {
                touched.reads(src);
                touched.writes(dst);
                frame.set(dst, Value::Unknown);
            }
            Op::Neg { dst, .. } | Op::End { dst, .. } => {
                touched.reads(dst);
                touched.writes(dst);
                frame.set(dst, Value::Unknown);
            }
            Op::LoadImm { dst, value } => {
                touched.writes(dst);
                frame.set(dst, Value::Number(value));
            }
            Op::LoadMap { dst, map } => {
                touched.writes(dst);
                frame.set(dst, u32::try_from(map).map_or(Value::Unknown, Value::Map));
            }
            Op::LoadMapValue { dst, map, off } => {
                touched.writes(dst);
                let value = |map| Value::Address(Memory::Value(MapId::Of(map)), Some(i64::from(off)));
                frame.set(dst, u32::try_from(map).map_or(Value::Unknown, value));
            }
            Op::Load { size, dst, base, off, .. } => {
                let from = frame.get(base);
                if let Some(value) = context_address(from, off, size, state.head) {
                    // The pipeline provides this address: no instruction is needed.
                    state.frame_mut().set_wire(dst, value);
                    return Ok(None);
                }
                touched.reads(base);
                let bytes = self.memory(&mut touched, state, at, from, off, size, [true, false]);
                touched.writes(dst);
                let value = match bytes {
                    Some((Region::Stack { depth }, (first, _))) if size == Size::Dw => state.known_slot(depth, first),
                    _ => Value::Unknown,
                };
                state.frame_mut().set(dst, value);
            }
            Op::Store { size, base, off, src } => {
                let (to, value) = (frame.get(base), frame.value(src));
                touched.operand(src);
                touched.reads(base);
                let bytes = self.memory(&mut touched, state, at, to, off, size, [false, true]);
                if let Some((Region::Stack { depth }, (first, end))) = bytes {
                    let is_new = !(first..end).any(|byte| state.written.contains(&(depth, byte)));
                    if is_new && value == Value::Number(0) {
                        // Unwritten stack is zero: a stage that does not carry it reads zero.
                        return Ok(None);
                    }
                    state.write_slot(depth, (first, end), value);
                } else {
                    self.forget_stack(state, &touched);
                }
            }
            Op::Atomic { op: atomic, size, base, off, src } => {
                let to = frame.get(base);
                touched.reads(src);
                touched.reads(base);
                if atomic == AtomicOp::CmpXchg {
                    touched.reads(Reg::R0);
                }
                if let Some(reg) = op.writes() {
                    touched.writes(reg);
                    frame.set(reg, Value::Unknown);
                }
                self.memory(&mut touched, state, at, to, off, size, [true, true]);
                self.forget_stack(state, &touched);
            }
            Op::Branch { dst, src, .. } => {
                touched.reads(dst);
                touched.operand(src);
            }
            Op::Exit => touched.reads(Reg::R0),
            Op::Call { helper } => self.call(&mut touched, state, at, helper)?,
            Op::CallKfunc { id } => return Err(Reason::Kfunc(id)),
            // A helper that receives it is a callback, which is rejected there.
            Op::LoadFunc { dst, .. } => {
                touched.writes(dst);
                frame.set(dst, Value::Unknown);
            }
            Op::LoadPacket { .. } | Op::LoadVar { .. } | Op::LoadMapIdx { .. } | Op::LoadMapIdxValue { .. } => {
                return Err(Reason::Other("an instruction that XDP programs do not support".to_owned()));
            }
            Op::Jump { .. } | Op::JumpLong { .. } | Op::MayGoto { .. } | Op::CallLocal { .. } => return Ok(None),
        }
        Ok(Some(Step { insn: at, op, fused: None, accesses: touched.accesses, stages: (self.stages)(op) }))
    }

    /// Records the memory that a load or a store accesses; returns the bytes if they are known exactly.
    #[allow(clippy::too_many_arguments, reason = "an instruction has so many parts")]
    fn memory(
        &self,
        touched: &mut Touched,
        state: &State,
        at: usize,
        base: Value,
        off: i16,
        size: Size,
        [reads, writes]: [bool; 2],
    ) -> Option<(Region, (i64, i64))> {
        let mut add = |region, bytes| {
            if reads {
                touched.read(region, bytes);
            }
            if writes {
                touched.write(region, bytes);
            }
        };
        if let Value::Address(to, Some(inside)) = base {
            let first = inside + i64::from(off);
            let bytes = (first, first + size.bytes() as i64);
            add(to.region(), Some(bytes));
            return Some((to.region(), bytes));
        }
        // The proof covers all iterations and calls together.
        for (memory, bytes) in &self.proof.insns[at].memory {
            add(self.proved(*memory, state), self.proved_bytes(*memory, *bytes, state));
        }
        None
    }

    fn proved(&self, memory: flowloom_verifier::Memory, state: &State) -> Region {
        match memory {
            flowloom_verifier::Memory::Context => Region::Context,
            flowloom_verifier::Memory::Stack { up } => Region::Stack { depth: state.depth().saturating_sub(up) },
            flowloom_verifier::Memory::Packet => Region::Packet,
            flowloom_verifier::Memory::Metadata => Region::Metadata,
            flowloom_verifier::Memory::Value(map) | flowloom_verifier::Memory::Key(map) => Region::Value(map),
            flowloom_verifier::Memory::Record => Region::Record,
        }
    }

    fn proved_bytes(
        &self,
        memory: flowloom_verifier::Memory,
        bytes: flowloom_verifier::Bytes,
        state: &State,
    ) -> Option<(i64, i64)> {
        match memory {
            // Its offsets are relative to the start of the packet at this point.
            flowloom_verifier::Memory::Packet => state.head.map(|head| (bytes.first + head, bytes.end + head)),
            _ => Some((bytes.first, bytes.end)),
        }
    }

    /// Forgets known values in stack bytes that may have been written.
    fn forget_stack(&self, state: &mut State, touched: &Touched) {
        for access in &touched.accesses {
            if let Region::Stack { depth } = access.region
                && access.writes
            {
                let (first, end) = access.bytes.unwrap_or((-512, 0));
                state.write_slot(depth, (first, end), Value::Unknown);
            }
        }
    }

    fn call(&self, touched: &mut Touched, state: &mut State, at: usize, number: i32) -> Result<(), Reason> {
        match number {
            helper::TAIL_CALL => return Err(Reason::TailCall),
            helper::LOOP | helper::FOR_EACH_MAP_ELEM => {
                return Err(Reason::Callback(helpers::name_of(number).unwrap_or("a helper").to_owned()));
            }
            _ => {}
        }
        let known = &self.proof.insns[at];
        let argument = |number| Reg::new(number).map_or(Value::Unknown, |reg| state.frame().get(reg));
        let (first, second) = (argument(1), argument(2));
        let maps: Vec<MapId> = match first {
            Value::Map(map) => vec![MapId::Of(map)],
            _ => known.maps.iter().copied().collect(),
        };
        let args = helpers::by_number(number).map_or(5, |helper| helper.parameters.len());
        (1..=args as u8).filter_map(Reg::new).for_each(|reg| touched.reads(reg));
        for (memory, bytes) in &known.memory {
            let (region, span) = (self.proved(*memory, state), self.proved_bytes(*memory, *bytes, state));
            if bytes.touch.reads {
                touched.read(region, span);
            }
            if bytes.touch.writes {
                touched.write(region, span);
            }
        }
        self.narrow(touched, &maps, [second, argument(3)], number);
        let mut result = Value::Unknown;
        match helpers::by_number(number).map(|helper| helper.effect) {
            Some(Effect::Lookup) => {
                maps.iter().for_each(|map| touched.read(Region::Keys(*map), WHOLE));
                if let [MapId::Of(map)] = maps.as_slice()
                    && self.program.maps.get(*map as usize).is_some_and(|def| def.inner.is_none())
                {
                    result = Value::Address(Memory::Value(MapId::Of(*map)), Some(0));
                }
            }
            Some(Effect::Update | Effect::Delete | Effect::Evict) => {
                for map in &maps {
                    touched.write(Region::Keys(*map), WHOLE);
                    touched.write(Region::Value(*map), None);
                }
            }
            Some(Effect::Environment | Effect::Random | Effect::HostTable | Effect::Pure) => {}
            Some(Effect::Reserve) => {
                touched.write(Region::Effects, WHOLE);
                result = Value::Address(Memory::Record, Some(0));
            }
            Some(Effect::Packet) => match number {
                helper::XDP_GET_BUFF_LEN => touched.read(Region::Context, None),
                helper::XDP_LOAD_BYTES | helper::FL_PARSE => touched.read(Region::Packet, None),
                _ => touched.write(Region::Packet, None),
            },
            Some(Effect::MovePacket) => {
                for region in [Region::Packet, Region::Context] {
                    touched.read(region, None);
                    touched.write(region, None);
                }
                if number == helper::XDP_ADJUST_HEAD {
                    state.head = match (state.head, second) {
                        (Some(head), Value::Number(by)) => Some(head + i64::from(by as i32)),
                        _ => None,
                    };
                }
            }
            Some(Effect::Lock) => match first {
                Value::Address(Memory::Value(map), _) => touched.write(Region::Value(map), None),
                _ => touched.write(Region::Effects, WHOLE),
            },
            _ => {
                maps.iter().for_each(|map| touched.read(Region::Keys(*map), WHOLE));
                touched.write(Region::Effects, WHOLE);
            }
        }
        touched.writes(Reg::R0);
        self.forget_stack(state, touched);
        let frame = state.frame_mut();
        frame.after_call(result);
        Ok(())
    }

    /// Narrows the stack bytes of key and value to those of this iteration; the proof covers all iterations together.
    fn narrow(&self, touched: &mut Touched, maps: &[MapId], arguments: [Value; 2], number: i32) {
        let how_many = match number {
            helper::MAP_LOOKUP_ELEM | helper::MAP_DELETE_ELEM => 1,
            helper::MAP_UPDATE_ELEM => 2,
            _ => return,
        };
        let [MapId::Of(map)] = maps else { return };
        let Some(def) = self.program.maps.get(*map as usize) else { return };
        let mut exact = Vec::new();
        for (address, bytes) in arguments.into_iter().zip([def.key_bytes, def.value_bytes]).take(how_many) {
            match address {
                Value::Address(Memory::Stack { depth }, Some(at)) => {
                    exact.push(Access::read(Region::Stack { depth }, Some((at, at + i64::from(bytes)))));
                }
                Value::Address(Memory::Stack { .. }, None) | Value::Unknown => return,
                _ => {}
            }
        }
        touched.accesses.retain(|access| !matches!(access.region, Region::Stack { .. }));
        touched.accesses.extend(exact);
    }
}

/// The address that a load from the context yields.
fn context_address(base: Value, off: i16, size: Size, head: Option<i64>) -> Option<Value> {
    let Value::Address(Memory::Context, Some(at)) = base else { return None };
    match at + i64::from(off) {
        DATA if size == Size::W => Some(Value::Address(Memory::Packet, head)),
        DATA_END if size == Size::W => Some(Value::PacketEnd),
        DATA_META if size == Size::W => Some(Value::Address(Memory::Metadata, Some(0))),
        _ => None,
    }
}
