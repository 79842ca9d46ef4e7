// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compilation of a program, function by function.

use std::collections::{BTreeMap, BTreeSet};

use cranelift_codegen::ir::{AbiParam, Signature, UserFuncName, Value, types};
use cranelift_codegen::settings::{self, Configurable};
use cranelift_codegen::{CodegenError, Context, control::ControlPlane};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};
use cranelift_jit::{JITBuilder, JITModule};
use cranelift_module::{FuncId, Linkage, Module, ModuleError, ModuleReloc, default_libcall_names};
use flowloom_isa::helpers::{self, Effect};
use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, MapKind};
use flowloom_verifier::{Bytes, MapId, Memory, Proof};

use crate::engine::{ADJUSTING_HELPERS, JitError};
use crate::frame::Frame;
use crate::function::{Callees, Translation, declared};
use crate::iterations;
use crate::prefetch;
use crate::resume::Point;
use crate::runtime;
use crate::state::{MapRef, State};

/// A function as compiled code has it: the state, and `r1` to `r5`.
pub(crate) type Function = unsafe extern "C" fn(*mut State, u64, u64, u64, u64, u64) -> u64;

/// A program to compile.
pub(crate) struct Source<'a> {
    /// The decoded instructions.
    pub(crate) code: &'a [Option<Op>],
    pub(crate) proof: &'a Proof,
    /// The calls of `loop` that the kernel inlines, ascending.
    pub(crate) inlined: &'a [usize],
    /// The headers of loops whose iterations are not counted.
    pub(crate) uncounted: &'a BTreeSet<usize>,
    pub(crate) maps: &'a [MapDef],
    /// By map; they do not move.
    pub(crate) refs: &'a [MapRef],
    /// By number of a helper, the address of its function.
    pub(crate) helpers: &'a dyn Fn(i32) -> u64,
    /// True if lookups in hash tables mark their entries.
    pub(crate) evicts: bool,
    /// True if a scout passes lookups before the one whose key it announces.
    pub(crate) passes: bool,
    /// True if it is the program that packets enter, not one that a tail call leads to.
    pub(crate) is_first: bool,
    /// Where code goes on after a scout; none if there is no scout.
    pub(crate) points: Vec<Point>,
    /// The lookups after a point whose keys the scouts of the pipeline announce too ([`Source::seconds`]).
    pub(crate) seconds: BTreeSet<usize>,
}

impl Source<'_> {
    /// The map of a helper call, if it is known.
    pub(crate) fn map(&self, at: usize) -> Option<usize> {
        let maps = &self.proof.insns[at].maps;
        match maps.first() {
            Some(MapId::Of(map)) if maps.len() == 1 => Some(*map as usize),
            _ => None,
        }
    }

    /// The map of a helper call, if it is known and a hash table with one value an entry.
    pub(crate) fn table(&self, at: usize) -> Option<usize> {
        self.map(at).filter(|map| !self.refs[*map].table.is_null())
    }

    /// As [`Source::table`], if programs may write it.
    pub(crate) fn writable_table(&self, at: usize) -> Option<usize> {
        self.table(at).filter(|map| self.maps[*map].flags & BPF_F_RDONLY_PROG == 0)
    }

    /// The array of a lookup, if it is known and an element begins where its entry does: not with several CPUs.
    pub(crate) fn array_of_elements(&self, at: usize) -> Option<usize> {
        let has_elements = |map: &usize| {
            let def = &self.maps[*map];
            matches!(def.kind, MapKind::Array | MapKind::PerCpuArray)
                && self.refs[*map].stride == def.value_bytes as usize
        };
        self.map(at).filter(has_elements)
    }

    /// Whether the run of the program may spend its iterations: in loops that are counted, or in callbacks.
    pub(crate) fn counts_iterations(&self) -> bool {
        self.proof.loops.len() > self.uncounted.len() || iterations::repeats(self.code)
    }

    /// True if the program calls functions of its own.
    pub(crate) fn calls_functions(&self) -> bool {
        self.code.iter().flatten().any(|op| matches!(op, Op::CallLocal { .. } | Op::LoadFunc { .. }))
    }

    /// True if loops over packets keep the targets of redirects without a helper in the views of their packets, not in
    /// the state: no function and no other program redirects.
    pub(crate) fn redirects_in_view(&self) -> bool {
        !self.calls_functions() && !self.has_helper(&[helper::TAIL_CALL])
    }

    /// True if loops over packets can run the program. After a tail call in a function that it calls, it goes on with
    /// what the other program has left: redirects, bounds, a fault.
    pub(crate) fn may_loop(&self) -> bool {
        let tail_calls = self.code.iter().flatten().any(|op| matches!(op, Op::Call { helper: helper::TAIL_CALL }));
        !(tail_calls && self.calls_functions())
    }

    /// True if the program changes the bounds of packets.
    pub(crate) fn moves(&self) -> bool {
        self.code.iter().flatten().any(|op| matches!(op, Op::Call { helper } if ADJUSTING_HELPERS.contains(helper)))
    }

    /// True if the program changes packets: bytes or bounds.
    pub(crate) fn writes_packets(&self) -> bool {
        let written = |memory| self.proof.insns.iter().any(|known| known.memory.get(memory).is_some_and(writes));
        // Helpers that write it by offsets do so without an address that the proof has.
        let writes_by_offset = |helper: i32| match helpers::by_number(helper).map(|known| known.effect) {
            Some(Effect::Packet) => {
                !matches!(helper, helper::XDP_LOAD_BYTES | helper::XDP_GET_BUFF_LEN | helper::FL_PARSE)
            }
            Some(Effect::MovePacket) | None => true,
            Some(_) => false,
        };
        let is_of_packet = |op: &Op| matches!(op, Op::Call { helper } if writes_by_offset(*helper));
        written(&Memory::Packet) || written(&Memory::Metadata) || self.code.iter().flatten().any(is_of_packet)
    }

    /// Whether a function may read bytes of a caller's stack that were not written.
    pub(crate) fn reads_unwritten_of_callers(&self) -> bool {
        let of_caller = |memory: &Memory| matches!(memory, Memory::Stack { up: 1.. });
        self.proof.insns.iter().any(|known| known.reads_unwritten && known.memory.keys().any(of_caller))
    }

    /// Whether an instruction is a call whose key is in a known hash table.
    pub(crate) fn has_key(&self, at: usize) -> bool {
        let Some(Op::Call { helper }) = self.code[at] else { return false };
        matches!(helper, helper::MAP_LOOKUP_ELEM | helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM)
            && self.table(at).is_some()
    }

    /// The number of calls whose key is in a known hash table.
    pub(crate) fn keys(&self) -> usize {
        (0..self.code.len()).filter(|at| self.has_key(*at)).count()
    }

    /// The instructions that are reached from others, ascending, and those that begin a block.
    pub(crate) fn reached(&self, entries: &[usize]) -> (BTreeSet<usize>, BTreeSet<usize>) {
        let (mut seen, mut starts) = (BTreeSet::new(), entries.iter().copied().collect::<BTreeSet<usize>>());
        let mut work = entries.to_vec();
        while let Some(at) = work.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(op) = self.code[at] else { continue };
            let is_branch =
                matches!(op, Op::Branch { .. } | Op::MayGoto { .. } | Op::Jump { .. } | Op::JumpLong { .. });
            for next in self.nexts(at, op) {
                if is_branch {
                    starts.insert(next);
                }
                work.push(next);
            }
        }
        (seen, starts)
    }

    /// The feasible successors of an instruction.
    pub(crate) fn nexts(&self, at: usize, op: Op) -> Vec<usize> {
        let edges = self.proof.insns[at].edges;
        let is_feasible = |next: &usize| match op {
            Op::Branch { off, .. } if off != 0 => {
                if *next == at + 1 {
                    edges.falls
                } else {
                    edges.jumps
                }
            }
            _ => true,
        };
        op.successors(at).filter(is_feasible).collect()
    }
}

/// Machine code of a program.
pub(crate) struct Compiled {
    /// `None` only while it is dropped.
    module: Option<JITModule>,
    entry: Function,
    resumed: Option<Function>,
    pipeline: Option<Function>,
    plain_loop: Option<Function>,
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled").finish_non_exhaustive()
    }
}

impl Drop for Compiled {
    fn drop(&mut self) {
        if let Some(module) = self.module.take() {
            // SAFETY: functions are called by `&self` only, so none of them runs.
            unsafe { module.free_memory() };
        }
    }
}

impl Compiled {
    /// Compiles a program, or its scout.
    pub(crate) fn of(source: &Source<'_>, is_scout: bool) -> Result<Compiled, JitError> {
        let mut flags = settings::builder();
        let set = [
            // The compiler of the program has optimised it. Cranelift's passes would move additions behind all loads of
            // a sum, whose values then spill.
            ("opt_level", "none"),
            // A third of the time of compilation, for faults of the translation alone.
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
            ("use_colocated_libcalls", "false"),
            ("is_pic", "false"),
            // A frame may be larger than the guard page of a stack.
            ("enable_probestack", "true"),
            ("probestack_strategy", "inline"),
        ];
        for (name, value) in set {
            flags.set(name, value).map_err(|error| JitError::Processor(error.to_string()))?;
        }
        let isa = cranelift_native::builder().map_err(|error| JitError::Processor(error.to_owned()))?;
        let isa = isa.finish(settings::Flags::new(flags)).map_err(|error| JitError::Processor(error.to_string()))?;
        let mut builder = JITBuilder::with_isa(isa, default_libcall_names());
        for (name, address) in runtime::FUNCTIONS.map(|function| (function.name, function.address)) {
            builder.symbol(name, address());
        }
        let mut module = JITModule::new(builder);
        let functions = define(&mut module, source, is_scout);
        let Defined { functions, further } =
            functions.map_err(|(slot, error)| JitError::Function { slot, source: error })?;
        let function = |id: FuncId| {
            let address = module.get_finalized_function(id);
            // SAFETY: the function was compiled with this signature.
            unsafe { std::mem::transmute::<*const u8, Function>(address) }
        };
        // The entry of every program is at slot 0.
        let entry = function(functions[&0]);
        let [plain_loop, resumed, pipeline] =
            [Kind::PlainLoop, Kind::Resumed, Kind::Pipeline].map(|kind| further.get(&kind).copied().map(function));
        Ok(Compiled { module: Some(module), entry, resumed, pipeline, plain_loop })
    }

    /// The function at the program's first instruction.
    pub(crate) fn entry(&self) -> Function {
        self.entry
    }

    /// The function that goes on after a scout.
    pub(crate) fn resumed(&self) -> Option<Function> {
        self.resumed
    }

    /// The function that runs many packets, each with its scout ([`crate::pipeline`]).
    pub(crate) fn pipeline(&self) -> Option<Function> {
        self.pipeline
    }

    /// The function that runs many packets without scouts.
    pub(crate) fn plain_loop(&self) -> Option<Function> {
        self.plain_loop
    }
}

/// Compiles a function, and places its prefetches.
fn define_one(module: &mut JITModule, id: FuncId, context: &mut Context) -> Result<(), Box<ModuleError>> {
    context.compile(module.isa(), &mut ControlPlane::default()).map_err(|error| Box::new(error.into()))?;
    // Compiled just now.
    let Some(compiled) = context.compiled_code() else { return Ok(()) };
    let alignment = compiled.buffer.alignment.into();
    let mut code = compiled.code_buffer().to_vec();
    if let Err(at) = prefetch::place(&mut code, compiled.buffer.traps()) {
        let what = format!("the load at byte {at} that stands for a prefetch has an unknown encoding");
        return Err(Box::new(ModuleError::Compilation(CodegenError::Unsupported(what))));
    }
    let relocations = compiled.buffer.relocs().iter();
    let relocations: Vec<ModuleReloc> =
        relocations.map(|found| ModuleReloc::from_mach_reloc(found, &context.func, id)).collect();
    Ok(module.define_function_bytes(id, alignment, &code, &relocations)?)
}

/// True if a function is larger than one may be.
fn is_too_large(error: &ModuleError) -> bool {
    matches!(error, ModuleError::Compilation(CodegenError::CodeTooLarge | CodegenError::ImplLimitExceeded))
}

fn writes(bytes: &Bytes) -> bool {
    bytes.touch.writes
}

/// The first slots of the functions that the proof reaches.
fn entries(source: &Source<'_>) -> BTreeSet<usize> {
    let called = source.code.iter().enumerate().filter_map(|(at, op)| match op {
        Some(op @ (Op::CallLocal { .. } | Op::LoadFunc { .. })) if source.proof.insns[at].reached => {
            usize::try_from(at as i64 + 1 + op.distance()?).ok()
        }
        _ => None,
    });
    std::iter::once(0).chain(called).collect()
}

/// The functions of a program by their first slots, and the others.
struct Defined {
    functions: BTreeMap<usize, FuncId>,
    further: BTreeMap<Kind, FuncId>,
}

/// What a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It begins at a slot of the program.
    At(usize),
    PlainLoop,
    Resumed,
    Pipeline,
}

fn define(
    module: &mut JITModule,
    source: &Source<'_>,
    is_scout: bool,
) -> Result<Defined, (usize, Box<cranelift_module::ModuleError>)> {
    let call = module.isa().default_call_conv();
    let signature = |params: &[types::Type]| {
        let mut signature = Signature::new(call);
        signature.params.extend(params.iter().map(|of| AbiParam::new(*of)));
        signature.returns.push(AbiParam::new(types::I64));
        signature
    };
    let without_result = |signature: Signature| Signature { returns: Vec::new(), ..signature };
    let own = signature(&[types::I64; 6]);
    let entries = entries(source);
    let mut ids = BTreeMap::new();
    for slot in &entries {
        let id = module.declare_function(&format!("at_{slot}"), Linkage::Local, &own);
        ids.insert(*slot, id.map_err(|error| (*slot, Box::new(error)))?);
    }
    let mut further = BTreeMap::new();
    let loops = [("plain_loop", Kind::PlainLoop), ("resumed", Kind::Resumed), ("pipeline", Kind::Pipeline)];
    let has_points = !source.points.is_empty();
    for (name, kind) in loops {
        let is_made = match kind {
            Kind::PlainLoop => source.is_first && source.may_loop(),
            Kind::Pipeline => has_points && source.may_loop(),
            _ => has_points,
        };
        if !is_scout && is_made {
            let id = module.declare_function(name, Linkage::Local, &own);
            further.insert(kind, id.map_err(|error| (0, Box::new(error)))?);
        }
    }
    let mut runtime = Vec::new();
    for function in runtime::FUNCTIONS {
        let signature = signature(&vec![types::I64; function.parameters]);
        let id = module.declare_function(function.name, Linkage::Import, &signature);
        runtime.push(id.map_err(|error| (0, Box::new(error)))?);
    }
    let (mut context, mut frontend) = (module.make_context(), FunctionBuilderContext::new());
    let all: Vec<(Kind, FuncId)> = ids.iter().map(|(slot, id)| (Kind::At(*slot), *id)).collect();
    let all: Vec<(Kind, FuncId)> = all.into_iter().chain(further.iter().map(|(kind, id)| (*kind, *id))).collect();
    let mut left_out = Vec::new();
    for (kind, id) in &all {
        let kind = *kind;
        context.func.signature = own.clone();
        context.func.name = UserFuncName::user(0, id.as_u32());
        let mut builder = FunctionBuilder::new(&mut context.func, &mut frontend);
        let mut reference =
            |id: FuncId, builder: &mut FunctionBuilder<'_>| module.declare_func_in_func(id, builder.func);
        let callees = Callees {
            runtime: runtime.iter().map(|id| reference(*id, &mut builder)).collect(),
            functions: ids.iter().map(|(slot, id)| (*slot, reference(*id, &mut builder))).collect(),
            signature: builder.import_signature(own.clone()),
            lookup: builder.import_signature(signature(&[types::I64; 2])),
            hinted_lookup: builder.import_signature(signature(&[types::I64; 3])),
            word_lookup: builder.import_signature(signature(&[types::I64; 4])),
            ahead: builder.import_signature(without_result(signature(&[types::I64; 4]))),
        };
        let registers = declared(&mut builder);
        let mut translation = Translation {
            source,
            callees: &callees,
            is_scout,
            has_record: match kind {
                Kind::At(slot) => is_scout && slot == 0,
                Kind::PlainLoop => false,
                Kind::Resumed | Kind::Pipeline => true,
            },
            // Set by the first block.
            state: Value::from_u32(0),
            registers,
            blocks: BTreeMap::new(),
            packet: None,
            in_pipeline: kind == Kind::Pipeline,
            seconds: (kind == Kind::Pipeline).then_some(&source.seconds).filter(|seconds| !seconds.is_empty()),
            frame: Frame::default(),
            hammocks: BTreeMap::new(),
            converted: BTreeSet::new(),
            key_copy: None,
            builder,
        };
        match kind {
            Kind::At(slot) => translation.run(slot),
            Kind::PlainLoop => translation.plain_loop(),
            Kind::Resumed => translation.resume(),
            Kind::Pipeline => translation.pipeline(),
        }
        translation.builder.finalize(module.target_config());
        let slot = if let Kind::At(slot) = kind { slot } else { 0 };
        let defined = define_one(module, *id, &mut context);
        module.clear_context(&mut context);
        match (defined, kind) {
            // What is larger than one function may be is left out: packets run one by one.
            (Err(error), Kind::PlainLoop | Kind::Pipeline) if is_too_large(&error) => left_out.push(kind),
            (defined, _) => defined.map_err(|error| (slot, error))?,
        }
    }
    for kind in left_out {
        further.remove(&kind);
    }
    module.finalize_definitions().map_err(|error| (0, Box::new(error)))?;
    Ok(Defined { functions: ids, further })
}
