// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types, programs and test runs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use flowloom_isa::{Insn, ProgramKind};
use flowloom_object::KernelTypes;

use super::{RawMap, bpf, object_name, text, too_long};

/// BPF_PROG_TYPE_XDP.
pub(super) const XDP: u32 = 6;
/// The attach types of such programs: BPF_XDP, BPF_XDP_DEVMAP, BPF_XDP_CPUMAP.
const ATTACH_XDP: u32 = 37;
const ATTACH_DEVMAP: u32 = 33;
const ATTACH_CPUMAP: u32 = 35;
/// BPF_F_XDP_HAS_FRAGS.
const XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// BPF_F_REPLACE.
const REPLACE: u32 = 1 << 2;
/// The size of `struct bpf_func_info`.
const FUNC_BYTES: u32 = 8;
/// The size of `struct bpf_line_info`.
const LINE_BYTES: u32 = 16;
/// The size of the first log, and the largest that every kernel supports.
const LOG_BYTES: [usize; 2] = [1 << 16, (1 << 24) - 1];
/// The log level of statistics alone [Linux BPF_LOG_STATS], and an upper bound on their size.
const STATISTICS: u32 = 4;
const STATISTICS_BYTES: usize = 1 << 12;

/// Loads types into the kernel.
///
/// # Errors
/// The kernel's, with its message about the types.
pub(crate) fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    let btf_bytes = u32::try_from(btf.len()).map_err(|_| too_long("types", btf.len()))?;
    let mut attr = bpf::BtfLoad { btf: btf.as_ptr() as u64, btf_bytes, ..bpf::BtfLoad::default() };
    // SAFETY: `btf` is live and has the given size; there is no log yet.
    let error = match unsafe { bpf::open(bpf::BTF_LOAD, &mut attr) } {
        Ok(fd) => return Ok(fd),
        Err(error) => error,
    };
    let mut log = vec![0; LOG_BYTES[0]];
    (attr.log, attr.log_bytes, attr.log_level) = (log.as_mut_ptr() as u64, log.len() as u32, 1);
    // SAFETY: the same, and `log` has the given size.
    if unsafe { bpf::open(bpf::BTF_LOAD, &mut attr) }.is_ok() || error.kind() == io::ErrorKind::PermissionDenied {
        return Err(error);
    }
    let text = text(&log);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(io::Error::new(error.kind(), format!("{error}: {}", last.trim())))
}

/// A program that the kernel refused: its error and the verifier's log.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) error: io::Error,
    pub(crate) log: String,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal { error, log: String::new() }
    }
}

/// The kind and properties with which an XDP program is loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose {
    /// Test runs accept plain XDP only.
    pub(crate) kind: ProgramKind,
    /// True if it supports multi-buffer packets.
    pub(crate) frags: bool,
}

/// Loads an XDP program whose instructions refer to maps by file descriptor.
///
/// # Errors
/// The kernel's; the log is empty unless the verifier refuses.
pub(crate) fn load(
    name: &str,
    license: &str,
    insns: &[Insn],
    types: &KernelTypes,
    btf: BorrowedFd<'_>,
    purpose: Purpose,
) -> Result<RawProgram, Refusal> {
    let attach_type = match purpose.kind {
        ProgramKind::XdpDevmap => ATTACH_DEVMAP,
        ProgramKind::XdpCpumap => ATTACH_CPUMAP,
        ProgramKind::Xdp | ProgramKind::Other(_) => ATTACH_XDP,
    };
    let license = CString::new(license).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let code: Vec<u64> = insns.iter().map(|insn| u64::from_ne_bytes(insn.to_bytes())).collect();
    let funcs: Vec<[u32; 2]> = types.functions.iter().map(|(at, ty)| [*at, ty.0]).collect();
    let length = |what: &str, found: usize| u32::try_from(found).map_err(|_| too_long(what, found));
    let mut attr = bpf::ProgLoad {
        kind: XDP,
        insns_len: length("instructions", code.len())?,
        insns: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        flags: if purpose.frags { XDP_HAS_FRAGS } else { 0 },
        name: object_name(name),
        attach_type,
        btf_fd: btf.as_raw_fd() as u32,
        func_bytes: FUNC_BYTES,
        funcs: funcs.as_ptr() as u64,
        funcs_len: length("functions", funcs.len())?,
        line_bytes: LINE_BYTES,
        lines: types.lines.as_ptr() as u64,
        lines_len: length("lines", types.lines.len())?,
        ..bpf::ProgLoad::default()
    };
    let mut log = vec![0; STATISTICS_BYTES];
    (attr.log, attr.log_bytes, attr.log_level) = (log.as_mut_ptr() as u64, log.len() as u32, STATISTICS);
    // SAFETY: code, licence (zero-terminated), functions and lines are live and have the given sizes; so has the log.
    let error = match unsafe { bpf::open(bpf::PROG_LOAD, &mut attr) } {
        Ok(fd) => return Ok(RawProgram { fd, walked: walked(&text(&log)) }),
        Err(error) => error,
    };
    // A log is only made on an error; old kernels truncate a large one, and say so.
    for bytes in LOG_BYTES {
        let mut log = vec![0; bytes];
        (attr.log, attr.log_bytes, attr.log_level) = (log.as_mut_ptr() as u64, bytes as u32, 1);
        // SAFETY: the same, and `log` has the given size.
        match unsafe { bpf::open(bpf::PROG_LOAD, &mut attr) } {
            Ok(fd) => return Ok(RawProgram { fd, walked: walked(&text(&log)) }),
            Err(again) if again.raw_os_error() == Some(libc::ENOSPC) && bytes != LOG_BYTES[1] => {}
            Err(_) => return Err(Refusal { error, log: text(&log) }),
        }
    }
    Err(error.into())
}

/// The number of walked instructions in the verifier's statistics.
fn walked(log: &str) -> Option<u64> {
    let rest = log.lines().rev().find_map(|line| line.strip_prefix("processed "))?;
    rest.split_once(' ')?.0.parse().ok()
}

/// The result of a test run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) verdict: u32,
    /// The size of the metadata area before the packet.
    pub(crate) meta_bytes: usize,
    /// The size of metadata and packet afterwards.
    pub(crate) bytes: usize,
}

/// An XDP program in the kernel.
#[derive(Debug)]
pub(crate) struct RawProgram {
    fd: OwnedFd,
    /// The instructions that the verifier walked, over all paths; `None` if it does not tell.
    pub(crate) walked: Option<u64>,
}

impl RawProgram {
    /// The file descriptor number for maps of programs.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Attaches it to an interface, natively or on socket buffers, until the link is dropped; the kernel drops it with
    /// the process.
    pub(crate) fn attach(&self, interface: u32, native: bool) -> io::Result<OwnedFd> {
        let mut attr = bpf::LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            ifindex: interface,
            attach_type: ATTACH_XDP,
            flags: if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE },
        };
        // SAFETY: the attributes contain no addresses.
        unsafe { bpf::open(bpf::LINK_CREATE, &mut attr) }
    }

    /// Puts it in the place of `old` on the interface of a link: every packet meets one of both.
    ///
    /// # Errors
    /// The kernel's; EPERM if the link has another program than `old`. The old program then stays.
    pub(crate) fn replace(&self, old: &RawProgram, link: BorrowedFd<'_>) -> io::Result<()> {
        let mut attr = bpf::LinkUpdate {
            link_fd: link.as_raw_fd() as u32,
            new_prog_fd: self.fd.as_raw_fd() as u32,
            flags: REPLACE,
            old_prog_fd: old.fd.as_raw_fd() as u32,
        };
        // SAFETY: the attributes contain no addresses.
        unsafe { bpf::call(bpf::LINK_UPDATE, &mut attr) }.map(drop)
    }

    /// Binds a map that no instruction refers to to the program.
    pub(crate) fn bind(&self, map: &RawMap) -> io::Result<()> {
        let mut attr = bpf::Bind { prog_fd: self.fd.as_raw_fd() as u32, map_fd: map.number() as u32, flags: 0 };
        // SAFETY: the attributes contain no addresses.
        unsafe { bpf::call(bpf::PROG_BIND_MAP, &mut attr) }.map(drop)
    }

    /// Runs it on `packet`, `repeat` times on the same bytes; writes the resulting packet to `output`. A too short
    /// output is an error, an empty one is not.
    pub(crate) fn test_run(&self, packet: &[u8], output: &mut [u8], repeat: u32) -> io::Result<Ran> {
        let length = |found: usize| u32::try_from(found).map_err(|_| too_long("a packet", found));
        let in_bytes = length(packet.len())?;
        // The context returns the size of the metadata area before the packet.
        let mut context = bpf::XdpContext { data_end: in_bytes, ..bpf::XdpContext::default() };
        let context_bytes = size_of::<bpf::XdpContext>() as u32;
        let context_at = std::ptr::from_mut(&mut context) as u64;
        let mut attr = bpf::TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            in_bytes,
            out_bytes: length(output.len())?,
            input: packet.as_ptr() as u64,
            // A size of 0 would mean unlimited.
            output: if output.is_empty() { 0 } else { output.as_mut_ptr() as u64 },
            repeat,
            context_in_bytes: context_bytes,
            context_out_bytes: context_bytes,
            context_in: context_at,
            context_out: context_at,
            ..bpf::TestRun::default()
        };
        // SAFETY: input, output and context have the given sizes; output and context are mutable, and the context is
        // read before it is written.
        unsafe { bpf::call(bpf::PROG_TEST_RUN, &mut attr)? };
        Ok(Ran { verdict: attr.verdict, meta_bytes: context.data as usize, bytes: attr.out_bytes as usize })
    }
}
