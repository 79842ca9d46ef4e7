// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signatures of helpers.

use crate::MapKind;

/// The type of a parameter.
#[derive(Debug, Clone, Copy)]
pub enum Parameter {
    /// A number.
    Number,
    /// A number or an address.
    Any,
    /// The context.
    Context,
    /// A map of a suitable kind, described in words.
    Map(fn(MapKind) -> bool, &'static str),
    /// A key of the map, read.
    Key,
    /// A value of the map, read.
    Value,
    /// Memory of a fixed size.
    Fixed {
        /// The size in bytes.
        bytes: usize,
        /// How it is used.
        usage: Usage,
    },
    /// Memory whose size is the next argument; null is allowed if that may be 0.
    Sized(Usage),
    /// The size of the memory of the argument before.
    Length {
        /// Whether it may be 0.
        zero: bool,
    },
    /// A constant size: that of the record that is returned.
    ConstantLength,
    /// A reserved record, which is released.
    Record,
    /// A lock in a map value.
    Lock,
    /// A function of the program.
    Callback,
    /// The context of the callback: any value.
    CallbackContext,
    /// A constant, terminated string.
    Text,
}

/// How a helper uses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// Reads it.
    Read,
    /// Writes all of it, always.
    Fill,
    /// Writes some of it, or nothing on failure; the rest is unchanged.
    MayFill,
    /// Reads it, and writes its results to parts of it.
    ReadWrite,
}

/// The type of the result.
#[derive(Debug, Clone, Copy)]
pub enum Returns {
    /// A number in this range.
    Number(i64, i64),
    /// Any number.
    AnyNumber,
    /// The address of a map value, or null; from a map of maps, the address of a map.
    ValueOrNull,
    /// The address of a record, or null.
    RecordOrNull,
    /// Nothing that can be read.
    Nothing,
}

/// What a helper uses that no argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implicit {
    /// Nothing.
    Nothing,
    /// The start and the end of the packet.
    Bounds,
    /// The content of the packet.
    Packet,
    /// The registers after its arguments, which may be uninitialized.
    Registers,
}

/// The effect of a helper besides its result and its use of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// None: a function of its arguments.
    Pure,
    /// None, but it reads memory at unchecked addresses: to probe them, or to print strings.
    Probe,
    /// Reads the time, the CPU number or the NUMA node.
    Environment,
    /// Draws a random number.
    Random,
    /// Finds an entry by its key.
    Lookup,
    /// Inserts or overwrites an entry.
    Update,
    /// Deletes an entry.
    Delete,
    /// Evicts an entry as its arguments say.
    Evict,
    /// Looks up a table that only the host writes: routes, MTUs of ports.
    HostTable,
    /// Continues in another program.
    TailCall,
    /// Sets the target of a redirect.
    Redirect,
    /// Looks up the target of a redirect in a map.
    RedirectMap,
    /// Takes room for a record in a ring buffer.
    Reserve,
    /// Releases a record: it is sent or discarded.
    Release,
    /// Reads the fill level of a ring buffer.
    QueryRing,
    /// Sends an event.
    Event,
    /// Sends a packet besides the received one.
    Emit,
    /// Writes text to the kernel's trace log.
    Trace,
    /// Moves the start or the end of the packet, which invalidates packet addresses.
    MovePacket,
    /// Reads or writes the packet.
    Packet,
    /// Takes or releases a lock.
    Lock,
    /// Calls a function of the program repeatedly.
    Callback,
}
