// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects of older compilers: no symbol types, no machine number, explicit addends; and the account of parts in no
//! program.

use flowloom_testkit::{Rng, skip};

use super::compiled::{RICH, compiled, open};
use crate::{Object, read_as, write};
use flowloom_isa::ProgramKind;
use flowloom_testkit::scratch::{Scratch, name, run, text};

const REL: u32 = 9;
const RELA: u32 = 4;

/// A section header and its place in the file.
struct Header {
    at: usize,
    kind: u32,
    executable: bool,
    offset: usize,
    size: usize,
    info: usize,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn long(bytes: &[u8], at: usize) -> usize {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
}

fn headers(bytes: &[u8]) -> Vec<Header> {
    let (table, count) = (long(bytes, 40), usize::from(u16::from_le_bytes(bytes[60..62].try_into().unwrap())));
    let header = |index: usize| {
        let at = table + index * 64;
        Header {
            at,
            kind: word(bytes, at + 4),
            executable: long(bytes, at + 8) & 4 != 0,
            offset: long(bytes, at + 24),
            size: long(bytes, at + 32),
            info: word(bytes, at + 44) as usize,
        }
    };
    (0..count).map(header).collect()
}

/// The offsets of the symbols.
fn symbols(bytes: &[u8]) -> Vec<usize> {
    let table = headers(bytes).into_iter().find(|header| header.kind == 2).expect("a symbol table");
    (table.offset..table.offset + table.size).step_by(24).collect()
}

/// Removes types and sizes from the symbols of functions.
fn untyped(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    for at in symbols(bytes).into_iter().filter(|at| bytes[at + 4] & 0xf == 2) {
        out[at + 4] &= 0xf0;
        out[at + 16..at + 24].fill(0);
    }
    out
}

/// Makes the addends of all relocations explicit, and overwrites the fields.
fn with_addends(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    let all = headers(bytes);
    for header in all.iter().filter(|header| header.kind == REL) {
        let target = &all[header.info];
        let mut table = Vec::new();
        for record in bytes[header.offset..header.offset + header.size].chunks_exact(16) {
            let at = target.offset + long(record, 0);
            let is_abs64 = word(record, 8) == 2;
            let addend = if target.executable {
                let imm = i64::from(word(bytes, at + 4) as i32);
                out[at + 4..at + 8].copy_from_slice(&(if bytes[at] == 0x85 { -1_i32 } else { 0 }).to_le_bytes());
                if bytes[at] == 0x85 { (imm + 1) * 8 } else { imm }
            } else if is_abs64 {
                out[at..at + 8].fill(0xaa);
                long(bytes, at) as i64
            } else {
                out[at..at + 4].fill(0xaa);
                i64::from(word(bytes, at))
            };
            table.extend_from_slice(record);
            table.extend_from_slice(&addend.to_le_bytes());
        }
        let offset = out.len().next_multiple_of(8);
        out.resize(offset, 0);
        out[header.at + 4..header.at + 8].copy_from_slice(&RELA.to_le_bytes());
        for (field, value) in [(24, offset), (32, table.len()), (56, 24)] {
            out[header.at + field..header.at + field + 8].copy_from_slice(&(value as u64).to_le_bytes());
        }
        out.extend(table);
    }
    out
}

/// A map of maps and one of programs with initial contents: addresses in `.maps`.
const HOLDERS: &str = r#"
struct inner { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 2); __type(key, int); __type(value, long); };
struct inner one SEC(".maps"), two SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS); __uint(max_entries, 2); __type(key, int);
         __array(values, struct inner); } outer SEC(".maps") = { .values = { &one, &two } };
int tail(struct xdp_md *ctx);
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 3); __type(key, int);
         __array(values, int (struct xdp_md *)); } jumps SEC(".maps") = { .values = { [2] = tail } };
SEC("xdp") int enter(struct xdp_md *ctx) {
    int k = 1;
    bpf_tail_call(ctx, &jumps, 2);
    return bpf_map_lookup_elem(&outer, &k) ? 1 : 2;
}
SEC("xdp") int tail(struct xdp_md *ctx) { return 3; }
"#;

#[test]
fn untyped_symbols_and_explicit_addends_are_read() {
    let test = "untyped_symbols_and_explicit_addends_are_read";
    for source in [RICH, HOLDERS] {
        let Some(bytes) = compiled(test, source) else { return };
        let expected = open(&bytes);
        assert!(expected.programs.len() > 1 && expected.refused.is_empty());
        let mut machine = untyped(&bytes);
        machine[18] = 0;
        for (what, old) in [
            ("untyped", untyped(&bytes)),
            ("machine 0", machine),
            ("addends", with_addends(&bytes)),
            ("addends, untyped", with_addends(&untyped(&bytes))),
        ] {
            let found = open(&old);
            assert_eq!(found.programs, expected.programs, "{what}");
            assert_eq!((found.refused, found.unread), (Vec::new(), Vec::new()), "{what}");
        }
    }
    let bytes = compiled(test, RICH).unwrap();
    let scratch = Scratch::new();
    match run("llvm-readelf", &["-s", "-r", name(&scratch.put("old.o", &with_addends(&untyped(&bytes))))]) {
        Err(reason) => skip(test, &reason),
        Ok(out) => {
            let said = text(&out);
            let first = said.lines().find(|line| line.ends_with(" first")).expect("a symbol");
            assert!(first.contains("NOTYPE") && first.contains("GLOBAL"), "{said}");
            assert!(said.contains("Addend") && !said.contains("FUNC "), "{said}");
        }
    }
    let mut damaged = with_addends(&untyped(&bytes));
    damaged[18] = 0;
    super::hostile::torture(&damaged, 200, 3000, &mut Rng::from_env(12));
}

/// Basic blocks as symbols, as LLVM 3.7 to 7 emit them, and two static functions.
const BLOCKS: &str = r#"
asm(".section prog,\"ax\",@progbits\n"
    ".globl first\n"
    "first:\n r1 = *(u32 *)(r1 + 0)\n if r1 == 0 goto LBB0_2\n"
    "LBB0_1:\n r0 = 1\n exit\n"
    "LBB0_2:\n r0 = 2\n goto other\n"
    "LBB0_3:\n r0 = 3\n exit\n"
    "other:\n r0 = 4\n exit\n"
    "hidden:\n call helper\n"
    "inside:\n exit\n"
    "helper:\n r0 = 5\n exit\n"
    ".globl last\n"
    "last:\n r0 = 6\n exit\n");
"#;

#[test]
fn blocks_of_old_compilers_are_no_functions() {
    let Some(bytes) = compiled("blocks_of_old_compilers_are_no_functions", BLOCKS) else { return };
    let object = open(&bytes);
    let found: Vec<_> = object.programs.iter().map(|p| (p.name.as_str(), p.insns.len(), p.kind)).collect();
    assert_eq!(
        found,
        [("first", 10, ProgramKind::Xdp), ("hidden", 4, ProgramKind::Xdp), ("last", 2, ProgramKind::Xdp)]
    );
    assert_eq!((object.refused, object.unread), (Vec::new(), Vec::new()));
}

/// Static programs as targets of tail calls, beside a static function that one of them calls.
const STATIC: &str = r#"
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 3); __type(key, int); __type(value, int); }
    jumps SEC(".maps");
static __attribute__((noinline, section("xdp/b"))) int part(struct xdp_md *ctx) { return ctx->data & 1; }
SEC("xdp/a") int enter(struct xdp_md *ctx) { bpf_tail_call(ctx, &jumps, 1); return 0; }
__attribute__((used)) static SEC("xdp/b") int one(struct xdp_md *ctx) { return part(ctx); }
__attribute__((used)) static SEC("xdp/c") int two(struct xdp_md *ctx) { return 2; }
"#;

#[test]
fn static_functions_in_sections_of_programs_are_programs() {
    let test = "static_functions_in_sections_of_programs_are_programs";
    let Some(bytes) = compiled(test, STATIC) else { return };
    let object = open(&bytes);
    let names = |object: &Object| object.programs.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&object), ["enter", "one", "two"]);
    let siblings: Vec<_> = object.programs[0].siblings.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(siblings, ["enter", "one", "two"]);
    assert_eq!(object.unread, []);
}

/// Everything that no program is made of.
const LEFT: &str = r#"
struct { __uint(type, BPF_MAP_TYPE_SOCKMAP); __uint(max_entries, 4); __type(key, int); __type(value, int); }
    socks SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 4); __type(key, int); __type(value, int); }
    unused SEC(".maps");
int table[4] __attribute__((section("mine"))) = { 1 };
const char *names[2] = { "a", "b" };
int number = 7;
__attribute__((used)) static int alone(int x) { return x + 1; }
int global_alone(int x) { return x + 2; }
SEC("xdp") int rx(struct xdp_md *ctx) { return number; }
SEC("?xdp") int off(struct xdp_md *ctx) { return 1; }
SEC("tc") int shaper(struct __sk_buff *skb) { return 0; }
SEC("freplace/x") int replaced(struct xdp_md *ctx) { return 0; }
extern __typeof__(rx) again __attribute__((alias("rx")));
asm(".section gap,\"ax\",@progbits\n r0 = 0\n exit\n.globl after\n.type after,@function\nafter: r0 = 1\n exit\n"
    ".size after, 16\n r0 = 3\n exit\n.section bare,\"ax\",@progbits\n r0 = 0\n exit\n");
int _version SEC("version") = 1;
char _license[] SEC("license") = "GPL";
"#;

#[test]
fn parts_in_no_program_are_listed() {
    let test = "parts_in_no_program_are_listed";
    let Some(bytes) = compiled(test, LEFT) else { return };
    let object = open(&bytes);
    let mut programs: Vec<_> = object.programs.iter().map(|p| p.name.as_str()).collect();
    programs.sort_unstable();
    assert_eq!(programs, ["after", "again", "off", "replaced", "rx", "shaper"]);
    let mut unread: Vec<_> = object.unread.iter().map(ToString::to_string).collect();
    unread.sort();
    assert_eq!(
        unread,
        [
            "code `bare`: 16 bytes without the symbol of a function",
            "code `gap`: 32 bytes from byte 0 on belong to no function",
            "function `alone`: in section `.text`, and no program that is read calls it",
            "function `global_alone`: in section `.text`, and no program that is read calls it",
            "map `socks`: no program uses it, and its kind is sockmap",
            "section `mine`: 16 bytes: loaders give a section of this name no meaning; data stands in `.data`, `.rodata` \
             or `.bss`",
        ]
    );
    for part in ["program `off`: section `?xdp` asks loaders to leave it out", "is to hold the address of `.rodata"] {
        assert!(object.notes.iter().any(|note| note.contains(part)), "`{part}` is not in {:?}", object.notes);
    }
    // An unused map of a supported kind is part of the function: user space may use it.
    let rx = object.program("rx").unwrap();
    assert!(rx.maps.iter().any(|map| map.name == "unused") && !rx.maps.iter().any(|map| map.name == "socks"));
}

const KINDS: &str = r#"
SEC("from-netdev") int cilium(struct xdp_md *ctx) { return 2; }
SEC("from-container") int shaper(struct __sk_buff *skb) { return 0; }
SEC("tc") int plain(void *ctx) { return 0; }
SEC("freplace/f") int replaced(struct xdp_md *ctx) { return 0; }
SEC("xdp_first") int first(void *ctx) { return 2; }
SEC("xdp/devmap") int out(struct xdp_md *ctx) { return 2; }
"#;

#[test]
fn the_argument_type_overrides_the_section() {
    let Some(bytes) = compiled("the_argument_type_overrides_the_section", KINDS) else { return };
    let kinds = |object: &Object| object.programs.iter().map(|p| (p.name.clone(), p.kind)).collect::<Vec<_>>();
    let (xdp, tc) = (ProgramKind::Xdp, ProgramKind::Other("sched_cls"));
    let expect = |all: [ProgramKind; 6]| {
        let names = ["cilium", "shaper", "plain", "replaced", "first", "out"];
        names.into_iter().map(str::to_owned).zip(all).collect::<Vec<_>>()
    };
    let object = open(&bytes);
    let ext = ProgramKind::Other("ext");
    assert_eq!(kinds(&object), expect([xdp, tc, tc, ext, xdp, ProgramKind::XdpDevmap]));
    let notes: Vec<_> = object.notes.iter().filter(|note| note.contains("is taken as")).collect();
    assert_eq!(
        notes,
        [
            "program `cilium`: section `from-netdev` stands for sched_cls, its argument is `struct xdp_md *`: it is taken as \
          xdp"
        ]
    );
    // Written again, it is in a section that loaders recognise.
    let written = open(&write(object.program("cilium").unwrap()).unwrap());
    assert_eq!((written.programs[0].section.as_str(), written.programs[0].kind), ("xdp", xdp));
    let none = || Err("no types here".to_owned());
    let forced = read_as(&bytes, "old.o", &none, Some(xdp)).unwrap();
    assert_eq!(kinds(&forced), expect([xdp, xdp, xdp, xdp, xdp, ProgramKind::XdpDevmap]));
}

/// Maps in `maps` of many sizes.
const SIZES: &str = r#"
struct four { unsigned type, key, value, entries; } four SEC("maps") = { 1, 4, 8, 16 };
struct five { struct four base; unsigned flags; } five SEC("maps") = { { 1, 4, 8, 5 }, 1 };
struct six { struct five base; unsigned id; } six SEC("maps") = { { { 2, 4, 8, 6 }, 0 }, 3 };
struct long_one { struct five base; unsigned pinning; char space[256]; } long_one SEC("maps") =
    { { { 2, 4, 8, 7 }, 0 }, 2, "globals" };
SEC("xdp") int f(struct xdp_md *ctx) {
    int k = 0;
    return !bpf_map_lookup_elem(&four, &k) + !bpf_map_lookup_elem(&five, &k) + !bpf_map_lookup_elem(&six, &k) +
           !bpf_map_lookup_elem(&long_one, &k);
}
"#;

#[test]
fn old_definitions_of_all_lengths_are_read() {
    let Some(bytes) = compiled("old_definitions_of_all_lengths_are_read", SIZES) else { return };
    let object = open(&bytes);
    let mut maps: Vec<_> = object.programs[0].maps.iter().map(|m| (m.name.as_str(), m.max_entries, m.flags)).collect();
    maps.sort_unstable();
    assert_eq!(maps, [("five", 5, 1), ("four", 16, 0), ("long_one", 7, 0), ("six", 6, 0)]);
    for map in ["six", "long_one"] {
        let part = format!("map `{map}`: of its definition the first 20 bytes are read");
        assert!(object.notes.iter().any(|note| note.starts_with(&part)), "{:?}", object.notes);
    }
}

#[test]
fn damaged_types_are_ignored_if_no_map_needs_them() {
    let test = "damaged_types_are_ignored_if_no_map_needs_them";
    let Some(mut bytes) = compiled(test, SIZES) else { return };
    let magic: Vec<usize> = (0..bytes.len() - 8).filter(|at| bytes[*at..at + 4] == [0x9f, 0xeb, 1, 0]).collect();
    assert_eq!(magic.len(), 2, "types and lines");
    bytes[magic[0]] = 0;
    let object = open(&bytes);
    assert_eq!((object.programs.len(), object.programs[0].lines.len()), (1, 0));
    assert!(object.notes.iter().any(|note| note.starts_with("section `.BTF` is damaged")), "{:?}", object.notes);
    (bytes[magic[0]], bytes[magic[1]]) = (0x9f, 0);
    let object = open(&bytes);
    assert!(object.notes.iter().any(|note| note.starts_with("section `.BTF.ext` is damaged")), "{:?}", object.notes);
}
