// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom fmt` as a command.

use crate::common::{self, Ran, exits, name, ok, piped};

const MESSY: &str = "function f;\nstateless s { always { ip.ttl=1;drop; } } # end\n";
const CLEAN: &str = "function f;\nstateless s {\n    always { ip.ttl = 1; drop; }\n}  # end\n";

#[test]
fn files_and_folders_are_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let file = |file: &str| folder.path().join(file);
    std::fs::create_dir(file("deeper")).unwrap();
    for path in ["a.efsm", "deeper/b.efsm", "other.txt"] {
        std::fs::write(file(path), MESSY).unwrap();
    }
    std::fs::write(file("clean.efsm"), CLEAN).unwrap();
    let checked = exits(1, &["fmt", "--check", name(folder.path())]);
    let expected = ["a.efsm", "deeper/b.efsm"].map(|path| format!("{}:2: not formatted\n", name(&file(path))));
    assert_eq!(checked.stdout, expected.concat());
    assert!(checked.stderr.contains("2 files not formatted"), "{}", checked.stderr);
    assert_eq!(std::fs::read_to_string(file("a.efsm")).unwrap(), MESSY, "--check writes nothing");

    assert_eq!(ok(&["fmt", name(folder.path())]), "");
    for (path, expected) in [("a.efsm", CLEAN), ("deeper/b.efsm", CLEAN), ("clean.efsm", CLEAN), ("other.txt", MESSY)] {
        assert_eq!(std::fs::read_to_string(file(path)).unwrap(), expected, "{path}");
    }
    assert_eq!(ok(&["fmt", "--check", name(folder.path()), name(&file("a.efsm"))]), "");
    // A named file is treated as a source, whatever its extension.
    ok(&["fmt", name(&file("other.txt"))]);
    assert_eq!(std::fs::read_to_string(file("other.txt")).unwrap(), CLEAN);
}

#[test]
fn sources_that_come_along_are_formatted() {
    let top = common::top();
    assert_eq!(ok(&["fmt", "--check", name(&top.join("functions")), name(&top.join("corpus"))]), "");
}

#[test]
fn a_source_that_cannot_be_read_stays_and_the_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = |file: &str| folder.path().join(file);
    std::fs::write(file("a.efsm"), "function f;\nstateless s {\n").unwrap();
    std::fs::write(file("b.efsm"), MESSY).unwrap();
    exits(2, &["fmt", name(folder.path())]).stderr_has(&["a.efsm:2:", "not closed", "some files were not rewritten"]);
    assert_eq!(std::fs::read_to_string(file("b.efsm")).unwrap(), CLEAN);
}

#[test]
fn the_standard_input_goes_to_the_standard_output() {
    let piped = |arguments: &[&str], input| Ran::from(piped(&[&["fmt"], arguments].concat(), input));
    let ran = piped(&["--stdin"], MESSY.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), CLEAN));
    let ran = piped(&["--stdin", "--check"], MESSY.as_bytes());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), "standard input:2: not formatted\n"));
    let ran = piped(&["--stdin"], b"function f; # \xe9\n");
    assert_eq!(ran.code, Some(2));
    ran.stderr_has(&["invalid UTF-8 at byte 14"]);
}
