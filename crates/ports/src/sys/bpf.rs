// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The small programs of devices: bpf(2), a map of sockets, links that end with the process.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const PROG_GET_FD_BY_ID: libc::c_int = 13;
const PROG_QUERY: libc::c_int = 16;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const LINK_CREATE: libc::c_int = 28;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_SCHED_CLS: u32 = 3;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const ATTACH_TCX_INGRESS: u32 = 46;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// TCX: before all programs that are attached.
const BEFORE: u32 = 1 << 3;
const LOG_BYTES: usize = 1 << 14;

/// The mark of packets that were handed to the network stack by [`Program::to_stack`].
pub(crate) const STACK_MARK: u32 = 0x666c_6f77;

/// The name of the program of [`Program::to_sockets`].
pub(crate) const TO_SOCKETS: &str = "fl_to_sockets";
/// The name of the program of [`Program::keep_from_stack`].
pub(crate) const KEEP: &str = "fl_keep";
/// The size of the token of [`Program::to_sockets`].
pub(crate) const TOKEN_BYTES: usize = 8;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;

/// An instruction, in the kernel's layout.
const fn insn(code: u8, registers: u8, offset: i16, imm: u32) -> u64 {
    code as u64 | (registers as u64) << 8 | (offset as u16 as u64) << 16 | (imm as u64) << 32
}

/// `r<dst> = *(u32 *)(r<src> + offset)`.
const fn load(dst: u8, src: u8, offset: i16) -> u64 {
    insn(0x61, dst | src << 4, offset, 0)
}

/// `*(u32 *)(r<dst> + offset) = imm`
const fn store(dst: u8, offset: i16, imm: u32) -> u64 {
    insn(0x62, dst, offset, imm)
}

/// `r<dst> = imm`
const fn set(dst: u8, imm: u32) -> u64 {
    insn(0xb7, dst, 0, imm)
}

const fn call(helper: u32) -> u64 {
    insn(0x85, 0, 0, helper)
}

/// `r<dst> = r<src>`
const fn move_to(dst: u8, src: u8) -> u64 {
    insn(0xbf, dst | src << 4, 0, 0)
}

const EXIT: u64 = insn(0x95, 0, 0, 0);

const HELPER_REDIRECT: u32 = 23;
const HELPER_ADJUST_HEAD: u32 = 44;
const HELPER_REDIRECT_MAP: u32 = 51;

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    max_entries: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    insns_len: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    prog_fd: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
    relative_fd: u32,
    padding: u32,
    revision: u64,
}

/// Calls bpf(2).
///
/// # Safety
/// `attr` is the `bpf_attr` of the command; each address in it is that of live memory of sufficient size, mutable if
/// the command writes it.
unsafe fn bpf<A>(command: libc::c_int, attr: &mut A) -> io::Result<i32> {
    // SAFETY: a structure of the given size; the rest is the caller's promise.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<A>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as i32) }
}

/// As [`bpf`], for commands that create a descriptor.
///
/// # Safety
/// As for [`bpf`].
unsafe fn create<A>(command: libc::c_int, attr: &mut A) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { bpf(command, attr)? };
    // SAFETY: the command has created this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `struct bpf_link_info`; of its variants, those of XDP and TCX begin with the interface.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    ifindex: u32,
    rest: [u32; 7],
}

#[repr(C)]
struct Info {
    fd: u32,
    bytes: u32,
    info: u64,
}

/// Fills `info`, one of the kernel's structures of information, for an object.
///
/// # Safety
/// `I` is plain data for which every byte pattern is valid.
unsafe fn inspect<I: Default>(object: &OwnedFd) -> io::Result<I> {
    let mut found = I::default();
    let mut attr = Info {
        fd: object.as_raw_fd() as u32,
        bytes: size_of::<I>() as u32,
        info: std::ptr::from_mut(&mut found) as u64,
    };
    // SAFETY: the information is live, mutable, and has the given size.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attr)? };
    Ok(found)
}

/// `struct bpf_prog_info` up to the name.
#[repr(C)]
#[derive(Default)]
struct ProgInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    code_bytes: [u32; 2],
    code: [u64; 2],
    load_time: u64,
    uid: u32,
    maps_len: u32,
    maps: u64,
    name: [u8; 16],
}

/// `query` of `bpf_attr`.
#[repr(C)]
#[derive(Default)]
struct Query {
    ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
    programs_flags: u64,
    links: u64,
    links_flags: u64,
    revision: u64,
}

/// The programs at the ingress of an interface that one query returns, at most; the kernel attaches 64 at most.
const AT_INGRESS: usize = 64;

/// The ids and names of the programs at the ingress of an interface (TCX), in order.
pub(crate) fn at_ingress(ifindex: u32) -> io::Result<Vec<(u32, String)>> {
    let mut ids = [0u32; AT_INGRESS];
    let mut attr = Query {
        ifindex,
        attach_type: ATTACH_TCX_INGRESS,
        programs: ids.as_mut_ptr() as u64,
        count: AT_INGRESS as u32,
        ..Query::default()
    };
    // SAFETY: the list of ids is live, mutable, and has the given length.
    match unsafe { bpf(PROG_QUERY, &mut attr) } {
        // No program was ever attached.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(Vec::new()),
        other => other?,
    };
    let name = |id: u32| -> io::Result<String> {
        let mut attr = [id, 0, 0];
        // SAFETY: the attributes contain no addresses.
        let program = unsafe { create(PROG_GET_FD_BY_ID, &mut attr)? };
        // SAFETY: numbers only.
        let info: ProgInfo = unsafe { inspect(&program)? };
        Ok(super::text(&info.name))
    };
    // One that has ended since is left out.
    Ok(ids[..attr.count as usize].iter().filter_map(|id| Some((*id, name(*id).ok()?))).collect())
}

/// The interface on which a link of XDP or TCX holds its program; 0 once it was detached.
pub(crate) fn link_interface(link: &OwnedFd) -> io::Result<u32> {
    // SAFETY: numbers only.
    let found: LinkInfo = unsafe { inspect(link)? };
    Ok(found.ifindex)
}

/// The id of the program of a link.
pub(crate) fn link_program(link: &OwnedFd) -> io::Result<u32> {
    // SAFETY: numbers only.
    let found: LinkInfo = unsafe { inspect(link)? };
    Ok(found.program)
}

/// A map of AF_XDP sockets by receive queue.
#[derive(Debug)]
pub(crate) struct SocketMap {
    fd: OwnedFd,
}

impl SocketMap {
    /// Creates a map for the queues below `queues`.
    pub(crate) fn new(queues: u32) -> io::Result<SocketMap> {
        let mut attr = MapCreate { kind: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, max_entries: queues, flags: 0 };
        // SAFETY: the attributes contain no addresses.
        Ok(SocketMap { fd: unsafe { create(MAP_CREATE, &mut attr)? } })
    }

    /// Sets the socket of a queue; the kernel removes it when the socket is closed.
    pub(crate) fn set(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let mut attr = Element {
            map_fd: self.fd.as_raw_fd() as u32,
            key: std::ptr::from_ref(&queue) as u64,
            value: std::ptr::from_ref(&value) as u64,
            ..Element::default()
        };
        // SAFETY: key and value are live and have four bytes each.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    attach_type: u32,
}

impl Program {
    /// XDP: redirects a packet to the socket of its queue, or drops it if the queue has none. A packet that begins
    /// with `token` is passed without it.
    pub(crate) fn to_sockets(map: &SocketMap, token: Option<u64>) -> io::Result<Program> {
        let map_fd = map.fd.as_raw_fd() as u32;
        let passed = |token: u64| {
            [
                move_to(6, 1),
                // r2 = ctx->data, r3 = ctx->data_end
                load(2, 1, 0),
                load(3, 1, 4),
                move_to(4, 2),
                // r4 += token and Ethernet header; if r4 > r3 goto +8
                insn(0x07, 4, 0, TOKEN_BYTES as u32 + 14),
                insn(0x2d, 4 | 3 << 4, 8, 0),
                // r5 = *(u64 *)r2; r4 = token ll; if r5 != r4 goto +4
                insn(0x79, 5 | 2 << 4, 0, 0),
                insn(0x18, 4, 0, token as u32),
                insn(0, 0, 0, (token >> 32) as u32),
                insn(0x5d, 5 | 4 << 4, 4, 0),
                set(2, TOKEN_BYTES as u32),
                call(HELPER_ADJUST_HEAD),
                set(0, XDP_PASS),
                EXIT,
                move_to(1, 6),
            ]
        };
        let redirected = [
            // r2 = ctx->rx_queue_index
            load(2, 1, 16),
            // r1 = map ll: BPF_PSEUDO_MAP_FD as the source register
            insn(0x18, 1 | 1 << 4, 0, map_fd),
            0,
            // If there is no socket: what the function has not seen must not pass.
            set(3, XDP_DROP),
            call(HELPER_REDIRECT_MAP),
            EXIT,
        ];
        let code = [token.map(passed).as_ref().map_or(&[][..], |code| &code[..]), &redirected].concat();
        Program::load(PROG_TYPE_XDP, ATTACH_XDP, TO_SOCKETS, &code)
    }

    /// TC ingress: redirects every packet to the network stack, as if interface number `ifindex` had received it.
    pub(crate) fn to_stack(ifindex: u32) -> io::Result<Program> {
        // skb->mark, by which the receiving interface knows the packet.
        let code = [store(1, 8, STACK_MARK), set(1, ifindex), set(2, 1), call(HELPER_REDIRECT), EXIT];
        Program::load(PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS, "fl_to_stack", &code)
    }

    /// TC ingress: keeps packets from the network stack, except those of [`Program::to_stack`]. Raw sockets have seen
    /// them before.
    pub(crate) fn keep_from_stack() -> io::Result<Program> {
        let code = [
            load(2, 1, 8),
            // if r2 == STACK_MARK goto +2
            insn(0x15, 2, 2, STACK_MARK),
            // TCX_DROP
            set(0, 2),
            EXIT,
            store(1, 8, 0),
            // TCX_NEXT
            set(0, u32::MAX),
            EXIT,
        ];
        Program::load(PROG_TYPE_SCHED_CLS, ATTACH_TCX_INGRESS, KEEP, &code)
    }

    fn load(kind: u32, attach_type: u32, name: &str, code: &[u64]) -> io::Result<Program> {
        let mut stored = [0; 16];
        stored[..name.len()].copy_from_slice(name.as_bytes());
        let mut log = vec![0u8; LOG_BYTES];
        let mut attr = ProgLoad {
            kind,
            insns_len: code.len() as u32,
            insns: code.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            name: stored,
            attach_type: if kind == PROG_TYPE_XDP { attach_type } else { 0 },
            log_level: 1,
            log_bytes: LOG_BYTES as u32,
            log: log.as_mut_ptr() as u64,
            ..ProgLoad::default()
        };
        // SAFETY: code and licence (zero-terminated) are live and have the given sizes; so has the log, which is
        // mutable.
        match unsafe { create(PROG_LOAD, &mut attr) } {
            Ok(fd) => Ok(Program { fd, attach_type }),
            Err(error) => {
                let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                let text = String::from_utf8_lossy(&log[..end]).into_owned();
                match text.lines().rfind(|line| !line.is_empty() && !line.starts_with("processed")) {
                    Some(line) if error.raw_os_error() == Some(libc::EINVAL) => {
                        Err(io::Error::new(error.kind(), format!("{error}: {line}")))
                    }
                    _ => Err(error),
                }
            }
        }
    }

    /// Attaches it to an interface until the link is dropped; the kernel drops it with the process. `native` is for XDP
    /// only.
    pub(crate) fn attach(&self, ifindex: u32, native: bool) -> io::Result<OwnedFd> {
        let flags = match (self.attach_type, native) {
            (ATTACH_XDP, true) => XDP_FLAGS_DRV_MODE,
            (ATTACH_XDP, false) => XDP_FLAGS_SKB_MODE,
            // A program of others that redirects or passes would end the chain before this one.
            _ => BEFORE,
        };
        let mut attr = LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            ifindex,
            attach_type: self.attach_type,
            flags,
            ..LinkCreate::default()
        };
        // SAFETY: the attributes contain no addresses.
        unsafe { create(LINK_CREATE, &mut attr) }
    }
}
