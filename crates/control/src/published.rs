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

/// Replaces the program: its path, its parameters, its program; without a path, by the run's own file. The result has
/// the greeting from then on.
pub type ReloadFunction = Box<
    dyn Fn(Option<String>, Vec<(String, String)>, Option<String>) -> Result<(Greeting, Reloaded), Refusal>
        + Send
        + Sync,
>;

/// A run whose maps are in the kernel.
pub struct Published {
    reload: ReloadFunction,
    state: Mutex<State>,
    changed: Condvar,
    /// Held during a reload: they come one after the other.
    reloading: Mutex<()>,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    greeting: Greeting,
    /// The clients that wait.
    waiting: u32,
    /// The number of reports so far, and the last one.
    number: u64,
    last: Report,
    is_over: bool,
}

impl Published {
    /// A run without a report yet.
    pub fn new(greeting: Greeting, reload: ReloadFunction) -> Published {
        let greeting = greeting.in_kernel();
        let state = State { greeting, waiting: 0, number: 0, last: Report::default(), is_over: false };
        let (state, changed, reloading) = (Mutex::new(state), Condvar::new(), Mutex::new(()));
        Published { reload, state, changed, reloading }
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
        let function = self.state().greeting.function.clone();
        Refusal::Input(format!("the maps of `{function}` are in the kernel: `flowloom map list` has their ids"))
    }
}

impl Subject for Published {
    fn greeting(&self) -> Greeting {
        self.state().greeting.clone()
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

    fn reload(
        &self,
        path: Option<String>,
        params: Vec<(String, String)>,
        program: Option<String>,
    ) -> Result<Reloaded, Refusal> {
        let _one = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        // Clients are answered meanwhile.
        let (greeting, reloaded) = (self.reload)(path, params, program)?;
        self.state().greeting = greeting.in_kernel();
        Ok(reloaded)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn clients_get_the_next_report_and_none_at_the_end() {
        let greeting = |name: &str| Greeting::new(name, "f.efsm", "native", "kernel", Default::default());
        let refused = Refusal::Input("wrong".to_owned());
        let answer = Mutex::new(vec![Err(refused.clone()), Ok((greeting("g"), Reloaded::default()))].into_iter());
        let reload = move |_, _, _| answer.lock().expect("no panic").next().expect("two calls");
        let run = Arc::new(Published::new(greeting("f"), Box::new(reload)));
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
        assert_eq!((run.reload(None, Vec::new(), None), run.greeting().function.as_str()), (Err(refused), "f"));
        assert!(run.reload(None, Vec::new(), None).is_ok() && run.greeting().function == "g");
        assert!(!run.greeting().has_maps);
    }
}
