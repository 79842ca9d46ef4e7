// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Suggestions for each finding, one sentence each.

use super::Flaw;
use crate::unresolved::Reference;

const DYNPTR: &str = "read the packet between `data` and `data_end`, or with `bpf_xdp_load_bytes`";
const TIME: &str = "keep the time with `bpf_ktime_get_ns` in the value, and compare it when the next packet comes";
const SOCKETS: &str = "look the flow up in a map that user space fills, instead of in the kernel's sockets";
const COOKIES: &str = "make the cookie of a secret in a map, instead of by the kernel's";
const PROCESS: &str = "leave it out: no process belongs to a packet";
const STORAGE: &str = "keep the state in a hash, by the addresses and ports of the packet";
const TRACE: &str = "write the message into an array or a ring buffer";
const TUNNEL: &str = "read and write the headers of the packet itself";
const MEMORY: &str = "read the packet and maps through pointers: there is no other memory to probe";
const QUEUE: &str = "keep the indices of both ends in an array beside one that holds the entries";

/// By helper number.
const HELPERS: [(&[i32], &str); 12] = [
    (&[84, 85, 86, 99, 92, 95, 96, 98, 124, 136, 137, 138, 139, 140], SOCKETS),
    (&[100, 110, 204, 205, 206, 207], COOKIES),
    (&[169, 170, 171, 172], TIME),
    (&[197, 198, 199, 200, 201, 202, 203], DYNPTR),
    (&[87, 88, 89, 195], QUEUE),
    (&[14, 15, 16, 35, 80, 158, 175, 209], PROCESS),
    (&[107, 108, 145, 146, 147, 148, 156, 157, 210, 211], STORAGE),
    (&[4, 45, 112, 113, 114, 115, 36, 148, 178], MEMORY),
    (&[20, 21, 29, 30], TUNNEL),
    (&[10, 11], "use `bpf_csum_diff` and fold the sum into the header"),
    (&[27, 67, 121, 126, 127, 128, 141, 177], TRACE),
    (&[9, 26, 31, 32, 33, 34, 37, 38, 39, 40], "leave it to a program of traffic control: XDP has no socket buffer"),
];

/// By prefix of kernel function names.
const KFUNCS: [(&str, &str); 9] = [
    ("bpf_dynptr_", DYNPTR),
    ("bpf_xdp_metadata_", "leave it out, or read its result from a map: packets of captures have no such metadata"),
    ("bpf_xdp_ct_", "keep the connections in a hash of the program"),
    ("bpf_skb_ct_", "keep the connections in a hash of the program"),
    ("bpf_ct_", "keep the connections in a hash of the program"),
    ("bpf_xdp_flow_lookup", "keep the flows in a hash of the program"),
    ("bpf_xdp_get_xfrm_state", "keep the state of tunnels in a hash of the program"),
    ("bpf_wq_", TIME),
    ("bpf_rdonly_cast", "use the fields of `struct xdp_md`"),
];

/// By kind of map.
const MAPS: [(&[&str], &str); 7] = [
    (
        &["sockmap", "sockhash", "reuseport_sockarray"],
        "send the packet to a port with a devmap: a program of the wire has no sockets",
    ),
    (&["queue", "stack"], QUEUE),
    (&["bloom_filter"], "use a hash: it also says yes to what it holds"),
    (
        &["sk_storage", "inode_storage", "task_storage", "cgrp_storage", "cgroup_storage", "percpu_cgroup_storage"],
        STORAGE,
    ),
    (&["stack_trace"], "leave it out: no stack of the kernel belongs to a packet"),
    (&["cgroup_array", "struct_ops", "user_ringbuf"], "leave it out: it is nothing to XDP"),
    (&["arena"], "use an array"),
];

impl Flaw {
    /// The smallest change of the program that would help, if one is known.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Flaw::Unresolved(reference) => Some(reference.help()),
            Flaw::Helper { number, .. } => {
                let known = HELPERS.iter().find(|(numbers, _)| numbers.contains(number));
                Some(
                    known.map_or("do without the call; what it gives can come from a map that user space fills", |h| {
                        h.1
                    }),
                )
            }
            Flaw::Unsupported { found, .. } if found.contains("classic packet access") => {
                Some("read the packet between `data` and `data_end`")
            }
            Flaw::Map { what: "definition of the maps inside", .. } => {
                Some("say what the maps inside are: `__array(values, struct { … })`")
            }
            Flaw::Map { what: "kind", found, .. } => {
                let known = MAPS.iter().find(|(kinds, _)| kinds.contains(&found.as_str()));
                Some(known.map_or("use a hash or an array", |map| map.1))
            }
            Flaw::WritesFramePointer | Flaw::FallsOff { .. } | Flaw::OtherFunction { .. } | Flaw::Target { .. } => {
                Some("build the object again: no compiler makes this")
            }
            _ => None,
        }
    }
}

impl Reference {
    /// The smallest change of the program that would help.
    pub fn help(&self) -> &'static str {
        match self {
            Reference::Kfunc { name } => {
                let known = KFUNCS.iter().find(|(begin, _)| name.starts_with(begin));
                known.map_or("declare it `__weak` and call it only where `bpf_ksym_exists` says so", |kfunc| kfunc.1)
            }
            Reference::Ksym { .. } => "declare it `__weak` and use it only where its address is not zero",
            Reference::Kconfig { .. } => "declare it `__weak`, or make it a `const volatile` variable of the program",
            Reference::Undefined { .. } => {
                "link the object that defines it (`bpftool gen object`), or declare it `__ksym` if the kernel does"
            }
            Reference::Adaptation { why, .. } if why.contains("not at hand") => {
                "run it where `/sys/kernel/btf/vmlinux` is, or compile without `preserve_access_index`"
            }
            Reference::Adaptation { .. } => {
                "ask first whether it is there (`bpf_core_field_exists`, `bpf_core_type_exists`, `bpf_core_enum_value_exists`)"
            }
            Reference::Field { field, .. } if field.contains("timer") || field.contains("bpf_wq") => TIME,
            Reference::Field { field, .. } if field.contains("spin_lock") => {
                "keep one `struct bpf_spin_lock` in the value of a map that has a definition"
            }
            Reference::Field { .. } => "keep numbers in the value, or keys of another map",
            Reference::Member { .. } => "put a map or an XDP program of this object there",
        }
    }
}
