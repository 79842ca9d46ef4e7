// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function on interfaces, run by an engine in user space.
//!
//! One thread receives and transmits all packets. It runs them, with `--workers` together with others. Between two
//! reports it does not stop: they have the counters of the packet loop, and only the summary has those of rows and
//! contexts. Clients of the control socket are answered between two batches.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use flowloom_control::{Shared, Watched, Worker};
use flowloom_efsm::Coverage;
use flowloom_efsm::events::LOST_MAP;
use flowloom_efsm::model::Terminal;
use flowloom_engine::{EngineError, Event, Snapshot, SnapshotError, Verdict};
use flowloom_exec::{SweepClock, Traffic, monotonic_ns};
use flowloom_ports::{Hooks, LoopOptions, Statistics, Visits, run_loop};
use flowloom_session::Loaded;
use flowloom_session::engines::{Cores, EngineOptions, InPlaceEngine, StartedInPlace};
use serde_json::{Value, json};

use super::devices::{Devices, failure};
use super::printer::Printer;
use super::record::Record;
use super::tracing::{Waiting, tracing};
use super::{advise, check_deadlines, clock_ahead_ns, traffic, verdicts_text};
use crate::args::{DeviceKind, RunArgs};
use crate::failure::Failure;
use crate::observe::{Observed, Signals};
use crate::output::{counted, grouped, is_stdout_closed, print, print_note, table};
use crate::report::{Contexts, Flows, elements_json, elements_text, maps_text};
use crate::reporter::Reporter;
use crate::run::{contexts, read_routes, read_state, started_in_place, workers_json, workers_text, wrong_state};
use crate::state_file::StateFile;

pub(super) fn run(
    args: &RunArgs,
    loaded: &mut Loaded,
    bindings: &[(u32, &str)],
    kind: DeviceKind,
) -> Result<(), Failure> {
    // Read first: it may set constants of the program.
    let state = args.state_in.as_ref().map(|path| read_state(path, loaded).map(|state| (path, state))).transpose()?;
    let loaded = &*loaded;
    // As in the kernel, no two runs draw the same values.
    let seed = RandomState::new().hash_one("seed");
    let routes = read_routes(&args.routes)?;
    let options = EngineOptions { counters: !args.live.no_counters, routes, seed, ..EngineOptions::default() };
    let StartedInPlace { mut engine, notes } = started_in_place(args.engine, loaded, &options, args.workers)?;
    notes.iter().for_each(|note| print_note(note));
    if let Some((path, state)) = &state {
        // With an explicit clock, the deadlines are those of the state.
        if args.live.state_time.is_none() {
            check_deadlines(loaded, state, path)?;
        }
        let workers = args.workers.filter(|_| engine.cores().is_some());
        engine.datapath().restore(state).map_err(|e| wrong_share(path, &e, workers))?;
    }
    drop(state);
    let clock_ahead_ns = clock_ahead_ns(args);
    let before: BTreeMap<String, u64> = {
        let snapshot = engine.datapath().snapshot().map_err(|e| Failure::input(&e))?;
        snapshot.maps.into_iter().map(|(name, entries)| (name, entries.len() as u64)).collect()
    };
    let state_out = args.state_out.as_ref().map(|path| StateFile::create(path)).transpose()?;
    // From here on a signal ends the run with its summary and state.
    let signals = Signals::hold()?;
    let _record = Record::begin(loaded.name(), args.live.mode.as_str(), bindings);
    let devices = Devices::open(kind, bindings, &args.live)?;
    // Every packet that leaves, also to the network stack, is a new one for the kernel, which finishes no checksum of
    // it. Packets sent to a veth arrive as socket buffers.
    let traffic = Traffic { sends: true, redirects: false, ..traffic(loaded) };
    advise(loaded, &devices.interfaces, devices.received, traffic);
    if devices.host.is_none() && may_pass(loaded) {
        let reason = devices.no_host.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        print_note(&format!(
            "packets that the function passes are LOST: mode {} has no way to the network stack here{reason}; name an \
             interface that receives them with --pass-to",
            args.live.mode.as_str()
        ));
    }
    let reporter = loaded.function().and_then(|function| Reporter::of(function, args.json));
    let ports = devices.devices.iter().flat_map(|device| device.ports()).map(|(port, name)| (port.0, name)).collect();
    let traced = tracing(args, loaded, engine.as_ref(), &options)?;
    let mut watched = Watched::new(engine, seed);
    let traces = traced.map(|(tracing, waiting)| {
        watched.trace(tracing);
        waiting
    });
    let watched = RefCell::new(watched);
    let observed = Observed::start(args, loaded, &options, &watched, (ports, clock_ahead_ns))?;
    let (reporter, replaced) = (RefCell::new(reporter), RefCell::new(None));
    let start = Instant::now();
    let (before, logs_lost_before) = (RefCell::new(before), Cell::new(0));
    let running = Running {
        args,
        loaded,
        bindings,
        clock_ahead_ns,
        before,
        logs_lost_before,
        start,
        watched,
        reporter,
        replaced,
        observed,
        traces: traces.unwrap_or_default(),
    };
    running.go(devices, state_out, &signals)
}

/// As [`wrong_state`]; with several cores the limit of a table is that of a core's share, which no user has written.
fn wrong_share(path: &Path, error: &EngineError, workers: Option<u32>) -> Failure {
    match (error, workers) {
        (EngineError::Snapshot(SnapshotError::TooMany { map, found, expected }), Some(workers)) => {
            Failure::Input(format!(
                "`{}`: with --workers {workers} each core has a share of map `{map}`, which holds {expected} entries; the                  state has {found} for one of them; use --workers 1, or a larger table",
                path.display()
            ))
        }
        _ => wrong_state(path, error),
    }
}

/// True if the function may pass packets. For an object the worst case is assumed.
fn may_pass(loaded: &Loaded) -> bool {
    let Some(function) = loaded.function() else { return true };
    let passes = |terminal: &Terminal| matches!(terminal, Terminal::Pass | Terminal::Punt);
    function.elements.iter().any(|element| {
        passes(&element.otherwise.actions.terminal) || element.rows.iter().any(|row| passes(&row.actions.terminal))
    })
}

/// The longest time until a signal or the end of the time is noticed.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A function that runs on interfaces.
struct Running<'a> {
    args: &'a RunArgs,
    loaded: &'a Loaded,
    bindings: &'a [(u32, &'a str)],
    clock_ahead_ns: u64,
    /// The number of entries of each map before the first packet of the function.
    before: RefCell<BTreeMap<String, u64>>,
    /// The log lines that functions before it have lost.
    logs_lost_before: Cell<u64>,
    start: Instant,
    watched: RefCell<Watched>,
    reporter: RefCell<Option<Reporter>>,
    /// The function that has replaced the first one.
    replaced: RefCell<Option<Loaded>>,
    observed: Observed,
    traces: Rc<RefCell<Waiting>>,
}

/// The results of a run.
struct Ended<'a> {
    loaded: &'a Loaded,
    engine: &'a str,
    /// The cores, if there are several.
    cores: Option<&'a Cores>,
    /// The packets that the engine cannot run.
    refused: u64,
    statistics: Statistics,
    now_ns: u64,
    snapshot: Snapshot,
    coverage: Option<Coverage>,
    contexts: BTreeMap<String, Contexts>,
    /// Log lines printed and lost; `None` if the function logs nothing.
    logged: Option<(u64, u64)>,
}

impl Running<'_> {
    fn go(&self, mut devices: Devices, state_out: Option<StateFile>, signals: &Signals) -> Result<(), Failure> {
        let mut statistics = Statistics::default();
        let mut printer = Printer::start()?;
        let begun = self.begin(&devices);
        let ran = begun.and_then(|()| self.until_over(&mut devices, &mut statistics, signals, &mut printer));
        // However the run ended, the interfaces are free again, and summary and state are written. Free first: the
        // reader of standard output may take its time.
        let has_host = devices.host.is_some();
        drop(devices);
        let ended = Self::finish(printer, ran);
        if let omitted @ 1.. = self.traces.borrow().omitted {
            let omitted = counted(omitted as usize, "packet");
            print_note(&format!("{omitted} more met the conditions of --trace: at most 100 are traced in a second"));
        }
        if statistics.pass_lost > 0 && !has_host {
            let lost = counted(statistics.pass_lost as usize, "passed packet");
            print_note(&format!("{lost} lost: no receiver; name one with --pass-to"));
        }
        let mut watched = self.watched.borrow_mut();
        let replaced = self.replaced.borrow();
        let loaded = replaced.as_ref().unwrap_or(self.loaded);
        let snapshot = watched.engine().datapath().snapshot().map_err(|e| Failure::input(&e))?;
        let saved = state_out.map_or(Ok(()), |mut file| file.write(loaded, &snapshot));
        let coverage = loaded.function().and_then(|function| Coverage::from_snapshot(function, &snapshot));
        let now_ns = monotonic_ns().wrapping_add(self.clock_ahead_ns);
        let contexts = contexts(&loaded.layouts(), &self.before.borrow(), &snapshot, now_ns, coverage.as_ref());
        let lost = self.logs_lost_before.get() + logs_lost(&snapshot);
        let logged = self.reporter.borrow().as_ref().map(|reporter| (reporter.printed, lost + reporter.dropped));
        let refused = watched.refused();
        let engine = &*watched.engine();
        let (engine, cores) = (engine.name(), engine.cores());
        let results =
            Ended { loaded, engine, cores, refused, statistics, now_ns, snapshot, coverage, contexts, logged };
        let summary = print(&if self.args.json {
            format!("{}\n", self.summary_json(&results))
        } else {
            self.summary_text(&results)
        });
        ended.and(summary).and(saved)
    }

    /// Runs packets until a limit is reached, a signal arrives, or the reader of the reports closes stdout.
    fn until_over(
        &self,
        devices: &mut Devices,
        statistics: &mut Statistics,
        signals: &Signals,
        printer: &mut Printer,
    ) -> Result<(), Failure> {
        let live = &self.args.live;
        let options = LoopOptions {
            sweep: SweepClock::of(self.loaded.layouts().values()),
            clock_ahead_ns: self.clock_ahead_ns,
            count: self.args.input.count,
            ports: None,
            spin: live.busy_poll.is_some(),
            look_every: LOOK_EVERY.min(live.interval),
        };
        // The loop ends by a flag of its own: a first signal that comes afterwards does not end the process before the
        // state is written.
        let over = AtomicBool::new(false);
        let finish = |is_written: bool| {
            if !is_written || is_stdout_closed() {
                over.store(true, Ordering::Relaxed);
            }
        };
        let mut lines_lost = 0;
        let printing = RefCell::new(printer);
        let mut last = (Duration::ZERO, 0);
        let mut progress = |so_far: &Statistics| {
            statistics.clone_from(so_far);
            let elapsed = self.start.elapsed();
            finish(self.print_traces(&mut printing.borrow_mut()));
            if signals.wants_reload() {
                self.observed.reload();
            }
            if signals.is_over() || live.duration.is_some_and(|duration| elapsed >= duration) {
                over.store(true, Ordering::Relaxed);
            } else if !live.quiet && elapsed >= last.0 + live.interval {
                let rate = (so_far.packets - last.1) as f64 / (elapsed - last.0).as_secs_f64().max(1e-9);
                finish(printing.borrow_mut().print(self.report(so_far, elapsed, rate)));
                // A late report does not shift later ones.
                let intervals = elapsed.as_nanos() / live.interval.as_nanos();
                last = (Duration::from_nanos((intervals * live.interval.as_nanos()) as u64), so_far.packets);
            }
        };
        let mut events = |events: &[Event]| {
            let mut reporter = self.reporter.borrow_mut();
            let Some(reporter) = reporter.as_mut() else { return };
            let lines: String = events.iter().map(|event| reporter.line(event)).collect();
            let mut printer = printing.borrow_mut();
            let before = printer.lost_lines;
            finish(printer.print(lines));
            lines_lost += printer.lost_lines - before;
        };
        let mut replaced = |loaded: Option<Loaded>, [old, new]: [&mut dyn InPlaceEngine; 2]| {
            let Some(loaded) = loaded else { return };
            // Its counters begin anew, with the entries that were kept.
            let tables = new.tables();
            let names: Vec<String> = tables.defs().iter().map(|def| def.name.clone()).collect();
            let entries = names.into_iter().enumerate().map(|(map, name)| (name, tables.entries(map)));
            self.before.replace(entries.collect());
            let tables = old.tables();
            let lost = tables.defs().iter().position(|def| def.name == LOST_MAP);
            let lost = lost.and_then(|map| tables.lookup(map, &[0; 4]));
            self.logs_lost_before.update(|before| before + lost.as_deref().map_or(0, first_number));
            let mut reporter = self.reporter.borrow_mut();
            let so_far = reporter.as_ref().map_or((0, 0), |old| (old.printed, old.dropped));
            *reporter = loaded.function().and_then(|function| Reporter::of(function, self.args.json));
            if let Some(new) = reporter.as_mut() {
                (new.printed, new.dropped) = so_far;
            }
            *self.replaced.borrow_mut() = Some(loaded);
        };
        let inbox = &self.observed.inbox;
        let mut visit = |statistics: &Statistics, sweep: &mut SweepClock| {
            let watched = &mut *self.watched.borrow_mut();
            let now_ns = monotonic_ns().wrapping_add(self.clock_ahead_ns);
            inbox.work(&mut Worker { statistics, watched, sweep, now_ns, replaced: &mut replaced });
        };
        let visits = Some(Visits { wanted: inbox.wanted(), wakes: inbox.wakes(), visit: &mut visit });
        let hooks = Hooks { progress: Some(&mut progress), events: Some(&mut events), visits };
        let mut engine = Shared::new(&self.watched);
        let host = devices.host.as_deref_mut();
        let ran = run_loop(&mut devices.devices, &mut engine, host, &options, &over, hooks);
        // An output that cannot be written is noticed when the printer finishes.
        self.print_traces(&mut printing.borrow_mut());
        if let Some(reporter) = self.reporter.borrow_mut().as_mut() {
            reporter.printed = reporter.printed.saturating_sub(lines_lost);
            reporter.dropped += lines_lost;
        }
        ran.map(|all| *statistics = all).map_err(|error| failure(&error))
    }

    /// Prints the traces that wait; returns false if the output cannot be written.
    fn print_traces(&self, printer: &mut Printer) -> bool {
        let text = std::mem::take(&mut self.traces.borrow_mut().text);
        text.is_empty() || printer.print(text)
    }

    /// Waits until everything is written.
    fn finish(printer: Printer, ran: Result<(), Failure>) -> Result<(), Failure> {
        let printed = printer.finish();
        if is_stdout_closed() {
            print_note("standard output was closed by its reader, so the run ends; -q disables reports");
        }
        ran?;
        if printed? > 0 {
            print_note("lines were dropped: the reader of standard output is slower than the function logs");
        }
        Ok(())
    }

    /// Announces that packets are processed from now on.
    fn begin(&self, devices: &Devices) -> Result<(), Failure> {
        let mut watched = self.watched.borrow_mut();
        let engine = watched.engine().name();
        let mode = self.args.live.mode.as_str();
        let named: Vec<(u32, String)> =
            devices.devices.iter().flat_map(|device| device.ports()).map(|(port, name)| (port.0, name)).collect();
        if self.args.json {
            let ports: BTreeMap<String, String> =
                named.into_iter().map(|(port, name)| (port.to_string(), name)).collect();
            let first = json!({
                "event": "started",
                "function": self.loaded.name(),
                "mode": mode,
                "engine": engine,
                "ports": ports,
                "pid": std::process::id(),
                "control": self.observed.socket(),
                "metrics": self.observed.metrics().map(|address| format!("http://{address}/metrics")),
            });
            return print(&format!("{first}\n"));
        }
        let ports: Vec<String> = named.into_iter().map(|(port, name)| format!("{name} (port {port})")).collect();
        print(&format!(
            "{} runs on {}, {mode}{}, engine {engine}; Ctrl-C ends it\n",
            self.loaded.name(),
            ports.join(", "),
            devices.details
        ))
    }

    /// One interim report.
    fn report(&self, so_far: &Statistics, elapsed: Duration, rate: f64) -> String {
        if self.args.json {
            let mut value = self.counters_json("report", so_far, elapsed);
            value["packets_per_s"] = json!(rate);
            return format!("{value}\n");
        }
        format!(
            "{:9.1} s  {}, {}/s{}{}\n",
            elapsed.as_secs_f64(),
            counted(so_far.packets as usize, "packet"),
            grouped(rate as u64),
            verdicts_text(&so_far.verdicts),
            losses(so_far).iter().map(|(what, number)| format!("  {what} {}", grouped(*number))).collect::<String>()
        )
    }

    /// The name of the function that runs now.
    fn name(&self) -> String {
        self.replaced.borrow().as_ref().unwrap_or(self.loaded).name().to_owned()
    }

    fn counters_json(&self, event: &str, statistics: &Statistics, elapsed: Duration) -> Value {
        let verdicts: BTreeMap<&str, u64> = Verdict::ALL.iter().map(|v| (v.name(), statistics.count(*v))).collect();
        let devices = statistics.devices;
        json!({
            "event": event,
            "function": self.name(),
            "elapsed_s": elapsed.as_secs_f64(),
            "now_ns": monotonic_ns().wrapping_add(self.clock_ahead_ns),
            "packets": statistics.packets,
            "bytes": statistics.bytes,
            "verdicts": verdicts,
            "passed": statistics.passed,
            "pass_lost": statistics.pass_lost,
            "unbound": statistics.unbound,
            "further_outputs": statistics.extra,
            "sent": devices.sent,
            "sent_bytes": devices.sent_bytes,
            "tx_full": devices.tx_full,
            "tx_refused": devices.tx_refused,
            "rx_missed": devices.rx_missed,
        })
    }

    fn summary_json(&self, ended: &Ended<'_>) -> Value {
        let statistics = &ended.statistics;
        let mut value = self.counters_json("ended", statistics, statistics.elapsed);
        value["engine"] = json!(ended.engine);
        value["mode"] = json!(self.args.live.mode.as_str());
        value["now_ns"] = json!(ended.now_ns);
        value["packets_per_s"] = json!(statistics.packets_per_second());
        value["refused"] = json!(ended.refused);
        value["events"] = json!(statistics.events);
        if let Some(cores) = ended.cores {
            value["workers"] = workers_json(cores);
        }
        if let Some((logged, lost)) = ended.logged {
            value["logged"] = json!(logged);
            value["logs_lost"] = json!(lost);
        }
        if let (Some(function), Some(coverage)) = (ended.loaded.function(), &ended.coverage) {
            value["elements"] = elements_json(function, coverage, &ended.contexts);
        } else {
            let maps: BTreeMap<&String, usize> = ended.snapshot.maps.iter().map(|(n, m)| (n, m.len())).collect();
            value["maps"] = json!(maps);
        }
        value
    }

    fn summary_text(&self, ended: &Ended<'_>) -> String {
        let statistics = &ended.statistics;
        let names: Vec<&str> = self.bindings.iter().map(|(_, name)| *name).collect();
        let mut text = format!(
            "\n{} on {} by {}: {:.1} s, {}, {} packets/s\n\n",
            self.name(),
            names.join(", "),
            ended.engine,
            statistics.elapsed.as_secs_f64(),
            counted(statistics.packets as usize, "packet"),
            grouped(statistics.packets_per_second() as u64)
        );
        let row = |v: &Verdict| vec![v.name().to_owned(), grouped(statistics.count(*v))];
        let rows: Vec<Vec<String>> = Verdict::ALL.iter().map(row).collect();
        text.push_str(&table(&["verdict", "packets"], &rows, &[1]));
        let mut counters = vec![("sent", statistics.devices.sent), ("passed on", statistics.passed)];
        counters.extend(losses(statistics));
        if ended.refused > 0 {
            counters.push(("not run", ended.refused));
        }
        let counters: Vec<String> = counters.iter().map(|(what, n)| format!("{what} {}", grouped(*n))).collect();
        text.push_str(&format!("{}\n", counters.join(", ")));
        text.push_str(&workers_text(ended.cores));
        if let Some((logged, lost)) = ended.logged {
            text.push_str(&format!("log lines: {}, lost {}\n", grouped(logged), grouped(lost)));
        }
        if statistics.events > 0 && ended.logged.is_none() {
            text.push_str(&format!("records for user space: {}, without a reader\n", grouped(statistics.events)));
        }
        match (ended.loaded.function(), &ended.coverage) {
            (Some(function), Some(coverage)) => {
                text.push_str(&elements_text(function, coverage, &ended.contexts, Flows::Recorded, self.args.verbose));
            }
            _ => text.push_str(&maps_text(&ended.snapshot, |_| true)),
        }
        text
    }
}

/// The records of log lines that found their buffer full.
fn logs_lost(snapshot: &Snapshot) -> u64 {
    let value = snapshot.maps.get(LOST_MAP).and_then(|entries| entries.values().next());
    value.map_or(0, |bytes| first_number(bytes))
}

fn first_number(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The numbers of packets lost, by reason, without zeros.
fn losses(statistics: &Statistics) -> Vec<(&'static str, u64)> {
    let devices = statistics.devices;
    let all = [
        ("pass lost", statistics.pass_lost),
        ("for unbound ports", statistics.unbound),
        ("queue full", devices.tx_full),
        ("refused by the interface", devices.tx_refused),
        ("missed", devices.rx_missed),
    ];
    all.into_iter().filter(|(_, number)| *number > 0).collect()
}
