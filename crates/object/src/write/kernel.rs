// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The types of a program for bpf(2), for our own loader without an object in between.
//!
//! Goal: what libbpf makes of `.BTF` and `.BTF.ext`: one blob of types, the type of each function and each map, a
//! source line for each place, all counted in instructions.

use super::types::{Types, is_typed};
use super::{WriteError, check_data, check_lines, check_map, line_records};
use crate::code;
use flowloom_isa::btf::TypeId;
use flowloom_isa::{GlobalFunction, Program};

/// The types of a program and its maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTypes {
    /// The argument of BPF_BTF_LOAD.
    pub btf: Vec<u8>,
    /// The first instruction and the type of each function.
    pub functions: Vec<(u32, TypeId)>,
    /// `struct bpf_line_info` of each source line: instruction, offset of the file name, offset of the text, line and
    /// column. Empty if the program has no lines.
    pub lines: Vec<[u32; 4]>,
    /// The types of key and value of each map; none for maps for which the kernel accepts none.
    pub maps: Vec<Option<(TypeId, TypeId)>>,
}

/// The types of `program`, for BPF_BTF_LOAD, BPF_MAP_CREATE and BPF_PROG_LOAD.
///
/// # Errors
/// As for [`super::write()`].
pub fn kernel_types(program: &Program) -> Result<KernelTypes, WriteError> {
    types_of(program, &[])
}

/// The types of `program` as in [`kernel_types`], with its global functions declared global: the kernel then verifies
/// each separately, as it does for libbpf.
///
/// # Errors
/// As for [`kernel_types`].
pub fn declared_types(program: &Program) -> Result<KernelTypes, WriteError> {
    types_of(program, &program.globals)
}

fn types_of(program: &Program, globals: &[GlobalFunction]) -> Result<KernelTypes, WriteError> {
    let ranges =
        code::split(&program.insns).map_err(|source| WriteError::Code { program: program.name.clone(), source })?;
    super::check_name(program)?;
    check_lines(program)?;
    let mut types = Types::default();
    let mut functions = Vec::with_capacity(ranges.len());
    let mut lines = Vec::new();
    for (number, range) in ranges.iter().enumerate() {
        let name = if number > 0 { format!("{}_{number}", program.name) } else { program.name.clone() };
        let of = match globals.iter().find(|function| number > 0 && function.slot == range.start) {
            Some(function) => types.global(function, &program.section)?,
            None => types.function(&name, &program.section, number > 0)?,
        };
        functions.push((range.start as u32, of));
        for (at, line) in line_records(program, range) {
            let [file, text] = [types.string(&line.file)?, types.string(&line.text)?];
            lines.push([at as u32, file.0, text.0, line.line << 10 | super::column(line)]);
        }
    }
    let mut maps = Vec::with_capacity(program.maps.len());
    for map in &program.maps {
        match &map.initial {
            Some(initial) => drop(check_data(map, initial)?),
            None => check_map(map)?,
        }
        maps.push(if is_typed(map) { Some(types.key_and_value(map)?) } else { None });
    }
    Ok(KernelTypes { btf: types.finish().emit()?, functions, lines, maps })
}
