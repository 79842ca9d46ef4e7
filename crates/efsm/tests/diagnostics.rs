// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invalid programs and their diagnostics: each `diagnostics/NAME.efsm` has a golden `NAME.txt`, rendered as for a
//! terminal without colours. `FLOWLOOM_BLESS=1` rewrites the goldens.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::{given, render};

use std::path::{Path, PathBuf};

use flowloom_efsm::{Diagnostic, compile};
use flowloom_testkit::{golden, sources};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics")
}

/// Rendered diagnostics of a source, and the diagnostics.
fn diagnose(name: &str, text: &str, params: &[&str]) -> (String, Vec<Diagnostic>) {
    match compile(name, text, &given(params)) {
        Ok((_, warnings)) => (warnings.iter().map(|w| render(w)).collect(), warnings),
        Err(errors) => (render(&errors), errors.list),
    }
}

#[test]
fn diagnostics_equal_their_goldens() {
    let sources = sources(folder());
    assert!(sources.len() >= 20, "only {} wrong programs", sources.len());
    let mut codes = std::collections::BTreeSet::new();
    let mut count = 0;
    for (path, text) in &sources {
        let name = path.file_name().unwrap().to_str().unwrap();
        let (text, list) = diagnose(name, text, &[]);
        assert!(!list.is_empty(), "{name} is accepted without a word");
        for diagnostic in &list {
            assert!(diagnostic.help.is_some(), "{name}: no help for `{diagnostic}`");
            codes.insert(diagnostic.code);
        }
        count += list.len();
        golden(path.with_extension("txt"), &text);
    }
    println!("{count} diagnostics of {} codes in {} programs", codes.len(), sources.len());
}

#[test]
fn given_parameters_are_checked() {
    let text = "function f;\nparam limit: u16 = 5;\nparam server: ipv4 = 10.0.0.1;\nparam gap: time = 1s;\nparam out: port;\n\
                stateful s {\n    key ip.src;\n    states a, b;\n    on a when l4.dport == limit && ip.dst == server -> b (idle gap) { forward; }\n    \
                on b { drop; }\n}\n";
    let wrong = "limit=70000 limit=ten limit=10s server=10.0.0 gap=5 out=-1 gab=1s nothing=1";
    let mut all = String::new();
    for param in wrong.split(' ') {
        let (text, list) = diagnose("f.efsm", text, &[param]);
        assert_eq!(list.iter().filter(|d| !d.is_warning).count(), 1, "{param:?}: {text}");
        all += &format!("# {param}\n{text}\n");
    }
    golden(folder().join("given_parameters.txt"), &all);
    let (text, list) = diagnose("f.efsm", text, &["limit=0x10", "server=192.0.2.1", "gap=250ms", "out=3"]);
    assert!(list.is_empty(), "{text}");
}

#[test]
fn set_files_are_checked() {
    let source = "function f;\nset blocked = file(\"blocked.txt\");\nstateless e {\n    when ip.src in blocked { drop; }\n    \
                  when ip.src == 10.0.0.1 { drop; }\n    otherwise { pass; }\n}\n";
    let many: String = (0..65_537_u32).map(|i| format!("{}\n", std::net::Ipv4Addr::from_bits(i * 2))).collect();
    let files = [
        ("", "an empty file"),
        ("# nothing\n\n  \n", "comments alone"),
        ("10.0.0.0/8\n\n# both families\n2001:db8::/32 # here\n192.0.2.1..192.0.2.9\n", "fine"),
        ("\u{feff}10.0.0.0/8\r\n10.1.0.0/16\r\n10.0.0.0/8\r\n", "twice"),
        ("10.0.0.1/8\n10.0.0.0/33\n10.0.0\nhost\n10.9.0.0..10.8.0.0\n-5\n1s\n", "wrong lines"),
        ("80\n", "another kind"),
        (many.as_str(), "too many"),
    ];
    let mut text = String::new();
    for (file, what) in files {
        let files = std::collections::BTreeMap::from([("blocked.txt".to_owned(), file.to_owned())]);
        text += &match flowloom_efsm::compile_with("f.efsm", source, &[], &files) {
            Ok((_, warnings)) => {
                format!("-- {what}: {} warnings\n", warnings.len())
                    + &warnings.iter().map(|w| render(w)).collect::<String>()
            }
            Err(errors) => format!("-- {what}: {} errors\n", errors.list.len()) + &render(&errors),
        };
    }
    golden(folder().join("set_files.txt"), &text);
}
