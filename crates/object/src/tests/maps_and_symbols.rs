// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of objects to the loader: maps of all kinds, several programs, undefined symbols.

use std::collections::BTreeMap;

use flowloom_testkit::Rng;

use super::compiled::compiled;
use crate::{Object, write};
use flowloom_isa::insn::{call, imm64};
use flowloom_isa::{MapDef, MapKind, Member, Program, ProgramKind};
use flowloom_vm::Interpreter;

fn open(test: &str, source: &str) -> Option<Object> {
    Some(super::compiled::open(&compiled(test, source)?))
}

fn map<'p>(program: &'p Program, name: &str) -> &'p MapDef {
    program.maps.iter().find(|map| map.name == name).unwrap_or_else(|| panic!("no map `{name}`"))
}

/// The unresolved references of the program, with source lines.
fn unresolved(program: &Program) -> Vec<String> {
    let line = |at| program.line_of(at).map_or(0, |line| line.line);
    program.unresolved.iter().map(|unresolved| format!("{}: {}", line(unresolved.insn), unresolved.reference)).collect()
}

const SEVERAL: &str = r#"
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, int); __type(value, int); } a SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_SOCKMAP); __uint(max_entries, 1); __type(key, int); __type(value, int); } s SEC(".maps");
SEC("xdp") int first(struct xdp_md *ctx) { int k = 0; return bpf_map_lookup_elem(&a, &k) ? 1 : 2; }
SEC("?xdp.frags") int second(struct xdp_md *ctx) { return 2; }
SEC("xdp/devmap") int third(struct xdp_md *ctx) { return ctx->egress_ifindex == 7; }
SEC("xdp/cpumap") int fourth(struct xdp_md *ctx) { return 2; }
SEC("tc") int fifth(struct __sk_buff *skb) { int k = 0; return bpf_map_lookup_elem(&s, &k) ? 1 : 2; }
SEC("mine") int sixth(struct xdp_md *ctx) { return 2; }
SEC("theirs") int seventh(struct __sk_buff *skb) { return 2; }
SEC("kprobe/f") int eighth(void *ctx) { return 2; }
SEC("anyone") int ninth(void *ctx) { return 2; }
"#;

#[test]
fn programs_get_their_kinds_and_the_maps_that_engines_support() {
    let Some(object) = open("programs_get_their_kinds_and_the_maps_that_engines_support", SEVERAL) else { return };
    let found: Vec<_> = object.programs.iter().map(|p| (p.name.as_str(), p.kind)).collect();
    use ProgramKind::{Other, Xdp, XdpCpumap, XdpDevmap};
    assert_eq!(
        found,
        [
            ("first", Xdp),
            ("second", Xdp),
            ("third", XdpDevmap),
            ("fourth", XdpCpumap),
            ("fifth", Other("sched_cls")),
            ("sixth", Xdp),
            ("seventh", Other("sched_cls")),
            ("eighth", Other("kprobe")),
            ("ninth", Xdp),
        ]
    );
    assert_eq!(object.xdp().count(), 6);
    let frags: Vec<_> = object.programs.iter().filter(|p| p.takes_frags()).map(|p| p.name.as_str()).collect();
    assert_eq!(frags, ["second"]);
    // The socket map does not concern the XDP programs.
    for program in &object.programs {
        let names: Vec<_> = program.maps.iter().map(|m| m.name.as_str()).collect();
        let mut expected = vec!["a"];
        if program.name == "fifth" {
            expected.push("s");
        }
        assert_eq!(names, expected, "{}", program.name);
        assert!(program.siblings.is_empty() && program.unresolved.is_empty());
    }
}

const BROKEN: &str = r#"
SEC("xdp") int good(struct xdp_md *ctx) { return 2; }
extern int elsewhere(int) ;
SEC("xdp") int away(struct xdp_md *ctx) {
    return elsewhere(3);
}
struct { int x; } table[4] SEC("odd");
SEC("xdp") int uneven(struct xdp_md *ctx) {
    return table[1].x;
}
"#;

#[test]
fn one_bad_program_leaves_the_others() {
    let Some(object) = open("one_bad_program_leaves_the_others", BROKEN) else { return };
    let names: Vec<_> = object.programs.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["good", "away"]);
    assert_eq!(unresolved(&object.programs[1]), ["7: `elsewhere` is not defined in the object"]);
    let [refused] = &object.refused[..] else { panic!("{:?}", object.refused) };
    let text = refused.to_string();
    for part in ["program `uneven`: ", "source.bpf.c:11", "no map or data at byte 0 of section `odd` (symbol `table`)"]
    {
        assert!(text.contains(part), "`{text}` does not say `{part}`");
    }
    // An engine names the line too, as its only finding.
    let error = Interpreter::new(object.programs[1].clone().into()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("source.bpf.c:7): `elsewhere` is not defined in the object"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(write(&object.programs[1]).unwrap_err().to_string().contains("elsewhere"));
}

const HOLDERS: &str = r#"
struct inner { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); __type(key, int); __type(value, __u64); };
struct inner one SEC(".maps");
static struct inner two SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 8); __type(key, int);
    __array(values, struct inner);
} outer SEC(".maps") = { .values = { [5] = &two, [1] = (void *)&one } };
int second(struct xdp_md *ctx);
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 3); __uint(key_size, 4);
    __array(values, int (void *));
} jumps SEC(".maps") = { .values = { [2] = (void *)&second } };
struct value { int before; struct bpf_spin_lock lock; long after; };
struct {
    __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 9); __uint(pinning, LIBBPF_PIN_BY_NAME); __uint(numa_node, 1);
    __type(key, int); __type(value, struct value);
} locked SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 5000); } ring SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); __uint(key_size, 4); __uint(value_size, 4); } events SEC(".maps");
SEC("tc") int other(struct __sk_buff *skb) { return 0; }
SEC("xdp") int first(struct xdp_md *ctx) {
    int k = 1;
    struct value *v = bpf_map_lookup_elem(&locked, &k);
    if (v) { bpf_spin_lock(&v->lock); v->after++; bpf_spin_unlock(&v->lock); }
    void *found = bpf_map_lookup_elem(&outer, &k);
    if (found && bpf_map_lookup_elem(found, &k)) return 1;
    bpf_ringbuf_output(&ring, &k, 4, 0);
    bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, &k, 4);
    bpf_tail_call(ctx, &jumps, 2);
    return 0;
}
SEC("xdp") int second(struct xdp_md *ctx) { return 2; }
"#;

#[test]
fn maps_hold_maps_programs_and_locks() {
    let Some(object) = open("maps_hold_maps_programs_and_locks", HOLDERS) else { return };
    let program = object.program("first").unwrap();
    let index = |name: &str| program.map_index(name).unwrap();
    let outer = map(program, "outer");
    assert_eq!(outer.members, [(1, Member::Map(index("one"))), (5, Member::Map(index("two")))]);
    let inner = outer.inner.as_deref().unwrap();
    assert_eq!((inner.kind, inner.key_bytes, inner.value_bytes, inner.max_entries), (MapKind::Array, 4, 8, 4));
    assert_eq!((outer.kind, outer.key_bytes, outer.value_bytes), (MapKind::ArrayOfMaps, 4, 4));
    let siblings: Vec<_> = program.siblings.iter().map(|s| s.name.as_str()).collect();
    let xdp: Vec<_> = object.xdp().map(|p| p.name.as_str()).collect();
    assert_eq!(siblings, xdp);
    let number = |name| siblings.iter().position(|s| *s == name).unwrap();
    assert_eq!(map(program, "jumps").members, [(2, Member::Program(number("second")))]);
    assert_eq!(program.siblings[number("first")].insns, program.insns);
    assert_eq!(map(program, "locked").spin_lock, Some(4));
    assert_eq!(map(program, "one").spin_lock, None);
    let sizes = |name: &str| {
        let map = map(program, name);
        (map.key_bytes, map.value_bytes, map.max_entries)
    };
    assert_eq!(sizes("ring"), (0, 0, 8192));
    assert_eq!(sizes("events"), (4, 4, 1024));
    assert!(object.notes.iter().any(|n| n.contains("`events` leaves its number of entries")), "{:?}", object.notes);
    assert!(
        object.notes.iter().any(|n| n.contains("`locked` asks for being pinned by its name")),
        "{:?}",
        object.notes
    );
    assert!(object.notes.iter().any(|n| n.contains("NUMA node 1")), "{:?}", object.notes);
    assert!(program.unresolved.is_empty(), "{:?}", unresolved(program));
    assert!(object.program("other").unwrap().siblings.is_empty());
    assert!(write(program).unwrap_err().to_string().contains("siblings"));
}

const LEGACY: &str = r#"
struct bpf_map_def { unsigned type, key_size, value_size, max_entries, map_flags; };
struct bpf_map_def SEC("maps") first = { .type = 1, .key_size = 4, .value_size = 8, .max_entries = 7, .map_flags = 1 };
struct bpf_map_def SEC("maps") second = { .type = 2, .key_size = 4, .value_size = 16, .max_entries = 3 };
SEC("xdp") int f(struct xdp_md *ctx) {
    int k = 1;
    return bpf_map_lookup_elem(&second, &k) ? 1 : bpf_map_lookup_elem(&first, &k) ? 2 : 3;
}
"#;

const IPROUTE2: &str = r#"
struct bpf_elf_map { unsigned type, size_key, size_value, max_elem, flags, id, pinning, inner_id, inner_idx; };
struct bpf_elf_map SEC("maps") jumps = { .type = 3, .size_key = 4, .size_value = 4, .max_elem = 9, .id = 7, .pinning = 2 };
struct bpf_elf_map SEC("maps") inner = { .type = 2, .size_key = 4, .size_value = 8, .max_elem = 1, .id = 3, .inner_idx = 5 };
struct bpf_elf_map SEC("maps") outer = { .type = 12, .size_key = 4, .size_value = 4, .max_elem = 6, .inner_id = 3 };
SEC("prog") int entry(struct xdp_md *ctx) {
    int k = 5;
    if (bpf_map_lookup_elem(&outer, &k)) return 1;
    bpf_tail_call(ctx, &jumps, 4);
    return 0;
}
SEC("7/4") int four(struct xdp_md *ctx) { return 2; }
"#;

#[test]
fn definitions_of_the_old_kinds_are_read() {
    let test = "definitions_of_the_old_kinds_are_read";
    let Some(object) = open(test, LEGACY) else { return };
    let program = &object.programs[0];
    let sizes = |m: &MapDef| (m.kind, m.key_bytes, m.value_bytes, m.max_entries, m.flags);
    assert_eq!(sizes(map(program, "first")), (MapKind::Hash, 4, 8, 7, 1));
    assert_eq!(sizes(map(program, "second")), (MapKind::Array, 4, 16, 3, 0));
    let loads: Vec<_> = program.insns.iter().filter(|i| i.is_wide() && i.src == imm64::MAP).map(|i| i.imm).collect();
    assert_eq!(loads.len(), 2);
    assert_eq!(program.maps[loads[0] as usize].name, "second");

    let Some(object) = open(test, IPROUTE2) else { return };
    let program = object.program("entry").unwrap();
    let outer = map(program, "outer");
    assert_eq!(outer.members, [(5, Member::Map(program.map_index("inner").unwrap()))]);
    assert_eq!(outer.inner.as_ref().map(|inner| inner.value_bytes), Some(8));
    let number = program.siblings.iter().position(|s| s.name == "four").unwrap();
    assert_eq!(map(program, "jumps").members, [(4, Member::Program(number))]);
    assert!(object.notes.iter().any(|n| n.contains("`jumps` asks to be pinned")), "{:?}", object.notes);
}

const EXTERNS: &str = r#"
#include <stdbool.h>
extern unsigned long CONFIG_HZ __kconfig;
extern int CONFIG_NOBODY __kconfig __weak;
extern int LINUX_KERNEL_VERSION __kconfig __weak;
extern const void init_task __ksym;
extern const void no_such_thing __ksym __weak;
extern int bpf_there(void *ctx) __ksym;
extern int bpf_not_there(void *ctx) __ksym __weak;
SEC("xdp") int strong(struct xdp_md *ctx) {
    if (CONFIG_HZ == 100)
        return 1;
    if (ctx->data == (long)&init_task)
        return 2;
    return bpf_there(ctx);
}
SEC("xdp") int weak(struct xdp_md *ctx) {
    if (CONFIG_NOBODY)
        return bpf_there(ctx);
    if (&no_such_thing)
        return 7;
    if (bpf_not_there)
        return bpf_not_there(ctx);
    return LINUX_KERNEL_VERSION + 2;
}
struct value { int x; struct bpf_timer timer; };
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, int); __type(value, struct value); } t SEC(".maps");
SEC("xdp") int timed(struct xdp_md *ctx) {
    int k = 0;
    struct value *v = bpf_map_lookup_elem(&t, &k);
    return v ? v->x : 0;
}
int one, two;
int *volatile places[2] = { &one, &two };
SEC("xdp") int points(struct xdp_md *ctx) {
    return *places[ctx->data & 1];
}
"#;

#[test]
fn kernel_symbols_are_unresolved_unless_weak() {
    let Some(object) = open("kernel_symbols_are_unresolved_unless_weak", EXTERNS) else { return };
    assert_eq!(object.refused, []);
    assert_eq!(
        unresolved(object.program("strong").unwrap()),
        [
            "13: `CONFIG_HZ`, a setting of the kernel that an engine is not to know",
            "15: address of `init_task`, a variable of the kernel",
            "17: call of `bpf_there`, a function of the kernel",
        ]
    );
    let strong = object.program("strong").unwrap();
    assert_eq!(strong.insns[strong.unresolved[0].insn].src, imm64::VAR);
    assert_eq!(strong.insns[strong.unresolved[2].insn].src, call::KFUNC);
    let weak = object.program("weak").unwrap();
    assert_eq!(unresolved(weak), Vec::<String>::new());
    let names: Vec<_> = weak.maps.iter().map(|m| m.name.as_str()).collect();
    assert!(names.contains(&".rodata.kconfig") && !names.contains(&"t"), "{names:?}");
    Interpreter::new(weak.clone().into()).unwrap_or_else(|e| panic!("{e}"));
    // Undefined symbols taken for settings are noted, and no others.
    let mut notes: Vec<_> =
        object.notes.iter().filter(|n| n.contains("a setting of the kernel, is taken to be 0")).collect();
    notes.sort();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with("`CONFIG_NOBODY`") && notes[1].starts_with("`LINUX_KERNEL_VERSION`"), "{notes:?}");
    assert_eq!(
        unresolved(object.program("timed").unwrap()),
        ["32: values of map `t` hold `struct bpf_timer` at byte 8"]
    );
    // Loaders ignore addresses in data, so the program is left to its verifier.
    assert_eq!(unresolved(object.program("points").unwrap()), Vec::<String>::new());
    assert!(
        object.notes.iter().any(|n| n.starts_with("byte 0 of data section `.data` is to hold the address of")),
        "{:?}",
        object.notes
    );
}

const GUARDED: &str = r#"
const volatile int wanted = 0;
int changing;
extern int bpf_there(void *ctx) __ksym;
SEC("xdp") int guarded(struct xdp_md *ctx) { return wanted ? bpf_there(ctx) : 2; }
SEC("xdp") int open(struct xdp_md *ctx) { return changing ? bpf_there(ctx) : 2; }
SEC("xdp") int packet(struct xdp_md *ctx) { return ctx->ingress_ifindex == 5 ? bpf_there(ctx) : 2; }
"#;

#[test]
fn references_in_dead_code_are_dropped() {
    let Some(object) = open("references_in_dead_code_are_dropped", GUARDED) else { return };
    for (name, missed) in [("guarded", 0), ("open", 1), ("packet", 1)] {
        assert_eq!(object.program(name).unwrap().unresolved.len(), missed, "{name}");
    }
    Interpreter::new(object.program("guarded").unwrap().clone().into()).unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn damaged_objects_of_all_features_do_not_panic() {
    let mut rng = Rng::from_env(6);
    let mut outcomes = BTreeMap::new();
    for source in [SEVERAL, BROKEN, HOLDERS, LEGACY, IPROUTE2, EXTERNS] {
        let Some(bytes) = compiled("damaged_objects_of_all_features_do_not_panic", source) else {
            return;
        };
        for (key, count) in super::hostile::torture(&bytes, 100, 2500, &mut rng) {
            *outcomes.entry(key).or_insert(0) += count;
        }
    }
    eprintln!("{outcomes:#?}");
    for layer in ["read", "Definition ", "refused Instruction ", "refused Function ", "Offset ", "Btf Field"] {
        assert!(outcomes.contains_key(layer), "nothing ended in `{layer}`: {outcomes:#?}");
    }
}
