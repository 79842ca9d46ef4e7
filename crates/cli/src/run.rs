//! `flowloom run`: packets through a function, and what became of them.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_bpf::Program;
use flowloom_efsm::model::Function;
use flowloom_efsm::{Coverage, ElementCoverage, Machine, layout};
use flowloom_engine::{Datapath, Snapshot, SnapshotError, Verdict};
use flowloom_exec::{RunOptions, RunSummary, SweepClock, run as run_packets};
use flowloom_trace::{CaptureWriter, MergedReader};
use serde_json::{Value, json};

use crate::args::{EngineName, InputArgs, RunArgs};
use crate::engines::Engine;
use crate::failure::{Failure, with_causes};
use crate::load::Loaded;
use crate::output::{grouped, print, print_json, progress, table, warn};
use crate::port_by;

/// Opens the captures that `args` names, merged by time.
pub(crate) fn open_input(args: &InputArgs) -> Result<MergedReader, Failure> {
    if args.read.is_empty() {
        return Err(Failure::Input("no packets: name a capture with -r".to_owned()));
    }
    let reader = MergedReader::open(&args.read).map_err(|e| Failure::input(&e))?;
    match &args.port_by {
        None => Ok(reader),
        Some(rules) => Ok(reader.port_by(port_by::compile_rules(rules)?)),
    }
}

/// Refuses to write to a file that is still to be read.
pub(crate) fn refuse_overwriting(read: &[PathBuf], write: &Path) -> Result<(), Failure> {
    let identity = |path: &Path| {
        let file = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some((file.dev(), file.ino()))
    };
    let Some(target) = identity(write) else { return Ok(()) };
    match read.iter().find(|path| identity(path) == Some(target)) {
        None => Ok(()),
        Some(path) => Err(Failure::Input(format!(
            "-w `{}` would overwrite the capture that -r `{}` reads; write to another file",
            write.display(),
            path.display()
        ))),
    }
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let loaded = Loaded::from_args(&args.function)?;
    if let Loaded::Efsm { warnings, .. } = &loaded {
        warn(warnings);
    }
    let mut input = open_input(&args.input)?;
    if let Some(path) = &args.write {
        refuse_overwriting(&args.input.read, path)?;
    }
    let program = loaded.program(false)?;
    let mut engine = Engine::load(args.engine, &loaded, true)?;
    if let Some(path) = &args.state_in {
        let wrong = |e: &dyn Error| Failure::Input(format!("`{}`: {}", path.display(), with_causes(e)));
        let text = fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
        let state = Snapshot::from_json(&text).map_err(|e| wrong(&e))?;
        // The engine also has maps that count; they are no state of the function.
        if let Some(map) = state.maps.keys().find(|name| program.maps.iter().all(|m| m.name != **name)) {
            let known: Vec<String> = program.maps.iter().map(|m| format!("`{}`", m.name)).collect();
            let known = if known.is_empty() { "no maps".to_owned() } else { known.join(", ") };
            return Err(wrong(&SnapshotError::UnknownMap { map: map.clone(), known }));
        }
        // The machine knows what a record of a source's function can hold; the other engines see bytes.
        if let Some(function) = loaded.function() {
            Machine::new(Arc::clone(function)).restore(&state).map_err(|e| wrong(&e))?;
        }
        engine.datapath().restore(&state).map_err(|e| wrong(&e))?;
    }
    let before = engine.datapath().snapshot().map_err(|e| Failure::input(&e))?;
    let mut writer = args.write.as_ref().map(CaptureWriter::create).transpose().map_err(|e| Failure::input(&e))?;
    let sweep = SweepClock::of(program.maps.iter().filter_map(|m| m.layout.as_ref()));
    let options = RunOptions { seed: args.input.seed, count: args.input.count, sweep };
    let bar = progress("packets", args.input.count);
    let mut packets = std::iter::from_fn(|| input.next_packet().transpose());
    let result = run_packets(engine.datapath(), &mut packets, writer.as_mut(), options, &mut |so_far| {
        bar.set_position(so_far.packets);
    });
    bar.finish_and_clear();
    // What was written before a failure stays readable.
    let finished = writer.map_or(Ok(()), CaptureWriter::finish);
    let summary = result.map_err(|e| Failure::input(&e))?;
    finished.map_err(|e| Failure::input(&e))?;

    let snapshot = engine.datapath().snapshot().map_err(|e| Failure::input(&e))?;
    if let Some(path) = &args.state_out {
        let state =
            Snapshot { maps: snapshot.maps.clone().into_iter().filter(|(n, _)| !layout::is_instrument(n)).collect() };
        fs::write(path, state.to_json() + "\n").map_err(|e| Failure::file("written", path, &e))?;
    }
    let coverage = match (&engine, loaded.function()) {
        (Engine::Machine(machine), _) => Some(machine.coverage()),
        (_, Some(function)) => Coverage::from_snapshot(function, &snapshot),
        (_, None) => None,
    };
    let contexts = contexts(&program, &before, &snapshot, summary.times_ns.map_or(0, |(_, last)| last));
    let report = Report { args, loaded: &loaded, summary: &summary, coverage, contexts, snapshot: &snapshot };
    if args.json { print_json(&report.json()) } else { print(&report.text()) }
}

/// How many contexts a table held.
#[derive(Debug, Clone, Copy, Default)]
struct Contexts {
    /// When the run began.
    before: u64,
    /// At its end, without those that have expired.
    alive: u64,
}

impl Contexts {
    /// Contexts whose time ran out, whether a packet met them or a sweep: all that came and neither went nor are there.
    fn timed_out(self, reached: &ElementCoverage) -> u64 {
        (self.before + reached.created).saturating_sub(reached.removed + self.alive)
    }
}

/// The contexts of each table, by map.
fn contexts(program: &Program, before: &Snapshot, after: &Snapshot, now_ns: u64) -> BTreeMap<String, Contexts> {
    let mut contexts = BTreeMap::new();
    for map in &program.maps {
        let (Some(layout), Some(entries)) = (&map.layout, after.maps.get(&map.name)) else { continue };
        let deadline = |record: &[u8], offset: u32| {
            let at = offset as usize;
            record.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
        };
        let is_alive = |record: &&Vec<u8>| layout.deadline_offsets.iter().all(|&o| deadline(record, o) > now_ns);
        let before = before.maps.get(&map.name).map_or(0, |entries| entries.len() as u64);
        let alive = entries.values().filter(is_alive).count() as u64;
        contexts.insert(map.name.clone(), Contexts { before, alive });
    }
    contexts
}

struct Report<'a> {
    args: &'a RunArgs,
    loaded: &'a Loaded,
    summary: &'a RunSummary,
    coverage: Option<Coverage>,
    contexts: BTreeMap<String, Contexts>,
    snapshot: &'a Snapshot,
}

impl Report<'_> {
    fn engine(&self) -> &'static str {
        match self.args.engine {
            EngineName::Machine => "machine",
            EngineName::Interp => "interp",
            EngineName::Kernel => "kernel",
        }
    }

    fn text(&self) -> String {
        let summary = self.summary;
        let span_s = summary.times_ns.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
        let mut text = format!(
            "{} on {}: {} packets, {} bytes, {span_s:.3} s of traffic in {:.3} s ({} packets/s)\n",
            self.loaded.name(),
            self.engine(),
            grouped(summary.packets),
            grouped(summary.bytes),
            summary.elapsed.as_secs_f64(),
            grouped(summary.packets_per_second() as u64),
        );
        text.push('\n');
        let rows: Vec<Vec<String>> = Verdict::ALL
            .iter()
            .map(|&v| vec![v.name().to_owned(), grouped(summary.count(v))])
            .chain(summary.refused.iter().map(|(why, n)| vec![format!("not run: {why}"), grouped(*n)]))
            .collect();
        text.push_str(&table(&["verdict", "packets"], &rows, &[1]));
        match (self.loaded.function(), &self.coverage) {
            (Some(function), Some(coverage)) => self.elements(function, coverage, &mut text),
            _ => {
                let rows: Vec<Vec<String>> =
                    self.snapshot.maps.iter().map(|(n, m)| vec![n.clone(), grouped(m.len() as u64)]).collect();
                if !rows.is_empty() {
                    text.push('\n');
                    text.push_str(&table(&["map", "entries"], &rows, &[1]));
                }
            }
        }
        text
    }

    fn elements(&self, function: &Function, coverage: &Coverage, text: &mut String) {
        for (element, reached) in function.elements.iter().zip(&coverage.elements) {
            let kind = if element.stateful.is_some() { "stateful" } else { "stateless" };
            text.push_str(&format!("\n{} ({kind})\n", element.name));
            let state_name = |state: u16| match &element.stateful {
                Some(stateful) => stateful.states[usize::from(state)].clone(),
                None => "-".to_owned(),
            };
            let mut rows = Vec::new();
            for (i, (row, hits)) in element.rows.iter().zip(&reached.rows).enumerate() {
                let (line, _, source) = function.source.locate(row.span.start);
                for (&state, &n) in hits {
                    let mut cells = vec![state_name(state), format!("row {} (line {line})", i + 1), grouped(n)];
                    if self.args.verbose {
                        cells.push(source.trim().to_owned());
                    }
                    rows.push(cells);
                }
            }
            let mut special = |what: &str, n: u64| {
                rows.push(vec!["-".to_owned(), what.to_owned(), grouped(n)]);
            };
            special("otherwise: no row matched", reached.no_match);
            if element.stateful.as_ref().is_some_and(|s| s.key.is_some()) {
                special("otherwise: no key", reached.no_key);
            }
            for (what, expired) in
                [("met after idle timeout", &reached.idle_expired), ("met after hard timeout", &reached.hard_expired)]
            {
                for (&state, &n) in expired {
                    rows.push(vec![state_name(state), what.to_owned(), grouped(n)]);
                }
            }
            let header: &[&str] =
                if self.args.verbose { &["state", "row", "hits", "source"] } else { &["state", "row", "hits"] };
            text.push_str(&table(header, &rows, &[2]));
            if element.stateful.is_some() {
                let contexts = self.contexts.get(&element.name).copied().unwrap_or_default();
                text.push_str(&format!(
                    "flows looked up {}, contexts created {}, removed {}, timed out {}, rejected {}, alive {}\n",
                    self.flows_looked_up(reached),
                    grouped(reached.created),
                    grouped(reached.removed),
                    grouped(contexts.timed_out(reached)),
                    grouped(reached.rejected),
                    grouped(contexts.alive),
                ));
            }
        }
    }

    /// Flows looked up: at least so many where the map that remembers them is full.
    fn flows_looked_up(&self, reached: &ElementCoverage) -> String {
        let flows = grouped(reached.flows_looked_up);
        let counts_all = self.args.engine == EngineName::Machine;
        if counts_all || reached.flows_looked_up < u64::from(layout::SEEN_ENTRIES) {
            flows
        } else {
            format!("at least {flows}")
        }
    }

    fn json(&self) -> Value {
        let summary = self.summary;
        let verdicts: BTreeMap<&str, u64> = Verdict::ALL.iter().map(|&v| (v.name(), summary.count(v))).collect();
        let refused: BTreeMap<String, u64> = summary.refused.iter().map(|(why, n)| (why.to_string(), *n)).collect();
        let mut value = json!({
            "function": self.loaded.name(),
            "engine": self.engine(),
            "packets": summary.packets,
            "bytes": summary.bytes,
            "verdicts": verdicts,
            "refused": refused,
            "outputs": summary.outputs,
            "output_bytes": summary.output_bytes,
            "first_time_ns": summary.times_ns.map(|(first, _)| first),
            "last_time_ns": summary.times_ns.map(|(_, last)| last),
            "elapsed_s": summary.elapsed.as_secs_f64(),
            "packets_per_s": summary.packets_per_second(),
        });
        if let (Some(function), Some(coverage)) = (self.loaded.function(), &self.coverage) {
            value["elements"] = elements_json(function, coverage, &self.contexts);
        } else {
            let maps: BTreeMap<&String, usize> = self.snapshot.maps.iter().map(|(n, m)| (n, m.len())).collect();
            value["maps"] = json!(maps);
        }
        value
    }
}

fn elements_json(function: &Function, coverage: &Coverage, contexts: &BTreeMap<String, Contexts>) -> Value {
    let elements = function.elements.iter().zip(&coverage.elements).map(|(element, reached)| {
        let name = |state: u16| element.stateful.as_ref().map(|s| s.states[usize::from(state)].clone());
        let by_state = |counts: &BTreeMap<u16, u64>| -> Value {
            counts.iter().map(|(&s, &n)| json!({"state": name(s), "hits": n})).collect()
        };
        let rows: Vec<Value> = element
            .rows
            .iter()
            .zip(&reached.rows)
            .map(|(row, hits)| {
                let (line, _, source) = function.source.locate(row.span.start);
                json!({"line": line, "source": source.trim(), "states": by_state(hits)})
            })
            .collect();
        let own = contexts.get(&element.name);
        json!({
            "name": element.name,
            "rows": rows,
            "no_match": reached.no_match,
            "no_key": reached.no_key,
            "idle_expired": by_state(&reached.idle_expired),
            "hard_expired": by_state(&reached.hard_expired),
            "flows_looked_up": reached.flows_looked_up,
            "contexts_created": reached.created,
            "contexts_removed": reached.removed,
            "contexts_rejected": reached.rejected,
            "contexts_timed_out": own.map(|c| c.timed_out(reached)),
            "contexts_alive": own.map(|c| c.alive),
        })
    });
    elements.collect()
}
