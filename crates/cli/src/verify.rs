// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom verify`: compares targets with the reference, and shrinks a disagreement to its smallest trace.

mod case;
mod explored;
mod target;

pub(crate) use case::keeps_ports;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowloom_engine::{Datapath, EngineError, Port, Verdict};
use flowloom_isa::Program;
use flowloom_trace::{CaptureWriter, CapturedPacket, MergedReader};
use flowloom_verify::{
    Arrival, CompareOptions, Reached, Report, ShrinkOptions, ShrinkProgress, Shrunk, Stimulus, StimulusOptions,
    Undefined, compare, compare_stream, compare_stream_all, shrink, shrink_end,
};
use serde_json::{Value, json};

use crate::args::{InputArgs, VerifyArgs, is_file};
use crate::failure::Failure;
use crate::files::{Files, can_be_written};
use crate::output::{counted, grouped, print, print_json, print_note, progress, quoted, table, warn};
use crate::run::{open_input, read_routes, read_state};
use flowloom_session::Loaded;
use flowloom_session::SessionError;
use flowloom_session::engines::{Engine, EngineName, EngineOptions};
use target::Target;

/// Packets after which the progress is shown again.
const PROGRESS_PACKETS: usize = 1 << 12;

struct Comparison {
    report: Report,
    shrunk: Option<Shrunk>,
    /// Cores of the target.
    cores: u32,
}

impl Comparison {
    /// With a target on one core.
    fn new(report: Report, shrunk: Option<Shrunk>) -> Comparison {
        Comparison { report, shrunk, cores: 1 }
    }
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<(), Failure> {
    check_files(args)?;
    let mut loaded = args.function.load()?;
    warn(loaded.warnings());
    let targets = targets(&args.targets)?;
    if loaded.function().is_none() {
        if args.require_coverage.is_some() {
            return Err(Failure::Input(
                "--require-coverage counts rows, timers and defaults of a source; an object has none".to_owned(),
            ));
        }
        if targets
            .iter()
            .all(|(name, _)| *name == EngineName::INTERP && target::is_reference(*name, &loaded, args.workers))
        {
            return Err(Failure::Input(
                "the interpreter is the reference of objects; choose the target `kernel` or `dataflow`".to_owned(),
            ));
        }
    }
    if loaded.function().is_none() && args.input.read.is_empty() {
        return explored::verify(args, &loaded.program()?, &targets);
    }
    let state = args.state_in.as_ref().map(|path| read_state(path, &mut loaded)).transpose()?.unwrap_or_default();
    let program = loaded.program()?;
    let source = Source::new(args, &loaded)?;
    let mut seen = 0;
    let layouts: BTreeMap<_, _> =
        program.maps.iter().filter_map(|m| Some((m.name.clone(), m.layout.clone()?))).collect();
    let swept = layouts.values().filter(|l| !l.deadline_offsets.is_empty());
    let sweep_ns = swept.map(|l| l.sweep_ns).filter(|&ns| ns > 0).min();
    let is_foreign = loaded.function().is_none();
    // The lowering of our own functions emits only initialized bytes.
    let undefined = if is_foreign { Undefined::of(&program) } else { Undefined::default() };
    for (at, what) in undefined.causes() {
        print_note(&format!("kernel-dependent contents, ignored in the comparison: {what}{}", place(&program, *at)));
    }
    let seed = args.input.seed;
    let compare_options =
        CompareOptions { seed, sweep_ns, layouts, state, is_foreign, undefined, ..CompareOptions::default() };

    let mut reached = loaded.function().map(|f| Reached::new(f));
    let mut comparison = Vec::new();
    let reference_name = EngineName::reference(&loaded);
    let (mut engines, mut cores_of) = (Vec::new(), Vec::new());
    let options = EngineOptions { routes: read_routes(&args.routes)?, compare_proof: true, ..EngineOptions::default() };
    for (name, reason) in &targets {
        if let Some(reason) = reason {
            print_note(&format!("target `{}` is skipped: {reason}", name.as_str()));
            continue;
        }
        if target::is_reference(*name, &loaded, args.workers) {
            continue;
        }
        if targets.len() > 1
            && let Some(lacks) = (name.kind().lacks)(&loaded)
        {
            print_note(&format!("target `{}` is skipped: {lacks}", name.as_str()));
            continue;
        }
        let Target { started, cores, why_one } = match target::load(*name, &loaded, &options, args.workers) {
            Err(SessionError::Refused(why)) if targets.len() > 1 && name.kind().is_partial => {
                print_note(&format!("target `{}` is skipped: {why}", name.as_str()));
                continue;
            }
            started => started?,
        };
        why_one.iter().chain(&started.notes).for_each(|note| print_note(note));
        if target::is_reference_after_all(*name, &loaded, cores) {
            continue;
        }
        engines.push(started.engine);
        cores_of.push(cores);
    }
    if !engines.is_empty() {
        let mut reference = reference_name.load(&loaded, &options)?.engine;
        let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
        let bar = progress(&format!("comparing {}", names.join(", ")), None);
        let mut on_agreement = |reference: &dyn Engine| {
            // One run suffices for coverage, since all runs have the same packets.
            if let (Some(coverage), Some(reached)) = (reference.coverage(), &mut reached) {
                reached.add(&coverage);
            }
        };
        let result =
            source.compare_and_shrink(reference.as_mut(), &mut engines, &compare_options, &mut on_agreement, &bar);
        bar.finish_and_clear();
        (comparison, seen) = result?;
        comparison.iter_mut().zip(cores_of).for_each(|(comparison, cores)| comparison.cores = cores);
    }
    if comparison.is_empty() {
        return Err(Failure::Environment("no target can run here: nothing was compared".to_owned()));
    }
    let disagrees = comparison.iter().any(|j| !j.report.agrees());
    if let (Some(path), Some(Comparison { shrunk: Some(shrunk), .. })) =
        (&args.write, comparison.iter().find(|j| j.shrunk.is_some()))
    {
        case::write(path, &shrunk.packets)?;
        case::remark_written(args, path, args.state_in.as_deref(), args.input.seed);
    }
    let gaps = match (args.require_coverage, &reached) {
        (Some(least), Some(reached)) if !disagrees => reached.gaps(least),
        _ => Vec::new(),
    };
    if args.json {
        print_json(&as_json(args, &loaded, seen, &comparison, reached.as_ref()))?;
    } else {
        print(&as_text(&loaded, seen, &comparison, reached.as_ref().filter(|_| !disagrees)))?;
        print(&slow_only(&comparison).concat())?;
        if let Some(least) = args.require_coverage.filter(|_| !gaps.is_empty()) {
            let n = gaps.len();
            print(&format!(
                "{n} of the lines above have fewer hits than {least}, the minimum of --require-coverage\n"
            ))?;
        }
    }
    judged(&comparison, !gaps.is_empty(), args.require_coverage.is_some())
}

/// The result of all comparisons; `has_gaps`: whether coverage that is required was not reached.
fn judged(comparison: &[Comparison], has_gaps: bool, requires_coverage: bool) -> Result<(), Failure> {
    let disagrees = comparison.iter().any(|j| !j.report.agrees());
    match () {
        () if disagrees || has_gaps => Err(Failure::Finding),
        () if requires_coverage && !slow_only(comparison).is_empty() => Err(Failure::Finding),
        () if comparison.iter().all(|j| j.report.packets_own() == 0) => Err(nothing_compared()),
        () => Ok(()),
    }
}

/// Engines that `names` selects, each with the reason if it is unavailable. `available` selects all.
fn targets(names: &[String]) -> Result<Vec<(EngineName, Option<String>)>, Failure> {
    let targets = || EngineName::all().filter(|engine| *engine != EngineName::MACHINE);
    let mut wanted: Vec<(EngineName, bool)> = Vec::new();
    for name in names {
        match EngineName::by_name(name) {
            Some(engine) => wanted.push((engine, true)),
            None if name == "available" => {
                wanted.extend(targets().filter(|engine| engine.kind().is_default).map(|engine| (engine, false)));
            }
            None => {
                let known = quoted(targets().map(EngineName::as_str));
                return Err(Failure::Input(format!("unknown target `{name}`, expected one of {known}, `available`")));
            }
        }
    }
    if wanted.iter().all(|(engine, _)| *engine == EngineName::MACHINE) {
        return Err(Failure::Input(
            "targets are compared with the reference machine; choose `interp`, `kernel` or `available`".to_owned(),
        ));
    }
    let mut found: Vec<(EngineName, Option<String>)> = Vec::new();
    for (engine, is_required) in wanted {
        if found.iter().any(|(other, _)| *other == engine) {
            continue;
        }
        match (engine.kind().available)() {
            Err(reason) if is_required => {
                let name = engine.as_str();
                return Err(Failure::Environment(format!("target `{name}` cannot run here: {reason}")));
            }
            available => found.push((engine, available.err())),
        }
    }
    Ok(found)
}

/// Rejects outputs that overwrite an input.
fn check_files(args: &VerifyArgs) -> Result<(), Failure> {
    // The case is written at the end, and only if engines differ: check the path now.
    if let Some(path) = &args.write {
        can_be_written(path)?;
    }
    let state = args.write.as_ref().filter(|_| args.input.read.is_empty()).map(|path| case::state_path(path));
    let files = Files::default().writes("-w", args.write.as_ref()).writes("-w, for the state,", state.as_ref());
    let files = files.reads("the function", [&args.function.path]).reads("the capture that -r reads", &args.input.read);
    let files = files.reads("the state that --state-in reads", &args.state_in);
    files.reads("the routes that --routes reads", &args.routes.routes).check()
}

/// Without a compared packet there is no agreement.
fn nothing_compared() -> Failure {
    Failure::Input("no packet was run on both engines: nothing was compared".to_owned())
}

/// By target all of whose packets took the slow path, a line that says so.
fn slow_only(comparison: &[Comparison]) -> Vec<String> {
    let reports = comparison.iter().map(|j| &j.report);
    let slow = reports.filter(|report| report.agrees() && report.packets_compared > 0 && report.packets_own() == 0);
    slow.map(|report| not_own(&report.target, report.packets_compared)).collect()
}

/// A line about a target that ran no packet itself.
fn not_own(target: &str, packets: u64) -> String {
    format!(
        "`{target}` was not compared: all {} took the slow path, on which the host runs them; other traffic, as a \
         capture (-r), may reach the target itself\n",
        counted(packets as usize, "packet")
    )
}

/// Source of packets.
enum Source<'a> {
    /// All packets in memory.
    Generated(Vec<Arrival>),
    /// Captures that are read again for each target, so that packets need not be kept in memory.
    Read(&'a InputArgs),
}

impl<'a> Source<'a> {
    fn new(args: &'a VerifyArgs, loaded: &Loaded) -> Result<Source<'a>, Failure> {
        let again = args.input.read.iter().all(|path| is_file(path));
        if again && !args.input.read.is_empty() {
            return Ok(Source::Read(&args.input));
        }
        packets(args, loaded).map(Source::Generated)
    }

    /// Compares engines with the reference on the packets. Returns the results and the number of packets.
    /// `on_agreement` sees the reference after the first run without a disagreement.
    fn compare_and_shrink(
        &self,
        reference: &mut dyn Engine,
        engines: &mut [Box<dyn Engine>],
        options: &CompareOptions,
        on_agreement: &mut dyn FnMut(&dyn Engine),
        bar: &indicatif::ProgressBar,
    ) -> Result<(Vec<Comparison>, usize), Failure> {
        let (mut together, mut seen) = (Vec::new(), 0);
        if let Source::Read(input) = self
            && engines.len() > 1
        {
            let (compared, count) = compare_capture(input, bar, |packets| {
                let mut targets: Vec<&mut dyn Datapath> =
                    engines.iter_mut().map(|engine| engine.as_mut() as &mut dyn Datapath).collect();
                compare_stream_all(reference, &mut targets, packets, options)
            })?;
            // Where an engine has failed, each comparison alone says which one.
            (together, seen) = (compared.unwrap_or_default(), count);
        }
        let mut is_covered = false;
        let mut cover = |reference: &dyn Engine, report: &Report| {
            if report.agrees() && !std::mem::replace(&mut is_covered, true) {
                on_agreement(reference);
            }
        };
        if let Some(report) = together.iter().flatten().find(|report| report.agrees()) {
            cover(reference, report);
        }
        let mut all = Vec::new();
        for (number, engine) in engines.iter_mut().enumerate() {
            let report = together.get_mut(number).and_then(Option::take);
            let (comparison, count) = match (self, report) {
                (Source::Generated(packets), _) => {
                    (compare_and_shrink(reference, engine.as_mut(), packets, options, bar)?, packets.len())
                }
                (Source::Read(input), Some(report)) => {
                    shrunk(input, reference, engine.as_mut(), Ok(report), seen, options, bar)?
                }
                (Source::Read(input), None) => {
                    let (compared, count) = compare_capture(input, bar, |packets| {
                        compare_stream(reference, engine.as_mut(), packets, options)
                    })?;
                    shrunk(input, reference, engine.as_mut(), compared, count, options, bar)?
                }
            };
            cover(reference, &comparison.report);
            seen = seen.max(count);
            all.push(comparison);
        }
        Ok((all, seen))
    }
}

/// What a comparison gives, and the number of packets that it took.
type Compared<R> = (Result<R, EngineError>, usize);

/// Has `compare` take the packets of the captures.
fn compare_capture<R>(
    input: &InputArgs,
    bar: &indicatif::ProgressBar,
    compare: impl FnOnce(&mut dyn FnMut(&mut Arrival) -> bool) -> Result<R, EngineError>,
) -> Result<Compared<R>, Failure> {
    let (mut count, mut damage) = (0, None);
    let mut reader = open_input(input)?;
    let mut captured = CapturedPacket::default();
    let compared = compare(&mut |arrival| {
        if input.count.is_some_and(|most| count as u64 >= most) {
            return false;
        }
        match reader.read_into(&mut captured) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(e) => {
                damage = Some(Failure::input(&e));
                return false;
            }
        }
        (arrival.time_ns, arrival.port) = (captured.time_ns, Port(captured.port));
        std::mem::swap(&mut arrival.bytes, &mut captured.bytes);
        count += 1;
        if count % PROGRESS_PACKETS == 0 {
            bar.set_position(count as u64);
        }
        true
    });
    match damage {
        Some(damage) => Err(damage),
        None if count == 0 => Err(Failure::Input("no packets: nothing to compare".to_owned())),
        None => Ok((compared, count)),
    }
}

/// The result of a comparison on `count` packets of the captures, whose disagreement is shrunk.
fn shrunk(
    input: &InputArgs,
    reference: &mut dyn Datapath,
    target: &mut dyn Datapath,
    compared: Result<Report, EngineError>,
    count: usize,
    options: &CompareOptions,
    bar: &indicatif::ProgressBar,
) -> Result<(Comparison, usize), Failure> {
    let report = match compared {
        Ok(report) if report.agrees() => return Ok((Comparison::new(report, None), count)),
        Ok(report) => Some(report),
        Err(EngineError::Fault { .. }) => None,
        Err(other) => return Err(Failure::input(&other)),
    };
    bar.set_message("reading up to the disagreement");
    let position = report.as_ref().and_then(|report| report.disagreement.as_ref()?.position);
    if let (Some(report), Some(position)) = (&report, position) {
        let how = ShrinkOptions::default();
        let mut total = 0;
        let mut end = |last| {
            let read = read_before(input, position + 1, last)?;
            total = read.1;
            Ok::<_, Failure>(read.0)
        };
        let progress = &mut |so_far| show(bar, so_far);
        let shrunk = shrink_end(reference, target, position + 1, &mut end, options, &how, progress)?;
        // Report the disagreement even if it does not recur.
        return Ok((Comparison::new(report.clone(), shrunk), total));
    }
    // The reference aborted, or the states differ from the start. One packet more than needed may have been read.
    let (packets, total) = read_before(input, count, count)?;
    let comparison = compare_and_shrink(reference, target, &packets, options, bar)?;
    match (comparison.report.agrees(), report) {
        (true, Some(report)) => Ok((Comparison::new(report, None), total)),
        _ => Ok((comparison, total)),
    }
}

/// The last `last` packets before packet number `end` of the captures, from 0, and the number of all packets.
fn read_before(input: &InputArgs, end: usize, last: usize) -> Result<(Vec<Arrival>, usize), Failure> {
    let mut reader = open_input(input)?;
    let (mut packets, mut total) = (Vec::new(), 0);
    while input.count.is_none_or(|most| (total as u64) < most)
        && let Some(arrival) = next_arrival(&mut reader)?
    {
        if total < end && total + last >= end {
            packets.push(arrival);
        }
        total += 1;
    }
    Ok((packets, total))
}

fn show(bar: &indicatif::ProgressBar, so_far: ShrinkProgress) {
    bar.set_message(format!("shrinking the disagreement: {} left, trial", counted(so_far.packets_left, "packet")));
    bar.set_position(so_far.trials);
}

fn next_arrival(reader: &mut MergedReader) -> Result<Option<Arrival>, Failure> {
    let packet = reader.next_packet().map_err(|e| Failure::input(&e))?;
    Ok(packet.map(|packet| Arrival { time_ns: packet.time_ns, port: Port(packet.port), bytes: packet.bytes }))
}

fn compare_and_shrink<'a>(
    reference: &'a mut dyn Datapath,
    target: &'a mut dyn Datapath,
    packets: &[Arrival],
    options: &CompareOptions,
    bar: &indicatif::ProgressBar,
) -> Result<Comparison, Failure> {
    let name = target.name().to_owned();
    let mut how = ShrinkOptions::default();
    let (first, second, mut report) = match compare(reference, target, packets, options) {
        // The reference aborted. A comparison accepts that only from a target, so swap the two.
        Err(fault @ EngineError::Fault { .. }) => {
            let report = compare(target, reference, packets, options).map_err(|e| Failure::input(&e))?;
            if report.agrees() {
                return Err(Failure::Found(format!("{fault}; not reproduced in a second run")));
            }
            // If the abort is from the instruction limit, each trial takes that long.
            how.simplify = false;
            (target, reference, report)
        }
        result => (reference, target, result.map_err(|e| Failure::input(&e))?),
    };
    if report.agrees() {
        return Ok(Comparison::new(report, None));
    }
    bar.set_message("shrinking the disagreement");
    let mut shrunk = shrink(first, second, packets, options, &how, &mut |so_far| show(bar, so_far))
        .map_err(|e| Failure::input(&e))?;
    report.target.clone_from(&name);
    if let Some(shrunk) = &mut shrunk {
        shrunk.report.target = name;
    }
    Ok(Comparison::new(report, shrunk))
}

/// Packets to compare: those of the captures, or generated for the function.
fn packets(args: &VerifyArgs, loaded: &Loaded) -> Result<Vec<Arrival>, Failure> {
    if args.input.read.is_empty() {
        let Some(function) = loaded.function() else {
            return Err(Failure::Input("an object without -r is explored, not given packets".to_owned()));
        };
        let mut stimulus = Stimulus::new(Arc::clone(function), args.input.seed, StimulusOptions::of(function));
        return Ok(stimulus.take_packets(args.packets as usize));
    }
    let mut reader = open_input(&args.input)?;
    let bar = progress("reading packets", args.input.count);
    let mut packets = Vec::new();
    while args.input.count.is_none_or(|count| (packets.len() as u64) < count) {
        let Some(packet) = next_arrival(&mut reader)? else { break };
        packets.push(packet);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if packets.is_empty() {
        return Err(Failure::Input("no packets: nothing to compare".to_owned()));
    }
    Ok(packets)
}

pub(crate) fn write_trace(path: &Path, packets: impl IntoIterator<Item = Arrival>) -> Result<(), Failure> {
    let mut writer = CaptureWriter::create(path).map_err(|e| Failure::input(&e))?;
    for packet in packets {
        writer
            .write(packet.time_ns, packet.port.0, packet.bytes.len() as u32, None, &packet.bytes)
            .map_err(|e| Failure::input(&e))?;
    }
    writer.finish().map_err(|e| Failure::input(&e))
}

/// True if the engines agree; `None` if the target ran no packet itself.
fn agreement(report: &Report) -> Option<bool> {
    (!report.agrees() || report.packets_own() > 0).then(|| report.agrees())
}

fn as_text(loaded: &Loaded, packets: usize, comparison: &[Comparison], reached: Option<&Reached<'_>>) -> String {
    let reference = if loaded.function().is_some() { "machine" } else { "interp" };
    let mut text = format!("{}: {}, compared with `{reference}`\n", loaded.name(), counted(packets, "packet"));
    let has_slow = comparison.iter().any(|j| j.report.packets_slow > 0);
    let rows: Vec<Vec<String>> = comparison
        .iter()
        .map(|j| {
            let verdict = match agreement(&j.report) {
                Some(true) => "equal",
                Some(false) => "DIFFERS",
                None => "not compared",
            };
            let refused: Vec<String> =
                j.report.refused.iter().map(|(why, n)| format!("{} {why}", grouped(*n))).collect();
            let slow = has_slow.then(|| grouped(j.report.packets_slow));
            let counts = [grouped(j.report.packets_compared)].into_iter().chain(slow);
            let counts = counts.chain([grouped(j.report.snapshots_compared)]);
            let cores = if j.cores > 1 { format!(" on {} cores", j.cores) } else { String::new() };
            let mut row = vec![format!("{}{cores}", j.report.target), verdict.to_owned()];
            row.extend(counts);
            row.push(if refused.is_empty() { "-".to_owned() } else { refused.join(", ") });
            row
        })
        .collect();
    text.push_str(&match has_slow {
        true => table(&["target", "result", "packets", "slow path", "snapshots", "not run"], &rows, &[2, 3, 4]),
        false => table(&["target", "result", "packets", "snapshots", "not run"], &rows, &[2, 3]),
    });
    for j in comparison {
        let Some(disagreement) = &j.report.disagreement else { continue };
        match &j.shrunk {
            Some(shrunk) => {
                let packets = counted(shrunk.packets.len(), "packet");
                text.push_str(&format!("\n`{}` on {packets}:\n", j.report.target));
                let small = shrunk.report.disagreement.as_ref().unwrap_or(disagreement);
                text.push_str(&format!("{small}\n"));
            }
            None => text.push_str(&format!("\n`{}`:\n{disagreement}\n", j.report.target)),
        }
    }
    if let Some(reached) = reached {
        text.push('\n');
        text.push_str(&reached.render());
        let (all, unreached) = (reached.points().len(), reached.gaps(1).len());
        if unreached > 0 {
            let verb = if unreached == 1 { "was" } else { "were" };
            text.push_str(&format!(
                "{unreached} of these {all} {verb} not reached: nothing was compared there; longer traffic (--packets), a \
                 capture of your own (-r) or a scenario may reach them\n"
            ));
        }
    }
    text
}

fn as_json(
    args: &VerifyArgs,
    loaded: &Loaded,
    packets: usize,
    comparison: &[Comparison],
    reached: Option<&Reached<'_>>,
) -> Value {
    let targets: Vec<Value> = comparison
        .iter()
        .map(|j| {
            let refused: BTreeMap<String, u64> =
                j.report.refused.iter().map(|(why, n)| (why.to_string(), *n)).collect();
            let verdicts: BTreeMap<&str, u64> =
                Verdict::ALL.iter().map(|v| (v.name(), j.report.verdicts[v.number() as usize])).collect();
            let small = j.shrunk.as_ref().and_then(|s| s.report.disagreement.as_ref());
            json!({
                "target": j.report.target,
                "workers": j.cores,
                "agrees": agreement(&j.report),
                "packets_compared": j.report.packets_compared,
                "packets_slow": j.report.packets_slow,
                "snapshots_compared": j.report.snapshots_compared,
                "refused": refused,
                "verdicts": verdicts,
                "disagreement": small.or(j.report.disagreement.as_ref()).map(ToString::to_string),
                "shrunk_packets": j.shrunk.as_ref().map(|s| s.packets.len()),
            })
        })
        .collect();
    let coverage: Option<Vec<Value>> = reached.map(|reached| {
        let points = reached.points();
        points
            .iter()
            .map(|p| {
                json!({"element": p.element, "what": p.what.to_string(), "state": p.state, "line": p.line, "hits": p.hits})
            })
            .collect()
    });
    json!({
        "function": loaded.name(),
        "packets": packets,
        "seed": args.input.seed,
        "targets": targets,
        "coverage": coverage,
        "unreached": reached.map(|reached| reached.gaps(1).len()),
    })
}

/// Position in a program, for remarks: ` (instruction 6, unin.bpf.c:4)`.
fn place(program: &Program, at: usize) -> String {
    let line = program.line_of(at).filter(|line| line.line > 0);
    let line = line.map_or_else(String::new, |line| format!(", {}:{}", line.file, line.line));
    format!(" (instruction {at}{line})")
}

#[cfg(test)]
mod tests {
    use flowloom_engine::RunRecord;

    use super::*;

    fn compared(packets: u64, slow: u64) -> Comparison {
        let report = Report {
            target: "pipeline".to_owned(),
            packets_compared: packets,
            packets_slow: slow,
            snapshots_compared: 1,
            refused: BTreeMap::new(),
            verdicts: [0; 5],
            disagreement: None,
            record: RunRecord::default(),
        };
        Comparison::new(report, None)
    }

    #[test]
    fn packets_of_the_slow_path_alone_are_a_finding_where_coverage_is_required() {
        let judged = |all: &[Comparison], requires: bool| judged(all, false, requires);
        let (own, slow) = (|| compared(9, 8), || compared(9, 9));
        for requires in [false, true] {
            assert!(judged(&[own()], requires).is_ok());
            assert!(matches!(judged(&[compared(0, 0)], requires), Err(Failure::Input(_))));
        }
        assert!(judged(&[own(), slow()], false).is_ok());
        assert!(matches!(judged(&[own(), slow()], true), Err(Failure::Finding)));
        assert!(matches!(judged(&[slow()], false), Err(Failure::Input(_))));
    }
}
