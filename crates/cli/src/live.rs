// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom run -i`: runs a function on interfaces until a limit, a signal or an error ends it. Here the kernel runs
//! it; `user` has the engines in user space.

mod devices;
mod kernel;
mod printer;
mod record;
mod reload;
mod tracing;
mod user;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use flowloom_efsm::events::{EVENTS_MAP, LOST_MAP};
use flowloom_efsm::model::{Function, NextState, Stateful, StepKind, Terminal};
use flowloom_efsm::{Coverage, ElementCoverage, layout};
use flowloom_engine::{Event, PORT_COUNT, Snapshot, Verdict};
use flowloom_exec::{
    EventMaps, ExecError, Interface, Interrupts, KernelEngine, Live, LiveError, LiveOptions, Mode, Traffic, Wake,
    advice, monotonic_ns,
};
use flowloom_isa::{MapDef, Program};
use serde_json::{Value, json};

use self::kernel::KernelObserved;
use self::record::Record;
use self::reload::Swap;
use crate::args::{LiveArgs, LiveMode, PassTo, Place, RunArgs, StateTime};
use crate::describe::describe;
use crate::failure::{Failure, with_causes};
use crate::observe;
use crate::output::{counted, grouped, is_stdout_closed, print, print_note, progress, table};
use crate::report::{Contexts, Flows, elements_json, elements_text, maps_text};
use crate::reporter::Reporter;
use crate::run::read_state;
use crate::state_file::StateFile;
use flowloom_session::engines::EngineName;
use flowloom_session::{Loaded, SessionError};

/// Period of the checks for vanished interfaces and for the packet limit.
const POLL_PERIOD: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &RunArgs, loaded: &mut Loaded) -> Result<(), Failure> {
    check_options(args)?;
    let bindings = bindings(&args.live.interface)?;
    match args.live.mode.place() {
        Place::Kernel(mode) => run_in_kernel(args, loaded, bindings, mode),
        Place::User(kind) => user::run(args, loaded, &bindings, kind),
    }
}

/// Refuses options that the mode does not have, and engines that do not run in it.
fn check_options(args: &RunArgs) -> Result<(), Failure> {
    let RunArgs { live, engine, routes, .. } = args;
    let mode = live.mode.as_str();
    let refuse =
        |what: &str, instead: &str| Err(Failure::Input(format!("{what} cannot be used with --mode {mode}; {instead}")));
    if live.no_huge_pages && live.mode != LiveMode::Dpdk {
        return refuse("--no-huge-pages", "use --mode dpdk");
    }
    if let (LiveMode::Tap, Some(PassTo::Device(to))) = (live.mode, &live.pass_to) {
        // Created with the run: no interface has this name yet.
        if bindings(&live.interface)?.iter().any(|(_, name)| name == to) {
            return Err(Failure::Input(format!("--pass-to {to}: the function runs on `{to}`; name another interface")));
        }
    }
    if let Place::User(kind) = live.mode.place() {
        return match (engine, &live.pass_to) {
            (Some(EngineName::KERNEL), _) => {
                refuse("--engine kernel", "use --engine jit or interp, or --mode native or skb")
            }
            (_, Some(PassTo::Stack)) if !kind.has_stack() => {
                refuse("--pass-to stack", "name an interface, e.g. one end of a veth pair")
            }
            _ => Ok(()),
        };
    }
    let user = "use --mode af_xdp, raw, tap or dpdk";
    match engine {
        Some(EngineName::KERNEL) | None => {}
        Some(engine) => return refuse(&format!("--engine {}", engine.as_str()), user),
    }
    if routes.routes.is_some() {
        return refuse("--routes <FILE>", "functions in the kernel query its own routes");
    }
    let given = [
        ("--pass-to", live.pass_to.is_some()),
        ("--workers", args.workers.is_some()),
        ("--busy-poll", live.busy_poll.is_some()),
        ("--trace", !args.trace.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => refuse(name, user),
        None => Ok(()),
    }
}

/// Attaches the function, and reports until it ends.
fn run_in_kernel(args: &RunArgs, loaded: &mut Loaded, bindings: Vec<(u32, &str)>, mode: Mode) -> Result<(), Failure> {
    // Read first: it may set constants of the program.
    let state = args.state_in.as_ref().map(|path| read_state(path, loaded).map(|state| (path, state))).transpose()?;
    let loaded = &*loaded;
    let (program, count) = match loaded.attached_program(!args.live.no_counters) {
        Err(SessionError::Input(reason)) if !args.live.no_counters => {
            let program = loaded.attached_program(false)?;
            print_note(&format!("nothing is counted: with counters, {reason}"));
            (program, false)
        }
        program => (program?, !args.live.no_counters),
    };
    // Checked first: without the right to load programs, the error would name some later step.
    KernelEngine::available().map_err(|e| failure(&ExecError::Unavailable(e)))?;
    let _record = Record::begin(loaded.name(), args.live.mode.as_str(), &bindings);
    let found: Result<Vec<_>, _> = bindings.into_iter().map(|(port, name)| Interface::find(port, name)).collect();
    let interfaces = found.map_err(|e| failure(&e.into()))?;
    let clock_ahead_ns = clock_ahead_ns(args);
    let state = match state {
        Some((path, state)) => {
            // With an explicit clock, a deadline beyond all timers comes from `map update`.
            if args.live.state_time.is_none() {
                check_deadlines(loaded, &state, path)?;
            }
            state
        }
        // The default includes preloaded contexts and initial values of globals.
        None => Snapshot::default(),
    };
    let state_out = args.state_out.as_ref().map(|path| StateFile::create(path)).transpose()?;
    // From here on a signal ends the run with its summary and state.
    // A SIGHUP of a run on a terminal tells that the terminal is gone.
    let interrupts = Interrupts::block(!std::io::stdin().is_terminal())
        .map_err(|e| Failure::Environment(format!("signals cannot be blocked: {e}")))?;
    let description = describe(loaded, &args.function.path.display().to_string(), &program);
    // An address that is taken ends the run before it has touched an interface.
    let observed = KernelObserved::start(args, loaded, &interfaces, (mode, clock_ahead_ns))?;
    let reporter = loaded.function().and_then(|function| Reporter::of(function, args.json));
    let events = reporter.is_some().then_some(EventMaps { ring: EVENTS_MAP, lost: LOST_MAP });
    let options = LiveOptions { mode, count, clock_ahead_ns, state: &state, description: &description, events };
    let bar = progress(&format!("loading {}", counted(program.insns.len(), "eBPF instruction")), None);
    let live = start(loaded, &program, &interfaces, options);
    bar.finish_and_clear();
    let live = live?;
    advise(loaded, &interfaces, mode, traffic(loaded));
    let start = Instant::now();
    observed.reloader.begin(args.function.file(), description, live.handover());
    let mut running = Running {
        args,
        first: loaded,
        replaced: None,
        reloads: 0,
        lost_before: 0,
        interfaces: &interfaces,
        defs: program.maps.clone(),
        mode,
        live,
        state_out,
        reporter,
        start,
        observed,
    };
    running.go(&interrupts)
}

/// Prints remarks about interfaces that do not fit the function.
fn advise(loaded: &Loaded, interfaces: &[Interface], mode: Mode, traffic: Traffic) {
    if let ([interface], Some(element)) = (interfaces, both_directions(loaded)) {
        print_note(&format!(
            "`{element}` has one context for both directions of a flow, and XDP sees only packets that arrive: those that \
             leave by `{}` are not seen; between two networks, give both interfaces with -i",
            interface.name()
        ));
    }
    for advice in advice(interfaces, mode, traffic) {
        print_note(&advice.to_string());
    }
}

/// The offset of the function's clock from the system's, wrapping.
fn clock_ahead_ns(args: &RunArgs) -> u64 {
    match args.live.state_time {
        Some(StateTime::At(at_ns)) => at_ns.wrapping_sub(monotonic_ns()),
        Some(StateTime::Now) | None => 0,
    }
}

/// Ports and interface names of `-i`.
fn bindings(given: &[String]) -> Result<Vec<(u32, &str)>, Failure> {
    let mut bound: Vec<(u32, &str)> = Vec::new();
    for (i, text) in given.iter().enumerate() {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (port, name) = match text.split_once('=') {
            Some((port, name)) if is_number(port) => (port.parse().unwrap_or(u32::MAX), name),
            _ => (i as u32 + 1, text.as_str()),
        };
        if port >= PORT_COUNT {
            return Err(Failure::Input(format!("-i {text}: ports are below {PORT_COUNT}")));
        }
        if let Some((_, other)) = bound.iter().find(|(p, _)| *p == port) {
            return Err(Failure::Input(format!("-i {text}: port {port} is `{other}` already; say PORT=NAME")));
        }
        if bound.iter().any(|(_, other)| *other == name) {
            return Err(Failure::Input(format!("-i {text}: interface `{name}` has a port already")));
        }
        bound.push((port, name));
    }
    Ok(bound)
}

fn failure(error: &ExecError) -> Failure {
    match error {
        ExecError::Unavailable(_)
        | ExecError::Live(
            LiveError::Occupied(_) | LiveError::Attach { .. } | LiveError::Replace { .. } | LiveError::System { .. },
        ) => Failure::Environment(with_causes(error)),
        _ => Failure::Input(with_causes(error)),
    }
}

fn broken(error: &dyn Error) -> Failure {
    Failure::Environment(with_causes(error))
}

/// Rejects deadlines that no timer of the function can have set: they are from another clock.
fn check_deadlines(loaded: &Loaded, state: &Snapshot, path: &Path) -> Result<(), Failure> {
    let layouts = loaded.layouts();
    let now_ns = monotonic_ns();
    let Some(function) = loaded.function() else { return Ok(()) };
    for element in &function.elements {
        let Some(stateful) = &element.stateful else { continue };
        let longest_ns = element.rows.iter().map(|row| row.next).filter_map(longest).chain(successors(stateful)).max();
        let latest_ns = now_ns.saturating_add(longest_ns.unwrap_or(0));
        let (Some(layout), Some(entries)) = (layouts.get(&element.name), state.maps.get(&element.name)) else {
            continue;
        };
        for record in entries.values() {
            for &offset in &layout.deadline_offsets {
                let bytes = record.get(offset as usize..).and_then(|bytes| bytes.first_chunk());
                let deadline_ns = bytes.map_or(layout::NO_DEADLINE, |bytes| u64::from_le_bytes(*bytes));
                if deadline_ns != layout::NO_DEADLINE && deadline_ns > latest_ns {
                    return Err(Failure::Input(format!(
                        "`{}`: a context of `{}` has the deadline {deadline_ns} ns, but no timer reaches beyond {latest_ns} ns: the \
                         state is from another clock, or `map update` has set the deadline; give the time of the state with \
                         --state-time NS (`last_time_ns` or `now_ns` of `run --json`), or --state-time now for this clock",
                        path.display(),
                        element.name
                    )));
                }
            }
        }
    }
    Ok(())
}

fn longest(next: NextState) -> Option<u64> {
    match next {
        NextState::Stay => None,
        NextState::To { idle_ns, hard_ns, .. } => idle_ns.max(hard_ns),
    }
}

fn successors(stateful: &Stateful) -> impl Iterator<Item = u64> {
    stateful.successors.iter().flatten().filter_map(|next| next.idle_ns.max(next.hard_ns))
}

/// Name of the first element whose key is the same for both directions of a flow.
fn both_directions(loaded: &Loaded) -> Option<&str> {
    let is_both = |stateful: Option<&Stateful>| stateful.and_then(|s| s.key.as_ref()).is_some_and(|key| key.biflow);
    let mut elements = loaded.function()?.elements.iter();
    elements.find(|element| is_both(element.stateful.as_ref())).map(|element| element.name.as_str())
}

/// Loads and attaches the program. Counters enlarge a program: if the kernel's verifier accepts it only without them,
/// runs it without and says so.
fn start(
    loaded: &Loaded,
    program: &Program,
    interfaces: &[Interface],
    options: LiveOptions<'_>,
) -> Result<Live, Failure> {
    let refused = match Live::start(program, interfaces, options) {
        Err(ExecError::Refused(refused)) if options.count => refused,
        result => return result.map_err(|e| failure(&e)),
    };
    let program = loaded.attached_program(false)?;
    let options = LiveOptions { count: false, ..options };
    let live = Live::start(&program, interfaces, options).map_err(|e| failure(&e))?;
    print_note(&format!(
        "nothing is counted: with counters, the kernel's verifier refuses the program ({})",
        refused.reason
    ));
    Ok(live)
}

/// The function's effects on packets that matter for NIC offloads. For an object the worst case is assumed.
fn traffic(loaded: &Loaded) -> Traffic {
    let Some(function) = loaded.function() else {
        return Traffic { sends: true, redirects: true, writes: true, reads_tags: true };
    };
    let terminals = |wanted: fn(&Terminal) -> bool| {
        let mut elements = function.elements.iter();
        elements.any(|e| wanted(&e.otherwise.actions.terminal) || e.rows.iter().any(|r| wanted(&r.actions.terminal)))
    };
    let rows = || function.elements.iter().flat_map(|e| &e.rows);
    let steps = |wanted: fn(&StepKind) -> bool| rows().any(|row| row.actions.steps.iter().any(|s| wanted(&s.kind)));
    let redirects = terminals(|t| matches!(t, Terminal::Forward(_) | Terminal::Flood))
        || steps(|s| matches!(s, StepKind::Clone(_) | StepKind::Emit { .. }));
    Traffic {
        sends: redirects || terminals(|t| *t == Terminal::Reply),
        redirects,
        writes: rows().any(|row| !row.actions.fields_written().is_empty() || row.actions.changes_frame()),
        reads_tags: rows().any(|row| row.fields().iter().any(|field| field.name().starts_with("vlan"))),
    }
}

/// A function that runs on interfaces.
struct Running<'a> {
    state_out: Option<StateFile>,
    args: &'a RunArgs,
    first: &'a Loaded,
    /// The last of the functions that have replaced the first one, and their number.
    replaced: Option<Loaded>,
    reloads: u64,
    interfaces: &'a [Interface],
    mode: Mode,
    live: Live,
    reporter: Option<Reporter>,
    /// The log lines that functions which have been replaced have lost.
    lost_before: u64,
    start: Instant,
    defs: Vec<MapDef>,
    observed: KernelObserved,
}

/// Prints reports of a function.
fn print_events(reporter: &mut Reporter, events: &[Event]) -> Result<(), Failure> {
    if events.is_empty() {
        return Ok(());
    }
    print(&events.iter().map(|event| reporter.line(event)).collect::<String>())
}

/// Counters at one moment.
struct Counts {
    elapsed: Duration,
    now_ns: u64,
    verdicts: Option<[u64; Verdict::ALL.len()]>,
    coverage: Option<Coverage>,
    contexts: BTreeMap<String, Contexts>,
    /// Log lines printed and lost; `None` if the function logs nothing.
    reported: Option<(u64, u64)>,
}

impl Counts {
    fn packets(&self) -> u64 {
        self.verdicts.map_or(0, |verdicts| verdicts.iter().sum())
    }
}

impl Running<'_> {
    fn loaded(&self) -> &Loaded {
        self.replaced.as_ref().unwrap_or(self.first)
    }

    fn go(&mut self, interrupts: &Interrupts) -> Result<(), Failure> {
        let ended = self.begin().and_then(|()| self.until_over(interrupts));
        self.live.detach();
        self.observed.end();
        // However the run ended, print its last log lines and summary, and write its state.
        let last = self.print_reports();
        let summary = self.end();
        ended.and(last).and(summary)
    }

    /// Sweeps and reports until the time or packet limit is reached, a signal arrives, or the reader of the reports
    /// closes stdout.
    fn until_over(&mut self, interrupts: &Interrupts) -> Result<(), Failure> {
        let LiveArgs { duration, interval, quiet, .. } = self.args.live;
        let count = self.args.input.count;
        let mut reported = Duration::ZERO;
        let mut last_packets = 0;
        loop {
            let next_sweep = self.live.sweep().map_err(|e| broken(&e))?;
            self.print_reports()?;
            if let Some(swap) = self.observed.reloader.take() {
                self.replace(swap)?;
            }
            if self.observed.subject.is_wanted() {
                let counts = self.counts()?;
                self.observed.publish(self.loaded(), &counts, &self.defs, self.reloads);
            }
            if let Some(name) = self.live.disappeared().first() {
                return Err(Failure::Environment(format!(
                    "interface `{name}` has disappeared, or its program was detached"
                )));
            }
            let elapsed = self.start.elapsed();
            let packets = match count {
                None => 0,
                Some(_) => self.live.verdicts().map_err(|e| broken(&e))?.map_or(0, |v| v.iter().sum()),
            };
            if duration.is_some_and(|d| elapsed >= d) || count.is_some_and(|count| packets >= count) {
                return Ok(());
            }
            if !quiet && elapsed >= reported + interval {
                let counts = self.counts()?;
                self.report(&counts, counts.packets().saturating_sub(last_packets), counts.elapsed - reported)?;
                last_packets = counts.packets();
                // A late report does not shift later ones.
                let intervals = elapsed.as_nanos() / interval.as_nanos();
                reported = Duration::from_nanos((intervals * interval.as_nanos()) as u64);
            }
            if is_stdout_closed() {
                print_note("standard output was closed by its reader, so the run ends; -q disables reports");
                return Ok(());
            }
            let report = (!quiet).then(|| (reported + interval).saturating_sub(elapsed));
            let end = duration.map(|duration| duration.saturating_sub(elapsed));
            let wait = [next_sweep, report, end, Some(POLL_PERIOD)].into_iter().flatten().min();
            match interrupts.wait(wait.unwrap_or(POLL_PERIOD)).map_err(|e| broken(&e))? {
                Wake::End => return Ok(()),
                Wake::Reload => self.observed.reload(),
                Wake::Timeout => {}
            }
        }
    }

    /// Puts another function in the place of the one that runs.
    fn replace(&mut self, swap: Swap) -> Result<(), Failure> {
        let Swap { successor, loaded, defs, reply } = swap;
        let replaced = self.live.replace(successor);
        let mut former = match replaced {
            Ok(former) => former,
            Err(error) => {
                // The client may have gone.
                drop(reply.send(Err(observe::refusal(failure(&error.into())))));
                return Ok(());
            }
        };
        let last = former.events().map_err(|e| broken(&e));
        let last = last.and_then(|events| self.reporter.as_mut().map_or(Ok(()), |own| print_events(own, &events)));
        let lost = former.events_lost().map_err(|e| broken(&e));
        let printed = self.reporter.as_ref().map_or(0, |old| old.printed);
        self.reporter = loaded.function().and_then(|function| Reporter::of(function, self.args.json));
        if let Some(new) = &mut self.reporter {
            new.printed = printed;
        }
        (self.replaced, self.defs, self.reloads) = (Some(loaded), defs, self.reloads + 1);
        drop(reply.send(Ok(self.live.handover())));
        // The new program runs, whatever the rest of the old one is.
        self.lost_before += lost?;
        last
    }

    fn ports(&self) -> BTreeMap<u32, &str> {
        self.interfaces.iter().map(|interface| (interface.port, interface.name())).collect()
    }

    /// Announces that packets are processed from now on.
    fn begin(&self) -> Result<(), Failure> {
        if self.args.json {
            let ports: BTreeMap<String, &str> = self.ports().into_iter().map(|(p, n)| (p.to_string(), n)).collect();
            let first = json!({
                "event": "started",
                "function": self.loaded().name(),
                "mode": self.mode.to_string(),
                "ports": ports,
                "pid": std::process::id(),
                "control": self.observed.socket(),
                "metrics": self.observed.metrics().map(|address| format!("http://{address}/metrics")),
            });
            return print(&format!("{first}\n"));
        }
        let ports: Vec<String> = self.ports().into_iter().map(|(port, name)| format!("{name} (port {port})")).collect();
        print(&format!("{} runs on {}, {}; Ctrl-C ends it\n", self.loaded().name(), ports.join(", "), self.mode))
    }

    /// Prints the function's reports since the last call.
    fn print_reports(&mut self) -> Result<(), Failure> {
        let Some(reporter) = &mut self.reporter else { return Ok(()) };
        let events = self.live.events().map_err(|e| broken(&e))?;
        print_events(reporter, &events)
    }

    fn counts(&self) -> Result<Counts, Failure> {
        let verdicts = self.live.verdicts().map_err(|e| broken(&e))?;
        let hits = self.live.snapshot(|name| name == layout::HITS_MAP).map_err(|e| broken(&e))?;
        let coverage = self.loaded().function().and_then(|function| Coverage::from_snapshot(function, &hits));
        let mut contexts = BTreeMap::new();
        for (name, alive) in self.live.alive().map_err(|e| broken(&e))? {
            let reached = coverage.as_ref().and_then(|c| c.elements.iter().find(|e| e.name == name));
            let swept = self.live.swept().get(&name).copied().unwrap_or(0);
            let timed_out = swept + reached.map_or(0, met_after_timeout);
            contexts.insert(name, Contexts { timed_out, alive });
        }
        let lost = self.lost_before + self.live.events_lost().map_err(|e| broken(&e))?;
        let reported = self.reporter.as_ref().map(|reporter| (reporter.printed, lost));
        let (elapsed, now_ns) = (self.start.elapsed(), self.live.now_ns());
        Ok(Counts { elapsed, now_ns, verdicts, coverage, contexts, reported })
    }

    /// Prints one interim report.
    fn report(&self, counts: &Counts, new_packets: u64, since: Duration) -> Result<(), Failure> {
        let rate = new_packets as f64 / since.as_secs_f64().max(1e-9);
        if self.args.json {
            let mut value = self.json("report", counts);
            value["packets_per_s"] = json!(rate);
            return print(&format!("{value}\n"));
        }
        let mut text = format!("{:9.1} s", counts.elapsed.as_secs_f64());
        if let Some(verdicts) = counts.verdicts {
            text.push_str(&format!("  {}, {}/s", counted(counts.packets() as usize, "packet"), grouped(rate as u64)));
            text.push_str(&verdicts_text(&verdicts));
        }
        text.push_str(&lost_text(counts));
        text.push('\n');
        for (name, own) in &counts.contexts {
            text.push_str(&format!("            {name}: alive {}", grouped(own.alive)));
            let reached = counts.coverage.as_ref().and_then(|c| c.elements.iter().find(|e| e.name == *name));
            if let Some(reached) = reached {
                text.push_str(&format!(
                    ", created {}, removed {}, timed out {}, rejected {}",
                    grouped(reached.created),
                    grouped(reached.removed),
                    grouped(own.timed_out),
                    grouped(reached.rejected)
                ));
            }
            text.push('\n');
        }
        if let (Some(function), Some(coverage)) = (self.loaded().function(), &counts.coverage) {
            rows_hit(function, coverage, &mut text);
        }
        print(&text)
    }

    /// Prints the summary, and writes the state if requested. The program is already detached.
    fn end(&mut self) -> Result<(), Failure> {
        let counts = self.counts()?;
        let snapshot = self.live.snapshot(|_| true).map_err(|e| broken(&e))?;
        let loaded = self.replaced.as_ref().unwrap_or(self.first);
        let saved = self.state_out.as_mut().map_or(Ok(()), |file| file.write(loaded, &snapshot));
        self.print_summary(&counts, &snapshot).and(saved)
    }

    fn print_summary(&self, counts: &Counts, snapshot: &Snapshot) -> Result<(), Failure> {
        if counts.reported.is_some_and(|(_, lost)| lost > 0) {
            print_note("log lines were lost: rows log faster than they are read; log fewer packets");
        }
        if self.args.json {
            return print(&format!("{}\n", self.json("ended", counts)));
        }
        let mut text = format!("\n{}: {:.1} s on interfaces", self.loaded().name(), counts.elapsed.as_secs_f64());
        if let Some(verdicts) = counts.verdicts {
            text.push_str(&format!(", {}\n\n", counted(counts.packets() as usize, "packet")));
            let row = |v: &Verdict| vec![v.name().to_owned(), grouped(verdicts[v.number() as usize])];
            let rows: Vec<Vec<String>> = Verdict::ALL.iter().map(row).collect();
            text.push_str(&table(&["verdict", "packets"], &rows, &[1]));
        } else {
            text.push('\n');
        }
        if let Some((printed, _)) = counts.reported {
            text.push_str(&format!("log lines: {}{}\n", grouped(printed), lost_text(counts)));
        }
        match (self.loaded().function(), &counts.coverage) {
            (Some(function), Some(coverage)) => {
                text.push_str(&elements_text(function, coverage, &counts.contexts, Flows::No, self.args.verbose));
            }
            _ => {
                let is_own = |name: &str| self.loaded().function().is_none() || !layout::is_instrument(name);
                text.push_str(&maps_text(snapshot, is_own));
            }
        }
        print(&text)
    }

    fn json(&self, event: &str, counts: &Counts) -> Value {
        let verdicts: Option<BTreeMap<&str, u64>> = counts
            .verdicts
            .map(|verdicts| Verdict::ALL.iter().map(|v| (v.name(), verdicts[v.number() as usize])).collect());
        let mut value = json!({
            "event": event,
            "function": self.loaded().name(),
            "elapsed_s": counts.elapsed.as_secs_f64(),
            "now_ns": counts.now_ns,
            "packets": counts.verdicts.map(|_| counts.packets()),
            "verdicts": verdicts,
        });
        if let Some((printed, lost)) = counts.reported {
            value["logged"] = json!(printed);
            value["logs_lost"] = json!(lost);
        }
        match (self.loaded().function(), &counts.coverage) {
            (Some(function), Some(coverage)) => {
                value["elements"] = elements_json(function, coverage, &counts.contexts);
                for element in value["elements"].as_array_mut().into_iter().flatten() {
                    // Live runs do not record flows.
                    element.as_object_mut().map(|element| element.remove("flows_looked_up"));
                }
            }
            _ => {
                let alive: BTreeMap<&String, u64> = counts.contexts.iter().map(|(n, c)| (n, c.alive)).collect();
                value["maps"] = json!(alive);
            }
        }
        value
    }
}

/// The verdicts of an interim report.
fn verdicts_text(verdicts: &[u64; Verdict::ALL.len()]) -> String {
    let numbers = Verdict::ALL.iter().map(|verdict| (verdict, verdicts[verdict.number() as usize]));
    numbers
        .filter(|(_, number)| *number > 0)
        .map(|(verdict, number)| format!("  {verdict} {}", grouped(number)))
        .collect()
}

/// Text about lost log lines; empty if none was lost.
fn lost_text(counts: &Counts) -> String {
    match counts.reported {
        Some((_, lost)) if lost > 0 => format!(", {} lost", counted(lost as usize, "log line")),
        _ => String::new(),
    }
}

fn met_after_timeout(reached: &ElementCoverage) -> u64 {
    reached.idle_expired.values().chain(reached.hard_expired.values()).sum()
}

/// Lines of the rows that were hit, with their hits: `knock: closed 12 -> 4, ...`.
fn rows_hit(function: &Function, coverage: &Coverage, text: &mut String) {
    for (element, reached) in function.elements.iter().zip(&coverage.elements) {
        let mut hits = Vec::new();
        for (row, states) in element.rows.iter().zip(&reached.rows) {
            let total: u64 = states.values().sum();
            if total > 0 {
                let (line, ..) = function.source.locate(row.span.start);
                hits.push(format!("line {line}: {}", grouped(total)));
            }
        }
        let otherwise = reached.no_match + reached.no_key;
        if otherwise > 0 {
            hits.push(format!("otherwise: {}", grouped(otherwise)));
        }
        if !hits.is_empty() {
            text.push_str(&format!("            {} hit {}\n", element.name, hits.join(", ")));
        }
    }
}
