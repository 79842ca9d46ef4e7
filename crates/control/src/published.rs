// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run in the kernel, as its control socket sees it: its process publishes a report when one is asked for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::Refusal;
use crate::protocol::{Greeting, Maps, Reloaded, UpdateRule};
use crate::report::Report;
use crate::server::{Subject, Visitor};

/// The longest wait for a report: the process looks ten times a second, and walks large tables for a while.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run whose maps are in the kernel.
#[derive(Debug)]
pub struct Published {
    greeting: Greeting,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The clients that wait.
    waiting: u32,
    /// The number of reports so far, and the last one.
    number: u64,
    last: Report,
    is_over: bool,
}

impl Published {
    /// A run without a report yet.
    pub fn new(greeting: Greeting) -> Published {
        Published { greeting: greeting.in_kernel(), state: Mutex::default(), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if a client waits for a report.
    pub fn is_wanted(&self) -> bool {
        self.state().waiting > 0
    }

    /// Hands a report to the clients that wait.
    pub fn publish(&self, report: Report) {
        let mut state = self.state();
        (state.number, state.last) = (state.number + 1, report);
        self.changed.notify_all();
    }

    /// The run ends: clients wait no longer.
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    fn elsewhere(&self) -> Refusal {
        let function = &self.greeting.function;
        Refusal::Input(format!("the maps of `{function}` are in the kernel: `flowloom map list` has their ids"))
    }
}

impl Subject for Published {
    fn greeting(&self) -> Greeting {
        self.greeting.clone()
    }

    fn statistics(&self, _: bool) -> Result<Report, Refusal> {
        let mut state = self.state();
        let before = state.number;
        state.waiting += 1;
        let is_old = |state: &mut State| state.number == before && !state.is_over;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, is_old);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        if state.number == before {
            return Err(Refusal::Environment("the run is ending, or does not answer".to_owned()));
        }
        Ok(state.last.clone())
    }

    fn maps(&self) -> Result<Maps, Refusal> {
        Err(self.elsewhere())
    }

    fn dump(&self, _: &str, _: &mut Visitor<'_>) -> Result<(), Refusal> {
        Err(self.elsewhere())
    }

    fn lookup(&self, _: &str, _: Vec<u8>) -> Result<Option<Vec<u8>>, Refusal> {
        Err(self.elsewhere())
    }

    fn update(&self, _: &str, _: Vec<u8>, _: Vec<u8>, _: UpdateRule) -> Result<bool, Refusal> {
        Err(self.elsewhere())
    }

    fn delete(&self, _: &str, _: Vec<u8>) -> Result<bool, Refusal> {
        Err(self.elsewhere())
    }

    fn reload(&self, _: Option<String>, _: Vec<(String, String)>, _: Option<String>) -> Result<Reloaded, Refusal> {
        Err(Refusal::Input(
            "a function in the kernel is not replaced while it runs: end it with --state-out and start the other one with \
             --state-in, or use --mode af_xdp or raw"
                .to_owned(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn clients_get_the_next_report_and_none_at_the_end() {
        let run = Arc::new(Published::new(Greeting::new("f", "f.efsm", "native", "kernel", Default::default())));
        assert!(!run.is_wanted() && !run.greeting().has_maps);
        run.publish(Report { packets: Some(1), ..Report::default() });
        let client = Arc::clone(&run);
        let thread = std::thread::spawn(move || (client.statistics(true), client.statistics(true)));
        let start = Instant::now();
        while !run.is_wanted() {
            assert!(start.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        run.publish(Report { packets: Some(2), ..Report::default() });
        run.end();
        let (first, second) = thread.join().expect("no panic");
        assert_eq!(first.map(|report| report.packets), Ok(Some(2)));
        assert!(matches!(second, Err(Refusal::Environment(_))));
    }
}
