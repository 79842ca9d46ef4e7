// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects and a kernel whose types differ from theirs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::cell::Cell;

use flowloom_testkit::{Rng, skip};

use super::*;
use crate::tests::compiled::{compiled, compiled_as};
use crate::tests::hostile::{damage, torture_with};
use crate::{Object, names, read_with};
use flowloom_isa::disasm;

/// The kernel of the tests; its fields have other offsets than those of the objects.
const KERNEL: &str = r#"
enum colour { GREEN = 7, BLUE = -3, RED = 1 };
enum large { LARGE = 0x123456789abcLL };
struct part { char pad; short value; };
struct thing {
    long before;
    union { struct { int pad; unsigned short narrow; }; long other; };
    int numbers[8];
    struct part part;
    unsigned int bits : 5, more : 9;
    struct thing *next;
    unsigned int wide;
    int minus;
    struct part many[];
};
struct twice { int a, b; };
typedef int number;
struct thing t; enum colour c; enum large l; number n; struct twice w;
int use(void) { return sizeof(t) + sizeof(w) + c + l + n; }
"#;

const HEAD: &str = r#"
#define CORE __attribute__((preserve_access_index))
enum colour { RED = 10, GREEN = 11, PINK = 12 };
enum large { LARGE = 1ULL << 40 };
struct part { short value; } CORE;
struct thing {
    unsigned short narrow;
    int numbers[4];
    struct part part;
    unsigned int more : 9;
    struct thing *next;
    unsigned long wide;
    long minus;
    int missing;
    struct part many[2];
} CORE;
struct thing___old { int gone; struct part part; } CORE;
struct nobody { int x; } CORE;
"#;

fn types(source: &str, test: &str) -> Option<Vec<u8>> {
    let bytes = compiled_as(test, source)?;
    let mut budget = crate::container::Budget::new();
    let container = crate::container::Container::parse(&bytes, &mut budget).unwrap();
    let (_, section) = container.named(names::BTF).unwrap().unwrap();
    Some(section.bytes.to_vec())
}

fn adapted(test: &str, body: &str) -> Option<Object> {
    let kernel = Arc::new(KernelTypeIndex::parse(&types(KERNEL, test)?).unwrap());
    let bytes = compiled(test, &format!("{HEAD}{body}"))?;
    Some(read_with(&bytes, "adapted.o", &|| Ok(Arc::clone(&kernel))).unwrap_or_else(|e| panic!("{e}")))
}

/// Programs of one expression each, as `NAME: EXPRESSION`, and the result: instructions, or the unresolved reference.
const CASES: [(&str, &str, &str); 28] = [
    ("narrow", "return t->narrow;", "w0 = *(u16 *)(r1 + 12)"),
    ("number", "return t->numbers[2];", "w0 = *(u32 *)(r1 + 24)"),
    ("part", "return t->part.value;", "w0 = *(u16 *)(r1 + 50)"),
    ("next", "return t->next->next != 0;", "r1 = *(u64 *)(r1 + 56)"),
    ("many", "return t->many[1].value;", "w0 = *(u16 *)(r1 + 78)"),
    ("wide", "return t->wide;", "r0 = *(u32 *)(r1 + 64)"),
    ("minus", "return t->minus;", "`thing.minus`: the kernel's has a length or place"),
    ("missing", "return t->missing;", "offset of `thing.missing`: the kernel has none"),
    ("element", "return OFFSET(t->numbers[5]);", "w0 = 36"),
    ("asked", "return EXISTS(t->missing) ? t->missing : 3;", "w0 = 3"),
    ("there", "return EXISTS(t->narrow);", "w0 = 1"),
    ("size", "return SIZE(t->wide);", "w0 = 4"),
    ("signs", "return SIGNED(t->minus);", "w0 = 1"),
    ("unsigned_", "return SIGNED(t->narrow);", "w0 = 0"),
    ("left", "return INFO(t->more, 4);", "w0 = 50"),
    ("right", "return INFO(t->more, 5);", "w0 = 55"),
    ("bits", "return OFFSET(t->more);", "w0 = 52"),
    ("thing", "return TYPE(struct thing, 0);", "w0 = 1"),
    ("nobody", "return TYPE(struct nobody, 0);", "w0 = 0"),
    ("type_size", "return TYPE(struct thing, 1);", "w0 = 72"),
    ("type_of_none", "return TYPE(struct nobody, 1);", "w0 = 0"),
    ("number_of_none", "return __builtin_btf_type_id(*(struct nobody *)0, 1);", "r0 = 0x0 ll"),
    ("red", "return VALUE(enum colour, RED, 1);", "r0 = 0x1 ll"),
    ("green", "return VALUE(enum colour, GREEN, 1);", "r0 = 0x7 ll"),
    ("pink", "return VALUE(enum colour, PINK, 0);", "r0 = 0x0 ll"),
    ("pinker", "return VALUE(enum colour, PINK, 1);", "value of `colour::PINK`: the kernel has none"),
    ("old", "return ((struct thing___old *)t)->part.value;", "w0 = *(u16 *)(r1 + 50)"),
    ("gone", "return ((struct thing___old *)t)->gone;", "offset of `thing.gone`: the kernel has none"),
];

const MACROS: &str = r#"
#define INFO(field, kind) __builtin_preserve_field_info(field, kind)
#define OFFSET(field) INFO(field, 0)
#define SIZE(field) INFO(field, 1)
#define EXISTS(field) INFO(field, 2)
#define SIGNED(field) INFO(field, 3)
#define TYPE(type, kind) __builtin_preserve_type_info(*(type *)0, kind)
#define VALUE(type, value, kind) __builtin_preserve_enum_value(*(typeof(type) *)value, kind)
"#;

fn cases() -> String {
    let program = |(name, body, _)| format!("SEC(\"xdp\") long {name}(struct thing *t) {{ {body} }}\n");
    MACROS.to_owned() + &CASES.map(program).concat()
}

#[test]
fn fields_types_and_values_are_those_of_the_kernel() {
    let test = "fields_types_and_values_are_those_of_the_kernel";
    let Some(object) = adapted(test, &cases()) else { return };
    assert_eq!(object.refused, []);
    for (name, body, expected) in CASES {
        let program = object.program(name).unwrap();
        let code = disasm::disassemble(&program.insns, &program.maps).unwrap();
        let unresolved: Vec<String> =
            program.unresolved.iter().map(|unresolved| unresolved.reference.to_string()).collect();
        // The unresolved reference is the expected one, and no kernel runs the instruction.
        let found = if unresolved.is_empty() { code.clone() } else { unresolved.join("; ") };
        let is_same = |line: &str| line.trim() == expected || line.trim() == expected.replacen('w', "r", 1);
        let fits = if unresolved.is_empty() { code.lines().any(is_same) } else { found.contains(expected) };
        assert!(fits, "`{body}` is `{found}`, expected `{expected}`");
        assert_eq!(code.contains("195896080"), !unresolved.is_empty(), "{code}");
        // The only finding is the unresolved reference, whether the instruction has one slot or two.
        let said = flowloom_vm::Interpreter::new(Arc::new(program.clone())).map_or_else(|e| e.findings.len(), |_| 0);
        assert_eq!(said, unresolved.len(), "{name}");
    }
}

#[test]
fn without_kernel_types_relocations_are_unresolved() {
    let test = "without_kernel_types_relocations_are_unresolved";
    let body = "SEC(\"xdp\") long f(struct thing *t) { return t->narrow; }\nSEC(\"xdp\") int g(void *c) { return 2; }";
    let Some(bytes) = compiled(test, &format!("{HEAD}{body}")) else { return };
    let object = read_with(&bytes, "x.o", &|| Err("no kernel here".to_owned())).unwrap();
    let unresolved: Vec<String> =
        object.programs[0].unresolved.iter().map(|unresolved| unresolved.reference.to_string()).collect();
    assert_eq!(unresolved, ["adaptation to the types of the kernel: offset of `thing.narrow`: no kernel here"]);
    assert_eq!(object.programs[1].unresolved, []);
}

/// The running kernel.
#[test]
fn relocations_against_the_running_kernel_give_known_offsets() {
    let test = "relocations_against_the_running_kernel_give_known_offsets";
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else { return skip(test, "the kernel tells no types") };
    let clock = std::time::Instant::now();
    let kernel = Arc::new(KernelTypeIndex::parse(&bytes).unwrap());
    eprintln!("{} bytes of types in {:?}", bytes.len(), clock.elapsed());
    let source = r#"
#define CORE __attribute__((preserve_access_index))
#define SEC(name) __attribute__((section(name), used))
typedef unsigned int u32; typedef unsigned short u16; typedef unsigned char u8;
struct xdp_md { u32 rx_queue_index, data_end, data; } CORE;
struct ethhdr { u16 h_proto; } CORE;
struct iphdr { u32 daddr; u8 protocol; } CORE;
SEC("xdp") int f(struct xdp_md *ctx) {
    char *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (data + 34 > end)
        return 1;
    struct ethhdr *eth = (void *)data;
    struct iphdr *ip = (void *)(data + 14);
    return eth->h_proto == 8 && ip->protocol == 6 && ip->daddr ? 2 : 0;
}
"#;
    let Some(bytes) = compiled_as(test, source) else { return };
    let object = read_with(&bytes, "x.o", &|| Ok(Arc::clone(&kernel))).unwrap();
    let program = &object.programs[0];
    assert_eq!((program.unresolved.len(), program.adapted), (0, 5));
    let code = disasm::disassemble(&program.insns, &program.maps).unwrap();
    for load in ["(r1 + 0)", "(r1 + 4)", " + 12)", " + 9)", " + 16)"] {
        assert!(code.contains(load), "no load of `{load}`:\n{code}");
    }
}

#[test]
fn names_lose_their_flavour() {
    for (name, expected) in [
        ("task_struct", "task_struct"),
        ("task_struct___old", "task_struct"),
        ("a___b___c", "a___b"),
        ("a____b", "a____b"),
        ("___b", "___b"),
        ("a___", "a___"),
    ] {
        assert_eq!(essential(name.as_bytes()), expected.as_bytes(), "{name}");
    }
}

#[test]
fn damaged_objects_and_kernels_do_not_panic() {
    let test = "damaged_objects_and_kernels_do_not_panic";
    let mut rng = Rng::from_env(7);
    let source = format!("{HEAD}{}", cases());
    let (Some(bytes), Some(kernel)) = (compiled(test, &source), types(KERNEL, test)) else { return };
    let whole = Arc::new(KernelTypeIndex::parse(&kernel).unwrap());
    let reached = Cell::new(0);
    let outcomes = torture_with(&bytes, 100, 3000, &mut rng, &|bytes| {
        let object = read_with(bytes, "x", &|| Ok(Arc::clone(&whole)))?;
        let is_of_access = object.refused.iter().any(|refused| refused.fault.to_string().contains("adaptation"));
        reached.set(reached.get() + usize::from(is_of_access));
        Ok(object)
    });
    assert!(outcomes.contains_key("read") && reached.get() > 5, "{} wrong accesses: {outcomes:#?}", reached.get());
    let (mut read, mut unresolved) = (0, 0);
    for _ in 0..3000 {
        let mut damaged = kernel.clone();
        for _ in 0..1 + rng.below(3) {
            damage(&mut damaged, &mut rng);
        }
        let Ok(types) = KernelTypeIndex::parse(&damaged) else { continue };
        let types = Arc::new(types);
        let Ok(object) = read_with(&bytes, "x", &|| Ok(Arc::clone(&types))) else { continue };
        read += 1;
        unresolved += usize::from(object.programs.iter().any(|program| program.unresolved.len() > 1));
    }
    assert!(read > 100 && unresolved > 10, "{read} kernels were read, {unresolved} of them without some type");
}
