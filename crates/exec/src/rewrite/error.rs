// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of rewriting.

use flowloom_isa::splice::SpliceError;
use flowloom_isa::{MapKind, ProgramKind, Reference};

/// Errors of rewriting a program.
#[allow(missing_docs, reason = "the messages say what each field is")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// A jump or call that leads out of the program, or farther than its offset holds.
    #[error(transparent)]
    Splice(#[from] SpliceError),
    /// A load that may or may not be one of `ingress_ifindex`.
    #[error("instruction {insn} may read `ingress_ifindex`, but `r{register}` is not the context on all paths")]
    PerhapsContext { insn: usize, register: u8 },
    /// A load of a part of `ingress_ifindex`, at this offset in the context.
    #[error(
        "instruction {insn} reads `ingress_ifindex` with {found} bytes at offset {offset} or sign-extends it, expected 4 unsigned \
         at 12"
    )]
    PartOfIngress { insn: usize, found: i64, offset: i64 },
    /// A call with an unknown map.
    #[error("instruction {insn} calls `{helper}` with an inner or unknown map")]
    UnknownDevmap { insn: usize, helper: &'static str },
    /// A redirect through a map that is not a redirect map.
    #[error("instruction {insn} calls `redirect_map` with map `{map}`, which is not a redirect map")]
    NotDevmap { insn: usize, map: String },
    /// A redirect to an interface by index.
    #[error("instruction {insn} calls `redirect`, which takes an interface index; ports are bound in devmaps only")]
    RedirectByIndex { insn: usize },
    /// An unresolved reference.
    #[error("instruction {insn}: {reference}, which is not available")]
    Unresolved { insn: usize, reference: Reference },
    /// A program of another kind.
    #[error("it has type `{kind}`, expected XDP")]
    ProgramKind { kind: ProgramKind },
    /// A map of an unsupported kind.
    #[error("map `{map}` is of kind `{kind}`, which Flowloom does not run")]
    MapKind { map: String, kind: MapKind },
    /// A redirect map that is too large for a table in the record.
    #[error("map `{map}` has {found} entries, more than fit the run record")]
    MapSize { map: String, found: u32 },
    /// No stack space to save the address of a route lookup.
    #[error("instruction {insn} calls `fib_lookup` in a program without 8 free bytes of stack")]
    FullStack { insn: usize },
    /// A route lookup, which uses interface indices.
    #[error(
        "instruction {insn} calls `{helper}`, whose routes use interface indices; on interfaces a function uses port numbers"
    )]
    RoutesByIndex { insn: usize, helper: &'static str },
    /// The program has a map with a reserved name.
    #[error("map name `{map}` is reserved")]
    NameTaken { map: &'static str },
}

impl RewriteError {
    /// The instruction concerned, if any.
    pub fn insn(&self) -> Option<usize> {
        match *self {
            RewriteError::Splice(SpliceError::JumpOutside { insn, .. } | SpliceError::JumpTooFar { insn, .. })
            | RewriteError::PerhapsContext { insn, .. }
            | RewriteError::PartOfIngress { insn, .. }
            | RewriteError::UnknownDevmap { insn, .. }
            | RewriteError::NotDevmap { insn, .. }
            | RewriteError::Unresolved { insn, .. }
            | RewriteError::FullStack { insn }
            | RewriteError::RoutesByIndex { insn, .. }
            | RewriteError::RedirectByIndex { insn } => Some(insn),
            RewriteError::NameTaken { .. }
            | RewriteError::MapKind { .. }
            | RewriteError::MapSize { .. }
            | RewriteError::ProgramKind { .. } => None,
        }
    }
}
