// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects compiled by clang from C, against the sources and the kernel.

use flowloom_testkit::{Clang, Rng, skip};

use crate::{Object, read, write};
use flowloom_isa::insn::{call, class, imm64, jmp};
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, BPF_F_RDONLY_PROG, MapKind, Program};
use flowloom_testkit::scratch::{Scratch, name, output, run, text};

const HEAD: &str = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n";

pub(crate) fn compiled(test: &str, source: &str) -> Option<Vec<u8>> {
    compiled_as(test, &format!("{HEAD}{source}"))
}

/// The object of a complete source.
pub(crate) fn compiled_as(test: &str, source: &str) -> Option<Vec<u8>> {
    let compiled = Clang::find(test)?.compile(source, &["-Wno-error"]);
    Some(compiled.unwrap_or_else(|e| panic!("{e}")))
}

/// All types of keys and values, data of all kinds, functions in `.text`, two programs in one section.
pub(super) const RICH: &str = r#"
typedef unsigned int word;
enum colour { RED, GREEN };
union either { char bytes[6]; short number; };
struct key { word source; word target; unsigned short ports[2]; unsigned char protocol; };
typedef const volatile struct { struct key inner[2]; enum colour colour; union either either; void *pointer; } big;
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1000);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct key);
    __type(value, big);
} flows SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 8);
    __type(key, word);
    __type(value, __u64);
} counters SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 16);
    __uint(key_size, sizeof(int));
    __uint(value_size, 4);
} ports SEC(".maps");

const volatile unsigned int limits[4] = { 10, 20, 30, 40 };
unsigned long long total = 5;
unsigned int seen;
static volatile unsigned char hidden[4] = { 1, 2, 3, 4 };

static __attribute__((noinline)) int bump(unsigned int slot)
{
    __u64 *counter = bpf_map_lookup_elem(&counters, &slot);
    if (counter)
        __sync_fetch_and_add(counter, 1);
    return slot & 3;
}

__attribute__((noinline)) int weigh(unsigned int length)
{
    seen++;
    return length > limits[bump(length & 7) & 3] ? 1 : 2;
}

SEC("xdp")
int first(struct xdp_md *ctx)
{
    unsigned char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    total += end - data;
    if (data + 14 > end)
        return XDP_ABORTED;
    hidden[data[0] & 3]++;
    data[1] = hidden[data[2] & 3];
    return weigh(data[3]) + (data[4] & 1);
}

SEC("xdp")
int second(struct xdp_md *ctx)
{
    struct key key = { .source = ctx->ingress_ifindex, .protocol = 6 };
    if (bpf_map_lookup_elem(&flows, &key))
        return bpf_redirect_map(&ports, 3, 0);
    return bump(1) ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "GPL";
"#;

fn local_calls(program: &Program) -> usize {
    let is_call = |i: &&flowloom_isa::Insn| i.code == class::JMP | jmp::CALL && i.src == call::LOCAL;
    program.insns.iter().filter(is_call).count()
}

pub(super) fn open(bytes: &[u8]) -> Object {
    read(bytes, "program.o").unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn maps_programs_and_lines_are_those_of_the_source() {
    let test = "maps_programs_and_lines_are_those_of_the_source";
    let Some(bytes) = compiled(test, RICH) else { return };
    let object = open(&bytes);
    let names: Vec<_> = object.programs.iter().map(|p| (p.name.as_str(), p.section.as_str())).collect();
    assert_eq!(names, [("first", "xdp"), ("second", "xdp")]);
    let program = object.program("first").unwrap();
    // clang orders maps by their use in functions.
    let mut maps: Vec<_> = program
        .maps
        .iter()
        .map(|m| (m.name.as_str(), m.kind, m.key_bytes, m.value_bytes, m.max_entries, m.flags))
        .filter(|m| !m.0.starts_with('.'))
        .collect();
    maps.sort_by_key(|m| m.0);
    let array = MapKind::Array;
    assert_eq!(
        maps,
        [
            ("counters", array, 4, 8, 8, 0),
            ("flows", MapKind::Hash, 16, 56, 1000, BPF_F_NO_PREALLOC),
            ("ports", MapKind::Devmap, 4, 4, 16, 0),
        ]
    );
    let data = |wanted: &str| program.maps.iter().find(|m| m.name == wanted).unwrap();
    assert_eq!(data(".rodata").flags, BPF_F_RDONLY_PROG | BPF_F_MMAPABLE);
    assert_eq!(data(".rodata").initial.as_deref(), Some(&[10, 0, 0, 0, 20, 0, 0, 0, 30, 0, 0, 0, 40, 0, 0, 0][..]));
    assert_eq!(data(".bss").initial.as_deref(), Some(&[0; 4][..]));
    assert_eq!(data(".data").initial.as_deref(), Some(&[5, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4][..]));
    assert_eq!(program.license, "GPL");
    // `first` calls `weigh`, which calls `bump`; `second` calls `bump` alone.
    assert_eq!((local_calls(program), local_calls(&object.programs[1])), (2, 1));

    let source = format!("{HEAD}{RICH}");
    let source: Vec<&str> = source.lines().collect();
    let mut checked = 0;
    for line in object.programs.iter().flat_map(|p| &p.lines) {
        assert!(line.file.ends_with("source.bpf.c") || line.line == 0, "{line:?}");
        if line.line > 0 {
            assert_eq!(source[line.line as usize - 1], line.text, "{line:?}");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} lines");
    for (text, function) in [("bpf_redirect_map(&ports", 1), ("hidden[data[0] & 3]++", 0), ("limits[bump(", 0)] {
        assert!(object.programs[function].lines.iter().any(|l| l.text.contains(text)), "no line has `{text}`");
    }
    // Loads of maps and data refer to the right ones.
    let redirects = object.programs[1].insns.iter().filter(|i| i.is_wide() && i.src == imm64::MAP);
    let loaded: Vec<_> = redirects.map(|i| object.programs[1].maps[i.imm as usize].name.as_str()).collect();
    assert!(loaded.contains(&"flows") && loaded.contains(&"ports") && loaded.contains(&"counters"), "{loaded:?}");
    let all = object.programs[0].insns.windows(2).filter(|w| w[0].is_wide() && w[0].src == imm64::MAP_VALUE);
    let values: Vec<_> = all.map(|w| (object.programs[0].maps[w[0].imm as usize].name.as_str(), w[1].imm)).collect();
    for place in [(".data", 0), (".data", 8), (".bss", 0), (".rodata", 0)] {
        assert!(values.contains(&place), "{place:?} is not among {values:?}");
    }
}

#[test]
fn maps_come_in_the_order_of_their_places() {
    let test = "maps_come_in_the_order_of_their_places";
    let Some(bytes) = compiled(test, RICH) else { return };
    let scratch = Scratch::new();
    let symbols = match run("llvm-readelf", &["-s", name(&scratch.put("program.o", &bytes))]) {
        Ok(out) => text(&out),
        Err(reason) => return skip(test, &reason),
    };
    let mut places: Vec<(u64, &str)> = Vec::new();
    for map in ["counters", "flows", "ports"] {
        let line = symbols.lines().find(|l| l.ends_with(&format!(" {map}"))).unwrap();
        places.push((u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap(), map));
    }
    places.sort_unstable();
    let expected: Vec<&str> = places.iter().map(|(_, map)| *map).collect();
    let object = open(&bytes);
    let found: Vec<&str> = object.programs[0].maps.iter().take(3).map(|m| m.name.as_str()).collect();
    assert_eq!(found, expected);
}

/// Runs a pinned program on a frame: its return value and the frame after it.
fn test_run(scratch: &Scratch, pin: &str, frame: &[u8]) -> (u32, Vec<u8>) {
    let (input, result) = (scratch.put("frame", frame), scratch.path("after"));
    let said = bpftool(&["prog", "run", "pinned", pin, "data_in", name(&input), "data_out", name(&result)]);
    (said["retval"].as_u64().unwrap() as u32, std::fs::read(result).unwrap())
}

fn contents(pin: &str, wanted: &str) -> String {
    let maps = maps_of(pin);
    let (_, id) = maps.iter().find(|(name, _)| name.ends_with(wanted)).expect("a map of this name");
    let dump = bpftool(&["map", "dump", "id", id]);
    dump.as_array().unwrap().iter().map(|e| e.get("value").unwrap_or(e).to_string()).collect()
}

/// What `bpftool` prints, from JSON.
pub(super) fn bpftool(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&output("bpftool", &[&["-j"], args].concat())).unwrap()
}

/// The names and the ids of the maps of the program at `pin`.
pub(super) fn maps_of(pin: &str) -> Vec<(String, String)> {
    let program = bpftool(&["prog", "show", "pinned", pin]);
    let ids = program["map_ids"].as_array().unwrap().iter().map(ToString::to_string);
    ids.map(|id| (bpftool(&["map", "show", "id", &id])["name"].as_str().unwrap().to_owned(), id)).collect()
}

/// The object from clang and the one that we read and wrote behave equally in the kernel.
fn same_in_the_kernel(test: &str, source: &str, frames: &[Vec<u8>], maps: &[&str]) {
    let Some(bytes) = compiled(test, source) else { return };
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    let ours = write(&open(&bytes).programs[0]).unwrap_or_else(|e| panic!("{e}"));
    let (theirs, _) = scratch.load(&bytes, "theirs");
    let (ours, _) = scratch.load(&ours, "ours");
    let (theirs, ours) = (name(&theirs), name(&ours));
    for frame in frames {
        let (a, b) = (test_run(&scratch, theirs, frame), test_run(&scratch, ours, frame));
        assert_eq!(a, b, "frame {frame:02x?}");
    }
    for map in maps {
        assert_eq!(contents(theirs, map), contents(ours, map), "{map}");
    }
}

#[test]
fn a_rewritten_object_does_the_same_in_the_kernel() {
    let mut rng = Rng::from_env(5);
    let frames: Vec<_> = (0..12).map(|i| rng.bytes(14 + i * 9)).collect();
    let maps = [".data", ".bss", ".rodata", "counters"];
    same_in_the_kernel("a_rewritten_object_does_the_same_in_the_kernel", RICH, &frames, &maps);
}

/// The address of a function, a switch over strings, far data.
const CALLBACK: &str = r#"
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 5);
    __type(key, int);
    __type(value, int);
} table SEC(".maps");
const char words[2][6] = { "north", "south" };
volatile int sum;
struct bpf_map;
static int each(struct bpf_map *map, const int *key, int *value, void *ctx)
{
    sum += *key + words[*key & 1][3];
    return 0;
}
SEC("xdp")
int walk(struct xdp_md *ctx)
{
    bpf_for_each_map_elem(&table, each, 0, 0);
    return sum & 1 ? XDP_PASS : XDP_DROP;
}
char _license[] SEC("license") = "GPL";
"#;

#[test]
fn callbacks_are_carried_over() {
    let test = "callbacks_are_carried_over";
    let Some(bytes) = compiled(test, CALLBACK) else { return };
    let program = &open(&bytes).programs[0];
    let address = program.insns.iter().position(|i| i.is_wide() && i.src == imm64::FUNC).expect("an address");
    let start = address as i32 + 1 + program.insns[address].imm;
    let before = program.insns[start as usize - 1];
    assert_eq!(before.op(), jmp::EXIT, "the function begins behind the end of the program");
    same_in_the_kernel(test, CALLBACK, &[vec![0; 14], vec![1; 60]], &[".bss", ".rodata"]);
}

#[test]
fn unsupported_objects_are_refused_with_their_reason() {
    let test = "unsupported_objects_are_refused_with_their_reason";
    let Some(clang) = Clang::find(test) else { return };
    let map = |fields: &str| {
        format!(
            "{HEAD}struct {{ {fields} }} m SEC(\".maps\");\nSEC(\"xdp\") int f(void *ctx) {{ int k = 0; return \
             !!bpf_map_lookup_elem(&m, &k); }}"
        )
    };
    let cases = [
        (map("__uint(type, BPF_MAP_TYPE_ARRAY); __type(key, int); __type(value, struct nobody);"), "declaration"),
        (map("__uint(max_entries, 1); __type(key, int); __type(value, int);"), "map `m`, `type`: it is missing"),
        (
            map("__uint(type, BPF_MAP_TYPE_HASH); __type(key, int); __type(value, int); __uint(colour, 1);"),
            "field `colour` in the definition of map `m`",
        ),
        (
            map("__uint(type, BPF_MAP_TYPE_HASH); __uint(key_size, 8); __type(key, int); __type(value, int);"),
            "its size is 4 bytes here and 8 bytes before",
        ),
        (
            format!(
                "{HEAD}struct {{ int type, key_size, value_size; }} m SEC(\"maps\") = {{ 1, 4, 4 }};\nSEC(\"xdp\") int \
                 f(void *ctx) {{ int k = 0; return !!bpf_map_lookup_elem(&m, &k); }}"
            ),
            "map `m`, `its place`: it takes 12 bytes, expected 16, 20, 28 or 36",
        ),
        (format!("{HEAD}int f(void *ctx) {{ return 1; }} int g(void *ctx) {{ return 2; }}"), "no program"),
    ];
    for (source, part) in cases {
        let bytes = clang.compile(&source, &["-Wno-error"]).unwrap_or_else(|e| panic!("{e}"));
        let error = read(&bytes, "case.o").map(|_| ()).expect_err(part).to_string();
        assert!(error.starts_with("object `case.o`: ") && error.contains(part), "`{error}` does not say `{part}`");
    }
}

#[test]
fn objects_for_the_hostile_tests_are_real() {
    let Some(bytes) = compiled("objects_for_the_hostile_tests_are_real", RICH) else { return };
    super::hostile::torture(&bytes, 400, 4000, &mut Rng::from_env(9));
}
