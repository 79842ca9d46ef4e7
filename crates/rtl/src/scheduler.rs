// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler of a core: where packets wait, in order, for the results of packets before them with the same key.
//!
//! ```text
//!   stages 0 .. S-1 ──► queue ──► stages S .. ──► slice of the map
//!                         │         ▲
//!                         └► scoreboard: keys of the packets issued in the last cycles
//! ```
//!
//! A map whose slice takes several stages shows a packet's result to packets that are issued `delay + 1` cycles later. The
//! registers before stage S are a queue instead; a packet leaves it when no scoreboard has its key. Results of blocks that
//! began before the queue and end behind it wait in queues of their own.
//!
//! Where packets access maps by several keys, the queue keeps them until it is decided that they do not run alone, and
//! stands where the plan has it (`replay`).
//!
//! A map that is asked in stage 0 has its scoreboard there; packets then wait in the framer. So do all packets, whatever
//! their keys, where no stage knows the key in time.

use std::fmt::Write as _;

use flowloom_ir::Id;
use flowloom_plan::{Plan, is_cut};

use crate::control::Wait;
use crate::map::{Block, Map, key};
use crate::may::May;
use crate::needs::{Needs, begins, block_stages, defined, is_wire};
use crate::node::{logic, signal_bits, wrapped};

/// The most logic before the comparison of a key, in tenths of a LUT level, in the stage of the queue.
const KEY_DEPTH: u32 = 10;
/// The stages between the queue and the lookups, if there is a choice.
const MAX_DISTANCE: u32 = 6;
/// The most logic before the condition under which a packet uses a map.
const USE_DEPTH: u32 = 30;

/// A scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scheduler {
    /// The stage that packets enter from the queue; 0 if they wait in the framer.
    pub(crate) stage: u32,
    /// What packets wait for.
    pub(crate) holds: Vec<Hold>,
    /// The last stage in which a block that began before the queue has its result.
    last_crossing: Option<u32>,
    /// The stage in which it is decided which packets come again from the queue, if any do.
    decided_stage: Option<u32>,
}

/// A map that packets wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hold {
    /// The index of the map in the program.
    pub(crate) map: u32,
    /// The cycles after a packet in which no other packet of the key may be issued.
    pub(crate) cycles: u32,
    /// The bytes of the key, if they are known at the queue. Otherwise every packet waits.
    pub(crate) key: Option<Vec<Id>>,
    /// Where a packet may have to do with the map.
    pub(crate) uses: May,
    key_bits: u32,
    /// Whether every packet waits while the map is nearly full, and whether none waits otherwise.
    has_tight: bool,
    is_tight_only: bool,
}

impl Hold {
    /// The same for a model of the cycles.
    pub(crate) fn wait(&self) -> Wait {
        let Hold { map, cycles, has_tight, .. } = *self;
        Wait { map, cycles, key: self.key.clone(), uses: self.uses.clone(), has_tight }
    }
}

impl Scheduler {
    /// The scheduler of a core, if a map needs one.
    pub(crate) fn of(plan: &Plan, maps: &[Map], needs: &Needs) -> Option<Scheduler> {
        let late: Vec<&Map> = maps.iter().filter(|own| own.hold_cycles(&plan.dataflow) > 0).collect();
        if let Some(replay) = &plan.replay {
            let holds = late.iter().map(|own| hold(plan, own, replay.first_stage)).collect();
            let (stage, decided_stage) = (replay.first_stage, Some(replay.decided_stage));
            return Some(Scheduler { stage, holds, last_crossing: None, decided_stage });
        }
        let limit = late.iter().map(|own| own.asked()).min()?;
        // In these stages a map that packets write is between question and result.
        let is_split = |stage: u32| {
            let written = maps.iter().filter(|own| own.slice.is_some());
            written.into_iter().any(|own| is_cut(stage, own.asked(), own.slice.map_or(0, |slice| slice.last)))
        };
        let words = needs.words(plan).max(plan.window.words());
        let possible = std::iter::once(0).chain(words..=limit).filter(|stage| !is_split(*stage));
        // A table needs a pending key for each packet between the queue and itself.
        let is_near = |stage: u32| late.iter().all(|own| own.asked() - stage <= MAX_DISTANCE);
        let keyed = |stage: u32| late.iter().filter(|own| hold(plan, own, stage).key.is_some()).count();
        let stage = possible
            .max_by_key(|stage| (keyed(*stage), is_near(*stage), std::cmp::Reverse(width(plan, needs, *stage))))?;
        let holds = late.iter().map(|own| hold(plan, own, stage)).collect();
        let last_crossing = last_crossing(plan, maps, needs, stage);
        Some(Scheduler { stage, holds, last_crossing, decided_stage: None })
    }

    /// The packets that the queue holds: those that are before it when it begins to fill, and as many to wait.
    pub(crate) fn depth(&self) -> u32 {
        // A packet that may come again stays.
        let taken = self.decided_stage.map_or(0, |decided| decided - self.stage + 2);
        if self.stage == 0 { 0 } else { (2 * (self.stage + 2) + taken).next_power_of_two().max(32) }
    }

    /// The cycles that a packet takes here besides those of the registers that the queue replaces.
    pub(crate) fn cycles(&self) -> u32 {
        u32::from(self.last_crossing.is_some())
    }

    /// The most cycles by which two packets are kept apart.
    pub(crate) fn hold_cycles(&self) -> u32 {
        self.holds.iter().map(|hold| hold.cycles + 1).max().unwrap_or(1)
    }

    /// Where packets are not issued in every cycle, as clauses that begin with semicolons.
    pub(crate) fn exceptions(&self) -> String {
        let tight = self.holds.iter().filter(|hold| hold.is_tight_only).map(|hold| hold.cycles + 1).max();
        let most = |is_keyed: bool| {
            let holds = self.holds.iter().filter(|hold| hold.key.is_some() == is_keyed && !hold.is_tight_only);
            holds.map(|hold| hold.cycles + 1).max()
        };
        let mut text = String::new();
        if let Some(cycles) = most(true) {
            _ = write!(text, "; packets with one key in a map are {cycles} cycles apart");
        }
        if self.holds.iter().any(|hold| hold.key.is_some() && hold.has_tight) {
            text.push_str(", as are all that use a map that is nearly full");
        }
        if let Some(cycles) = most(false) {
            _ = write!(text, "; packets that use a map whose key is known late are {cycles} cycles apart");
        }
        if let Some(cycles) = tight {
            _ = write!(text, "; packets that use an LRU map that is nearly full are {cycles} cycles apart");
        }
        if self.decided_stage.is_some() {
            text.push_str("; packets that access a map by further keys run alone");
        }
        text
    }

    /// Whether a block that begins and ends in these stages is cut by the queue.
    pub(crate) fn cuts(&self, begins: u32, ends: u32) -> bool {
        is_cut(self.stage, begins, ends)
    }

    /// Adds what the scoreboards need.
    pub(crate) fn add_needs(&self, plan: &Plan, needs: &mut Needs) {
        for hold in &self.holds {
            hold.key.iter().flatten().for_each(|id| needs.add(plan, *id, self.stage));
            hold.uses.add_needs(plan, self.stage, needs);
        }
    }

    /// A queue for a result that a block gives in a stage while its packet may still wait.
    pub(crate) fn late_result(&self, name: &str, to: &str, from: &str, bits: u32, stage: u32) -> String {
        let depth = self.depth() + stage - self.stage + 1;
        let count = logic(&format!("unused_count_{name}"), u32::BITS - depth.leading_zeros());
        format!(
            "  // The result waits for its packet.\n  logic late_valid_{name}, unused_ready_{name};\n  {count}\n  fl_fifo #(\n      \
             .Width({bits}),\n      .Depth({depth})\n  ) u_late_{name} (\n      .clk_i,\n      .rst_i,\n      \
             .in_valid_i(arrived_s{stage}),\n      .in_ready_o(unused_ready_{name}),\n      .in_data_i({from}),\n      \
             .out_valid_o(late_valid_{name}),\n      .out_ready_i(valid_s{stage}_q),\n      .out_data_o({to}),\n      \
             .count_o(unused_count_{name})\n  );\n`ifndef SYNTHESIS\n  a_late_{name} : assert property (@(posedge clk_i) \
             disable iff (rst_i) valid_s{stage}_q |-> late_valid_{name});\n`endif\n",
        )
    }

    /// Late results are there a cycle after a register would have had them, so the packet that waits is issued when this
    /// signal says that its own have had that cycle.
    fn ripe(&self) -> Option<String> {
        self.last_crossing?;
        let (stage, depth) = (self.stage, self.depth());
        let count = logic("unused_ripe_count", u32::BITS - depth.leading_zeros());
        Some(format!(
            "  logic ripe, unused_ripe_ready, unused_ripe;\n  {count}\n  fl_fifo #(\n      .Width(1),\n      .Depth({depth})\n  ) u_ripe \
             (\n      .clk_i,\n      .rst_i,\n      .in_valid_i(arrived_s{stage}),\n      .in_ready_o(unused_ripe_ready),\n      \
             .in_data_i(1'b1),\n      .out_valid_o(ripe),\n      .out_ready_i(valid_s{stage}_q),\n      \
             .out_data_o(unused_ripe),\n      .count_o(unused_ripe_count)\n  );\n"
        ))
    }

    /// The scoreboards, and `go`: whether the packet that waits is issued. `others` are further conditions for it.
    pub(crate) fn scoreboards(&self, signal: &dyn Fn(Id) -> String, others: &[String]) -> String {
        let (waiting, issued) = match self.stage {
            0 => ("valid_i", "valid_s0".to_owned()),
            stage => ("queue_valid", format!("valid_s{stage}_q")),
        };
        let mut text = self.ripe().unwrap_or_default();
        let mut conditions: Vec<String> = self.last_crossing.map(|_| "ripe".to_owned()).into_iter().collect();
        for hold in &self.holds {
            let name = format!("map{}", hold.map);
            let key = hold.key.as_ref().map(|bytes| bytes.iter().rev().map(|id| signal(*id)).collect::<Vec<_>>());
            let all = match (&key, hold.has_tight) {
                (None, _) => "1'b1".to_owned(),
                (_, true) => format!("{name}_tight"),
                (_, false) => "1'b0".to_owned(),
            };
            let bits = hold.key.as_ref().map_or(1, |_| hold.key_bits);
            let key = key.map_or("1'b0".to_owned(), |bytes| format!("{{{}}}", bytes.join(", ")));
            let mut uses = hold.uses.text(signal);
            if hold.is_tight_only {
                uses = format!("{uses} && {name}_tight");
            }
            _ = write!(
                text,
                "  logic {name}_conflict;\n  fl_scoreboard #(\n      .KeyBits({bits}),\n      .Cycles({})\n  ) u_{name}_scoreboard (\n      \
                 .clk_i,\n      .rst_i,\n      .uses_i({waiting} && {uses}),\n      .key_i({key}),\n      .all_i({all}),\n      \
                 .conflict_o({name}_conflict),\n      .issue_i({issued})\n  );\n",
                hold.cycles,
            );
            conditions.push(format!("!{name}_conflict"));
        }
        conditions.extend(others.iter().cloned());
        if self.decided_stage.is_some() {
            conditions.extend(["!alone".to_owned(), "!kill".to_owned()]);
        }
        let leaves = if self.decided_stage.is_some() { "leave || " } else { "" };
        _ = writeln!(text, "  assign go = {leaves}{};\n  assign {issued} = {waiting} && go;", conditions.join(" && "));
        text
    }

    /// The queue in place of the registers of its stage.
    pub(crate) fn queue(&self, registers: &[(String, String, u32)]) -> String {
        let (stage, depth) = (self.stage, self.depth());
        let before = if stage == 1 { "valid_s0".to_owned() } else { format!("valid_s{}_q", stage - 1) };
        let outs: Vec<&str> = match registers {
            [] => vec!["unused_queued"],
            _ => registers.iter().map(|(to, _, _)| to.as_str()).collect(),
        };
        let width: u32 = registers.iter().map(|(_, _, bits)| bits).sum::<u32>().max(1);
        let mut text = queue_input(registers, width);
        if registers.is_empty() {
            text.push_str("  logic unused_queued;\n");
        }
        let mut arrived = String::new();
        if let Some(last) = self.last_crossing {
            for number in stage..=last {
                let from = if number == stage { before.clone() } else { format!("arrived_s{}", number - 1) };
                _ = writeln!(arrived, "    arrived_s{number} <= {from} && !rst_i;");
            }
            arrived = format!("  always_ff @(posedge clk_i) begin\n{arrived}  end\n");
        }
        let (block, ready, again) = match self.decided_stage {
            None => ("fl_fifo", "\n      .in_ready_o(unused_queue_ready),", String::new()),
            Some(decided) => {
                ("fl_replay", "", format!("\n      .commit_i(valid_s{decided}_q && !kill),\n      .rewind_i(kill),"))
            }
        };
        if self.decided_stage.is_none() {
            arrived.push_str("  logic unused_queue_ready;\n");
        }
        _ = write!(
            text,
            "{arrived}  {block} #(\n      .Width({width}),\n      \
             .Depth({depth})\n  ) u_queue (\n      .clk_i,\n      .rst_i,\n      .in_valid_i({before}),{ready}\n      \
             .in_data_i(queue_in),\n      .out_valid_o(queue_valid),\n      .out_ready_i(valid_s{stage}_q),\n      .out_data_o({{\n      \
             {outs}}}),{again}\n      .count_o(queue_count)\n  );\n",
            outs = outs.join(",\n      "),
        );
        text
    }

    /// The declarations that stages before the queue's use.
    pub(crate) fn declarations(&self) -> String {
        let mut text = "  // Whether the packet that waits is issued.\n  logic go;\n".to_owned();
        if self.stage > 0 {
            let count = logic("queue_count", u32::BITS - self.depth().leading_zeros());
            _ = writeln!(text, "  logic queue_valid;\n  {count}");
        }
        if let Some(last) = self.last_crossing {
            let names: Vec<String> = (self.stage..=last).map(|stage| format!("arrived_s{stage}")).collect();
            _ = writeln!(
                text,
                "  // Where the packets would be that wait in the queue.\n  logic {};",
                names.join(", ")
            );
        }
        text
    }

    /// The condition under which a packet may enter the core, if the queue decides it.
    pub(crate) fn room(&self) -> Option<String> {
        (self.stage > 0).then(|| format!("queue_count < {}", self.depth() - self.stage - 1))
    }
}

/// What enters the queue, in parts that Verilator keeps as variables: it makes a concatenation of thousands of bits field
/// by field, and copies all that it has so far for each.
fn queue_input(registers: &[(String, String, u32)], width: u32) -> String {
    const PART_BITS: u32 = 64;
    let mut parts: Vec<(Vec<String>, u32)> = Vec::new();
    for (_, from, bits) in registers {
        match parts.last_mut() {
            Some((part, own)) if *own + bits <= PART_BITS => {
                part.push(from.clone());
                *own += bits;
            }
            _ => parts.push((vec![from.clone()], *bits)),
        }
    }
    if parts.is_empty() {
        parts.push((vec!["1'b0".to_owned()], 1));
    }
    let mut text = String::new();
    for (number, (part, bits)) in parts.iter().enumerate() {
        let name = logic(&format!("queue_part{number} /* verilator public_flat_rd */"), *bits);
        let assigned = wrapped(&format!("  assign queue_part{number} = {{"), part, "};");
        _ = writeln!(text, "  {name}\n{assigned}");
    }
    let parts: Vec<String> = (0..parts.len()).map(|number| format!("queue_part{number}")).collect();
    _ = writeln!(text, "  {}\n{}", logic("queue_in", width), wrapped("  assign queue_in = {", &parts, "};"));
    text
}

/// What packets wait for because of a map, at a queue in a stage.
fn hold(plan: &Plan, own: &Map, stage: u32) -> Hold {
    let graph = &plan.dataflow.graph;
    let is_known = |id: Id| is_known(plan, id, (stage, KEY_DEPTH));
    // A register has no key: every packet uses its only entry. Keys with one longest prefix share an entry.
    let keyed = own.tables.first().filter(|_| own.block != Block::Lpm);
    let bytes = keyed.map(|table| key(&plan.dataflow, table.calls[0]));
    let key = bytes.filter(|bytes| bytes.iter().all(|id| is_known(*id)));
    let key_bits = key.iter().flatten().map(|id| u32::from(graph.bits(*id))).sum();
    let uses = may_use(plan, own, stage);
    let has_tight = own.block == Block::Hash && own.changes(&plan.dataflow);
    // Packets that are one cycle apart see each other's results, but not which entry the other one evicts.
    let is_tight_only = own.delay() == 0;
    let key = key.filter(|_| !is_tight_only);
    let cycles = own.hold_cycles(&plan.dataflow);
    Hold { map: own.map, cycles, key, key_bits, uses, has_tight, is_tight_only }
}

/// Whether a value is known in a stage at a depth.
fn is_known(plan: &Plan, id: Id, (stage, depth): (u32, u32)) -> bool {
    let ends = plan.schedule.spans[id.index()].ends;
    let is_early = ends.stage < stage || (ends.stage == stage && ends.depth <= depth);
    plan.dataflow.graph.as_const(id).is_some() || is_early
}

/// Where a packet may access a map, by what is known early in a stage. Accesses to values go through a lookup.
pub(crate) fn may_use(plan: &Plan, own: &Map, stage: u32) -> May {
    if own.tables.iter().all(|table| table.calls.is_empty()) {
        return May::Always;
    }
    let dataflow = &plan.dataflow;
    // An access of the row that does not depend on the path has the predicate that speculation has put aside.
    let when = |call: &Id| dataflow.wanted.get(call).copied().unwrap_or(dataflow.graph.node(*call).args[0]);
    let calls = own.tables.iter().flat_map(|table| &table.calls);
    May::any(calls.map(|call| May::of(plan, when(call), &|id| is_known(plan, id, (stage, USE_DEPTH)))))
}

/// The bits of the registers before a stage.
fn width(plan: &Plan, needs: &Needs, stage: u32) -> u32 {
    let is_register = |id: &Id| !is_wire(plan.dataflow.graph.node(*id).kind) && defined(plan, *id) < stage;
    let values = needs.in_stage(stage).filter(is_register);
    values.map(|id| u32::from(signal_bits(&plan.dataflow, id))).sum()
}

/// The last stage in which a block that began before the queue has its result.
fn last_crossing(plan: &Plan, maps: &[Map], needs: &Needs, stage: u32) -> Option<u32> {
    let cut = |begins: u32, ends: u32| is_cut(stage, begins, ends).then_some(ends);
    let blocks = needs.ids().filter(|id| block_stages(plan, *id) > 0);
    let blocks = blocks.filter_map(|id| cut(begins(plan, id), defined(plan, id)));
    let tables = maps.iter().filter(|own| own.slice.is_none());
    let tables =
        tables.flat_map(|own| own.tables.iter().filter_map(|table| cut(table.stage - own.cycles(), table.stage)));
    blocks.chain(tables).max()
}
