// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of the programs, as figures and as a page of the book.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use flowloom_testkit::markdown::wrapped;

use super::trial::{Made, Row};

/// Number of programs by result. Builds by several compilers are counted separately, except in `programs`.
#[derive(Debug)]
pub struct Figures {
    pub objects: usize,
    pub programs: usize,
    pub builds: usize,
    pub in_kernel: usize,
    pub accepted: usize,
    pub only_ours: usize,
    pub disagree: usize,
    pub plannable: usize,
    pub planned: usize,
    pub foreign: usize,
    pub reached: u64,
    pub slots: u64,
    pub slowest: Duration,
}

impl Figures {
    pub fn of(rows: &[Row]) -> Figures {
        let count = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).count();
        let distinct: BTreeSet<_> = rows.iter().map(|row| (&row.package, &row.source, &row.program)).collect();
        let objects: BTreeSet<_> = rows.iter().map(|row| (&row.package, &row.source, &row.compiler)).collect();
        let ran = || rows.iter().filter(|row| row.runs());
        Figures {
            objects: objects.len(),
            programs: distinct.len(),
            builds: rows.len(),
            in_kernel: count(&|row| row.kernel.is_ok()),
            accepted: count(&Row::runs),
            only_ours: count(&|row| row.ours.is_ok() && row.kernel.is_err()),
            disagree: count(&|row| row.runs() && row.verified.is_err()),
            plannable: count(&Row::is_plannable),
            planned: count(&|row| row.is_plannable() && row.plan.is_ok()),
            foreign: count(&|row| row.runs() && !row.foreign.is_empty()),
            reached: ran().map(|row| row.reached).sum(),
            slots: ran().map(|row| row.slots).sum(),
            slowest: rows.iter().map(Row::slowest).max().unwrap_or_default(),
        }
    }

    fn lines(&self) -> Vec<(String, String)> {
        let line = |count: usize, what: &str| (count.to_string(), what.to_owned());
        vec![
            line(self.objects, "objects, by source and compiler"),
            line(self.programs, "different XDP programs"),
            line(self.builds, "builds of them, which the next lines count"),
            line(self.in_kernel, "are accepted by the running kernel"),
            line(self.accepted, "of these are read and accepted"),
            line(self.only_ours, "are accepted here alone"),
            line(self.disagree, "disagree with the kernel"),
            line(self.foreign, "of the accepted use something foreign to hardware"),
            line(self.plannable, "of the accepted do not"),
            line(self.planned, "of these have a plan"),
            (
                format!("{}%", self.reached * 100 / self.slots.max(1)),
                "of the accepted instructions ran in 300 packets".into(),
            ),
            (format!("{:.1} s", self.slowest.as_secs_f64()), "is the longest `check`, `verify` or `explain`".into()),
        ]
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|(count, what)| writeln!(f, "{count:>8} {what}"))
    }
}

/// Packages with their versions, and the sources that are not available.
pub fn packages(made: &[Made]) -> String {
    let mut text = String::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for one in made.iter().filter(|one| !one.name.is_empty()) {
        *counts.entry(&one.package).or_default() += 1;
    }
    for (package, count) in counts {
        let _ = writeln!(text, "- {package}: {count} objects");
    }
    let failed: Vec<&Made> = made.iter().filter(|one| !one.error.is_empty()).collect();
    let _ = writeln!(text, "\nNot had, {}:\n", failed.len());
    for Made { package, source, compiler, error, .. } in failed {
        let words: Vec<&str> =
            [package, source, compiler].into_iter().map(String::as_str).filter(|w| !w.is_empty()).collect();
        let _ = writeln!(text, "- {}: {error}", words.join(" "));
    }
    text
}

/// A reason without positions, so that equal reasons are counted together.
fn kind_of(reason: &str) -> String {
    let after = reason.split_once("instruction ").map_or(reason, |(_, after)| after);
    let after = after.split_once(": ").map_or(after, |(_, after)| after);
    let mut kind = String::new();
    let mut is_name = false;
    for c in after.lines().next().unwrap_or_default().chars() {
        match c {
            '`' => {
                is_name = !is_name;
                kind.push_str(if is_name { "`..." } else { "`" });
            }
            _ if is_name => {}
            _ if c.is_ascii_digit() => {
                if !kind.ends_with('N') {
                    kind.push('N');
                }
            }
            _ => kind.push(c),
        }
    }
    kind.replace('|', "\\|")
}

fn counted<'a>(reasons: impl Iterator<Item = &'a String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for reason in reasons {
        *counts.entry(kind_of(reason)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(reason, count)| (usize::MAX - count, reason.clone()));
    let lines = counts.iter().map(|(reason, count)| format!("| {count} | {reason} |\n"));
    let lines: String = lines.collect();
    if lines.is_empty() { "None.\n".to_owned() } else { format!("| count | reason |\n| ---: | --- |\n{lines}") }
}

pub fn render(rows: &[Row], made: &[Made]) -> String {
    let mut text = String::from(
        "# Programs of public packages\n\n<!-- Made by `make evidence ONLY=public-programs`. -->\n\n\
         These are XDP programs from packages of Debian, crates.io and PyPI: DNS servers, an intrusion detection\n\
         system, AF_XDP libraries, traffic generators. They were written without Flowloom in mind and are\n\
         unmodified: `scripts/public-objects` fetches and compiles them. Each was put through `check`,\n\
         `verify --packets 300` and `explain`.\n\n\
         Foreign to hardware are helpers that ask the host's routes, sockets, timers, tasks or memory (`fib_lookup`,\n\
         `check_mtu`, `sk_*`, `timer_*`, `probe_read*`), every function of the kernel, and maps of sockets, stacks or\n\
         tasks (`xskmap`, `sockmap`). A program with one of these runs on the CPU.\n\n| count | |\n| ---: | --- |\n",
    );
    for (count, what) in Figures::of(rows).lines() {
        let _ = writeln!(text, "| {count} | {what} |");
    }
    let of = |is: &dyn Fn(&Row) -> bool| rows.iter().filter(|row| is(row)).cloned().collect::<Vec<Row>>();
    let refused = of(&|row| row.kernel.is_ok());
    let _ = write!(
        text,
        "\n## Refused here alone\n\n{}",
        counted(refused.iter().filter_map(|row| row.ours.as_ref().err()))
    );
    let both = of(&|row| row.kernel.is_err());
    let _ = write!(
        text,
        "\n## Refused by both\n\nThe kernel's words are those of `bpftool prog loadall`, ours follow.\n\n{}\n{}",
        counted(both.iter().filter_map(|row| row.kernel.as_ref().err())),
        counted(both.iter().filter_map(|row| row.ours.as_ref().err()))
    );
    let (own, alien) = (of(&Row::is_plannable), of(&|row| row.runs() && !row.foreign.is_empty()));
    let _ = write!(text, "\n## No plan\n\n{}", counted(own.iter().filter_map(|row| row.plan.as_ref().err())));
    let _ = write!(
        text,
        "\nOf the programs that use something foreign to hardware:\n\n{}",
        counted(alien.iter().filter_map(|row| row.plan.as_ref().err()))
    );
    let _ = write!(
        text,
        "\n## Programs\n\nThe least of a program's builds counts: instructions reached, and whether it has a plan.\n\n"
    );
    text.push_str("| package | source | program | builds | accepted | reached | plan |\n| --- | --- | --- | ---: | --- | ---: | --- |\n");
    let mut programs: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        programs.entry((&row.package, &row.source, &row.program)).or_default().push(row);
    }
    for ((package, source, program), builds) in programs {
        let share = |row: &&Row| row.reached * 100 / row.slots.max(1);
        let yes = |is: bool| if is { "yes" } else { "no" };
        let accepted = builds.iter().all(|row| row.ours.is_ok());
        let reached = builds.iter().map(share).min().unwrap_or(0);
        let reached = if accepted { format!("{reached}%") } else { String::new() };
        let plan = yes(builds.iter().all(|row| row.plan.is_ok()));
        let count = builds.len();
        let _ =
            writeln!(text, "| {package} | {source} | `{program}` | {count} | {} | {reached} | {plan} |", yes(accepted));
    }
    let _ = write!(text, "\n## Packages\n\n{}", packages(made));
    wrapped(&text)
}
