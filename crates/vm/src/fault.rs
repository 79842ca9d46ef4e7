// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults: what no verified program does.

use flowloom_isa::op::Reg;

/// The access of a fault.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Atomic,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Atomic => "atomic operation",
        })
    }
}

/// A fault.
#[allow(missing_docs, reason = "the messages say what each variant and field is")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("`{0}` is read before it is written")]
    Register(Reg),
    #[error("{len}-byte {access} at 0x{address:x}, which is no address of the program's memory")]
    NoAddress { access: Access, len: usize, address: u64 },
    #[error("{len}-byte {access} at byte {at} of {region}, expected within 0 to {size} bytes")]
    Bounds { access: Access, len: usize, at: i64, region: String, size: usize },
    #[error("{len}-byte read at byte {at} of the stack, of which byte {first} was never written")]
    StackUnwritten { len: usize, at: usize, first: usize },
    #[error("{len}-byte {access} at byte {at} of the context, expected a 4-byte read of a field of `struct xdp_md`")]
    Context { access: Access, len: usize, at: i64 },
    #[error("read of `egress_ifindex`, which only programs behind a devmap have (section `xdp/devmap`)")]
    Egress,
    #[error("{access} in map `{map}`, which programs may only read")]
    ReadOnly { access: Access, map: String },
    #[error("read in map `{map}`, which programs may only write")]
    WriteOnly { map: String },
    #[error(
        "what is written of map `{map}` takes more than {limit} bytes, the most that the interpreter keeps of an array"
    )]
    MapMemory { map: String, limit: u64 },
    #[error("atomic operation in the packet, expected one on the stack or in a map's value")]
    AtomicInPacket,
    #[error("argument 1 of `{helper}` is 0x{found:x}, expected a map")]
    NoMap { helper: &'static str, found: u64 },
    #[error("argument 1 of `{helper}` is 0x{found:x}, expected the context")]
    NoContext { helper: &'static str, found: u64 },
    #[error("`{helper}` on map `{map}`, expected {expected}")]
    MapKind { helper: &'static str, map: String, expected: &'static str },
    #[error("argument {argument} of `{helper}` is {found}, expected {expected}")]
    Argument { helper: &'static str, argument: usize, found: String, expected: &'static str },
    #[error("the lock of map `{map}`: {what}")]
    Lock { map: String, what: &'static str },
    #[error("`{helper}` while the lock of map `{map}` is held, expected `spin_unlock` first")]
    Locked { helper: &'static str, map: String },
    #[error("the program ends with {what}")]
    Unreleased { what: &'static str },
    #[error("`{helper}` sends more than {limit} bytes besides one packet")]
    Sent { helper: &'static str, limit: usize },
    #[error("calls are nested more than {limit} deep")]
    Depth { limit: usize },
    #[error("more than {limit} instructions for one packet")]
    Budget { limit: u64 },
    #[error("{what}")]
    Observer { what: String },
    #[error("the program is unwound")]
    Unwound,
    #[error("found an instruction that cannot be run, expected one that the program's check let through")]
    Unchecked,
}
