// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects in the kernel: programs, maps, types and links, by id.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

pub(crate) use super::bpf::MapInfo;
use super::{bpf, text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Program,
    Map,
    Btf,
    Link,
}

impl Kind {
    fn commands(self) -> (libc::c_int, libc::c_int) {
        match self {
            Kind::Program => (bpf::PROG_GET_NEXT_ID, bpf::PROG_GET_FD_BY_ID),
            Kind::Map => (bpf::MAP_GET_NEXT_ID, bpf::MAP_GET_FD_BY_ID),
            Kind::Btf => (bpf::BTF_GET_NEXT_ID, bpf::BTF_GET_FD_BY_ID),
            Kind::Link => (bpf::LINK_GET_NEXT_ID, bpf::LINK_GET_FD_BY_ID),
        }
    }
}

/// The ids of all objects of a kind.
///
/// # Errors
/// Missing privileges (CAP_SYS_ADMIN).
pub(crate) fn ids(kind: Kind) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    let mut last = 0;
    loop {
        let mut attr = bpf::Id { id: last, ..bpf::Id::default() };
        // SAFETY: the attributes contain no addresses.
        match unsafe { bpf::call(kind.commands().0, &mut attr) } {
            Ok(_) => last = attr.next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(error),
        }
        found.push(last);
    }
}

/// Opens an object by its id; `None` if it no longer exists.
///
/// # Errors
/// Missing privileges (CAP_SYS_ADMIN).
pub(crate) fn open(kind: Kind, id: u32) -> io::Result<Option<OwnedFd>> {
    let mut attr = bpf::Id { id, ..bpf::Id::default() };
    // SAFETY: the attributes contain no addresses.
    match unsafe { bpf::open(kind.commands().1, &mut attr) } {
        Ok(fd) => Ok(Some(fd)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens the object pinned at `path`.
///
/// # Errors
/// No BPF object is pinned there.
pub(crate) fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::ffi::OsStrExt;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let mut attr = bpf::Path { path: path.as_ptr() as u64, ..bpf::Path::default() };
    // SAFETY: the path is live and zero-terminated.
    unsafe { bpf::open(bpf::OBJ_GET, &mut attr) }
}

/// Fills `info` with the kernel's information about an object.
fn info<I>(fd: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    let mut attr =
        bpf::Info { fd: fd.as_raw_fd() as u32, bytes: size_of::<I>() as u32, info: std::ptr::from_mut(info) as u64 };
    // SAFETY: `info` is one of the structures below: plain data of the given size, live and mutable; the arrays that it
    // refers to have the sizes in it.
    unsafe { bpf::call(bpf::OBJ_GET_INFO_BY_FD, &mut attr) }.map(drop)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramInfo {
    pub(crate) id: u32,
    pub(crate) is_xdp: bool,
    pub(crate) name: String,
    pub(crate) maps: Vec<u32>,
    pub(crate) btf: u32,
}

/// Information about a program.
///
/// # Errors
/// The kernel's.
pub(crate) fn program(fd: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut found = bpf::ProgInfo::default();
    info(fd, &mut found)?;
    // Maps may be bound to it between the two calls; then the list is truncated, not overrun.
    let mut maps = vec![0_u32; found.maps_len as usize];
    let mut again = bpf::ProgInfo { maps_len: found.maps_len, maps: maps.as_mut_ptr() as u64, ..Default::default() };
    info(fd, &mut again)?;
    maps.truncate(again.maps_len as usize);
    let is_xdp = again.kind == super::program::XDP;
    Ok(ProgramInfo { id: again.id, is_xdp, name: text(&again.name), maps, btf: again.btf })
}

/// Information about a map, and its name.
///
/// # Errors
/// The kernel's.
pub(crate) fn map(fd: BorrowedFd<'_>) -> io::Result<(MapInfo, String)> {
    let mut found = MapInfo::default();
    info(fd, &mut found)?;
    let name = text(&found.name);
    Ok((found, name))
}

/// The types with an id.
///
/// # Errors
/// The kernel's.
pub(crate) fn btf(fd: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let mut found = bpf::BtfInfo::default();
    info(fd, &mut found)?;
    let mut bytes = vec![0; found.btf_bytes as usize];
    let mut again = bpf::BtfInfo { btf: bytes.as_mut_ptr() as u64, btf_bytes: found.btf_bytes, ..Default::default() };
    info(fd, &mut again)?;
    Ok(bytes)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkInfo {
    pub(crate) id: u32,
    pub(crate) program: u32,
    /// The interface of an XDP link; 0 once it no longer exists.
    pub(crate) interface: Option<u32>,
}

/// Information about a link.
///
/// # Errors
/// The kernel's.
pub(crate) fn link(fd: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut found = bpf::LinkInfo::default();
    info(fd, &mut found)?;
    let interface = (found.kind == bpf::LINK_TYPE_XDP).then_some(found.interface);
    Ok(LinkInfo { id: found.id, program: found.program, interface })
}
