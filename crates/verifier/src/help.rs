// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suggestions, as specific as the state of the path allows.

use super::expected::Expected;
use super::refusal::Unsafe;
use super::state::{MAX_PACKET_BYTES, State};
use super::text;
use super::value::{Address, Cause, Invalid, Number, Region, Value};
use flowloom_isa::insn::{call, class, helper, jmp};
use flowloom_isa::op::{Op, Reg};
use flowloom_isa::{BPF_F_RDONLY_PROG, BPF_F_WRONLY_PROG, Program};

const BOUND: &str = "bound the number first: by a comparison, or by `&` with a constant";
const ONE_SIDE: &str = "bound the number first, on both sides: by comparisons, or by `&` with a constant";
const SOURCES: &str = "addresses come from `data`, from maps, records and the stack; what was stored in parts, or was released, is a number";
const REREAD: &str = "read `data` and `data_end` again after that call, and compare them again";
const RELEASED: &str = "submit or discard a record once, after the last access to it";
const COPY_KEY: &str = "copy the key while the callback runs: the next iteration gets another key";
const PRIVATE: &str = "copy the bytes to the stack first";

/// A suggestion for an unsafe instruction.
pub(super) fn of(what: &Unsafe, op: Option<Op>, state: &State, program: &Program) -> Option<String> {
    let held = |register: usize| state.frame().registers.get(register).copied().unwrap_or(Value::Unwritten);
    let plain = |text: &str| Some(text.to_owned());
    match what {
        Unsafe::Unwritten { register } => plain(match register.as_str() {
            "r0" => "write it on every path: helpers without a result do not write `r0`",
            "r1" | "r2" | "r3" | "r4" | "r5" => {
                "write it on every path, or keep the value in `r6` to `r9`: calls clobber `r1` to `r5`"
            }
            _ => "write it on every path",
        }),
        Unsafe::Kind { .. } => no_address(what.register().map_or(Value::Unwritten, held)),
        Unsafe::Access { access, bytes, expected, .. } => {
            let (base, on) = match op {
                Some(Op::Load { base, off, .. } | Op::Store { base, off, .. } | Op::Atomic { base, off, .. }) => {
                    (base, off)
                }
                _ => return None,
            };
            let Value::Address(address) = held(number_of(base)) else { return None };
            let access = Wanted { bytes: *bytes as i64, on: on.into(), writes: *access != "read", expected };
            access.help(&address, program)
        }
        Unsafe::Argument { argument, expected, .. } => {
            argument_help(*argument, expected, &held(*argument), &held(1), program)
        }
        Unsafe::Arithmetic { expected, .. } => match expected {
            Expected::BoundedNumber => plain(ONE_SIDE),
            Expected::NotNullBase => plain("compare it with 0 first, and leave if it is null"),
            Expected::MemoryBase => None,
            Expected::NearNumber => plain("bound the number first, or add less: offsets stay below 2^29"),
            _ => plain("only add numbers to addresses, or subtract them"),
        },
        Unsafe::NotReleased { what: "a lock", .. } => plain("call `bpf_spin_unlock` on every path after that"),
        Unsafe::NotReleased { .. } => {
            plain("call `bpf_ringbuf_submit` or `bpf_ringbuf_discard` on every path after that")
        }
        Unsafe::Locked { .. } => plain("call it before `bpf_spin_lock`, or after `bpf_spin_unlock`"),
        Unsafe::ReadOnly { .. } => plain("write the map in user space only, or create it without `BPF_F_RDONLY_PROG`"),
        Unsafe::Lock { .. } => plain("pair each `bpf_spin_lock` with one `bpf_spin_unlock` of the same value"),
        Unsafe::Endless if uses_loop(program) => plain("count the iterations, and leave the loop at a constant"),
        Unsafe::Endless => plain("count the iterations, and leave the loop at a constant; or use `bpf_loop`"),
        Unsafe::TooLong { .. } => plain(if uses_loop(program) {
            "bound loops by smaller constants, or let fewer branches depend on each other"
        } else {
            "bound loops by smaller constants, or use `bpf_loop`, whose iterations are not walked one by one"
        }),
        Unsafe::TooManyPaths { .. } => plain("split the function, or let fewer branches depend on each other"),
        Unsafe::Depth { .. } => plain("inline functions (`static __always_inline`)"),
        Unsafe::ReturnsStack => plain("pass the function memory of its caller"),
        Unsafe::Callback { .. } => plain("return 0 to continue, or 1 to stop"),
        Unsafe::Global { expected: Expected::GlobalArgument, .. } => {
            plain("make the function `static`: then it is verified where it is called")
        }
        Unsafe::Global { .. } => plain("pass what its types declare, or make the function `static`"),
        Unsafe::Returns { .. } => plain("return a number, or make the function `static`"),
    }
}

fn number_of(register: Reg) -> usize {
    usize::from(register.number())
}

/// Why a value is not an address.
fn no_address(value: Value) -> Option<String> {
    let text = match value {
        Value::Number(Number { invalid: Some(Invalid { cause, .. }), .. }) => match cause {
            Cause::PacketMoved => REREAD,
            Cause::RecordReleased => RELEASED,
            Cause::CallbackEnded => COPY_KEY,
        },
        Value::Number(number) if number.range.as_constant() == Some(0) => {
            "the address is null on this path: leave before the access"
        }
        _ => SOURCES,
    };
    Some(text.to_owned())
}

fn uses_loop(program: &Program) -> bool {
    program
        .insns
        .iter()
        .any(|insn| insn.code == class::JMP | jmp::CALL && insn.src == call::HELPER && insn.imm == helper::LOOP)
}

fn null_check(address: &Address) -> String {
    let why = match address.to {
        Region::Argument { .. } => {
            "a global function is verified by itself; or tag the argument `__arg_nonnull`, or make the function `static`"
        }
        Region::Record { .. } => "there may be no room for a record",
        Region::Map(_) => "there may be no such map",
        _ => "there may be no such key",
    };
    format!("compare the address with 0 first, and leave if it is null: {why}")
}

/// A refused access.
struct Wanted<'a> {
    bytes: i64,
    on: i64,
    writes: bool,
    expected: &'a Expected,
}

impl Wanted<'_> {
    fn help(&self, address: &Address, program: &Program) -> Option<String> {
        if address.nullable {
            return Some(null_check(address));
        }
        if *self.expected == Expected::AsOnOtherPaths {
            return Some("access each with an instruction of its own, on its own path".to_owned());
        }
        let Some((first, last)) = address.offsets(self.on) else {
            let is_far = address.var.as_constant().is_some();
            return Some(if is_far { "add less: no memory is that far".to_owned() } else { BOUND.to_owned() });
        };
        let end = last.saturating_add(self.bytes);
        let is_fixed = first == last;
        match address.to {
            Region::Packet | Region::Metadata => Some(packet(address, first, end, is_fixed)),
            Region::Value(map) => {
                let def = text::def(program, map)?;
                let is_sealed = def.flags & (BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG) != 0;
                let text = match self.expected {
                    Expected::MapRead | Expected::MapWrite if is_sealed => {
                        "do that in user space, or create the map without that flag"
                    }
                    // Of device maps.
                    Expected::MapRead | Expected::MapWrite => "do that in user space",
                    Expected::OutsideLock { .. } => {
                        "skip its bytes: only `bpf_spin_lock` and `bpf_spin_unlock` access a lock"
                    }
                    _ => return self.inside(def.value_bytes.into(), first, end, is_fixed),
                };
                Some(text.to_owned())
            }
            Region::Record { bytes, .. } => self.inside(bytes.into(), first, end, is_fixed),
            Region::Key { .. } if self.writes => Some("change a copy: keys are read-only".to_owned()),
            Region::Key { map, .. } => self.inside(text::def(program, map)?.key_bytes.into(), first, end, is_fixed),
            Region::Stack { .. } if *self.expected == Expected::WholeAddress => {
                Some("keep addresses in 8 bytes of their own, at a multiple of 8".to_owned())
            }
            Region::Stack { .. } if !is_fixed => Some(format!("{BOUND}; here it covers bytes {first} to {}", end - 1)),
            Region::Stack { .. } if end > 0 => {
                let bytes = if end == 1 { "a byte".to_owned() } else { format!("{end} bytes") };
                Some(format!("bound the index, or begin {bytes} before that: the stack ends where `r10` points"))
            }
            Region::Stack { .. } => Some("a function has 512 bytes of stack: keep more in a per-CPU map".to_owned()),
            Region::Context if self.writes => {
                let how = "write to the packet at `data`: the context only holds its address, which `bpf_xdp_adjust_head` changes";
                Some(how.to_owned())
            }
            Region::Context if first == 20 && is_fixed => {
                Some("`egress_ifindex` exists in programs of device maps only (section `xdp/devmap`)".to_owned())
            }
            Region::Context => Some("read a whole field; `volatile` keeps compilers from reading a part".to_owned()),
            Region::PacketEnd => Some("only compare with `data_end`: it points after the last byte".to_owned()),
            Region::Map(_) => Some("look up a value of the map: `bpf_map_lookup_elem`".to_owned()),
            Region::Argument { bytes, .. } => self.inside(bytes.into(), first, end, is_fixed),
            Region::Function { .. } => None,
        }
    }

    /// How to keep an offset within memory of this size.
    fn inside(&self, size: i64, first: i64, end: i64, is_fixed: bool) -> Option<String> {
        let last = size - self.bytes;
        if last < 0 {
            let there = if size == 1 { "is" } else { "are" };
            return Some(format!("there {there} {}, fewer than the access needs", text::counted(size)));
        }
        let span =
            if first + self.bytes == end { format!("{first}") } else { format!("{first} to {}", end - self.bytes) };
        let how = if is_fixed { "" } else { ": by a comparison, or by `&` with a constant" };
        Some(format!("keep the offset within 0 to {last} (here it is {span}){how}"))
    }
}

/// How to check an access to the packet or its metadata area.
fn packet(address: &Address, first: i64, end: i64, is_fixed: bool) -> String {
    let (start, limit) = if address.to == Region::Packet { ("data", "data_end") } else { ("data_meta", "data") };
    if first < 0 {
        return format!("the program may not access bytes before `{start}`: keep the number from being negative");
    }
    if end > MAX_PACKET_BYTES as i64 {
        return format!(
            "bound the loop or the number: no packet has more than {MAX_PACKET_BYTES} bytes, so no comparison can prove that access"
        );
    }
    if is_fixed {
        return format!("compare `{start}` + {end} or more with `{limit}` first, and leave if it is larger");
    }
    format!("compare the address after the last byte with `{limit}` first, and leave if it is larger")
}

fn argument_help(
    argument: usize,
    expected: &Expected,
    value: &Value,
    first: &Value,
    program: &Program,
) -> Option<String> {
    let map = match first {
        Value::Address(Address { to: Region::Map(map), .. }) => Some(*map),
        _ => None,
    };
    let address = value.address();
    let text = match expected {
        _ if address.is_some_and(|address| address.nullable) => return address.map(|address| null_check(&address)),
        Expected::OutsidePacket => PRIVATE.to_owned(),
        Expected::BytesThere { each, .. } if matches!(**each, Expected::InPacket { .. }) => {
            "compare the address after the last byte with `data_end` first, and leave if it is larger".to_owned()
        }
        Expected::BoundedLength => {
            format!("{BOUND}, below 2^29; a signed comparison leaves negative numbers, and those are large lengths")
        }
        Expected::SomeLength => "leave if the length is 0".to_owned(),
        Expected::BytesThere { .. } => match (map, address.map(|address| address.to)) {
            (Some(map), _) if argument == 2 || argument == 3 => {
                let def = text::def(program, map)?;
                let (what, bytes) = if argument == 2 { ("keys", def.key_bytes) } else { ("values", def.value_bytes) };
                format!(
                    "{what} of {} have {}: pass a pointer to that many",
                    text::map_name(program, map),
                    text::counted(bytes.into())
                )
            }
            (_, Some(Region::Stack { .. })) => {
                "reserve as many bytes on the stack as the length, or bound the length".to_owned()
            }
            _ => "bound the offset and the length: by comparisons, or by `&` with a constant".to_owned(),
        },
        Expected::Context => "pass the context unchanged: keep it in `r6` to `r9` across calls".to_owned(),
        Expected::ConstantLength => "use a constant, or `bpf_ringbuf_output`, which takes any length".to_owned(),
        Expected::AddressOf(_) => return no_address(*value),
        Expected::Record if value.number().is_some() => return no_address(*value),
        _ => return None,
    };
    Some(text)
}
