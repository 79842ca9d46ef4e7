// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Iterations of callbacks: pruned inside, and never such that an endless loop is accepted.

use super::*;
use flowloom_isa::{ArgumentKind, GlobalArgument, GlobalFunction};

/// A callback of `tests` independent tests of a value, `bytes` bytes each way.
fn rule(tests: usize) -> String {
    let mut text = "r1 = 1000\nr2 = subprog[rule] ll\nr3 = 0\nr4 = 0\ncall loop\nr0 = 2\nexit\n\
                    rule: *(u32 *)(r10 - 4) = r1\nr2 = r10\nr2 += -4\nr1 = map[table] ll\ncall map_lookup_elem\nr1 = 1\n\
                    if r0 == 0 goto done\n"
        .to_owned();
    for test in 0..tests {
        let byte = test % 8;
        text += &format!(
            "r1 = *(u8 *)(r0 + {byte})\nif r1 == 0 goto next{test}\nr1 = 0\nr2 = *(u8 *)(r0 + {})\nif r2 != 7 goto done\nnext{test}: r3 = 0\n",
            byte + 8
        );
    }
    text + "r1 = 1\ndone: r0 = r1\nexit"
}

#[test]
fn independent_tests_in_a_callback_add_up() {
    let processed = |tests| proof(&rule(tests)).processed;
    let (eight, sixteen, many) = (processed(8), processed(16), processed(24));
    // Twice as many tests take about twice as long, not 256 times.
    assert!(sixteen < 3 * eight && many < 650, "{eight} {sixteen} {many}");
}

/// A path that differs in what it reads is not taken for one that was safe, in whatever order the two come.
#[test]
fn what_differs_inside_a_round_is_walked() {
    for (first, second) in [(8, 15), (15, 8)] {
        let text = format!(
            "r1 = 10\nr2 = subprog[round] ll\nr3 = 0\nr4 = 0\ncall loop\nr0 = 2\nexit\n\
             round: call get_prandom_u32\nr6 = {first}\nif r0 == 0 goto join\nr6 = {second}\n\
             join: *(u32 *)(r10 - 4) = 1\nr2 = r10\nr2 += -4\nr1 = map[table] ll\nr3 = 0\nr3 = 1\nr3 = 2\ncall map_lookup_elem\n\
             if r0 == 0 goto skip\nr0 += r6\nr1 = *(u8 *)(r0 + 0)\nskip: r0 = 0\nexit"
        );
        proof(&text);
        let wrong = text.replace("= 15", "= 16");
        assert!(matches!(refusal(&wrong).what, Unsafe::Access { .. }), "{wrong}");
    }
}

/// A call of `loop` that is made again and again without a count: states of the earlier call do not end its paths.
#[test]
fn a_call_that_is_repeated_for_ever_is_refused() {
    for filler in ["", "r3 = 0\nr3 = 1\nr3 = 2\nr3 = 3\nr3 = 4\nr3 = 5\nr3 = 6\nr3 = 7\n"] {
        let text = format!(
            "again: r1 = 10\nr2 = subprog[round] ll\nr3 = 0\nr4 = 0\ncall loop\n{filler}goto again\nr0 = 2\nexit\n\
             round: call get_prandom_u32\n{filler}if r0 == 0 goto one\n{filler}one: r0 = 0\nexit"
        );
        let refused = refusal(&text);
        let is_endless =
            |what: &Unsafe| matches!(what, Unsafe::Endless | Unsafe::TooLong { .. } | Unsafe::TooManyPaths { .. });
        assert!(is_endless(&refused.what), "{refused}\n{text}");
        assert!(refused.help.is_some_and(|help| !help.contains("bpf_loop")), "{text}");
    }
}

/// The help for a loop that is too long or endless does not advise what the program does already.
#[test]
fn help_for_loops_does_not_advise_what_the_program_does() {
    let counting = "again: call get_prandom_u32\nr6 += r0\nr6 &= 0xffff\nr8 += 1\nif r8 != 500000 goto again\n";
    let endless = "again: call get_prandom_u32\nif r0 != 7 goto again\n";
    let calls = "r1 = 10\nr2 = subprog[round] ll\nr3 = 0\nr4 = 0\ncall loop\n";
    for (body, what) in [(counting, Unsafe::TooLong { limit: 1_000_000 }), (endless, Unsafe::Endless)] {
        let plain = refusal(&format!("r6 = 0\nr8 = 0\n{body}r0 = 2\nexit"));
        let looping = refusal(&format!("r6 = 0\nr8 = 0\n{calls}{body}r0 = 2\nexit\nround: r0 = 0\nexit"));
        assert_eq!([&plain.what, &looping.what], [&what, &what]);
        let advises = |refused: Refusal| refused.help.is_some_and(|help| help.contains("bpf_loop"));
        assert_eq!([plain, looping].map(advises), [true, false], "{body}");
    }
}

#[test]
fn loops_inside_a_round_that_never_end_are_refused() {
    let text = "r1 = 10\nr2 = subprog[round] ll\nr3 = 0\nr4 = 0\ncall loop\nr0 = 2\nexit\n\
                round: r6 = 0\nagain: call get_prandom_u32\nif r0 == 0 goto again\nif r0 == 1 goto done\nif r0 == 2 goto done\ngoto again\n\
                done: r0 = 0\nexit";
    let what = refusal(text).what;
    assert!(matches!(what, Unsafe::Endless | Unsafe::TooLong { .. }), "{what}");
}

/// A program that calls the function at label `f`, which is global and takes these.
fn with_global(text: &str, arguments: &[(&str, ArgumentKind)]) -> Result<Proof, Box<Refusal>> {
    let mut program = program(text);
    let slot = program.insns.iter().position(|insn| insn.imm == 77).unwrap();
    let arguments =
        arguments.iter().map(|(name, kind)| GlobalArgument { name: (*name).to_owned(), kind: kind.clone() }).collect();
    program.globals = vec![GlobalFunction { slot, name: "f".to_owned(), arguments }];
    verified(&program)
}

#[test]
fn global_functions_are_verified_by_themselves() {
    let memory = |nullable| [("x", ArgumentKind::Memory { bytes: 4, nullable })];
    let call = "*(u32 *)(r10 - 4) = 5\nr1 = r10\nr1 += -4\ncall f\n";
    let unchecked = format!("{call}r0 &= 1\nexit\nf: r3 = 77\nr0 = *(u32 *)(r1 + 0)\nexit");
    let refused = with_global(&unchecked, &memory(true)).unwrap_err();
    assert!(refused.what.found().contains("argument `x` of the global function `f`"), "{refused}");
    with_global(&unchecked, &memory(false)).unwrap();
    let checked = unchecked.replace("r0 = *(u32", "r0 = 0\nif r1 == 0 goto +1\nr0 = *(u32");
    with_global(&checked, &memory(true)).unwrap();
    // One byte further is not there for every caller.
    let further = checked.replace("(r1 + 0)", "(r1 + 1)");
    assert!(with_global(&further, &memory(true)).is_err());
    // What it returns is any number to its callers.
    let used = checked.replace("r0 &= 1\nexit", "r2 = r10\nr2 += -8\nr0 &= 7\nr2 += r0\nr0 = *(u8 *)(r2 + 0)\nexit");
    with_global(&used, &memory(true)).unwrap();
    let trusted =
        used.replace("r0 &= 7\n", "").replace("= *(u32 *)(r1 + 0)", "= 3").replace("r0 = 0\nif", "r0 = 3\nif");
    assert!(with_global(&trusted, &memory(true)).is_err());
    // Callers give what the types say.
    let number = unchecked.replace("r1 = r10\nr1 += -4", "r1 = 4");
    assert!(matches!(with_global(&number, &memory(false)).unwrap_err().what, Unsafe::Global { argument: 1, .. }));
    let context = [("c", ArgumentKind::Context)];
    let not_context = with_global(&checked, &context).unwrap_err();
    assert!(matches!(not_context.what, Unsafe::Global { .. }), "{not_context}");
}

#[test]
fn a_global_function_may_move_the_packet_of_its_caller() {
    let text = "r6 = r1\nr7 = *(u32 *)(r1 + 0)\nr8 = *(u32 *)(r1 + 4)\nr2 = r7\nr2 += 14\nif r2 > r8 goto out\ncall f\n\
                r0 = *(u8 *)(r7 + 0)\nout: r0 = 2\nexit\nf: r3 = 77\nr6 = r1\ncall get_prandom_u32\nif r0 != 0 goto +3\nr1 = r6\nr2 = 0\n\
                call xdp_adjust_head\nr0 = 0\nexit";
    let context = [("c", ArgumentKind::Context)];
    assert!(matches!(with_global(text, &context).unwrap_err().what, Unsafe::Kind { .. }));
}

#[test]
fn what_leaves_the_program_is_named() {
    let sent = |text: &str| -> Vec<(Sink, Contents, (i64, i64))> {
        proof(text).kernel_dependent().map(|(_, to, what, bytes)| (to, what, bytes)).collect()
    };
    let output = "r2 = r10\nr2 += -16\nr3 = 12\nr4 = 0\nr1 = map[ring] ll\ncall ringbuf_output\nr0 = 2\nexit";
    let ring = Sink::Event(MapId::Of(1));
    assert_eq!(sent(&format!("*(u64 *)(r10 - 16) = 1\n{output}")), [(ring, Contents::Unwritten, (8, 12))]);
    assert_eq!(sent(&format!("*(u64 *)(r10 - 16) = 1\n*(u32 *)(r10 - 8) = 1\n{output}")), []);
    let spilled = format!("*(u32 *)(r10 - 8) = 1\n*(u64 *)(r10 - 16) = r10\n{output}");
    assert_eq!(sent(&spilled), [(ring, Contents::Address, (0, 8))]);
    let stored = format!("{LOOKUP}if r0 == 0 goto out\n*(u64 *)(r0 + 8) = r10\n{OUT}");
    assert_eq!(sent(&stored), [(Sink::Value(MapId::Of(0)), Contents::Address, (8, 16))]);
}
