// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captures on standard streams, and commands that must report interruption.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{PASS_ALL, Ran, exits, flowloom, name, packet, piped, put, run, write};
use flowloom_trace::{CaptureReader, CapturedPacket};

fn capture(path: &Path) -> Vec<u8> {
    let numbered = |number: u8| CapturedPacket {
        port: 1 + u32::from(number) % 2,
        ..packet(1_000 * u64::from(number), vec![number; 60])
    };
    write(path, &(0..20).map(numbered).collect::<Vec<_>>());
    std::fs::read(path).unwrap()
}

#[test]
fn captures_come_and_go_by_standard_streams() {
    let folder = tempfile::tempdir().unwrap();
    for (file, format) in [("in.pcap", "pcap"), ("in.pcapng", "pcapng")] {
        let path = folder.path().join(file);
        let bytes = capture(&path);
        let out = folder.path().join(format!("out.{format}"));
        exits(0, &["run", PASS_ALL, "-r", name(&path), "-w", name(&out)]);
        let expected = std::fs::read(&out).unwrap();
        let found = piped(&["run", PASS_ALL, "-r", "-", "-w", "-", "--format", format], &bytes);
        // Stdout has only the capture; the summary is on stderr.
        assert!(found.status.success() && found.stdout == expected, "{found:?}");
        let summary = String::from_utf8(found.stderr).unwrap();
        assert!(summary.contains("20 packets"), "{summary}");
        assert_eq!(CaptureReader::from_reader("out", std::io::Cursor::new(found.stdout)).unwrap().count(), 20);
        let judged = Ran::from(piped(&["verify", PASS_ALL, "-r", "-", "--targets", "interp"], &bytes));
        assert!(judged.code == Some(0) && judged.stdout.contains("20"), "{judged:?}");
        let predicted = Ran::from(piped(&["predict", PASS_ALL, "-r", "-"], &bytes));
        assert!(predicted.code == Some(0) && predicted.stdout.contains("20 packets"), "{predicted:?}");
    }
}

#[test]
fn warnings_can_be_errors() {
    let folder = tempfile::tempdir().unwrap();
    let text = "function warns;\nstateless all {\n    when ip.ttl == 1 { drop; }\n    when ip.ttl == 1 { drop; }\n    otherwise { pass; }\n}\n";
    let path = put(&folder, "warns.efsm", text);
    exits(0, &["check", name(&path), "--target", "interp"]).stderr_has(&["row"]);
    exits(2, &["check", name(&path), "--target", "interp", "--deny-warnings"])
        .stderr_has(&["1 warning denied by --deny-warnings"]);
    assert_eq!(run(&["check", PASS_ALL, "--target", "interp", "--deny-warnings"]).code, Some(0));
}

#[test]
fn a_wrong_source_without_scenarios_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "empty.efsm", "function empty;\n");
    exits(2, &["test", name(&path)]).stderr_has(&["the function has no element"]);
}

/// Runs the command with a closed stdout.
fn closed(arguments: &[&str]) -> Option<i32> {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ran = flowloom().args(arguments).stdout(writer).stderr(Stdio::null()).status().unwrap();
    ran.code()
}

#[test]
fn a_closed_stdout_changes_no_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "f.efsm", "function f; stateless all { when ip.ttl==1 { drop; } otherwise { pass; } }\n");
    assert_eq!(closed(&["fmt", "--check", name(&path)]), Some(1));
    assert_eq!(closed(&["check", name(&path), "--target", "interp"]), Some(0));
    let (whole, cut) = (folder.path().join("in.pcap"), folder.path().join("cut.pcap"));
    let bytes = capture(&whole);
    std::fs::write(&cut, &bytes[..bytes.len() - 7]).unwrap();
    let state = folder.path().join("state.json");
    assert_eq!(closed(&["run", name(&path), "-r", name(&cut), "--state-out", name(&state)]), Some(2));
    assert!(state.exists());
}

#[test]
fn a_state_that_cannot_be_written_leaves_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in.pcap");
    capture(&path);
    exits(2, &["run", PASS_ALL, "-r", name(&path), "--state-out", "/dev/full"])
        .stdout_has(&["20 packets"])
        .stderr_has(&["`/dev/full` cannot be written"]);
}

#[test]
fn a_signal_ends_a_run_on_captures_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = capture(&folder.path().join("in.pcap"));
    let state = folder.path().join("state.json");
    let mut command = flowloom();
    command.args(["run", PASS_ALL, "-r", "-", "--state-out", name(&state)]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&bytes).unwrap();
    // The temporary state file is created after the signal handlers are installed.
    let temporary = folder.path().join(format!(".state.json.{}.tmp", child.id()));
    while !temporary.exists() && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let signalled = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    drop(stdin);
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.contains("packets") && ran.stderr.contains("interrupted"), "{ran:?}");
    assert!(state.exists() && !temporary.exists());
}
