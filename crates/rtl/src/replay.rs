// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that run alone, because they access maps by further keys than those of their ports (`flowloom_plan::Replay`).
//!
//! ```text
//!   queue ──► first lookups ──► decided: alone ──► kill: it and all packets after it come again from the queue
//!     │            ▲
//!     │            └ results of the first run       operands ──► step3_key_q ──► port of the host ──► step3_value_q
//!     └──► a run without effects, one for each step ───┘                                        results of step 3
//! ```
//!
//! The operands of a step are kept in registers in the stage in which they are known. `fl_alone` chooses the first step
//! that the packet wants and has not made, and makes it through the port of the host, which waits meanwhile. The result
//! is a value of all stages, as long as the packet is there. What the packet finds through the ports of packets is kept
//! from its first run on, since its own steps may change it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use flowloom_ir::{Dataflow, Effect, Id, Kind, Touch};
use flowloom_isa::op::AtomicOp;
use flowloom_plan::{Action, Plan, Replay, Step};

use crate::error::RtlError;
use crate::map::{Block, Map, flags, key, place};
use crate::needs::Needs;
use crate::node::{logic, number};
use crate::slice::{EXISTS, NO_ENTRY, TOO_BIG, low};

/// Cycles of a run at least (`hdl/flow/fl_alone.sv`).
const MIN_CYCLES: u32 = 8;

/// Whether a node is the result of a step: a value of all stages, without pipeline registers.
pub(crate) fn is_step(plan: &Plan, id: Id) -> bool {
    plan.replay.as_ref().is_some_and(|replay| replay.accesses.contains(&id))
}

/// Whether packets that run alone access a map by steps.
pub(crate) fn has_steps(plan: &Plan, map: u32) -> bool {
    plan.replay.as_ref().is_some_and(|replay| replay.maps.contains(&map))
}

/// The stage in which the operands of a step are known.
fn known(plan: &Plan, replay: &Replay, step: &Step) -> u32 {
    let graph = &plan.dataflow.graph;
    let calls = if step.action == Action::Write { &step.writes } else { std::slice::from_ref(&step.call) };
    let operands = calls.iter().flat_map(|id| graph.node(*id).args.iter().copied());
    let operands = operands.chain(replay.conditions(&plan.dataflow, step)).chain(key(&plan.dataflow, step.call));
    operands.map(|id| plan.schedule.spans[id.index()].ends.stage).max().unwrap_or(0).max(replay.first_stage)
}

/// The operands of a step: the name of the register, the node, its width.
fn operands(dataflow: &Dataflow, number: usize, step: &Step) -> Vec<(String, Id, u32)> {
    let graph = &dataflow.graph;
    let mut all = Vec::new();
    match step.action {
        Action::Look => {}
        Action::Change => {
            if dataflow.access(step.call).is_some_and(|access| access.touch == Touch::Update) {
                let first = 1 + key(dataflow, step.call).len();
                let args = &graph.node(step.call).args;
                for (at, id) in args[first..args.len() - 1].iter().enumerate() {
                    all.push((format!("step{number}_byte{at}_q"), *id, 8));
                }
            }
        }
        Action::Write => {
            for (at, id) in step.writes.iter().enumerate() {
                let node = graph.node(*id);
                let bits = place(dataflow, *id).map_or(0, |(_, bits)| bits);
                all.push((format!("step{number}_when{at}_q"), node.args[0], 1));
                all.push((format!("step{number}_operand{at}_q"), node.args[3], bits));
            }
        }
    }
    all
}

/// Adds what the steps need.
pub(crate) fn add_needs(plan: &Plan, needs: &mut Needs) {
    let Some(replay) = &plan.replay else { return };
    needs.add(plan, replay.alone, replay.decided_stage);
    for (at, step) in replay.steps.iter().enumerate() {
        let stage = known(plan, replay, step);
        let operands = operands(&plan.dataflow, at, step).into_iter().map(|(_, id, _)| id);
        let all = operands.chain(key(&plan.dataflow, step.call)).chain(replay.conditions(&plan.dataflow, step));
        all.collect::<Vec<Id>>().into_iter().for_each(|id| needs.add(plan, id, stage));
    }
}

/// An error if another map lies in the region that a run without effects cannot read as often as it needs: one that
/// packets change by its key, or one whose changes by the host take effect later. So does one whose packets would have to
/// wait before that region.
pub(crate) fn is_possible(plan: &Plan, maps: &[Map]) -> Result<(), RtlError> {
    let Some(replay) = &plan.replay else { return Ok(()) };
    let why = |own: &Map| {
        let last = own.slice.map(|slice| slice.last).or(own.tables.iter().map(|table| table.stage).max());
        let is_inside = last.is_some_and(|last| last >= replay.first_stage);
        match own.block {
            Block::Hash if is_inside && (own.is_lru || own.changes(&plan.dataflow)) => {
                Some("packets insert, delete or evict its entries")
            }
            Block::Lpm if is_inside => Some("changes of prefixes take effect while a packet runs"),
            _ if own.hold_cycles(&plan.dataflow) > 0 && own.asked() < replay.first_stage => {
                Some("packets would have to wait before it")
            }
            _ => None,
        }
    };
    let name = |map: u32| plan.dataflow.maps[map as usize].name.clone();
    match maps.iter().find_map(|own| Some((own.map, why(own)?))) {
        Some((map, why)) => {
            let alone = replay.maps.first().map_or_else(String::new, |map| name(*map));
            Err(RtlError::Alone { map: name(map), why, alone })
        }
        None => Ok(()),
    }
}

/// The rendering of the steps of a plan.
pub(crate) struct Steps<'a> {
    plan: &'a Plan,
    replay: &'a Replay,
    maps: BTreeMap<u32, &'a Map>,
    /// The most cycles from a value to its result.
    delay: u32,
}

impl<'a> Steps<'a> {
    pub(crate) fn of(plan: &'a Plan, maps: &'a [Map]) -> Option<Steps<'a>> {
        let replay = plan.replay.as_ref()?;
        let delay = maps.iter().map(Map::delay).max().unwrap_or(0);
        let maps = maps.iter().filter(|own| replay.maps.contains(&own.map)).map(|own| (own.map, own)).collect();
        Some(Steps { plan, replay, maps, delay })
    }

    fn steps(&self) -> impl Iterator<Item = (usize, &'a Step, &'a Map)> + '_ {
        self.replay.steps.iter().enumerate().map(|(at, step)| (at, step, self.maps[&step.map]))
    }

    fn cycles(&self) -> u32 {
        (self.plan.schedule.stages - self.replay.first_stage).max(MIN_CYCLES)
    }

    fn index_bits(&self) -> u32 {
        (u32::BITS - (self.replay.steps.len() as u32 - 1).leading_zeros()).max(1)
    }

    /// The width of what names an entry of a map.
    fn key_bits(own: &Map) -> u32 {
        if own.is_keyed() { own.key_bits } else { own.index_bits() }
    }

    /// The declarations, before all stages.
    pub(crate) fn declarations(&self) -> String {
        let count = self.replay.steps.len();
        let mut text = "  // Packets that run alone: the steps that they make one by one.\n".to_owned();
        text.push_str("  logic kill, alone, run, first_run, leave, keeps;\n");
        let last = self.plan.schedule.stages;
        let runs: Vec<String> = (self.replay.first_stage..=last).map(|stage| format!("run_s{stage}")).collect();
        _ = writeln!(text, "  logic {};", runs.join(", "));
        _ = writeln!(text, "  logic [{}:0] wanted_steps, done_steps;", count - 1);
        _ = writeln!(
            text,
            "  logic access_valid, access_ready, access_write, awaits, answer_valid, read_done, step_done;"
        );
        _ = writeln!(text, "  logic [{}:0] step;", self.index_bits() - 1);
        text.push_str("  assign keeps = alone && !first_run;\n");
        for (at, step, own) in self.steps() {
            _ = writeln!(text, "  {}", logic(&format!("step{at}_key_q"), Self::key_bits(own)));
            _ = writeln!(text, "  logic step{at}_wanted_q;");
            if !own.is_keyed() {
                _ = writeln!(text, "  logic step{at}_hit_q;");
            }
            if step.action == Action::Look {
                _ = writeln!(text, "  {}", logic(&format!("step{at}_value_q"), own.bits));
            }
            if step.action != Action::Write && own.is_keyed() {
                _ = writeln!(text, "  logic step{at}_present_q;");
            }
            if step.action == Action::Change {
                _ = writeln!(text, "  logic step{at}_full_q;");
            }
            for (name, _, bits) in operands(&self.plan.dataflow, at, step) {
                _ = writeln!(text, "  {}", logic(&name, bits));
            }
        }
        for own in self.maps.values() {
            let (name, key_bits) = (own.name(), Self::key_bits(own));
            _ = writeln!(text, "  logic {name}_own, {name}_at_valid;");
            match own.is_keyed() {
                true => _ = writeln!(text, "  logic [2:0] {name}_own_operation, {name}_at_operation;"),
                false => _ = writeln!(text, "  logic {name}_own_write, {name}_at_write;"),
            }
            let named = if own.is_keyed() { "key" } else { "index" };
            for signal in ["own", "at"] {
                _ = writeln!(text, "  {}", logic(&format!("{name}_{signal}_{named}"), key_bits));
                _ = writeln!(text, "  {}", logic(&format!("{name}_{signal}_value"), own.bits));
            }
            _ = writeln!(text, "  {}", logic(&format!("{name}_read_q"), own.bits));
        }
        text
    }

    /// The result of an access of a step, in any stage.
    pub(crate) fn result(&self, id: Id, signal: &dyn Fn(Id) -> String) -> Option<String> {
        let dataflow = &self.plan.dataflow;
        let node = dataflow.graph.node(id);
        let touch = dataflow.access(id)?.touch;
        let is_value = matches!(touch, Touch::Load | Touch::Atomic);
        let call = if is_value { node.args[1] } else { id };
        let at = self.replay.look(call)?;
        let own = self.maps[&self.replay.steps[at].map];
        match touch {
            Touch::Lookup => {
                let found = if own.is_keyed() { "present" } else { "hit" };
                Some(format!("done_steps[{at}] && step{at}_{found}_q"))
            }
            Touch::Load | Touch::Atomic => {
                let (first, bits) = place(dataflow, id)?;
                let part = if bits == own.bits { String::new() } else { format!("[{}:{first}]", first + bits - 1) };
                let extended = match u32::from(node.bits) - bits {
                    0 => format!("step{at}_value_q{part}"),
                    more => format!("{{{more}'h0, step{at}_value_q{part}}}"),
                };
                Some(format!("{} ? {extended} : {}", signal(call), number(0, node.bits)))
            }
            Touch::Update | Touch::Delete => {
                let (present, full) = (format!("step{at}_present_q"), format!("step{at}_full_q"));
                let code = |value: i64| number(value as u64, node.bits);
                let fails = match (touch, flags(dataflow, id)) {
                    (Touch::Delete, _) => format!("{present} ? {} : {}", code(0), code(NO_ENTRY)),
                    (_, Some(1)) => {
                        format!("{present} ? {} : {full} ? {} : {}", code(EXISTS), code(TOO_BIG), code(0))
                    }
                    (_, Some(2)) => format!("{present} ? {} : {}", code(0), code(NO_ENTRY)),
                    _ => format!("{full} ? {} : {}", code(TOO_BIG), code(0)),
                };
                Some(format!("done_steps[{at}] ? ({fails}) : {}", code(0)))
            }
            _ => None,
        }
    }

    /// Whether two steps have looked up the same entry, or none.
    pub(crate) fn is_same(&self, one: Id, other: Id, signal: &dyn Fn(Id) -> String) -> Option<String> {
        let (a, b) = (self.replay.look(one)?, self.replay.look(other)?);
        let (one, other) = (signal(one), signal(other));
        Some(format!("({one} == {other}) && (!{one} || step{a}_key_q == step{b}_key_q)"))
    }

    /// The runs, the registers of the steps, the control and the accesses, after all stages.
    pub(crate) fn control(&self, signal: &dyn Fn(Id, u32) -> String) -> String {
        let (replay, stages) = (self.replay, self.plan.schedule.stages);
        let first = replay.first_stage;
        let mut text = String::from("\n  // Packets that run alone.\n");
        _ = writeln!(
            text,
            "  assign kill = valid_s{0}_q && {1} && !alone;\n  assign run_s{first} = run;\n  always_ff @(posedge clk_i) begin",
            replay.decided_stage,
            signal(replay.alone, replay.decided_stage)
        );
        for stage in first + 1..=stages {
            _ = writeln!(text, "    run_s{stage} <= run_s{} && !rst_i;", stage - 1);
        }
        text.push_str("  end\n");
        for (at, step, own) in self.steps() {
            self.registers(at, step, own, signal, &mut text);
        }
        let count = replay.steps.len();
        let cycles = self.cycles();
        let pause = (self.delay + 1).min(cycles);
        let is_write = |step: &Step| if step.action == Action::Write { '1' } else { '0' };
        let mask: String = replay.steps.iter().rev().map(is_write).collect();
        let wanted: Vec<String> = (0..count).rev().map(|at| format!("step{at}_wanted_q")).collect();
        _ = write!(
            text,
            "  assign wanted_steps = {{{}}};\n  fl_alone #(\n      .Steps({count}),\n      .Writes({count}'b{mask}),\n      .Cycles({cycles}),\n      .Pause({pause})\n  ) u_alone \
             (\n      .clk_i,\n      .rst_i,\n      .found_i(kill),\n      .wanted_i(wanted_steps),\n      .alone_o(alone),\n      \
             .run_o(run),\n      .first_o(first_run),\n      .leave_o(leave),\n      .access_valid_o(access_valid),\n      \
             .access_ready_i(access_ready),\n      .access_write_o(access_write),\n      .step_o(step),\n      .awaits_o(awaits),\n      \
             .answer_valid_i(answer_valid),\n      .read_o(read_done),\n      .done_o(step_done),\n      .done_steps_o(done_steps)\n  );\n",
            wanted.join(",\n      "),
        );
        let mut ready = Vec::new();
        let mut answers = Vec::new();
        for own in self.maps.values() {
            self.port(own, &mut text);
            let (name, table) = (own.name(), &own.tables[0].name);
            ready.push(format!("({name}_own && {})", all_ready(own)));
            answers.push(format!("({name}_own && {table}_host_valid)"));
        }
        _ = writeln!(
            text,
            "  assign access_ready = {};\n  assign answer_valid = {};",
            ready.join("\n      || "),
            answers.join("\n      || ")
        );
        text
    }

    /// The registers of a step: its operands, and what it gives.
    fn registers(&self, at: usize, step: &Step, own: &Map, signal: &dyn Fn(Id, u32) -> String, text: &mut String) {
        let dataflow = &self.plan.dataflow;
        let stage = known(self.plan, self.replay, step);
        let of_stage = |id: Id| signal(id, stage);
        let conditions = self.replay.conditions(dataflow, step);
        let conditions: Vec<String> = conditions.into_iter().map(of_stage).collect();
        let name = crate::map::index(dataflow, step.call, &of_stage);
        _ = write!(
            text,
            "  always_ff @(posedge clk_i) begin\n    if (run_s{stage}) begin\n      step{at}_wanted_q <= {};\n      \
             step{at}_key_q <= {}'({name});\n",
            conditions.join(" || "),
            Self::key_bits(own),
        );
        if !own.is_keyed() {
            _ = writeln!(text, "      step{at}_hit_q <= {name} < 32'd{};", own.entries);
        }
        for (register, id, bits) in operands(dataflow, at, step) {
            _ = writeln!(text, "      {register} <= {};", low(dataflow, id, bits as u16, &of_stage));
        }
        text.push_str("    end\n");
        let index_bits = self.index_bits();
        let table = &own.tables[0].name;
        if step.action != Action::Write {
            _ = writeln!(text, "    if (step_done && step == {index_bits}'d{at}) begin");
            if own.is_keyed() {
                _ = writeln!(text, "      step{at}_present_q <= {table}_host_present;");
            }
            match step.action {
                Action::Look => _ = writeln!(text, "      step{at}_value_q <= {table}_host_value;"),
                _ => _ = writeln!(text, "      step{at}_full_q <= {table}_host_full;"),
            }
            text.push_str("    end\n");
        }
        text.push_str("  end\n");
    }

    /// The access of a step to a map, beside those of the host.
    fn port(&self, own: &Map, text: &mut String) {
        let (name, table) = (own.name(), &own.tables[0].name);
        let named = if own.is_keyed() { "key" } else { "index" };
        let index_bits = self.index_bits();
        _ = write!(
            text,
            "  always_ff @(posedge clk_i) begin\n    if (read_done && {name}_own) begin\n      {name}_read_q <= {table}_host_value;\n    \
             end\n  end\n  always_comb begin\n    {name}_own = 1'b0;\n    {name}_own_{named} = '0;\n    {name}_own_value = '0;\n"
        );
        match own.is_keyed() {
            true => _ = writeln!(text, "    {name}_own_operation = 3'd0;"),
            false => _ = writeln!(text, "    {name}_own_write = 1'b0;"),
        }
        text.push_str("    case (step)\n");
        for (at, step, _) in self.steps().filter(|(_, step, _)| step.map == own.map) {
            _ = writeln!(
                text,
                "      {index_bits}'d{at}: begin\n        {name}_own = 1'b1;\n        {name}_own_{named} = step{at}_key_q;"
            );
            self.access(at, step, own, text);
            text.push_str("      end\n");
        }
        text.push_str("      default: ;\n    endcase\n  end\n");
        let mut both = |port: &str| {
            _ = writeln!(text, "  assign {name}_at_{port} = alone ? {name}_own_{port} : {name}_{port}_i;");
        };
        both(named);
        both("value");
        both(if own.is_keyed() { "operation" } else { "write" });
        _ = writeln!(
            text,
            "  assign {name}_at_valid = alone ? access_valid && {name}_own && {ready} : {name}_valid_i && {name}_ready_o;",
            ready = all_ready(own),
        );
    }

    /// What the access of a step does, in the case of that step.
    fn access(&self, at: usize, step: &Step, own: &Map, text: &mut String) {
        let (dataflow, name) = (&self.plan.dataflow, own.name());
        match step.action {
            Action::Look => {}
            Action::Change => {
                let operation =
                    match (dataflow.access(step.call).map(|access| access.touch), flags(dataflow, step.call)) {
                        (Some(Touch::Delete), _) => 2,
                        (_, Some(1)) => 4,
                        (_, Some(2)) => 5,
                        _ => 1,
                    };
                _ = writeln!(text, "        {name}_own_operation = 3'd{operation};");
                let bytes = operands(dataflow, at, step);
                let byte = |(at, (register, ..)): (usize, (String, Id, u32))| {
                    if own.is_lock(at) { "8'h0".to_owned() } else { register }
                };
                let bytes: Vec<String> = bytes.into_iter().enumerate().rev().map(byte).collect();
                if !bytes.is_empty() {
                    _ = writeln!(text, "        {name}_own_value = {{{}}};", bytes.join(", "));
                }
            }
            Action::Write => {
                match own.is_keyed() {
                    true => _ = writeln!(text, "        {name}_own_operation = access_write ? 3'd5 : 3'd0;"),
                    false => _ = writeln!(text, "        {name}_own_write = access_write && step{at}_hit_q;"),
                }
                _ = writeln!(text, "        {name}_own_value = {name}_read_q;");
                for (number, id) in step.writes.iter().enumerate() {
                    let (first, bits) = place(dataflow, *id).unwrap_or((0, own.bits));
                    let part = if bits == own.bits { String::new() } else { format!("[{first}+:{bits}]") };
                    let (old, operand) = (format!("{name}_own_value{part}"), format!("step{at}_operand{number}_q"));
                    let operator = match dataflow.graph.node(*id).kind {
                        Kind::Effect(Effect::Atomic(AtomicOp::Add { .. }, _)) => " + ",
                        Kind::Effect(Effect::Atomic(AtomicOp::Or { .. }, _)) => " | ",
                        Kind::Effect(Effect::Atomic(AtomicOp::And { .. }, _)) => " & ",
                        Kind::Effect(Effect::Atomic(AtomicOp::Xor { .. }, _)) => " ^ ",
                        _ => "",
                    };
                    let new = if operator.is_empty() { operand } else { format!("{old}{operator}{operand}") };
                    _ = writeln!(
                        text,
                        "        if (step{at}_when{number}_q) begin\n          {old} = {new};\n        end"
                    );
                }
            }
        }
    }

    /// The signals of which some bits may have no use.
    pub(crate) fn partly_used(&self) -> Vec<String> {
        let mut names: Vec<String> = vec!["first_run".to_owned(), "keeps".to_owned(), "done_steps".to_owned()];
        names.extend((self.replay.first_stage..=self.plan.schedule.stages).map(|stage| format!("run_s{stage}")));
        for (at, step, own) in self.steps() {
            names.push(format!("step{at}_key_q"));
            if !own.is_keyed() {
                names.push(format!("step{at}_hit_q"));
            }
            match step.action {
                Action::Look => {
                    names.push(format!("step{at}_value_q"));
                    names.extend(own.is_keyed().then(|| format!("step{at}_present_q")));
                }
                Action::Change => {
                    names.extend([format!("step{at}_present_q"), format!("step{at}_full_q")]);
                    let bytes = operands(&self.plan.dataflow, at, step).into_iter().enumerate();
                    names.extend(bytes.filter(|(byte, _)| own.is_lock(*byte)).map(|(_, (name, ..))| name));
                }
                Action::Write => {}
            }
        }
        names.extend(self.maps.values().map(|own| format!("{}_read_q", own.name())));
        if self.steps().all(|(_, step, _)| step.action != Action::Write) {
            names.push("access_write".to_owned());
        }
        names
    }
}

/// Whether all copies of a map take an access.
fn all_ready(own: &Map) -> String {
    let all: Vec<String> = own.tables.iter().map(|table| format!("{}_host_ready", table.name)).collect();
    all.join(" && ")
}

/// The name of a port of the host, as the table sees it: with steps, those of a packet that runs alone are before it.
pub(crate) fn host_port(plan: &Plan, own: &Map, port: &str) -> String {
    let name = own.name();
    match (has_steps(plan, own.map), port) {
        (true, _) => format!("{name}_at_{port}"),
        (false, "valid") => format!("{name}_valid_i && {name}_ready_o"),
        (false, _) => format!("{name}_{port}_i"),
    }
}
