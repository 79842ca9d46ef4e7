// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A small program before and after each pass: `golden/PASS.txt`. `FLOWLOOM_BLESS=1` writes the texts anew.
//!
//! Nodes have the names of their operations, numbered in the order of the graph; constants are `value:bits`. The number
//! in brackets is the width of a node in bits.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../ir/tests/translation/mod.rs"]
mod translation;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use flowloom_ir::{Binary, Dataflow, Effect, Id, Input, Kind};
use flowloom_isa::op::Size;
use flowloom_plan::{PASSES, Pass, Target};
use flowloom_testkit::{Rng, golden};
use translation::{built, first_difference, nodes, program, reads_first};

const MAPS: [&str; 2] = ["values array key 4 value 16 entries 4", "flows hash key 4 value 8 entries 16"];

/// A lookup of `values` by a byte of the packet; `none` follows where there is no entry.
const LOOKUP: &str = "r1 = *(u8 *)(r7 + 1)\nr1 &= 3\n*(u32 *)(r10 - 4) = r1\nr1 = map[values] ll\nr2 = r10\nr2 += -4\ncall 1\n\
                      if r0 == 0 goto none\nr9 = r0\n";

struct Example {
    pass: &'static str,
    body: String,
    /// The passes that run before.
    first: &'static [&'static str],
    /// A change of the dataflow before the pass.
    prepare: fn(&mut Dataflow),
}

fn examples() -> Vec<Example> {
    // The first two passes run before the others, as in the pipeline.
    let of = |pass, body: &str| {
        let first: &[&str] = if matches!(pass, "dead-code" | "one-hot-offsets") { &[] } else { &["one-hot-offsets"] };
        Example { pass, body: body.to_owned(), first, prepare: |_| () }
    };
    let key = "*(u32 *)(r10 - 4) = r1\nr2 = r10\nr2 += -4\n";
    vec![
        Example {
            prepare: unused,
            ..of("dead-code", &format!("{LOOKUP}r1 = *(u8 *)(r9 + 0)\n*(u8 *)(r7 + 8) = r1\nnone: r0 = 2\n"))
        },
        of(
            "one-hot-offsets",
            "r3 = *(u8 *)(r7 + 0)\nr3 &= 1\nr3 <<= 2\nr3 += r7\nr4 = r3\nr4 += 70\nif r4 > r8 goto out\n\
             r5 = *(u8 *)(r3 + 20)\nif r5 != 6 goto out\nr0 = 2\n",
        ),
        of(
            "reassociation",
            "r1 = *(u32 *)(r7 + 0)\nr2 = *(u32 *)(r7 + 4)\nr3 = *(u32 *)(r7 + 8)\nr4 = *(u32 *)(r7 + 12)\nr1 += r2\nr1 += r3\n\
             r1 += r4\n*(u64 *)(r7 + 16) = r1\nr0 = 2\n",
        ),
        of(
            "known-bits",
            "r1 = *(u8 *)(r7 + 0)\nr2 = *(u8 *)(r7 + 1)\nr1 <<= 8\nr1 |= r2\nr1 += 1\nr1 &= 4095\n*(u16 *)(r7 + 2) = r1\nr0 = 2\n",
        ),
        // The other two lookups are the critical path, so that the select of the key costs no time.
        of(
            "lookup-merging",
            &format!(
                "r1 = *(u8 *)(r7 + 2)\nr1 &= 1\nif r1 == 0 goto other\nr1 = *(u8 *)(r7 + 3)\n{key}r1 = map[values] ll\ncall 1\n\
                 goto met\nother: r1 = *(u8 *)(r7 + 4)\n{key}r1 = map[values] ll\ncall 1\nmet: r9 = 1\nif r0 == 0 goto then\n\
                 r9 = 2\nthen: r1 = *(u8 *)(r7 + 1)\n{key}r1 = map[flows] ll\ncall 1\nif r0 == 0 goto none\n\
                 r1 = *(u8 *)(r0 + 0)\n{key}r1 = map[flows] ll\ncall 1\nif r0 == 0 goto none\nr9 = 3\nnone: r0 = r9\n"
            ),
        ),
        of(
            "atomic-adds",
            &format!(
                "{LOOKUP}r1 = *(u64 *)(r9 + 8)\nr2 = *(u8 *)(r7 + 2)\nr1 += r2\n*(u64 *)(r9 + 8) = r1\nnone: r0 = 2\n"
            ),
        ),
        of(
            "store-forwarding",
            &format!(
                "{LOOKUP}r1 = *(u8 *)(r7 + 2)\n*(u8 *)(r9 + 0) = r1\nr2 = *(u8 *)(r7 + 3)\nr2 &= 1\nr2 += r9\nr3 = *(u8 *)(r2 + 0)\n\
                 *(u8 *)(r7 + 8) = r3\nr1 = *(u8 *)(r7 + 4)\n{key}*(u64 *)(r10 - 16) = 7\nr3 = r10\nr3 += -16\nr4 = 0\n\
                 r1 = map[flows] ll\ncall 2\nr1 = *(u8 *)(r7 + 5)\n{key}r1 = map[flows] ll\ncall 1\nif r0 == 0 goto none\n\
                 r1 = *(u8 *)(r0 + 0)\n*(u8 *)(r7 + 9) = r1\nnone: r0 = 2\n"
            ),
        ),
        // The predicate of the first lookup of `values`, by which the key is chosen, waits for the lookup of `flows`.
        Example {
            first: &["one-hot-offsets", "lookup-merging"],
            ..of(
                "early-keys",
                &format!(
                    "r1 = *(u8 *)(r7 + 2)\nr1 &= 1\nif r1 == 0 goto other\nr1 = *(u8 *)(r7 + 1)\n{key}r1 = map[flows] ll\ncall 1\n\
                     if r0 == 0 goto none\nr1 = *(u8 *)(r7 + 3)\nr1 &= 3\n{key}r1 = map[values] ll\ncall 1\ngoto met\n\
                     other: r1 = *(u8 *)(r7 + 4)\nr1 &= 3\n{key}r1 = map[values] ll\ncall 1\nmet: if r0 == 0 goto none\n\
                     *(u8 *)(r0 + 0) = 3\nnone: r0 = 2\n"
                ),
            )
        },
        of(
            "speculation",
            &format!(
                "r1 = *(u8 *)(r7 + 0)\nif r1 > 99 goto none\n{LOOKUP}r1 = *(u8 *)(r9 + 0)\n*(u8 *)(r7 + 8) = r1\n*(u8 *)(r9 + 1) = 3\n\
                 none: r0 = 2\n"
            ),
        ),
        of(
            "rewriting",
            "r1 = *(u16 *)(r7 + 0)\nr1 = be16 r1\nr1 <<= 4\nr2 = *(u8 *)(r7 + 2)\nr2 &= 15\nr1 |= r2\n*(u32 *)(r7 + 8) = r1\n\
             if r2 > 7 goto out\nr0 = 2\n",
        ),
        Example {
            first: &["one-hot-offsets", "known-bits", "speculation"],
            ..of(
                "late-bits",
                &format!(
                    "r3 = *(u8 *)(r7 + 2)\n*(u64 *)(r10 - 16) = r3\n{LOOKUP}r3 = *(u64 *)(r10 - 16)\nr1 = *(u8 *)(r9 + 0)\nr1 &= 1\n\
                     r1 <<= 8\nr1 |= r3\nr0 = 1\nif r1 == 263 goto out\nnone: r0 = 2\n"
                ),
            )
        },
        Example {
            first: &["one-hot-offsets", "reassociation", "known-bits", "speculation", "rewriting"],
            ..of(
                "shannon-expansion",
                &format!(
                    "r3 = *(u8 *)(r7 + 2)\nr4 = *(u8 *)(r7 + 3)\nr5 = *(u8 *)(r7 + 4)\n*(u64 *)(r10 - 16) = r3\n\
                     *(u64 *)(r10 - 24) = r4\n*(u64 *)(r10 - 32) = r5\n{LOOKUP}r3 = *(u64 *)(r10 - 16)\nr4 = *(u64 *)(r10 - 24)\n\
                     r5 = *(u64 *)(r10 - 32)\nr1 = *(u64 *)(r9 + 0)\nr0 = 2\nif r1 == 7 goto late\nif r3 > 9 goto set\ngoto next\n\
                     late: if r4 > 9 goto set\nnext: if r5 > 9 goto out\nif r4 > 99 goto set\ngoto out\nset: r0 = 3\nif r3 > 99 goto out\n\
                     r0 = 1\ngoto out\nnone: r0 = 2\n"
                ),
            )
        },
    ]
}

/// Adds an adder and a load that nothing uses.
fn unused(flow: &mut Dataflow) {
    let load = nodes(flow, |kind| matches!(kind, Kind::Effect(Effect::Load(_))))[0];
    let args = flow.graph.node(load).args.clone();
    let value = flow.graph.effect(Effect::Load(Size::B), args, 8);
    flow.graph.binary(Binary::Add, value, load);
}

/// Dataflow as text with a name for each node.
struct Names<'a> {
    flow: &'a Dataflow,
    names: BTreeMap<Id, String>,
    counts: BTreeMap<String, usize>,
}

impl Names<'_> {
    /// The names in place of the ids of a line.
    fn named(&self, line: &str) -> String {
        let word = |word: &str| {
            let (id, colon) = word.strip_suffix(':').map_or((word, ""), |id| (id, ":"));
            let number = id.strip_prefix('v').and_then(|number| number.parse().ok());
            let name = number.and_then(|number| self.names.get(&Id::new(number)));
            name.map_or_else(|| word.to_owned(), |name| format!("{name}{colon}"))
        };
        line.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// The line of a node; none for a constant or an input.
    fn node(&mut self, id: Id, what: &str) -> Option<String> {
        let node = self.flow.graph.node(id);
        let mut what = what.to_owned();
        match node.kind {
            Kind::Const(value) => {
                self.names.insert(id, format!("{value}:{}", node.bits));
                return None;
            }
            Kind::Input(_) => {
                self.names.insert(id, what.replace(' ', ""));
                return None;
            }
            Kind::Effect(Effect::Call { pattern, .. }) => {
                let helper = flowloom_isa::helpers::name_of(self.flow.patterns[usize::from(pattern)].helper).unwrap();
                what = what.replacen(&format!("call {pattern}"), helper, 1);
            }
            _ => {}
        }
        let line = self.named(&what);
        let word = what.split(' ').next().unwrap().to_owned();
        let count = self.counts.entry(word.clone()).or_default();
        *count += 1;
        let name = format!("{word}.{count}");
        let line = format!("{name} [{}] = {line}", node.bits);
        self.names.insert(id, name);
        Some(line)
    }
}

/// The used nodes of a dataflow, or all of them, and its outputs.
fn rendered(flow: &Dataflow, is_whole: bool) -> String {
    let used: BTreeSet<Id> = if is_whole { flow.graph.ids().collect() } else { flow.used() };
    let mut names = Names { flow, names: BTreeMap::new(), counts: BTreeMap::new() };
    let mut text = String::new();
    for line in flow.to_string().lines() {
        let first = line.split(' ').next().unwrap();
        let id = first.strip_prefix('v').and_then(|number| number.parse().ok()).map(Id::new);
        let line = match id {
            Some(id) if used.contains(&id) => {
                // Without the id, the width and the instruction.
                let what = line.splitn(4, ' ').nth(3).unwrap();
                names.node(id, what)
            }
            Some(_) => None,
            None if matches!(first, "program" | "map" | "call") => None,
            None => Some(names.named(line)),
        };
        line.into_iter().for_each(|line| writeln!(text, "    {line}").unwrap());
    }
    text
}

fn pass(name: &str) -> &'static Pass {
    PASSES.iter().find(|pass| pass.name == name).unwrap_or_else(|| panic!("no pass `{name}`"))
}

/// Each pass does to its program what its file shows, and both forms do the same to packets.
#[test]
fn each_pass_changes_its_program_as_shown() {
    let seed = Rng::from_env(1).next_u64();
    let (examples, target) = (examples(), Target::default());
    for example in &examples {
        let program = program(&example.pass.replace('-', "_"), &MAPS, &example.body);
        let mut before = built(&program);
        for name in example.first {
            before = pass(name).apply(&before, &target);
        }
        (example.prepare)(&mut before);
        let own = pass(example.pass);
        let after = own.apply(&before, &target);
        let order = if own.name == "store-forwarding" { reads_first(&after) } else { after.graph.ids().collect() };
        assert_eq!(first_difference(&program, &before, (&after, order), seed), None, "{}", own.name);
        let is_whole = own.name == "dead-code";
        let [before, after] = [&before, &after].map(|flow| rendered(flow, is_whole));
        assert_ne!(before, after, "{}", own.name);
        let body: String = example.body.lines().map(|line| format!("    {}\n", line.trim())).collect();
        let text = format!("{}: {}\n\nprogram\n{body}\nbefore\n{before}\nafter\n{after}", own.name, own.does);
        golden(format!("tests/golden/{}.txt", own.name), &text);
    }
    let shown: BTreeSet<&str> = examples.iter().map(|example| example.pass).collect();
    let all: BTreeSet<&str> = PASSES.iter().map(|pass| pass.name).collect();
    assert_eq!(shown, all, "each pass has an example");
}

/// A pass that breaks an invariant is stopped, with its name and the invariant.
#[test]
#[cfg(debug_assertions)]
fn a_broken_pass_is_named() {
    let program = program("guarded", &MAPS, "r0 = *(u8 *)(r7 + 1)\n");
    let broken = Pass {
        name: "broken",
        does: "makes the verdict a byte",
        run: |dataflow, _| {
            let mut broken = dataflow.clone();
            broken.ending.verdict = nodes(&broken, |kind| matches!(kind, Kind::Input(Input::Byte(_))))[0];
            broken
        },
    };
    let stopped = std::panic::catch_unwind(|| broken.apply(&built(&program), &Target::default())).unwrap_err();
    let message = stopped.downcast_ref::<String>().unwrap();
    assert_eq!(message, "pass `broken` breaks program `guarded`: output `verdict` has 8 bits, expected 32");
}
