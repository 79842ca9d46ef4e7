// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What has dataflow and no block in hardware is refused, with its place and a way out.
#![allow(clippy::unwrap_used, clippy::panic)]

use flowloom_ir::{Effect, Kind, Touch};
use flowloom_isa::{MapDef, MapKind, Program, Sibling, asm};
use flowloom_plan::{Fault, Options, Plan, Reason, Refusal, check, plan};
use flowloom_report::Explanation;
use flowloom_verifier::{Proof, verify};

/// A map whose keys and values have 4 bytes.
fn map(name: &str, kind: MapKind, max_entries: u32) -> MapDef {
    MapDef { name: name.into(), kind, key_bytes: 4, value_bytes: 4, max_entries, ..MapDef::default() }
}

fn assembled(text: &str) -> Program {
    asm::program("asks.bpf", text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn proof(program: &Program) -> Proof {
    verify(program, &flowloom_verifier::Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(program: &Program) -> Box<Refusal> {
    plan(program, &proof(program), &Options::default()).map(|plan| plan.schedule.stages).unwrap_err()
}

/// An XDP program on these maps, and the other programs of its object.
fn xdp(name: &str, text: &str, maps: Vec<MapDef>, siblings: &[(&str, &str)]) -> Program {
    let section = "xdp".to_owned();
    let assembled = |text: &str| asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}"));
    let sibling = |(name, text): &(&str, &str)| Sibling {
        name: (*name).into(),
        section: section.clone(),
        insns: assembled(text),
        lines: Vec::new(),
    };
    let (insns, siblings) = (assembled(text), siblings.iter().map(sibling).collect());
    Program { name: name.into(), section, insns, maps, siblings, ..Program::default() }
}

/// Reason and message of the refusal of an XDP program on these maps.
fn refused(text: &str, maps: Vec<MapDef>) -> (Reason, String) {
    let text = format!("r6 = r1\n{text}\nout: r0 = 2\nexit");
    let refusal = refusal(&xdp("asks", &text, maps, &[("other", "r0 = 1\nexit")]));
    (refusal.reason.clone(), refusal.to_string())
}

#[test]
fn calls_without_a_hardware_block_are_refused() {
    let inner = Some(Box::new(map("inner", MapKind::Array, 2)));
    let outer = MapDef { inner, ..map("outer", MapKind::ArrayOfMaps, 2) };
    let lookup = "*(u32 *)(r10 - 4) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem";
    let query = "r1 = map[0] ll\nr2 = 0\ncall ringbuf_query";
    let print =
        "*(u64 *)(r10 - 8) = 0x41\nr1 = r10\nr1 += -8\nr2 = 2\ncall trace_printk\nif r0 == 2 goto out\nr0 = 1\nexit";
    let cpu = "*(u32 *)(r10 - 4) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\nr3 = 1\ncall map_lookup_percpu_elem\nif r0 == 0 goto out\n\
               r0 = *(u32 *)(r0 + 0)\nr0 &= 1\nexit";
    let tail = "r2 = -4\ncall xdp_adjust_tail\nr1 = r6\nr2 = 8\ncall xdp_adjust_tail";
    for (text, maps, why, words) in [
        (
            query,
            vec![MapDef { key_bytes: 0, value_bytes: 0, ..map("ring", MapKind::RingBuf, 4096) }],
            Reason::Helper("ringbuf_query".into()),
            "instruction 4: no hardware block for `ringbuf_query`; leave",
        ),
        (lookup, vec![outer], Reason::MapOfMaps("outer".into()), "no hardware block for map of maps `outer`; use"),
        (
            cpu,
            vec![map("counts", MapKind::PerCpuArray, 2)],
            Reason::OtherCpu("counts".into()),
            "the value of another CPU is looked up in map `counts`; a pipeline is one CPU, number 0; look",
        ),
        (
            &format!("{lookup}\nif r0 == 0 goto out\nr0 = 1\nexit"),
            vec![map("ports", MapKind::Devmap, 2)],
            Reason::PortLookup("ports".into()),
            "no hardware block looks up entries of map of ports `ports`, only redirects; call",
        ),
        (tail, vec![], Reason::CutTwice, "the packet's end is moved twice, expected at most once; call"),
        (
            print,
            vec![],
            Reason::TraceResult("trace_printk".into()),
            "instruction 5: the result of `trace_printk` is used, but hardware omits the call; do not use",
        ),
    ] {
        let (found, said) = refused(text, maps);
        assert_eq!(found, why, "{said}");
        assert!(said.starts_with("program `asks`, instruction ") && said.contains(words), "{said}");
    }
}

fn explained(program: &Program) -> (Plan, Explanation) {
    let plan = plan(program, &proof(program), &Options::default()).unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(check(&plan), []);
    let explanation = Explanation::of(program, &plan);
    (plan, explanation)
}

/// A lookup whose map differs by path, as clang merges it.
const TWO: &str = ".program two\n.map tcp hash key 4 value 8 entries 64\n.map udp hash key 4 value 8 entries 64\n\
    r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 34\nif r4 > r3 goto pass\nr4 = *(u32 *)(r2 + 26)\n\
    *(u32 *)(r10 - 4) = r4\nr4 = *(u8 *)(r2 + 23)\nr1 = map[tcp] ll\nif r4 == 6 goto find\nr1 = map[udp] ll\n\
    find: r2 = r10\nr2 += -4\ncall map_lookup_elem\nif r0 == 0 goto pass\nr1 = *(u64 *)(r0 + 0)\nr1 += 1\n\
    *(u64 *)(r0 + 0) = r1\nr0 = 1\nexit\npass: r0 = 2\nexit\n";

#[test]
fn each_candidate_map_of_a_lookup_is_accessed_separately() {
    let (plan, _) = explained(&assembled(TWO));
    let names: Vec<&str> = plan.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["tcp", "udp"]);
    for map in &plan.maps {
        assert_eq!(map.uses.lookups.len(), 1, "{}", map.name);
        assert!(map.write_stage.is_some(), "{}", map.name);
    }
}

/// A record of a ring buffer that is reserved, written and submitted or discarded; `MORE` stands before it is given back.
const RESERVED: &str = ".program reserves\n.map ring ringbuf key 0 value 0 entries 4096\nr6 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r6\n\
    r4 += 34\nif r4 > r3 goto out\nr1 = map[ring] ll\nr2 = 16\nr3 = 0\ncall ringbuf_reserve\nif r0 == 0 goto out\nr7 = r0\n\
    r1 = *(u32 *)(r6 + 26)\n*(u32 *)(r7 + 0) = r1\nr4 = *(u8 *)(r6 + 23)\nif r4 != 6 goto other\n*(u32 *)(r7 + 4) = 6\nother: MORE\nr1 = r7\n\
    r2 = 0\nr4 = *(u8 *)(r6 + 23)\nif r4 == 17 goto drop\ncall ringbuf_submit\ngoto out\ndrop: call ringbuf_discard\nout: r0 = 2\nexit\n";

#[test]
fn a_reserved_record_is_emitted_on_submission() {
    let (plan, explanation) = explained(&assembled(&RESERVED.replace("MORE\n", "")));
    // No map to keep consistent: the record is private to the packet.
    assert!(plan.maps.is_empty() && plan.regions.is_empty(), "{:?}", plan.maps);
    let graph = &plan.dataflow.graph;
    let is_memory = |kind: Kind| matches!(kind, Kind::Effect(Effect::Load(_) | Effect::Store(_)));
    assert!(graph.ids().all(|id| !is_memory(graph.node(id).kind)), "its bytes are values");
    let [ring] = explanation.maps.as_slice() else { panic!("{:?}", explanation.maps) };
    assert_eq!((ring.name.as_str(), ring.kind.as_str(), ring.hazard), ("ring", "ringbuf", "none"));
    assert_eq!(ring.reason, "carries records in packet order");
    // The host or another packet may take the room; the record leaves in the last stage.
    let commit = |touch: Touch| {
        let own = graph.ids().filter(|id| plan.dataflow.access(*id).is_some_and(|access| access.touch == touch));
        own.map(|id| plan.schedule.commits[&id]).collect::<Vec<u32>>()
    };
    let last = plan.schedule.stages - 1;
    assert_eq!(commit(Touch::Emit), [last, last]);
    assert!(commit(Touch::Reserve)[0] < last);
}

#[test]
fn unsupported_ring_buffer_accesses_are_refused() {
    let output = "r1 = map[ring] ll\n*(u64 *)(r10 - 8) = 1\nr2 = r10\nr2 += -8\nr3 = 8\nr4 = 0\ncall ringbuf_output";
    for (more, why, words) in [
        ("r1 = *(u32 *)(r7 + 8)", Reason::OldRecord("ring".into()), "read before it is written; write all"),
        ("r1 = *(u32 *)(r7 + 4)", Reason::OldRecord("ring".into()), "read before it is written; write all"),
        (output, Reason::RingOutputs("ring".into()), "by `ringbuf_reserve` and `ringbuf_output`, expected one"),
    ] {
        let refusal = refusal(&assembled(&RESERVED.replace("MORE", more)));
        assert_eq!(refusal.reason, why, "{more}");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
}

#[test]
fn too_many_candidate_maps_are_refused() {
    let count = 17;
    let maps: String = (0..count).map(|n| format!(".map m{n} array key 4 value 8 entries 2\n")).collect();
    let choices: String = (1..count).map(|n| format!("if r4 == {n} goto c{n}\n")).collect();
    let arms: String = (1..count).map(|n| format!("c{n}: r1 = map[m{n}] ll\ngoto find\n")).collect();
    let text = format!(
        ".program many\n{maps}r2 = *(u32 *)(r1 + 0)\nr3 = *(u32 *)(r1 + 4)\nr4 = r2\nr4 += 14\nif r4 > r3 goto pass\n\
         r4 = *(u8 *)(r2 + 0)\n*(u32 *)(r10 - 4) = 0\n{choices}r1 = map[m0] ll\ngoto find\n{arms}find: r2 = r10\nr2 += -4\n\
         call map_lookup_elem\npass: r0 = 2\nexit\n"
    );
    let refusal = refusal(&assembled(&text));
    assert!(refusal.to_string().contains("any of 17 maps, expected at most 16"), "{refusal}");
}

#[test]
fn printing_is_omitted_with_a_note() {
    let text = ".program prints\n.license \"GPL\"\n*(u64 *)(r10 - 8) = 0x41\nr6 = r1\nr1 = r10\nr1 += -8\nr2 = 2\nr3 = r6\n\
        call trace_printk\nr0 = 2\nexit\n";
    let (plan, explanation) = explained(&assembled(text));
    assert_eq!(plan.omitted.len(), 1);
    assert!(explanation.notes[0].starts_with("1 call of trace_printk is omitted in hardware: "), "{explanation:?}");
    assert!(explanation.text(false).contains("note: 1 call of trace_printk"), "{}", explanation.text(false));
    assert!(explanation.html().contains("1 call of trace_printk"));
    assert!(plan.dataflow.traces().next().is_none());
}

/// Routes are looked up in a block of their own, whose answer is needed for the verdict.
#[test]
fn routes_come_from_a_table_that_the_host_fills() {
    let zeros: String = (1..=8).map(|slot| format!("*(u64 *)(r10 - {}) = 0\n", 8 * slot)).collect();
    let text = format!(
        ".program routes\n.license \"GPL\"\n{zeros}*(u8 *)(r10 - 64) = 2\nr2 = r10\nr2 += -64\nr3 = 64\nr4 = 0\ncall fib_lookup\n\
         if r0 != 0 goto pass\nr0 = 1\nexit\npass: r0 = 2\nexit\n"
    );
    let (mut plan, explanation) = explained(&assembled(&text));
    assert!(plan.schedule.stages >= plan.options.target.route_stages, "{}", plan.schedule.stages);
    let note = "fib_lookup: the host fills the table of routes and neighbours; ";
    assert!(explanation.notes[0].starts_with(note), "{:?}", explanation.notes);
    // The checker finds a block that answers too soon.
    let graph = &plan.dataflow.graph;
    let call = graph.ids().find(|id| matches!(graph.node(*id).kind, Kind::Effect(_))).unwrap();
    plan.schedule.spans[call.index()].ends = plan.schedule.spans[call.index()].begins;
    assert!(check(&plan).contains(&Fault::TooFast { node: call.index() }), "{:?}", check(&plan));
}

fn calls_on(name: &str, siblings: &[(&str, &str)]) -> Program {
    calls_by(name, "r2 = map[0] ll\nr3 = 0\ncall tail_call\nr0 = 2\nexit", siblings)
}

/// A program that makes tail calls by the tables `jumps` and `leaps`.
fn calls_by(name: &str, text: &str, siblings: &[(&str, &str)]) -> Program {
    xdp(name, text, ["jumps", "leaps"].map(|name| map(name, MapKind::ProgArray, 4)).to_vec(), siblings)
}

/// Two tail calls that clang merges into one, as it does lookups.
#[test]
fn each_candidate_program_array_is_looked_up_separately() {
    let text = "r7 = *(u32 *)(r1 + 0)\nr8 = *(u32 *)(r1 + 4)\nr3 = r7\nr3 += 14\nif r3 > r8 goto out\nr4 = *(u8 *)(r7 + 12)\nr3 = 0\n\
        r2 = map[0] ll\nif r4 == 8 goto call\nr2 = map[1] ll\ncall: call tail_call\nout: r0 = 2\nexit";
    let (plan, explanation) = explained(&calls_by("by_family", text, &[("drops", "r0 = 1\nexit")]));
    let names: Vec<&str> = explanation.maps.iter().map(|map| map.name.as_str()).collect();
    assert_eq!(names, ["jumps", "leaps"]);
    for map in &explanation.maps {
        assert_eq!((map.hazard, map.users.len()), ("none", 1), "{}", map.name);
    }
    assert_eq!(plan.dataflow.graph.ids().filter(|id| plan.dataflow.access(*id).is_some()).count(), 2);
}

#[test]
fn tail_calls_are_planned_or_refused() {
    let (_, explanation) = explained(&calls_on("goes_on", &[("drops", "r0 = 1\nexit")]));
    let note = "tail_call: the host fills the table of programs: 0 means none, and the caller continues, 1 `drops`; instruction 3";
    assert_eq!(explanation.notes, [note]);
    // Two programs that may call each other in any order, 33 times: all sequences of a length meet.
    let start = "r6 = r1\nr7 = *(u32 *)(r1 + 0)\nr8 = *(u32 *)(r1 + 4)\nr3 = r7\nr3 += 34\nif r3 > r8 goto out\nr3 = *(u8 *)(r7 + 20)\n\
        if r3 == 17 goto out\n";
    let again = format!("{start}r2 = map[0] ll\nr3 = 1\ncall tail_call\nr0 = 1\nexit\nout: r0 = 2\nexit");
    let (plan, explanation) = explained(&calls_on("in_turn", &[("one", &again), ("other", &again)]));
    let lookups = plan.dataflow.graph.ids().filter(|id| plan.dataflow.access(*id).is_some()).count();
    // The first call, and one of each program for each further call.
    assert!(lookups > 33 && lookups <= 1 + 2 * 33, "{lookups}");
    assert_eq!(explanation.maps[0].users.len(), lookups);
    // From a function each sequence returns by itself.
    let again =
        format!("{start}r1 = r6\ncall f\nout: r0 = 2\nexit\nf: r2 = map[0] ll\nr3 = 1\ncall tail_call\nr0 = 0\nexit");
    let refusal = refusal(&calls_by("in_turn", &again, &[("one", &again), ("other", &again)])).to_string();
    assert!(refusal.contains("a tail call may lead to any of 2 programs of the object"), "{refusal}");
    assert!(refusal.contains("; make tail calls outside of functions, "), "{refusal}");
}
