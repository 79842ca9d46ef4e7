// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The dataflow of a program has the same effects as the interpreter.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common;
use crate::dataflow_corpus;

use flowloom_engine::Port;
use flowloom_ir::Reason;
use flowloom_isa::{Program, asm};
use flowloom_testkit::{Clang, Rng};
use flowloom_verify::Arrival;
use flowloom_wire::Question;
use flowloom_wire::graph::{Header, Scope};

use common::shipped::shipped;
use dataflow_corpus::linux::fitted;
use dataflow_corpus::programs::{case, classical, explored, lowered};
use dataflow_corpus::{Forms, Subject, after_every_pass, agree, behind_all_passes, mechanisms, packets, random};

/// Number of cases that an exploration tries.
const TRIES: u64 = 20_000;
/// Percentage of a program's slots that they must reach.
const ENOUGH: usize = 80;
/// Maximum number of an exploration's cases that run on each form of a dataflow; the long test runs all.
const CASES: usize = 12;
/// Programs with fewer slots are compared after every pass, longer ones after all passes only; the long test compares
/// all after every pass.
const SHORT: usize = 200;
/// Number of packets of each kind for a lowered function.
const PACKETS: usize = 24;
/// Number of random programs; the long test runs 10,000.
const RANDOM: u64 = 200;

#[test]
fn classical_programs_are_their_dataflow() {
    let Some(clang) = Clang::find("classical_programs_are_their_dataflow") else { return };
    let programs = classical(&clang, "-mcpu=v2");
    assert!(programs.len() >= 14, "{}", programs.len());
    let seed = Rng::from_env(1);
    for program in programs {
        let (mut cases, percent) = explored(&program, &mut seed.clone(), TRIES, ENOUGH);
        let step = cases.len().div_ceil(CASES);
        cases = cases.into_iter().step_by(step).collect();
        let subject = Subject { program, cases, sweep_ns: None, routes: None };
        let forms: &Forms = if subject.program.insns.len() < SHORT { &after_every_pass } else { &behind_all_passes };
        let agreed = agree(&subject, forms).unwrap_or_else(|refusal| panic!("{refusal}"));
        let (program, nodes) = (&subject.program, agreed.nodes);
        eprintln!("{}: {percent}% of {} slots, {nodes} nodes", program.name, program.insns.len());
        assert!(percent >= ENOUGH, "{}: too little was reached", program.name);
    }
}

#[test]
fn lowered_functions_are_their_dataflow() {
    let seed = Rng::from_env(1);
    let functions = shipped();
    assert!(functions.len() > 20, "{}", functions.len());
    for function in functions {
        // The long test runs all parameter sets.
        for variant in function.variants.iter().take(1) {
            let subject = lowered(variant, &mut seed.clone(), PACKETS);
            let agreed = agree(&subject, &behind_all_passes).unwrap_or_else(|refusal| panic!("{refusal}"));
            let (slots, nodes, took) = (subject.program.insns.len(), agreed.nodes, agreed.took);
            eprintln!("{} ({}): {slots} slots, {nodes} nodes, {took:.1?}", function.name, variant.params);
        }
    }
}

/// The answers of the parser to all questions about all headers, on frames with labels, tunnels, extension headers and
/// options, and on short ones.
#[test]
fn answers_of_the_parser_are_their_dataflow() {
    let sets = Header::ALL.map(Header::bit);
    let mut questions = vec![Question::Valid(u32::MAX), Question::Offset(u32::MAX)];
    questions.extend(sets.map(Question::Offset));
    questions.extend(sets.map(Question::Payload));
    questions.extend([Scope::Outer, Scope::Inner].map(Question::Protocol));
    let asked = questions.iter().enumerate().map(|(number, question)| {
        let question = question.encode();
        format!("r1 = r6\nr2 = {question:#x} ll\ncall fl_parse\n*(u64 *)(r7 + {}) = r0\n", 8 * number)
    });
    let text = format!(
        ".program asked\n.license \"GPL\"\n.map answers array key 4 value {} entries 1\nr6 = r1\n*(u32 *)(r10 - 4) = 0\n\
         r1 = map[answers] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\nr7 = r0\nr0 = 1\nif r7 == 0 goto out\n{}\
         r0 = 2\nout: exit\n",
        8 * questions.len(),
        asked.collect::<String>()
    );
    let program = asm::program("asked", &text).unwrap_or_else(|errors| panic!("{errors}"));
    let mut rng = Rng::from_env(1);
    let frames = ["gtpu_offload", "conntrack", "paxos_acceptor"].map(|name| {
        let function = common::shipped::function(name, &[]);
        common::shipped::made(&function, rng.next_u64(), 300)
    });
    let others = [packets::made(&mut rng, 100), packets::short(&mut rng, 61)];
    // The state, which has all answers, is compared in the end: each packet is a case of its own.
    let all = frames.into_iter().flatten().chain(others.into_iter().flatten());
    let cases = all.map(|packet| case(vec![packet], &mut Rng::new(1))).collect();
    let subject = Subject { program, cases, sweep_ns: None, routes: None };
    let agreed = agree(&subject, &|dataflow| vec![("as built".to_owned(), dataflow)]);
    let agreed = agreed.unwrap_or_else(|refusal| panic!("{refusal}"));
    assert!(agreed.packets > 1000, "{agreed:?}");
}

/// Assembles a program with 64 bytes of packet at `r7`; `check r3` adds a bounds check for 24 bytes at `r3`.
fn behind_check(text: &str) -> Program {
    let check = |line: &str| match line.strip_prefix("check ") {
        Some(register) => format!("r2 = {register}\nr2 += 24\nif r2 > r8 goto out\n"),
        None => format!("{line}\n"),
    };
    let text: String = text.lines().map(check).collect();
    let text = format!(
        "r6 = r1\nr7 = *(u32 *)(r1 + 0)\nr8 = *(u32 *)(r1 + 4)\nr2 = r7\nr2 += 64\nif r2 > r8 goto out\n{text}\
         out: r0 = 2\nexit"
    );
    let insns = asm::assemble(&text, &[]).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    Program { name: "behind_check".into(), section: "xdp".into(), insns, ..Program::default() }
}

#[test]
fn what_is_written_at_one_offset_is_read_at_another() {
    for text in [
        // Two bases that may be equal.
        "r3 = *(u8 *)(r7 + 0)\nr3 &= 15\nr3 += r7\ncheck r3\nr4 = *(u8 *)(r7 + 1)\nr4 &= 15\nr4 += r7\ncheck r4\nr5 = 0x1122334455667788 ll\n\
         *(u32 *)(r3 + 4) = r5\nr1 = *(u64 *)(r4 + 2)\n*(u64 *)(r4 + 9) = r1\nr1 = *(u64 *)(r3 + 7)\n*(u64 *)(r7 + 20) = r1\n\
         r1 = *(u16 *)(r4 + 11)\n*(u16 *)(r7 + 50) = r1",
        // One base is another plus a multiple of four.
        "r3 = *(u8 *)(r7 + 0)\nr3 &= 7\nr3 += r7\ncheck r3\nr4 = *(u8 *)(r7 + 1)\nr4 &= 7\nr4 <<= 2\nr4 += r3\ncheck r4\n*(u16 *)(r3 + 13) = 0x4142\n\
         *(u8 *)(r7 + 17) = 0x43\nr1 = *(u32 *)(r4 + 8)\n*(u32 *)(r4 + 14) = r1\nr1 = *(u64 *)(r3 + 16)\n*(u64 *)(r7 + 48) = r1",
        // On one path only, and on both.
        "r3 = *(u8 *)(r7 + 0)\nr3 &= 15\nr3 += r7\ncheck r3\nr4 = *(u8 *)(r7 + 1)\nr4 &= 15\nr4 += r7\ncheck r4\nr5 = *(u8 *)(r7 + 2)\n\
         if r5 > 7 goto other\n*(u32 *)(r3 + 3) = 0x01020304\n*(u16 *)(r7 + 9) = 0x1111\ngoto met\n\
         other: *(u16 *)(r4 + 5) = 0x0506\n*(u8 *)(r3 + 4) = 7\nmet: r1 = *(u64 *)(r4 + 4)\n*(u64 *)(r7 + 40) = r1\n\
         r1 = *(u64 *)(r7 + 6)\n*(u64 *)(r7 + 48) = r1",
        // Difference of two addresses, by their lower halves.
        "w3 = w8\nw3 -= w7\nr5 = *(u8 *)(r7 + 2)\nif r5 > 7 goto half\nw4 = w7\ngoto met\nhalf: w4 = w8\nmet: w4 -= w7\nr3 += r4\n\
         *(u32 *)(r7 + 20) = r3",
        // An address selected by the path, and its offset in the packet.
        "r3 = r7\nr5 = *(u8 *)(r7 + 2)\nif r5 > 3 goto one\nr3 += 4\nif r5 > 1 goto one\nr3 += 4\n\
         one: r4 = r3\nr4 -= r7\nr4 &= 0x7fff\nr3 = r7\nr3 += r4\ncheck r3\nr1 = *(u32 *)(r3 + 6)\n*(u32 *)(r3 + 12) = r1\n\
         r1 = *(u64 *)(r7 + 12)\n*(u64 *)(r7 + 40) = r1",
    ] {
        let mut rng = Rng::from_env(5);
        let cases = vec![case(packets::small_numbers(&mut rng, 2000), &mut rng)];
        let subject = Subject { program: behind_check(text), cases, sweep_ns: None, routes: None };
        let agreed = agree(&subject, &after_every_pass).unwrap_or_else(|refusal| panic!("{refusal}\n{text}"));
        assert!(agreed.packets > 2000, "{}", agreed.packets);
    }
}

#[test]
fn every_mechanism_is_its_dataflow() {
    let seed = Rng::from_env(7);
    for program in mechanisms::programs() {
        let mut rng = seed.clone();
        let (mut cases, percent) = explored(&program, &mut rng, 2000, 100);
        assert!(percent >= 95, "{}: {percent}% was reached", program.name);
        // They start with the map contents of the first case.
        let mut more = case(packets::small_numbers(&mut rng, 600), &mut rng);
        more.packets.extend(packets::short(&mut rng, 61));
        more.state = cases.first().map(|case| case.state.clone()).unwrap_or_default();
        cases.push(more);
        let routes = fitted::routes(&program);
        let subject = Subject { program, cases, sweep_ns: None, routes };
        let agreed = agree(&subject, &after_every_pass).unwrap_or_else(|refusal| panic!("{refusal}"));
        eprintln!("{}: {percent}%, {} nodes, {} packets", subject.program.name, agreed.nodes, agreed.packets);
    }
}

#[test]
fn random_programs_are_their_dataflow() {
    let seed = Rng::from_env(1).next_u64();
    let mut packets = 0;
    for number in 0..RANDOM {
        let subject = random::subject(random::Kind::Sound, seed, number);
        let agreed = agree(&subject, &after_every_pass).unwrap_or_else(|refusal| panic!("{refusal}"));
        packets += agreed.packets;
    }
    let mut refused = 0;
    for number in 0..RANDOM / 2 {
        match agree(&random::subject(random::Kind::Mutant, seed, number), &after_every_pass) {
            Ok(agreed) => packets += agreed.packets,
            // Hardware has no numeric values of addresses.
            Err(refusal) => {
                let is_meant = matches!(
                    refusal.reason,
                    Reason::AddressAsNumber
                        | Reason::SpillOffset
                        | Reason::Unbounded
                        | Reason::TooLong(_)
                        | Reason::TwoEntries(..)
                );
                assert!(is_meant, "{refusal}");
                refused += 1;
            }
        }
    }
    assert!(refused < RANDOM / 10, "{refused}");
    assert!(packets > 10 * RANDOM, "{packets}");
}

/// Extension headers: up to three headers of 8 bytes plus a length from the second byte, then one that is copied.
const HEADERS: &str = "r9 = r7\nr9 += 4\nr6 = 0\n\
    next: r2 = r9\nr2 += 8\nif r2 > r8 goto out\nr3 = *(u8 *)(r9 + 1)\nr3 += 1\nr3 <<= 3\nr2 = r9\nr2 += r3\nif r2 > r8 goto out\n\
    r4 = *(u8 *)(r9 + 0)\nr5 = r2\nr5 -= r7\nr5 &= 0x7fff\nr9 = r7\nr9 += r5\nif r4 != 1 goto last\nr6 += 1\nif r6 < 3 goto next\ngoto out\n\
    last: r2 = r9\nr2 += 6\nif r2 > r8 goto out\nr1 = *(u32 *)(r9 + 1)\n*(u32 *)(r7 + 40) = r1\nr1 = *(u16 *)(r9 + 4)\nif r1 == 7 goto out\n\
    *(u16 *)(r7 + 50) = r1";

#[test]
fn headers_of_various_lengths_are_found_by_their_place() {
    let mut rng = Rng::from_env(6);
    let packet = |number: usize, rng: &mut Rng| {
        let mut bytes: Vec<u8> = (0..64 + rng.below(200)).map(|_| rng.below(3) as u8).collect();
        // Some headers are long.
        bytes[5] = [0, 1, 2, 6, 12, 16][rng.below(6)];
        Arrival { time_ns: number as u64, port: Port(0), bytes }
    };
    let packets = (0..4000).map(|number| packet(number, &mut rng)).collect();
    let cases = vec![case(packets, &mut rng)];
    let subject = Subject { program: behind_check(HEADERS), cases, sweep_ns: None, routes: None };
    let agreed = agree(&subject, &after_every_pass).unwrap_or_else(|refusal| panic!("{refusal}"));
    // Some accesses are beyond the window; most are not.
    assert!((20..1000).contains(&agreed.slow), "{}", agreed.slow);
}

/// Two offsets set on both paths of one branch: their selectors share some of their bits.
const TWO_OFFSETS: &str = "r5 = *(u8 *)(r7 + 0)\nr4 = *(u8 *)(r7 + 1)\nr4 &= 7\nr4 <<= 1\nr4 += 18\nr3 = *(u8 *)(r7 + 2)\nr3 &= 7\nr3 <<= 2\nr3 += 4\n\
    if r5 > 3 goto a\nr4 = 14\nr3 = 2\na: r3 += r7\nr2 = r3\nr2 += 24\nif r2 > r8 goto out\nr9 = *(u8 *)(r3 + 2)\n";

#[test]
fn offsets_that_one_branch_sets_are_told_apart() {
    let load = "r7 += r4\nr2 = r7\nr2 += 1\nif r2 > r8 goto out\nr1 = *(u8 *)(r7 + 0)\n";
    for rest in [
        // The byte selected at one offset is added to that at the other, compared with it, and added to the other
        // offset.
        format!("{load}r1 += r9\nr0 = r1\nexit"),
        format!("{load}r0 = 1\nif r1 == r9 goto out\nexit"),
        format!("r9 &= 3\nr4 += r9\n{load}r0 = r1\nexit"),
    ] {
        let mut rng = Rng::from_env(8);
        let cases = vec![case(packets::small_numbers(&mut rng, 2000), &mut rng)];
        let program = behind_check(&format!("{TWO_OFFSETS}{rest}"));
        let subject = Subject { program, cases, sweep_ns: None, routes: None };
        let agreed = agree(&subject, &after_every_pass).unwrap_or_else(|refusal| panic!("{refusal}\n{rest}"));
        assert!(agreed.packets > 2000, "{}", agreed.packets);
    }
}
