// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observation and control of runs on interfaces: what a run offers, and `flowloom reload`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flowloom_control::{
    Client, ControlError, Facts, Found, Inbox, LeftOut, LoadFunction, MetricsServer, New, Refusal, Reloaded, Runs,
    Server, Subject, UserRun, Watched, desk, run_of, runs,
};
use flowloom_exec::SweepClock;
use flowloom_session::engines::{EngineName, EngineOptions, StartedInPlace};
use flowloom_session::{FunctionFile, Loaded};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::{LiveArgs, ReloadArgs, RunArgs};
use crate::describe::describe;
use crate::failure::{Failure, with_causes};
use crate::output::{counted, print, print_note, quoted, render_diagnostic};
use crate::run::{Interrupted, started_in_place};

/// The failure of a request.
pub(crate) fn failure(error: &ControlError) -> Failure {
    match error {
        ControlError::Refused(Refusal::Finding(text)) => Failure::Found(text.clone()),
        error if error.is_environment() => Failure::Environment(with_causes(error)),
        error => Failure::Input(with_causes(error)),
    }
}

/// A failure as the answer to a request.
pub(crate) fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::Finding | Failure::Interrupted => Refusal::Finding("interrupted".to_owned()),
        Failure::Found(text) => Refusal::Finding(text),
        Failure::Source(diagnostics) => Refusal::Input(render_diagnostic(diagnostics.as_ref()).trim_end().to_owned()),
        Failure::Input(text) => Refusal::Input(text),
        Failure::Environment(text) => Refusal::Environment(text),
    }
}

/// The signals of a run in user space: SIGINT and SIGTERM end it. SIGHUP reloads the function, but ends a run whose
/// standard input is a terminal, since it tells that the terminal is gone.
pub(crate) struct Signals {
    over: Interrupted,
    reload: Option<Arc<AtomicBool>>,
}

impl Signals {
    pub(crate) fn hold() -> Result<Signals, Failure> {
        if std::io::stdin().is_terminal() {
            return Ok(Signals { over: Interrupted::hold()?, reload: None });
        }
        let over = Interrupted::hold_signals(&[SIGINT, SIGTERM])?;
        let reload = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, Arc::clone(&reload))
            .map_err(|e| Failure::Environment(format!("signals cannot be handled: {e}")))?;
        Ok(Signals { over, reload: Some(reload) })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.flag().load(Ordering::Relaxed)
    }

    /// True once after each SIGHUP.
    pub(crate) fn wants_reload(&self) -> bool {
        self.reload.as_ref().is_some_and(|reload| reload.swap(false, Ordering::Relaxed))
    }
}

/// What a run in user space offers to observers.
pub(crate) struct Observed {
    pub(crate) inbox: Inbox,
    subject: Arc<UserRun>,
    server: Option<Server>,
    metrics: Option<MetricsServer>,
}

impl Observed {
    /// Begins to answer observers.
    pub(crate) fn start(
        args: &RunArgs,
        loaded: &Loaded,
        options: &EngineOptions,
        watched: &RefCell<Watched>,
        (ports, clock_ahead_ns): (BTreeMap<u32, String>, u64),
    ) -> Result<Observed, Failure> {
        let (desk, inbox) = desk().map_err(|e| Failure::Environment(format!("no control socket: {e}")))?;
        let mut watched = watched.borrow_mut();
        let engine = watched.engine();
        let file = args.function.file();
        let about = About { ports: ports.clone(), clock_ahead_ns };
        let facts = about.facts(&file, loaded, engine.program());
        let load = about.loader((args.engine, args.workers), options.clone(), file);
        let mode = (args.live.mode.as_str(), engine.name());
        let subject = Arc::new(UserRun::new(vec![desk], facts, mode, ports, load));
        let (server, metrics) = serve(&args.live, Arc::clone(&subject) as Arc<dyn Subject>)?;
        Ok(Observed { inbox, subject, server, metrics })
    }

    pub(crate) fn socket(&self) -> Option<String> {
        self.server.as_ref().map(|server| server.path().display().to_string())
    }

    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Reads the function's file again, on a thread of its own.
    pub(crate) fn reload(&self) {
        reload_aside(Arc::clone(&self.subject) as Arc<dyn Subject>);
    }
}

/// Has a run read its function's file again, on a thread of its own.
pub(crate) fn reload_aside(subject: Arc<dyn Subject>) {
    let reload = move || match subject.reload(None, Vec::new(), None) {
        Ok(reloaded) => print_note(reloaded_text(&reloaded).trim_end()),
        Err(refusal) => print_note(&format!("not reloaded, the old program runs on: {refusal}")),
    };
    if let Err(error) = std::thread::Builder::new().name("reload".to_owned()).spawn(reload) {
        print_note(&format!("not reloaded, the old program runs on: {error}"));
    }
}

/// Opens the control socket, and the endpoint for metrics if there is to be one. A run goes on without a socket.
pub(crate) fn serve(
    live: &LiveArgs,
    subject: Arc<dyn Subject>,
) -> Result<(Option<Server>, Option<MetricsServer>), Failure> {
    let metrics = live.metrics.map(|address| {
        if !address.ip().is_loopback() {
            print_note(&format!("metrics at {address} are readable by other hosts"));
        }
        MetricsServer::start(address, Arc::clone(&subject))
    });
    let metrics = metrics.transpose().map_err(|e| failure(&e))?;
    let server = Server::start(subject);
    if let Err(error) = &server {
        let why = with_causes(error);
        print_note(&format!("`flowloom top`, `map` and `reload` cannot reach this run: {why}"));
    }
    Ok((server.ok(), metrics))
}

/// What stays the same when a function is replaced.
#[derive(Debug, Clone)]
struct About {
    ports: BTreeMap<u32, String>,
    clock_ahead_ns: u64,
}

impl About {
    fn facts(&self, file: &FunctionFile, loaded: &Loaded, program: &flowloom_isa::Program) -> Facts {
        let path = file.path.display().to_string();
        let mut description = describe(loaded, &path, program);
        description.ports.clone_from(&self.ports);
        description.clock_ahead_ns = self.clock_ahead_ns;
        Facts {
            name: loaded.name().to_owned(),
            path,
            params: file.params.clone(),
            program: file.program.clone(),
            function: loaded.function().cloned(),
            description,
        }
    }

    /// Loads another function for the same run.
    fn loader(
        self,
        (engine, cores): (Option<EngineName>, Option<u32>),
        options: EngineOptions,
        first: FunctionFile,
    ) -> LoadFunction {
        Box::new(move |path, params, program, workers| {
            let file = FunctionFile {
                path: path.into(),
                params: params.to_vec(),
                program: program.map(str::to_owned),
                kind: first.kind,
            };
            let loaded = Loaded::open(&file).map_err(|e| refusal(e.into()))?;
            let mut notes: Vec<String> =
                loaded.warnings().iter().map(|warning| render_diagnostic(warning).trim_end().to_owned()).collect();
            let mut engines = Vec::new();
            for _ in 0..workers {
                let started = started_in_place(engine, &loaded, &options, cores).map_err(|e| refusal(e.into()))?;
                let StartedInPlace { engine, notes: own } = started;
                // Those of further workers are the same.
                if engines.is_empty() {
                    notes.extend(own);
                }
                engines.push(engine);
            }
            let Some(first) = engines.first() else {
                return Err(Refusal::Environment("the run has no workers".to_owned()));
            };
            let facts = self.facts(&file, &loaded, first.program());
            let sweep = SweepClock::of(loaded.layouts().values());
            Ok(New { facts, loaded, engines, sweep, notes })
        })
    }
}

/// The runs that listen; stale sockets are named in a note.
pub(crate) fn listening() -> Result<Vec<Found>, Failure> {
    let Runs { found, stale, odd } = match runs() {
        // Without a directory there are no sockets.
        Err(ControlError::NoDirectory { .. }) => return Ok(Vec::new()),
        found => found.map_err(|e| failure(&e))?,
    };
    for path in stale {
        let path = path.display();
        print_note(&format!("`{path}` is stale: its process ended without cleaning up; remove it"));
    }
    for error in odd {
        print_note(&format!("a run is left out: {}", with_causes(&error)));
    }
    Ok(found)
}

/// The run that a name or a process id selects; without one the only run.
pub(crate) fn choose(wanted: Option<&str>) -> Result<Found, Failure> {
    // A process id names its socket: others are not asked.
    if let Some(pid) = wanted.and_then(|wanted| wanted.parse().ok()) {
        match run_of(pid) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) | Err(ControlError::NoDirectory { .. }) => {}
            Err(error) => return Err(failure(&error)),
        }
    }
    let all = listening()?;
    let text = |found: &Found| format!("{} ({})", found.greeting.function, found.greeting.pid);
    let is_wanted = |found: &&Found| {
        wanted.is_none_or(|wanted| found.greeting.function == wanted || found.greeting.pid.to_string() == wanted)
    };
    let matching: Vec<&Found> = all.iter().filter(is_wanted).collect();
    match (matching.as_slice(), wanted) {
        ([found], _) => Ok((*found).clone()),
        ([], _) if all.is_empty() => Err(Failure::Input(
            "no function runs on interfaces under this user; start one with `flowloom run FUNCTION -i DEV`".to_owned(),
        )),
        ([], wanted) => Err(Failure::Input(format!(
            "no run `{}`; there run {}",
            wanted.unwrap_or_default(),
            quoted(all.iter().map(text))
        ))),
        (several, _) => Err(Failure::Input(format!(
            "{} functions run: give the process id of one of {}",
            several.len(),
            quoted(several.iter().map(|found| text(found)))
        ))),
    }
}

pub(crate) fn connect(found: &Found) -> Result<Client, Failure> {
    Client::connect(&found.path).map_err(|e| failure(&e))
}

pub(crate) fn reload(args: &ReloadArgs) -> Result<(), Failure> {
    let mut client = connect(&choose(Some(&args.run))?)?;
    // The run may have another working directory.
    let path = match &args.path {
        None => None,
        Some(path) => {
            let absolute = path.canonicalize().map_err(|e| Failure::file("read", path, &e))?;
            let text = absolute.to_str().map(str::to_owned);
            Some(text.ok_or_else(|| Failure::Input(format!("`{}` is not UTF-8", path.display())))?)
        }
    };
    let reloaded =
        client.reload(path, args.params.clone(), args.program.clone()).map_err(|error| match failure(&error) {
            Failure::Found(text) => Failure::Found(format!("not reloaded, the old program runs on: {text}")),
            Failure::Input(text) => Failure::Input(format!("not reloaded, the old program runs on: {text}")),
            other => other,
        })?;
    if args.json {
        return print(&format!("{}\n", json!(reloaded)));
    }
    print(&reloaded_text(&reloaded))
}

fn reloaded_text(reloaded: &Reloaded) -> String {
    let mut text = format!(
        "{} runs now, engine {}; packets paused for {:.3} ms\n",
        reloaded.function,
        reloaded.engine,
        reloaded.pause_ns as f64 / 1e6
    );
    for (map, entries) in &reloaded.kept {
        text.push_str(&match reloaded.left_out.iter().find(|left_out| left_out.map == *map) {
            Some(LeftOut { entries, of, reason, .. }) => {
                format!("  {map}: kept {} of {}: {reason}\n", of - entries, counted(*of as usize, "entry"))
            }
            None => format!("  {map}: kept, {}\n", counted(*entries as usize, "entry")),
        });
    }
    for (map, reason) in &reloaded.emptied {
        text.push_str(&format!("  {map}: begins anew: {reason}\n"));
    }
    for map in &reloaded.removed {
        text.push_str(&format!("  {map}: removed with the old program\n"));
    }
    for note in &reloaded.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    text
}
