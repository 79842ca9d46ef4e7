// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a run in the kernel offers to observers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use flowloom_control::{Greeting, MapLoad, MetricsServer, Published, Report, RowHits, Server, Subject};
use flowloom_engine::Verdict;
use flowloom_exec::{Interface, Mode};
use flowloom_isa::MapDef;
use flowloom_session::Loaded;

use super::Counts;
use super::reload::Reloader;
use crate::args::RunArgs;
use crate::failure::Failure;
use crate::observe;

/// The control socket and the endpoint for metrics of a run in the kernel.
pub(super) struct KernelObserved {
    pub(super) subject: Arc<Published>,
    pub(super) reloader: Arc<Reloader>,
    server: Option<Server>,
    metrics: Option<MetricsServer>,
}

impl KernelObserved {
    /// Opens them; clients wait for the first report.
    pub(super) fn start(
        args: &RunArgs,
        loaded: &Loaded,
        interfaces: &[Interface],
        (mode, clock_ahead_ns): (Mode, u64),
    ) -> Result<KernelObserved, Failure> {
        let ports: BTreeMap<u32, String> =
            interfaces.iter().map(|interface| (interface.port, interface.name().to_owned())).collect();
        let path = args.function.path.display().to_string();
        let greeting = Greeting::new(loaded.name(), &path, &mode.to_string(), "kernel", ports);
        let reloader = Arc::new(Reloader::new(mode, clock_ahead_ns, !args.live.no_counters, args.json));
        let own = Arc::clone(&reloader);
        let reload = move |path, params, program| own.reload(path, params, program);
        let subject = Arc::new(Published::new(greeting, Box::new(reload)));
        let (server, metrics) = observe::serve(&args.live, Arc::clone(&subject) as Arc<dyn Subject>)?;
        Ok(KernelObserved { subject, reloader, server, metrics })
    }

    /// Reads the function's file again, on a thread of its own.
    pub(super) fn reload(&self) {
        observe::reload_aside(Arc::clone(&self.subject) as Arc<dyn Subject>);
    }

    /// The run ends: clients wait no longer.
    pub(super) fn end(&self) {
        self.reloader.end();
        self.subject.end();
    }

    pub(super) fn socket(&self) -> Option<String> {
        self.server.as_ref().map(|server| server.path().display().to_string())
    }

    pub(super) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(MetricsServer::address)
    }

    /// Hands a report to the clients that wait for one.
    pub(super) fn publish(&self, loaded: &Loaded, counts: &Counts, defs: &[MapDef], reloads: u64) {
        let Greeting { function, source, mode, engine, pid, .. } = self.subject.greeting();
        let mut report = Report {
            function,
            source,
            mode,
            engine,
            pid,
            workers: 0,
            elapsed_s: counts.elapsed.as_secs_f64(),
            now_ns: counts.now_ns,
            reloads,
            packets: counts.verdicts.map(|_| counts.packets()),
            ..Report::default()
        };
        if let Some(verdicts) = &counts.verdicts {
            let all = Verdict::ALL.iter();
            report.verdicts = all.map(|v| (v.name().to_owned(), verdicts[v.number() as usize])).collect();
        }
        if let Some((_, lost)) = counts.reported {
            report.counters.insert("logs_lost".to_owned(), lost);
        }
        let load = |def: &MapDef| {
            let entries = counts.contexts.get(&def.name)?.alive;
            let kind = def.kind.name().unwrap_or("unknown").to_owned();
            Some(MapLoad { name: def.name.clone(), kind, entries, max_entries: def.max_entries.into() })
        };
        report.maps = defs.iter().filter_map(load).collect();
        if let (Some(function), Some(coverage)) = (loaded.function(), &counts.coverage) {
            report.rows = RowHits::of(function, coverage);
        }
        self.subject.publish(report);
    }
}
