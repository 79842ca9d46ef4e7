//! Types, programs and test runs.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use flowloom_bpf::elf::KernelTypes;
use flowloom_bpf::{Insn, ProgramKind};

use super::{RawMap, bpf, object_name, too_long};

/// BPF_PROG_TYPE_XDP.
pub(super) const XDP: u32 = 6;
/// How programs of this type are attached: BPF_XDP, BPF_XDP_DEVMAP, BPF_XDP_CPUMAP.
const ATTACH_XDP: u32 = 37;
const ATTACH_DEVMAP: u32 = 33;
const ATTACH_CPUMAP: u32 = 35;
/// BPF_F_XDP_HAS_FRAGS.
const XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// Length of `struct bpf_func_info`.
const FUNC_BYTES: u32 = 8;
/// Length of `struct bpf_line_info`.
const LINE_BYTES: u32 = 16;
/// The first log asked for, and the largest that every kernel gives.
const LOG_BYTES: [usize; 2] = [1 << 16, (1 << 24) - 1];
/// Log level of statistics alone [Linux BPF_LOG_STATS], which take no more than this.
const STATISTICS: u32 = 4;
const STATISTICS_BYTES: usize = 1 << 12;

/// Hands the types to the kernel.
///
/// # Errors
/// The kernel's, with what it says about the types in the text.
pub(crate) fn load_btf(btf: &[u8]) -> io::Result<OwnedFd> {
    let btf_bytes = u32::try_from(btf.len()).map_err(|_| too_long("types", btf.len()))?;
    let mut attr = bpf::BtfLoad { btf: btf.as_ptr() as u64, btf_bytes, ..bpf::BtfLoad::default() };
    // SAFETY: `btf` lives, and its length is the one given; there is no log yet.
    let error = match unsafe { bpf::open(bpf::BTF_LOAD, &mut attr) } {
        Ok(fd) => return Ok(fd),
        Err(error) => error,
    };
    let mut log = vec![0; LOG_BYTES[0]];
    (attr.log, attr.log_bytes, attr.log_level) = (log.as_mut_ptr() as u64, log.len() as u32, 1);
    // SAFETY: the same, and `log` has the length given.
    if unsafe { bpf::open(bpf::BTF_LOAD, &mut attr) }.is_ok() || error.kind() == io::ErrorKind::PermissionDenied {
        return Err(error);
    }
    let text = text(&log);
    let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(io::Error::new(error.kind(), format!("{error}: {}", last.trim())))
}

/// What a log holds, up to its end.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

/// A program that the kernel refused: its answer and the verifier's log.
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

/// What an XDP program is loaded for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Purpose {
    /// Test runs take plain XDP alone.
    pub(crate) kind: ProgramKind,
    /// It takes packets that do not lie in one piece.
    pub(crate) frags: bool,
}

/// Loads an XDP program; its instructions name maps by file descriptors already.
///
/// # Errors
/// The kernel's; the log is empty where it is not the verifier that refuses.
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
    // SAFETY: code, licence (ended by a zero byte), functions and lines live and have the lengths given; so has the log.
    let error = match unsafe { bpf::open(bpf::PROG_LOAD, &mut attr) } {
        Ok(fd) => return Ok(RawProgram { fd, walked: walked(&text(&log)) }),
        Err(error) => error,
    };
    // Only now is the log worth its making; a large one is cut by old kernels, which say so.
    for bytes in LOG_BYTES {
        let mut log = vec![0; bytes];
        (attr.log, attr.log_bytes, attr.log_level) = (log.as_mut_ptr() as u64, bytes as u32, 1);
        // SAFETY: the same, and `log` has the length given.
        match unsafe { bpf::open(bpf::PROG_LOAD, &mut attr) } {
            Ok(fd) => return Ok(RawProgram { fd, walked: walked(&text(&log)) }),
            Err(again) if again.raw_os_error() == Some(libc::ENOSPC) && bytes != LOG_BYTES[1] => {}
            Err(_) => return Err(Refusal { error, log: text(&log) }),
        }
    }
    Err(error.into())
}

/// How many instructions the verifier says that it walked.
fn walked(log: &str) -> Option<u64> {
    let rest = log.lines().rev().find_map(|line| line.strip_prefix("processed "))?;
    rest.split_once(' ')?.0.parse().ok()
}

/// What a test run gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    /// What the program returned.
    pub(crate) verdict: u32,
    /// Length of the metadata before the packet.
    pub(crate) meta_bytes: usize,
    /// Length of metadata and packet afterwards.
    pub(crate) bytes: usize,
}

/// An XDP program in the kernel.
#[derive(Debug)]
pub(crate) struct RawProgram {
    fd: OwnedFd,
    /// Instructions that the verifier walked, on all paths together; `None` where it does not say.
    pub(crate) walked: Option<u64>,
}

impl RawProgram {
    /// The number by which maps of programs hold it.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Attaches it to an interface, natively or on socket buffers, until the link is dropped; the kernel drops it with the
    /// process.
    pub(crate) fn attach(&self, interface: u32, native: bool) -> io::Result<OwnedFd> {
        let mut attr = bpf::LinkCreate {
            prog_fd: self.fd.as_raw_fd() as u32,
            ifindex: interface,
            attach_type: ATTACH_XDP,
            flags: if native { XDP_FLAGS_DRV_MODE } else { XDP_FLAGS_SKB_MODE },
        };
        // SAFETY: the attributes hold no addresses.
        unsafe { bpf::open(bpf::LINK_CREATE, &mut attr) }
    }

    /// Makes a map that no instruction names one of the program's.
    pub(crate) fn bind(&self, map: &RawMap) -> io::Result<()> {
        let mut attr = bpf::Bind { prog_fd: self.fd.as_raw_fd() as u32, map_fd: map.number() as u32, flags: 0 };
        // SAFETY: the attributes hold no addresses.
        unsafe { bpf::call(bpf::PROG_BIND_MAP, &mut attr) }.map(drop)
    }

    /// Runs it on `packet`, `repeat` times on the same bytes; the packet afterwards goes to `output`, as far as it fits;
    /// a shorter output is an error, but for none at all.
    pub(crate) fn test_run(&self, packet: &[u8], output: &mut [u8], repeat: u32) -> io::Result<Ran> {
        let length = |found: usize| u32::try_from(found).map_err(|_| too_long("a packet", found));
        let in_bytes = length(packet.len())?;
        // A context is given for what comes back in it: how much metadata stands before the packet.
        let mut context = bpf::XdpContext { data_end: in_bytes, ..bpf::XdpContext::default() };
        let context_bytes = size_of::<bpf::XdpContext>() as u32;
        let context_at = std::ptr::from_mut(&mut context) as u64;
        let mut attr = bpf::TestRun {
            prog_fd: self.fd.as_raw_fd() as u32,
            in_bytes,
            out_bytes: length(output.len())?,
            input: packet.as_ptr() as u64,
            // A length of 0 would mean one without end.
            output: if output.is_empty() { 0 } else { output.as_mut_ptr() as u64 },
            repeat,
            context_in_bytes: context_bytes,
            context_out_bytes: context_bytes,
            context_in: context_at,
            context_out: context_at,
            ..bpf::TestRun::default()
        };
        // SAFETY: input, output and context have the lengths given; output and context are mutable, and the context is read
        // before it is written.
        unsafe { bpf::call(bpf::PROG_TEST_RUN, &mut attr)? };
        Ok(Ran { verdict: attr.verdict, meta_bytes: context.data as usize, bytes: attr.out_bytes as usize })
    }
}
