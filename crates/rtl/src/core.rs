// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The core of a pipeline: its module text and the meaning of its ports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flowloom_ir::{Binary, Compare, Id, Input, Kind, Node, Touch};
use flowloom_isa::{MapKind, Program};
use flowloom_plan::{Fit, Placed, Plan};
use flowloom_state::Parameters;

use crate::control::Control;
use crate::error::RtlError;
use crate::map::{self, Block, Map};
use crate::needs::{Needs, begins, block_stages, defined, happens, is_wire};
use crate::node::{
    MAX_LINE, expression, is_lookup, is_travelling, logic, number, random, random_signal, redirects, signal_bits,
    travelling, wrapped,
};
use crate::patch::{Edits, MAX_SPAN_BYTES};
use crate::port::{Access, MapPort};
use crate::replay::{self, Steps, is_step};
use crate::scheduler::Scheduler;
use crate::sends::Sends;
use crate::slice;

/// An access of the host that waits for `2^(bits - 1)` cycles stops the packets.
const HOST_WAIT_BITS: u32 = 6;

/// The core of a pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    /// The name of the module.
    pub module: String,
    /// The module.
    pub text: String,
    /// The stages of the plan.
    pub stages: u32,
    /// The cycles from `valid_i` to `valid_o`, if the packet waits for no other one.
    pub latency_cycles: u32,
    /// The words of a packet that the core reads.
    pub words: u32,
    /// The maps.
    pub maps: Vec<MapPort>,
    /// The bytes that `edits_o` replaces; without any, there is no such port. Nor is there where packets send others
    /// besides themselves, whose edits these are too.
    pub edits: Edits,
    /// The packets that a packet sends besides itself.
    pub sends: Sends,
    /// Whether the start of the packet may move.
    pub moves: bool,
    /// Whether packets may be redirected.
    pub redirects: bool,
    /// Whether packets may leave through all ports of a map.
    pub spreads: bool,
    /// The most cycles by which two packets are kept apart.
    pub hold_cycles: u32,
    /// Where packets are not taken in every cycle, as a clause that begins with a semicolon; empty if they are.
    pub exceptions: String,
    /// The packets that wait in the scheduler's queue at most; 0 without one.
    pub queued_packets: u32,
    /// The random words of 32 bits that a packet brings along; without any, there is no port for them.
    pub random_words: u32,
    /// What decides in which cycle a packet leaves.
    pub control: Control,
}

/// The choices of a rendering that change no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendering {
    /// The seed of the hash functions of all hash maps: keys that have their places in common under one seed do not have
    /// them in common under another one, but by chance.
    pub hash_seed: u64,
    /// The names of the arrays, hash maps and maps of ports whose entries are in UltraRAMs.
    pub ultra_rams: BTreeSet<String>,
}

impl Rendering {
    /// With the entries of maps in UltraRAMs that a fit places there.
    pub fn placed(self, plan: &Plan, fit: &Fit) -> Rendering {
        let is_lpm = |name: &str| plan.dataflow.maps.iter().any(|map| map.name == name && map.kind == MapKind::LpmTrie);
        let placed = fit.memories.iter().filter(|placed| placed.is_ultra && ENTRIES.contains(&placed.memory.holds));
        let names = placed.filter_map(|placed| placed.memory.map.clone());
        Rendering { ultra_rams: names.filter(|name| !is_lpm(name)).collect(), ..self }
    }

    /// The memories that a fit places in UltraRAMs, and whose modules name block RAMs all the same.
    pub fn left<'a>(&'a self, fit: &'a Fit) -> impl Iterator<Item = &'a Placed> + 'a {
        fit.memories.iter().filter(|placed| {
            let is_named = placed.memory.map.as_ref().is_some_and(|name| self.ultra_rams.contains(name));
            placed.is_ultra && !(is_named && ENTRIES.contains(&placed.memory.holds))
        })
    }
}

/// What the memories of a map's entries hold.
const ENTRIES: [&str; 3] = ["entries", "values", "ports"];

impl Default for Rendering {
    fn default() -> Rendering {
        Rendering { hash_seed: Core::DEFAULT_HASH_SEED, ultra_rams: BTreeSet::new() }
    }
}

impl Core {
    /// The seed of the hash functions of hash maps, if no other one is given.
    pub const DEFAULT_HASH_SEED: u64 = Parameters::DEFAULT_SEED;

    /// Renders the core of a plan. `program` provides source lines for comments.
    ///
    /// # Errors
    /// What has no rendering yet.
    pub fn of(plan: &Plan, program: &Program) -> Result<Core, RtlError> {
        Core::rendered(plan, program, &Rendering::default())
    }

    /// As [`Core::of`], with other choices.
    ///
    /// # Errors
    /// Those of [`Core::of`].
    pub fn rendered(plan: &Plan, program: &Program, rendering: &Rendering) -> Result<Core, RtlError> {
        let hash_seed = rendering.hash_seed;
        let ending = &plan.dataflow.ending;
        if ending.kept.is_some() {
            return Err(RtlError::Kept);
        }
        let maps = map::maps(plan, program)?;
        replay::is_possible(plan, &maps)?;
        let sends = Sends::of(plan, program)?;
        let edits = if sends.is_empty() { Edits::of(ending) } else { sends.edits() };
        if let Some(span) = edits.overlays.iter().find(|span| span.bytes > MAX_SPAN_BYTES) {
            return Err(RtlError::Span { found: span.bytes, expected: MAX_SPAN_BYTES });
        }
        let module = format!("fl_core_{}", identifier(&plan.dataflow.name));
        let ports = maps.iter().map(|own| {
            let table = &plan.dataflow.maps[own.map as usize];
            let bits = own.index_bits();
            let access = match own.block {
                Block::Array if own.tables.is_empty() => Access::Single,
                Block::Array => Access::Index { bits },
                Block::Hash => Access::Key { bytes: table.key_bytes, rows: slice::value_rows(own), is_prefix: false },
                Block::Lpm => Access::Key { bytes: table.key_bytes, rows: own.entries, is_prefix: true },
                Block::Ports => Access::Ports { bits },
            };
            let (name, value_bytes, entries) = (table.name.clone(), own.bits / 8, table.max_entries);
            MapPort { map: own.map, name, value_bytes, entries, kind: table.kind, access }
        });
        let ports: Vec<MapPort> = ports.collect();
        let mut needs = Needs::of(plan);
        maps.iter().for_each(|own| map::add_needs(plan, own, &mut needs));
        for id in redirects(&plan.dataflow) {
            needs.add(plan, id, plan.schedule.stages);
            let node = plan.dataflow.graph.node(id);
            let is_map = plan.dataflow.access(id).is_some_and(|access| access.touch == Touch::RedirectMap);
            needs.add(plan, node.args[usize::from(!is_map)], plan.schedule.stages);
        }
        sends.add_needs(plan, &mut needs);
        replay::add_needs(plan, &mut needs);
        let scheduler = Scheduler::of(plan, &maps, &needs);
        if let Some(scheduler) = &scheduler {
            scheduler.add_needs(plan, &mut needs);
        }
        if let Some(error) = needs.early_result(plan) {
            return Err(error);
        }
        slice::room(plan, &maps, scheduler.as_ref())?;
        Ok(Core {
            stages: plan.schedule.stages,
            latency_cycles: plan.schedule.stages + scheduler.as_ref().map_or(0, Scheduler::cycles),
            words: needs.words(plan),
            maps: ports.clone(),
            edits,
            moves: plan.window.moves || sends.moves(),
            redirects: !redirects(&plan.dataflow).is_empty(),
            spreads: redirects(&plan.dataflow).iter().any(|id| map::spread(&plan.dataflow, *id).is_some()),
            hold_cycles: scheduler.as_ref().map_or(1, Scheduler::hold_cycles),
            exceptions: scheduler.as_ref().map_or_else(String::new, Scheduler::exceptions),
            queued_packets: scheduler.as_ref().map_or(0, Scheduler::depth),
            random_words: needs.random(plan).map_or(0, |(words, _)| words),
            control: Control::of(plan, &maps, needs.words(plan), scheduler.as_ref(), hash_seed),
            text: Writer {
                plan,
                program,
                needs,
                maps,
                ports,
                sends: &sends,
                scheduler,
                rendering,
                text: String::new(),
            }
            .module(&module),
            module,
            sends,
        })
    }
}

/// A name of SystemVerilog with the letters and digits of another name.
pub(crate) fn identifier(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut letters: Vec<char> = name.chars().map(letter).collect();
    // Verilator renames what has two underscores in a row.
    letters.dedup_by(|a, b| *a == '_' && *b == '_');
    letters.into_iter().collect()
}

struct Writer<'a> {
    plan: &'a Plan,
    program: &'a Program,
    needs: Needs,
    maps: Vec<Map>,
    ports: Vec<MapPort>,
    sends: &'a Sends,
    scheduler: Option<Scheduler>,
    rendering: &'a Rendering,
    text: String,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// The name of a node's value in a stage, or the constant that it is.
    fn signal(&self, id: Id, stage: u32) -> String {
        let node = self.plan.dataflow.graph.node(id);
        if let Kind::Const(value) = node.kind {
            return number(value, node.bits);
        }
        let is_register = !is_wire(node.kind) && !is_step(self.plan, id) && defined(self.plan, id) < stage;
        format!("v{}_s{stage}{}", id.index(), if is_register { "_q" } else { "" })
    }

    fn module(mut self, module: &str) -> String {
        let stages = self.plan.schedule.stages;
        let by_stage = self.needs.by_stage();
        self.header(module);
        for stage in 0..=stages {
            self.stage(stage, by_stage.get(&stage).map_or(&[][..], Vec::as_slice));
        }
        self.outputs(stages);
        self.unused(&by_stage);
        self.line("\nendmodule");
        self.text
    }

    fn header(&mut self, module: &str) {
        let plan = self.plan;
        let word_bits = 8 * u32::from(plan.options.target.word_bytes);
        _ = write!(
            self.text,
            "// Generated by Flowloom from `{}`: the stages of the program.\n//\n// Latency: {} cycles.\n\
             // Throughput: one packet a cycle{}.\n// Handshake: valid; the core never stalls.\nmodule {module} (\n",
            plan.dataflow.name,
            plan.schedule.stages + self.scheduler.as_ref().map_or(0, Scheduler::cycles),
            self.scheduler.as_ref().map_or_else(String::new, Scheduler::exceptions),
        );
        let mut ports = vec![
            "input  logic clk_i".to_owned(),
            "input  logic rst_i".to_owned(),
            "// A packet begins, with its length in bytes and its ingress port.\n    input  logic valid_i".to_owned(),
            "input  logic [15:0] length_i".to_owned(),
            "input  logic [31:0] port_i".to_owned(),
            format!("input  logic [{}:0] word_i", word_bits - 1),
        ];
        ports.push("// The time of its arrival in nanoseconds.\n    input  logic [63:0] now_i".to_owned());
        if let Some((words, _)) = self.needs.random(plan) {
            let text = "// The random numbers that it may draw, the first one in the lowest bits.\n    input  logic ";
            ports.push(format!("{text}[{}:0] random_i", 32 * words - 1));
        }
        for port in &self.ports {
            for (number, (direction, bits, suffix)) in port.ports().into_iter().enumerate() {
                let comment = match number {
                    0 => format!("// The host's accesses to map `{}`.\n    ", port.name),
                    _ => String::new(),
                };
                ports.push(format!("{comment}{direction} {}", logic(&format!("map{}_{suffix}", port.map), bits)));
                ports.last_mut().map(String::pop);
            }
        }
        ports.push(
            "// Whether the packet that begins may enter now; otherwise it waits.\n    output logic accept_o"
                .to_owned(),
        );
        ports.push(
            "// Whether another packet may enter soon: tables have room for its keys.\n    output logic room_o"
                .to_owned(),
        );
        ports.push("// High from when maps are cleared after a reset.\n    output logic ready_o".to_owned());
        ports.push("output logic valid_o".to_owned());
        ports.push("output logic [31:0] verdict_o".to_owned());
        ports.push("// The target of a redirect.\n    output logic has_target_o".to_owned());
        ports.push("output logic [31:0] target_o".to_owned());
        ports.push(
            "// The target is a map: 2 all its ports, 3 all but the ingress port.\n    output logic [1:0] spread_o"
                .to_owned(),
        );
        ports.push("// The packet reaches beyond the window: nothing was done.\n    output logic slow_o".to_owned());
        if self.sends.is_empty() {
            ports.push("// First and last offset of the packet, relative to its first byte as received.\n    output logic [31:0] head_o".to_owned());
            ports.push("output logic [31:0] tail_o".to_owned());
            let edits = Edits::of(&plan.dataflow.ending).bits();
            ports.extend((edits > 0).then(|| format!("output logic [{}:0] edits_o", edits - 1)));
        } else {
            ports.extend(self.sends.ports());
        }
        for (place, port) in ports.iter().enumerate() {
            let comma = if place + 1 < ports.len() { "," } else { "" };
            self.line(&format!("    {port}{comma}"));
        }
        self.line(");\n");
        let registers = self.maps.iter().filter(|own| own.tables.is_empty());
        let registers: Vec<String> = registers.map(|own| logic(&format!("{}_q", own.name()), own.bits)).collect();
        registers.iter().for_each(|register| self.line(&format!("  {register}")));
        let valid: Vec<String> = (0..=self.plan.schedule.stages).map(|stage| self.valid(stage)).collect();
        let valid = wrapped("  logic ", &valid, ";");
        self.line(&format!(
            "  // Whether a packet is in a stage: the queue and results that wait need those of later ones.\n{valid}"
        ));
        let mut declared: String = self.maps.iter().map(map::declarations).collect();
        declared.extend(self.scheduler.as_ref().map(Scheduler::declarations));
        declared.extend(Steps::of(self.plan, &self.maps).map(|steps| steps.declarations()));
        self.text.push_str(&declared);
        self.host_gap();
    }

    /// A gap between packets for an access of the host that waits.
    fn host_gap(&mut self) {
        if self.maps.is_empty() {
            return;
        }
        let waits: Vec<String> = self.maps.iter().map(map::waits).collect();
        _ = write!(
            self.text,
            "\n  // An access of the host that finds no gap between packets for some cycles makes one.\n  logic host_waits;\n  \
             logic [{last}:0] host_waits_q;\n  assign host_waits = {waits};\n  always_ff @(posedge clk_i) begin\n    \
             if (!host_waits || rst_i) begin\n      host_waits_q <= '0;\n    end else if (!host_waits_q[{last}]) begin\n      \
             host_waits_q <= host_waits_q + 1'b1;\n    end\n  end\n",
            last = HOST_WAIT_BITS - 1,
            waits = waits.join("\n      || "),
        );
    }

    /// The condition that no host waits for too long.
    fn no_host_gap(&self) -> Option<String> {
        (!self.maps.is_empty()).then(|| format!("!host_waits_q[{}]", HOST_WAIT_BITS - 1))
    }

    fn stage(&mut self, stage: u32, values: &[Id]) {
        self.title(stage, values);
        let valid = self.valid(stage);
        let is_scheduler = self.scheduler.as_ref().is_some_and(|scheduler| scheduler.stage == stage);
        if stage == 0 && !is_scheduler {
            self.line("  assign valid_s0 = valid_i;");
        } else if !is_scheduler {
            let before = self.valid(stage - 1);
            let region = self.plan.replay.as_ref().map(|replay| replay.first_stage + 1..=replay.decided_stage + 1);
            let kept = if region.is_some_and(|region| region.contains(&stage)) { " && !kill" } else { "" };
            self.line(&format!("  always_ff @(posedge clk_i) begin\n    {valid} <= {before}{kept} && !rst_i;\n  end"));
        }
        let mut registers: Vec<(String, String, u32)> = Vec::new();
        self.words(stage, &mut registers);
        // Instances and assignments name signals of the same stage, so all are declared first.
        for id in values {
            let declared = logic(&self.signal(*id, stage), signal_bits(&self.plan.dataflow, *id).into());
            self.line(&format!("  {declared}"));
        }
        let carried: String = self.maps.iter().map(|own| slice::carried(own, stage)).collect();
        self.text.push_str(&carried);
        for id in values {
            let kind = self.plan.dataflow.graph.node(*id).kind;
            if !is_wire(kind) && !is_step(self.plan, *id) && defined(self.plan, *id) < stage {
                let bits = signal_bits(&self.plan.dataflow, *id).into();
                registers.push((self.signal(*id, stage), self.signal(*id, stage - 1), bits));
            } else if let Some(text) = self.value(*id, stage) {
                self.line(&text);
            }
        }
        self.blocks(stage, values);
        self.map_accesses(stage, &mut registers);
        if is_scheduler {
            self.schedule(stage, &registers);
        } else if !registers.is_empty() {
            self.line("  always_ff @(posedge clk_i) begin");
            registers.iter().for_each(|(to, from, _)| self.line(&format!("    {to} <= {from};")));
            self.line("  end");
        }
    }

    /// The scheduler, with its queue in place of the registers of the stage.
    fn schedule(&mut self, stage: u32, registers: &[(String, String, u32)]) {
        let Some(scheduler) = &self.scheduler else { return };
        let rooms = self.maps.iter().flat_map(map::room).filter(|(asked, _)| *asked >= stage).map(|(_, room)| room);
        // For a host that waits no packet enters; those in the queue go on, because the host may wait for them.
        let gap = if stage == 0 { self.no_host_gap() } else { None };
        let others: Vec<String> = rooms.chain(gap).collect();
        let mut text = "  // Packets wait here for results of others with their key.\n".to_owned();
        text.push_str(&scheduler.scoreboards(&|id| self.signal(id, stage), &others));
        if stage > 0 {
            text.push_str(&scheduler.queue(registers));
        }
        self.text.push_str(&text);
    }

    /// The comment above a stage: the instructions that its operations were made for.
    fn title(&mut self, stage: u32, values: &[Id]) {
        if stage == self.plan.schedule.stages {
            self.line("\n  // The outputs.");
            return;
        }
        let own = |id: &&Id| {
            let kind = self.plan.dataflow.graph.node(**id).kind;
            !is_wire(kind) && !matches!(kind, Kind::Input(_)) && begins(self.plan, **id) == stage
        };
        let commits = self.plan.schedule.commits.keys().filter(|id| happens(self.plan, **id) == stage);
        let insns: BTreeSet<usize> =
            values.iter().filter(own).chain(commits).map(|id| self.plan.dataflow.graph.insn(*id)).collect();
        let named = insns.iter().map(|insn| match self.program.line_of(*insn) {
            Some(line) => format!("{insn} ({}:{})", line.file, line.line),
            None => insn.to_string(),
        });
        let mut line = format!("  // Stage {stage}{}", if insns.is_empty() { "." } else { ": instructions" });
        self.line("");
        for (place, name) in named.enumerate() {
            let item = format!("{} {name}", if place == 0 { "" } else { "," });
            if line.len() + item.len() > MAX_LINE {
                self.line(&format!("{line},"));
                line = format!("  //   {name}");
            } else {
                line.push_str(&item);
            }
        }
        self.line(&line);
    }

    fn valid(&self, stage: u32) -> String {
        if stage == 0 { "valid_s0".to_owned() } else { format!("valid_s{stage}_q") }
    }

    /// Whether a packet is in a stage, or runs through it without effects.
    fn reads(&self, stage: u32) -> String {
        match &self.plan.replay {
            Some(replay) if stage >= replay.first_stage => format!("({} || run_s{stage})", self.valid(stage)),
            _ => self.valid(stage),
        }
    }

    /// The words of the packet that a later stage reads at offsets known only at run time, and whether the packet has
    /// the word that arrives in a later stage.
    fn words(&mut self, stage: u32, registers: &mut Vec<(String, String, u32)>) {
        let word_bits = 8 * u32::from(self.plan.options.target.word_bytes);
        for word in 1..self.needs.words(self.plan) {
            let signal = |stage: u32| format!("has_word{word}_s{stage}{}", if stage == 0 { "" } else { "_q" });
            if stage <= word {
                self.line(&format!("  logic {};", signal(stage)));
            }
            if stage == 0 {
                let bytes = word * u32::from(self.plan.options.target.word_bytes);
                self.line(&format!("  assign {} = length_i > 16'd{bytes};", signal(0)));
            } else if stage <= word {
                registers.push((signal(stage), signal(stage - 1), 1));
            }
        }
        if stage < self.needs.words(self.plan) {
            self.line(&format!("  logic [{}:0] word{stage}_s{stage};", word_bits - 1));
            let masked =
                if stage == 0 { "word_i".to_owned() } else { format!("has_word{stage}_s{stage}_q ? word_i : '0") };
            self.line(&format!("  assign word{stage}_s{stage} = {masked};"));
        }
        if let Some((words, _)) = self.needs.random(self.plan).filter(|(_, last)| (1..=*last).contains(&stage)) {
            self.line(&format!("  {}", logic(&random_signal(stage), 32 * words)));
            registers.push((random_signal(stage), random_signal(stage - 1), 32 * words));
        }
        let carried: Vec<u32> = self
            .needs
            .window
            .iter()
            .filter(|(word, last)| **word < stage && stage <= **last)
            .map(|(word, _)| *word)
            .collect();
        for word in carried {
            self.line(&format!("  logic [{}:0] {};", word_bits - 1, word_signal(word, stage)));
            registers.push((word_signal(word, stage), word_signal(word, stage - 1), word_bits));
        }
    }

    /// The assignment of a value that the stage computes, other than by a block or a map.
    fn value(&self, id: Id, stage: u32) -> Option<String> {
        let plan = self.plan;
        let node = plan.dataflow.graph.node(id);
        let own = self.signal(id, stage);
        let word_bytes = plan.options.target.word_bytes;
        let text = match node.kind {
            Kind::Input(Input::Byte(at)) => {
                let first = 8 * (at % word_bytes);
                format!("word{stage}_s{stage}[{}:{first}]", first + 7)
            }
            Kind::Input(Input::Length) => "length_i".to_owned(),
            Kind::Input(Input::Port) => "port_i".to_owned(),
            Kind::Bytes { ahead } => return Some(self.bytes(id, ahead, stage)),
            Kind::Effect(_) if is_step(plan, id) => {
                Steps::of(plan, &self.maps)?.result(id, &|arg| self.signal(arg, stage))?
            }
            Kind::Effect(_) if is_lookup(&plan.dataflow, id) => self.found(id, stage),
            Kind::Effect(_) if redirects(&plan.dataflow).contains(&id) && !is_travelling(&plan.dataflow, id) => {
                self.redirected(id, stage)
            }
            Kind::Effect(_) if self.needs.draws_before(id).is_some() => {
                let earlier = self.needs.draws_before(id).unwrap_or_default();
                let earlier: Vec<String> = earlier.iter().map(|id| self.signal(*id, stage)).collect();
                let (words, _) = self.needs.random(plan)?;
                return Some(random(&plan.dataflow, id, &own, stage, words, &earlier));
            }
            Kind::Effect(_) if is_travelling(&plan.dataflow, id) => {
                travelling(&plan.dataflow, id, &|arg| self.signal(arg, stage))
            }
            Kind::Effect(_) => return None,
            Kind::Compare(Compare::Equal) if node.args.iter().all(|arg| is_lookup(&plan.dataflow, *arg)) => {
                Steps::of(plan, &self.maps)?.is_same(node.args[0], node.args[1], &|arg| self.signal(arg, stage))?
            }
            Kind::Compare(_) if node.args.iter().any(|arg| is_lookup(&plan.dataflow, *arg)) => {
                let lookup = node.args.iter().find(|arg| is_lookup(&plan.dataflow, **arg));
                format!("!{}", lookup.map_or_else(String::new, |lookup| self.signal(*lookup, stage)))
            }
            Kind::Binary(_) if block_stages(plan, id) > 0 => return None,
            _ => expression(&plan.dataflow.graph, id, &|arg| self.signal(arg, stage)),
        };
        Some(format!("  assign {own} = {text};"))
    }

    /// Whether a lookup finds an entry.
    fn found(&self, id: Id, stage: u32) -> String {
        let own = self.maps.iter().find(|own| own.table(id).is_some());
        match own.and_then(|own| Some((own.block, own.table(id)?))) {
            Some((Block::Hash | Block::Lpm, table)) if table.stage == stage => format!("{}_present", table.name),
            Some((Block::Hash | Block::Lpm, table)) => format!("{}_present_s{stage}_q", table.name),
            _ => map::hit(&self.plan.dataflow, id, &|arg| self.signal(arg, stage)),
        }
    }

    /// The verdict of a redirect through a map, which is used only where it happens.
    fn redirected(&self, id: Id, stage: u32) -> String {
        let dataflow = &self.plan.dataflow;
        let node = dataflow.graph.node(id);
        if map::spread(dataflow, id).is_some() {
            return number(4, node.bits);
        }
        let value = self.maps.iter().find_map(|own| own.table(id)).map_or_else(String::new, |table| table.value(stage));
        let (yes, no) = (number(4, node.bits), number(map::flags(dataflow, id).unwrap_or(0), node.bits));
        format!("{value}[32] ? {yes} : {no}")
    }

    /// Bytes of the packet at an offset known only at run time: the window shifted by the offset, with zeros around it.
    fn bytes(&self, id: Id, ahead: i32, stage: u32) -> String {
        let plan = self.plan;
        let node = plan.dataflow.graph.node(id);
        let (bits, own) = (u32::from(node.bits), self.signal(id, stage));
        let words: Vec<String> =
            (0..self.needs.words(plan).min(stage + 1)).rev().map(|word| word_signal(word, stage)).collect();
        let window = words.len() as u32 * u32::from(plan.options.target.word_bytes);
        let below = bits / 8 - 1;
        let zeros = |bytes: u32| if bytes == 0 { String::new() } else { format!("{}'h0", 8 * bytes) };
        let padded: Vec<String> = [zeros(below)]
            .into_iter()
            .chain([words.join(", "), zeros(below)])
            .filter(|part| !part.is_empty())
            .collect();
        let (from, window_name) = (format!("from_{own}"), format!("window_{own}"));
        let offset = self.signal(node.args[0], stage);
        let shift = i64::from(ahead) + i64::from(below);
        let sign = if shift < 0 { "-" } else { "+" };
        format!(
            "  logic [31:0] {from};\n  logic [{last}:0] {window_name};\n  assign {from} = {offset} {sign} 32'd{amount};\n  \
             assign {window_name} = {{{padded}}};\n  assign {own} = ({from} < 32'd{end}) ? {bits}'({window_name} >> {{{from}, 3'b000}}) : '0;",
            last = 8 * (window + 2 * below) - 1,
            amount = shift.unsigned_abs(),
            padded = padded.join(", "),
            end = window + below,
        )
    }

    /// The multipliers and dividers whose results leave them in a stage; their operands entered them in an earlier one.
    fn blocks(&mut self, stage: u32, values: &[Id]) {
        let plan = self.plan;
        for &id in values {
            let Kind::Binary(op) = plan.dataflow.graph.node(id).kind else { continue };
            if block_stages(plan, id) == 0 || defined(plan, id) != stage {
                continue;
            }
            let (node, from) = (plan.dataflow.graph.node(id), begins(plan, id));
            let (a, b) = (self.signal(node.args[0], from), self.signal(node.args[1], from));
            let (bits, name, mut result) = (node.bits, id.index(), self.signal(id, stage));
            let cutter = self.scheduler.as_ref().filter(|scheduler| scheduler.cuts(from, stage));
            let mut late = String::new();
            if let Some(scheduler) = cutter {
                let name = format!("v{name}");
                let early = format!("{name}_early");
                late = scheduler.late_result(&name, &result, &early, bits.into(), stage);
                result = early;
                self.line(&format!("  {}", logic(&result, bits.into())));
            }
            let text = match op {
                Binary::Mul => format!(
                    "  fl_mul #(\n      .Width({bits})\n  ) u_mul{name} (\n      .clk_i,\n      .a_i({a}),\n      .b_i({b}),\n      \
                     .product_o({result})\n  );"
                ),
                _ if let Some(divisor) = plan.dataflow.graph.as_const(node.args[1]).filter(|divisor| *divisor != 0) => {
                    let signed = u8::from(matches!(op, Binary::SignedDiv | Binary::SignedMod));
                    let remainder = u8::from(matches!(op, Binary::Mod | Binary::SignedMod));
                    format!(
                        "  fl_div_const #(\n      .Width({bits}),\n      .Divisor(64'd{divisor}),\n      .IsSigned(1'b{signed}),\n      \
                         .IsRemainder(1'b{remainder})\n  ) u_div{name} (\n      .clk_i,\n      .dividend_i({a}),\n      \
                         .result_o({result})\n  );"
                    )
                }
                _ => {
                    let stage_bits = u32::from(bits).div_ceil(block_stages(plan, id) - 1);
                    let signed = u8::from(matches!(op, Binary::SignedDiv | Binary::SignedMod));
                    let (quotient, remainder) = match op {
                        Binary::Div | Binary::SignedDiv => (result, format!("unused_remainder{name}")),
                        _ => (format!("unused_quotient{name}"), result),
                    };
                    let other = if quotient.starts_with("unused") { &quotient } else { &remainder };
                    format!(
                        "  {}\n  fl_div #(\n      .Width({bits}),\n      .StageBits({stage_bits}),\n      .IsSigned(1'b{signed})\n  ) \
                         u_div{name} (\n      .clk_i,\n      .dividend_i({a}),\n      .divisor_i({b}),\n      \
                         .quotient_o({quotient}),\n      .remainder_o({remainder})\n  );",
                        logic(other, bits.into())
                    )
                }
            };
            self.line(&text);
            self.text.push_str(&late);
        }
    }

    /// The accesses to maps in a stage.
    fn map_accesses(&mut self, stage: u32, registers: &mut Vec<(String, String, u32)>) {
        let mut text = String::new();
        for own in &self.maps {
            let mut rendered = slice::Stage {
                plan: self.plan,
                needs: &self.needs,
                stage,
                valid: self.valid(stage),
                reads: self.reads(stage),
                signal: &|id| self.signal(id, stage),
                registers,
                scheduler: self.scheduler.as_ref(),
                rendering: self.rendering,
            };
            text.push_str(&rendered.render(own));
        }
        self.text.push_str(&text);
    }

    fn outputs(&mut self, end: u32) {
        let ending = &self.plan.dataflow.ending;
        let mut lines = vec![format!("  assign valid_o = {};", self.valid(end))];
        lines.push(format!("  assign verdict_o = {};", self.signal(ending.verdict, end)));
        if self.sends.is_empty() {
            for (port, id) in [("head_o", ending.head), ("tail_o", ending.tail)] {
                lines.push(format!("  assign {port} = {};", self.signal(id, end)));
            }
            let edits = Edits::of(ending);
            if edits.bits() > 0 {
                lines.push(format!("  assign edits_o = {};", edits.render(ending, &|id| self.signal(id, end))));
            }
        } else {
            lines.extend(self.sends.assignments(&|id| self.signal(id, end)));
        }
        let slow = ending.slow;
        lines.push(format!("  assign slow_o = {};", self.signal(slow, end)));
        // The last redirect counts.
        let graph = &self.plan.dataflow.graph;
        let (mut has, mut target, mut spread) = ("1'b0".to_owned(), "'0".to_owned(), "2'd0".to_owned());
        for id in redirects(&self.plan.dataflow) {
            let node = graph.node(id);
            if let Some((map, all)) = map::spread(&self.plan.dataflow, id) {
                let when = self.signal(node.args[0], end);
                has = format!("{when} || ({has})");
                target = format!("{when} ? 32'd{map} : ({target})");
                spread = format!("{when} ? 2'd{} : ({spread})", if all { 2 } else { 3 });
                continue;
            }
            let table = self.maps.iter().find_map(|own| own.table(id));
            match table {
                // An absent key cancels an earlier redirect.
                Some(table) => {
                    let (when, value) = (self.signal(node.args[0], end), table.value(end));
                    has = format!("{when} ? {value}[32] : ({has})");
                    target = format!("{when} ? {value}[31:0] : ({target})");
                    spread = format!("{when} ? 2'd0 : ({spread})");
                }
                None => {
                    let (own, port) = (self.signal(id, end), node.args[1]);
                    let port = match graph.as_const(port) {
                        Some(value) => number(value & u64::from(u32::MAX), 32),
                        None => format!("32'({})", self.signal(port, end)),
                    };
                    has = format!("({own} != '0) || ({has})");
                    target = format!("({own} != '0) ? {port} : ({target})");
                    spread = format!("({own} != '0) ? 2'd0 : ({spread})");
                }
            }
        }
        lines.push(format!("  assign has_target_o = {has};"));
        lines.push(format!("  assign target_o = {target};"));
        lines.push(format!("  assign spread_o = {spread};"));
        for own in &self.maps {
            let stages = map::between(own).unwrap_or_else(|| map::host_stages(own));
            let is_cut = self.scheduler.as_ref().is_some_and(|one| one.cuts(*stages.start(), *stages.end()));
            let queued = is_cut.then(|| "queue_valid".to_owned());
            let valid: Vec<String> = stages.map(|stage| self.valid(stage)).chain(queued).collect();
            lines.push(map::host(self.plan, own, &valid.join(" || ")).trim_end().to_owned());
        }
        let all = |names: Vec<String>| if names.is_empty() { "1'b1".to_owned() } else { names.join(" && ") };
        lines.push(format!("  assign ready_o = {};", all(self.maps.iter().flat_map(map::ready).collect())));
        let queue = self.scheduler.as_ref().map_or(u32::MAX, |scheduler| scheduler.stage);
        let rooms = self.maps.iter().flat_map(map::room).filter(|(asked, _)| *asked < queue);
        let rooms = rooms.map(|(_, room)| room).chain(self.scheduler.as_ref().and_then(Scheduler::room));
        let accepts = self.scheduler.as_ref().is_some_and(|scheduler| scheduler.stage == 0);
        lines.push(format!("  assign accept_o = {};", if accepts { "go" } else { "1'b1" }));
        lines.push(format!("  assign room_o = {};", all(rooms.chain(self.no_host_gap()).collect())));
        lines.extend(Steps::of(self.plan, &self.maps).map(|steps| steps.control(&|id, stage| self.signal(id, stage))));
        lines.iter().for_each(|line| self.line(line));
    }

    /// A signal that reads what may be unused in part, so that a lint run finds only what is unused by mistake.
    fn unused(&mut self, by_stage: &BTreeMap<u32, Vec<Id>>) {
        let mut names = vec![
            "rst_i".to_owned(),
            "length_i".to_owned(),
            "port_i".to_owned(),
            "word_i".to_owned(),
            "now_i".to_owned(),
        ];
        let graph = &self.plan.dataflow.graph;
        // A distance modulo a width of 1 is 0.
        let is_ignored = |node: &Node, place: usize| match node.kind {
            Kind::Binary(Binary::ShiftLeft | Binary::ShiftRight | Binary::SignedShiftRight) => place == 1,
            _ => false,
        };
        let ignored = graph.nodes().iter().flat_map(|node| {
            node.args.iter().enumerate().filter(|(place, _)| is_ignored(node, *place)).map(|(_, arg)| *arg)
        });
        let ignored: BTreeSet<Id> = ignored.collect();
        for (stage, ids) in by_stage {
            let dataflow = &self.plan.dataflow;
            let may_be =
                |id: &&Id| ignored.contains(id) || is_lookup(dataflow, **id) || signal_bits(dataflow, **id) > 1;
            let some = ids.iter().filter(may_be);
            names.extend(some.map(|id| self.signal(*id, *stage)));
        }
        names.extend(self.maps.iter().flat_map(map::partly_used));
        names.extend(Steps::of(self.plan, &self.maps).into_iter().flat_map(|steps| steps.partly_used()));
        names.extend(self.needs.random(self.plan).into_iter().flat_map(|(_, last)| (0..=last).map(random_signal)));
        names.extend((0..self.needs.words(self.plan)).map(|word| format!("word{word}_s{word}")));
        self.line("\n  // Read here because some of their bits have no other use.\n  logic unused;");
        let mut line = "  assign unused = ^{".to_owned();
        for (place, name) in names.iter().enumerate() {
            let item = format!("{}^{name}", if place == 0 { "" } else { ", " });
            if line.len() + item.len() + 2 > MAX_LINE {
                self.line(&format!("{line},"));
                line = format!("      ^{name}");
            } else {
                line.push_str(&item);
            }
        }
        self.line(&format!("{line}}};"));
    }
}

/// The signal of a word of the packet in a stage.
fn word_signal(word: u32, stage: u32) -> String {
    format!("word{word}_s{stage}{}", if stage > word { "_q" } else { "" })
}
