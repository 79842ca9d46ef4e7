// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disagreement in files: its packets, the state before them, and the command that repeats it.

use std::path::{Path, PathBuf};

use flowloom_engine::Snapshot;
use flowloom_isa::Program;
use flowloom_verify::Arrival;
use flowloom_verify::explore::Case;
use serde_json::{Value, json};

use super::write_trace;
use crate::args::VerifyArgs;
use crate::failure::Failure;
use crate::output::print_note;
use flowloom_session::SECTION_KEY;

/// Port of packets from a capture without ports.
const PORT_OF_PCAP: u32 = 1;
/// First second that a pcap timestamp cannot represent.
const END_OF_PCAP_S: u64 = 1 << 32;
const NS_PER_S: u64 = 1_000_000_000;

pub(super) fn state_path(capture: &Path) -> PathBuf {
    capture.with_extension("state.json")
}

/// State before the packets of a case as `--state-in` takes it: maps, and the read-only data sections that the case
/// sets.
pub(super) fn state(program: &Program, case: &Case) -> Snapshot {
    let mut state = case.state.clone();
    for (name, contents) in &case.constants {
        if program.map_index(name).is_some() {
            state.maps.entry(name.clone()).or_default().insert(SECTION_KEY.to_vec(), contents.clone());
        }
    }
    state
}

/// True if the format of a capture of this name stores the ports of packets.
pub(crate) fn keeps_ports(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".pcapng"))
}

/// Writes packets, and warns if the capture format loses ports or times.
pub(super) fn write(path: &Path, packets: &[Arrival]) -> Result<(), Failure> {
    write_trace(path, packets.iter().cloned())?;
    let is_lost = |packet: &Arrival| packet.port.0 != PORT_OF_PCAP || packet.time_ns / NS_PER_S >= END_OF_PCAP_S;
    if !keeps_ports(path) && packets.iter().any(is_lost) {
        print_note(&format!(
            "`{}` is pcap, which keeps no ports and no times after 2106: these packets have some; choose a file that ends in \
             `.pcapng` to reproduce them",
            path.display()
        ));
    }
    Ok(())
}

/// Writes the state before the packets of a capture. Returns its path.
pub(super) fn write_state(capture: &Path, state: &Snapshot) -> Result<PathBuf, Failure> {
    let path = state_path(capture);
    std::fs::write(&path, state.to_json() + "\n").map_err(|e| Failure::file("written", &path, &e))?;
    Ok(path)
}

/// Prints the written files and the command that repeats the case.
pub(super) fn remark_written(args: &VerifyArgs, capture: &Path, state: Option<&Path>, seed: u64) {
    let mut words = vec!["flowloom".to_owned(), "verify".to_owned(), quoted(&args.function.path)];
    words.extend(args.function.program.iter().map(|name| format!("--program {name}")));
    words.extend(args.function.params.iter().map(|(name, value)| format!("--param {name}={value}")));
    words.extend(args.routes.routes.iter().map(|path| format!("--routes {}", quoted(path))));
    words.push(format!("-r {}", quoted(capture)));
    words.extend(state.map(|path| format!("--state-in {}", quoted(path))));
    words.push(format!("--seed {seed}"));
    let beside = state.filter(|_| args.state_in.is_none()).map(|path| format!(" and `{}`", path.display()));
    let beside = beside.unwrap_or_default();
    print_note(&format!("written to `{}`{beside}; reproduce: {}", capture.display(), words.join(" ")));
}

/// Quotes a path for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_alphanumeric() || "/._-+=:,@".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// JSON of a case: with the seed and the state, `verify` repeats its packets.
pub(super) fn as_json(state: &Snapshot, seed: u64, packets: &[Arrival]) -> Result<Value, Failure> {
    let state: Value = serde_json::from_str(&state.to_json()).map_err(|e| Failure::input(&e))?;
    let packets: Vec<Value> = packets
        .iter()
        .map(|packet| {
            let bytes: String = packet.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({"time_ns": packet.time_ns, "port": packet.port.0, "bytes": bytes})
        })
        .collect();
    Ok(json!({"seed": seed, "state": state, "packets": packets}))
}
