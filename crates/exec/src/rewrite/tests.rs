// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shape of rewritten code; its behaviour is tested with the engines.

use flowloom_isa::insn::{SRC_REG, alu, helper, imm64, jmp};
use flowloom_isa::splice::{SpliceError, jump_target};
use flowloom_isa::{LineInfo, MapKind, ProgramKind, Reference};

use super::*;
use crate::testcode::*;

fn rewritten(insns: impl IntoIterator<Item = Insn>) -> Rewritten {
    rewrite(&program(insns)).expect("can be rewritten")
}

fn refused(insns: impl IntoIterator<Item = Insn>) -> RewriteError {
    rewrite(&program(insns)).expect_err("cannot be rewritten")
}

/// True if the instruction at `at` was replaced by a load of the ingress port.
fn is_ingress(insns: impl IntoIterator<Item = Insn>, at: usize) -> bool {
    let out = rewritten(insns);
    let Some(start) = out.origin.iter().position(|old| *old == at) else { panic!("{at} is gone") };
    let code = &out.program.insns[start..];
    code[0].is_wide() && code[0].src == imm64::MAP_VALUE && code[2].off == record::INGRESS_PORT
}

#[test]
fn a_program_without_environment_accesses_is_unchanged() {
    let before = program([mov(0, 2), exit()]);
    let after = rewrite(&before).expect("nothing to do");
    assert_eq!((after.program, after.record_map, after.origin), (before, None, vec![0, 1]));
}

#[test]
fn jumps_and_lines_move_with_the_code() {
    let mut before = program(asm(
        "start: r6 = *(u32 *)(r1 + 0)\nif r6 == 0 goto last\nagain: call ktime_get_ns\nif r0 == 0 goto again\nlast: goto start",
    ));
    before.lines = [(0, 1), (2, 2), (3, 3)]
        .map(|(insn, line)| LineInfo { insn, file: "f".into(), text: "t".into(), line, column: 0 })
        .to_vec();
    let after = rewrite(&before).expect("can be rewritten");
    assert_eq!(after.origin, [0, 1, 2, 2, 2, 3, 4]);
    let offsets: Vec<i16> = after.program.insns.iter().map(|i| i.off).collect();
    // 1 jumps over the call forward, 3 over it back to 2, 4 over all of it back to 0.
    assert_eq!(offsets, [0, 4, 0, 0, record::NOW, -4, -7]);
    assert_eq!(after.program.lines.iter().map(|l| l.insn).collect::<Vec<_>>(), [0, 2, 5]);
    assert_eq!(after.record_map, Some(3));
    assert_eq!(after.program.maps[3].name, RECORD_MAP);
}

#[test]
fn calls_and_callbacks_move_with_the_code() {
    // `f` at 5 is a function and a callback.
    let after =
        rewritten(asm("r2 = subprog[f] ll\ncall get_smp_processor_id\ncall f\nexit\nf: call get_prandom_u32\nexit"));
    let target = |at: usize| jump_target(at, after.program.insns[at], after.program.insns.len());
    let function = after.origin.iter().position(|old| *old == 5).expect("still there");
    assert_eq!(target(0), Ok(function));
    assert_eq!(target(after.origin.iter().position(|old| *old == 3).expect("still there")), Ok(function));
}

#[test]
fn long_jumps_keep_their_32_bits() {
    let gotol = insn(class::JMP32 | jmp::JA, 0, 0, 0, 1);
    let after = rewritten([gotol, call_helper(helper::KTIME_GET_NS), exit()]);
    assert_eq!(after.program.insns[0].imm, 1, "the call is not reached, so it is not rewritten");
    let code = [if_zero(1, 1), gotol, call_helper(helper::KTIME_GET_NS), exit()];
    assert_eq!(rewritten(code).program.insns[1].imm, 3);
}

#[test]
fn jumps_beyond_16_bits_become_long_jumps() {
    let calls = i16::MAX as usize;
    let mut code = vec![if_zero(1, i16::MAX - 1), goto(1), exit()];
    code.extend(std::iter::repeat_n(call_helper(helper::KTIME_GET_NS), calls));
    code.extend([if_zero(1, -(i16::MAX - 3)), goto(-(i16::MAX - 2)), exit()]);
    let after = rewritten(code.clone());
    let insns = &after.program.insns;
    // Over itself and two jumps, then the old target: three slots for each call in between.
    let place = |old: usize| after.origin.iter().position(|at| *at == old).expect("still there");
    let gotol = class::JMP32 | jmp::JA;
    assert_eq!((insns[0].off, insns[1], insns[2].code), (1, goto(1), gotol));
    assert_eq!(jump_target(2, insns[2], insns.len()), Ok(place(i16::MAX as usize)));
    assert_eq!(insns[3], goto(1), "a jump that still fits stays as it is");
    let back = place(3 + calls);
    assert_eq!((insns[back].off, insns[back + 2].code), (1, gotol));
    assert_eq!(jump_target(back + 2, insns[back + 2], insns.len()), Ok(place(3 + calls + 1 - (i16::MAX as usize - 3))));
    let always = place(4 + calls);
    assert_eq!(insns[always].code, gotol, "an unconditional one needs no other");
    assert_eq!(jump_target(always, insns[always], insns.len()), Ok(place(4 + calls + 1 - (i16::MAX as usize - 2))));
}

/// Number of places that the kernel would remove: unreachable instructions, and branches that always take one edge.
fn dead_places(program: &Program) -> usize {
    let proof = verify(program, &Options::default()).expect("safe");
    let insns = proof.insns.iter().zip(&program.insns).filter(|(known, _)| known.begins);
    let is_branch = |insn: &Insn| {
        let is_jump = matches!(insn.class(), class::JMP | class::JMP32);
        is_jump && !matches!(insn.op(), jmp::JA | jmp::CALL | jmp::EXIT)
    };
    insns.filter(|(known, insn)| !known.reached || is_branch(insn) && known.edges.jumps != known.edges.falls).count()
}

/// For constant keys and flags the checks are made here, and not left for the kernel to remove.
#[test]
fn redirects_with_constants_leave_no_dead_code() {
    let redirect = |key: i32, flags: i32| {
        let [map, second] = wide(1, imm64::MAP, 0);
        [map, second, mov(2, key), mov(3, flags), call_helper(helper::REDIRECT_MAP), exit()]
    };
    // A port of the map and one outside it, another verdict for absent keys, all ports, invalid flags.
    for (key, flags) in [(1, 0), (6, 2), (7, 0), (-1, 1), (0, 8), (0, 24), (1, 64), (1, -1)] {
        let after = rewritten(redirect(key, flags));
        assert_eq!(dead_places(&after.program), 0, "key {key}, flags {flags}: {:?}", after.program.insns);
    }
    for flags in [0, 1] {
        let after = rewritten([mov(1, 3), mov(2, flags), call_helper(helper::REDIRECT), exit()]);
        assert_eq!(dead_places(&after.program), 0, "flags {flags}: {:?}", after.program.insns);
    }
    // The join of two constants is no constant, nor is a constant from the stack, where helpers may write.
    let checks_key = |start: &[Insn]| {
        let [map, second] = wide(1, imm64::MAP, 0);
        let end = [map, second, mov(3, 0), call_helper(helper::REDIRECT_MAP), exit()];
        let after = rewritten(start.iter().copied().chain(end));
        after.program.insns.iter().any(|insn| insn.code == class::JMP32 | jmp::JGE)
    };
    assert!(!checks_key(&[mov(2, 1)]));
    assert!(checks_key(&[load(size::W, 4, 1, 16), mov(2, 1), if_zero(4, 1), mov(2, 9)]));
    assert!(checks_key(&[mov(2, 1), store(size::DW, 10, -8, 2), load(size::DW, 2, 10, -8)]));
}

#[test]
fn jump_out_of_the_program_is_refused() {
    let outside = |target| RewriteError::Splice(SpliceError::JumpOutside { insn: 0, target, slots: 2 });
    assert_eq!(refused([goto(1), exit()]), outside(2));
    assert_eq!(refused([goto(-2), exit()]), outside(-1));
    assert_eq!(refused([call_local(i32::MAX), exit()]), outside(1 + i64::from(i32::MAX)));
}

#[test]
fn ingress_is_found_through_registers_and_the_stack() {
    assert!(is_ingress([load(size::W, 0, 1, 12), exit()], 0));
    assert!(is_ingress([copy(7, 1), mov(1, 0), load(size::W, 0, 7, 12), exit()], 2));
    assert!(is_ingress([store(size::DW, 10, -16, 1), load(size::DW, 3, 10, -16), load(size::W, 0, 3, 12), exit()], 2));
    let add4 = insn(class::ALU64 | alu::ADD, 2, 0, 0, 4);
    assert!(is_ingress([copy(2, 1), add4, load(size::W, 0, 2, 8), exit()], 2));
    // Through a second pointer to the frame.
    let to_slot = [copy(2, 10), insn(class::ALU64 | alu::ADD, 2, 0, 0, -8), store(size::DW, 2, 0, 1)];
    let back = [load(size::DW, 4, 10, -8), load(size::W, 0, 4, 12), exit()];
    assert!(is_ingress(to_slot.into_iter().chain(back), 4));
    // As an argument, and back as a result.
    assert!(is_ingress([call_local(1), exit(), load(size::W, 0, 1, 12), exit()], 2));
    let through = [call_local(2), load(size::W, 0, 0, 12), exit(), copy(0, 1), exit()];
    assert!(is_ingress(through, 1));
}

#[test]
fn other_loads_at_12_stay() {
    // From packet data: the pointer comes from the context, but is not it.
    let packet = "r2 = *(u32 *)(r1 + 0)\nr0 = *(u32 *)(r2 + 12)\nexit";
    // From a slot that was overwritten.
    let slot = "*(u64 *)(r10 - 8) = r1\n*(u32 *)(r10 - 8) = r1\nr2 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r2 + 12)\nexit";
    // An adjacent field of the context.
    for text in [packet, slot, "r0 = *(u32 *)(r1 + 16)\nexit"] {
        assert_eq!(rewritten(asm(text)).record_map, None, "{text}");
    }
}

#[test]
fn ambiguous_loads_are_refused() {
    // r2 is the context on one path, a packet pointer on the other.
    let joined = "r2 = *(u32 *)(r1 + 0)\nif r2 == 0 goto +1\nr2 = r1\nr0 = *(u32 *)(r2 + 12)\nexit";
    // Found only in the second iteration of a loop.
    let iterated = "r2 = *(u32 *)(r1 + 0)\nagain: r0 = *(u32 *)(r2 + 12)\nr2 = r1\nif r0 == 0 goto again\nexit";
    // A callee that finds the context in its caller's frame.
    let finds = "r5 = 9 ll\n*(u64 *)(r10 - 8) = r1\nr1 = r10\ncall f\nexit\n\
                 f: r2 = *(u64 *)(r1 - 8)\nr0 = *(u32 *)(r2 + 12)\nexit";
    // A callee that writes the context into its caller's frame.
    let writes = "r2 = r10\ncall f\nr3 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r3 + 12)\nexit\n\
                  f: *(u64 *)(r2 - 8) = r1\nr0 = 0\nexit";
    for (text, insn, register) in [(joined, 3, 2), (iterated, 1, 2), (finds, 7, 2), (writes, 3, 3)] {
        assert_eq!(refused(asm(text)), RewriteError::PerhapsContext { insn, register }, "{text}");
    }
}

#[test]
fn part_of_ingress_is_refused() {
    let part = |found, offset| RewriteError::PartOfIngress { insn: 0, found, offset };
    assert_eq!(refused([load(size::H, 0, 1, 12), exit()]), part(2, 12));
    assert_eq!(refused([load(size::B, 0, 1, 15), exit()]), part(1, 15));
    assert_eq!(refused([load(size::DW, 0, 1, 8), exit()]), part(8, 8));
}

#[test]
fn redirect_map_is_resolved_to_its_map() {
    let redirect = |maps: &[Insn]| {
        maps.iter()
            .copied()
            .chain([load(size::W, 2, 10, -4), mov(3, 0), call_helper(helper::REDIRECT_MAP), exit()])
            .collect::<Vec<_>>()
    };
    let after = rewritten(redirect(&wide(1, imm64::MAP, 0)));
    let compare = after.program.insns.iter().find(|i| i.class() == class::JMP32).expect("compares the key");
    assert_eq!((compare.dst, compare.imm, compare.op()), (2, 7, jmp::JGE));
    assert_eq!(refused(redirect(&wide(1, imm64::MAP, 2))), RewriteError::NotDevmap { insn: 4, map: "table".into() });
    assert_eq!(
        refused(redirect(&wide(1, imm64::MAP, 9))),
        RewriteError::UnknownDevmap { insn: 4, helper: "redirect_map" }
    );
    let [a0, a1] = wide(1, imm64::MAP, 0);
    let [b0, b1] = wide(1, imm64::MAP, 1);
    // Which of the two maps it is, is known at run time only.
    let after = rewritten(redirect(&[a0, a1, if_zero(0, 2), b0, b1]));
    let is_compared = |insn: &&Insn| insn.code == class::JMP | jmp::JNE | SRC_REG && insn.dst == 1;
    assert_eq!(after.program.insns.iter().filter(is_compared).count(), 1);
    assert_eq!(refused(redirect(&[mov(1, 0)])), RewriteError::UnknownDevmap { insn: 3, helper: "redirect_map" });
}

#[test]
fn lookups_in_a_devmap_use_its_shadow() {
    let lookup = |map| {
        let start = wide(1, imm64::MAP, map).into_iter();
        start.chain([copy(2, 10), call_helper(helper::MAP_LOOKUP_ELEM), exit()])
    };
    assert_eq!(rewritten(lookup(2)).record_map, None);
    let calls = |after: &Rewritten| after.program.insns.iter().filter(|insn| **insn == call_helper(1)).count();
    let after = rewritten(lookup(1));
    assert_eq!((after.record_map, calls(&after)), (Some(3), 0), "the table is in the record");
    let mut by_key = program(lookup(1));
    by_key.maps[1].kind = MapKind::DevmapHash;
    let after = rewrite(&by_key).expect("can be rewritten");
    assert_eq!((calls(&after), after.program.maps.len()), (1, 5));
    assert_eq!(after.program.insns[3].imm, 4, "the shadow is behind the record");
    let unknown = RewriteError::UnknownDevmap { insn: 0, helper: "map_lookup_elem" };
    assert_eq!(refused([call_helper(helper::MAP_LOOKUP_ELEM), exit()]), unknown);
    let mut without = program([call_helper(helper::MAP_LOOKUP_ELEM), exit()]);
    without.maps.retain(|map| map.kind != MapKind::Devmap);
    assert_eq!(rewrite(&without).map(|after| after.record_map), Ok(None));
}

#[test]
fn an_inner_map_is_not_a_devmap() {
    // r1 is the result of a lookup: no instruction refers to that map.
    let found = wide(1, imm64::MAP, 2).into_iter().chain([copy(2, 10), call_helper(1), copy(1, 0), copy(2, 10)]);
    assert_eq!(rewritten(found.clone().chain([call_helper(1), exit()])).record_map, None);
    // Or a devmap, on another path.
    let [d0, d1] = wide(1, imm64::MAP, 0);
    let mixed = found.chain([if_zero(2, 2), d0, d1, call_helper(1), exit()]);
    assert_eq!(refused(mixed), RewriteError::UnknownDevmap { insn: 9, helper: "map_lookup_elem" });
}

#[test]
fn unsupported_kinds_are_refused() {
    let mut other = program([mov(0, 2), exit()]);
    other.maps.push(map("socks", MapKind::Other(15)));
    let error = rewrite(&other).expect_err("refused");
    assert_eq!(error.to_string(), "map `socks` is of kind `sockmap`, which Flowloom does not run");
}

#[test]
fn unresolved_references_and_non_xdp_programs_are_refused() {
    let mut lacking = program([mov(0, 2), exit()]);
    let reference = Reference::Kfunc { name: "bpf_dynptr_slice".into() };
    lacking.unresolved.push(flowloom_isa::Unresolved { insn: 1, reference: reference.clone() });
    assert_eq!(rewrite(&lacking), Err(RewriteError::Unresolved { insn: 1, reference }));
    let mut other = program([mov(0, 2), exit()]);
    other.kind = ProgramKind::Other("sched_cls");
    let error = rewrite(&other).expect_err("refused");
    assert_eq!(error.to_string(), "it has type `sched_cls`, expected XDP");
}

#[test]
fn devmap_programs_see_egress_port_0() {
    let mut behind = program([load(size::W, 0, 1, 20), exit()]);
    assert_eq!(rewrite(&behind).map(|after| after.record_map), Ok(None), "elsewhere it is the verifier's to refuse");
    behind.kind = ProgramKind::XdpDevmap;
    let after = rewrite(&behind).expect("can be rewritten").program.insns;
    assert_eq!(after[0], Insn { code: class::ALU64 | alu::MOV, dst: 0, ..Insn::default() });
    assert_eq!(after[1], exit());
}

#[test]
fn the_record_s_name_is_reserved() {
    let mut taken = program([exit()]);
    taken.maps.push(map(RECORD_MAP, MapKind::Array));
    assert_eq!(rewrite(&taken), Err(RewriteError::NameTaken { map: RECORD_MAP }));
}

#[test]
fn any_code_is_rewritten_or_refused() {
    let mut rng = flowloom_testkit::Rng::from_env(1);
    let mut taken = 0;
    for _ in 0..20_000 {
        let slots = 1 + rng.below(24);
        let insns: Vec<Insn> = (0..slots)
            .map(|_| {
                let mut insn = Insn::from_bytes(rng.next_u64().to_le_bytes());
                // Near jumps, so that most programs get past them.
                insn.off %= 8;
                insn.imm %= 64;
                insn
            })
            .collect();
        if let Ok(after) = rewrite(&program(insns)) {
            taken += 1;
            assert_eq!(after.program.insns.len(), after.origin.len());
        }
    }
    assert!(taken > 1000, "only {taken} programs were rewritten");
}

#[test]
fn record_round_trip() {
    use flowloom_engine::{Choices, Port};
    let record = Record::new(Port(9), &Choices { now_ns: 7, random: [1, 2, 3, 4, 5, 6, 7, 8], cpu: 3 });
    assert_eq!((record.redirect(), record.random_drawn()), (None, 0));
    assert_eq!(record.0[..16], [7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(record.0[44..48], [8, 0, 0, 0]);
}
