// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small C programs that exercise the kernel's verifier, and the results of `check` and `verify` on them.

use std::path::PathBuf;

use crate::common::{C_END, C_HEAD, exits, kernel, name, put, run};
use flowloom_testkit::Clang;

/// Compiles a source to an object in a temporary folder.
fn object(test: &str, source: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    if !kernel(test) {
        return None;
    }
    let clang = Clang::find(test)?;
    let text = format!("{C_HEAD}{source}{C_END}");
    let bytes = clang.compile(&text, &["-Wno-unused-parameter", "-Wno-uninitialized"]);
    let folder = tempfile::tempdir().unwrap();
    let path = put(&folder, "prog.o", bytes.unwrap_or_else(|said| panic!("{said}")));
    Some((folder, path))
}

fn check(path: &std::path::Path) -> serde_json::Value {
    run(&["check", "-v", "--json", name(path)]).json()
}

/// Independent tests in a callback are walked once each.
#[test]
fn tests_in_a_callback_add_up() {
    let tests: String = (0..24).map(|n| format!("\tif (v[{n}] && v[{}] != 9)\n\t\treturn 0;\n", n + 24)).collect();
    let source = format!(
        "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 100); __type(key, __u32); __type(value, __u8[48]); }} rules SEC(\".maps\");\n\
         static long one(__u32 n, void *none)\n{{\n\t__u8 *v = bpf_map_lookup_elem(&rules, &n);\n\tif (!v)\n\t\treturn 1;\n{tests}\treturn 1;\n}}\n\
         SEC(\"xdp\") int prog(struct xdp_md *ctx) {{ bpf_loop(100, one, 0, 0); return XDP_PASS; }}\n"
    );
    let Some((_folder, path)) = object("tests_in_a_callback_add_up", &source) else { return };
    let verified = &check(&path)["programs"][0]["verified"];
    let (ours, kernels) = (&verified["looked_at"], verified["kernel_looked_at"].as_u64());
    assert!(ours.as_u64().is_some_and(|ours| ours <= 650), "{ours}, the kernel {kernels:?}");
    assert!(kernels.is_some_and(|walked| walked > 100));
}

#[test]
fn global_functions_are_judged_by_themselves() {
    let source = |body: &str| {
        format!(
            "__attribute__((noinline)) int half(int *number) {{ {body} return *number + 2; }}\n\
             SEC(\"xdp\") int prog(struct xdp_md *ctx) {{ int n = ctx->rx_queue_index; return half(&n) & 1 ? XDP_PASS : XDP_DROP; }}\n"
        )
    };
    let Some((_folder, path)) = object("global_functions_are_judged_by_themselves", &source("")) else { return };
    exits(1, &["check", name(&path)])
        .stdout_has(&["argument `number` of the global function `half`, which may be null"]);
    // The kernel gets the function as the object declares it.
    let verdicts = check(&path);
    let targets = verdicts["programs"][0]["targets"].as_array().unwrap();
    let kernel = targets.iter().find(|target| target["target"] == "kernel").unwrap();
    assert_eq!(kernel["runs"], false, "{kernel}");
    assert!(kernel.to_string().contains("mem_or_null"), "{kernel}");
    let Some((_folder, path)) = object("", &source("if (!number) return 0;")) else { return };
    exits(0, &["check", name(&path)]);
}

#[test]
fn code_behind_a_constant_that_is_0_is_judged_for_no_target() {
    let source = "const volatile __u8 debug = 0;\n\
                  struct where { void *first, *last; struct xdp_md *ctx; };\n\
                  static __attribute__((noinline)) int look(struct where *at)\n{\n\
                  \tif (debug) {\n\t\t__u8 *byte = at->first;\n\t\tif (byte + 16 > (__u8 *)at->last)\n\t\t\treturn 1;\n\t\treturn byte[13] ? 2 : 1;\n\t}\n\treturn 2;\n}\n\
                  SEC(\"xdp\") int prog(struct xdp_md *ctx)\n{\n\
                  \tstruct where at = { (void *)(long)ctx->data, (void *)(long)ctx->data_end, ctx };\n\treturn look(&at);\n}\n";
    let test = "code_behind_a_constant_that_is_0_is_judged_for_no_target";
    let Some((_folder, path)) = object(test, source) else { return };
    let ran = exits(0, &["check", name(&path)]);
    assert!(!ran.stdout.contains("ingress_ifindex") && !ran.stdout.contains("context on all paths"), "{}", ran.stdout);
}

#[test]
fn bytes_that_were_never_written_are_the_programs_fault() {
    let source = "struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } events SEC(\".maps\");\n\
                  SEC(\"xdp\") int prog(struct xdp_md *ctx)\n{\n\t__u64 what;\n\tbpf_ringbuf_output(&events, &what, sizeof(what), 0);\n\treturn XDP_PASS;\n}\n";
    let Some((_folder, path)) = object("bytes_that_were_never_written_are_the_programs_fault", source) else { return };
    let ran = exits(0, &["check", name(&path)]);
    let finding = "finding: kernel-dependent contents: bytes 0 to 7 of a record in map `events` were never written";
    assert!(ran.stdout.contains(finding) && ran.stdout.contains("source.bpf.c:7"), "{}", ran.stdout);
    exits(0, &["verify", name(&path)]).stdout_has(&["kernel-dependent contents", "kernel: equal"]);
}

#[test]
fn a_lookup_outside_of_an_array_always_fails() {
    let test = "a_lookup_outside_of_an_array_always_fails";
    let source = |key: &str| {
        format!(
            "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 5); __type(key, __u32); __type(value, __u64); }} few SEC(\".maps\");\n\
             SEC(\"xdp\") int prog(struct xdp_md *ctx)\n{{\n\t__u32 {key} = 11;\n\t__u64 *v = bpf_map_lookup_elem(&few, &key);\n\
             \tif (!v)\n\t\treturn XDP_PASS;\n\t*v += 1;\n\treturn XDP_DROP;\n}}\n"
        )
    };
    let Some((_folder, path)) = object(test, &source("key")) else { return };
    let ran = run(&["verify", name(&path)]);
    let why = "the lookup in array `few` always fails: key 11, 5 entries (line 7: ";
    assert!(ran.stdout.contains(why), "{ran:?}");
    // A constant that fills a stack slot is known to the verifier, so the access after the lookup is dead code.
    let Some((_folder, path)) = object(test, &source("key __attribute__((aligned(8)))")) else { return };
    let ran = run(&["check", "-v", name(&path)]);
    assert!(ran.stdout.contains("on map `few`; always fails: key 11 is outside of 5 entries"), "{}", ran.stdout);
}

/// A program that sums bytes with libbpf's `bpf_for`, the kernel's numeric iterator.
fn summing(first: &str, end: &str) -> String {
    format!(
        "struct bpf_iter_num {{ __u64 state; }} __attribute__((aligned(8)));\n\
         extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __attribute__((weak)) SEC(\".ksyms\");\n\
         extern int *bpf_iter_num_next(struct bpf_iter_num *it) __attribute__((weak)) SEC(\".ksyms\");\n\
         extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __attribute__((weak)) SEC(\".ksyms\");\n\
         SEC(\"xdp\") int prog(struct xdp_md *ctx)\n{{\n\
         \t__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;\n\
         \tif (data + 64 > end)\n\t\treturn XDP_PASS;\n\
         \tstruct bpf_iter_num it;\n\tint *i, sum = 0, made;\n\
         \tmade = bpf_iter_num_new(&it, {first}, {end});\n\
         \twhile ((i = bpf_iter_num_next(&it)))\n\t\tsum += *i < 0 ? 100 - *i : data[*i & 63] << (*i & 3);\n\
         \tbpf_iter_num_destroy(&it);\n\
         \t*(int *)(data + 16) = sum;\n\t*(int *)(data + 20) = made;\n\treturn XDP_TX;\n}}\n"
    )
}

#[test]
fn loops_over_numbers_run_everywhere() {
    let test = "loops_over_numbers_run_everywhere";
    // A constant trip count has a plan; an end before the start, or more iterations than the kernel allows, yields
    // none.
    for (first, end, has_plan) in
        [("0", "8", true), ("-2", "data[0] & 15", false), ("3", "data[0] & 3", false), ("-8388608", "1", true)]
    {
        let Some((_folder, path)) = object(test, &summing(first, end)) else { return };
        let found = check(&path);
        assert_eq!(found["programs"][0]["verified"]["safe"], true, "{found}");
        assert!(
            found["notes"]
                .to_string()
                .contains("that each iterator is created, advanced and destroyed in this order is not verified"),
            "{found}"
        );
        let targets = found["programs"][0]["targets"].as_array().unwrap();
        assert!(targets.iter().all(|target| target["runs"] == true), "{found}");
        exits(0, &["verify", name(&path), "--packets", "300"]).stdout_has(&["equal to `interp`"]);
        if has_plan {
            exits(0, &["explain", name(&path)]);
        }
    }
}

#[test]
fn a_refused_program_of_a_table_is_named_by_its_own_line() {
    let source = "int bad(struct xdp_md *ctx);\n\
        struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 4); __uint(key_size, 4);\n\
        __uint(value_size, 4); __array(values, int (void *)); } table SEC(\".maps\") = { .values = { [1] = (void *)&bad } };\n\
        SEC(\"xdp\") int bad(struct xdp_md *ctx)\n{\n\treturn *(int *)(long)ctx->data & 1 ? XDP_DROP : XDP_PASS;\n}\n\
        SEC(\"xdp\") int good(struct xdp_md *ctx)\n{\n\tbpf_tail_call(ctx, &table, 1);\n\treturn XDP_PASS;\n}\n";
    let Some((_folder, path)) = object("a_refused_program_of_a_table_is_named_by_its_own_line", source) else { return };
    exits(1, &["check", name(&path), "--program", "good"]).stdout_has(&[
        "the kernel's verifier refuses program `bad` at",
        "(int *)(long)ctx->data & 1 ? XDP_DROP : XDP_PASS;`: ",
    ]);
}
