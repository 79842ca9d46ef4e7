//! Captures on standard streams, and commands that must not end well in silence.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};

use common::{PASS_ALL, Ran, flowloom, name, run};
use flowloom_trace::{CaptureReader, CaptureWriter};

/// Runs the command with `bytes` on its standard input.
fn piped(arguments: &[&str], bytes: &[u8]) -> Output {
    let mut command = flowloom();
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    child.wait_with_output().unwrap()
}

fn capture(path: &Path) -> Vec<u8> {
    let mut writer = CaptureWriter::create(path).unwrap();
    for number in 0..20_u64 {
        writer.write(1_000 * number, 1 + number as u32 % 2, 60, None, &[number as u8; 60]).unwrap();
    }
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

#[test]
fn captures_come_and_go_by_standard_streams() {
    let folder = tempfile::tempdir().unwrap();
    for (file, format) in [("in.pcap", "pcap"), ("in.pcapng", "pcapng")] {
        let path = folder.path().join(file);
        let bytes = capture(&path);
        let out = folder.path().join(format!("out.{format}"));
        let ran = run(&["run", PASS_ALL, "-r", name(&path), "-w", name(&out)]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let expected = std::fs::read(&out).unwrap();
        let found = piped(&["run", PASS_ALL, "-r", "-", "-w", "-", "--format", format], &bytes);
        // Nothing but the capture is on standard output; the summary is on the other.
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
    let path = folder.path().join("warns.efsm");
    let text = "function warns;\nstateless all {\n    when ip.ttl == 1 { drop; }\n    when ip.ttl == 1 { drop; }\n    otherwise { pass; }\n}\n";
    std::fs::write(&path, text).unwrap();
    let lenient = run(&["check", name(&path), "--target", "interp"]);
    assert!(lenient.code == Some(0) && lenient.stderr.contains("row"), "{lenient:?}");
    let strict = run(&["check", name(&path), "--target", "interp", "--deny-warnings"]);
    assert!(strict.code == Some(2) && strict.stderr.contains("1 warning denied by --deny-warnings"), "{strict:?}");
    assert_eq!(run(&["check", PASS_ALL, "--target", "interp", "--deny-warnings"]).code, Some(0));
}

#[test]
fn a_wrong_source_without_scenarios_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.efsm");
    std::fs::write(&path, "function empty;\n").unwrap();
    let ran = run(&["test", name(&path)]);
    assert!(ran.code == Some(2) && ran.stderr.contains("the function has no element"), "{ran:?}");
}
