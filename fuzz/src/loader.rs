//! The loader on any bytes.

use std::sync::Arc;

use flowloom_bpf::{Interpreter, elf};

/// Reads the bytes as an object. What is read can be judged, and what is written of it is read back as it was. Whether they
/// were an object.
pub fn loader(bytes: &[u8]) -> bool {
    let Ok(object) = elf::read(bytes, "fuzzed.o") else { return false };
    for program in &object.programs {
        let _ = elf::kernel_types(program);
        if let Ok(written) = elf::write(program) {
            let again = elf::read(&written, "written.o").expect("what was written is read");
            assert_eq!(again.programs.first().map(|p| &p.insns), Some(&program.insns), "instructions");
        }
    }
    // One is enough for the check: they share their maps.
    if let Some(program) = object.programs.into_iter().next() {
        // An interpreter takes the memory that the maps want; a large one says nothing about the loader.
        let bytes = |map: &flowloom_bpf::MapDef| {
            u64::from(map.key_bytes.max(map.value_bytes)).saturating_mul(map.max_entries.into())
        };
        if program.maps.iter().map(bytes).fold(0, u64::saturating_add) < 1 << 20 {
            let _ = Interpreter::new(Arc::new(program));
        }
    }
    true
}
