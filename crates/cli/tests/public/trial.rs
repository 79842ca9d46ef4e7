// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results of the commands for a program.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use crate::common::flowloom;

/// Time limit of a command.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Helpers without a counterpart in a pipeline: they use the host's routes, sockets, timers, tasks or memory.
const FOREIGN_HELPERS: [&str; 10] = [
    "fib_lookup",
    "check_mtu",
    "sk_",
    "skc_",
    "tcp_",
    "timer_",
    "get_current_",
    "probe_read",
    "ktime_get_coarse",
    "dynptr_",
];
/// Maps whose entries are host objects: sockets, stacks and task storage.
const FOREIGN_MAPS: [&str; 7] =
    ["xskmap", "sockmap", "sockhash", "stack_trace", "sk_storage", "task_storage", "cgroup_array"];

/// An object or unavailable package, as `scripts/public-objects` records it.
#[derive(Debug, Clone, Deserialize)]
pub struct Made {
    pub package: String,
    pub source: String,
    pub name: String,
    pub compiler: String,
    pub error: String,
}

/// A program and its results.
#[derive(Debug, Clone)]
pub struct Row {
    pub package: String,
    pub source: String,
    pub compiler: String,
    pub program: String,
    pub slots: u64,
    pub reached: u64,
    /// Error: the reason why our engines reject it.
    pub ours: Result<(), String>,
    /// Error: the reason why the kernel rejects it.
    pub kernel: Result<(), String>,
    /// Error: the disagreement, or the reason why the program was not explored.
    pub verified: Result<(), String>,
    pub plan: Result<(), String>,
    /// Features used that no pipeline has.
    pub foreign: Vec<String>,
    /// Time of `check`, `verify` and `explain`.
    pub took: [Duration; 3],
}

impl Row {
    pub fn slowest(&self) -> Duration {
        self.took.into_iter().max().unwrap_or_default()
    }

    /// True if both accept it.
    pub fn runs(&self) -> bool {
        self.ours.is_ok() && self.kernel.is_ok()
    }

    /// True if only we reject it.
    pub fn is_refused_alone(&self) -> bool {
        self.ours.is_err() && self.kernel.is_ok()
    }

    /// True if the engines disagree, or only we accept it.
    pub fn is_wrong(&self) -> bool {
        self.ours.is_ok() && (self.kernel.is_err() || self.verified.is_err())
    }

    /// True if both accept it and it uses no foreign feature.
    pub fn is_plannable(&self) -> bool {
        self.runs() && self.foreign.is_empty()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |result: &Result<(), String>| result.as_ref().map_or_else(Clone::clone, |()| "yes".to_owned());
        let Row { package, source, compiler, program, slots, reached, .. } = self;
        write!(
            f,
            "{package} {source} {program} ({compiler}): {reached}/{slots} slots; accepted: {}; ",
            said(&self.ours)
        )?;
        write!(
            f,
            "by the kernel: {}; agrees: {}; plan: {}",
            said(&self.kernel),
            said(&self.verified),
            said(&self.plan)
        )?;
        write!(
            f,
            "; {:.1} {:.1} {:.1} s",
            self.took[0].as_secs_f32(),
            self.took[1].as_secs_f32(),
            self.took[2].as_secs_f32()
        )
    }
}

/// Output and duration of a command, which is killed at the time limit.
struct Ran {
    json: Option<Value>,
    said: String,
    took: Duration,
}

fn timed(mut command: Command) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let [out, err] = ["out", "err"].map(|name| folder.path().join(name));
    command.stdout(File::create(&out).expect("out")).stderr(File::create(&err).expect("err")).stdin(Stdio::null());
    let started = Instant::now();
    let mut child = command.spawn().expect("the command starts");
    let is_ended = loop {
        if child.try_wait().expect("the command is waited for").is_some() {
            break true;
        }
        if started.elapsed() > LIMIT {
            child.kill().expect("the command is ended");
            child.wait().expect("the command is waited for");
            break false;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let took = started.elapsed();
    let json = serde_json::from_slice(&std::fs::read(&out).expect("out")).ok();
    let said = String::from_utf8_lossy(&std::fs::read(&err).expect("err")).trim().to_owned();
    let said = if is_ended { said } else { format!("not ended after {LIMIT:?}") };
    Ran { json, said: said.trim_start_matches("flowloom: ").to_owned(), took }
}

fn command(verb: &str, object: &Path, more: &[&str]) -> Ran {
    let mut command = flowloom();
    command.arg(verb).arg("--json").args(more).arg(object);
    timed(command)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Verdict of a target on the program; the first reason if it is rejected.
fn verdict(program: &Value, target: &str) -> Result<(), String> {
    let targets = program["targets"].as_array().expect("targets");
    let found = targets.iter().find(|found| found["target"] == target).expect("each target is asked");
    if found["runs"] == true { Ok(()) } else { Err(text(&found["reasons"][0]["reason"])) }
}

fn foreign(program: &Value) -> Vec<String> {
    let names = |list: &str, key: &str| -> Vec<String> {
        program[list].as_array().into_iter().flatten().map(|one| text(&one[key])).collect()
    };
    let helpers = names("helpers", "name").into_iter();
    let helpers = helpers.filter(|name| FOREIGN_HELPERS.iter().any(|foreign| name.starts_with(foreign)));
    let maps = names("maps", "kind").into_iter().filter(|kind| FOREIGN_MAPS.contains(&kind.as_str()));
    let kfuncs = program["kfuncs"].as_array().into_iter().flatten().map(Value::to_string);
    helpers.chain(maps).chain(kfuncs).collect()
}

/// Tries to load the object with libbpf: the kernel's verdict on objects that we cannot read.
fn loaded_by_libbpf(object: &Path) -> Result<(), String> {
    let pins = format!("/sys/fs/bpf/flowloom-public-{}", std::process::id());
    let mut command = Command::new("bpftool");
    command.args(["prog", "loadall"]).arg(object).arg(&pins);
    let Ran { said, .. } = timed(command);
    let is_loaded = Path::new(&pins).exists();
    let _ = std::fs::remove_dir_all(&pins);
    if is_loaded { Ok(()) } else { Err(said.lines().last().unwrap_or("libbpf does not load it").to_owned()) }
}

/// Results for the XDP programs of an object.
pub fn object(path: &Path, made: &Made) -> Vec<Row> {
    let checked = command("check", path, &[]);
    let row = |program: &str| Row {
        package: made.package.clone(),
        source: made.source.clone(),
        compiler: made.compiler.clone(),
        program: program.to_owned(),
        slots: 0,
        reached: 0,
        ours: Err(checked.said.clone()),
        kernel: Ok(()),
        verified: Ok(()),
        plan: Err("not accepted".to_owned()),
        foreign: Vec::new(),
        took: [checked.took, Duration::ZERO, Duration::ZERO],
    };
    let Some(json) = &checked.json else {
        return vec![Row { kernel: loaded_by_libbpf(path), ..row("(not read)") }];
    };
    let mut rows: Vec<Row> = Vec::new();
    for program in json["programs"].as_array().into_iter().flatten() {
        if !text(&program["kind"]).starts_with("xdp") {
            continue;
        }
        let name = text(&program["name"]);
        let mut one = row(&name);
        one.slots = program["instructions"].as_u64().unwrap_or(0);
        (one.ours, one.kernel) = (verdict(program, "interp"), verdict(program, "kernel"));
        one.foreign = foreign(program);
        if one.ours.is_err() {
            // We may have read the program wrongly, so ask libbpf for the kernel's verdict.
            one.kernel = loaded_by_libbpf(path);
        } else if one.kernel.is_ok() {
            tried(path, &mut one);
        }
        rows.push(one);
    }
    rows
}

fn tried(path: &Path, row: &mut Row) {
    let program = row.program.clone();
    let verified = command("verify", path, &["--packets", "300", "--program", &program]);
    row.took[1] = verified.took;
    row.verified = match &verified.json {
        None => Err(verified.said),
        Some(json) => {
            row.reached = json["slots_reached"].as_u64().unwrap_or(0);
            let targets = json["targets"].as_array().expect("targets");
            let disagrees = targets.iter().find(|target| target["agrees"] != true);
            let faults = json["faults"].as_array().expect("faults");
            match (disagrees, faults.first()) {
                (Some(target), _) => Err(target.to_string()),
                (None, Some(fault)) => Err(fault.to_string()),
                (None, None) => Ok(()),
            }
        }
    };
    let explained = command("explain", path, &["--program", &program]);
    row.took[2] = explained.took;
    row.plan = if explained.json.is_some() { Ok(()) } else { Err(explained.said) };
}
