// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks of attached programs. On every path, each acquired lock is released exactly once before the exit; every table
//! that is written is accessed under its lock; no other lock is taken.
//!
//! The walk is an abstract interpretation of registers and stack slots, like the kernel's verifier, with values for
//! locks: an address in their map, the result of a compare-and-exchange, zero.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use flowloom_context::locks::{CELLS, LOCKS_MAP, Locks};
use flowloom_efsm::compile;
use flowloom_isa::insn::helper;
use flowloom_isa::op::{AluOp, AtomicOp, Cond, Op, Operand, Reg, Size, Width};
use flowloom_isa::{MapKind, Program};
use flowloom_lower::{LowerError, LowerOptions, lower};
use flowloom_testkit::sources;

use super::agree::function;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Value {
    Zero,
    One,
    Frame(i64),
    Map(i32),
    /// Address of a lock cell of an element, given by the offset of the element's locks.
    Cell(u32),
    /// Result of a compare-and-exchange on a cell: zero if the lock was acquired.
    CmpXchgResult(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    at: usize,
    /// Values by register, 0 to 10, and by frame offset.
    known: BTreeMap<i64, Value>,
    held: BTreeSet<u32>,
    /// A lock whose compare-and-exchange result has not been tested yet.
    pending: Option<u32>,
}

const FRAME: i64 = 10;

impl State {
    fn register(&self, reg: Reg) -> Option<Value> {
        self.known.get(&reg.number().into()).copied()
    }

    fn set(&mut self, place: i64, value: Option<Value>) {
        match value {
            Some(value) => drop(self.known.insert(place, value)),
            None => drop(self.known.remove(&place)),
        }
    }

    /// Frame offsets are negative.
    fn slot(&self, base: Reg, off: i16) -> Option<i64> {
        match self.register(base)? {
            Value::Frame(at) => Some(at + i64::from(off)),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
struct Walked {
    exits: usize,
    acquired: BTreeSet<u32>,
    states: usize,
}

/// Walks every path of `program`.
///
/// # Errors
/// A path that violates the rules.
fn walk(program: &Program) -> Result<Walked, String> {
    let tables: Vec<Option<Locks>> = program.maps.iter().map(|m| m.layout.as_ref().and_then(|l| l.locks)).collect();
    let locks_map = program.map_index(LOCKS_MAP).map(|index| index as i32);
    let lock_of =
        |off: u32| tables.iter().flatten().find(|l| (l.offset_bytes..l.offset_bytes + l.len_bytes()).contains(&off));
    let start =
        State { at: 0, known: BTreeMap::from([(FRAME, Value::Frame(0))]), held: BTreeSet::new(), pending: None };
    let (mut todo, mut seen) = (vec![start], HashSet::new());
    let mut walked = Walked::default();
    while let Some(mut s) = todo.pop() {
        if !seen.insert(s.clone()) {
            continue;
        }
        walked.states += 1;
        let at = s.at;
        let op = Op::decode(&program.insns, at).map_err(|e| e.to_string())?;
        let fail = |what: &str| Err(format!("instruction {at}, {op:?}: {what}"));
        s.at = at + op.slots();
        let target = |s: &State| State { at: (at as i64 + 1 + op.distance().unwrap_or(0)) as usize, ..s.clone() };
        match op {
            Op::Exit => {
                if !s.held.is_empty() || s.pending.is_some() {
                    return fail("the program ends with a lock");
                }
                walked.exits += 1;
                continue;
            }
            Op::Jump { .. } => s = target(&s),
            Op::MayGoto { .. } => todo.push(target(&s)),
            Op::Branch { cond, dst, src: Operand::Imm(0), width: Width::W64, .. }
                if matches!(cond, Cond::Eq | Cond::Ne) && s.register(dst).is_some() =>
            {
                let there = target(&s);
                let (mut zero, mut other) = if cond == Cond::Eq { (there, s) } else { (s, there) };
                match zero.register(dst) {
                    Some(Value::CmpXchgResult(lock)) => {
                        if zero.pending != Some(lock) {
                            return fail("an old answer");
                        }
                        (zero.pending, other.pending) = (None, None);
                        zero.held.insert(lock);
                        for state in [&mut zero, &mut other] {
                            state.set(dst.number().into(), None);
                        }
                        todo.push(zero);
                        todo.push(other);
                    }
                    Some(Value::Zero) => todo.push(zero),
                    _ => todo.push(other),
                }
                continue;
            }
            Op::Branch { .. } => todo.push(target(&s)),
            Op::Atomic { op: kind @ (AtomicOp::CmpXchg | AtomicOp::Xchg), base, src, off, size } => {
                let Some(Value::Cell(lock)) = s.register(base) else { return fail("no address of a lock") };
                if off != 0 || size != Size::Dw {
                    return fail("beside the lock");
                }
                if kind == AtomicOp::CmpXchg {
                    if s.register(Reg::R0) != Some(Value::Zero) || s.register(src) != Some(Value::One) {
                        return fail("takes a lock with other values than 0 and 1");
                    }
                    // Locks are taken in element order, none twice.
                    if s.held.last().is_some_and(|&last| last >= lock) || s.pending.is_some() {
                        return fail("takes locks out of order");
                    }
                    walked.acquired.insert(lock);
                    s.pending = Some(lock);
                    s.set(0, Some(Value::CmpXchgResult(lock)));
                } else {
                    if s.register(src) != Some(Value::Zero) || !s.held.remove(&lock) {
                        return fail("releases what it does not hold");
                    }
                    s.set(src.number().into(), None);
                }
            }
            Op::Call { helper: number } => {
                let map = match s.register(Reg::R1) {
                    Some(Value::Map(map)) => {
                        tables.get(map as usize).copied().flatten().map(|locks| locks.offset_bytes)
                    }
                    _ => None,
                };
                let uses = [helper::MAP_LOOKUP_ELEM, helper::MAP_UPDATE_ELEM, helper::MAP_DELETE_ELEM];
                if uses.contains(&number) && map.is_some_and(|lock| !s.held.contains(&lock)) {
                    return fail("uses a table without its lock");
                }
                (0..6).for_each(|r| s.set(r, None));
            }
            Op::Load { size: Size::Dw, signed: false, dst, base, off } => {
                let value = s.slot(base, off).and_then(|slot| s.known.get(&slot).copied());
                s.set(dst.number().into(), value);
            }
            Op::Store { size, base, off, src } => {
                if let Some(slot) = s.slot(base, off) {
                    let value = match src {
                        Operand::Reg(src) if size == Size::Dw => s.register(src),
                        Operand::Imm(0) if size == Size::Dw => Some(Value::Zero),
                        _ => None,
                    };
                    let overlapped: Vec<i64> =
                        s.known.range(slot - 7..slot + size.bytes() as i64).map(|(&k, _)| k).collect();
                    for place in overlapped.into_iter().filter(|&place| place < 0) {
                        s.set(place, None);
                    }
                    s.set(slot, value);
                }
            }
            Op::LoadMap { dst, map } => s.set(dst.number().into(), Some(Value::Map(map))),
            Op::LoadMapValue { dst, map, off } => {
                let lock = lock_of(off).filter(|_| Some(map) == locks_map);
                s.set(dst.number().into(), lock.map(|lock| Value::Cell(lock.offset_bytes)));
            }
            Op::Alu { width, op: kind, dst, src } => {
                let old = s.register(dst);
                let value = match (kind, src, old) {
                    (AluOp::Mov, Operand::Imm(0), _) => Some(Value::Zero),
                    (AluOp::Mov, Operand::Imm(1), _) => Some(Value::One),
                    (AluOp::Mov, Operand::Reg(src), _) if width == Width::W64 => s.register(src),
                    (AluOp::Add, Operand::Imm(imm), Some(Value::Frame(at))) => Some(Value::Frame(at + i64::from(imm))),
                    (AluOp::Add, Operand::Reg(_), Some(Value::Cell(lock))) => Some(Value::Cell(lock)),
                    _ => None,
                };
                s.set(dst.number().into(), value);
            }
            other => {
                if let Some(dst) = other.writes() {
                    s.set(dst.number().into(), None);
                }
            }
        }
        todo.push(s);
    }
    Ok(walked)
}

fn attached(text: &str) -> Program {
    lower(
        &function(&format!("function f; {text}")),
        &LowerOptions { counters: false, attached: true, ..LowerOptions::default() },
    )
    .unwrap()
}

#[test]
fn every_path_releases_each_lock_once() {
    let all: Vec<_> = ["tests/lowering", "../../functions"].into_iter().flat_map(sources).collect();
    assert!(all.len() > 20, "{}", all.len());
    let mut locked = 0;
    for (path, text) in all {
        let name = path.display().to_string();
        // Shipped functions are large: once each, in the form that is attached without counters.
        let is_shipped = path.starts_with("../../functions");
        for counters in [false, true].into_iter().take(if is_shipped { 1 } else { 2 }) {
            let Ok((function, _)) = compile(&name, &text, &[]) else { panic!("{name}") };
            let program = match lower(&function, &LowerOptions { counters, attached: true, ..LowerOptions::default() })
            {
                Err(LowerError::Kernel { .. }) => continue,
                lowered => lowered.unwrap(),
            };
            let walked = walk(&program).unwrap_or_else(|e| panic!("{name}: {e}"));
            let locks: BTreeSet<u32> =
                program.maps.iter().filter_map(|map| Some(map.layout.as_ref()?.locks?.offset_bytes)).collect();
            assert!(walked.acquired.is_subset(&locks), "{name}");
            assert!(walked.exits > 0, "{name}");
            locked += usize::from(!walked.acquired.is_empty());
            let plain =
                lower(&function, &LowerOptions { counters, attached: false, ..LowerOptions::default() }).unwrap();
            assert!(plain.map_index(LOCKS_MAP).is_none(), "{name}");
            println!("{name}: {} locks, {} exits, {} states", walked.acquired.len(), walked.exits, walked.states);
        }
    }
    assert!(locked > 20, "{locked}");
}

#[test]
fn missing_and_double_releases_are_detected() {
    let text = "stateful a { key ip.src; reg n: u32; states s; on s { n += 1; pass; } otherwise { drop; } }";
    let program = attached(text);
    walk(&program).unwrap();
    let release = (0..program.insns.len())
        .find(|&at| matches!(Op::decode(&program.insns, at), Ok(Op::Atomic { op: AtomicOp::Xchg, .. })))
        .unwrap();
    let without = |at: usize| {
        let mut program = program.clone();
        program.insns[at] = flowloom_isa::Insn { code: 0xb7, dst: 5, ..flowloom_isa::Insn::default() };
        walk(&program).unwrap_err()
    };
    assert!(without(release).contains("ends with a lock"), "{}", without(release));
    let mut doubled = program.clone();
    doubled.insns[release + 1] = doubled.insns[release];
    assert!(walk(&doubled).unwrap_err().contains("releases what it does not hold"));
}

#[test]
fn unwritten_tables_need_no_lock() {
    let locks = |text: &str| {
        let program = attached(text);
        walk(&program).unwrap();
        let tables = program.maps.iter().filter(|map| map.kind == MapKind::Hash);
        tables.map(|map| map.layout.as_ref().and_then(|l| l.locks).map_or(0, |l| l.cells)).collect::<Vec<_>>()
    };
    // Contexts are only preloaded, never written.
    let read = "stateful a { key ip.src; states s, t; on t { pass; } otherwise { drop; } }";
    assert_eq!(locks(read), [0]);
    assert!(attached(read).map_index(LOCKS_MAP).is_none());
    assert_eq!(locks("stateful a { key ip.src; states s, t; on s -> t { pass; } otherwise { drop; } }"), [CELLS]);
    assert_eq!(locks("stateful a { key none; reg n: u32; states s; on s { n += 1; pass; } otherwise { drop; } }"), [1]);
    let global = "stateful a { key ip.src; global n: u32; states s; on s { n += 1; pass; } otherwise { drop; } }";
    assert_eq!(locks(global), [1]);
}

/// Updates of one element are not visible before those of the next are done: the second lock is acquired while the
/// first is held, even if that is the case on some paths only.
#[test]
fn locks_are_held_across_goto() {
    let text = "
        stateful a { key ip.src; reg n: u32; states s; on s when tcp.dport == 80 { n += 1; goto c; } on s { n += 2; goto b; } otherwise { goto b; } }
        stateful b { key l4.sport; reg n: u32; states s; on s { n += 1; goto c; } otherwise { pass; } }
        stateful c { key none; reg n: u32; states s; on s { n += 1; pass; } otherwise { drop; } }";
    let program = attached(text);
    let walked = walk(&program).unwrap();
    assert_eq!(walked.acquired.len(), 3);
    let releases = (0..program.insns.len())
        .filter(|&at| matches!(Op::decode(&program.insns, at), Ok(Op::Atomic { op: AtomicOp::Xchg, .. })));
    // No release at a `goto`: each is directly before an exit.
    for at in releases {
        let rest = program.insns[at + 1..].iter().position(|insn| insn.code == 0x95).unwrap();
        assert!(rest < 12, "a release {rest} instructions before the end");
    }
}
