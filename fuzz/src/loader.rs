// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fuzz target: runs the loader on arbitrary bytes.

use std::sync::{Arc, OnceLock};

use flowloom_isa::Program;
use flowloom_isa::btf::{Btf, BtfError, Builder, Composite, Member, Type, TypeId};
use flowloom_object::KernelTypeIndex;
use flowloom_vm::Interpreter;

/// True if a program of the object has more than 5 CO-RE relocations that the fuzzer's kernel types resolve.
#[allow(dead_code, reason = "a test asks for it, the fuzzer does not")]
pub fn is_adapted(bytes: &[u8]) -> bool {
    let object = flowloom_object::read_with(bytes, "seed.o", &|| Ok(Arc::clone(kernel())));
    object.is_ok_and(|object| object.programs.iter().any(|program| program.adapted > 5))
}

/// Reads the bytes as an object, without and with kernel types. Programs can be checked, and reading a written program
/// gives the same instructions. Returns true if the bytes are an object.
pub fn loader(bytes: &[u8]) -> bool {
    let Ok(object) = flowloom_object::read(bytes, "fuzzed.o") else { return false };
    for program in &object.programs {
        let _ = flowloom_object::kernel_types(program);
        comes_back(program);
    }
    // One program suffices, since all share their maps. A program that is accepted has bounded map sizes.
    if let Some(program) = object.programs.into_iter().next() {
        let _ = Interpreter::new(Arc::new(program));
    }
    // Read the same object with kernel types.
    let adapted = flowloom_object::read_with(bytes, "fuzzed.o", &|| Ok(Arc::clone(kernel())));
    for program in adapted.iter().flat_map(|object| &object.programs).filter(|program| program.adapted > 0) {
        comes_back(program);
    }
    true
}

fn comes_back(program: &Program) {
    if let Ok(written) = flowloom_object::write(program) {
        let again = flowloom_object::read(&written, "written.o").expect("what was written is read");
        assert_eq!(again.programs.first().map(|p| &p.insns), Some(&program.insns), "instructions");
    }
}

/// Kernel types that the seeds refer to: at other offsets and sizes, with duplicates, or out of range.
fn kernel() -> &'static Arc<KernelTypeIndex> {
    static KERNEL: OnceLock<Arc<KernelTypeIndex>> = OnceLock::new();
    KERNEL.get_or_init(|| {
        let bytes = kernel_types().and_then(|types| types.emit()).expect("types of our own");
        Arc::new(KernelTypeIndex::parse(&bytes).expect("types of our own"))
    })
}

fn kernel_types() -> Result<Btf, BtfError> {
    let mut b = Builder::default();
    let names = ["int", "short", "long", "char", "u32", "colour", "RED", "GREEN", "part", "value", "thing", "numbers"];
    let [int, short, long, char, u32_, colour, red, green, part, value, thing, numbers] =
        names.map(|name| b.string(name));
    let names = ["bits", "next", "wide", "many", "task_struct", "x", "y", "xdp_md", "data", "data_end", "pad"];
    let [bits, next, wide, many, task, x, y, xdp_md, data, data_end, pad] = names.map(|name| b.string(name));
    let number = |name, size_bytes: u32, encoding| Type::Int {
        name,
        size_bytes,
        encoding,
        offset_bits: 0,
        bits: size_bytes as u8 * 8,
    };
    let int = b.add(number(int?, 4, 1));
    let short = b.add(number(short?, 2, 1));
    let long = b.add(number(long?, 8, 1));
    let char = b.add(number(char?, 1, 0));
    let word = b.add(number(u32_?, 4, 0));
    b.add(Type::Enum { name: colour?, size_bytes: 4, signed: true, values: vec![(green?, 7), (red?, -3)] });
    let member = |name, of, offset_bits, width_bits| Member { name, of, offset_bits, width_bits };
    let structure =
        |name, size_bytes, bitfields, members| Type::Struct(Composite { name, size_bytes, bitfields, members });
    let part = b.add(structure(part?, 4, false, vec![member(value?, short, 16, 0)]));
    let eight = b.add(Type::Array { element: int, index: int, count: 8 });
    let any = b.add(Type::Array { element: part, index: int, count: 0 });
    // Points to the structure that follows.
    let next_id = TypeId(b.next_id().0 + 1);
    let pointer = b.add(Type::Ptr(next_id));
    let (thing, bits) = (thing?, bits?);
    let members = vec![
        member(numbers?, eight, 64, 0),
        member(pad?, part, 320, 0),
        member(bits, word, 357, 9),
        member(next?, pointer, 384, 0),
        member(wide?, word, 448, 0),
        member(many?, any, 480, 0),
    ];
    b.add(structure(thing, 64, true, members));
    // Another structure of the same name.
    b.add(structure(thing, 8, true, vec![member(bits, long, 3, 9)]));
    let vast = b.add(Type::Array { element: char, index: int, count: u32::MAX });
    b.add(structure(task?, u32::MAX, false, vec![member(x?, vast, 0, 0), member(y?, char, u32::MAX, 0)]));
    b.add(structure(xdp_md?, 24, false, vec![member(data_end?, word, 32, 0), member(data?, word, 0, 0)]));
    Ok(b.finish())
}
