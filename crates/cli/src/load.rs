//! From a path to a function: a source is compiled, a program in C compiled by clang, an object read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use flowloom_context::ContextLayout;
use flowloom_efsm::diagnostic::Diagnostic;
use flowloom_efsm::files::Files;
use flowloom_efsm::layout::RecordLayout;
use flowloom_efsm::model::{Element, Function};
use flowloom_efsm::{LowerOptions, Machine, compile_with, lower};
use flowloom_engine::{Datapath, Snapshot, SnapshotError};
use flowloom_isa::{BPF_F_RDONLY_PROG, Program};
use flowloom_object::KernelTypeIndex;

use crate::args::FunctionArgs;
use crate::compile::{compiled, is_program};
use crate::failure::Failure;
use crate::output::remark;

/// The first bytes of every ELF file.
pub(crate) const ELF_MAGIC: &[u8] = b"\x7fELF";

/// The key of the one entry that a data section is.
pub(crate) const SECTION_KEY: [u8; 4] = [0; 4];

/// What the user named.
pub(crate) enum Loaded {
    /// A function in our language.
    Efsm { function: Arc<Function>, warnings: Vec<Diagnostic> },
    /// A program of an eBPF object.
    Object(Arc<Program>),
}

impl Loaded {
    /// Reads and checks what `args` names.
    pub(crate) fn from_args(args: &FunctionArgs) -> Result<Loaded, Failure> {
        let bytes = bytes(args)?;
        if bytes.starts_with(ELF_MAGIC) {
            let object = object(&bytes, args)?;
            let program = pick(&object, args.program.as_deref())?;
            return Ok(Loaded::Object(Arc::new(program.clone())));
        }
        if is_program(&args.path) {
            let compiled = compiled(&args.path, &bytes, &args.params, args.kind())?;
            return Ok(Loaded::Object(Arc::new(pick(&compiled.object, args.program.as_deref())?.clone())));
        }
        Loaded::from_source(bytes, args)
    }

    /// Compiles the source that `args` names.
    pub(crate) fn from_source(bytes: Vec<u8>, args: &FunctionArgs) -> Result<Loaded, Failure> {
        if let Some(program) = &args.program {
            return Err(Failure::Input(format!(
                "--program {program} picks a program of an object, `{}` is a source",
                args.path.display()
            )));
        }
        if args.kind.is_some() {
            return Err(Failure::Input(format!(
                "--type says what the programs of an object are, `{}` is a source",
                args.path.display()
            )));
        }
        source(&args.path, bytes, &args.params).map(|(function, warnings)| Loaded::Efsm { function, warnings })
    }

    /// The function's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Loaded::Efsm { function, .. } => &function.name,
            Loaded::Object(program) => &program.name,
        }
    }

    /// The function as eBPF.
    pub(crate) fn program(&self, counters: bool) -> Result<Arc<Program>, Failure> {
        match self {
            Loaded::Object(program) => Ok(Arc::clone(program)),
            Loaded::Efsm { function, .. } => lower(function, &LowerOptions { counters, ..LowerOptions::default() })
                .map(Arc::new)
                .map_err(|e| Failure::input(&e)),
        }
    }

    /// The layouts of its context tables, by the names of their maps.
    pub(crate) fn layouts(&self) -> BTreeMap<String, ContextLayout> {
        match self {
            Loaded::Object(program) => {
                program.maps.iter().filter_map(|map| Some((map.name.clone(), map.layout.clone()?))).collect()
            }
            Loaded::Efsm { function, .. } => {
                let layout = |element: &Element| {
                    let stateful = element.stateful.as_ref()?;
                    Some((element.name.clone(), RecordLayout::of(element, stateful).describe(element, stateful)))
                };
                function.elements.iter().filter_map(layout).collect()
            }
        }
    }

    /// The maps of its state.
    pub(crate) fn state_maps(&self) -> Result<Vec<String>, Failure> {
        match self {
            Loaded::Object(program) => Ok(program.maps.iter().map(|map| map.name.clone()).collect()),
            Loaded::Efsm { function, .. } => {
                let initial = Machine::new(Arc::clone(function)).snapshot().map_err(|e| Failure::input(&e))?;
                Ok(initial.maps.into_keys().collect())
            }
        }
    }

    /// The function as eBPF with counters; without them, and that is said, where it is too large with them.
    pub(crate) fn program_with_counters(&self) -> Result<Arc<Program>, Failure> {
        let refused = match self.program(true) {
            Err(Failure::Input(reason)) => reason,
            result => return result,
        };
        let program = self.program(false)?;
        remark(&format!("hits of rows and flows are not counted: with counters, {refused}"));
        Ok(program)
    }

    /// The function as eBPF for interfaces.
    pub(crate) fn attached_program(&self, counters: bool) -> Result<Arc<Program>, Failure> {
        match self {
            Loaded::Object(program) => Ok(Arc::clone(program)),
            Loaded::Efsm { function, .. } => lower(function, &LowerOptions { counters, attached: true })
                .map(Arc::new)
                .map_err(|e| Failure::input(&e)),
        }
    }

    /// Takes the read-only data sections out of `state` and sets them, as a loader does before it loads a program.
    ///
    /// # Errors
    /// A section is not one entry of its length.
    pub(crate) fn set_constants(&mut self, state: &mut Snapshot) -> Result<(), SnapshotError> {
        let Loaded::Object(program) = self else { return Ok(()) };
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

    /// The function, where it is one in our language.
    pub(crate) fn function(&self) -> Option<&Arc<Function>> {
        match self {
            Loaded::Efsm { function, .. } => Some(function),
            Loaded::Object(_) => None,
        }
    }
}

/// The bytes of the file that `args` names.
pub(crate) fn bytes(args: &FunctionArgs) -> Result<Vec<u8>, Failure> {
    std::fs::read(&args.path).map_err(|e| Failure::file("read", &args.path, &e))
}

/// Compiles a source.
pub(crate) fn source(
    path: &Path,
    bytes: Vec<u8>,
    params: &[(String, String)],
) -> Result<(Arc<Function>, Vec<Diagnostic>), Failure> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::Input(format!(
            "`{}` is neither an eBPF object nor a source in UTF-8: the byte at offset {at} is no text",
            path.display()
        ))
    })?;
    compile_with(&path.display().to_string(), &text, params, &Beside(path))
        .map(|(function, warnings)| (Arc::new(function), warnings))
        .map_err(|diagnostics| Failure::Source(Box::new(diagnostics)))
}

/// Bytes of the largest file that a source may name.
const MOST_FILE_BYTES: u64 = 64 << 20;

/// The files beside a source.
pub(crate) struct Beside<'p>(pub(crate) &'p Path);

impl Files for Beside<'_> {
    fn read(&self, name: &str) -> Result<String, String> {
        let path = self.0.parent().unwrap_or(Path::new("")).join(name);
        let about = std::fs::metadata(&path).map_err(|e| e.to_string())?;
        if !about.is_file() {
            return Err("it is no regular file".to_owned());
        }
        if about.len() > MOST_FILE_BYTES {
            return Err(format!("it has {} bytes, at most {MOST_FILE_BYTES} are read", about.len()));
        }
        let bytes = std::fs::read(&path).map_err(|e| e.to_string())?;
        String::from_utf8(bytes).map_err(|e| format!("the byte at offset {} is no text", e.utf8_error().valid_up_to()))
    }
}

/// Reads an object.
pub(crate) fn object(bytes: &[u8], args: &FunctionArgs) -> Result<flowloom_object::Object, Failure> {
    let path = args.path.display().to_string();
    if let Some((name, _)) = args.params.first() {
        return Err(Failure::Input(format!("--param {name} sets a parameter of a source, `{path}` is an object")));
    }
    flowloom_object::read_as(bytes, &path, &kernel_types, args.kind()).map_err(|e| Failure::input(&e))
}

/// Where the running kernel tells its types.
const KERNEL_TYPES: &str = "/sys/kernel/btf/vmlinux";

/// The types of the running kernel, for objects that adapt to them.
pub(crate) fn kernel_types() -> Result<Arc<KernelTypeIndex>, String> {
    let bytes = std::fs::read(KERNEL_TYPES)
        .map_err(|e| format!("the types of a kernel are not at hand: `{KERNEL_TYPES}`: {e}"))?;
    KernelTypeIndex::parse(&bytes).map(Arc::new).map_err(|e| format!("`{KERNEL_TYPES}`: {e}"))
}

/// The names of programs, for messages.
fn list<'p>(programs: impl Iterator<Item = &'p Program>) -> String {
    let names: Vec<_> = programs.map(|p| format!("`{}`", p.name)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The object has no program of this name.
pub(crate) fn no_program(object: &flowloom_object::Object, wanted: &str) -> Failure {
    let all = list(object.programs.iter());
    Failure::Input(format!("`{}` has no program `{wanted}`; it has {all}", object.name))
}

/// The only program called `wanted`.
pub(crate) fn only<'o>(object: &'o flowloom_object::Object, wanted: &str) -> Result<&'o Program, Failure> {
    match object.matching(wanted).as_slice() {
        [] => Err(no_program(object, wanted)),
        [program] => Ok(program),
        several => {
            let names: Vec<_> = several.iter().map(|p| format!("`{}/{}`", p.section, p.name)).collect();
            let (path, names) = (&object.name, names.join(", "));
            Err(Failure::Input(format!("`{path}` has several programs `{wanted}`: {names}; name one of these")))
        }
    }
}

/// The program called `wanted` or, where none is asked for, the only XDP program of the object.
pub(crate) fn pick<'o>(object: &'o flowloom_object::Object, wanted: Option<&str>) -> Result<&'o Program, Failure> {
    let path = &object.name;
    if let Some(wanted) = wanted {
        if let Some(refused) = object.refused.iter().find(|refused| refused.name == wanted) {
            return Err(Failure::Input(format!("`{path}`: {refused}")));
        }
        let program = only(object, wanted)?;
        if !program.kind.is_xdp() {
            let (kind, section, xdp) = (program.kind, &program.section, list(object.xdp()));
            return Err(Failure::Input(format!(
                "program `{}` of `{path}` is of kind {kind} (section `{section}`), expected XDP; XDP programs: {xdp}; if it is XDP \
                 in spite of its section, say --type xdp",
                program.name
            )));
        }
        return Ok(program);
    }
    let xdp: Vec<&Program> = object.xdp().collect();
    match (xdp.as_slice(), object.refused.as_slice()) {
        ([only], _) => Ok(only),
        ([], [refused, ..]) => Err(Failure::Input(format!("`{path}`: {refused}"))),
        ([], []) => {
            let others: Vec<_> = object.programs.iter().map(|p| format!("`{}` ({})", p.name, p.kind)).collect();
            Err(Failure::Input(format!("`{path}` holds no XDP program; it has {}", others.join(", "))))
        }
        (several, _) => {
            let names = list(several.iter().copied());
            Err(Failure::Input(format!("`{path}` has several programs: {names}; pick one with --program")))
        }
    }
}
