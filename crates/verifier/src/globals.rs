// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Global functions: verified separately for any arguments of their types, as the kernel does.
//!
//! ```text
//!   int add(int *x)      separately: r1 is 4 bytes of memory, or null      a read without a null check is refused
//!   add(&v)              at a call: r1 must be 4 bytes of memory or null   r0 is any number afterwards
//! ```
//!
//! Each is walked once from its entry with such arguments; a refusal names the argument. Calls are walked as well, so
//! that the proof of the function's instructions holds for each caller: lowering inlines calls and needs the memory
//! that they access. The caller knows nothing about the call but what the types say: the result is any number, memory
//! passed to it has unknown contents, and packet addresses are invalid if the function may move the packet.
//!
//! # Source
//! [Linux kernel/bpf/verifier.c `do_check_subprogs`, `btf_check_func_arg_match`]

use super::expected::Expected;
use super::loops;
use super::number::Range;
use super::options::Options;
use super::path::Path;
use super::proof::{Proof, Touch};
use super::refusal::{Refusal, Unsafe};
use super::state::State;
use super::value::{Address, Region, Value};
use super::walk::Walk;
use flowloom_isa::Program;
use flowloom_isa::helpers;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{ArgumentKind, GlobalFunction};

/// Verifies the global functions that the program reaches, and adds the walked instructions to the proof's count.
pub(super) fn check(
    program: &Program,
    code: &[Option<Op>],
    options: &Options,
    proof: &mut Proof,
) -> Result<(), Box<Refusal>> {
    for (index, function) in program.globals.iter().enumerate() {
        if !proof.insns.get(function.slot).is_some_and(|known| known.reached) {
            continue;
        }
        let walk = Walk::new(program, code, *options);
        proof.processed += walk.run_global(index, function)?.processed;
    }
    Ok(())
}

/// For each global function, whether it or one of its callees may move the packet.
pub(super) fn moving(program: &Program, code: &[Option<Op>]) -> Vec<bool> {
    let moves = |function: &GlobalFunction| {
        let (mut seen, mut work) = (vec![false; code.len()], vec![function.slot]);
        while let Some(at) = work.pop() {
            let Some(op) = code.get(at).copied().flatten() else { continue };
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            if let Op::Call { helper } = op
                && (helper == helper::TAIL_CALL
                    || helpers::by_number(helper).is_some_and(|helper| helper.moves_packet()))
            {
                return true;
            }
            work.extend(loops::successors(code, at, (true, true)));
            if let Op::CallLocal { .. } | Op::LoadFunc { .. } = op {
                let target = op.distance().and_then(|distance| usize::try_from(at as i64 + 1 + distance).ok());
                work.extend(target);
            }
        }
        false
    };
    program.globals.iter().map(moves).collect()
}

impl Walk<'_> {
    /// Walks a global function separately.
    fn run_global(mut self, index: usize, function: &GlobalFunction) -> Result<Proof, Box<Refusal>> {
        let mut state = State::first();
        state.at = function.slot;
        state.frame_mut().registers[1] = Value::Unwritten;
        self.alone = Some(index);
        for (number, argument) in (1..).zip(&function.arguments).take(5) {
            let value = match &argument.kind {
                ArgumentKind::Number => self.fresh(Range::ANY),
                ArgumentKind::Context => Value::Address(Address::new(Region::Context)),
                ArgumentKind::Memory { bytes, nullable } => {
                    let region = Region::Argument { function: index as u16, number: number as u8, bytes: *bytes };
                    Value::Address(Address { id: self.id(), nullable: *nullable, ..Address::new(region) })
                }
                ArgumentKind::Unknown(what) => {
                    let what = Unsafe::Global {
                        function: function.name.clone(),
                        argument: number,
                        name: argument.name.clone(),
                        found: what.to_string(),
                        expected: Expected::GlobalArgument,
                    };
                    return Err(Box::new(self.refusal(&Path::starting(state), what)));
                }
            };
            state.frame_mut().registers[number] = value;
        }
        self.run_from(state)
    }

    /// The index of the global function that a call leads to.
    fn called_global(&self, call: usize) -> Option<usize> {
        let Some(Op::CallLocal { distance }) = self.code.get(call).copied().flatten() else { return None };
        let slot = usize::try_from(call as i64 + 1 + i64::from(distance)).ok()?;
        self.program.globals.iter().position(|function| function.slot == slot)
    }

    /// Checks the arguments of a call against the function's types. The contents of memory passed to it are unknown to
    /// it, and afterwards.
    pub(super) fn global_called(&mut self, path: &mut Path) -> Result<(), Unsafe> {
        let program = self.program;
        let Some(function) = self.called_global(path.state.at).and_then(|index| program.globals.get(index)) else {
            return Ok(());
        };
        for (number, argument) in (1..).zip(&function.arguments).take(5) {
            let value = path.state.frame().registers[number];
            let refuse = |walk: &Self, expected| Unsafe::Global {
                function: function.name.clone(),
                argument: number,
                name: argument.name.clone(),
                found: walk.text_of(&value),
                expected,
            };
            match (&argument.kind, value) {
                // Arguments without a supported type are refused where the function is verified.
                (ArgumentKind::Unknown(_), _) | (ArgumentKind::Number, Value::Number(_)) => {}
                (ArgumentKind::Number, _) => return Err(refuse(self, Expected::Number)),
                (ArgumentKind::Context, Value::Address(address))
                    if address.to == Region::Context && address.offset() == Some(0) => {}
                (ArgumentKind::Context, _) => return Err(refuse(self, Expected::Context)),
                (ArgumentKind::Memory { nullable, .. }, Value::Number(number))
                    if number.range.as_constant() == Some(0) =>
                {
                    self.origins.mark(number.origin);
                    if !nullable {
                        return Err(refuse(self, Expected::NotNull));
                    }
                }
                (ArgumentKind::Memory { bytes, nullable }, Value::Address(address)) if address.to.has_bytes() => {
                    if address.nullable && !nullable {
                        return Err(refuse(self, Expected::NotNull));
                    }
                    let len = *bytes as usize;
                    let address = Address { nullable: false, ..address };
                    // The call itself accesses nothing: the accesses belong to the function's instructions.
                    let known = self.proof.insns[path.state.at].clone();
                    let there = self.reach(path, &address, 0, len, Touch::BOTH);
                    self.proof.insns[path.state.at] = known;
                    let (first, last) = there.map_err(|found| match found {
                        Unsafe::Access { expected, .. } => {
                            refuse(self, Expected::BytesThere { bytes: len, each: Box::new(expected) })
                        }
                        other => other,
                    })?;
                    if let Region::Stack { frame } = address.to {
                        path.state.frames[usize::from(frame)].stack.smear(first, last + len as i64);
                    }
                }
                (ArgumentKind::Memory { .. }, _) => return Err(refuse(self, Expected::AddressOf("memory"))),
            }
        }
        Ok(())
    }

    /// A return to the call at `call`: the result of a global function is any number.
    pub(super) fn global_returned(&mut self, path: &mut Path, call: usize, value: Value) -> Result<Value, Unsafe> {
        let Some(index) = self.called_global(call) else { return Ok(value) };
        if self.moving.get(index).copied().unwrap_or(true) {
            self.moved_packet(path, call);
        }
        match value {
            // It returns nothing, and its result may not be read.
            Value::Unwritten => Ok(value),
            _ => Ok(self.fresh(Range::ANY)),
        }
    }
}
