// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random programs: what the verifier takes is safe on the interpreter, and what it leaves out of its walk would have
//! said nothing new.

use std::sync::Arc;

use flowloom_engine::{Choices, Datapath, Packet, Port};
use flowloom_testkit::Rng;

use super::*;
use crate::walk::Walk;
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_vm::Interpreter;

/// Programs of a run, where `FLOWLOOM_COUNT` names no other number.
const PROGRAMS: usize = 2500;
/// Packets of a program.
const PACKETS: u64 = 12;
/// Instructions of a walk: of programs that take more without pruning, the walks are not compared.
const UNPRUNED: u64 = 60_000;
/// Instructions of a packet: the proof does not bound loops of `may_goto`.
const BUDGET: u64 = 50_000;
/// So many that are wrong are made shorter; the shortest is shown.
const SHRUNK: usize = 10;

fn random_program(text: &str) -> Option<Program> {
    let head = ".program f
.license \"GPL\"
.map table hash key 4 value 16 entries 4
.map array array key 4 value 16 entries 3
.map locked array key 4 value 16 entries 3
.map ring ringbuf key 0 value 0 entries 4096
";
    let mut program = asm::program("f.bpf", &format!("{head}{text}")).ok()?;
    program.maps[2].spin_lock = Some(0);
    Some(program)
}

/// What of the second is not in the first.
fn missing(pruned: &Proof, whole: &Proof) -> Option<String> {
    for (at, (pruned, whole)) in pruned.insns.iter().zip(&whole.insns).enumerate() {
        let ways = (whole.edges.jumps && !pruned.edges.jumps) || (whole.edges.falls && !pruned.edges.falls);
        if whole.reached && !pruned.reached
            || ways
            || !pruned.maps.is_superset(&whole.maps)
            || whole.reads_unwritten && !pruned.reads_unwritten
            || !whole
                .sends
                .iter()
                .all(|(what, (first, end))| pruned.sends.get(what).is_some_and(|(f, e)| f <= first && e >= end))
        {
            return Some(format!("instruction {at}: {pruned:?}, without pruning {whole:?}"));
        }
        for (memory, bytes) in &whole.memory {
            let holds = |all: &Bytes| {
                all.first <= bytes.first
                    && all.end >= bytes.end
                    && bytes.align % all.align == 0
                    && all.touch.reads >= bytes.touch.reads
                    && all.touch.writes >= bytes.touch.writes
            };
            if !pruned.memory.get(memory).is_some_and(holds) {
                return Some(format!("instruction {at}: {pruned:?}, without pruning {whole:?}"));
            }
        }
    }
    let more = whole
        .loops
        .iter()
        .find(|(head, times)| !pruned.loops.get(head).is_some_and(|most| most.is_none() || most >= *times));
    if let Some((head, times)) = more {
        return Some(format!("loop at {head}: {:?}, without pruning {times:?}", pruned.loops.get(head)));
    }
    (pruned.window() < whole.window()).then(|| format!("window {} below {}", pruned.window(), whole.window()))
}

/// What is wrong with what is said of a program, and whether it is safe.
fn judge(program: Program, rng: &mut Rng) -> Result<(bool, bool), String> {
    let Ok(code) = decoded(&program) else { return Ok((false, false)) };
    let options = Options { limit: UNPRUNED, prune: true };
    let pruned = Walk::new(&program, &code, options).run();
    let keeping = Walk::new(&program, &code, options).keeping_all().run();
    let whole = Walk::new(&program, &code, Options { limit: UNPRUNED, prune: false }).run();
    // Whether values that an iteration changes are widened depends on what was precise until then, so on the order of
    // the paths: neither walk reports all that the other does, and only runs decide.
    let has_iterations = code
        .iter()
        .flatten()
        .any(|op| matches!(op, Op::MayGoto { .. } | Op::Call { helper: helper::LOOP | helper::FOR_EACH_MAP_ELEM }));
    let mut compared = false;
    match (&pruned, &keeping, &whole) {
        _ if has_iterations => {}
        (_, _, Err(refusal)) if matches!(refusal.what, Unsafe::TooLong { .. } | Unsafe::TooManyPaths { .. }) => {}
        (Ok(one), Ok(other), Ok(whole)) => {
            compared = true;
            if let Some(what) = missing(one, whole).or_else(|| missing(other, whole)) {
                return Err(format!("not all was found: {what}"));
            }
        }
        (Err(_), Err(_), Err(_)) => compared = true,
        _ => {
            let said = |walk: &Result<Proof, Box<Refusal>>| match walk {
                Ok(_) => "taken".to_owned(),
                Err(refusal) => refusal.to_string(),
            };
            let [pruned, keeping, whole] = [&pruned, &keeping, &whole].map(said);
            return Err(format!("pruned {pruned}\nkeeping all {keeping}\nunpruned {whole}"));
        }
    }
    if pruned.is_err() || keeping.is_err() {
        return Ok((false, compared));
    }
    let interp = Interpreter::new(Arc::new(program)).map_err(|error| error.to_string())?;
    let mut interp = flowloom_proofcheck::checked(interp).with_budget(BUDGET);
    for index in 0..PACKETS {
        let len = 14 + rng.below(90);
        let mut bytes = rng.bytes(len);
        for byte in &mut bytes {
            // Small numbers lead to one another's places.
            *byte = if rng.chance(2, 3) { rng.below(9) as u8 } else { *byte };
        }
        let packet = Packet { bytes: &bytes, port: Port(rng.below(8) as u32) };
        if let Err(fault) = interp.process(&packet, &Choices::seeded(rng.next_u64(), 0, index))
            && !fault.to_string().contains("instructions for one packet")
        {
            return Err(format!("taken, and on {bytes:?}: {fault}"));
        }
    }
    Ok((true, compared))
}

/// The first lines that are still wrong with any one of them left out, and what is wrong with them.
fn shrunk(mut text: String, mut what: String, seed: &Rng) -> (String, String) {
    let mut at = 0;
    while at < text.lines().count() {
        let fewer: String =
            text.lines().enumerate().filter(|(line, _)| *line != at).map(|(_, line)| format!("{line}\n")).collect();
        match random_program(&fewer).map(|program| judge(program, &mut seed.clone())) {
            Some(Err(other)) => (text, what, at) = (fewer, other, 0),
            _ => at += 1,
        }
    }
    (text, what)
}

/// Both oracles for both ways to keep states: the walk that leaves nothing out, and the interpreter.
#[test]
#[allow(clippy::print_stderr, reason = "tests speak on stderr")]
fn random_programs() {
    let mut seeds = Rng::from_env(5);
    let count = std::env::var("FLOWLOOM_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(PROGRAMS);
    let (mut safe, mut compared, mut wrong) = (0, 0, 0);
    let mut shortest: Option<(String, String)> = None;
    for _ in 0..count {
        let mut rng = seeds.fork();
        let text = generator::text(&mut rng);
        let program = random_program(&text).unwrap_or_else(|| panic!("is no program:\n{text}"));
        let seed = rng.clone();
        match judge(program, &mut rng) {
            Ok((is_safe, is_compared)) => {
                safe += usize::from(is_safe);
                compared += usize::from(is_compared);
            }
            Err(what) => {
                wrong += 1;
                let (text, what) = if wrong <= SHRUNK { shrunk(text, what, &seed) } else { (text, what) };
                if shortest.as_ref().is_none_or(|(other, _)| other.lines().count() > text.lines().count()) {
                    shortest = Some((text, what));
                }
            }
        }
    }
    eprintln!("{count} programs: {safe} taken, {compared} compared with the unpruned walk, {wrong} wrong");
    if let Some((text, what)) = shortest {
        panic!("{what}\n{text}");
    }
    assert!(safe * 100 > count * 15, "only {safe} of {count} are safe");
}
