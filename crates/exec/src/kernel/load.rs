// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads into the kernel: maps with their types, then programs on them.
//!
//! ```text
//!  Program ──kernel_types──► BTF ──► maps ──► instructions with descriptors ──► verifier ──► XDP program
//! ```
//!
//! This is a loader of our own, because several programs share one set of maps: those of the interfaces of a function
//! differ in a constant, those that sweep in everything but the tables.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use flowloom_isa::insn::{call, class, imm64, jmp};
use flowloom_isa::{BPF_F_RDONLY_PROG, Insn, MapDef, MapKind, Member, Program, ProgramKind, Sibling, helpers};
use flowloom_object::{KernelTypes, WriteError, declared_types, kernel_types};

use super::sizes::{self, MapPurpose};
use super::verifier;
use crate::error::ExecError;
use crate::sys::program::{self, Purpose, RawProgram, Refusal};
use crate::sys::{RawMap, cpu};

/// The section of XDP programs in objects, whatever theirs was.
const SECTION: &str = "xdp";

/// The prefix of sections of programs that accept multi-buffer packets.
const FRAGS: &str = "xdp.frags";

/// The created maps of a program, in its order, with their initial contents.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) raw: Vec<Arc<RawMap>>,
    /// The definitions with which they were created.
    made: Vec<MapDef>,
    types: KernelTypes,
    btf: OwnedFd,
}

/// A map taken over from another program.
#[derive(Debug)]
pub(crate) struct Kept {
    def: MapDef,
    raw: Arc<RawMap>,
}

/// The map that a program takes over instead of creating one: by its number, and the definition for the purpose.
pub(crate) type Taken<'a> = &'a dyn Fn(usize, &MapDef) -> Option<Arc<RawMap>>;

/// Those among `kept` whose definitions are the same.
pub(crate) fn same_among(kept: &[Kept]) -> impl Fn(usize, &MapDef) -> Option<Arc<RawMap>> {
    move |_, def| kept.iter().find(|kept| kept.def == *def).map(|kept| Arc::clone(&kept.raw))
}

/// None: all maps are created.
pub(crate) fn none_taken(_: usize, _: &MapDef) -> Option<Arc<RawMap>> {
    None
}

fn typed(program: &Program) -> Result<(KernelTypes, OwnedFd), ExecError> {
    typed_by(kernel_types, program)
}

fn typed_by(
    types_of: fn(&Program) -> Result<KernelTypes, WriteError>,
    program: &Program,
) -> Result<(KernelTypes, OwnedFd), ExecError> {
    let program = Program { section: SECTION.to_owned(), ..program.clone() };
    let types = types_of(&program)
        .map_err(|source| ExecError::Object { program: program.name.clone(), source: Box::new(source) })?;
    let btf = program::load_btf(&types.btf).map_err(fails(&program, "load the BTF"))?;
    Ok((types, btf))
}

pub(super) fn fails(program: &Program, action: impl Into<String>) -> impl FnOnce(std::io::Error) -> ExecError {
    let (program, action) = (program.name.clone(), action.into());
    move |source| ExecError::Load { program, action, source }
}

fn template(
    program: &Program,
    def: &MapDef,
    made: &[Option<Arc<RawMap>>],
    definition_for: &dyn Fn(&MapDef) -> MapDef,
) -> io::Result<Option<Arc<RawMap>>> {
    if !def.kind.is_of_maps() {
        return Ok(None);
    }
    let first = def.members.iter().find_map(|(_, member)| match member {
        Member::Map(index) => made.get(*index).cloned().flatten(),
        Member::Program(_) => None,
    });
    let Some(inner) = &def.inner else {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, "it does not define its inner maps");
        return first.map(Some).ok_or_else(unknown);
    };
    // One of the program's own, if it matches, because it has types, which a lock needs.
    let shape = |map: &MapDef| (map.kind, map.key_bytes, map.value_bytes, map.max_entries, map.flags, map.spin_lock);
    let same = program.maps.iter().position(|map| shape(map) == shape(inner));
    match same.and_then(|index| made[index].clone()) {
        Some(map) => Ok(Some(map)),
        None => RawMap::create_untyped(&definition_for(inner)).map(|map| Some(Arc::new(map))),
    }
}

pub(crate) fn sibling_program(program: &Program, sibling: &Sibling) -> Program {
    Program {
        name: sibling.name.clone(),
        section: sibling.section.clone(),
        insns: sibling.insns.clone(),
        lines: sibling.lines.clone(),
        kind: ProgramKind::of_section(&sibling.section).unwrap_or_default(),
        maps: program.maps.clone(),
        license: program.license.clone(),
        ..Program::default()
    }
}

/// Asks the kernel's verifier about a program with maps of its own: nothing is rewritten, and it does not stay loaded.
/// Its global functions are declared global, as in the object, so the kernel verifies each separately.
///
/// A program whose instructions do not form functions is shown without types of functions and without source lines, as
/// from an assembler: its errors are then the kernel's finding, not ours.
///
/// # Errors
/// [`ExecError::Refused`] with the verifier's message; [`ExecError::Load`] if the kernel refuses it before
/// verification; other errors if the kernel could not be asked.
pub fn verify_in_kernel(program: &Program) -> Result<(), ExecError> {
    // Creating the maps takes only the name and the licence of the program.
    let exit = Insn { code: class::JMP | jmp::EXIT, ..Insn::default() };
    let bare = Program {
        insns: vec![exit],
        lines: Vec::new(),
        unresolved: Vec::new(),
        globals: Vec::new(),
        ..program.clone()
    };
    on_small_maps(program, |purpose| verify_on(program, &bare, purpose))
}

/// Asks for a verdict on small maps; if it is negative, again with arrays at full size: they may have entries under
/// constant keys, for which no null check is needed.
pub(super) fn on_small_maps<T>(
    program: &Program,
    ask: impl Fn(MapPurpose) -> Result<T, ExecError>,
) -> Result<T, ExecError> {
    let is_large_array = |def: &MapDef| {
        matches!(def.kind, MapKind::Array | MapKind::PerCpuArray) && def.max_entries > sizes::KEPT_ENTRIES
    };
    match ask(MapPurpose::Verdict { arrays: false }) {
        Err(ExecError::Refused(_) | ExecError::RefusedRewritten(_)) if program.maps.iter().any(is_large_array) => {
            ask(MapPurpose::Verdict { arrays: true })
        }
        verdict => verdict,
    }
}

fn verify_on(program: &Program, bare: &Program, purpose: MapPurpose) -> Result<(), ExecError> {
    let maps = Maps::create_for(bare, purpose, &none_taken)?;
    let judged = match typed_by(declared_types, program) {
        Ok((types, btf)) => maps.load_typed(program, &types, btf.as_fd(), program.kind),
        Err(ExecError::Object { .. }) => {
            let types = KernelTypes { functions: Vec::new(), lines: Vec::new(), ..maps.types.clone() };
            maps.load_typed(program, &types, maps.btf.as_fd(), program.kind)
        }
        Err(error) => return Err(error),
    };
    judged.map(drop)
}

impl Maps {
    /// Creates the maps of `program`.
    ///
    /// # Errors
    /// The types or a map are refused; or no memory, or missing privileges.
    #[cfg(test)]
    pub(crate) fn create(program: &Program) -> Result<Maps, ExecError> {
        Maps::create_for(program, MapPurpose::Live, &none_taken)
    }

    /// Creates the maps of `program` for a purpose, except those that it takes over as they are.
    ///
    /// # Errors
    /// As for [`Maps::create`].
    pub(crate) fn create_for(program: &Program, purpose: MapPurpose, taken: Taken<'_>) -> Result<Maps, ExecError> {
        let has_maps_in_maps = program.maps.iter().any(|def| def.kind.is_of_maps());
        let unreferenced = if purpose == MapPurpose::TestRuns { sizes::unreferenced(program) } else { BTreeSet::new() };
        let definition_for = |def: &MapDef| sizes::definition_for(def, purpose, has_maps_in_maps, false);
        let memory_bytes = sizes::memory_bytes();
        let mut made: Vec<MapDef> = program.maps.clone();
        let (types, btf) = typed(program)?;
        let mut raw: Vec<Option<Arc<RawMap>>> = vec![None; program.maps.len()];
        // A map of maps is created after its template.
        let (outer, plain): (Vec<usize>, Vec<usize>) =
            (0..program.maps.len()).partition(|index| program.maps[*index].kind.is_of_maps());
        for index in plain.into_iter().chain(outer) {
            let def = &program.maps[index];
            let makes = || format!("create map `{}`", def.name);
            if let Some(error) = sizes::refused(def, memory_bytes) {
                return Err(fails(program, makes())(error));
            }
            let is_unnamed = unreferenced.contains(&index);
            let def = &sizes::definition_for(def, purpose, has_maps_in_maps, is_unnamed);
            made[index] = def.clone();
            if let Some(taken) = taken(index, def) {
                raw[index] = Some(taken);
                continue;
            }
            let template = template(program, def, &raw, &definition_for).map_err(fails(program, makes()))?;
            let created = match def.kind {
                // A buffer for each CPU, unless the program says otherwise.
                MapKind::PerfEventArray if def.max_entries == 0 => cpu::possible().and_then(|max_entries| {
                    let def = MapDef { max_entries, ..def.clone() };
                    RawMap::create(&def, btf.as_fd(), types.maps[index], None)
                }),
                _ => RawMap::create(def, btf.as_fd(), types.maps[index], template.as_deref()),
            };
            let map = created.map_err(fails(program, makes()))?;
            if let Some(initial) = &def.initial {
                let filled = map.update(&[0; 4], initial);
                filled.map_err(fails(program, format!("fill map `{}`", def.name)))?;
                if def.flags & BPF_F_RDONLY_PROG != 0 {
                    map.freeze().map_err(fails(program, format!("freeze map `{}`", def.name)))?;
                }
            }
            // The verifier does not depend on the initial contents of a table.
            let layout = def.layout.iter().filter(|_| !matches!(purpose, MapPurpose::Verdict { .. }));
            for (key, value) in layout.flat_map(|layout| &layout.preloaded) {
                map.update(key, value).map_err(fails(program, format!("fill map `{}`", def.name)))?;
            }
            raw[index] = Some(Arc::new(map));
        }
        Ok(Maps { raw: raw.into_iter().flatten().collect(), made, types, btf })
    }

    /// A map for another program to take over.
    pub(crate) fn kept(&self, index: usize) -> Option<Kept> {
        Some(Kept { def: self.made.get(index)?.clone(), raw: Arc::clone(self.raw.get(index)?) })
    }

    /// Loads the program for which the maps were created.
    ///
    /// # Errors
    /// It calls a helper that no kernel has; the verifier refuses it, in which case the error has the source line and
    /// the log; or no memory, or missing privileges.
    pub(crate) fn load(&self, program: &Program) -> Result<RawProgram, ExecError> {
        self.load_typed(program, &self.types, self.btf.as_fd(), ProgramKind::Xdp)
    }

    /// Asks the verifier about a program on the same maps, without rewriting; returns the number of walked
    /// instructions.
    ///
    /// # Errors
    /// As for [`Maps::load`].
    pub(crate) fn verify_in_kernel(&self, program: &Program) -> Result<Option<u64>, ExecError> {
        let (types, btf) = typed(program)?;
        self.load_typed(program, &types, btf.as_fd(), program.kind).map(|loaded| loaded.walked)
    }

    /// Loads another program on the same maps.
    ///
    /// # Errors
    /// As for [`Maps::load`].
    pub(crate) fn load_other(&self, program: &Program) -> Result<RawProgram, ExecError> {
        let (types, btf) = typed(program)?;
        self.load_typed(program, &types, btf.as_fd(), ProgramKind::Xdp)
    }

    /// Loads another program on the same maps without types and lines: errors in its instructions are then found by the
    /// verifier alone.
    #[cfg(test)]
    pub(crate) fn load_untyped(&self, program: &Program) -> Result<RawProgram, ExecError> {
        let types = KernelTypes { functions: Vec::new(), lines: Vec::new(), ..self.types.clone() };
        self.load_typed(program, &types, self.btf.as_fd(), ProgramKind::Xdp)
    }

    fn load_typed(
        &self,
        program: &Program,
        types: &KernelTypes,
        btf: std::os::fd::BorrowedFd<'_>,
        kind: ProgramKind,
    ) -> Result<RawProgram, ExecError> {
        let insns = self.with_descriptors(program)?;
        // A question mark asks loaders not to load the program by default.
        let section = program.section.strip_prefix('?').unwrap_or(&program.section);
        let purpose = Purpose { kind, frags: section.starts_with(FRAGS) };
        program::load(&program.name, &program.license, &insns, types, btf, purpose).map_err(|Refusal { error, log }| {
            if log.is_empty() {
                return fails(program, "load the program")(error);
            }
            ExecError::Refused(Box::new(verifier::refused(program, log, error)))
        })
    }

    /// The instructions with file descriptors in place of map indices.
    fn with_descriptors(&self, program: &Program) -> Result<Vec<Insn>, ExecError> {
        let mut insns = program.insns.clone();
        let mut at = 0;
        while let Some(insn) = insns.get_mut(at) {
            let slots = insn.slots();
            if insn.is_wide() && matches!(insn.src, imm64::MAP | imm64::MAP_VALUE) {
                let number = insn.imm;
                let map = usize::try_from(number).ok().and_then(|number| self.raw.get(number));
                insn.imm = map.map(|map| map.number()).ok_or_else(|| ExecError::Loaded {
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
