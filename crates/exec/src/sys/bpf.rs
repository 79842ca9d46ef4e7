// SPDX-License-Identifier: Apache-2.0 OR MIT
//! bpf(2) and its attributes.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The numbers of commands.
pub(super) const MAP_CREATE: libc::c_int = 0;
pub(super) const MAP_LOOKUP_ELEM: libc::c_int = 1;
pub(super) const MAP_UPDATE_ELEM: libc::c_int = 2;
pub(super) const MAP_DELETE_ELEM: libc::c_int = 3;
pub(super) const MAP_GET_NEXT_KEY: libc::c_int = 4;
pub(super) const PROG_LOAD: libc::c_int = 5;
pub(super) const OBJ_GET: libc::c_int = 7;
pub(super) const PROG_TEST_RUN: libc::c_int = 10;
pub(super) const PROG_GET_NEXT_ID: libc::c_int = 11;
pub(super) const MAP_GET_NEXT_ID: libc::c_int = 12;
pub(super) const PROG_GET_FD_BY_ID: libc::c_int = 13;
pub(super) const MAP_GET_FD_BY_ID: libc::c_int = 14;
pub(super) const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
pub(super) const BTF_LOAD: libc::c_int = 18;
pub(super) const BTF_GET_FD_BY_ID: libc::c_int = 19;
pub(super) const MAP_FREEZE: libc::c_int = 22;
pub(super) const BTF_GET_NEXT_ID: libc::c_int = 23;
pub(super) const MAP_LOOKUP_BATCH: libc::c_int = 24;
pub(super) const LINK_CREATE: libc::c_int = 28;
pub(super) const LINK_UPDATE: libc::c_int = 29;
pub(super) const LINK_GET_FD_BY_ID: libc::c_int = 30;
pub(super) const LINK_GET_NEXT_ID: libc::c_int = 31;
pub(super) const PROG_BIND_MAP: libc::c_int = 35;

/// BPF_LINK_TYPE_XDP.
pub(super) const LINK_TYPE_XDP: u32 = 6;

// The kernel checks every byte of its input, so padding has to be a field.

/// `bpf_attr` of MAP_CREATE.
#[repr(C)]
#[derive(Default)]
pub(super) struct MapCreate {
    pub(super) kind: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) max_entries: u32,
    pub(super) flags: u32,
    pub(super) inner_fd: u32,
    pub(super) numa_node: u32,
    pub(super) name: [u8; 16],
    pub(super) ifindex: u32,
    pub(super) btf_fd: u32,
    pub(super) key_type: u32,
    pub(super) value_type: u32,
}

/// `bpf_attr` of the commands on an entry.
#[repr(C)]
#[derive(Default)]
pub(super) struct Element {
    pub(super) map_fd: u32,
    pub(super) padding: u32,
    pub(super) key: u64,
    pub(super) value: u64,
    pub(super) flags: u64,
}

/// `bpf_attr` of the batch commands.
#[repr(C)]
#[derive(Default)]
pub(super) struct Batch {
    pub(super) in_batch: u64,
    pub(super) out_batch: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    pub(super) count: u32,
    pub(super) map_fd: u32,
    pub(super) elem_flags: u64,
    pub(super) flags: u64,
}

/// `bpf_attr` of BTF_LOAD.
#[repr(C)]
#[derive(Default)]
pub(super) struct BtfLoad {
    pub(super) btf: u64,
    pub(super) log: u64,
    pub(super) btf_bytes: u32,
    pub(super) log_bytes: u32,
    pub(super) log_level: u32,
    pub(super) padding: u32,
}

/// `bpf_attr` of PROG_LOAD, as far as it is used here.
#[repr(C)]
#[derive(Default)]
pub(super) struct ProgLoad {
    pub(super) kind: u32,
    pub(super) insns_len: u32,
    pub(super) insns: u64,
    pub(super) license: u64,
    pub(super) log_level: u32,
    pub(super) log_bytes: u32,
    pub(super) log: u64,
    pub(super) kernel_version: u32,
    pub(super) flags: u32,
    pub(super) name: [u8; 16],
    pub(super) ifindex: u32,
    pub(super) attach_type: u32,
    pub(super) btf_fd: u32,
    pub(super) func_bytes: u32,
    pub(super) funcs: u64,
    pub(super) funcs_len: u32,
    pub(super) line_bytes: u32,
    pub(super) lines: u64,
    pub(super) lines_len: u32,
    pub(super) attach_btf: u32,
}

/// `bpf_attr` of PROG_TEST_RUN.
#[repr(C)]
#[derive(Default)]
pub(super) struct TestRun {
    pub(super) prog_fd: u32,
    pub(super) verdict: u32,
    pub(super) in_bytes: u32,
    pub(super) out_bytes: u32,
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) repeat: u32,
    pub(super) duration_ns: u32,
    pub(super) context_in_bytes: u32,
    pub(super) context_out_bytes: u32,
    pub(super) context_in: u64,
    pub(super) context_out: u64,
    pub(super) flags: u32,
    pub(super) cpu: u32,
    pub(super) batch: u32,
    pub(super) padding: u32,
}

/// `struct xdp_md` in test runs: offsets from the beginning of the metadata.
#[repr(C)]
#[derive(Default)]
pub(super) struct XdpContext {
    pub(super) data: u32,
    pub(super) data_end: u32,
    pub(super) data_meta: u32,
    pub(super) ingress_ifindex: u32,
    pub(super) rx_queue_index: u32,
    pub(super) egress_ifindex: u32,
}

/// `bpf_attr` of LINK_CREATE, for XDP.
#[repr(C)]
#[derive(Default)]
pub(super) struct LinkCreate {
    pub(super) prog_fd: u32,
    pub(super) ifindex: u32,
    pub(super) attach_type: u32,
    pub(super) flags: u32,
}

/// `bpf_attr` of LINK_UPDATE.
#[repr(C)]
#[derive(Default)]
pub(super) struct LinkUpdate {
    pub(super) link_fd: u32,
    pub(super) new_prog_fd: u32,
    pub(super) flags: u32,
    pub(super) old_prog_fd: u32,
}

/// `bpf_attr` of PROG_BIND_MAP.
#[repr(C)]
#[derive(Default)]
pub(super) struct Bind {
    pub(super) prog_fd: u32,
    pub(super) map_fd: u32,
    pub(super) flags: u32,
}

/// `bpf_attr` of the commands that iterate over ids or open them.
#[repr(C)]
#[derive(Default)]
pub(super) struct Id {
    pub(super) id: u32,
    pub(super) next: u32,
    pub(super) flags: u32,
}

/// `bpf_attr` of the commands on pinned objects.
#[repr(C)]
#[derive(Default)]
pub(super) struct Path {
    pub(super) path: u64,
    pub(super) fd: u32,
    pub(super) flags: u32,
}

/// `bpf_attr` of OBJ_GET_INFO_BY_FD.
#[repr(C)]
#[derive(Default)]
pub(super) struct Info {
    pub(super) fd: u32,
    pub(super) bytes: u32,
    pub(super) info: u64,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Default)]
pub(super) struct ProgInfo {
    pub(super) kind: u32,
    pub(super) id: u32,
    pub(super) tag: u64,
    pub(super) jited_bytes: u32,
    pub(super) xlated_bytes: u32,
    pub(super) jited: u64,
    pub(super) xlated: u64,
    pub(super) load_time: u64,
    pub(super) uid: u32,
    pub(super) maps_len: u32,
    pub(super) maps: u64,
    pub(super) name: [u8; 16],
    pub(super) ifindex: u32,
    pub(super) gpl: u32,
    pub(super) netns_dev: u64,
    pub(super) netns_ino: u64,
    pub(super) jited_ksyms_len: u32,
    pub(super) jited_lens_len: u32,
    pub(super) jited_ksyms: u64,
    pub(super) jited_lens: u64,
    pub(super) btf: u32,
    pub(super) func_bytes: u32,
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct MapInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
    pub(crate) name: [u8; 16],
    pub(crate) ifindex: u32,
    pub(crate) vmlinux_value_type: u32,
    pub(crate) netns_dev: u64,
    pub(crate) netns_ino: u64,
    pub(crate) btf: u32,
    pub(crate) key_type: u32,
    pub(crate) value_type: u32,
    pub(crate) vmlinux: u32,
}

/// The beginning of `struct bpf_btf_info`.
#[repr(C)]
#[derive(Default)]
pub(super) struct BtfInfo {
    pub(super) btf: u64,
    pub(super) btf_bytes: u32,
    pub(super) id: u32,
}

/// `struct bpf_link_info`, as far as XDP needs it.
#[repr(C)]
#[derive(Default)]
pub(super) struct LinkInfo {
    pub(super) kind: u32,
    pub(super) id: u32,
    pub(super) program: u32,
    pub(super) padding: u32,
    pub(super) interface: u32,
    pub(super) rest: [u32; 7],
}

/// Calls bpf(2); returns its result.
///
/// # Safety
/// `attr` is the `bpf_attr` of the command, and each address in it that the command accesses is that of live memory of
/// sufficient size, mutable if it is written.
pub(super) unsafe fn call<A>(command: libc::c_int, attr: &mut A) -> io::Result<i64> {
    // SAFETY: a structure of the given size; the rest is the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// Calls a command that returns a file descriptor.
///
/// # Safety
/// As for [`call`].
pub(super) unsafe fn open<A>(command: libc::c_int, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(command, attr)? };
    // SAFETY: the command has created this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}
