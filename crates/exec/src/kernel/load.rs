//! Into the kernel: maps with their types, then programs on them.
//!
//! ```text
//!  Program ──kernel_types──► BTF ──► maps ──► instructions with descriptors ──► verifier ──► XDP program
//! ```
//!
//! A loader of our own rather than a library's, because several programs share one set of maps: those of the interfaces of a
//! function differ in a constant, those that sweep in all but the tables.

use std::os::fd::{AsFd, OwnedFd};

use flowloom_bpf::elf::{KernelTypes, kernel_types};
use flowloom_bpf::insn::{call, class, imm64, jmp};
use flowloom_bpf::{BPF_F_RDONLY_PROG, Insn, Program, helpers};

use super::verifier;
use crate::error::ExecError;
use crate::sys::RawMap;
use crate::sys::program::{self, RawProgram, Refusal};

/// XDP programs have this section in objects, whatever theirs was.
const SECTION: &str = "xdp";

/// The maps of a program, in its order, with what they began with.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) raw: Vec<RawMap>,
    types: KernelTypes,
    btf: OwnedFd,
}

fn typed(program: &Program) -> Result<(KernelTypes, OwnedFd), ExecError> {
    let program = Program { section: SECTION.to_owned(), ..program.clone() };
    let types = kernel_types(&program)
        .map_err(|source| ExecError::Object { program: program.name.clone(), source: Box::new(source) })?;
    let btf = program::load_btf(&types.btf).map_err(fails(&program, "take the types"))?;
    Ok((types, btf))
}

fn fails(program: &Program, action: impl Into<String>) -> impl FnOnce(std::io::Error) -> ExecError {
    let (program, action) = (program.name.clone(), action.into());
    move |source| ExecError::Load { program, action, source }
}

impl Maps {
    /// Makes the maps of `program`.
    ///
    /// # Errors
    /// The types or a map are refused; the system has no room or no right for them.
    pub(crate) fn create(program: &Program) -> Result<Maps, ExecError> {
        let (types, btf) = typed(program)?;
        let mut raw = Vec::with_capacity(program.maps.len());
        for (def, types) in program.maps.iter().zip(&types.maps) {
            let made = RawMap::create(def, btf.as_fd(), *types);
            let map = made.map_err(fails(program, format!("make map `{}`", def.name)))?;
            if let Some(initial) = &def.initial {
                let filled = map.update(&[0; 4], initial);
                filled.map_err(fails(program, format!("fill map `{}`", def.name)))?;
                if def.flags & BPF_F_RDONLY_PROG != 0 {
                    map.freeze().map_err(fails(program, format!("freeze map `{}`", def.name)))?;
                }
            }
            for (key, value) in def.layout.iter().flat_map(|layout| &layout.preloaded) {
                map.update(key, value).map_err(fails(program, format!("fill map `{}`", def.name)))?;
            }
            raw.push(map);
        }
        Ok(Maps { raw, types, btf })
    }

    /// Loads the program that the maps were made for.
    ///
    /// # Errors
    /// It calls a helper that no kernel has; the verifier refuses it, in which case the error names the source line and
    /// carries the log; or the system has no room or no right for it.
    pub(crate) fn load(&self, program: &Program) -> Result<RawProgram, ExecError> {
        self.load_typed(program, &self.types, self.btf.as_fd())
    }

    /// Loads another program on the same maps.
    ///
    /// # Errors
    /// As for [`Maps::load`].
    pub(crate) fn load_other(&self, program: &Program) -> Result<RawProgram, ExecError> {
        let (types, btf) = typed(program)?;
        self.load_typed(program, &types, btf.as_fd())
    }

    /// Loads another program on the same maps without a word about its functions and lines: what is wrong with its
    /// instructions is then found by the verifier alone.
    #[cfg(test)]
    pub(crate) fn load_untyped(&self, program: &Program) -> Result<RawProgram, ExecError> {
        let types = KernelTypes { functions: Vec::new(), lines: Vec::new(), ..self.types.clone() };
        self.load_typed(program, &types, self.btf.as_fd())
    }

    fn load_typed(
        &self,
        program: &Program,
        types: &KernelTypes,
        btf: std::os::fd::BorrowedFd<'_>,
    ) -> Result<RawProgram, ExecError> {
        let insns = self.with_descriptors(program)?;
        program::load(&program.name, &program.license, &insns, types, btf).map_err(|Refusal { error, log }| {
            if log.is_empty() {
                return fails(program, "load the program")(error);
            }
            ExecError::Refused(Box::new(verifier::refused(program, log, error)))
        })
    }

    /// The instructions with descriptors in the place of map numbers.
    fn with_descriptors(&self, program: &Program) -> Result<Vec<Insn>, ExecError> {
        let mut insns = program.insns.clone();
        let mut at = 0;
        while let Some(insn) = insns.get_mut(at) {
            let slots = insn.slots();
            if insn.is_wide() && matches!(insn.src, imm64::MAP | imm64::MAP_VALUE) {
                let number = insn.imm;
                let map = usize::try_from(number).ok().and_then(|number| self.raw.get(number));
                insn.imm = map.map(RawMap::number).ok_or_else(|| ExecError::Loaded {
                    program: program.name.clone(),
                    what: format!("the map that instruction {at} names"),
                    found: format!("number {number}"),
                    expected: format!("a number below {}", self.raw.len()),
                })?;
            }
            let is_helper = insn.class() == class::JMP && insn.op() == jmp::CALL && insn.src == call::HELPER;
            if is_helper && helpers::is_private(insn.imm) {
                let helper = helpers::name_of(insn.imm).unwrap_or("of Flowloom's own");
                let line = program.line_of(at).cloned().map(Box::new);
                return Err(ExecError::Private { program: program.name.clone(), helper, line });
            }
            at += slots;
        }
        Ok(insns)
    }
}
