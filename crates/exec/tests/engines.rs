// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs that use everything in a run record, on three engines: the interpreter, the interpreter on the
//! rewritten program, and the kernel.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Outcome, PORT_COUNT, Packet, Port, Ports, Snapshot, Verdict};
use flowloom_exec::KernelEngine;
use flowloom_exec::rewrite::{RECORD_BYTES, RECORD_MAP, Record, Redirect, rewrite};
use flowloom_isa::{Program, asm};
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;

const PROGRAMS: usize = 400;
const PACKETS: usize = 8;
const PORTS: u32 = 7;

/// Counts of the pieces in generated code, to check that no kind is missing.
#[derive(Debug, Default)]
struct GeneratedProgram {
    calls: BTreeMap<&'static str, usize>,
    forward: usize,
    backward: usize,
    redirects: usize,
    broadcasts: usize,
    refused_redirects: usize,
}

/// A piece of code that mixes a value into r7. r6 is the packet, r9 the context, r8 counts backward jumps down.
fn piece(rng: &mut Rng, generated: &mut GeneratedProgram) -> String {
    let kinds = ["ktime", "random", "cpu", "ingress", "ingress_spilled", "redirect", "redirect_map", "update"];
    let kind = *rng.pick(&kinds);
    *generated.calls.entry(kind).or_default() += 1;
    let code = match kind {
        "ktime" => "call ktime_get_ns".to_owned(),
        "random" => "call get_prandom_u32".to_owned(),
        "cpu" => "call get_smp_processor_id".to_owned(),
        "ingress" => "r0 = *(u32 *)(r9 + 12)".to_owned(),
        "ingress_spilled" => "*(u64 *)(r10 - 8) = r9\nr2 = *(u64 *)(r10 - 8)\nr0 = *(u32 *)(r2 + 12)".to_owned(),
        "redirect" => {
            let flags = if rng.chance(1, 4) { rng.below(3) } else { 0 };
            format!("r1 = {}\nr2 = {flags}\ncall redirect", rng.below(1000))
        }
        "redirect_map" => {
            let flags = *rng.pick(&[0, 1, 2, 3, 8, 10, 16, 24, 25, 4, 32, -1]);
            let key = rng.below(PORTS as usize + 3);
            let key = if rng.chance(1, 2) { format!("r2 = {key}") } else { "r2 = r7\nr2 &= 7".to_owned() };
            format!("r1 = map[ports] ll\n{key}\nr3 = {flags}\ncall redirect_map")
        }
        _ => "*(u64 *)(r10 - 16) = r7\nr2 = r10\nr2 += -16\nr3 = r2\nr1 = map[sums] ll\nr4 = 0\ncall map_update_elem\nr0 = 5"
            .to_owned(),
    };
    format!("{code}\nr7 ^= r0\nr7 *= 31\nr7 += {}\n", rng.below(1 << 20))
}

/// A program of several pieces with jumps between them, that ends in `verdict`.
fn text(pieces: &[String], jumps: &[Option<(usize, usize)>], verdict: Verdict) -> String {
    let mut text = "
        r9 = r1
        r6 = *(u32 *)(r1 + 0)
        r3 = *(u32 *)(r1 + 4)
        r2 = r6
        r2 += 14
        if r2 > r3 goto short
        r7 = *(u64 *)(r6 + 0)
        r8 = 3
"
    .to_owned();
    for (at, (piece, jump)) in pieces.iter().zip(jumps).enumerate() {
        write!(text, "at{at}:\n{piece}").expect("text");
        match *jump {
            Some((to, bits)) if to > at => write!(text, "r1 = r7\nr1 &= {bits}\nif r1 == 0 goto at{to}\n"),
            Some((to, _)) => write!(text, "r8 += -1\nif r8 s> 0 goto at{to}\n"),
            None => Ok(()),
        }
        .expect("text");
    }
    let end = pieces.len();
    write!(text, "at{end}:\n*(u64 *)(r6 + 0) = r7\nr0 = {}\nexit\nshort:\nr0 = 1\nexit\n", verdict.number())
        .expect("text");
    text
}

fn program(text: &str) -> Program {
    let head = format!(
        ".program random
.license \"GPL\"
.map ports devmap key 4 value 4 entries {PORTS}
.map sums hash key 4 value 8 entries 64
"
    );
    asm::program("random.bpf", &(head + text)).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// The interpreter on a rewritten program: the record is written and read as part of the state.
struct Rewritten {
    interp: Interpreter,
    ports: u32,
}

impl Rewritten {
    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Outcome {
        let mut state = self.interp.snapshot().expect("state");
        if !state.maps.contains_key(RECORD_MAP) {
            // Nothing was rewritten.
            return self.interp.process(packet, choices).expect("runs");
        }
        let record = Record::new(packet.port, choices);
        // Tables and logs follow the record and stay.
        let memory = state.maps.get_mut(RECORD_MAP).and_then(|map| map.get_mut(&vec![0; 4])).expect("a record");
        memory[..RECORD_BYTES].copy_from_slice(&record.0);
        self.interp.restore(&state).expect("fits");
        // Only the time and random values of the record may be visible.
        let other = Choices { now_ns: 1, random: [2; 8], cpu: 3 };
        let unseen = Packet { port: Port(4), ..*packet };
        let mut outcome = self.interp.process(&unseen, &other).expect("runs");
        let state = self.interp.snapshot().expect("state");
        let bytes: [u8; RECORD_BYTES] = *state.maps[RECORD_MAP][&vec![0; 4]].first_chunk().expect("record");
        match (outcome.verdict, Record(bytes).redirect()) {
            (Verdict::Pass | Verdict::Tx, _) => outcome.outputs[0].port = packet.port,
            // The interpreter sees no redirect in a rewritten program; other verdicts compare the bytes.
            (Verdict::Aborted, Some(Redirect::To(port))) if all_ports().is_bound(port) => {
                outcome = Outcome::sent(Verdict::Redirect, port, Vec::new());
            }
            (Verdict::Aborted, Some(Redirect::All { map: 0, but_ingress })) => {
                outcome = Outcome::without_output(Verdict::Redirect);
                let ports = (0..self.ports).map(Port).filter(|port| !but_ingress || *port != packet.port);
                outcome.outputs.extend(ports.map(|port| flowloom_engine::Output { port, bytes: Vec::new() }));
            }
            _ => {}
        }
        outcome
    }

    fn state(&mut self) -> Snapshot {
        let mut state = self.interp.snapshot().expect("state");
        state.maps.remove(RECORD_MAP);
        state
    }
}

fn interpreter(program: &Program) -> Interpreter {
    let mut interp = Interpreter::new(Arc::new(program.clone())).unwrap_or_else(|error| panic!("{error}"));
    interp.bind_ports(&all_ports());
    interp
}

fn all_ports() -> Ports {
    Ports::bound((0..PORT_COUNT).map(Port))
}

fn ports(outcome: &Outcome) -> (Verdict, Vec<Port>) {
    (outcome.verdict, outcome.outputs.iter().map(|output| output.port).collect())
}

#[test]
fn rewritten_programs_behave_as_before() {
    let with_kernel = match KernelEngine::available() {
        Ok(()) => true,
        Err(reason) => {
            eprintln!("SKIP rewritten_programs_behave_as_before (the part in the kernel): {reason}");
            false
        }
    };
    let mut rng = Rng::from_env(20);
    let mut generated = GeneratedProgram::default();
    for number in 0..PROGRAMS {
        let pieces: Vec<String> = (0..2 + rng.below(9)).map(|_| piece(&mut rng, &mut generated)).collect();
        let jumps: Vec<Option<(usize, usize)>> = (0..pieces.len())
            .map(|at| {
                let to = rng.below(pieces.len() + 1);
                generated.forward += usize::from(to > at);
                generated.backward += usize::from(to <= at);
                rng.chance(1, 2).then_some((to, 1 + rng.below(7)))
            })
            .collect();
        let seed = rng.next_u64();
        for verdict in [Verdict::Pass, Verdict::Tx, Verdict::Redirect] {
            let text = text(&pieces, &jumps, verdict);
            let program = program(&text);
            let mut interp = interpreter(&program);
            let rewritten = rewrite(&program).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let mut rewritten = Rewritten { interp: interpreter(&rewritten.program), ports: PORTS };
            let mut kernel = with_kernel.then(|| {
                let mut kernel =
                    KernelEngine::load(&program).unwrap_or_else(|error| panic!("program {number}: {error}\n{text}"));
                kernel.bind_ports(&all_ports());
                kernel
            });
            for index in 0..PACKETS as u64 {
                let bytes = Rng::new(seed ^ index).bytes(if index == 3 { 13 } else { 60 });
                let packet = Packet { bytes: &bytes, port: Port(index as u32 % 4) };
                let choices = Choices { cpu: 9, ..Choices::seeded(seed >> 1, seed, index) };
                let expected = interp.process(&packet, &choices).expect("runs");
                let found = rewritten.process(&packet, &choices);
                if verdict == Verdict::Redirect {
                    assert_eq!(ports(&found), ports(&expected), "program {number}, packet {index}\n{text}");
                    generated.redirects += usize::from(expected.outputs.len() == 1);
                    generated.broadcasts += usize::from(expected.outputs.len() > 1);
                    generated.refused_redirects += usize::from(expected.outputs.is_empty());
                } else {
                    assert_eq!(found, expected, "program {number}, packet {index}\n{text}");
                }
                if let Some(kernel) = kernel.as_mut().filter(|kernel| kernel.refuses(&packet).is_none()) {
                    let found = kernel.process(&packet, &choices).expect("runs");
                    assert_eq!(found, expected, "kernel, program {number}, packet {index}\n{text}");
                }
            }
            let expected = interp.snapshot().expect("state");
            assert_eq!(rewritten.state(), expected, "program {number}\n{text}");
            if let Some(kernel) = &mut kernel {
                assert_eq!(kernel.snapshot().expect("state"), expected, "kernel, program {number}\n{text}");
            }
        }
    }
    eprintln!("{PROGRAMS} programs, 3 verdicts, {PACKETS} packets each: {generated:?}");
    assert!(generated.calls.len() == 8 && generated.calls.values().all(|count| *count >= 100), "{generated:?}");
    assert!(
        generated.forward.min(generated.backward).min(generated.redirects).min(generated.broadcasts) >= 100,
        "{generated:?}"
    );
    assert!(generated.refused_redirects >= 100, "{generated:?}");
}
