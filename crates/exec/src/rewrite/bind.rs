// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Binds a program to one interface: its port becomes a constant, its clock that of its state, its verdicts are
//! counted.
//!
//! Goal: `ingress_ifindex` is the kernel's index of an interface, functions use the port that it is bound to. A
//! constant costs the packet nothing, and lets the verifier drop the rows of other ports; so there is one program for
//! each interface, on the same maps.
//!
//! ```text
//!   before                          after
//!   r6 = *(u32 *)(r1 + 12)          w6 = 2                              if r1 is the context
//!   call ktime_get_ns               call ktime_get_ns                   if the clock is not the system's
//!                                   r1 = -4711 ll
//!                                   r0 += r1
//!   exit                            w1 = w0
//!                                   if w1 < 5 goto +1
//!                                   w1 = 0                              unknown verdicts are ABORTED
//!                                   r1 <<= 3
//!                                   r2 = .data.fl_counts[0] ll
//!                                   r2 += r1
//!                                   r1 = 1
//!                                   lock *(u64 *)(r2 + 0) += r1
//!                                   exit
//! ```
//!
//! Holds before and after: as for [`super::rewrite`]. r0 at an exit is unchanged.
//!
//! Limits: `redirect` by index is refused, and so are route lookups, because both use the kernel's interface indices;
//! redirects go through a device map.

use std::collections::BTreeSet;

use flowloom_engine::Verdict;
use flowloom_isa::insn::{SRC_REG, alu, call, class, helper, imm64, jmp, mode, size};
use flowloom_isa::splice::{distance, spliced};
use flowloom_isa::{BPF_F_MMAPABLE, Insn, MapDef, MapKind, Program};

use super::flow::Flow;
use super::{Code, RewriteError, fetch, reads_ingress};

/// The name of the map of verdict counters: a data section with one u64 for each, by number.
pub const VERDICTS_MAP: &str = ".data.fl_counts";

pub(crate) const VERDICTS_BYTES: usize = Verdict::ALL.len() * 8;

/// The environment that a program is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The ingress port.
    pub port: u32,
    /// The offset of its clock from the system's, wrapping.
    pub clock_ahead_ns: u64,
    /// True if verdicts are counted in an additional map, the last one.
    pub count_verdicts: bool,
}

/// A program bound to a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The program.
    pub program: Program,
    /// True if it reads the port; otherwise it serves all ports.
    pub reads_port: bool,
}

/// Binds `program` to packets of one port.
///
/// # Errors
/// The program cannot be rewritten; the error names the instruction.
pub fn bind(program: &Program, binding: Binding) -> Result<Bound, RewriteError> {
    let Binding { port, clock_ahead_ns, count_verdicts } = binding;
    if program.map_index(VERDICTS_MAP).is_some() {
        return Err(RewriteError::NameTaken { map: VERDICTS_MAP });
    }
    let insns = &program.insns;
    let flow = Flow::of(insns)?;
    let main_end = main_end(insns);
    let map = program.maps.len();
    let mut replacements = vec![None; insns.len()];
    let mut reads_port = false;
    let mut at = 0;
    while at < insns.len() {
        let insn = insns[at];
        if flow.reached(at) {
            let is_jump = insn.class() == class::JMP;
            let calls = |number| is_jump && insn.op() == jmp::CALL && insn.src == call::HELPER && insn.imm == number;
            if insn.class() == class::LDX && reads_ingress(&flow, at, insn)? {
                reads_port = true;
                let imm = port as i32;
                replacements[at] =
                    Some(vec![Insn { code: class::ALU | alu::MOV, dst: insn.dst, imm, ..Insn::default() }]);
            } else if calls(helper::KTIME_GET_NS) && clock_ahead_ns != 0 {
                replacements[at] = Some(shifted_clock(insn, clock_ahead_ns));
            } else if calls(helper::REDIRECT) {
                return Err(RewriteError::RedirectByIndex { insn: at });
            } else if calls(helper::FIB_LOOKUP) || calls(helper::CHECK_MTU) {
                let helper = if insn.imm == helper::CHECK_MTU { "check_mtu" } else { "fib_lookup" };
                return Err(RewriteError::RoutesByIndex { insn: at, helper });
            } else if count_verdicts && is_jump && insn.op() == jmp::EXIT && at < main_end {
                replacements[at] = Some(counted_exit(map));
            } else {
                replacements[at] = fetch::replaced(&flow, at, insn);
            }
        }
        at += insn.slots();
    }
    let (mut program, _) = spliced(program, replacements)?;
    program.globals.clear();
    if count_verdicts {
        program.maps.push(verdicts_map());
    }
    Ok(Bound { program, reads_port })
}

/// The end of the entry function: the verdict is its return value.
fn main_end(insns: &[Insn]) -> usize {
    let mut starts = BTreeSet::new();
    let mut at = 0;
    while let Some(insn) = insns.get(at) {
        let calls = insn.class() == class::JMP && insn.op() == jmp::CALL && insn.src == call::LOCAL;
        if calls || insn.is_wide() && insn.src == imm64::FUNC {
            starts.extend(usize::try_from(at as i64 + 1 + distance(*insn)));
        }
        at += insn.slots();
    }
    starts.first().copied().unwrap_or(insns.len())
}

fn shifted_clock(call: Insn, ahead_ns: u64) -> Vec<Insn> {
    let mut code = Code::new(0);
    code.insns.push(call);
    code.push(class::LD | mode::IMM | size::DW, 1, imm64::NUMBER, 0, ahead_ns as u32 as i32)
        .push(0, 0, 0, 0, (ahead_ns >> 32) as u32 as i32)
        .reg(alu::ADD, 0, 1);
    code.insns
}

fn counted_exit(map: usize) -> Vec<Insn> {
    let mut code = Code::new(map);
    code.push(class::ALU | alu::MOV | SRC_REG, 1, 0, 0, 0)
        .skip(class::JMP32 | jmp::JLT, 1, Verdict::ALL.len() as i32, 1)
        .imm(alu::MOV, 1, 0)
        .imm(alu::LSH, 1, 3)
        .record(2)
        .reg(alu::ADD, 2, 1)
        .imm(alu::MOV, 1, 1)
        .push(class::STX | mode::ATOMIC | size::DW, 2, 1, 0, alu::ADD.into())
        .push(class::JMP | jmp::EXIT, 0, 0, 0, 0);
    code.insns
}

fn verdicts_map() -> MapDef {
    MapDef {
        name: VERDICTS_MAP.to_owned(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: VERDICTS_BYTES as u32,
        max_entries: 1,
        flags: BPF_F_MMAPABLE,
        initial: Some(vec![0; VERDICTS_BYTES]),
        ..MapDef::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::RECORD_MAP;
    use crate::testcode::*;

    fn binding(port: u32, count_verdicts: bool) -> Binding {
        Binding { port, clock_ahead_ns: 0, count_verdicts }
    }

    #[test]
    fn the_clock_is_set_ahead() {
        let call = call_helper(helper::KTIME_GET_NS);
        let bound = bind(&program([call, exit()]), Binding { clock_ahead_ns: 0x1_0000_0002, ..binding(1, false) })
            .expect("fits");
        let [low, high] = [&bound.program.insns[1], &bound.program.insns[2]].map(|insn| insn.imm);
        assert_eq!((bound.program.insns[0], low, high, bound.program.insns.len()), (call, 2, 1, 5));
    }

    #[test]
    fn the_port_is_a_constant_and_exits_count() {
        let code = [load(size::W, 6, 1, 12), if_zero(6, 1), exit(), copy(0, 6), exit()];
        let bound = bind(&program(code), binding(7, true)).expect("fits");
        let insns = &bound.program.insns;
        assert!(bound.reads_port);
        assert_eq!(insns[0], insn(class::ALU | alu::MOV, 6, 0, 0, 7));
        // Over the first exit, which is ten slots now.
        assert_eq!((insns[1].off, insns.len()), (10, 1 + 1 + 10 + 1 + 10));
        assert_eq!(bound.program.maps.last().map(|map| map.name.as_str()), Some(VERDICTS_MAP));
        let bare = bind(&program(code), binding(7, false)).expect("fits").program;
        assert_eq!((bare.insns.len(), bare.maps.len()), (5, 3));
    }

    #[test]
    fn results_of_called_functions_are_not_verdicts() {
        let code = [call_local(1), exit(), mov(0, 1), exit()];
        let bound = bind(&program(code), binding(1, true)).expect("fits");
        assert!(!bound.reads_port);
        // The call's distance includes nine more slots.
        assert_eq!((bound.program.insns[0].imm, bound.program.insns.len()), (10, 1 + 10 + 2));
    }

    #[test]
    fn redirects_by_index_and_reserved_names_are_refused() {
        let code = [mov(1, 3), mov(2, 0), call_helper(helper::REDIRECT), exit()];
        assert_eq!(bind(&program(code), binding(1, true)), Err(RewriteError::RedirectByIndex { insn: 2 }));
        for (number, helper) in [(helper::FIB_LOOKUP, "fib_lookup"), (helper::CHECK_MTU, "check_mtu")] {
            let asks = program([call_helper(number), exit()]);
            assert_eq!(bind(&asks, binding(1, true)), Err(RewriteError::RoutesByIndex { insn: 0, helper }));
        }
        let mut taken = program([mov(0, 1), exit()]);
        taken.maps.push(map(VERDICTS_MAP, MapKind::Array));
        assert_eq!(bind(&taken, binding(1, false)), Err(RewriteError::NameTaken { map: VERDICTS_MAP }));
        assert!(super::super::rewrite(&taken).is_ok(), "only `{RECORD_MAP}` matters there");
    }
}
