// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs, most of which the kernel's verifier accepts.
//!
//! A program consists of pieces with a common contract, so that any piece may follow any other:
//!
//! ```text
//!  r6  the context (in functions an address on the caller's stack)      r8, r9  numbers, always
//!  r7  the packet, of which PACKET_BYTES are known to be there          r0-r5   numbers, or nothing
//!  stack  NUMBERS slots of 8 bytes hold numbers; below them room for a key, a value and a pointer
//! ```
//!
//! At its end it writes all numbers that it holds into the map `.data.result`, so that every difference between engines
//! is observable.

use flowloom_engine::Snapshot;
use flowloom_isa::op::{AluOp, AtomicOp, Cond, EndOp, Op, Operand, Reg, Size, Width};
use flowloom_isa::{BPF_F_NO_PREALLOC, Insn, MapDef, MapKind, Program, asm};
use flowloom_testkit::Rng;

/// Number of packet bytes covered by the program's bounds check.
pub(super) const PACKET_BYTES: i16 = 32;
const NUMBERS: i16 = 8;
/// Places below `r10`.
const KEY: i16 = 8 * (NUMBERS + 1);
const VALUE: i16 = KEY + 8;
const POINTER: i16 = VALUE + 8;
const RESULT_BYTES: u32 = 8 * (10 + NUMBERS as u32);
const ARRAY: i32 = 0;
const HASH: i32 = 1;
const RESULT: i32 = 2;
const DATA: i32 = 3;
const ARRAY_VALUE: i16 = 16;
const PORTS: i32 = 4;
const PREFIXES: i32 = 5;

const fn r(number: u8) -> Reg {
    match Reg::new(number) {
        Some(reg) => reg,
        None => Reg::FP,
    }
}

pub(super) fn maps() -> Vec<MapDef> {
    let map = |name: &str, kind, key_bytes, value_bytes, max_entries| {
        let name = name.to_owned();
        MapDef { name, kind, key_bytes, value_bytes, max_entries, ..MapDef::default() }
    };
    let data = |name, initial: Vec<u8>| MapDef {
        initial: Some(initial.clone()),
        ..map(name, MapKind::Array, 4, initial.len() as u32, 1)
    };
    vec![
        map("array", MapKind::Array, 4, ARRAY_VALUE as u32, 6),
        MapDef { flags: BPF_F_NO_PREALLOC, ..map("hash", MapKind::Hash, 8, 8, 3) },
        data(".data.result", vec![0; RESULT_BYTES as usize]),
        data(".data", (0..32).collect()),
        map("ports", MapKind::Devmap, 4, 4, 4),
        MapDef { flags: BPF_F_NO_PREALLOC, ..map("prefixes", MapKind::LpmTrie, 8, 8, 5) },
    ]
}

/// Random map contents; their keys are those that programs look up, or close to them.
pub(super) fn state(rng: &mut Rng) -> Snapshot {
    let array = (0..6u32).map(|key| (key.to_le_bytes().to_vec(), rng.bytes(ARRAY_VALUE as usize))).collect();
    let hash = (0..rng.below(4)).map(|_| ((rng.below(4) as u64).to_le_bytes().to_vec(), rng.bytes(8))).collect();
    let prefixes = (0..rng.below(6)).map(|_| {
        let bits = rng.below(33) as u32;
        let mut address = [rng.below(4) as u8, 0, 0, rng.below(8) as u8];
        // Clear the bits after the prefix.
        let kept = u32::from_be_bytes(address) & u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        address = kept.to_be_bytes();
        ([bits.to_le_bytes(), address].concat(), rng.bytes(8))
    });
    let prefixes = prefixes.collect();
    let data = [(0u32.to_le_bytes().to_vec(), rng.bytes(32))].into();
    let maps = [("array", array), ("hash", hash), ("prefixes", prefixes), (".data", data)];
    Snapshot { maps: maps.map(|(name, entries)| (name.to_owned(), entries)).into(), ..Snapshot::default() }
}

pub(super) fn program(insns: Vec<Insn>) -> Program {
    let (name, section, license) = ("random".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    Program { name, section, insns, maps: maps(), license, ..Program::default() }
}

pub(super) fn valid(rng: &mut Rng) -> Program {
    let mut out = Generator {
        rng,
        maps: maps(),
        ops: Vec::new(),
        jumps: Vec::new(),
        calls: Vec::new(),
        short: Vec::new(),
        live: 0,
    };
    out.main();
    program(out.finish())
}

/// Position of a piece.
#[derive(Clone, Copy)]
struct Scope {
    /// 0 is the main program; functions only call those with larger numbers.
    function: usize,
    depth: u32,
    in_loop: bool,
}

const FUNCTIONS: usize = 3;

struct Generator<'r> {
    rng: &'r mut Rng,
    maps: Vec<MapDef>,
    ops: Vec<Op>,
    /// Jumps: indices of the operation and of its target.
    jumps: Vec<(usize, usize)>,
    /// Calls: index of the operation, and the called function.
    calls: Vec<(usize, usize)>,
    /// Jumps to the end for packets that are too short.
    short: Vec<usize>,
    /// Bit mask of the registers that hold a number.
    live: u16,
}

impl Generator<'_> {
    fn push(&mut self, op: Op) {
        if let Some(dst) = op.writes() {
            self.live |= 1 << dst.number();
        }
        self.ops.push(op);
    }

    /// Emits instructions in assembler.
    fn emit(&mut self, text: &str) {
        let insns = asm::assemble(text, &self.maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let mut at = 0;
        while let Ok(op) = Op::decode(&insns, at) {
            at += op.slots();
            self.push(op);
        }
    }

    fn kill(&mut self, mask: u16) {
        self.live &= !mask;
    }

    /// Emits a jump whose target follows later; returns its index.
    fn jump(&mut self, op: Op) -> usize {
        self.ops.push(op);
        self.ops.len() - 1
    }

    /// The same in assembler.
    fn jump_if(&mut self, condition: &str) -> usize {
        self.emit(&format!("if {condition} goto +0"));
        self.ops.len() - 1
    }

    fn land(&mut self, jump: usize) {
        self.jumps.push((jump, self.ops.len()));
    }

    fn mov(&mut self, dst: Reg, src: Operand) {
        self.push(Op::Alu { width: Width::W64, op: AluOp::Mov, dst, src });
    }

    /// The address of a place on the stack, which is not a number.
    fn address(&mut self, dst: Reg, below: i16) {
        self.emit(&format!("{dst} = r10\n{dst} += -{below}"));
        self.kill(1 << dst.number());
    }

    fn width(&mut self) -> Width {
        *self.rng.pick(&[Width::W32, Width::W64])
    }

    fn imm(&mut self) -> i32 {
        let edges = [0, 1, -1, 2, 7, i32::MIN, i32::MAX, 31, 32, 63, 64, 255, 256, 0xffff];
        if self.rng.chance(2, 3) { *self.rng.pick(&edges) } else { self.rng.next_u64() as i32 }
    }

    /// A register that holds a number.
    fn number(&mut self) -> Reg {
        let live: Vec<u8> = (0..10).filter(|n| self.live >> n & 1 == 1).collect();
        r(*self.rng.pick(&live))
    }

    /// A writable register.
    fn target(&mut self, scope: Scope) -> Reg {
        let all: &[u8] = if scope.in_loop { &[0, 1, 2, 3, 4, 5, 8] } else { &[0, 1, 2, 3, 4, 5, 8, 9] };
        r(*self.rng.pick(all))
    }

    /// A writable register that holds a number.
    fn changed(&mut self, scope: Scope) -> Reg {
        loop {
            let reg = self.number();
            if reg.number() != 9 || !scope.in_loop {
                return reg;
            }
        }
    }

    fn operand(&mut self) -> Operand {
        if self.rng.chance(1, 2) { Operand::Reg(self.number()) } else { Operand::Imm(self.imm()) }
    }

    fn slot(&mut self) -> i16 {
        -8 * (1 + self.rng.below(NUMBERS as usize) as i16)
    }

    fn size(&mut self) -> Size {
        *self.rng.pick(&Size::ALL)
    }

    /// A random offset of `size` bytes within `bytes`, aligned if required.
    fn within(&mut self, bytes: i16, size: Size, aligned: bool) -> i16 {
        let size = size.bytes();
        let off = self.rng.below(bytes as usize - size + 1);
        (if aligned { off / size * size } else { off }) as i16
    }

    fn signed(&mut self, size: Size) -> bool {
        size != Size::Dw && self.rng.chance(1, 3)
    }

    fn main(&mut self) {
        self.live = 0;
        self.emit("r6 = r1");
        self.packet();
        self.start(0);
        let pieces = 2 + self.rng.below(12);
        self.pieces(Scope { function: 0, depth: 0, in_loop: false }, pieces);
        self.results();
        let verdict = match self.rng.below(8) {
            0 => Operand::Reg(self.number()),
            n => Operand::Imm(n as i32 % 5),
        };
        self.mov(r(0), verdict);
        self.emit("exit");
        for jump in std::mem::take(&mut self.short) {
            self.land(jump);
        }
        self.emit("r0 = 1\nexit");
    }

    /// Loads the packet into `r7`, or jumps to the end if it is too short.
    fn packet(&mut self) {
        self.emit(&format!("r7 = *(u32 *)(r6 + 0)\nr2 = *(u32 *)(r6 + 4)\nr3 = r7\nr3 += {PACKET_BYTES}"));
        let jump = self.jump_if("r3 > r2");
        self.short.push(jump);
        self.kill(0b1100_1110);
    }

    /// Initializes `r8`, `r9` and the stack with numbers.
    fn start(&mut self, function: usize) {
        for number in [8, 9] {
            if function == 0 && self.rng.chance(1, 2) {
                let off = self.within(PACKET_BYTES, Size::Dw, false);
                self.emit(&format!("r{number} = *(u64 *)(r7 + {off})"));
            } else if function == 0 {
                let value = self.rng.next_u64() >> self.rng.below(64);
                self.push(Op::LoadImm { dst: r(number), value });
            } else {
                self.emit(&format!("r{number} = r{}", number - 7));
            }
        }
        for slot in 1..=NUMBERS {
            let src = if slot % 2 == 0 { Operand::Reg(r(8)) } else { Operand::Imm(self.imm()) };
            self.ops.push(Op::Store { size: Size::Dw, base: Reg::FP, off: -8 * slot, src });
        }
    }

    fn pieces(&mut self, scope: Scope, count: usize) {
        for _ in 0..count {
            self.piece(scope);
        }
    }

    fn piece(&mut self, scope: Scope) {
        match self.rng.below(24) {
            0..=5 => self.arithmetic(scope),
            6 | 7 => self.packet_access(scope),
            8 | 9 => self.stack_access(scope),
            10 => self.atomic(scope, Reg::FP),
            11 | 12 if scope.depth < 3 => self.branch(scope),
            13 if scope.depth < 2 && !scope.in_loop => self.counted(scope),
            14 | 15 => self.lookup(scope),
            16 => self.update(),
            17 => self.delete(),
            18 => self.data(scope),
            19 | 20 => self.helper(scope),
            21 if scope.function + 1 < FUNCTIONS => self.call(scope),
            22 => self.spilled(scope),
            23 => self.jump_on(),
            _ => self.arithmetic(scope),
        }
    }

    fn arithmetic(&mut self, scope: Scope) {
        let (width, dst, src) = (self.width(), self.changed(scope), self.operand());
        let op = match self.rng.below(12) {
            0 => {
                let from = *self.rng.pick(if width == Width::W64 {
                    &[Size::B, Size::H, Size::W][..]
                } else {
                    &[Size::B, Size::H]
                });
                Op::MovSx { width, from, dst: self.target(scope), src: self.number() }
            }
            1 => Op::Neg { width, dst },
            2 => {
                let op = *self.rng.pick(&[EndOp::Le, EndOp::Be, EndOp::Swap]);
                Op::End { op, size: *self.rng.pick(&[Size::H, Size::W, Size::Dw]), dst }
            }
            3 => Op::LoadImm { dst: self.target(scope), value: self.rng.next_u64() >> self.rng.below(64) },
            4 | 5 => Op::Alu { width, op: AluOp::Mov, dst: self.target(scope), src },
            _ => {
                let op = *self.rng.pick(&AluOp::ALL);
                // The verifier refuses immediates that are always invalid.
                let src = match (op, src) {
                    (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Operand::Imm(imm)) => Operand::Imm(imm & 31),
                    (AluOp::Div | AluOp::Sdiv | AluOp::Mod | AluOp::Smod, Operand::Imm(0)) => Operand::Imm(3),
                    _ => src,
                };
                Op::Alu { width, op, dst, src }
            }
        };
        self.push(op);
    }

    /// Accesses to the `bytes` bytes at `base`, aligned if required.
    fn access(&mut self, scope: Scope, base: Reg, first: i16, bytes: i16, aligned: bool) {
        let size = self.size();
        let off = first + self.within(bytes, size, aligned);
        if self.rng.chance(1, 2) {
            let (signed, dst) = (self.signed(size), self.target(scope));
            if dst != base {
                self.push(Op::Load { size, signed, dst, base, off });
            }
        } else {
            let src = self.operand();
            self.push(Op::Store { size, base, off, src });
        }
    }

    fn packet_access(&mut self, scope: Scope) {
        if scope.function > 0 {
            return self.access(scope, r(6), 0, 8, true);
        }
        if self.rng.chance(2, 3) {
            return self.access(scope, r(7), 0, PACKET_BYTES, false);
        }
        // At a variable offset, with a bounds check.
        let index = self.number();
        self.emit(&format!("r1 = {index}\nr1 &= 63\nr2 = r7\nr2 += r1\nr3 = r2\nr3 += 8\nr4 = *(u32 *)(r6 + 4)"));
        self.kill(0b1_1110);
        let jump = self.jump_if("r3 > r4");
        let before = self.live;
        self.access(Scope { in_loop: true, ..scope }, r(2), 0, 8, false);
        self.live &= before;
        self.land(jump);
    }

    fn stack_access(&mut self, scope: Scope) {
        if self.rng.chance(3, 4) {
            let slot = self.slot();
            return self.access(scope, Reg::FP, slot, 8, true);
        }
        // A byte at a variable offset.
        let index = self.number();
        self.emit(&format!("r1 = {index}\nr1 &= 7\nr2 = r10\nr2 += r1"));
        self.kill(0b100);
        let (off, dst) = (self.slot(), r(1));
        if self.rng.chance(1, 2) {
            self.push(Op::Load { size: Size::B, signed: false, dst, base: r(2), off });
        } else {
            let src = self.operand();
            self.push(Op::Store { size: Size::B, base: r(2), off, src });
        }
    }

    fn atomic(&mut self, scope: Scope, base: Reg) {
        let size = *self.rng.pick(&[Size::W, Size::Dw]);
        let op = *self.rng.pick(&AtomicOp::ALL);
        let first = if base == Reg::FP { self.slot() } else { 0 };
        let off = first + self.within(if base == Reg::FP { 8 } else { ARRAY_VALUE }, size, true);
        let src = self.changed(scope);
        if op == AtomicOp::CmpXchg && (base == r(0) || self.live & 1 == 0) {
            return;
        }
        self.push(Op::Atomic { op, size, base, off, src });
    }

    /// A condition on numbers.
    fn condition(&mut self) -> Op {
        let (width, dst, src) = (self.width(), self.number(), self.operand());
        Op::Branch { width, cond: *self.rng.pick(&Cond::ALL), dst, src, off: 0 }
    }

    fn branch(&mut self, scope: Scope) {
        let scope = Scope { depth: scope.depth + 1, ..scope };
        let cond = self.condition();
        let jump = self.jump(cond);
        let before = self.live;
        let pieces = 1 + self.rng.below(3);
        self.pieces(scope, pieces);
        if self.rng.chance(1, 2) {
            // The other branch has pieces too.
            let after = std::mem::replace(&mut self.live, before);
            let over = *self.rng.pick(&[Op::Jump { off: 0 }, Op::JumpLong { distance: 0 }]);
            let over = self.jump(over);
            self.land(jump);
            self.pieces(scope, pieces);
            self.land(over);
            self.live &= after;
        } else {
            self.live &= before;
            self.land(jump);
        }
    }

    /// A loop with a few iterations, counted in `r9`.
    fn counted(&mut self, scope: Scope) {
        let scope = Scope { depth: scope.depth + 1, in_loop: true, ..scope };
        self.emit("r9 = 0");
        // A number in the first iteration may not be one in the next.
        self.live = 0b11_0000_0000;
        let head = self.ops.len();
        let pieces = 1 + self.rng.below(3);
        self.pieces(scope, pieces);
        let leave = self.rng.chance(1, 4).then(|| self.jump(Op::MayGoto { off: 0 }));
        self.emit("r9 += 1");
        let rounds = 1 + self.rng.below(5);
        let back = self.jump_if(&format!("r9 < {rounds}"));
        self.jumps.push((back, head));
        if let Some(leave) = leave {
            self.land(leave);
        }
        self.kill(0b11_1111);
    }

    /// A key on the stack, from a small set.
    fn key(&mut self, map: i32) {
        let (index, mask) = (self.number(), if map == ARRAY { 7 } else { 3 });
        self.emit(&format!("r1 = {index}\nr1 &= {mask}\n*(u64 *)(r10 - {KEY}) = r1"));
        if map == PREFIXES {
            // Prefix length, sometimes too long, and an address from a small set.
            let (length, index) = (self.rng.below(35), self.number());
            self.emit(&format!("*(u32 *)(r10 - {KEY}) = {length}\nr1 = {index}\nr1 &= 0x400000c1"));
            self.emit(&format!("*(u32 *)(r10 - {}) = r1", KEY - 4));
        }
        self.address(r(2), KEY);
    }

    /// Calls a helper, which leaves numbers in none of its argument registers.
    fn ask(&mut self, helper: i32) {
        self.push(Op::Call { helper });
        self.kill(0b11_1110);
    }

    fn ask_map(&mut self, map: i32, helper: i32) {
        self.emit(&format!("r1 = map[{map}] ll"));
        self.ask(helper);
    }

    fn lookup(&mut self, scope: Scope) {
        let map = *self.rng.pick(&[ARRAY, HASH, PREFIXES]);
        self.key(map);
        self.ask_map(map, 1);
        self.kill(1);
        let jump = self.jump_if("r0 == 0");
        let before = self.live;
        let bytes = if map == ARRAY { ARRAY_VALUE } else { 8 };
        for _ in 0..1 + self.rng.below(3) {
            if map == ARRAY && self.rng.chance(1, 3) {
                self.atomic(scope, r(0));
            } else {
                let (size, signed) = (self.size(), self.rng.chance(1, 3));
                let off = self.within(bytes, size, false);
                if self.rng.chance(1, 2) {
                    let dst = *self.rng.pick(&[r(1), r(2), r(3), r(8)]);
                    self.push(Op::Load { size, signed: signed && size != Size::Dw, dst, base: r(0), off });
                } else {
                    let src = self.operand();
                    self.push(Op::Store { size, base: r(0), off, src });
                }
            }
        }
        self.live &= before;
        self.land(jump);
    }

    fn update(&mut self) {
        let map = *self.rng.pick(&[ARRAY, HASH, HASH, PREFIXES, PREFIXES]);
        self.key(map);
        let value = self.number();
        let flags = *self.rng.pick(&[0, 0, 0, 1, 2, 3, 8]);
        // An array's value is longer: it includes the key.
        self.emit(&format!("*(u64 *)(r10 - {VALUE}) = {value}\nr3 = r10\nr3 += -{VALUE}\nr4 = {flags}"));
        self.ask_map(map, 2);
    }

    fn delete(&mut self) {
        let map = *self.rng.pick(&[ARRAY, HASH, HASH, HASH, PREFIXES, PREFIXES]);
        self.key(map);
        self.ask_map(map, 3);
    }

    /// Accesses a variable of the program.
    fn data(&mut self, scope: Scope) {
        let off = self.rng.below(17) as u32;
        let base = *self.rng.pick(&[r(1), r(4)]);
        self.ops.push(Op::LoadMapValue { dst: base, map: DATA, off });
        self.kill(1 << base.number());
        self.access(Scope { in_loop: true, ..scope }, base, 0, 16, false);
    }

    fn helper(&mut self, scope: Scope) {
        match self.rng.below(8) {
            0..=2 => {
                let helper = *self.rng.pick(&[5, 7, 8]);
                self.ask(helper);
            }
            3 | 6 if scope.function == 0 => self.frame(),
            7 => self.sum(),
            4 => {
                let (port, flags) = (self.rng.below(8), i32::from(self.rng.chance(1, 6)));
                self.emit(&format!("r1 = {port}\nr2 = {flags}"));
                self.ask(23);
            }
            _ => {
                let (index, flags) = (self.number(), *self.rng.pick(&[0, 1, 2, 3, 8, 24, 64]));
                self.emit(&format!("r2 = {index}\nr2 &= 7\nr3 = {flags}"));
                self.ask_map(PORTS, 51);
            }
        }
    }

    /// Moves the ends of the packet, reads its length or copies bytes of it; then reloads the packet.
    fn frame(&mut self) {
        self.emit("r1 = r6");
        self.kill(0b10);
        let helper = *self.rng.pick(&[44, 54, 65, 188, 189, 190]);
        let arguments = match helper {
            44 | 65 => format!("r2 = {}", self.rng.below(49) as i32 - 24),
            54 => format!("r2 = {}", self.rng.pick(&[-4, -8, -16, -32, -36, 4, 0, -2])),
            189 | 190 => {
                let (index, slot, len) = (self.number(), self.slot(), 1 + self.rng.below(8));
                format!("r2 = {index}\nr2 &= 127\nr3 = r10\nr3 += {slot}\nr4 = {len}")
            }
            _ => String::new(),
        };
        self.emit(&arguments);
        self.ask(helper);
        self.packet();
    }

    /// The difference of two checksums.
    fn sum(&mut self) {
        for (address, len) in [(1, 2), (3, 4)] {
            let bytes = 4 * self.rng.below(3);
            if bytes == 0 {
                self.emit(&format!("r{address} = 0"));
            } else {
                let slot = self.slot();
                self.address(r(address), -slot);
            }
            self.emit(&format!("r{len} = {bytes}"));
        }
        self.emit("r5 = r8");
        self.ask(28);
    }

    fn call(&mut self, scope: Scope) {
        let function = scope.function + 1 + self.rng.below(FUNCTIONS - scope.function - 1);
        for number in [1, 2] {
            let src = self.operand();
            self.mov(r(number), src);
        }
        let slot = self.slot();
        self.address(r(3), -slot);
        let call = self.jump(Op::CallLocal { distance: 0 });
        self.calls.push((call, function));
        self.live |= 1;
        self.kill(0b11_1110);
    }

    /// Spills a pointer to the stack and reloads it later.
    fn spilled(&mut self, scope: Scope) {
        let (pointer, bytes) = if scope.function == 0 { (r(7), PACKET_BYTES) } else { (r(6), 8) };
        self.emit(&format!("*(u64 *)(r10 - {POINTER}) = {pointer}"));
        self.arithmetic(scope);
        self.emit(&format!("r5 = *(u64 *)(r10 - {POINTER})"));
        self.kill(0b10_0000);
        self.access(Scope { in_loop: true, ..scope }, r(5), 0, bytes, scope.function > 0);
    }

    fn jump_on(&mut self) {
        let jump = *self.rng.pick(&[Op::Jump { off: 0 }, Op::JumpLong { distance: 0 }, Op::MayGoto { off: 0 }]);
        self.ops.push(jump);
    }

    /// Writes all numbers into the map `.data.result`.
    fn results(&mut self) {
        self.emit(&format!("r1 = map[{RESULT}][0] + 0 ll"));
        self.kill(0b10);
        let live: Vec<u8> = (0..10).filter(|n| self.live >> n & 1 == 1).collect();
        for number in live {
            self.emit(&format!("*(u64 *)(r1 + {}) = r{number}", 8 * number));
        }
        for slot in 1..=NUMBERS {
            self.emit(&format!("r2 = *(u64 *)(r10 - {})\n*(u64 *)(r1 + {}) = r2", 8 * slot, 8 * (9 + slot)));
        }
        self.kill(0b110);
    }

    /// Emits the called functions after the main program; returns their starts.
    fn functions(&mut self) -> Vec<usize> {
        let mut starts = vec![0; FUNCTIONS];
        for (function, start) in starts.iter_mut().enumerate().skip(1) {
            if !self.calls.iter().any(|call| call.1 == function) {
                continue;
            }
            *start = self.ops.len();
            self.live = 0;
            self.emit("r6 = r3");
            self.start(function);
            self.kill(0b1101_1110);
            let pieces = 1 + self.rng.below(4);
            self.pieces(Scope { function, depth: 1, in_loop: false }, pieces);
            let result = self.number();
            self.emit(&format!("r0 = {result}\nexit"));
        }
        starts
    }

    /// The instructions, with all distances resolved.
    fn finish(mut self) -> Vec<Insn> {
        let starts = self.functions();
        let mut slots = vec![0];
        for op in &self.ops {
            slots.push(slots.last().copied().unwrap_or(0) + op.slots() as i64);
        }
        let calls = self.calls.iter().map(|&(at, function)| (at, starts[function]));
        for (at, to) in self.jumps.iter().copied().chain(calls) {
            let distance = slots[to] - slots[at] - 1;
            match &mut self.ops[at] {
                Op::Jump { off } | Op::Branch { off, .. } | Op::MayGoto { off } => *off = distance as i16,
                Op::JumpLong { distance: far } | Op::CallLocal { distance: far } => *far = distance as i32,
                _ => {}
            }
        }
        let mut insns = Vec::new();
        self.ops.iter().for_each(|op| op.encode(&mut insns));
        insns
    }
}

/// A mutated program: most often instructions with another meaning, otherwise corrupted slots.
pub(super) fn mutant(rng: &mut Rng) -> Program {
    let mut program = valid(rng);
    let damage = rng.chance(1, 4);
    for _ in 0..1 + rng.below(3) / 2 {
        if damage { damage_one(rng, &mut program.insns) } else { change_one(rng, &mut program.insns) }
    }
    program
}

/// Replaces an instruction in place.
fn change_one(rng: &mut Rng, insns: &mut [Insn]) {
    let mut places = Vec::new();
    let mut at = 0;
    while let Ok(op) = Op::decode(insns, at) {
        places.push((at, op));
        at += op.slots();
    }
    let (at, op) = *rng.pick(&places);
    let (from, other) = *rng.pick(&places);
    let any = |rng: &mut Rng| r(*rng.pick(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 9, 9]));
    let nudge = |rng: &mut Rng| *rng.pick(&[-8i16, -4, -2, -1, 1, 2, 4, 8, 16]);
    let edge = |rng: &mut Rng| *rng.pick(&[0, 1, -1, 2, 3, 7, 8, i32::MIN, i32::MAX, 31, 32, 63]);
    let mut changed = op;
    match (rng.below(5), &mut changed) {
        // Removed, duplicated, or swapped.
        (0, _) => changed = Op::Jump { off: 0 },
        (1, _) if other.slots() == op.slots() => {
            if !rng.chance(1, 2) {
                let mut moved = Vec::new();
                op.encode(&mut moved);
                insns[from..from + moved.len()].copy_from_slice(&moved);
            }
            changed = other;
        }
        (2, Op::Alu { op, .. }) => *op = *rng.pick(&AluOp::ALL),
        (3, Op::Alu { width, .. }) => *width = *rng.pick(&[Width::W32, Width::W64]),
        (4, Op::Alu { src: Operand::Imm(imm), .. }) => {
            *imm = if rng.chance(1, 2) { edge(rng) } else { imm.wrapping_add(nudge(rng).into()) };
        }
        (_, Op::Alu { src, .. }) => *src = Operand::Reg(any(rng)),
        (2, Op::Branch { cond, .. }) => *cond = *rng.pick(&Cond::ALL),
        (3, Op::Branch { off, .. }) => *off += nudge(rng),
        (_, Op::Branch { src, .. }) => *src = Operand::Imm(edge(rng)),
        (2, Op::Load { size, .. }) => *size = *rng.pick(&[Size::B, Size::H, Size::W]),
        (3, Op::Load { dst, .. }) => *dst = any(rng),
        (2, Op::Store { size, .. }) => *size = *rng.pick(&Size::ALL),
        (3, Op::Store { src, .. }) => *src = Operand::Reg(any(rng)),
        (_, Op::Load { off, .. } | Op::Store { off, .. } | Op::Jump { off }) => *off += nudge(rng),
        (2, Op::Atomic { op, .. }) => *op = *rng.pick(&AtomicOp::ALL),
        (_, Op::Atomic { src, .. }) => *src = any(rng),
        (_, Op::Call { helper }) => {
            *helper = *rng.pick(&[1, 2, 3, 5, 6, 7, 8, 23, 28, 44, 51, 54, 65, 188, 189, 190]);
        }
        (_, Op::LoadMap { map, .. }) => *map = rng.below(6) as i32,
        (_, Op::LoadMapValue { map, off, .. }) => (*map, *off) = (DATA, rng.below(40) as u32),
        (_, Op::JumpLong { distance } | Op::CallLocal { distance }) => *distance += i32::from(nudge(rng)),
        _ => {}
    }
    let mut slots = Vec::new();
    changed.encode(&mut slots);
    if let (Op::Jump { .. }, 2) = (changed, op.slots()) {
        slots.push(slots[0]);
    }
    insns[at..at + slots.len()].copy_from_slice(&slots);
}

/// Corrupts slots, or moves them so that jump targets change.
fn damage_one(rng: &mut Rng, insns: &mut Vec<Insn>) {
    let at = rng.below(insns.len());
    let other = rng.below(insns.len());
    let Some(insn) = insns.get_mut(at) else { return };
    match rng.below(8) {
        0 => insn.code ^= 1 << rng.below(8),
        1 => insn.dst = rng.below(16) as u8,
        2 => insn.src = rng.below(16) as u8,
        3 => insn.off ^= 1 << rng.below(16),
        4 => insn.imm ^= 1 << rng.below(32),
        5 => insns.swap(at, other),
        6 => drop(insns.remove(at)),
        _ => {
            let copy = *insn;
            insns.insert(other, copy);
        }
    }
}
