// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom top`: rates, verdicts, rows, tables, times and the largest flows of a function that runs on interfaces.
//!
//! A terminal gets a screen; anything else gets a report for each interval.

mod screen;
mod text;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use flowloom_control::{Client, ControlError, Refusal, Report};
use serde_json::json;

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::observe::{choose, connect, failure};
use crate::output::{is_stdout_closed, print, print_note};

/// Two reports of a run, and the rates between them.
pub(crate) struct Look {
    pub(crate) now: Report,
    before: Report,
}

impl Look {
    fn new(before: Report, now: Report) -> Look {
        Look { now, before }
    }

    /// The time between the reports.
    fn seconds(&self) -> f64 {
        (self.now.elapsed_s - self.before.elapsed_s).max(1e-6)
    }

    /// The rate of a counter; after a reload the counters of rows begin at 0.
    fn rate(&self, now: u64, before: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds()
    }

    pub(crate) fn packets_per_s(&self) -> f64 {
        self.rate(self.now.packets.unwrap_or(0), self.before.packets.unwrap_or(0))
    }

    pub(crate) fn bits_per_s(&self) -> f64 {
        8.0 * self.rate(self.now.bytes.unwrap_or(0), self.before.bytes.unwrap_or(0))
    }

    pub(crate) fn verdicts(&self) -> Vec<(&str, u64, f64)> {
        let before = |name: &str| self.before.verdicts.get(name).copied().unwrap_or(0);
        let all = self.now.verdicts.iter();
        all.map(|(name, number)| (name.as_str(), *number, self.rate(*number, before(name)))).collect()
    }

    /// Losses and other counters that are not zero: name, number, rate.
    pub(crate) fn losses(&self) -> Vec<(&str, u64, f64)> {
        const LOSSES: [(&str, &str); 6] = [
            ("pass_lost", "pass lost"),
            ("unbound", "for unbound ports"),
            ("tx_full", "queue full"),
            ("tx_refused", "refused by the interface"),
            ("rx_missed", "missed"),
            ("not_run", "not run"),
        ];
        let of = |report: &Report, name: &str| report.counters.get(name).copied().unwrap_or(0);
        let all = LOSSES.iter().map(|(name, text)| {
            let number = of(&self.now, name);
            (*text, number, self.rate(number, of(&self.before, name)))
        });
        all.filter(|(_, number, _)| *number > 0).collect()
    }

    /// Rates of a port: packets received and sent.
    pub(crate) fn port_rates(&self, port: u32) -> (f64, f64) {
        let of = |report: &Report| {
            let found = report.ports.iter().find(|own| own.port == port);
            found.map_or((0, 0), |own| (own.received, own.sent))
        };
        let (now, before) = (of(&self.now), of(&self.before));
        (self.rate(now.0, before.0), self.rate(now.1, before.1))
    }

    /// Rates of rows, in the order of the report.
    pub(crate) fn row_rates(&self) -> Vec<f64> {
        let key =
            |row: &flowloom_control::RowHits| (row.element.clone(), row.event.clone(), row.line, row.state.clone());
        let before: BTreeMap<_, u64> = self.before.rows.iter().map(|row| (key(row), row.hits)).collect();
        let rate = |row| before.get(&key(row)).copied().unwrap_or(0);
        self.now.rows.iter().map(|row| self.rate(row.hits, rate(row))).collect()
    }

    fn json(&self) -> serde_json::Value {
        let verdicts: BTreeMap<&str, f64> = self.verdicts().into_iter().map(|(name, _, rate)| (name, rate)).collect();
        let mut value = json!(self.now);
        value["rates"] = json!({
            "seconds": self.seconds(),
            "packets_per_s": self.packets_per_s(),
            "bits_per_s": self.bits_per_s(),
            "verdicts_per_s": verdicts,
        });
        value
    }
}

/// The next report; `None` once the run has ended.
fn next(client: &mut Client) -> Result<Option<Report>, Failure> {
    match client.statistics() {
        Ok(report) => Ok(Some(report)),
        Err(ControlError::Refused(Refusal::Environment(_)) | ControlError::File { .. }) => Ok(None),
        Err(error) => Err(failure(&error)),
    }
}

pub(crate) fn top(args: &TopArgs) -> Result<(), Failure> {
    let found = choose(args.run.as_deref())?;
    let mut client = connect(&found)?;
    let ended = || {
        print_note(&format!("{} ({}) has ended", found.greeting.function, found.greeting.pid));
        Ok(())
    };
    let Some(mut before) = next(&mut client)? else { return ended() };
    let is_screen = !args.once && !args.json && std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if is_screen {
        return match screen::run(&mut client, before, args.interval)? {
            screen::End::Quit => Ok(()),
            screen::End::Ended => ended(),
        };
    }
    loop {
        wait(args.interval);
        let Some(now) = next(&mut client)? else { return ended() };
        let look = Look::new(before, now);
        let text = if args.json { format!("{}\n", look.json()) } else { text::report(&look) };
        print(&text)?;
        if args.once || is_stdout_closed() {
            return Ok(());
        }
        before = look.now;
    }
}

fn wait(interval: Duration) {
    let until = Instant::now() + interval;
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}
