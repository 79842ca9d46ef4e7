// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom check`: the targets that run a function, and the row that a target cannot run.

use crate::common::{BIG_FLOW, exits, generated, json, kernel, large_with_counters, name, ok, put, run};

const COPIES: &str = "function copies;
stateful s {
    key ip.src;
    full evict oldest;
    states a;
    reg n: u32;
    on a when l4.dport == 5 {
        n += 1;
        clone(2);
        pass;
    }
    on a { pass; }
}
";

#[test]
fn what_a_target_lacks_is_refused_there_with_row_and_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "copies.efsm", COPIES);
    let copies = name(&path);
    let all = exits(1, &["check", copies]);
    let kernel = all.stdout.lines().find(|line| line.starts_with("kernel")).unwrap();
    for part in ["no", "`clone` at", "copies.efsm:9", "XDP", "`full evict` at", "copies.efsm:4"] {
        assert!(kernel.contains(part), "`{part}` is not in {kernel}");
    }
    assert!(all.stdout.contains("machine  yes") && all.stdout.contains("interp   yes"), "{}", all.stdout);

    // If targets are named, only they decide.
    let asked = ok(&["check", copies, "--target", "machine,interp"]);
    assert!(!asked.contains("kernel"), "{asked}");
    let refused = exits(1, &["check", copies, "--target", "kernel", "--json"]);
    let json = refused.json();
    assert_eq!(json["targets"].as_array().unwrap().len(), 1);
    assert_eq!(json["targets"][0]["runs"], false);

    ok(&["build", BIG_FLOW, "--target", "bpf", "-o", name(folder.path())]);
    for (file, answer) in [(BIG_FLOW, "interp  yes"), (name(&folder.path().join("big_flow.o")), "interp: yes")] {
        let interp = ok(&["check", file, "--target", "interp"]);
        assert!(interp.contains(answer) && !interp.contains("machine"), "{interp}");
    }
}

#[test]
fn what_is_too_large_for_ebpf_runs_on_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let registers: String = (0..80).map(|i| format!("    reg r{i}: u64;\n")).collect();
    let updates: String = (0..80).map(|i| format!("r{i} += 1; ")).collect();
    let text = format!(
        "function large;\nstateful s {{\n    key ip.src;\n    states a;\n{registers}    on a {{ {updates}pass; }}\n}}\n"
    );
    let path = put(&folder, "large.efsm", &text);
    let ran = exits(1, &["check", name(&path), "-v", "--stats"]);
    ran.stdout_has(&["large: no eBPF program", "machine  yes"]);
    for target in ["interp", "kernel"] {
        let line = ran.stdout.lines().find(|line| line.starts_with(target)).unwrap();
        assert!(
            line.contains("no") && line.contains("stack") && line.contains("large.efsm:2 (`stateful s {`)"),
            "{line}"
        );
    }
    ok(&["check", name(&path), "--target", "machine"]);

    // A second limitation of the kernel.
    std::fs::write(&path, text.replace("pass;", "clone(2); pass;")).unwrap();
    let ran = run(&["check", name(&path), "--target", "kernel"]);
    assert!(ran.stdout.contains("`clone` at") && ran.stdout.contains("bytes of stack"), "{}", ran.stdout);
}

#[test]
fn a_table_that_the_kernel_has_no_room_for_is_named() {
    let test = "a_table_that_the_kernel_has_no_room_for_is_named";
    if !kernel(test) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = put(
        &folder,
        "wide.efsm",
        "function wide;\nstateful small { key ip.src; states a, b; on a -> b { goto vast; } on b { goto vast; } }\n\
         stateful vast {\n    key ip.src;\n    size 2147483647;\n    states a, b;\n    on a -> b { pass; }\n    on b { pass; }\n}\n",
    );
    exits(1, &["check", name(&path), "--target", "kernel"])
        .stdout_has(&["map `vast`", "wide.efsm:3 (`stateful vast {`)"]);
}

/// With `--json`, errors of a source are printed to stdout too.
#[test]
fn errors_of_a_source_are_printed_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "wrong.efsm", "function wrong;\nstateless t {\n    when ip.tll == 1 { pass; }\n}\n");
    let value = exits(2, &["check", path.to_str().unwrap(), "--json"]).json();
    let error = &value["errors"][0];
    assert!(error["message"].as_str().unwrap().contains("`ip.tll`"), "{value}");
    assert_eq!(error["position"], serde_json::json!([3, 10]), "{value}");
    assert!(error["code"].is_string() && error["help"].is_string(), "{value}");
    let value = run(&["check", "missing.o", "--json"]).json();
    assert!(value["errors"][0]["message"].as_str().unwrap().contains("cannot be read"), "{value}");
}

/// A folder stands for the function in it, as in `flowloom test`.
#[test]
fn a_folder_is_checked() {
    let ran = exits(0, &["check", "functions/policer", "--stats"]);
    assert!(ran.stdout.starts_with("policer: "), "{}", ran.stdout);
}

#[test]
fn an_implicit_otherwise_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.efsm");
    let notes = |key: &str, otherwise: &str| {
        let text = format!(
            "function flows;\nstateful t {{ key {key}; states a; reg n: u32; full reject; on a {{ n += 1; pass; }} {otherwise} }}\n"
        );
        std::fs::write(&path, text).unwrap();
        let found = exits(0, &["check", name(&path), "--target", "machine"]);
        found.stderr.lines().filter(|line| line.starts_with("flowloom:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = "flowloom: `t` has no `otherwise`: packets that lack a field of its key are dropped, such as ARP, ICMP and all fragments but the first";
    assert_eq!(notes("5-tuple", ""), [all]);
    let arp = "flowloom: `t` has no `otherwise`: packets that lack a field of its key are dropped, such as ARP";
    assert_eq!(notes("ip.src", ""), [arp]);
    for (key, otherwise) in [("5-tuple", "otherwise { drop; }"), ("eth.src", ""), ("none", "")] {
        assert!(notes(key, otherwise).is_empty(), "{key} {otherwise}");
    }
}

/// If `check` accepts a target, `run` runs there: without counters, if the function is too large with them.
#[test]
fn a_function_that_is_too_large_with_counters_runs_without() {
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "large.efsm", large_with_counters());
    let checked = ok(&["check", name(&path), "--target", "interp,machine"]);
    let line = |target: &str| checked.lines().find(|line| line.starts_with(target)).unwrap();
    assert!(
        line("interp").contains("yes") && line("interp").contains("`run` counts no rows: with counters"),
        "{checked}"
    );
    assert!(!line("machine").contains("counters"), "{checked}");
    let capture = generated(folder.path(), BIG_FLOW, 20, 1);
    exits(0, &["run", name(&path), "-r", name(&capture), "--engine", "interp"])
        .stderr_has(&["row and flow hits are not counted: with counters"]);
}

#[test]
fn a_set_is_read_from_a_file_beside_the_source() {
    let folder = tempfile::tempdir().unwrap();
    let text = "function gate;\nset blocked = file(\"blocked.txt\");\nstateless t {\n    when ip.src in blocked { drop; }\n    \
                otherwise { pass; }\n}\n";
    let path = put(&folder, "gate.efsm", text);
    exits(2, &["check", name(&path), "--target", "machine"]).stderr_has(&["`blocked.txt`"]);
    put(&folder, "blocked.txt", "10.0.0.0/8\n# a comment\n192.0.2.1\n");
    std::fs::write(
        path.with_extension("scenario"),
        "function gate.efsm\nscenario \"some are blocked\"\nudp 10.1.2.3:1 > 10.0.0.2:2 -> drop\n\
         udp 192.0.2.1:1 > 10.0.0.2:2 -> drop\nudp 192.0.2.2:1 > 10.0.0.2:2 -> pass\n",
    )
    .unwrap();
    ok(&["test", name(&path)]);
}

const POLICER: &str = "functions/policer/policer.efsm";

const OPTIONS: &str = "function options;
stateful s {
    key ip.src;
    states a;
    on a when tcp.opt.wscale == 5 { drop; }
    on a { pass; }
}
";

#[test]
fn the_resource_table_of_the_overlay_names_what_is_missing() {
    let text = ok(&["check", POLICER, "--target", "overlay"]);
    assert!(text.contains("register words") && text.contains("paper") && text.contains("dual_stack"), "{text}");

    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "options.efsm", OPTIONS);
    let refused = exits(1, &["check", name(&path), "--target", "overlay", "--json"]).json();
    let sets = refused["overlay"].as_array().unwrap();
    let names: Vec<&str> = sets.iter().map(|set| set["parameters"].as_str().unwrap()).collect();
    assert_eq!(names, ["paper", "dual_stack"]);
    for set in sets {
        let reason = set["reasons"][0].as_str().unwrap();
        assert!(reason.contains("options.efsm:5") && reason.contains("tcp.opt.wscale"), "{set}");
        assert!(!set["uses"].as_array().unwrap().is_empty(), "{set}");
    }
    exits(1, &["build", name(&path), "--target", "overlay", "-o", name(folder.path())]).stderr_has(&[
        "does not fit the parameters `dual_stack`",
        "options.efsm:5",
        "tcp.opt.wscale",
    ]);
}

#[test]
fn the_image_of_a_function_holds_the_words_that_build_counts() {
    let folder = tempfile::tempdir().unwrap();
    let built = json(&["build", POLICER, "--target", "overlay", "--json", "-o", name(folder.path())]);
    let image = std::fs::read_to_string(built["image"].as_str().unwrap()).unwrap();
    let words = image.lines().filter(|line| !line.starts_with('#')).count() as u64;
    assert_eq!((&built["parameters"], built["words"].as_u64()), (&"paper".into(), Some(words)));
    assert!(words > 0);
}
