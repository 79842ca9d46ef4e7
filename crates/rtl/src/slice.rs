// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rendering of the accesses to a map in a stage: the tables that it asks, and the state slice.
//!
//! The accesses of a packet follow one another in the stage as in the program, each on the value that the one before
//! leaves. The next packet enters the stage in the next cycle, when the result is forwarded to it, so no packet sees half
//! of another one's accesses. The host accesses a whole entry in a cycle in which no packet does.

use std::fmt::Write as _;

use flowloom_ir::{Dataflow, Effect, Id, Kind, Touch};
use flowloom_isa::op::AtomicOp;
use flowloom_plan::{HASH_STAGES, Plan, prefix_fanout};
use flowloom_state::{Parameters, RowHash};

use crate::core::Rendering;
use crate::error::RtlError;
use crate::map::{Block, Map, PORT_KEY_BITS, Slice, Table, flags, index, place, uses};
use crate::may::May;
use crate::needs::Needs;
use crate::node::{is_lookup, logic, number};
use crate::replay::{has_steps, host_port};
use crate::scheduler::{Scheduler, may_use};

/// Results of changes of entries, as the kernel's numbers.
pub(crate) const NO_ENTRY: i64 = -2;
pub(crate) const TOO_BIG: i64 = -7;
pub(crate) const EXISTS: i64 = -17;

/// The rendering of the accesses to a map in a stage.
pub(crate) struct Stage<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) needs: &'a Needs,
    pub(crate) stage: u32,
    /// Whether a packet is in the stage.
    pub(crate) valid: String,
    /// Whether a packet is in the stage, or runs through it without effects.
    pub(crate) reads: String,
    /// The name of a node's value in the stage.
    pub(crate) signal: &'a dyn Fn(Id) -> String,
    /// The registers of the stage: name, next value, bits.
    pub(crate) registers: &'a mut Vec<(String, String, u32)>,
    /// The queue in which packets wait.
    pub(crate) scheduler: Option<&'a Scheduler>,
    /// The seed of the hash functions, and the RAMs of maps.
    pub(crate) rendering: &'a Rendering,
}

/// The declarations of the registers with which a map's values and state travel into a stage. The values of the stage may
/// name them, so they come before.
pub(crate) fn carried(own: &Map, stage: u32) -> String {
    let mut text = String::new();
    for table in carried_values(own, stage) {
        _ = writeln!(text, "  {}", logic(&table.value(stage), own.bits));
    }
    if own.keeps_old_value(stage) {
        _ = writeln!(text, "  {}", logic(&format!("{}_old_s{stage}_q", own.name()), own.bits));
    }
    if carries_state(own, stage) {
        let flags = match own.block {
            Block::Hash if own.is_lru => &["wrote", "present", "full", "used", "evicts"][..],
            Block::Hash => &["wrote", "present", "full"],
            _ => &["wrote"],
        };
        let parts = std::iter::once(("value", own.bits)).chain(flags.iter().map(|flag| (*flag, 1)));
        for (part, bits) in parts {
            _ = writeln!(text, "  {}", logic(&format!("{}_{part}_s{stage}_q", own.name()), bits));
        }
    }
    text
}

/// The tables of a map without a slice whose values travel into a stage.
fn carried_values(own: &Map, stage: u32) -> impl Iterator<Item = &Table> {
    let travels = move |table: &&Table| own.slice.is_none() && table.stage < stage && stage <= table.last;
    own.tables.iter().filter(travels)
}

/// Whether the state of a slice travels into a stage.
fn carries_state(own: &Map, stage: u32) -> bool {
    own.slice.is_some_and(|slice| slice.first < stage && stage <= slice.last)
}

/// The names of the state between two accesses of a slice.
#[derive(Debug, Clone)]
struct State {
    /// The name of the map or of its partial array.
    name: String,
    value: String,
    /// The value at the lookups, to which their addresses lead after an update as well.
    old: String,
    /// Whether an update may have replaced the entry.
    is_replaced: bool,
    /// Hash maps: whether there is an entry, and whether the map is full.
    present: String,
    full: String,
    /// Steps so far.
    steps: u32,
    /// The conditions under which the slice changes the entry.
    writes: Vec<String>,
    /// LRU maps: the conditions under which the slice updates the entry, which is a use besides its lookups, and those under
    /// which it inserts one into a full map.
    updates: Vec<String>,
    evicts: Vec<String>,
}

impl Stage<'_> {
    /// The parameter for the RAM of a map's entries, where it is not a block RAM.
    fn ram_style(&self, own: &Map) -> &'static str {
        let name = &self.plan.dataflow.maps[own.map as usize].name;
        if self.rendering.ultra_rams.contains(name) { ",\n      .RamStyle(\"ultra\")" } else { "" }
    }

    /// The declarations and assignments.
    pub(crate) fn render(&mut self, own: &Map) -> String {
        let mut text = String::new();
        let asked = self.stage + own.cycles();
        for table in own.tables.iter().filter(|table| table.stage == asked) {
            match own.block {
                Block::Hash => self.hash_table(own, table, &mut text),
                Block::Lpm => self.prefixes(own, table, &mut text),
                Block::Array | Block::Ports => self.array(own, table, &mut text),
            }
        }
        if own.is_summed {
            own.tables
                .iter()
                .filter(|table| table.stage == self.stage)
                .for_each(|table| self.part(own, table, &mut text));
            return text;
        }
        self.values(own);
        let mut state = self.state(own);
        for &id in own.accesses.get(&self.stage).map_or(&[][..], Vec::as_slice) {
            match self.plan.dataflow.access(id).map(|access| access.touch) {
                Some(Touch::Update | Touch::Delete) => self.entry(own, id, &mut text, &mut state),
                _ => self.access(own, id, &mut text, &mut state),
            }
        }
        let is_read_register = own.tables.is_empty() && own.slice.is_none() && self.stage == 0;
        if own.slice.is_some_and(|slice| slice.last == self.stage) || is_read_register {
            self.write_back(own, &state, &mut text);
        } else if own.slice.is_some_and(|slice| slice.first <= self.stage && self.stage < slice.last) {
            self.pass_on(own, &state, &mut text);
        }
        text
    }

    /// The slice of a partial array: the accesses through its lookup.
    fn part(&self, own: &Map, table: &Table, text: &mut String) {
        let (name, value) = (table.name.clone(), table.value(self.stage));
        let (present, full, writes) = (String::new(), String::new(), Vec::new());
        let old = value.clone();
        let (updates, evicts) = (Vec::new(), Vec::new());
        let mut state =
            State { name, value, old, is_replaced: false, present, full, steps: 0, writes, updates, evicts };
        let is_own = |id: &&Id| table.calls.contains(&self.plan.dataflow.graph.node(**id).args[1]);
        for &id in own.accesses.get(&self.stage).into_iter().flatten().filter(is_own) {
            self.access(own, id, text, &mut state);
        }
        self.write_back(own, &state, text);
    }

    /// The state at the beginning of the stage: from the table or the register, or what the stage before has left.
    fn state(&mut self, own: &Map) -> State {
        let name = own.name();
        let (value, present, full) = match own.tables.is_empty() {
            true => (own.register(), String::new(), String::new()),
            false => (format!("{name}_value"), format!("{name}_present"), format!("{name}_full")),
        };
        let (old, writes, updates, evicts) = (value.clone(), Vec::new(), Vec::new(), Vec::new());
        let is_replaced = own.is_replaced_before(&self.plan.dataflow, self.stage);
        let mut state =
            State { name: name.clone(), value, old, is_replaced, present, full, steps: 0, writes, updates, evicts };
        if !carries_state(own, self.stage) {
            return state;
        }
        let (before, stage) = (self.stage - 1, self.stage);
        let mut carry = |part: &str, bits: u32| {
            let register = format!("{name}_{part}_s{stage}_q");
            self.registers.push((register.clone(), format!("{name}_{part}_s{before}_end"), bits));
            register
        };
        state.value = carry("value", own.bits);
        state.writes.push(carry("wrote", 1));
        if own.keeps_old_value(stage) {
            state.old = carry("old", own.bits);
        }
        if own.block == Block::Hash {
            (state.present, state.full) = (carry("present", 1), carry("full", 1));
        }
        if own.is_lru {
            state.updates.push(carry("used", 1));
            state.evicts.push(carry("evicts", 1));
        }
        state
    }

    /// The state at the end of a stage that is not the last one of the slice.
    fn pass_on(&self, own: &Map, state: &State, text: &mut String) {
        let (name, stage) = (own.name(), self.stage);
        let writes = any(&state.writes);
        let mut end = |part: &str, bits: u32, value: &str| {
            let signal = format!("{name}_{part}_s{stage}_end");
            _ = writeln!(text, "  {}\n  assign {signal} = {value};", logic(&signal, bits));
        };
        end("value", own.bits, &state.value);
        end("wrote", 1, &writes);
        if own.keeps_old_value(stage + 1) {
            end("old", own.bits, &state.old);
        }
        if own.block == Block::Hash {
            end("present", 1, &state.present);
            end("full", 1, &state.full);
        }
        if own.is_lru {
            end("used", 1, &any(&state.updates));
            end("evicts", 1, &any(&state.evicts));
        }
    }

    /// Declarations for a table: the value, and the result of the slice. Returns the pins of the slice: write, value.
    fn declared(&self, own: &Map, table: &Table, text: &mut String) -> [String; 2] {
        let (name, table_name, last) = (own.name(), &table.name, own.bits - 1);
        let is_own = own.slice.is_some() && !own.is_summed;
        let value = if is_own { format!("{name}_value") } else { table.value(table.stage) };
        _ = write!(
            text,
            "  logic [{last}:0] {value};\n  logic {table_name}_ready, {table_name}_host_ready, {table_name}_host_valid;\n  \
             logic [{last}:0] {table_name}_host_value;\n"
        );
        if own.slice.is_none() {
            return ["1'b0".to_owned(), "'0".to_owned()];
        }
        let name = if own.is_summed { table_name } else { &name };
        _ = writeln!(text, "  logic [{last}:0] {name}_result;\n  logic {name}_write;");
        [format!("{name}_write"), format!("{name}_result")]
    }

    /// An array, in the stage that asks it.
    fn array(&mut self, own: &Map, table: &Table, text: &mut String) {
        let (name, table_name) = (own.name(), &table.name);
        let dataflow = &self.plan.dataflow;
        let (index, hit) = match table.calls.first() {
            None => ("'0".to_owned(), "1'b0".to_owned()),
            Some(&call) => {
                let index = index(dataflow, call, self.signal);
                let hit = match own.block {
                    Block::Ports => {
                        format!("{index} < {}", number(own.entries.into(), PORT_KEY_BITS))
                    }
                    _ => (self.signal)(call),
                };
                (index, hit)
            }
        };
        let delay = own.slice.map_or(0, Slice::delay);
        let [write, result] = self.declared(own, table, text);
        let is_one = own.slice.is_some() && !own.is_summed;
        let mut value = if is_one { format!("{name}_value") } else { table.value(table.stage) };
        // What the host writes is in the first one of partial arrays alone.
        let is_first = own.tables.first().is_some_and(|first| first.name == table.name);
        let host_value = if own.is_summed && !is_first { "'0".to_owned() } else { host_port(self.plan, own, "value") };
        let late = self.late_value(own, table, &mut value, own.bits, text);
        self.kept(own, table, &mut value, own.bits, text);
        let mut hit = hit;
        if own.block == Block::Ports {
            // A key beyond the entries leads to no port.
            _ = write!(
                text,
                "  logic {table_name}_hit, {table_name}_hit1_q, {table_name}_hit2_q;\n  logic [{}:0] {table_name}_raw;\n  \
                 assign {table_name}_hit = {hit};\n  assign {value} = {table_name}_hit2_q ? {table_name}_raw : '0;\n  \
                 always_ff @(posedge clk_i) begin\n    {table_name}_hit1_q <= {table_name}_hit;\n    \
                 {table_name}_hit2_q <= {table_name}_hit1_q;\n  end\n",
                own.bits - 1
            );
            (hit, value) = (format!("{table_name}_hit"), format!("{table_name}_raw"));
        }
        let style = self.ram_style(own);
        _ = write!(
            text,
            "  fl_array #(\n      .Entries({}),\n      .ValueBits({}),\n      .Delay({delay}){style}\n  ) u_{table_name} (\n      .clk_i,\n      .rst_i,\n      \
             .ready_o({table_name}_ready),\n      .valid_i({} && {hit}),\n      .early_i(1'b0),\n      .index_i({}'({index})),\n      \
             .value_o({value}),\n      .write_i({write}),\n      .value_i({result}),\n      \
             .host_valid_i({}),\n      .host_ready_o({table_name}_host_ready),\n      \
             .host_write_i({}),\n      .host_copy_i(1'b0),\n      .host_target_i('0),\n      \
             .host_index_i({}),\n      .host_value_i({host_value}),\n      \
             .host_valid_o({table_name}_host_valid),\n      .host_value_o({table_name}_host_value)\n  );\n",
            own.entries.max(2),
            own.bits,
            self.reads,
            own.index_bits(),
            host_port(self.plan, own, "valid"),
            host_port(self.plan, own, "write"),
            host_port(self.plan, own, "index"),
        );
        text.push_str(&late);
    }

    /// The queue for the value of a table that is asked before the packets' queue and answers behind it. The table then gives
    /// `value` to the queue, under another name.
    fn late_value(&mut self, own: &Map, table: &Table, value: &mut String, bits: u32, text: &mut String) -> String {
        let asked = table.stage - own.cycles();
        let cuts = |scheduler: &&Scheduler| !table.calls.is_empty() && scheduler.cuts(asked, table.stage);
        let Some(scheduler) = self.scheduler.filter(cuts) else {
            return String::new();
        };
        let (name, to) = (&table.name, value.clone());
        *value = format!("{name}_early");
        _ = writeln!(text, "  {}", logic(value, bits));
        scheduler.late_result(name, &to, value, bits, table.stage)
    }

    /// What a table gives to a packet that runs alone: in its later runs what it gave in the first one. The table then
    /// gives `value` under another name.
    fn kept(&mut self, own: &Map, table: &Table, value: &mut String, bits: u32, text: &mut String) -> bool {
        if !has_steps(self.plan, own.map) || table.calls.is_empty() {
            return false;
        }
        let (name, to, stage) = (&table.name, value.clone(), table.stage);
        *value = format!("{name}_found");
        let register = format!("{name}_kept_q");
        _ = write!(
            text,
            "  {}\n  {}\n  assign {to} = keeps ? {register} : {value};\n  always_ff @(posedge clk_i) begin\n    \
             if (run_s{stage} && first_run) begin\n      {register} <= {value};\n    end\n  end\n",
            logic(value, bits),
            logic(&register, bits),
        );
        true
    }

    /// A hash map, in the stage that asks it.
    fn hash_table(&mut self, own: &Map, table: &Table, text: &mut String) {
        let (name, table_name) = (own.name(), &table.name);
        let [write, result] = self.declared(own, table, text);
        let is_written = own.slice.is_some();
        let value = if is_written { format!("{name}_value") } else { table.value(table.stage) };
        let has = if is_written { format!("{name}_has") } else { "1'b0".to_owned() };
        let (touch, evict) = match own.is_lru {
            true => (format!("{name}_touch"), format!("{name}_evict")),
            false => ("1'b0".to_owned(), "1'b0".to_owned()),
        };
        _ = write!(
            text,
            "  logic {table_name}_present, {table_name}_full;\n  logic [31:0] {table_name}_count;\n  logic {table_name}_host_present, {table_name}_host_full;\n  \
             logic [{}:0] {table_name}_host_key;\n",
            own.key_bits - 1
        );
        if is_written {
            _ = writeln!(text, "  logic {name}_has;");
        }
        if own.is_lru {
            _ = writeln!(text, "  logic {name}_touch, {name}_evict;");
        }
        let mut both = format!("{{{table_name}_present, {value}}}");
        let late = self.late_value(own, table, &mut both, own.bits + 1, text);
        let is_kept = self.kept(own, table, &mut both, own.bits + 1, text);
        let (present, value) = match late.is_empty() && !is_kept {
            true => (format!("{table_name}_present"), value),
            false => (format!("{both}[{}]", own.bits), format!("{both}[{}:0]", own.bits - 1)),
        };
        let changes = own.changes(&self.plan.dataflow) || own.is_lru;
        let reads = if changes { self.valid.clone() } else { self.reads.clone() };
        let parameters = Parameters::for_entries(cuckoo_keys(own.entries), own.key_bits / 8, 0);
        let hash = RowHash::new((own.key_bits / 8) as usize, parameters.rows, self.rendering.hash_seed);
        let style = self.ram_style(own);
        _ = write!(
            text,
            "  fl_hash_map #(\n      .KeyBits({}),\n      .ValueBits({}),\n      .HashBits({}),\n      .Rows({}),\n      .Columns({}),\n      \
             .Entries({}),\n      .Lru(1'b{}),\n      .Changes(1'b{}),\n      .Delay({}),\n      .Ahead({}),\n      .Pending({PENDING}){style}\n  ) u_{table_name} (\n      .clk_i,\n      .rst_i,\n      \
             .ready_o({table_name}_ready),\n      .room_o({table_name}_room),\n      .tight_o({table_name}_tight),\n      .valid_i({}),\n      .key_i({}),\n      \
             .present_o({present}),\n      .value_o({value}),\n      .full_o({table_name}_full),\n      .count_o({table_name}_count),\n      .write_i({write}),\n      \
             .present_i({has}),\n      .value_i({result}),\n      .touch_i({touch}),\n      .evict_i({evict}),\n      .host_valid_i({}),\n      \
             .host_ready_o({table_name}_host_ready),\n      .host_operation_i({}),\n      .host_key_i({}),\n      \
             .host_value_i({}),\n      .host_valid_o({table_name}_host_valid),\n      .host_present_o({table_name}_host_present),\n      \
             .host_full_o({table_name}_host_full),\n      .host_key_o({table_name}_host_key),\n      .host_value_o({table_name}_host_value)\n  );\n",
            own.key_bits,
            own.bits,
            hash.hash_bits(),
            parameters.rows,
            columns(&hash, (own.key_bits / 8) as usize),
            own.entries,
            u8::from(own.is_lru),
            u8::from(own.changes(&self.plan.dataflow)),
            own.slice.map_or(0, Slice::delay),
            if own.changes(&self.plan.dataflow) { ahead(self.stage, self.scheduler) } else { 1 },
            match (table.calls.is_empty(), may_use(self.plan, own, self.stage)) {
                (true, _) => "1'b0".to_owned(),
                // A packet that has nothing to do with the map takes no pending entry.
                // In a run, what a packet finds through its port does not depend on its steps.
                (_, uses) if is_written && uses != May::Always && !has_steps(self.plan, own.map) => {
                    format!("{reads} && {}", uses.text(self.signal))
                }
                _ => reads,
            },
            table.calls.first().map_or("'0".to_owned(), |call| index(&self.plan.dataflow, *call, self.signal)),
            host_port(self.plan, own, "valid"),
            host_port(self.plan, own, "operation"),
            host_port(self.plan, own, "key"),
            host_port(self.plan, own, "value"),
        );
        text.push_str(&late);
    }

    /// Longest prefix match, in the stage that asks it.
    fn prefixes(&mut self, own: &Map, table: &Table, text: &mut String) {
        let (name, table_name) = (own.name(), &table.name);
        let [write, result] = self.declared(own, table, text);
        let value = if own.slice.is_some() { format!("{name}_value") } else { table.value(table.stage) };
        _ = write!(
            text,
            "  logic {table_name}_present;\n  logic [31:0] {table_name}_count;\n  \
             logic {table_name}_host_present, {table_name}_host_full;\n  logic [{}:0] {table_name}_host_key;\n",
            own.key_bits - 1
        );
        let mut both = format!("{{{table_name}_present, {value}}}");
        let late = self.late_value(own, table, &mut both, own.bits + 1, text);
        let (present, value) = match late.is_empty() {
            true => (format!("{table_name}_present"), value),
            false => (format!("{both}[{}]", own.bits), format!("{both}[{}:0]", own.bits - 1)),
        };
        _ = write!(
            text,
            "  fl_lpm #(\n      .KeyBits({}),\n      .ValueBits({}),\n      .Entries({}),\n      .Fanout({}),\n      \
             .Delay({})\n  ) u_{table_name} (\n      .clk_i,\n      .rst_i,\n      .ready_o({table_name}_ready),\n      .wants_o({table_name}_wants),\n      \
             .busy_o({table_name}_busy),\n      .go_i({name}_goes),\n      \
             .valid_i({}),\n      .key_i({}),\n      .present_o({present}),\n      .value_o({value}),\n      \
             .write_i({write}),\n      .value_i({result}),\n      .count_o({table_name}_count),\n      \
             .host_valid_i({name}_valid_i && {name}_ready_o),\n      .host_ready_o({table_name}_host_ready),\n      \
             .host_operation_i({name}_operation_i),\n      .host_key_i({name}_key_i),\n      \
             .host_value_i({name}_value_i),\n      .host_valid_o({table_name}_host_valid),\n      \
             .host_present_o({table_name}_host_present),\n      .host_full_o({table_name}_host_full),\n      \
             .host_key_o({table_name}_host_key),\n      .host_value_o({table_name}_host_value)\n  );\n",
            own.key_bits,
            own.bits,
            own.entries,
            prefix_fanout(own.entries).expect("checked in `maps`"),
            own.slice.map_or(0, Slice::delay),
            self.valid,
            index(&self.plan.dataflow, table.calls[0], self.signal),
        );
        text.push_str(&late);
    }

    /// Values that were only read travel on to the last use.
    fn values(&mut self, own: &Map) {
        for table in carried_values(own, self.stage) {
            self.registers.push((table.value(self.stage), table.value(self.stage - 1), own.bits));
        }
    }

    /// An access to a value: the signal of what it reads, if that is used, and the step that it makes.
    fn access(&self, own: &Map, id: Id, text: &mut String, state: &mut State) {
        let (dataflow, signal) = (&self.plan.dataflow, self.signal);
        let node = dataflow.graph.node(id);
        let (first, len) = place(dataflow, id).expect("checked in `maps`");
        let part = if len == own.bits { String::new() } else { format!("[{}:{first}]", first + len - 1) };
        let base = own.table(node.args[1]);
        let whole = match base {
            Some(table) if own.slice.is_none() => table.value(self.stage),
            // The update has taken a new slot: the address leads to the old value. What the packet has stored there before is
            // forwarded to the load.
            _ if state.is_replaced && matches!(node.kind, Kind::Effect(Effect::Load(_))) => state.old.clone(),
            _ => state.value.clone(),
        };
        let (when, old) = (signal(node.args[0]), format!("{whole}{part}"));
        let is_always = dataflow.graph.as_const(node.args[0]).is_some_and(|value| value != 0);
        if self.needs.has(id, self.stage) {
            let extended = match u32::from(node.bits) - len {
                0 => old.clone(),
                more => format!("{{{more}'h0, {old}}}"),
            };
            // A load through a failed lookup gives 0.
            let is_found = is_lookup(dataflow, node.args[1]);
            let happens = match (is_always, is_found) {
                (true, false) => None,
                (true, true) => Some(signal(node.args[1])),
                (false, false) => Some(when.clone()),
                (false, true) => Some(format!("{when} && {}", signal(node.args[1]))),
            };
            let value = match happens {
                Some(happens) => format!("({happens}) ? {extended} : {}", number(0, node.bits)),
                None => extended,
            };
            _ = writeln!(text, "  assign {} = {value};", signal(id));
        }
        let low = |id: Id| low(dataflow, id, len as u16, signal);
        let new = match node.kind {
            Kind::Effect(Effect::Store(_)) => low(node.args[3]),
            Kind::Effect(Effect::Atomic(op, _)) => match op {
                AtomicOp::Add { .. } => format!("{old} + {}", low(node.args[3])),
                AtomicOp::Or { .. } => format!("{old} | {}", low(node.args[3])),
                AtomicOp::And { .. } => format!("{old} & {}", low(node.args[3])),
                AtomicOp::Xor { .. } => format!("{old} ^ {}", low(node.args[3])),
                AtomicOp::Xchg => low(node.args[3]),
                AtomicOp::CmpXchg => format!("({old} == {}) ? {} : {old}", low(node.args[4]), low(node.args[3])),
            },
            _ => return,
        };
        let next = format!("{}_step{}_s{}", state.name, state.steps, self.stage);
        _ = writeln!(text, "  {}", logic(&next, own.bits));
        _ = writeln!(text, "  always_comb begin\n    {next} = {};", state.value);
        match is_always {
            true => _ = writeln!(text, "    {next}{part} = {new};\n  end"),
            false => _ = writeln!(text, "    if ({when}) begin\n      {next}{part} = {new};\n    end\n  end"),
        }
        state.value = next;
        state.steps += 1;
        state.writes.push(if is_always { "1'b1".to_owned() } else { when });
    }

    /// An insertion or deletion of an entry: its result, if that is used, and the step that it makes.
    fn entry(&self, own: &Map, id: Id, text: &mut String, state: &mut State) {
        let (dataflow, signal) = (&self.plan.dataflow, self.signal);
        let node = dataflow.graph.node(id);
        let (name, step) = (own.name(), format!("{}_s{}", state.steps, self.stage));
        let State { value, present, full, .. } = &*state;
        let when = signal(node.args[0]);
        let is_update = dataflow.access(id).is_some_and(|access| access.touch == Touch::Update);
        // Whether it succeeds, and what it gives otherwise.
        let (succeeds, fails) = match (is_update, flags(dataflow, id)) {
            (false, _) => (present.clone(), number(NO_ENTRY as u64, 64)),
            (true, Some(1)) if own.is_lru => (format!("!{present}"), number(EXISTS as u64, 64)),
            (true, Some(1)) => (
                format!("!{present} && !{full}"),
                format!("{present} ? {} : {}", number(EXISTS as u64, 64), number(TOO_BIG as u64, 64)),
            ),
            (true, Some(2)) => (present.clone(), number(NO_ENTRY as u64, 64)),
            (true, _) if own.is_lru => ("1'b1".to_owned(), number(0, 64)),
            (true, _) => (format!("{present} || !{full}"), number(TOO_BIG as u64, 64)),
        };
        let happens = format!("{name}_happens{step}");
        _ = writeln!(text, "  logic {happens};\n  assign {happens} = {when} && ({succeeds});");
        if self.needs.has(id, self.stage) {
            let text_of = format!("({when} && !({succeeds})) ? ({fails}) : {}", number(0, 64));
            _ = writeln!(text, "  assign {} = {text_of};", signal(id));
        }
        let (next, next_present, next_full) =
            (format!("{name}_step{step}"), format!("{name}_present{step}"), format!("{name}_full{step}"));
        let new = match is_update {
            true => {
                let first = 1 + (own.key_bits / 8) as usize;
                let bytes = node.args[first..first + (own.bits / 8) as usize].iter().enumerate();
                let byte = |(at, id): (usize, &Id)| if own.is_lock(at) { "8'h0".to_owned() } else { signal(*id) };
                format!("{{{}}}", bytes.rev().map(byte).collect::<Vec<_>>().join(", "))
            }
            false => value.clone(),
        };
        _ = writeln!(text, "  {}\n  logic {next_present}, {next_full};", logic(&next, own.bits));
        _ = writeln!(text, "  assign {next} = {happens} ? {new} : {value};");
        _ = writeln!(text, "  assign {next_present} = {happens} ? 1'b{} : {present};", u8::from(is_update));
        // A deletion makes room for an insertion of the same packet.
        _ = writeln!(
            text,
            "  assign {next_full} = {full}{};",
            if is_update { String::new() } else { format!(" && !{happens}") }
        );
        if own.is_lru && is_update {
            let evicts = format!("({happens} && !{present} && {full})");
            state.updates.push(happens.clone());
            state.evicts.push(evicts);
        }
        state.writes.push(happens);
        state.is_replaced |= is_update;
        (state.value, state.present, state.full) = (next, next_present, next_full);
        state.steps += 1;
    }

    /// The result of the slice: to the table, or into the register.
    fn write_back(&self, own: &Map, state: &State, text: &mut String) {
        let valid = &self.valid;
        let State { name, value, present, full, writes, updates, evicts, .. } = state;
        if !own.tables.is_empty() {
            _ = writeln!(text, "  assign {name}_result = {value};");
            _ = writeln!(text, "  assign {name}_write = {valid} && ({});", any(writes));
            if own.is_lru {
                let dataflow = &self.plan.dataflow;
                let lookups = uses(dataflow, own);
                let lookups = lookups.iter().map(|call| (self.signal)(dataflow.graph.node(*call).args[0]));
                let touches: Vec<String> = lookups.chain(updates.iter().cloned()).collect();
                _ = writeln!(text, "  assign {name}_touch = {valid} && ({});", any(&touches));
                _ = writeln!(text, "  assign {name}_evict = {valid} && ({});", any(evicts));
            }
            if own.block == Block::Hash {
                _ = writeln!(
                    text,
                    "  assign {name}_has = {present};\n  logic unused_{name}_full;\n  assign unused_{name}_full = {full};"
                );
            }
            return;
        }
        let register = own.register();
        _ = write!(
            text,
            "  always_ff @(posedge clk_i) begin\n    if ({name}_valid_i && {name}_ready_o && {name}_write_i) begin\n      \
             {register} <= {name}_value_i;\n"
        );
        if !writes.is_empty() {
            _ = writeln!(text, "    end else if ({valid}) begin\n      {register} <= {value};");
        }
        _ = write!(text, "    end\n    if (rst_i) begin\n      {register} <= {}'h", own.bits);
        own.initial.iter().rev().for_each(|byte| _ = write!(text, "{byte:02x}"));
        text.push_str(";\n    end\n  end\n");
    }
}

/// Whether one of some conditions holds.
fn any(conditions: &[String]) -> String {
    if conditions.is_empty() { "1'b0".to_owned() } else { conditions.join(" || ") }
}

/// Pending keys of a hash map.
const PENDING: u32 = 32;
/// Keys of a hash map whose entry was deleted, and that wait to leave the cuckoo table.
const CANDIDATES: u32 = 64;
/// Cycles for which a freed slot rests, in a map whose slice is one stage.
const REST_CYCLES: u32 = 16;

/// The packets that may enter a table, looked up in a stage, after it has no room: those between where packets wait and the
/// table, and two more until that is seen.
pub(crate) fn ahead(stage: u32, scheduler: Option<&Scheduler>) -> u32 {
    scheduler.map_or(stage, |scheduler| stage.checked_sub(scheduler.stage).unwrap_or(stage)) + 2
}

/// An error if more packets may follow than a hash map has room for (`hdl/table/fl_hash_map.sv`).
pub(crate) fn room(plan: &Plan, maps: &[Map], scheduler: Option<&Scheduler>) -> Result<(), RtlError> {
    for own in maps.iter().filter(|own| own.block == Block::Hash && own.changes(&plan.dataflow)) {
        let found = ahead(own.asked(), scheduler);
        let margin = if own.is_lru { 12 } else { 8 };
        let most = (PENDING - HASH_STAGES - 2).min(CANDIDATES.saturating_sub(HASH_STAGES + own.delay() + margin));
        if found > most {
            return Err(RtlError::Distance { map: plan.dataflow.maps[own.map as usize].name.clone(), found, most });
        }
    }
    Ok(())
}

/// The most entries of a hash map: its rows have hashes of up to 32 bits ([`RowHash::new`]).
pub(crate) const MAX_ENTRIES: u32 = 1 << 29;

/// The keys that the cuckoo table of a hash map holds (`hdl/table/fl_hash_map.sv`).
fn cuckoo_keys(entries: u32) -> u32 {
    entries + CANDIDATES + PENDING
}

/// The rows of the values of a hash map.
pub(crate) fn value_rows(own: &Map) -> u32 {
    cuckoo_keys(own.entries) + REST_CYCLES + own.slice.map_or(0, Slice::delay) + PENDING
}

/// The columns of a hash as a literal: `{right, left}` of each bit of the key, the highest one first.
fn columns(hash: &RowHash, key_bytes: usize) -> String {
    let width = 2 * hash.hash_bits() as usize;
    let bit = |half: u64, at: usize| if half >> at & 1 == 1 { '1' } else { '0' };
    let mut bits = String::new();
    for at in (0..8 * key_bytes).rev() {
        let (left, right) = hash.column(at);
        bits.extend((0..width).rev().map(|at| bit(right, at)));
        bits.extend((0..width).rev().map(|at| bit(left, at)));
    }
    let digit = |four: &[u8]| four.iter().fold(0, |sum, bit| 2 * sum + u8::from(*bit == b'1'));
    let digits: String = bits.as_bytes().chunks(4).map(|four| format!("{:x}", digit(four))).collect();
    format!("{}'h{digits}", bits.len())
}

/// The low bits of an operand, which is at least as wide.
pub(crate) fn low(dataflow: &Dataflow, id: Id, bits: u16, signal: &dyn Fn(Id) -> String) -> String {
    if dataflow.graph.bits(id) == bits {
        return signal(id);
    }
    match dataflow.graph.as_const(id) {
        Some(value) => number(value & (u64::MAX >> (64 - bits)), bits),
        None if bits == 1 => format!("{}[0]", signal(id)),
        None => format!("{}[{}:0]", signal(id), bits - 1),
    }
}
