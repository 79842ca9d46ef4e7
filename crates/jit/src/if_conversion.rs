// SPDX-License-Identifier: Apache-2.0 OR MIT
//! If-conversion: short branches that choose between two results become selects.
//!
//! Goal: no mispredictions where the data of packets decide, as in the order of two addresses: one such branch takes as
//! long as the rest of a key.
//!
//! ```text
//!   if r1 >= r2 goto b             x = (r2, r1), y = (r1, r2), computed both
//!   r3 = r2; r4 = r1; goto c       p = r1 < r2
//!   b: r3 = r1; r4 = r2            r3 = select p, x.0, y.0
//!   c: ...                         r4 = select p, x.1, y.1
//! ```
//!
//! The region between the branch and the place where all paths join (a hammock) is translated path by path, with the
//! values of the registers as the state. Equal operations on equal values are one value, so paths that do the same have
//! the same results. The paths must lead to two results in all, of which one boolean chooses.
//!
//! A region has arithmetic, loads, and stores to the own stack. A load may run on a path that it is not on, so all paths
//! must do it, with the same address: then the proof of one of them holds. All paths store to the same bytes of the
//! stack, which the region does not read; the value is stored after the join. Registers that are not read there are left
//! out.
//!
//! Limits: [`MAX_OPS`] instructions and [`MAX_PATHS`] paths of a region, [`MAX_REGIONS`] of a function of at most
//! [`MAX_CODE`] instructions.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use flowloom_isa::op::{AluOp, Op, Operand, Reg, Width};
use flowloom_verifier::Memory;

use crate::compiled::Source;
use crate::function::Translation;

/// The most instructions of a region.
const MAX_OPS: usize = 20;
/// The most paths through a region.
const MAX_PATHS: usize = 8;
/// The most instructions of a program whose branches are converted.
const MAX_CODE: usize = 1 << 11;
/// The most regions of a function that are converted.
const MAX_REGIONS: usize = 64;
/// The registers besides `r10`.
const REGISTERS: usize = 10;

/// A region with one branch that leads into it and one place where its paths join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hammock {
    /// The first slot after the region.
    pub(crate) join: usize,
    /// The slots of the region.
    slots: BTreeSet<usize>,
    /// The registers that paths change and that are read after the join.
    registers: Vec<usize>,
    /// A store of each range of the stack, by its first byte.
    stores: BTreeMap<i64, usize>,
}

/// The address of a load: base, offset and size in bytes.
type Address = (Reg, i16, usize);

/// What a path loads and stores.
#[derive(Debug, Default, PartialEq, Eq)]
struct Accesses {
    loads: BTreeSet<Address>,
    /// Ranges of the stack by their first byte, each with its end.
    stores: BTreeMap<i64, i64>,
}

/// The values of the registers that a region reads or changes, and those that are to be stored, by the first byte.
#[derive(Debug, Clone)]
struct Values {
    registers: [Option<Value>; REGISTERS],
    stored: BTreeMap<i64, Value>,
}

/// Values at the ends of paths, by conditions.
enum Tree {
    Leaf(Values),
    Choice { condition: Value, if_true: Box<Tree>, if_false: Box<Tree> },
}

/// The paths of a region on their way.
struct Paths<'s> {
    region: &'s Hammock,
    /// Operations that were translated, without their registers, with operands and result.
    known: Vec<(Op, Vec<Value>, Value)>,
}

/// What is known of a boolean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Truth {
    Always(bool),
    If(Value),
}

impl Source<'_> {
    /// By the branch before it, each region that can be converted of code with these slots, which is entered at
    /// `entries`.
    pub(crate) fn hammocks(&self, slots: &BTreeSet<usize>, entries: &[usize]) -> BTreeMap<usize, Hammock> {
        let mut found: BTreeMap<usize, Hammock> = BTreeMap::new();
        if slots.len() > MAX_CODE {
            return found;
        }
        let mut before: BTreeMap<usize, Vec<Option<usize>>> =
            entries.iter().map(|entry| (*entry, vec![None])).collect();
        for at in slots {
            for next in self.code[*at].into_iter().flat_map(|op| self.nexts(*at, op)) {
                before.entry(next).or_default().push(Some(*at));
            }
        }
        for at in slots {
            // An outer region has the inner ones.
            if found.len() == MAX_REGIONS || found.values().any(|known| known.slots.contains(at)) {
                continue;
            }
            let enters = |slot: &usize, region: &BTreeSet<usize>| {
                let from = before.get(slot).into_iter().flatten();
                from.into_iter().all(|from| from.is_some_and(|from| from == *at || region.contains(&from)))
            };
            let hammock = self.hammock(*at).filter(|found| found.slots.iter().all(|slot| enters(slot, &found.slots)));
            found.extend(hammock.map(|hammock| (*at, hammock)));
        }
        found
    }

    /// The region after a branch, if it can be converted and nothing else leads into it.
    fn hammock(&self, branch: usize) -> Option<Hammock> {
        let op @ Op::Branch { .. } = self.code[branch]? else { return None };
        let nexts = self.nexts(branch, op);
        if nexts.len() < 2 {
            return None;
        }
        // The places where the paths may join, in the order of one of them.
        let mut candidate = nexts[0];
        for _ in 0..MAX_OPS {
            let mut paths = Vec::new();
            let joins = nexts.iter().all(|next| self.paths(*next, candidate, &mut Vec::new(), &mut paths).is_some());
            if joins {
                return self.joined(candidate, &paths);
            }
            candidate = *self.nexts(candidate, self.code[candidate]?).first()?;
        }
        None
    }

    /// The region of these paths.
    fn joined(&self, join: usize, paths: &[Vec<usize>]) -> Option<Hammock> {
        let slots: BTreeSet<usize> = paths.iter().flatten().copied().collect();
        let accesses: Option<Vec<Accesses>> = paths.iter().map(|path| self.accesses(path)).collect();
        let accesses = accesses?;
        if slots.len() > MAX_OPS || accesses.iter().any(|found| *found != accesses[0]) {
            return None;
        }
        let written: BTreeSet<usize> = slots.iter().filter_map(|at| self.code[*at]?.writes()).map(number).collect();
        let registers = written.into_iter().filter(|register| self.is_live(*register, join)).collect();
        let is_store = |at: &&usize| matches!(self.code[**at], Some(Op::Store { .. }));
        let stores = slots.iter().filter(is_store).filter_map(|at| Some((self.exact(*at)?.start, *at))).collect();
        Some(Hammock { join, slots, registers, stores })
    }

    /// Appends the paths from a slot to the join; `None` if there are too many, or one that cannot be converted.
    fn paths(&self, from: usize, join: usize, path: &mut Vec<usize>, found: &mut Vec<Vec<usize>>) -> Option<()> {
        if from == join {
            found.push(path.clone());
            return (found.len() <= MAX_PATHS).then_some(());
        }
        let op = self.code[from].filter(|op| self.is_plain(from, *op) && path.len() < MAX_OPS)?;
        path.push(from);
        let nexts = self.nexts(from, op);
        if nexts.is_empty() {
            return None;
        }
        for next in nexts {
            self.paths(next, join, path, found)?;
        }
        path.pop();
        Some(())
    }

    /// The registers whose values before a branch count in the region after it.
    fn registers_of(&self, branch: usize, region: &Hammock) -> BTreeSet<usize> {
        let code = region.slots.iter().chain([&branch]).filter_map(|at| self.code[*at]);
        let read = code.flat_map(|op| match op {
            Op::Branch { dst, src, .. } => [Some(dst), register(src)].into_iter().flatten().collect(),
            Op::Store { src, .. } => register(src).into_iter().collect(),
            _ => operands(op).0,
        });
        read.map(number).chain(region.registers.iter().copied()).collect()
    }

    /// True for instructions that may run in vain or later: they change a register or the own stack alone, and take a
    /// few cycles.
    fn is_plain(&self, at: usize, op: Op) -> bool {
        let is_plain = match op {
            Op::Alu { op, .. } => !matches!(op, AluOp::Div | AluOp::Mod | AluOp::Sdiv | AluOp::Smod),
            Op::MovSx { .. } | Op::Neg { .. } | Op::End { .. } | Op::Load { .. } | Op::LoadImm { .. } => true,
            Op::Jump { .. } | Op::JumpLong { .. } | Op::Branch { .. } => true,
            Op::Store { base, .. } => number(base) == REGISTERS && self.exact(at).is_some(),
            _ => false,
        };
        is_plain && !self.proof.loops.contains_key(&at)
    }

    /// What a path loads and stores; `None` if it changes the base of a load before, reads the stack where it stores,
    /// or stores twice to a byte.
    fn accesses(&self, path: &[usize]) -> Option<Accesses> {
        let (mut found, mut written, mut reads_stack) = (Accesses::default(), BTreeSet::new(), false);
        for (at, op) in path.iter().filter_map(|at| Some((*at, self.code[*at]?))) {
            match op {
                Op::Load { size, base, off, .. } => {
                    found.loads.insert((base, off, size.bytes()));
                    if written.contains(&number(base)) {
                        return None;
                    }
                    reads_stack |=
                        self.proof.insns[at].memory.keys().any(|memory| matches!(memory, Memory::Stack { .. }));
                }
                Op::Store { .. } => {
                    let range = self.exact(at)?;
                    let overlaps = |(first, end): (&i64, &i64)| *first < range.end && range.start < *end;
                    if found.stores.iter().any(overlaps) {
                        return None;
                    }
                    found.stores.insert(range.start, range.end);
                }
                _ => {}
            }
            written.extend(op.writes().map(number));
        }
        (!reads_stack || found.stores.is_empty()).then_some(found)
    }
}

fn number(register: Reg) -> usize {
    register.number().into()
}

fn register(operand: Operand) -> Option<Reg> {
    match operand {
        Operand::Reg(reg) => Some(reg),
        Operand::Imm(_) => None,
    }
}

/// The registers that a plain operation reads, and the operation without its registers.
fn operands(op: Op) -> (Vec<Reg>, Op) {
    let r0 = Reg::R0;
    match op {
        Op::Alu { width, op: alu, dst, src } => {
            let mut read: Vec<Reg> = register(src).into_iter().collect();
            let src = if read.is_empty() { src } else { Operand::Reg(r0) };
            if alu != AluOp::Mov {
                read.push(dst);
            }
            (read, Op::Alu { width, op: alu, dst: r0, src })
        }
        Op::MovSx { width, from, src, .. } => (vec![src], Op::MovSx { width, from, dst: r0, src: r0 }),
        Op::Neg { width, dst } => (vec![dst], Op::Neg { width, dst: r0 }),
        Op::End { op: end, size, dst } => (vec![dst], Op::End { op: end, size, dst: r0 }),
        Op::Load { size, signed, base, off, .. } => (vec![base], Op::Load { size, signed, dst: r0, base: r0, off }),
        Op::LoadImm { value, .. } => (Vec::new(), Op::LoadImm { dst: r0, value }),
        _ => (Vec::new(), op),
    }
}

impl Translation<'_, '_> {
    /// Chooses the regions of code with these slots that are converted.
    pub(crate) fn choose_conversions(&mut self, slots: &BTreeSet<usize>, entries: &[usize]) {
        self.hammocks = self.source.hammocks(slots, entries);
        self.converted.clear();
    }

    /// Translates a branch and the region after it without jumps, if the region can be converted; otherwise nothing.
    pub(crate) fn convert(&mut self, branch: usize) -> bool {
        let Some(region) = self.hammocks.get(&branch).cloned() else { return false };
        // Others may be dead, and would live on.
        let used = self.source.registers_of(branch, &region);
        let registers = std::array::from_fn(|register| {
            used.contains(&register).then(|| self.builder.use_var(self.registers[register]))
        });
        let mut paths = Paths { region: &region, known: Vec::new() };
        let before = Values { registers, stored: BTreeMap::new() };
        let tree = self.follow(branch, before.clone(), &mut paths);
        self.set_registers(&before);
        let mut leaves: Vec<Vec<Value>> = Vec::new();
        tree.leaves(&region, &mut leaves);
        let [x, y] = match leaves.as_slice() {
            [x] => [x.clone(), x.clone()],
            [x, y] => [x.clone(), y.clone()],
            _ => return false,
        };
        let results = match self.is_leaf(&tree, &region, &x) {
            Truth::If(is_x) => {
                let choose = |(x, y): (&Value, &Value)| match x == y {
                    true => *x,
                    false => self.builder.ins().select(is_x, *x, *y),
                };
                x.iter().zip(&y).map(choose).collect()
            }
            Truth::Always(_) => x,
        };
        let (registers, stored) = results.split_at(region.registers.len());
        for (at, value) in region.stores.values().zip(stored) {
            self.store(*at, *value);
        }
        for (register, value) in region.registers.iter().zip(registers) {
            self.builder.def_var(self.registers[*register], *value);
        }
        self.converted.extend(&region.slots);
        self.builder.ins().jump(self.blocks[&region.join], &[]);
        true
    }

    fn set_registers(&mut self, values: &Values) {
        for (register, value) in self.registers.iter().zip(values.registers) {
            if let Some(value) = value {
                self.builder.def_var(*register, value);
            }
        }
    }

    /// The values at the ends of all paths from a slot.
    fn follow(&mut self, from: usize, mut values: Values, paths: &mut Paths<'_>) -> Tree {
        let mut at = from;
        loop {
            // The region has code alone.
            let Some(op) = self.source.code[at].filter(|_| at != paths.region.join) else { return Tree::Leaf(values) };
            let nexts = self.source.nexts(at, op);
            match op {
                Op::Branch { width, cond, dst, src, off } if nexts.len() == 2 => {
                    self.set_registers(&values);
                    let condition = self.holds(width, cond, dst, src);
                    let target = (at as i64 + 1 + i64::from(off)) as usize;
                    let [if_true, if_false] =
                        [target, at + 1].map(|next| Box::new(self.follow(next, values.clone(), paths)));
                    return Tree::Choice { condition, if_true, if_false };
                }
                Op::Branch { .. } | Op::Jump { .. } | Op::JumpLong { .. } => {}
                Op::Store { src, .. } => {
                    self.set_registers(&values);
                    let value = self.second(Width::W64, src).value;
                    let first = self.source.exact(at).map_or(0, |range| range.start);
                    values.stored.insert(first, value);
                }
                _ => self.once(at, op, &mut values, paths),
            }
            at = nexts[0];
        }
    }

    /// The result of an operation, which is translated unless an equal one was.
    fn once(&mut self, at: usize, op: Op, values: &mut Values, paths: &mut Paths<'_>) {
        let Some(dst) = op.writes() else { return };
        let (read, form) = operands(op);
        let end = self.builder.use_var(self.registers[REGISTERS]);
        let read: Vec<Value> =
            read.iter().map(|reg| values.registers.get(number(*reg)).copied().flatten().unwrap_or(end)).collect();
        let known = paths.known.iter().find(|(known, operands, _)| *known == form && *operands == read);
        let result = match known {
            Some((_, _, result)) => *result,
            None => {
                self.set_registers(values);
                self.op(at, op);
                let result = self.builder.use_var(self.registers[number(dst)]);
                paths.known.push((form, read, result));
                result
            }
        };
        values.registers[number(dst)] = Some(result);
    }

    /// True if the paths of a tree end with these values of the results.
    fn is_leaf(&mut self, tree: &Tree, region: &Hammock, wanted: &[Value]) -> Truth {
        match tree {
            Tree::Leaf(values) => Truth::Always(values.results(region) == wanted),
            Tree::Choice { condition, if_true, if_false } => {
                let a = self.is_leaf(if_true, region, wanted);
                let b = self.is_leaf(if_false, region, wanted);
                let condition = *condition;
                if a == b {
                    return a;
                }
                Truth::If(match (a, b) {
                    (Truth::Always(true), Truth::Always(_)) => condition,
                    (Truth::Always(false), Truth::Always(_)) => self.opposite(condition),
                    (Truth::Always(true), Truth::If(b)) => self.builder.ins().bor(condition, b),
                    (Truth::Always(false), Truth::If(b)) => {
                        let otherwise = self.opposite(condition);
                        self.builder.ins().band(otherwise, b)
                    }
                    (Truth::If(a), Truth::Always(true)) => {
                        let otherwise = self.opposite(condition);
                        self.builder.ins().bor(otherwise, a)
                    }
                    (Truth::If(a), Truth::Always(false)) => self.builder.ins().band(condition, a),
                    (Truth::If(a), Truth::If(b)) => self.builder.ins().select(condition, a, b),
                })
            }
        }
    }

    /// The opposite of a condition of 8 bits that is 0 or 1.
    fn opposite(&mut self, condition: Value) -> Value {
        debug_assert_eq!(self.builder.func.dfg.value_type(condition), types::I8);
        self.builder.ins().icmp_imm_u(IntCC::Equal, condition, 0)
    }
}

impl Values {
    /// Those of the results: registers, then what is stored.
    fn results(&self, region: &Hammock) -> Vec<Value> {
        let registers = region.registers.iter().filter_map(|register| self.registers[*register]);
        registers.chain(self.stored.values().copied()).collect()
    }
}

impl Tree {
    /// Appends the values of results at the ends of paths, each once.
    fn leaves(&self, region: &Hammock, found: &mut Vec<Vec<Value>>) {
        match self {
            Tree::Leaf(values) => {
                let values = values.results(region);
                if !found.contains(&values) {
                    found.push(values);
                }
            }
            Tree::Choice { if_true, if_false, .. } => {
                if_true.leaves(region, found);
                if_false.leaves(region, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use flowloom_isa::{asm, check};

    use super::*;

    const HEAD: &str = ".program p\n.license \"GPL\"\nr6 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr2 = r6\nr2 += 20\n\
        if r2 > r3 goto out\nr4 = *(u8 *)(r6 + 0)\nr5 = *(u8 *)(r6 + 1)\nr7 = 0\n*(u64 *)(r10 - 8) = r7\n";
    const TAIL: &str = "r0 = r7\nr1 = *(u64 *)(r10 - 8)\nr0 += r1\nexit\nout:\nr0 = 1\nexit\n";

    /// The numbers of slots of regions of a program with this code, by the number of the branch after the first one.
    fn regions(code: &str) -> Vec<(usize, usize)> {
        let program = asm::program("p.bpf", &format!("{HEAD}{code}\n{TAIL}")).unwrap();
        let proof = flowloom_verifier::verify(&program, &flowloom_verifier::Options::default()).unwrap();
        let decoded = check::decoded(&program).unwrap();
        let uncounted = BTreeSet::new();
        let source = Source {
            code: &decoded,
            proof: &proof,
            inlined: &[],
            uncounted: &uncounted,
            maps: &[],
            refs: &[],
            helpers: &|_| 0,
            evicts: false,
            passes: false,
            is_first: true,
            points: Vec::new(),
            seconds: BTreeSet::new(),
        };
        let (slots, _) = source.reached(&[0]);
        let branches: Vec<usize> =
            slots.iter().copied().filter(|at| matches!(decoded[*at], Some(Op::Branch { .. }))).collect();
        let found = source.hammocks(&slots, &[0]);
        let number = |at: &usize| branches.iter().position(|branch| branch == at).unwrap();
        found.iter().map(|(at, region)| (number(at), region.slots.len())).collect()
    }

    #[test]
    fn regions_of_moves_loads_and_stores_are_found() {
        assert_eq!(regions("if r4 >= r5 goto next\nr7 = r5\nnext:"), [(1, 1)]);
        let both = "if r4 >= r5 goto else\nr7 = *(u16 *)(r6 + 4)\n*(u32 *)(r10 - 8) = r4\ngoto join\n\
            else:\n*(u32 *)(r10 - 8) = r5\nr7 = *(u16 *)(r6 + 4)\njoin:";
        assert_eq!(regions(both), [(1, 5)]);
        let back = "goto first\nswapped:\nr7 = r5\ngoto join\nfirst:\nif r4 > r5 goto swapped\n\
            if r4 == r5 goto swapped\nr7 = r4\njoin:";
        assert_eq!(regions(back), [(1, 4)]);
    }

    #[test]
    fn what_may_not_run_on_all_paths_stays_behind_its_branch() {
        for code in [
            // The proof of the load holds on one path only.
            "if r4 >= r5 goto next\nr7 = *(u8 *)(r6 + 5)\nnext:",
            "if r4 >= r5 goto else\nr7 = *(u8 *)(r6 + 5)\ngoto next\nelse:\nr7 = *(u8 *)(r6 + 6)\nnext:",
            // A base that one path changes.
            "if r4 >= r5 goto else\nr6 += 1\nr7 = *(u8 *)(r6 + 5)\ngoto next\nelse:\nr7 = *(u8 *)(r6 + 5)\nnext:",
            "if r4 >= r5 goto next\n*(u64 *)(r10 - 8) = r4\nnext:",
            "if r4 >= r5 goto next\n*(u8 *)(r6 + 0) = r4\nnext:",
            "if r4 >= r5 goto next\nr7 /= 3\nnext:",
            // What is stored would be read before.
            "if r4 >= r5 goto else\n*(u64 *)(r10 - 8) = r4\nr7 = *(u64 *)(r10 - 8)\ngoto next\n\
             else:\n*(u64 *)(r10 - 8) = r5\nr7 = *(u64 *)(r10 - 8)\nnext:",
            // Another branch leads into the region.
            "if r4 == 9 goto in\nif r4 >= r5 goto next\nin:\nr7 = *(u8 *)(r6 + 5)\nnext:",
            "if r4 >= r5 goto next\nagain:\nr7 += 1\nif r7 < 9 goto again\nnext:",
        ] {
            assert_eq!(regions(code), [], "{code}");
        }
    }
}
