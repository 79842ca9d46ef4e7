// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A record of each run on interfaces in the runtime folder, so that the next one can tell that a run was killed and
//! what is left of it.
//!
//! A run removes its record when it ends. One whose process no longer exists is that of a killed run: programs and TAP
//! interfaces end with their process, but not at once, and other processes may hold them.
//!
//! Containers may share the folder: names have the namespaces of processes and interfaces. A run reads the records of
//! its own process namespace only, since it cannot see if other processes live. Of killed runs it removes records whose
//! interfaces no longer exist, and very old ones.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flowloom_exec::{Interface, LiveError};
use flowloom_ports::ingress_programs;
use serde::{Deserialize, Serialize};

use crate::output::{print_note, quoted};

/// The time that the kernel gets to end what a killed process held.
const GRACE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);
/// The age from which on the record of a killed run is of no use, if another namespace had its interfaces: 30 days.
const OLD_S: u64 = 30 * 86_400;

/// The contents of a run's record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    pid: u32,
    /// The start of the process in ticks since the boot, which tells processes with the same number apart.
    started_ticks: u64,
    /// The namespaces of processes and of interfaces.
    pid_namespace: u64,
    net_namespace: u64,
    begun_unix_s: u64,
    function: String,
    mode: String,
    interfaces: BTreeSet<String>,
}

/// The record of this run; dropping it removes it.
#[derive(Debug)]
pub(super) struct Record {
    path: Option<PathBuf>,
}

impl Drop for Record {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            drop(fs::remove_file(path));
        }
    }
}

impl Record {
    /// Says what killed runs on the same interfaces have left, and makes the record of this one.
    pub(super) fn begin(function: &str, mode: &str, bindings: &[(u32, &str)]) -> Record {
        let made = || -> io::Result<PathBuf> {
            let own = Entry {
                pid: std::process::id(),
                started_ticks: started_ticks(std::process::id()).unwrap_or(0),
                pid_namespace: fs::metadata("/proc/self/ns/pid")?.ino(),
                net_namespace: fs::metadata("/proc/self/ns/net")?.ino(),
                begun_unix_s: unix_s(),
                function: function.to_owned(),
                mode: mode.to_owned(),
                interfaces: bindings.iter().map(|(_, name)| (*name).to_owned()).collect(),
            };
            let folder = folder()?;
            // It may be that of the control sockets, which other users may not enter.
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            for (path, entry) in killed(&folder, &own)? {
                let is_here = entry.net_namespace == own.net_namespace;
                if is_here && !entry.interfaces.is_disjoint(&own.interfaces) {
                    print_note(&said(&entry, bindings));
                    fs::remove_file(path)?;
                } else if is_useless(&entry, is_here) {
                    // Nothing is lost if it stays.
                    _ = fs::remove_file(path);
                }
            }
            let path = folder.join(own.file_name());
            // Readers never see a part of it.
            let whole = path.with_extension("new");
            fs::write(&whole, serde_json::to_vec(&own)?)?;
            fs::rename(&whole, &path)?;
            Ok(path)
        };
        match made() {
            Ok(path) => Record { path: Some(path) },
            Err(error) => {
                print_note(&format!(
                    "this run has no record, so that the next one cannot tell if it was killed: {error}"
                ));
                Record { path: None }
            }
        }
    }
}

impl Entry {
    fn file_name(&self) -> String {
        format!("{}-{}-{}.json", self.pid_namespace, self.net_namespace, self.pid)
    }
}

/// The folder of records: that of the control sockets' folder, or the one that the user names for both.
fn folder() -> io::Result<PathBuf> {
    flowloom_control::folder().map_err(|error| io::Error::new(io::ErrorKind::NotFound, error.to_string()))
}

/// The records of killed runs whose processes `own` would see.
fn killed(folder: &Path, own: &Entry) -> io::Result<Vec<(PathBuf, Entry)>> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        // Another run may have removed it, and one of another version may have written it.
        let entry = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Entry>(&bytes).ok());
        let Some(entry) = entry else { continue };
        if entry.pid_namespace == own.pid_namespace && !is_alive(&entry) {
            found.push((path, entry));
        }
    }
    Ok(found)
}

/// True if the record of a killed run can be removed: no interface of it exists, or it is very old.
fn is_useless(entry: &Entry, is_here: bool) -> bool {
    let exists = |name: &String| Interface::find(0, name).is_ok();
    (is_here && !entry.interfaces.iter().any(exists)) || unix_s().saturating_sub(entry.begun_unix_s) > OLD_S
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// The start of a process; `None` if it does not exist or has ended.
fn started_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?;
    // The 22nd field; the state was the third.
    let ticks = words.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(ticks)
}

fn is_alive(entry: &Entry) -> bool {
    started_ticks(entry.pid) == Some(entry.started_ticks)
}

/// A time span in words.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// The remark about a killed run: what was found of it on the interfaces of this one.
fn said(entry: &Entry, bindings: &[(u32, &str)]) -> String {
    let start = Instant::now();
    let mut left = left_of(bindings);
    let was_waiting = !left.is_empty();
    while !left.is_empty() && start.elapsed() < GRACE {
        std::thread::sleep(PAUSE);
        left = left_of(bindings);
    }
    let Entry { pid, function, mode, interfaces, begun_unix_s, .. } = entry;
    let age = span(unix_s().saturating_sub(*begun_unix_s));
    let found = match (left.is_empty(), was_waiting) {
        (true, false) => {
            "found nothing of it: the kernel has detached its programs and removed its interfaces".to_owned()
        }
        (true, true) => {
            let waited = start.elapsed().as_secs_f64();
            format!("waited {waited:.1} s until the kernel had detached its programs and removed its interfaces")
        }
        (false, _) => format!("found {}, which stays, since another process holds it", left.join("; ")),
    };
    format!(
        "an earlier run was killed: `{function}` on {}, mode {mode}, pid {pid}, begun {age} ago; {found}; its tables are lost",
        quoted(interfaces)
    )
}

/// What is on the interfaces, and companions of runs that no process holds.
fn left_of(bindings: &[(u32, &str)]) -> Vec<String> {
    let mut left = Vec::new();
    for (port, name) in bindings {
        // One that does not exist has nothing left.
        let Ok(interface) = Interface::find(*port, name) else { continue };
        if let Err(LiveError::Occupied(occupant)) = interface.require_free() {
            let program = occupant.program.as_deref().unwrap_or("?");
            left.push(format!("the XDP program `{program}` (id {}) on `{name}`", occupant.id));
        }
        for (id, program) in ingress_programs(&interface).unwrap_or_default() {
            if program.starts_with("fl_") {
                left.push(format!("the TCX program `{program}` (id {id}) on `{name}`"));
            }
        }
    }
    // Unlike `/sys`, of the namespace of this process.
    let interfaces = fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let companions = interfaces
        .lines()
        .filter_map(|line| line.trim().split_once(':'))
        .filter(|(name, _)| name.starts_with("flpass"))
        .filter(|(name, _)| Interface::find(0, name).is_ok_and(|found| !found.has_carrier()))
        .map(|(name, _)| format!("the TAP interface `{name}`"));
    left.extend(companions);
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_apart_by_their_start() {
        let own = started_ticks(std::process::id()).expect("it runs");
        let entry = Entry {
            pid: std::process::id(),
            started_ticks: own,
            pid_namespace: 1,
            net_namespace: 1,
            begun_unix_s: 0,
            function: "f".to_owned(),
            mode: "raw".to_owned(),
            interfaces: BTreeSet::from(["v1".to_owned()]),
        };
        assert!(is_alive(&entry));
        assert!(!is_alive(&Entry { started_ticks: own + 1, ..entry.clone() }));
        assert!(!is_alive(&Entry { pid: u32::MAX, ..entry.clone() }));
        let other = Entry { pid_namespace: 2, ..entry.clone() };
        assert_ne!(entry.file_name(), other.file_name());
        let young = Entry { begun_unix_s: unix_s(), interfaces: BTreeSet::from(["lo".to_owned()]), ..entry.clone() };
        let gone = Entry { interfaces: BTreeSet::from(["no-such-one".to_owned()]), ..young.clone() };
        assert_eq!([is_useless(&young, true), is_useless(&young, false), is_useless(&gone, false)], [false; 3]);
        assert!(is_useless(&gone, true) && is_useless(&Entry { begun_unix_s: 0, ..young }, false));
        assert_eq!(
            [span(0), span(119), span(120), span(7200), span(200_000)],
            ["0 s", "119 s", "2 min", "2 h", "2 days"]
        );
    }
}
