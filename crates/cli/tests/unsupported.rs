// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom check` on objects that cannot run: each reason with its source line and help.

use std::path::PathBuf;

use crate::common::{C_HEAD, exits, name, put, run};
use flowloom_testkit::Clang;
use tempfile::TempDir;

/// A source that cannot run, in which `HERE` marks the line, with the expected reason and help.
struct Case {
    name: &'static str,
    source: &'static str,
    reason: &'static str,
    help: &'static str,
}

const CASES: [Case; 13] = [
    Case {
        name: "kfunc",
        source: "extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, unsigned *hash, int *type) __ksym;
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    unsigned hash = 0; int type = 0;
    return bpf_xdp_metadata_rx_hash(ctx, &hash, &type); // HERE
}",
        reason: "call of `bpf_xdp_metadata_rx_hash`, a function of the kernel",
        help: "packets of captures have no such metadata",
    },
    Case {
        name: "sockets",
        source: "SEC(\"xdp\") int f(struct xdp_md *ctx) {
    struct bpf_sock_tuple tuple = {};
    struct bpf_sock *sk = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0); // HERE
    if (sk) bpf_sk_release(sk);
    return 2;
}",
        reason: "`sk_lookup_tcp`",
        help: "look the flow up in a map that user space fills",
    },
    Case {
        name: "sockmap",
        source: "struct { __uint(type, BPF_MAP_TYPE_SOCKMAP); __uint(max_entries, 4); __type(key, int); __type(value, int); } socks SEC(\".maps\");
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    int k = 1;
    return bpf_map_lookup_elem(&socks, &k) ? 1 : 2; // HERE
}",
        reason: "map `socks`: kind is sockmap",
        help: "send the packet to a port with a devmap",
    },
    Case {
        name: "queue",
        source: "struct { __uint(type, BPF_MAP_TYPE_QUEUE); __uint(max_entries, 4); __type(value, int); } waiting SEC(\".maps\");
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    int v = 1;
    return bpf_map_push_elem(&waiting, &v, 0) ? 1 : 2; // HERE
}",
        reason: "`map_push_elem`",
        help: "keep the indices of both ends",
    },
    Case {
        name: "dynptr",
        source: "struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(\".maps\");
static long (*reserve)(void *, unsigned, unsigned long, void *) = (void *)198;
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    unsigned long ptr[2] = {};
    return reserve(&ring, 8, 0, ptr) ? 1 : 2; // HERE
}",
        reason: "`ringbuf_reserve_dynptr`",
        help: "read the packet between `data` and `data_end`",
    },
    Case {
        name: "timer",
        source: "struct value { long n; struct bpf_timer timer; };
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, int); __type(value, struct value); } timers SEC(\".maps\");
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    int k = 0;
    struct value *v = bpf_map_lookup_elem(&timers, &k); // HERE
    return v ? v->n : 0;
}",
        reason: "values of map `timers` hold `struct bpf_timer` at byte 8",
        help: "keep the time with `bpf_ktime_get_ns`",
    },
    Case {
        name: "setting",
        source: "extern int CONFIG_HZ __kconfig;
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    return CONFIG_HZ == 100; // HERE
}",
        reason: "`CONFIG_HZ`, a setting of the kernel",
        help: "declare it `__weak`",
    },
    Case {
        name: "ksym",
        source: "extern const void bpf_prog_active __ksym;
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    return ctx->data == (unsigned)(long)&bpf_prog_active; // HERE
}",
        reason: "address of `bpf_prog_active`, a variable of the kernel",
        help: "declare it `__weak`",
    },
    Case {
        name: "probe",
        source: "SEC(\"kprobe/do_unlinkat\")
int f(void *ctx) {
    return 0; // HERE
}",
        reason: "its type is kprobe, expected XDP",
        help: "load it with its own loader",
    },
    Case {
        name: "shaper",
        source: "SEC(\"tc\")
int f(struct __sk_buff *skb) {
    return 0; // HERE
}",
        reason: "its type is sched_cls, expected XDP",
        help: "for `tc`, attach it there",
    },
    Case {
        name: "field",
        source: "struct xdp_md___new { unsigned data, no_such_field; } __attribute__((preserve_access_index));
SEC(\"xdp\") int f(struct xdp_md___new *ctx) {
    return ctx->no_such_field; // HERE
}",
        reason: "offset of `xdp_md.no_such_field`",
        help: "",
    },
    Case {
        name: "elsewhere",
        source: "extern int elsewhere(int);
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    return elsewhere(ctx->data); // HERE
}",
        reason: "`elsewhere` is not defined in the object",
        help: "link the object that defines it",
    },
    Case {
        name: "odd",
        source: "int table[4] __attribute__((section(\"mine\")));
SEC(\"xdp\") int f(struct xdp_md *ctx) {
    return table[1]; // HERE
}",
        reason: "no map or data at byte 0 of section `mine`",
        help: "",
    },
];

/// Compiles a source to an object in a folder; lines have the name of the source.
fn compile(clang: &Clang, folder: &TempDir, stem: &str, source: &str) -> PathBuf {
    let input = put(folder, format!("{stem}.c"), format!("{C_HEAD}{source}\n"));
    let object = clang.compile_file(&input, &["-Wno-error", "-w"]).unwrap_or_else(|e| panic!("{stem}: {e}"));
    put(folder, format!("{stem}.o"), object)
}

#[test]
fn each_reason_is_named_with_its_line() {
    let Some(clang) = Clang::find("each_reason_is_named_with_its_line") else { return };
    let folder = tempfile::tempdir().unwrap();
    for case in &CASES {
        let object = compile(&clang, &folder, case.name, case.source);
        let ran = exits(1, &["check", name(&object), "--target", "interp"]);
        let line = C_HEAD.lines().chain(case.source.lines()).position(|line| line.contains("HERE")).unwrap() + 1;
        let place = format!("{}.c:{line}", case.name);
        let reason = ran.stdout.lines().find(|line| line.contains(case.reason));
        let reason = reason.unwrap_or_else(|| panic!("`{}` is not in\n{}", case.reason, ran.stdout));
        assert!(reason.contains(&place), "`{reason}` does not say `{place}`");
        assert!(ran.stdout.contains(case.help), "`{}` is not in\n{}", case.help, ran.stdout);
        if case.help.is_empty() {
            continue;
        }
        let said = run(&["check", name(&object), "--target", "interp", "--json"]).json();
        let reasons = said["programs"][0]["targets"][0]["reasons"].as_array().unwrap();
        let found = reasons.iter().find(|r| r["reason"].as_str().unwrap().contains(case.reason)).unwrap();
        assert_eq!(found["source"]["line"], line, "{said}");
        assert!(found["help"].as_str().unwrap().contains(case.help), "{said}");
    }
}

const SEVERAL: &str = "struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 9); __type(key, int); __type(value, long); } seen SEC(\".maps\");
static __attribute__((noinline)) int count(int k) {
    long one = 1;
    return bpf_map_update_elem(&seen, &k, &one, 0);
}
SEC(\"xdp\") int good(struct xdp_md *ctx) { return count(ctx->data_end - ctx->data) + count(3) ? 1 : 2; }
SEC(\"xdp\") int bad(struct xdp_md *ctx) { return bpf_get_current_pid_tgid() ? 1 : 2; }
SEC(\"tc\") int shaper(struct __sk_buff *skb) { return 0; }
int table[4] __attribute__((section(\"mine\")));
SEC(\"xdp\") int broken(struct xdp_md *ctx) { return table[1]; }
";

#[test]
fn all_programs_are_listed_with_what_they_use() {
    let Some(clang) = Clang::find("all_programs_are_listed_with_what_they_use") else { return };
    let folder = tempfile::tempdir().unwrap();
    let object = compile(&clang, &folder, "several", SEVERAL);
    let ran = run(&["check", name(&object), "--target", "interp"]);
    // One of several programs runs, so this is not a finding.
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for part in [
        "several.o: 3 programs, 1 refused",
        "program `good`: xdp, section `xdp`, ",
        " in 2 functions",
        "map `seen`: hash, key 4, value 8, entries 9",
        "helpers: map_update_elem",
        "program `shaper`: sched_cls, section `tc`",
        "expected XDP",
        "(`get_current_pid_tgid`)",
        "no process belongs to a packet",
        "program `broken`: section `xdp`, refused",
    ] {
        assert!(ran.stdout.contains(part), "`{part}` is not in\n{}", ran.stdout);
    }
    for (program, code) in [("good", 0), ("bad", 1), ("shaper", 1), ("broken", 1)] {
        let ran = exits(code, &["check", name(&object), "--target", "interp", "--program", program]);
        ran.stdout_has(&[&format!("program `{program}`")]);
        assert_eq!(ran.stdout.matches("program `").count(), 1, "{}", ran.stdout);
    }
    exits(2, &["check", name(&object), "--program", "absent"]).stderr_has(&["has no program `absent`"]);

    let said = run(&["check", name(&object), "--target", "interp", "--json"]).json();
    let programs = said["programs"].as_array().unwrap();
    let names: Vec<&str> = programs.iter().map(|p| p["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["good", "bad", "shaper"]);
    assert_eq!(programs[0]["helpers"][0]["name"], "map_update_elem");
    assert_eq!(programs[0]["targets"][0]["runs"], true);
    assert_eq!(programs[0]["maps"][0]["kind"], "hash");
    assert_eq!(said["refused"][0]["name"], "broken");

    // `run` accepts XDP programs only.
    exits(2, &["run", name(&object), "--program", "shaper", "-r", "missing.pcap"])
        .stderr_has(&["is of kind sched_cls (section `tc`), expected XDP"]);
}

const LEFT: &str = "int table[4] __attribute__((section(\"mine\"))) = { 1 };
__attribute__((used)) static int alone(int x) { return x + 1; }
struct { __uint(type, BPF_MAP_TYPE_SOCKMAP); __uint(max_entries, 4); __type(key, int); __type(value, int); } socks SEC(\".maps\");
SEC(\"?xdp\") int rx(struct xdp_md *ctx) { return 2; }
SEC(\"from-netdev\") int other(struct xdp_md *ctx) { return 2; }
";

#[test]
fn nothing_of_an_object_vanishes() {
    let Some(clang) = Clang::find("nothing_of_an_object_vanishes") else { return };
    let folder = tempfile::tempdir().unwrap();
    let object = compile(&clang, &folder, "left", LEFT);
    exits(0, &["check", name(&object), "--target", "interp"]).stdout_has(&[
        "left.o: 2 programs",
        "not part of a program: section `mine`: 16 bytes: ",
        "not part of a program: function `alone`: in section `.text`, and no program that is read calls it",
        "not part of a program: map `socks`: no program uses it, and its kind is sockmap",
        "note: program `rx`: section `?xdp` asks loaders to leave it out",
        "note: program `other`: section `from-netdev` stands for sched_cls, its argument is `struct xdp_md *`",
    ]);
    let said = run(&["check", name(&object), "--target", "interp", "--json"]).json();
    let left = said["not_in_a_program"].as_array().unwrap();
    let named = |what: &str, name: &str| left.iter().any(|one| one["what"] == what && one["name"] == name);
    assert!(named("section", "mine") && named("function", "alone") && named("map", "socks"), "{said}");
    assert!(left.iter().all(|one| one["reason"].as_str().is_some_and(|reason| !reason.is_empty())), "{said}");
    // If one program is selected, other contents of the object are not printed.
    let ran = run(&["check", name(&object), "--target", "interp", "--program", "rx"]);
    assert!(!ran.stdout.contains("not part of a program"), "{}", ran.stdout);
}

const TYPES: &str = "SEC(\"tc\") int rx(struct __sk_buff *ctx) { return 2; }
SEC(\"tc\") int tx(void *ctx) { return 1; }
";

#[test]
fn the_user_says_what_type_a_program_has() {
    let Some(clang) = Clang::find("the_user_says_what_type_a_program_has") else { return };
    let folder = tempfile::tempdir().unwrap();
    let object = compile(&clang, &folder, "types", TYPES);
    let out = folder.path().join("out");
    let verbs: [&[&str]; 4] = [
        &["check", "--target", "interp"],
        &["explain"],
        &["build", "--target", "bpf", "-o", name(&out)],
        &["predict", "--zipf", "10", "--count", "100"],
    ];
    for verb in verbs {
        let arguments = [&verb[..1], &[name(&object), "--program", "rx"], &verb[1..]].concat();
        let ran = run(&arguments);
        assert_ne!(ran.code, Some(0), "{arguments:?}: {}", ran.stdout);
        let said = format!("{}{}", ran.stdout, ran.stderr);
        assert!(said.contains("sched_cls"), "{arguments:?}: {said}");
        exits(0, &[&arguments[..], &["--type", "xdp"]].concat());
    }
    // This section holds two programs with different names.
    exits(2, &["explain", name(&object), "--program", "tc", "--type", "xdp"])
        .stderr_has(&["several programs `tc`: `tc/rx`, `tc/tx`"]);
    assert_eq!(run(&["explain", name(&object), "--program", "tc/tx", "--type", "xdp"]).code, Some(0));
}

#[test]
fn a_program_that_cannot_run_has_no_pipeline_and_that_is_a_finding() {
    let Some(clang) = Clang::find("a_program_that_cannot_run_has_no_pipeline_and_that_is_a_finding") else { return };
    let folder = tempfile::tempdir().unwrap();
    let case = &CASES[0];
    let object = compile(&clang, &folder, case.name, case.source);
    for verb in [&["explain", name(&object)][..], &["predict", name(&object), "--zipf", "10"]] {
        exits(1, verb).stderr_has(&["bpf_xdp_metadata_rx_hash"]);
    }
}
