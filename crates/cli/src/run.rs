// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom run`: runs packets through a function and reports their verdicts.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowloom_context::ContextLayout;
use flowloom_efsm::{Coverage, Machine};
use flowloom_engine::{Datapath, Event, Snapshot, SnapshotError, Verdict};
use flowloom_exec::{EventReader, EventWriter, RunOptions, RunSummary, Sinks, Source, SweepClock, run as run_packets};
use flowloom_trace::{
    Batch, CaptureReader, CaptureWriter, CapturedPacket, Format, MergedReader, ReadAhead, TraceError,
};
use flowloom_vm::fib;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::{CaptureFormat, InputArgs, RoutesArgs, RunArgs, is_file, is_stream};
use crate::describe::describe;
use crate::failure::{Failure, INTERRUPTED, with_causes};
use crate::files::Files;
use crate::live;
use crate::output::{counted, grouped, print, print_error, print_note, progress, quoted, table, warn};
use crate::port_by;
use crate::report::{Contexts, Flows, elements_json, elements_text, maps_text};
use crate::reporter::Reporter;
use crate::state_file::StateFile;
use crate::traced::{Traced, Wanted};
use flowloom_session::engines::{Cores, CoresOptions, EngineName, EngineOptions, Started, StartedInPlace};
use flowloom_session::{Loaded, SessionError};

/// Opens the captures of `args`, merged by time.
pub(crate) fn open_input(args: &InputArgs) -> Result<MergedReader, Failure> {
    if args.read.is_empty() {
        return Err(Failure::Input("no packets: name a capture with -r".to_owned()));
    }
    if args.read.iter().filter(|path| is_stream(path)).count() > 1 {
        return Err(Failure::Input("-r - is given twice, expected once".to_owned()));
    }
    let open = |path: &PathBuf| if is_stream(path) { CaptureReader::stdin() } else { CaptureReader::open(path) };
    let captures = args.read.iter().map(open).collect::<Result<_, _>>().map_err(|e| Failure::input(&e))?;
    let reader = MergedReader::new(captures);
    match &args.port_by {
        None => Ok(reader),
        Some(rules) => Ok(reader.port_by(port_by::compile_rules(rules)?)),
    }
}

pub(crate) fn wrong_state(path: &Path, error: &dyn Error) -> Failure {
    Failure::Input(format!("`{}`: {}", path.display(), with_causes(error)))
}

pub(crate) fn read_routes(args: &RoutesArgs) -> Result<Option<fib::Table>, Failure> {
    let Some(path) = &args.routes else { return Ok(None) };
    let text = fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    fib::Table::from_json(&text).map(Some).map_err(|e| Failure::Input(format!("`{}`: {e}", path.display())))
}

/// Reads a state and checks that it fits the function. Applies and removes entries for the object's read-only data
/// sections.
pub(crate) fn read_state(path: &Path, loaded: &mut Loaded) -> Result<Snapshot, Failure> {
    let text = fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    let mut state = Snapshot::from_json(&text).map_err(|e| wrong_state(path, &e))?;
    loaded.set_constants(&mut state).map_err(|e| wrong_state(path, &e))?;
    // Counter maps are not part of the state.
    let maps = loaded.state_maps()?;
    if let Some(map) = state.maps.keys().find(|name| !maps.contains(name)) {
        let known = if maps.is_empty() { "no maps".to_owned() } else { quoted(&maps) };
        return Err(wrong_state(path, &SnapshotError::UnknownMap { map: map.clone(), known }));
    }
    // The reference machine validates records of a source's function; other engines treat them as bytes.
    if let Some(function) = loaded.function() {
        Machine::new(Arc::clone(function)).restore(&state).map_err(|e| wrong_state(path, &e))?;
    }
    Ok(state)
}

/// Rejects outputs that overwrite an input or another output. `--state-out` may overwrite `--state-in`, to continue
/// with it.
fn check_files(args: &RunArgs) -> Result<(), Failure> {
    let sinks = || Files::default().writes("-w", args.write.as_ref()).writes("--events", args.events.as_ref());
    let all = sinks().writes("--state-out", args.state_out.as_ref());
    let all = all.reads("the function", [&args.function.path]).reads("the capture that -r reads", &args.input.read);
    all.reads("the routes that --routes reads", &args.routes.routes).check()?;
    sinks().reads("the state that --state-in reads", &args.state_in).check()
}

/// The named engine. Without a name it is machine code, and the interpreter, with a note, for a program that has none.
fn started(
    named: Option<EngineName>,
    loaded: &Loaded,
    options: &EngineOptions,
) -> Result<(EngineName, Started), SessionError> {
    let name = named.unwrap_or(EngineName::JIT);
    match name.load(loaded, options) {
        Err(SessionError::Refused(reason)) if named.is_none() => {
            let mut started = EngineName::INTERP.load(loaded, options)?;
            started.notes.insert(0, format!("run by the interpreter: {reason}"));
            Ok((EngineName::INTERP, started))
        }
        result => Ok((name, result?)),
    }
}

/// As [`started`], on several cores; `None`, with the reason printed, for a function that needs one core.
fn started_on_cores(
    named: Option<EngineName>,
    loaded: &Loaded,
    options: &EngineOptions,
    workers: Option<u32>,
) -> Result<Option<(EngineName, Cores)>, SessionError> {
    let Some(workers @ 2..) = workers else { return Ok(None) };
    let how = CoresOptions::default();
    let name = named.unwrap_or(EngineName::JIT);
    let (name, loaded_on) = match name.load_on_cores(loaded, options, workers as usize, how) {
        Err(SessionError::Refused(reason)) if named.is_none() => {
            print_note(&format!("run by the interpreter: {reason}"));
            let name = EngineName::INTERP;
            (name, name.load_on_cores(loaded, options, workers as usize, how))
        }
        result => (name, result),
    };
    match loaded_on {
        Ok((cores, notes)) => {
            notes.iter().for_each(|note| print_note(note));
            Ok(Some((name, cores)))
        }
        Err(SessionError::OneCore(reasons)) => {
            print_note(&one_core(workers, loaded, &reasons));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The packets of each core, and why one core ran all in the end.
pub(crate) fn workers_json(cores: &Cores) -> Value {
    let workers: Vec<Value> = cores.packets().into_iter().map(|packets| json!({ "packets": packets })).collect();
    json!({ "number": workers.len(), "cores": workers, "joined": cores.joined() })
}

/// Prints that one core has run all packets from some moment on, if so.
fn note_joined(cores: Option<&Cores>) {
    if let Some(reason) = cores.and_then(Cores::joined) {
        print_note(&format!("one core ran all packets in the end: {reason}"));
    }
}

/// The packets that each core has run.
pub(crate) fn workers_text(cores: Option<&Cores>) -> String {
    let Some(cores) = cores else { return String::new() };
    let packets: Vec<String> = cores.packets().into_iter().map(grouped).collect();
    format!("packets by core: {}\n", packets.join(", "))
}

/// As [`started`], for packets that are changed in place; on several cores, unless the function needs one.
pub(crate) fn started_in_place(
    named: Option<EngineName>,
    loaded: &Loaded,
    options: &EngineOptions,
    workers: Option<u32>,
) -> Result<StartedInPlace, SessionError> {
    let start = |name: EngineName| {
        let Some(workers @ 2..) = workers else { return name.load_in_place(loaded, options) };
        match name.load_on_cores(loaded, options, workers as usize, CoresOptions::live()) {
            Ok((cores, notes)) => Ok(StartedInPlace { engine: Box::new(cores), notes }),
            Err(SessionError::OneCore(reasons)) => {
                let mut started = name.load_in_place(loaded, options)?;
                started.notes.insert(0, one_core(workers, loaded, &reasons));
                Ok(started)
            }
            Err(error) => Err(error),
        }
    };
    match start(named.unwrap_or(EngineName::JIT)) {
        Err(SessionError::Refused(reason)) if named.is_none() => {
            let mut started = start(EngineName::INTERP)?;
            started.notes.insert(0, format!("run by the interpreter: {reason}"));
            Ok(started)
        }
        result => result,
    }
}

/// Says why a function runs on one core.
fn one_core(workers: u32, loaded: &Loaded, reasons: &[String]) -> String {
    format!("--workers {workers}: one core runs `{}`: {}", loaded.name(), reasons.join("; "))
}

pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    check_files(args)?;
    let mut loaded = args.function.load()?;
    warn(loaded.warnings());
    if let (Some(workers @ 2..), false) = (args.workers, args.trace.is_empty()) {
        return Err(Failure::Input(format!(
            "--trace cannot be used with --workers {workers}: packets are traced on one core, with all of the state and its \
             random numbers; use --workers 1, or leave it out"
        )));
    }
    if !args.live.interface.is_empty() {
        return live::run(args, &mut loaded);
    }
    let wanted = Wanted::parse(&args.trace)?;
    let reader = open_input(&args.input)?;
    let state = args.state_in.as_ref().map(|path| read_state(path, &mut loaded).map(|state| (path, state)));
    let state = state.transpose()?;
    let layouts = loaded.layouts();
    let options = EngineOptions { counters: true, routes: read_routes(&args.routes)?, ..EngineOptions::default() };
    let on_cores = started_on_cores(args.engine, &loaded, &options, args.workers)?;
    let (engine_name, Started { mut engine, notes }) = match on_cores {
        Some((name, cores)) => (name, cores.into()),
        None => started(args.engine, &loaded, &options)?,
    };
    notes.iter().for_each(|note| print_note(note));
    if let Some((path, state)) = &state {
        engine.restore(state).map_err(|e| wrong_state(path, &e))?;
    }
    drop(state);
    let before: BTreeMap<String, u64> = {
        let snapshot = engine.snapshot().map_err(|e| Failure::input(&e))?;
        snapshot.maps.into_iter().map(|(name, entries)| (name, entries.len() as u64)).collect()
    };
    // A first signal ends the run like the end of input; a second one ends the process.
    let interrupted = Interrupted::hold()?;
    let state_out = args.state_out.as_ref().map(|path| StateFile::create(path)).transpose()?;
    let mut writer = args.write.as_ref().map(|path| create_capture(path, args.format)).transpose()?;
    let create = |path: &PathBuf| EventWriter::create(path).map_err(|e| Failure::file("written", path, &e));
    let mut events = args.events.as_ref().map(create).transpose()?;
    let sweep = SweepClock::of(layouts.values());
    // A stream or a pipe may wait for what its packets cause: it is not read ahead.
    let reads_ahead = args.input.read.iter().all(|path| is_file(path));
    let options = RunOptions { seed: args.input.seed, count: args.input.count, sweep, reads_ahead };
    let bar = progress("packets", args.input.count);
    let mut input = Input { reader: Some(reader), batches: None, interrupted: &interrupted, damage: None };
    let mut reporter = loaded.function().and_then(|function| Reporter::of(function, args.json));
    let to_stdout = !args.write.as_deref().is_some_and(is_stream);
    let mut print_report = |event: &Event| {
        let Some(reporter) = &mut reporter else { return Ok(()) };
        let line = reporter.line(event);
        if !to_stdout {
            print_error(&line);
            return Ok(());
        }
        print(&line).map_err(|_| std::io::Error::other("stdout cannot be written"))
    };
    let reader: Option<&mut EventReader<'_>> = Some(&mut print_report);
    let sinks = Sinks { packets: writer.as_mut(), events: events.as_mut(), reader };
    let result = {
        let mut traced;
        let datapath: &mut dyn Datapath = match wanted {
            None => engine.as_mut(),
            Some(wanted) => {
                let path = args.function.path.display().to_string();
                let (function, routes) = (loaded.function().cloned(), read_routes(&args.routes)?);
                let describe = |program: &_| describe(&loaded, &path, program);
                let form = (args.json, !to_stdout);
                traced = Traced::new(engine.as_mut(), function, routes, wanted, form, describe)?;
                &mut traced
            }
        };
        run_packets(datapath, &mut input, sinks, options, &mut |so_far| bar.set_position(so_far.packets))
    };
    bar.finish_and_clear();
    let damage = input.damage;
    // Finish the capture also after a failure, so that it stays readable.
    let finished = writer.map_or(Ok(()), CaptureWriter::finish);
    if let (Some(events), Some(path)) = (events, &args.events) {
        events.finish().map_err(|e| Failure::file("written", path, &e))?;
    }
    let summary = result.map_err(|e| Failure::input(&e))?;
    finished.map_err(|e| Failure::input(&e))?;
    if let (Some(e), 0) = (&damage, summary.packets) {
        return Err(Failure::input(e));
    }

    let snapshot = engine.snapshot().map_err(|e| Failure::input(&e))?;
    let saved = state_out.map_or(Ok(()), |mut file| file.write(&loaded, &snapshot));
    let in_snapshot = || Coverage::from_snapshot(loaded.function()?, &snapshot);
    let coverage = engine.coverage().or_else(in_snapshot);
    let now_ns = summary.times_ns.map_or(0, |(_, last)| last);
    let contexts = contexts(&layouts, &before, &snapshot, now_ns, coverage.as_ref());
    note_joined(engine.cores());
    let cores = engine.cores();
    let report = Report {
        args,
        engine_name,
        loaded: &loaded,
        summary: &summary,
        coverage,
        contexts,
        snapshot: &snapshot,
        cores,
    };
    let text = match args.json {
        // After lines of records, print the report as a single line too.
        true if reporter.is_some() || !args.trace.is_empty() => format!("{}\n", report.json()),
        true => format!("{:#}\n", report.json()),
        false => report.text(),
    };
    if args.write.as_deref().is_some_and(is_stream) {
        print_error(&text);
    } else {
        print(&text)?;
    }
    saved?;
    match damage {
        _ if interrupted.is_set() => Err(Failure::Interrupted),
        Some(e) => Err(Failure::input(&e)),
        None => Ok(()),
    }
}

/// The packets of captures, up to a signal. A damaged capture ends them too, so that there is a report of the packets
/// before the damage.
struct Input<'i> {
    /// Until batches are wanted.
    reader: Option<MergedReader>,
    batches: Option<ReadAhead>,
    interrupted: &'i Interrupted,
    damage: Option<TraceError>,
}

impl Source for Input<'_> {
    fn next_packet(&mut self) -> Result<Option<CapturedPacket>, TraceError> {
        let Some(reader) = &mut self.reader else {
            return Ok(self.next_batch(1)?.iter().next().map(CapturedPacket::from));
        };
        match reader.next_packet() {
            // The signal may have come while a stream was waited for.
            _ if self.interrupted.is_set() => Ok(None),
            Ok(packet) => Ok(packet),
            Err(damage) => {
                self.damage = Some(damage);
                Ok(None)
            }
        }
    }

    fn next_batch(&mut self, most: usize) -> Result<Batch<'_>, TraceError> {
        if let Some(reader) = self.reader.take() {
            self.batches = Some(ReadAhead::new(reader)?);
        }
        let Some(batches) = &mut self.batches else { return Ok(Batch::default()) };
        match batches.next_batch(most) {
            _ if self.interrupted.is_set() => Ok(Batch::default()),
            Ok(batch) => Ok(batch),
            Err(damage) => {
                self.damage = Some(damage);
                Ok(Batch::default())
            }
        }
    }

    fn take_back(&mut self, packets: usize) {
        if let Some(batches) = &mut self.batches {
            batches.take_back(packets);
        }
    }
}

/// Flag that a signal sets to end a run.
pub(crate) struct Interrupted(Arc<AtomicBool>);

impl Interrupted {
    /// From here on a first signal sets the flag, and a second one ends the process.
    pub(crate) fn hold() -> Result<Interrupted, Failure> {
        Interrupted::hold_signals(&[SIGINT, SIGTERM, SIGHUP])
    }

    /// As [`Interrupted::hold`], for these signals.
    pub(crate) fn hold_signals(signals: &[i32]) -> Result<Interrupted, Failure> {
        let is_set = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            // Order matters: the first signal must find the flag unset.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&is_set))
                .and_then(|_| flag::register(signal, Arc::clone(&is_set)))
                .map_err(|e| Failure::Environment(format!("signals cannot be handled: {e}")))?;
        }
        Ok(Interrupted(is_set))
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.0
    }
}

/// Creates the capture of -w. `format` applies only to stdout; otherwise the file extension decides.
fn create_capture(path: &Path, format: Option<CaptureFormat>) -> Result<CaptureWriter, Failure> {
    let created = match (is_stream(path), format) {
        (true, _) if std::io::stdout().is_terminal() => {
            return Err(Failure::Input(
                "-w - writes a capture to standard output, which is a terminal; use a pipe or a file".to_owned(),
            ));
        }
        (true, Some(CaptureFormat::Pcapng)) => CaptureWriter::stdout(Format::PcapNg),
        (true, _) => CaptureWriter::stdout(Format::Pcap),
        (false, Some(_)) => {
            return Err(Failure::Input(format!(
                "--format is for -w -: the name `{}` says what is written, pcapng where it ends in .pcapng, otherwise pcap",
                path.display()
            )));
        }
        (false, None) => CaptureWriter::create(path),
    };
    created.map_err(|e| Failure::input(&e))
}

/// Contexts of each table, by map. Expired contexts are those created or present before that were neither removed nor
/// evicted and are not alive, whether a packet or a sweep detected the expiry.
pub(crate) fn contexts(
    layouts: &BTreeMap<String, ContextLayout>,
    before: &BTreeMap<String, u64>,
    after: &Snapshot,
    now_ns: u64,
    coverage: Option<&Coverage>,
) -> BTreeMap<String, Contexts> {
    let mut contexts = BTreeMap::new();
    for (name, layout) in layouts {
        let Some(entries) = after.maps.get(name) else { continue };
        let deadline = |record: &[u8], offset: u32| {
            let at = offset as usize;
            record.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(u64::MAX, u64::from_le_bytes)
        };
        let is_alive = |record: &&Vec<u8>| layout.deadline_offsets.iter().all(|&o| deadline(record, o) > now_ns);
        let before = before.get(name).copied().unwrap_or(0);
        let alive = entries.values().filter(is_alive).count() as u64;
        let reached = coverage.and_then(|c| c.elements.iter().find(|e| e.name == *name));
        let timed_out = reached.map_or(0, |r| (before + r.created).saturating_sub(r.removed + r.evicted + alive));
        contexts.insert(name.clone(), Contexts { timed_out, alive });
    }
    contexts
}

struct Report<'a> {
    args: &'a RunArgs,
    engine_name: EngineName,
    loaded: &'a Loaded,
    summary: &'a RunSummary,
    coverage: Option<Coverage>,
    contexts: BTreeMap<String, Contexts>,
    snapshot: &'a Snapshot,
    cores: Option<&'a Cores>,
}

impl Report<'_> {
    fn engine(&self) -> &'static str {
        self.engine_name.as_str()
    }

    fn text(&self) -> String {
        let summary = self.summary;
        let span_s = summary.times_ns.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
        let mut text = format!(
            "{} on {}: {}, {}, {span_s:.3} s of traffic in {:.3} s ({} packets/s)\n",
            self.loaded.name(),
            self.engine(),
            counted(summary.packets as usize, "packet"),
            counted(summary.bytes as usize, "byte"),
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
        text.push_str(&workers_text(self.cores));
        if summary.events > 0 {
            text.push_str(&format!("records for user space: {}\n", grouped(summary.events)));
        }
        match (self.loaded.function(), &self.coverage) {
            (Some(function), Some(coverage)) => {
                let flows = if self.engine_name == EngineName::MACHINE { Flows::All } else { Flows::Recorded };
                text.push_str(&elements_text(function, coverage, &self.contexts, flows, self.args.verbose));
            }
            _ => {
                text.push_str(&maps_text(self.snapshot, |_| true));
            }
        }
        text
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
            "events": summary.events,
            "first_time_ns": summary.times_ns.map(|(first, _)| first),
            "last_time_ns": summary.times_ns.map(|(_, last)| last),
            "elapsed_s": summary.elapsed.as_secs_f64(),
            "packets_per_s": summary.packets_per_second(),
        });
        if let Some(cores) = self.cores {
            value["workers"] = workers_json(cores);
        }
        if let (Some(function), Some(coverage)) = (self.loaded.function(), &self.coverage) {
            value["elements"] = elements_json(function, coverage, &self.contexts);
        } else {
            let maps: BTreeMap<&String, usize> = self.snapshot.maps.iter().map(|(n, m)| (n, m.len())).collect();
            value["maps"] = json!(maps);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Cursor;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// A capture of packets of 60 bytes, the last of which lacks this many bytes.
    fn reader(packets: usize, lacks: usize) -> MergedReader {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
        for number in 0..packets {
            bytes.extend([number as u8, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 60, 0, 0, 0]);
            bytes.extend([number as u8; 60]);
        }
        bytes.truncate(bytes.len() - lacks);
        MergedReader::new(vec![CaptureReader::from_reader("x", Cursor::new(bytes)).unwrap()])
    }

    fn batch(input: &mut Input<'_>, most: usize) -> Vec<u8> {
        input.next_batch(most).unwrap().iter().map(|packet| packet.bytes[0]).collect()
    }

    #[test]
    fn a_signal_ends_the_packets() {
        let interrupted = Interrupted(Arc::new(AtomicBool::new(false)));
        let input = |packets, lacks| Input {
            reader: Some(reader(packets, lacks)),
            batches: None,
            interrupted: &interrupted,
            damage: None,
        };
        let (mut single, mut batches, mut damaged) = (input(4, 0), input(4, 0), input(4, 1));
        assert_eq!(single.next_packet().unwrap().unwrap().bytes, [0; 60]);
        assert_eq!(batch(&mut batches, 2), [0, 1]);
        batches.take_back(1);
        assert_eq!(batches.next_packet().unwrap().unwrap().bytes, [1; 60]);
        assert_eq!(batch(&mut damaged, 9), [0, 1, 2]);
        interrupted.0.store(true, Ordering::Relaxed);
        assert_eq!(single.next_packet().unwrap(), None);
        assert!(batch(&mut batches, 9).is_empty());
        // What ends the packets is the signal.
        assert!(batch(&mut damaged, 9).is_empty() && damaged.damage.is_none());
    }

    #[test]
    fn damage_ends_the_packets() {
        let interrupted = Interrupted(Arc::new(AtomicBool::new(false)));
        let mut input = Input { reader: Some(reader(4, 1)), batches: None, interrupted: &interrupted, damage: None };
        assert_eq!(batch(&mut input, 9), [0, 1, 2]);
        assert!(input.damage.is_none() && batch(&mut input, 9).is_empty());
        assert!(input.damage.unwrap().to_string().contains("after 3 packets"));
    }
}
