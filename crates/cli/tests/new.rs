// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom new`: the generated function is valid.

use crate::common::{exits, name, ok};

#[test]
fn every_template_passes_check_fmt_and_test() {
    let folder = tempfile::tempdir().unwrap();
    for template in ["flow", "gate", "table"] {
        let path = folder.path().join("more").join(format!("my_{template}"));
        let said = ok(&["new", name(&path), "--template", template]);
        assert!(said.ends_with(&format!("next: flowloom test {}\n", name(&path))), "{said}");
        let source = path.join(format!("my_{template}.efsm"));
        ok(&["check", name(&source)]);
        ok(&["fmt", "--check", name(&source)]);
        let tested = ok(&["test", name(&path), "--require-coverage"]);
        assert!(tested.contains(&format!("my_{template}")), "{tested}");
        let drawing = std::fs::read_to_string(path.join(format!("my_{template}.svg"))).unwrap();
        assert_eq!(drawing, ok(&["draw", name(&source)]));
        let readme = std::fs::read_to_string(path.join("README.md")).unwrap();
        assert!(readme.starts_with(&format!("# my_{template}\n")) && !readme.contains("NAME"), "{readme}");
    }
}

#[test]
fn nothing_is_overwritten_and_names_are_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("mine.efsm"), "mine").unwrap();
    exits(2, &["new", name(&path)]).stderr_has(&["already exists; nothing was written"]);
    assert_eq!(std::fs::read_to_string(path.join("mine.efsm")).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    for (wrong, said) in
        [("9lives", "letters, digits"), ("a-b", "letters, digits"), ("..", "letters"), ("drop", "`drop`")]
    {
        let path = folder.path().join(wrong);
        exits(2, &["new", name(&path)]).stderr_has(&[said]);
        assert!(wrong == ".." || !path.exists(), "{wrong}");
    }
}
