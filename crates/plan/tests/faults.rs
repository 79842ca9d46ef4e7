// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults planted in sound plans: each is found by the checker, under its own name.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

mod common;

use common::{classical, on_packet, planned};
use flowloom_ir::{Effect, Id, Input, Kind, Touch};
use flowloom_isa::MapKind;
use flowloom_isa::insn::helper;
use flowloom_isa::op::AtomicOp;
use flowloom_plan::{Action, Fault, Moment, OmittedCall, Options, Plan, Scheme, Step, check};
use flowloom_testkit::Clang;

/// A fault: its name, the plan, how it is planted, and the fault that names it.
type Injection = (&'static str, &'static str, fn(&mut Plan), fn(&Fault) -> bool);

macro_rules! is {
    ($fault:ident) => {
        |fault| matches!(fault, Fault::$fault { .. })
    };
}

#[rustfmt::skip]
const INJECTIONS: &[Injection] = &[
    ("a hold one cycle too short", "schedule", |plan| plan.maps[0].hold_cycles -= 1, is!(ShortHold)),
    ("a window of a flush one cycle too short", "flush", |plan| plan.maps[0].hold_cycles -= 1, is!(ShortHold)),
    ("a scheduler after the first read", "schedule", |plan| plan.maps[0].read_stage += 1, is!(Unguarded)),
    ("a restart stage after the first read", "flush", |plan| *plan.maps[0].restart_stage.as_mut().unwrap() += 1, is!(Unguarded)),
    ("scheme none for a written map", "atomic", |plan| plan.maps[0].scheme = Scheme::None, is!(NoScheme)),
    ("a write of an atomic map a stage late", "atomic", |plan| move_commits(plan, 1), is!(NotAtomic)),
    ("a commit a stage early", "schedule", |plan| move_commits(plan, -1), is!(EarlyEffect)),
    ("an effect before the end of its flush region", "region", |plan| { let id = first(plan, Touch::Lookup, "recent"); *plan.schedule.commits.get_mut(&id).unwrap() -= 1; }, is!(Repeated)),
    ("two effects of a region swapped", "flush", |plan| { let id = plan.maps[0].uses.stores[0]; *plan.schedule.commits.get_mut(&id).unwrap() += 1; plan.schedule.stages += 1; }, is!(Order)),
    ("a write before the last reader", "flush", |plan| { let at = begins(plan, plan.maps[0].uses.loads[0]); for id in plan.maps[0].uses.stores.clone() { plan.schedule.commits.insert(id, at - 1); } }, is!(LateRead)),
    ("an insertion that commits during a lookup", "presence", |plan| { let last = plan.maps[0].uses.lookups.iter().map(|id| begins(plan, *id)).max().unwrap(); for id in plan.maps[0].uses.writes().collect::<Vec<_>>() { plan.schedule.commits.insert(id, last + 2); } }, is!(LateRead)),
    ("a lookup a stage early", "schedule", |plan| { let id = plan.maps[0].uses.lookups[0]; span(plan, id).begins.stage -= 1; }, is!(TooEarly)),
    ("a lookup result a stage early", "schedule", |plan| { let id = plan.maps[0].uses.lookups[0]; span(plan, id).ends.stage -= 1; }, is!(TooFast)),
    ("an update result a stage early", "answers", |plan| { let id = plan.maps[0].uses.entries[0]; span(plan, id).ends.stage -= 1; }, is!(TooFast)),
    ("an operand read before it is computed", "atomic", |plan| { let id = plan.dataflow.graph.ids().rev().find(|id| plan.is_operation(*id)).unwrap(); span(plan, id).begins = Moment::start(0); }, is!(TooEarly)),
    ("a chain of target over the budget", "atomic", |plan| { let id = plan.dataflow.graph.ids().rev().find(|id| plan.is_operation(*id)).unwrap(); span(plan, id).ends.depth = 51; }, is!(TooDeep)),
    ("stages of half the budget", "atomic", |plan| plan.options.target.stage /= 2, is!(TooDeep)),
    ("forwarding without a mux", "atomic", |plan| { let id = plan.maps[0].uses.loads[0]; span(plan, id).begins.depth = 0; }, is!(Forwarding)),
    ("a length check a stage early", "length", |plan| { let id = *plan.window.checks.iter().max_by_key(|(_, stage)| **stage).unwrap().0; span(plan, id).begins.stage -= 1; }, is!(EarlyWord)),
    ("a byte before its word", "length", |plan| { let id = byte(plan, 90); *span(plan, id) = Default::default(); }, is!(EarlyWord)),
    ("the exact length before the last word", "exact", |plan| plan.window.length = flowloom_plan::Length::Checked, is!(Length)),
    ("a window too small", "length", |plan| plan.window.bytes = 64, is!(Window)),
    ("a stage missing", "atomic", |plan| plan.schedule.stages -= 1, is!(Stages)),
    ("a missing access", "atomic", |plan| plan.maps[0].uses.loads.clear(), is!(Missing)),
    ("a missing map", "atomic", |plan| plan.maps.clear(), is!(Missing)),
    ("a duplicate map", "atomic", |plan| { let map = plan.maps[0].clone(); plan.maps.push(map); }, is!(Twice)),
    ("one scheduler for several keys", "entries", |plan| (plan.maps[0].scheme, plan.maps[0].queues) = (Scheme::Schedule, 1), is!(Keys)),
    ("several queues after an update that does not commute", "two", |plan| plan.maps[1].queues = 8, is!(Overtaking)),
    ("the stage of the last write too early", "flush", |plan| *plan.maps[0].write_stage.as_mut().unwrap() -= 1, is!(WriteStage)),
    ("an effect without a commit", "flush", |plan| { let id = plan.maps[0].uses.stores[0]; plan.schedule.commits.remove(&id); }, is!(Missing)),
    ("an omitted call that has an effect", "atomic", |plan| plan.omitted.push(OmittedCall { insn: 0, helper: helper::MAP_UPDATE_ELEM }), is!(Omitted)),
    ("a random number before it is known which one it is", "random", |plan| { let id = draws(plan)[1]; *span(plan, id) = Default::default(); }, is!(TooEarly)),
    ("a result that ignores an earlier write of the packet", "answers", |plan| { let id = plan.maps[0].uses.entries[1]; let at = begins(plan, plan.maps[0].uses.entries[0]); span(plan, id).begins.stage = at; }, is!(OwnWrite)),
    ("a result that comes when the change commits", "slice", |plan| plan.schedule.steps.clear(), is!(EarlyAnswer)),
    ("a change before its entry is found", "slice", |plan| { let id = plan.maps[0].uses.entries[0]; *plan.schedule.steps.get_mut(&id).unwrap() -= 1; }, is!(Step)),
    ("a change before an earlier one of the packet", "slice", |plan| { let [first, then] = plan.maps[0].uses.entries[..] else { panic!() }; let at = plan.schedule.steps[&then]; plan.schedule.steps.insert(first, at + 1); plan.schedule.commits.insert(first, at + 1); }, is!(Step)),
    ("a change after its commit", "slice", |plan| { let id = plan.maps[0].uses.entries[1]; *plan.schedule.steps.get_mut(&id).unwrap() = plan.schedule.commits[&id] + 1; }, is!(Step)),
    ("a state slice of several stages without a scheduler", "slice", |plan| plan.maps[0].scheme = Scheme::Flush, is!(Step)),
    ("partial arrays of a map whose values are read", "atomic", |plan| plan.maps[0].parts = plan.maps[0].uses.lookups.len() as u32 + 1, is!(Parts)),
    ("a partial array too few", "sums", |plan| plan.maps[0].parts -= 1, is!(Parts)),
    ("a write where earlier packets may still run again", "alone", |plan| { let at = plan.replay.as_ref().unwrap().first_stage; let id = plan.maps[0].uses.writes().next().unwrap(); plan.schedule.commits.insert(id, at); }, is!(Undecided)),
    ("a decision before its condition", "alone", |plan| { let replay = plan.replay.as_mut().unwrap(); replay.decided_stage = replay.first_stage; }, is!(Undecided)),
    ("a lookup before the queue", "alone", |plan| plan.replay.as_mut().unwrap().first_stage += 1, is!(BeforeQueue)),
    ("packets that run alone with a port for others", "alone", |plan| { let when = plan.dataflow.graph.node(plan.maps[0].uses.writes().next().unwrap()).args[0]; plan.replay.as_mut().unwrap().alone = when; }, is!(NotAlone)),
    ("a write of packets that may run alone", "alone", |plan| { let when = plan.dataflow.graph.node(plan.maps[0].uses.writes().next().unwrap()).args[0]; plan.replay.as_mut().unwrap().alone = when; }, is!(MayRunAlone)),
    ("a lookup across the queue", "alone", |plan| { let id = plan.maps[0].uses.lookups[0]; let queue = plan.replay.as_ref().unwrap().first_stage; span(plan, id).begins.stage = queue - 1; }, is!(AcrossQueue)),
    ("a stage too few for the operands of a step", "alone", |plan| { let id = plan.replay.as_ref().unwrap().steps[0].call; let when = plan.dataflow.graph.node(id).args[0]; let at = plan.schedule.stages; plan.schedule.spans[when.index()].ends.stage = at; }, is!(Stages)),
    ("an access of packets that run alone without a step", "alone", |plan| drop(steps(plan).pop()), is!(StepCount)),
    ("a write of packets that run alone without a step", "steps", |plan| steps(plan).last_mut().unwrap().writes.truncate(1), is!(StepCount)),
    ("a write made twice", "steps", |plan| { let writes = &mut steps(plan).last_mut().unwrap().writes; writes.push(writes[0]); }, is!(StepCount)),
    ("a step made twice", "steps", |plan| { let step = steps(plan)[0].clone(); steps(plan).insert(0, step); }, is!(StepCount)),
    ("steps in the reverse order", "steps", |plan| steps(plan).reverse(), is!(StepOrder)),
    ("two calls of packets that run alone swapped", "steps", |plan| steps(plan).swap(0, 1), is!(StepOrder)),
    ("a write before other steps", "steps", |plan| steps(plan).rotate_right(1), is!(StepOrder)),
    ("two writes of one value swapped", "steps", |plan| steps(plan).last_mut().unwrap().writes.reverse(), is!(StepOrder)),
    ("a step of another map", "steps", |plan| steps(plan)[0].map += 1, is!(StepAccess)),
    ("a step with another action", "steps", |plan| steps(plan)[0].action = Action::Change, is!(StepAccess)),
    ("a write of an entry that another step looks up", "steps", |plan| { let call = steps(plan)[1].call; steps(plan).last_mut().unwrap().call = call; }, is!(StepAccess)),
    ("an atomic operation whose old value is returned", "steps", |plan| plant_atomic(plan, AtomicOp::Add { fetch: true }), is!(StepAccess)),
    ("an exchange as a step", "steps", |plan| plant_atomic(plan, AtomicOp::Xchg), is!(StepAccess)),
    ("steps of a map that remembers use", "steps", |plan| plan.dataflow.maps[0].kind = MapKind::LruHash, is!(StepAccess)),
    ("a write in the packet of an insertion", "steps", |plan| { let insert = first(plan, Touch::Update, "limits"); let write = steps(plan).last().unwrap().writes[0]; let mut node = plan.dataflow.graph.node(insert).clone(); node.args[0] = plan.dataflow.graph.node(write).args[0]; plan.dataflow.graph.replace(insert, node); }, is!(StepInsertion)),
    ("a map with steps that is not named", "steps", |plan| plan.replay.as_mut().unwrap().maps.clear(), is!(StepMap)),
    ("a lookup through a port that is not named", "steps", |plan| plan.replay.as_mut().unwrap().first_lookups.clear(), is!(Port)),
    ("a port with a second key", "steps", |plan| { let look = steps(plan).remove(0).call; let replay = plan.replay.as_mut().unwrap(); replay.accesses.remove(&look); replay.first_lookups.insert(look); }, is!(Keys)),
    ("one stage for several keys", "entries", |plan| plan.maps[0].scheme = Scheme::Atomic, is!(Keys)),
    ("partial arrays without a scheme of one stage", "sums", |plan| { plan.maps[0].scheme = Scheme::Flush; plan.maps[0].restart_stage = Some(0); }, is!(Parts)),
];

fn steps(plan: &mut Plan) -> &mut Vec<Step> {
    &mut plan.replay.as_mut().unwrap().steps
}

/// Makes the first write of packets that run alone an atomic operation.
fn plant_atomic(plan: &mut Plan, op: AtomicOp) {
    let write = steps(plan).last().unwrap().writes[0];
    let mut node = plan.dataflow.graph.node(write).clone();
    let Kind::Effect(Effect::Store(size)) = node.kind else { panic!("not a store: {:?}", node.kind) };
    node.kind = Kind::Effect(Effect::Atomic(op, size));
    plan.dataflow.graph.replace(write, node);
}

/// The random numbers of a plan.
fn draws(plan: &Plan) -> Vec<Id> {
    let is_draw = |id: &Id| plan.dataflow.access(*id).is_some_and(|access| access.touch == Touch::Random);
    plan.dataflow.graph.ids().filter(is_draw).collect()
}

fn begins(plan: &Plan, id: Id) -> u32 {
    plan.schedule.spans[id.index()].begins.stage
}

fn span(plan: &mut Plan, id: Id) -> &mut flowloom_plan::Span {
    &mut plan.schedule.spans[id.index()]
}

fn move_commits(plan: &mut Plan, by: i32) {
    for commit in plan.schedule.commits.values_mut() {
        *commit = commit.saturating_add_signed(by);
    }
    plan.schedule.stages = plan.schedule.stages.saturating_add_signed(by.max(0));
}

fn byte(plan: &Plan, at: u16) -> Id {
    plan.dataflow.graph.ids().find(|id| plan.dataflow.graph.node(*id).kind == Kind::Input(Input::Byte(at))).unwrap()
}

fn first(plan: &Plan, touch: Touch, map: &str) -> Id {
    let is_it = |id: &Id| {
        plan.dataflow.access(*id).is_some_and(|access| {
            let name = access.map.map(|map| plan.dataflow.maps[map as usize].name.as_str());
            access.touch == touch && name == Some(map)
        })
    };
    plan.dataflow.graph.ids().find(is_it).unwrap()
}

/// A call whose key is computed from the word of the packet at `at`.
fn call(map: &str, at: u32, helper: u32) -> String {
    format!(
        "r1 = *(u32 *)(r6 + {at})\nr1 += 3\n*(u32 *)(r10 - 4) = r1\nr1 = map[{map}] ll\nr2 = r10\nr2 += -4\nr3 = r10\nr3 += -16\nr4 = 0\n\
         call {helper}\n"
    )
}

/// The sound plans in which faults are planted, by name.
fn plans(clang: &Clang) -> Vec<(&'static str, Plan)> {
    let bucket = classical(clang).iter().find(|program| program.name == "leaky_bucket").unwrap();
    let by = |map: &str, scheme| Options { schemes: [(map.to_owned(), scheme)].into(), ..Options::default() };
    let hash = "limits hash key 4 value 8 entries 16";
    let found = "*(u64 *)(r10 - 16) = 7\nr1 = *(u32 *)(r6 + 4)\n*(u32 *)(r10 - 4) = r1\nr1 = map[limits] ll\nr2 = r10\nr2 += -4\n\
                 call 1\nif r0 == 0 goto pass\n";
    let entries = format!(
        "{found}r9 = *(u64 *)(r0 + 0)\n{}*(u64 *)(r6 + 8) = r9\n",
        call("limits", 0, helper::MAP_UPDATE_ELEM as u32)
    );
    // An entry with 0 makes another one, by another key.
    let alone = format!(
        "{found}r9 = *(u64 *)(r0 + 0)\nif r9 == 0 goto more\nr9 += 1\n*(u64 *)(r0 + 0) = r9\ngoto pass\nmore: {}",
        call("limits", 0, helper::MAP_UPDATE_ELEM as u32)
    );
    // The other entry is looked up, changed where it is there, and inserted where not.
    let steps = format!(
        "{found}r9 = *(u64 *)(r0 + 0)\nif r9 == 0 goto more\nr9 += 1\n*(u64 *)(r0 + 0) = r9\ngoto pass\nmore: {}\
         if r0 == 0 goto insert\nr1 = *(u32 *)(r6 + 12)\n*(u32 *)(r0 + 0) = r1\nr2 = *(u32 *)(r6 + 16)\n*(u32 *)(r0 + 4) = r2\n\
         {}goto pass\ninsert: {}",
        call("limits", 0, 1),
        call("limits", 8, 3),
        call("limits", 0, helper::MAP_UPDATE_ELEM as u32)
    );
    // Only the presence of the entry matters: no load waits for the lookup.
    let presence = format!("{found}{}r0 = 1\ngoto out\n", call("limits", 0, helper::MAP_UPDATE_ELEM as u32));
    let answers = format!("*(u64 *)(r10 - 16) = 7\n{}{}", call("limits", 0, 3), call("limits", 4, 2))
        + "*(u32 *)(r6 + 16) = r0\nif r0 == 0 goto pass\n"
        + &call("limits", 8, 3);
    // What the deletion gives decides about an insertion of the same key.
    let delete = call("limits", 0, 3);
    let again = "r7 = r0\n*(u32 *)(r6 + 16) = r7\nif r7 != 0 goto pass\n";
    let late = "r8 = *(u64 *)(r6 + 32)\nr8 *= r8\nr8 *= r8\n*(u64 *)(r10 - 16) = r8\n";
    let slice = format!("{delete}{again}{late}{}{again}", call("limits", 0, 2));
    let added = "if r0 == 0 goto pass\nr1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\n";
    let sums = [0, 4, 8].map(|at| call("sums", at, 1) + added).concat();
    let two = call("first", 0, 1)
        + "if r0 == 0 goto pass\nr7 = *(u64 *)(r0 + 0)\nr1 = *(u32 *)(r6 + 0)\n*(u64 *)(r0 + 0) = r1\n*(u32 *)(r10 - 4) = r7\n\
           r1 = map[second] ll\nr2 = r10\nr2 += -4\ncall 1\nif r0 == 0 goto pass\n*(u64 *)(r0 + 0) = r7\n";
    // An LRU map that is only read notes its use inside of the region of another map.
    let region = call("limits", 0, 1)
        + "if r0 == 0 goto pass\nr8 = *(u64 *)(r0 + 0)\n*(u64 *)(r10 - 24) = r0\n"
        + &call("recent", 8, 1)
        + "r1 = *(u64 *)(r10 - 24)\nr8 *= 77\nr8 *= r8\n*(u64 *)(r1 + 0) = r8\nif r0 == 0 goto pass\nr2 = *(u64 *)(r0 + 0)\n\
           *(u64 *)(r6 + 16) = r2\n";
    let maps = [hash, "recent lru_hash key 4 value 8 entries 64"];
    let pair = ["first hash key 4 value 8 entries 16", "second hash key 4 value 8 entries 16"];
    // The first number is drawn where an entry is found, the second one in any case.
    let random = call("limits", 0, 1)
        + "r7 = 0\nif r0 == 0 goto again\ncall 7\nr7 = r0\nagain: call 7\nr7 += r0\n*(u32 *)(r6 + 16) = r7\n";
    let length = "r1 = *(u8 *)(r6 + 90)\n*(u8 *)(r6 + 0) = r1";
    let exact = "r2 -= r6\n*(u16 *)(r6 + 0) = r2";
    vec![
        ("schedule", planned(bucket, &by("buckets", Scheme::Schedule))),
        ("flush", planned(bucket, &by("buckets", Scheme::Flush))),
        ("atomic", planned(bucket, &by("buckets", Scheme::Atomic))),
        ("entries", planned(&on_packet("entries", 100, &[hash], &entries), &by("limits", Scheme::Flush))),
        ("keys", planned(&on_packet("keys", 100, &[hash], &entries), &Options::default())),
        ("presence", planned(&on_packet("presence", 100, &[hash], &presence), &by("limits", Scheme::Flush))),
        ("answers", planned(&on_packet("answers", 100, &[hash], &answers), &by("limits", Scheme::Flush))),
        ("alone", planned(&on_packet("alone", 100, &[hash], &alone), &Options::default())),
        ("steps", planned(&on_packet("steps", 100, &[hash], &steps), &Options::default())),
        ("slice", planned(&on_packet("slice", 100, &[hash], &slice), &by("limits", Scheme::Schedule))),
        (
            "sums",
            planned(&on_packet("sums", 100, &["sums array key 4 value 8 entries 16"], &sums), &Options::default()),
        ),
        ("two", planned(&on_packet("two", 100, &pair, &two), &by("second", Scheme::Schedule))),
        ("region", planned(&on_packet("region", 100, &maps, &region), &by("limits", Scheme::Flush))),
        ("random", planned(&on_packet("random", 100, &[hash], &random), &Options::default())),
        ("length", planned(&on_packet("length", 100, &[], length), &Options::default())),
        ("exact", planned(&on_packet("exact", 100, &[], exact), &Options::default())),
    ]
}

/// Each planted fault is found by its name, and the plan without it has none.
#[test]
fn the_checker_names_each_injected_fault() {
    let Some(clang) = Clang::find("the_checker_names_each_injected_fault") else { return };
    let plans = plans(&clang);
    for (name, plan) in &plans {
        assert_eq!(check(plan), [], "{name}");
    }
    let mut missed = Vec::new();
    for (name, of, plant, is_it) in INJECTIONS {
        let mut plan = plans.iter().find(|(name, _)| name == of).unwrap().1.clone();
        plant(&mut plan);
        let faults = check(&plan);
        match faults.iter().find(|fault| is_it(fault)) {
            Some(fault) => eprintln!("{name} ({of}): {fault}"),
            None => missed.push(format!("{name} ({of}): {faults:?}")),
        }
    }
    assert!(missed.is_empty(), "{} of {} are not found:\n{}", missed.len(), INJECTIONS.len(), missed.join("\n"));
    assert!(INJECTIONS.len() >= 20);
}

/// The first random number of a packet does not wait for the branch to it; the second one waits for that branch.
#[test]
fn random_numbers_wait_for_those_before_them() {
    let Some(clang) = Clang::find("random_numbers_wait_for_those_before_them") else { return };
    let plan = plans(&clang).into_iter().find(|(name, _)| *name == "random").unwrap().1;
    let found = plan.maps[0].uses.lookups.iter().map(|id| plan.schedule.spans[id.index()].ends).max().unwrap();
    let [first, second] = draws(&plan)[..] else { panic!("not two numbers") };
    assert_eq!(plan.schedule.spans[first.index()].ends, Moment::default());
    assert!(plan.schedule.spans[second.index()].begins >= found, "the lookup decides whether it is the second one");
}

/// All effects inside of a flush region commit in its last stage, of other maps too.
#[test]
fn effects_of_other_maps_commit_at_the_end_of_a_flush_region() {
    let Some(clang) = Clang::find("effects_of_other_maps_commit_at_the_end_of_a_flush_region") else { return };
    let (_, plan) = plans(&clang).into_iter().find(|(name, _)| *name == "region").unwrap();
    let recency = plan.schedule.commits[&first(&plan, Touch::Lookup, "recent")];
    let map = plan.maps.iter().find(|map| map.name == "limits").unwrap();
    assert_eq!(Some(recency), map.write_stage);
}
