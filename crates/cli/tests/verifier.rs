// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verifier output of `flowloom check`: `verifier/NAME.bpf` are a safe program and unsafe ones, `NAME.txt` is the
//! output of `check -v` for each. `FLOWLOOM_BLESS=1` rewrites the texts.

use std::path::PathBuf;

use crate::common::{self, C_END, C_HEAD, exits, kernel, name, put, run, top};
use flowloom_testkit::golden;
use serde_json::Value;

const FOLDER: &str = "crates/cli/tests/verifier";
/// A value is looked up, and locked in line 10 of the file.
const LOCKED: &str = "struct value { struct bpf_spin_lock lock; __u32 n; };
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, __u32); __type(value, struct value); } values SEC(\".maps\");
SEC(\"xdp\") int f(struct xdp_md *ctx) {
\t__u32 key = 0;
\tstruct value *value = bpf_map_lookup_elem(&values, &key);
\tif (!value)
\t\treturn XDP_PASS;
\tbpf_spin_lock(&value->lock);
";

/// Unsafe programs by name, and the instruction at which each is rejected.
const UNSAFE: [(&str, usize); 13] = [
    ("argument", 5),
    ("called", 12),
    ("context_written", 1),
    ("endless", 0),
    ("index", 11),
    ("missing_comparison", 7),
    ("moved", 8),
    ("null", 6),
    ("number", 6),
    ("record_kept", 13),
    ("stack", 4),
    ("too_long", 1),
    ("unwritten", 2),
];

fn file(name: &str) -> String {
    format!("{FOLDER}/{name}.bpf")
}

/// The number of instructions walked depends on where states are cached.
fn without_counts(text: &str) -> String {
    let mut all: Vec<String> = Vec::new();
    for line in text.lines() {
        let parts = line.split("; ").map(|part| match part.split_once(" instructions processed") {
            Some((count, "")) if count.chars().all(|c| c.is_ascii_digit() || c == ' ') => "N instructions processed",
            _ => part,
        });
        all.push(parts.collect::<Vec<_>>().join("; "));
    }
    all.join("\n") + "\n"
}

#[test]
fn texts_are_the_golden_ones() {
    let mut names: Vec<String> = UNSAFE.iter().map(|(name, _)| (*name).to_owned()).collect();
    names.push("safe".to_owned());
    let folder = std::fs::read_dir(top().join(FOLDER)).unwrap().map(|entry| entry.unwrap().path());
    let programs = folder.filter(|path| path.extension().is_some_and(|e| e == "bpf"));
    let mut found: Vec<String> = programs.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    found.sort_unstable();
    names.sort_unstable();
    assert_eq!(found, names, "every program is listed");
    for program in names {
        // Only the interpreter: messages depend on the kernel version.
        let ran = run(&["check", "-v", "--target", "interp", &file(&program)]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{program}: targets that are named decide alone");
        golden(PathBuf::from("tests/verifier").join(program).with_extension("txt"), &without_counts(&ran.stdout));
    }
}

fn place(source: &Value) -> String {
    format!("{}:{} `{}`", source["file"].as_str().unwrap(), source["line"], source["text"].as_str().unwrap().trim())
}

/// A refusal has every part, is about this program, and has the same text in JSON.
#[test]
fn refusals_have_every_part_in_text_and_json() {
    for (program, insn) in UNSAFE {
        let source = std::fs::read_to_string(top().join(file(program))).unwrap();
        let text = run(&["check", "-v", "--target", "interp", &file(program)]).stdout;
        let json = run(&["check", "-v", "--json", "--target", "interp", &file(program)]).json();
        let json = &json["programs"][0]["verified"];
        let says = |part: &str| assert!(text.contains(part), "{program}: `{part}` is missing:\n{text}");
        let string = |key: &str| json[key].as_str().unwrap_or_else(|| panic!("{program}: no {key}: {json:#}"));
        assert_eq!((&json["safe"], &json["instruction"]), (&false.into(), &insn.into()), "{program}");
        says("verifier: rejected\n");
        let (section, insn_text) = (string("section"), string("text"));
        says(&format!(
            "    where: section `{section}`, instruction {insn} `{insn_text}`, {}\n",
            place(&json["source"])
        ));
        // The source line matches the file.
        let line = source.lines().nth(json["source"]["line"].as_u64().unwrap() as usize - 1).unwrap();
        assert_eq!(
            json["source"]["text"].as_str().unwrap().trim(),
            line.split(" ;").next().unwrap().trim(),
            "{program}"
        );
        for key in ["found", "expected", "help"] {
            says(&format!("    {key}: {}\n", string(key)));
        }
        for before in json["before"].as_array().unwrap() {
            let what = before["what"].as_str().unwrap();
            says(&format!("    {what} instruction {}, {}\n", before["instruction"], place(&before["source"])));
        }
        let path = json["path"].as_array().unwrap();
        says(if path.is_empty() { "      straight from the start\n" } else { "    path:\n      " });
        for leg in path {
            let times = leg["times"].as_u64().unwrap();
            if times > 1 {
                says(&format!("      {times} times in a row:\n"));
            }
            for turn in leg["branches"].as_array().unwrap() {
                let way = if turn["jumps"] == true { "jumps" } else { "falls through" };
                let (at, to) = (&turn["instruction"], &turn["to"]["line"]);
                says(&format!("{}: instruction {at} {way}, on to line {to}\n", place(&turn["source"])));
                says(&format!("the path {way}"));
            }
        }
        let registers = json["registers"].as_object().unwrap();
        assert!(registers.contains_key("r10"), "{program}: {json:#}");
        for (register, held) in registers.iter().filter(|(register, _)| *register != "r10") {
            says(&format!("      {register}: {}\n", held.as_str().unwrap()));
        }
        says(&format!(" ; refused: {}\n", string("found")));
        let marked: Vec<&str> = text.lines().filter(|line| line.starts_with('>')).collect();
        assert!(marked.len() == 1 && marked[0][1..].trim_start().starts_with(&format!("{insn}: ")), "{marked:?}");
        assert_eq!(json["instructions"][0]["known"], Value::Null, "{program}");
    }
}

/// Facts about each instruction of a safe program.
#[test]
fn json_says_memory_range_and_alignment_of_each_access() {
    let json = run(&["check", "-v", "--json", "--target", "interp", &file("safe")]).json();
    let verified = &json["programs"][0]["verified"];
    for (key, expected) in [
        ("safe", Value::from(true)),
        ("window_bytes", 78.into()),
        ("helpers_copy", true.into()),
        ("dead", [25, 26].as_slice().into()),
    ] {
        assert_eq!(verified[key], expected, "{key}");
    }
    let loops = verified["loops"].as_array().unwrap();
    assert_eq!((loops.len(), &loops[0]["instruction"], &loops[0]["begun_again"]), (1, &18.into(), &13.into()));
    assert_eq!(loops[0]["source"]["line"], 25);
    let known = |at: u64| {
        let instructions = verified["instructions"].as_array().unwrap();
        instructions.iter().find(|one| one["instruction"] == at).unwrap()["known"].clone()
    };
    let memory = |at: u64| {
        let memory = known(at)["memory"].as_array().unwrap().clone();
        assert_eq!(memory.len(), 1, "instruction {at}: {memory:?}");
        memory[0].clone()
    };
    let packet =
        serde_json::json!({"memory": "packet", "first": 16, "end": 78, "align": 2, "reads": true, "writes": false});
    assert_eq!(memory(15), packet);
    let stack = serde_json::json!({"memory": "stack", "calls_up": 0, "first": -4, "end": 0, "align": 4, "reads": true, "writes": false});
    assert_eq!(memory(31), stack);
    assert_eq!(known(31)["maps"], serde_json::json!(["table"]));
    let value = serde_json::json!({"memory": "value", "map": "table", "is_inner_map": false, "first": 8, "end": 16, "align": 8,
                                   "reads": true, "writes": true});
    assert_eq!(memory(34), value);
    assert_eq!(memory(1)["memory"], "context");
    assert_eq!(known(23)["branch"], serde_json::json!({"jumps": true, "falls_through": true}));
    assert_eq!(known(24)["branch"], serde_json::json!({"jumps": true, "falls_through": false}));
    assert_eq!((&known(25)["reached"], &known(27)["reached"]), (&false.into(), &true.into()));
    // Without -v, only the summary.
    let brief = run(&["check", "--json", "--target", "interp", &file("safe")]).json();
    assert_eq!(brief["programs"][0]["verified"]["instructions"], Value::Null);
}

/// C programs that keep a lock, or call a helper while holding it.
#[test]
fn locks_are_told_with_the_line_that_took_them() {
    if !common::clang("locks_are_told_with_the_line_that_took_them") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f.bpf.c");
    let kept =
        "\tif (value->n++ > 10)\n\t\treturn XDP_DROP;\n\tbpf_spin_unlock(&value->lock);\n\treturn XDP_PASS;\n}\n";
    let call = "\tvalue->n = bpf_ktime_get_ns();\n\tbpf_spin_unlock(&value->lock);\n\treturn XDP_PASS;\n}\n";
    let cases = [
        (kept, "a lock is acquired at instruction", "help: call `bpf_spin_unlock` on every path after that"),
        (call, "`ktime_get_ns` while the lock of instruction", "help: call it before `bpf_spin_lock`, or after"),
    ];
    for (rest, found, help) in cases {
        std::fs::write(&path, format!("{C_HEAD}{LOCKED}{rest}{C_END}")).unwrap();
        let text = run(&["check", "--target", "interp", name(&path)]).stdout;
        let line = "f.bpf.c:10 `bpf_spin_lock(&value->lock);`\n";
        let taken = text.lines().find(|line| line.trim_start().starts_with("acquired at instruction "));
        assert!(taken.is_some_and(|taken| format!("{taken}\n").ends_with(line)), "{text}");
        for part in [found, help, "f.bpf.c:8 `if (!value)`: instruction", ", on to line 10\n"] {
            assert!(text.contains(part), "`{part}` is missing:\n{text}");
        }
        // If the source line is ambiguous, the instruction is printed.
        let turn = text.lines().find(|line| line.contains("f.bpf.c:8 `if (!value)`: instruction")).unwrap();
        assert!(turn.contains(" `if r"), "{turn}");
    }
}

/// Paths are relative to the working directory, and unknown lines are omitted.
#[test]
fn lines_are_named_from_here() {
    if !common::clang("lines_are_named_from_here") {
        return;
    }
    let text = run(&["check", "-v", "--target", "interp", "functions/ebpf/xdp1/xdp1.bpf.c"]).stdout;
    assert!(text.contains("\n; functions/ebpf/counters.bpf.h:"), "{text}");
    for part in ["..", ":0: ", top().canonicalize().unwrap().to_str().unwrap()] {
        assert!(!text.contains(part), "{part}:\n{text}");
    }
}

/// If no target is named, an unsafe program is a finding, whatever the kernel's verdict; of several programs, one must
/// be safe and run.
#[test]
fn what_is_not_seen_to_be_safe_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    // The kernel lets root's programs read the kernel's `struct bpf_map`.
    let source = ".program f\n.license \"GPL\"\n.map m hash key 4 value 4 entries 2\nr1 = map[m] ll\nr0 = *(u32 *)(r1 + 0)\nr0 &= 1\nexit\n";
    let path = put(&folder, "f.bpf", source);
    assert_eq!(run(&["check", name(&path)]).code, Some(1));
    assert_eq!(run(&["check", name(&path), "--target", "interp"]).code, Some(0));
    if kernel("what_is_not_seen_to_be_safe_is_a_finding") {
        exits(0, &["check", name(&path), "--target", "kernel"]).stdout_has(&["verifier: rejected"]);
    }
    if !common::clang("what_is_not_seen_to_be_safe_is_a_finding") {
        return;
    }
    let good = "SEC(\"xdp\") int good(struct xdp_md *ctx) { return XDP_PASS; }\n";
    let bad =
        |name: &str| format!("SEC(\"xdp\") int {name}(struct xdp_md *ctx) {{ return *(char *)(long)ctx->data; }}\n");
    for (programs, code) in [(format!("{good}{}", bad("bad")), 0), (bad("worse") + &bad("bad"), 1)] {
        let path = put(&folder, "several.bpf.c", format!("{C_HEAD}{programs}{C_END}"));
        assert_eq!(run(&["check", name(&path)]).code, Some(code), "{programs}");
    }
    let path = put(&folder, "several.bpf.c", format!("{C_HEAD}{good}{}{C_END}", bad("bad")));
    assert_eq!(run(&["check", name(&path), "--program", "bad"]).code, Some(1));
}
