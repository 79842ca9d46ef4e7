// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads a function from a path: compiles a source, compiles C by clang, or reads an object.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_context::ContextLayout;
use flowloom_efsm::diagnostic::Diagnostic;
use flowloom_efsm::files::Files;
use flowloom_efsm::layout::RecordLayout;
use flowloom_efsm::model::{Element, Function};
use flowloom_efsm::{Machine, compile_with};
use flowloom_engine::{Datapath, Snapshot, SnapshotError};
use flowloom_ir::Dataflow;
use flowloom_isa::ProgramKind;
use flowloom_isa::{BPF_F_RDONLY_PROG, Program};
use flowloom_lower::{HeaderParser, LowerOptions, lower};
use flowloom_object::KernelTypeIndex;
use flowloom_verifier::Proof;

use crate::compile::{compiled, is_program};
use crate::error::SessionError;

/// Magic of ELF files.
pub const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The key of the single entry of a data section.
pub const SECTION_KEY: [u8; 4] = [0; 4];

/// A function as the user names it.
#[derive(Debug, Clone, Default)]
pub struct FunctionFile {
    /// The source, the program in C or assembler, or the object.
    pub path: PathBuf,
    /// The program to pick from an object with several.
    pub program: Option<String>,
    /// Parameters of the source: names and values.
    pub params: Vec<(String, String)>,
    /// Overrides the kind of the object's programs.
    pub kind: Option<ProgramKind>,
}

/// A loaded function, with its derived forms.
#[derive(Debug)]
pub struct Loaded {
    form: Form,
    program: OnceCell<Arc<Program>>,
    proof: OnceCell<Proof>,
    pipeline_program: OnceCell<Arc<Program>>,
    pipeline_proof: OnceCell<Proof>,
    dataflow: OnceCell<Arc<Dataflow>>,
}

#[derive(Debug)]
enum Form {
    /// An `.efsm` function.
    Efsm { function: Arc<Function>, warnings: Vec<Diagnostic> },
    /// A program of an eBPF object.
    Object(Arc<Program>),
}

impl From<Form> for Loaded {
    fn from(form: Form) -> Loaded {
        Loaded {
            form,
            program: OnceCell::new(),
            proof: OnceCell::new(),
            pipeline_program: OnceCell::new(),
            pipeline_proof: OnceCell::new(),
            dataflow: OnceCell::new(),
        }
    }
}

impl Loaded {
    /// Reads a file: compiles a source or a program in C, assembles, or reads an object.
    ///
    /// # Errors
    /// The file cannot be read, is invalid, or holds no such program.
    pub fn open(file: &FunctionFile) -> Result<Loaded, SessionError> {
        Loaded::from_bytes(file, file.bytes()?)
    }

    /// Like [`Loaded::open`], for the contents of the file.
    ///
    /// # Errors
    /// Those of [`Loaded::open`].
    pub fn from_bytes(file: &FunctionFile, bytes: Vec<u8>) -> Result<Loaded, SessionError> {
        if bytes.starts_with(ELF_MAGIC) {
            let object = object(&bytes, file)?;
            return Ok(Loaded::of_program(pick_program(&object, file.program.as_deref())?.clone()));
        }
        if is_program(&file.path) {
            let compiled = compiled(&file.path, &bytes, &file.params, file.kind)?;
            return Ok(Loaded::of_program(pick_program(&compiled.object, file.program.as_deref())?.clone()));
        }
        let path = file.path.display();
        if let Some(program) = &file.program {
            return Err(SessionError::Input(format!(
                "--program {program} selects a program of an object, `{path}` is a source"
            )));
        }
        if file.kind.is_some() {
            return Err(SessionError::Input(format!(
                "--type sets the program type of an object, `{path}` is a source"
            )));
        }
        let (function, warnings) = source(&file.path, bytes, &file.params)?;
        Ok(Form::Efsm { function, warnings }.into())
    }

    /// Wraps a program of an object.
    pub fn of_program(program: Program) -> Loaded {
        Form::Object(Arc::new(program)).into()
    }

    /// Wraps a compiled function.
    pub fn of_function(function: Arc<Function>) -> Loaded {
        Form::Efsm { function, warnings: Vec::new() }.into()
    }

    /// Compiler warnings.
    pub fn warnings(&self) -> &[Diagnostic] {
        match &self.form {
            Form::Efsm { warnings, .. } => warnings,
            Form::Object(_) => &[],
        }
    }

    /// Name of the function.
    pub fn name(&self) -> &str {
        match &self.form {
            Form::Efsm { function, .. } => &function.name,
            Form::Object(program) => &program.name,
        }
    }

    /// Lowers the function to eBPF.
    ///
    /// # Errors
    /// The function does not fit the limits of eBPF.
    pub fn program(&self) -> Result<Arc<Program>, SessionError> {
        if let Some(program) = self.program.get() {
            return Ok(Arc::clone(program));
        }
        let program = self.lowered(&LowerOptions { counters: false, ..LowerOptions::default() })?;
        Ok(Arc::clone(self.program.get_or_init(|| program)))
    }

    fn lowered(&self, options: &LowerOptions) -> Result<Arc<Program>, SessionError> {
        match &self.form {
            Form::Object(program) => Ok(Arc::clone(program)),
            Form::Efsm { function, .. } => lower(function, options).map(Arc::new).map_err(|e| SessionError::input(&e)),
        }
    }

    /// The proof that the program is safe.
    ///
    /// # Errors
    /// There is no program, or the verifier refuses it.
    pub fn proof(&self) -> Result<&Proof, AnalysisError> {
        proof_of(&self.proof, &*self.program()?)
    }

    /// The program that pipelines are made of: as [`Loaded::program`], but for an `.efsm` function the parser of the
    /// target finds the headers (`fl_parse`).
    ///
    /// # Errors
    /// As [`Loaded::program`].
    pub fn pipeline_program(&self) -> Result<Arc<Program>, SessionError> {
        if self.function().is_none() {
            return self.program();
        }
        if let Some(program) = self.pipeline_program.get() {
            return Ok(Arc::clone(program));
        }
        let program = self.lowered(&LowerOptions { parser: HeaderParser::Target, ..LowerOptions::default() })?;
        Ok(Arc::clone(self.pipeline_program.get_or_init(|| program)))
    }

    /// The proof that the program of pipelines is safe.
    ///
    /// # Errors
    /// As [`Loaded::proof`].
    pub fn pipeline_proof(&self) -> Result<&Proof, AnalysisError> {
        if self.function().is_none() {
            return self.proof();
        }
        proof_of(&self.pipeline_proof, &*self.pipeline_program()?)
    }

    /// The dataflow of the program of pipelines, before any pass.
    ///
    /// # Errors
    /// There is no proof, or the program has no dataflow.
    pub fn dataflow(&self) -> Result<Arc<Dataflow>, AnalysisError> {
        if let Some(dataflow) = self.dataflow.get() {
            return Ok(Arc::clone(dataflow));
        }
        let (program, proof) = (self.pipeline_program()?, self.pipeline_proof()?);
        let dataflow = flowloom_ir::build(&program, proof).map_err(AnalysisError::NoDataflow)?;
        Ok(Arc::clone(self.dataflow.get_or_init(|| Arc::new(dataflow))))
    }

    /// The layouts of the context tables, by map name.
    pub fn layouts(&self) -> BTreeMap<String, ContextLayout> {
        match &self.form {
            Form::Object(program) => {
                program.maps.iter().filter_map(|map| Some((map.name.clone(), map.layout.clone()?))).collect()
            }
            Form::Efsm { function, .. } => {
                let layout = |element: &Element| {
                    let stateful = element.stateful.as_ref()?;
                    Some((element.name.clone(), RecordLayout::of(element, stateful).describe(element, stateful)))
                };
                function.elements.iter().filter_map(layout).collect()
            }
        }
    }

    /// Names of the maps that hold state.
    pub fn state_maps(&self) -> Result<Vec<String>, SessionError> {
        match &self.form {
            Form::Object(program) => Ok(program.maps.iter().map(|map| map.name.clone()).collect()),
            Form::Efsm { function, .. } => {
                let initial = Machine::new(Arc::clone(function)).snapshot().map_err(|e| SessionError::input(&e))?;
                Ok(initial.maps.into_keys().collect())
            }
        }
    }

    /// Lowers the function to eBPF with counters of rows and flows.
    ///
    /// # Errors
    /// The function does not fit the limits of eBPF with counters.
    pub fn program_with_counters(&self) -> Result<Arc<Program>, SessionError> {
        self.lowered(&LowerOptions { counters: true, ..LowerOptions::default() })
    }

    /// Lowers the function to eBPF with counters; without them, and with the reason, if it is too large with them.
    ///
    /// # Errors
    /// The function does not fit the limits of eBPF.
    pub fn program_with_counters_if_possible(&self) -> Result<(Arc<Program>, Option<String>), SessionError> {
        match self.program_with_counters() {
            Err(SessionError::Input(reason)) => {
                let note = format!("row and flow hits are not counted: with counters, {reason}");
                Ok((self.program()?, Some(note)))
            }
            result => Ok((result?, None)),
        }
    }

    /// Lowers the function to eBPF for attachment to interfaces.
    ///
    /// # Errors
    /// The function does not fit the limits of eBPF.
    pub fn attached_program(&self, counters: bool) -> Result<Arc<Program>, SessionError> {
        self.lowered(&LowerOptions { counters, attached: true, ..LowerOptions::default() })
    }

    /// Moves the read-only data sections from `state` into the program, as a loader does before it loads a program.
    ///
    /// # Errors
    /// A section is not one entry of its length.
    pub fn set_constants(&mut self, state: &mut Snapshot) -> Result<(), SnapshotError> {
        let Form::Object(program) = &mut self.form else { return Ok(()) };
        (self.program, self.proof, self.dataflow) = Default::default();
        for def in &mut Arc::make_mut(program).maps {
            let is_constant = def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some();
            let Some(entries) = state.maps.get(&def.name).filter(|_| is_constant) else { continue };
            let (map, expected) = (def.name.clone(), def.value_bytes as usize);
            let contents = match entries.iter().next() {
                Some((key, contents)) if entries.len() == 1 && *key == SECTION_KEY => contents.clone(),
                _ => return Err(SnapshotError::Entries { map }),
            };
            if contents.len() != expected {
                return Err(SnapshotError::Size { map, part: "value", found: contents.len(), expected });
            }
            def.initial = Some(contents);
            state.maps.remove(&map);
        }
        Ok(())
    }

    /// The function, if it is an `.efsm` source.
    pub fn function(&self) -> Option<&Arc<Function>> {
        match &self.form {
            Form::Efsm { function, .. } => Some(function),
            Form::Object(_) => None,
        }
    }
}

/// The proof of a program, made once.
pub(crate) fn proof_of<'p>(known: &'p OnceCell<Proof>, program: &Program) -> Result<&'p Proof, AnalysisError> {
    if let Some(proof) = known.get() {
        return Ok(proof);
    }
    let proof = flowloom_verifier::verify(program, &flowloom_verifier::Options::default())?;
    Ok(known.get_or_init(|| proof))
}

impl FunctionFile {
    /// Reads the file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn bytes(&self) -> Result<Vec<u8>, SessionError> {
        std::fs::read(&self.path).map_err(|e| SessionError::unreadable(&self.path, &e))
    }
}

/// Why there is no proof or no dataflow.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// There is no program.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The verifier refuses the program.
    #[error(transparent)]
    Verifier(#[from] flowloom_verifier::VerifyError),
    /// The program has no dataflow.
    #[error(transparent)]
    NoDataflow(Box<flowloom_ir::Refusal>),
}

/// Compiles a source.
pub fn source(
    path: &Path,
    bytes: Vec<u8>,
    params: &[(String, String)],
) -> Result<(Arc<Function>, Vec<Diagnostic>), SessionError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        SessionError::Input(format!(
            "`{}` is neither an eBPF object nor a source in UTF-8: invalid UTF-8 at byte {at}",
            path.display()
        ))
    })?;
    compile_with(&path.display().to_string(), &text, params, &SiblingFiles(path))
        .map(|(function, warnings)| (Arc::new(function), warnings))
        .map_err(|diagnostics| SessionError::Source(Box::new(diagnostics)))
}

/// Maximum length of a file that a source includes, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The files in the directory of a source.
pub struct SiblingFiles<'p>(pub &'p Path);

impl Files for SiblingFiles<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.0.parent().unwrap_or(Path::new("")).join(name);
        let metadata = std::fs::metadata(&path).map_err(|e| e.to_string())?;
        if !metadata.is_file() {
            return Err("not a regular file".to_owned());
        }
        if metadata.len() > MAX_FILE_BYTES {
            return Err(format!("{} bytes, expected at most {MAX_FILE_BYTES}", metadata.len()));
        }
        let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
        String::from_utf8(bytes).map_err(|e| format!("invalid UTF-8 at byte {}", e.utf8_error().valid_up_to()))
    }
}

/// Reads an object.
pub fn object(bytes: &[u8], file: &FunctionFile) -> Result<flowloom_object::Object, SessionError> {
    let path = file.path.display().to_string();
    if let Some((name, _)) = file.params.first() {
        return Err(SessionError::Input(format!("--param {name} sets a parameter of a source, `{path}` is an object")));
    }
    flowloom_object::read_as(bytes, &path, &kernel_types, file.kind).map_err(|e| SessionError::input(&e))
}

const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The types of the running kernel, for CO-RE relocations.
pub fn kernel_types() -> Result<Arc<KernelTypeIndex>, String> {
    let bytes = std::fs::read(KERNEL_TYPES).map_err(|e| format!("cannot read kernel BTF: `{KERNEL_TYPES}`: {e}"))?;
    KernelTypeIndex::parse(&bytes).map(Arc::new).map_err(|e| format!("`{KERNEL_TYPES}`: {e}"))
}

/// Lists program names, for messages.
fn list<'p>(programs: impl Iterator<Item = &'p Program>) -> String {
    let names: Vec<_> = programs.map(|p| format!("`{}`", p.name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn no_program(object: &flowloom_object::Object, wanted: &str) -> SessionError {
    let all = list(object.programs.iter());
    SessionError::Input(format!("`{}` has no program `{wanted}`; it has {all}", object.name))
}

/// Returns the only program named `wanted`.
pub fn only_program<'o>(object: &'o flowloom_object::Object, wanted: &str) -> Result<&'o Program, SessionError> {
    match object.matching(wanted).as_slice() {
        [] => Err(no_program(object, wanted)),
        [program] => Ok(program),
        several => {
            let names: Vec<_> = several.iter().map(|p| format!("`{}/{}`", p.section, p.name)).collect();
            let (path, names) = (&object.name, names.join(", "));
            Err(SessionError::Input(format!("`{path}` has several programs `{wanted}`: {names}; choose one of these")))
        }
    }
}

/// Returns the program named `wanted`, or the only XDP program of the object if no name is given.
pub fn pick_program<'o>(
    object: &'o flowloom_object::Object,
    wanted: Option<&str>,
) -> Result<&'o Program, SessionError> {
    let path = &object.name;
    if let Some(wanted) = wanted {
        if let Some(refused) = object.refused.iter().find(|refused| refused.name == wanted) {
            return Err(SessionError::Input(format!("`{path}`: {refused}")));
        }
        let program = only_program(object, wanted)?;
        if !program.kind.is_xdp() {
            let (kind, section, xdp) = (program.kind, &program.section, list(object.xdp()));
            return Err(SessionError::Input(format!(
                "program `{}` of `{path}` is of kind {kind} (section `{section}`), expected XDP; XDP programs: {xdp}; if it is XDP \
                 the section, pass --type xdp",
                program.name
            )));
        }
        return Ok(program);
    }
    let xdp: Vec<&Program> = object.xdp().collect();
    match (xdp.as_slice(), object.refused.as_slice()) {
        ([only], _) => Ok(only),
        ([], [refused, ..]) => Err(SessionError::Input(format!("`{path}`: {refused}"))),
        ([], []) => {
            let others: Vec<_> = object.programs.iter().map(|p| format!("`{}` ({})", p.name, p.kind)).collect();
            Err(SessionError::Input(format!("`{path}` has no XDP program; it has {}", others.join(", "))))
        }
        (several, _) => {
            let names = list(several.iter().copied());
            Err(SessionError::Input(format!("`{path}` has several programs: {names}; choose one with --program")))
        }
    }
}
