// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The C shim of DPDK. Buffers have one owner: the driver, or the holder of their [`Buffer`].

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// A packet in a buffer of DPDK; `struct fl_view`.
#[repr(C)]
#[derive(Debug)]
struct View {
    mbuf: *mut c_void,
    buffer: *mut u8,
    buffer_bytes: u32,
    start: u32,
    end: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct Counters {
    rx_missed: u64,
    tx_errors: u64,
}

unsafe extern "C" {
    fn fl_dpdk_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    fn fl_dpdk_error(number: c_int) -> *const c_char;
    fn fl_dpdk_probe(devargs: *const c_char, name: *const c_char) -> c_int;
    fn fl_dpdk_pool(name: *const c_char, count: u32, room: u16) -> *mut c_void;
    fn fl_dpdk_pool_used(pool: *mut c_void) -> u32;
    fn fl_dpdk_pool_free(pool: *mut c_void);
    fn fl_dpdk_start(port: u16, rx_entries: u16, tx_entries: u16, pool: *mut c_void) -> c_int;
    fn fl_dpdk_stop(port: u16);
    fn fl_dpdk_receive(port: u16, views: *mut View, count: u16, split: *mut u64) -> u32;
    fn fl_dpdk_allocate(pool: *mut c_void, bytes: u32, view: *mut View) -> c_int;
    fn fl_dpdk_free(mbuf: *mut c_void);
    fn fl_dpdk_send(port: u16, views: *mut View, count: u16) -> u32;
    fn fl_dpdk_room() -> u32;
    fn fl_dpdk_counters(port: u16, counters: *mut Counters);
}

/// The message of an error number of DPDK.
fn message(number: c_int) -> String {
    // SAFETY: DPDK returns a zero-terminated string of its thread.
    unsafe { CStr::from_ptr(fl_dpdk_error(number)) }.to_string_lossy().into_owned()
}

fn zero_terminated(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("`{}` contains a zero byte", text.escape_default()))
}

/// Starts DPDK with arguments, the first time in a process; later calls return the first result.
pub(crate) fn init(arguments: &[String]) -> Result<(), String> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let start = || {
        let texts: Vec<CString> = arguments.iter().map(|text| zero_terminated(text)).collect::<Result<_, _>>()?;
        // DPDK may reorder the list and keeps the texts.
        let mut list: Vec<*mut c_char> = texts.into_iter().map(CString::into_raw).collect();
        let count = list.len() as c_int;
        list.push(std::ptr::null_mut());
        // SAFETY: a list of `count` mutable zero-terminated texts and a null, all leaked.
        let answer = unsafe { fl_dpdk_init(count, list.leak().as_mut_ptr()) };
        if answer < 0 { Err(message(answer)) } else { Ok(()) }
    };
    STARTED.get_or_init(start).clone()
}

/// A pool of buffers.
#[derive(Debug)]
pub(crate) struct Pool {
    pool: *mut c_void,
}

// SAFETY: DPDK's pools may be used by any thread, and this is the only handle.
unsafe impl Send for Pool {}

impl Pool {
    /// Creates a pool of `count` buffers with room for `room` bytes each, DPDK's headroom included. Without a cache,
    /// since threads that DPDK does not know have none.
    pub(crate) fn new(name: &str, count: u32, room: u16) -> Result<Pool, String> {
        let name = zero_terminated(name)?;
        // SAFETY: a zero-terminated name, which is copied.
        let pool = unsafe { fl_dpdk_pool(name.as_ptr(), count, room) };
        if pool.is_null() { Err(std::io::Error::last_os_error().to_string()) } else { Ok(Pool { pool }) }
    }

    /// The buffers that are not in the pool.
    pub(crate) fn used(&self) -> u32 {
        // SAFETY: a live pool.
        unsafe { fl_dpdk_pool_used(self.pool) }
    }

    /// A buffer whose packet has `bytes` bytes; `None` if no buffer is free or large enough.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Buffer<'_>> {
        let mut view = Buffer::EMPTY;
        // SAFETY: a live pool and a mutable place.
        let answer = unsafe { fl_dpdk_allocate(self.pool, u32::try_from(bytes).ok()?, &raw mut view) };
        (answer == 1).then_some(Buffer { view, _pool: PhantomData })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: all buffers are back: those of the process borrow the pool, and the drivers were stopped before.
        unsafe { fl_dpdk_pool_free(self.pool) };
    }
}

/// A buffer with a packet, owned by the process. Freed when it is dropped.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Buffer<'a> {
    view: View,
    _pool: PhantomData<&'a Pool>,
}

impl Buffer<'_> {
    const EMPTY: View =
        View { mbuf: std::ptr::null_mut(), buffer: std::ptr::null_mut(), buffer_bytes: 0, start: 0, end: 0 };

    /// The whole buffer, and start and end of its packet.
    pub(crate) fn parts_mut(&mut self) -> (&mut [u8], usize, usize) {
        let View { buffer, buffer_bytes, start, end, .. } = self.view;
        // SAFETY: the memory of a buffer that the process owns; the private area in front belongs to it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, buffer_bytes as usize) };
        (bytes, start as usize, end as usize)
    }

    /// Sets start and end of the packet; returns false if the driver cannot send it: the buffer has no room for it
    /// outside the private area, or it is longer than a driver can describe.
    pub(crate) fn set_bounds(&mut self, start: usize, end: usize) -> bool {
        // SAFETY: takes nothing.
        let room = self.view.buffer_bytes as usize - unsafe { fl_dpdk_room() } as usize;
        if start > end || end > self.view.buffer_bytes as usize || end - start > room.min(u16::MAX.into()) {
            return false;
        }
        (self.view.start, self.view.end) = (start as u32, end as u32);
        true
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the process owns the buffer, and this is its only handle.
        unsafe { fl_dpdk_free(self.view.mbuf) };
    }
}

/// A started port.
#[derive(Debug)]
pub(crate) struct Line {
    port: u16,
}

impl Line {
    /// Starts the driver of a device, given as for `--vdev` or by PCI address, with a queue in each direction.
    pub(crate) fn start(devargs: &str, entries: u16, pool: &Pool) -> Result<Line, String> {
        let name = devargs.split(',').next().unwrap_or_default();
        let (devargs, name) = (zero_terminated(devargs)?, zero_terminated(name)?);
        // SAFETY: zero-terminated texts, which are copied.
        let port = unsafe { fl_dpdk_probe(devargs.as_ptr(), name.as_ptr()) };
        let Ok(port) = u16::try_from(port) else { return Err(message(port)) };
        let line = Line { port };
        // SAFETY: a port that was found, and a live pool that outlives it: the device drops its lines first.
        let answer = unsafe { fl_dpdk_start(port, entries, entries, pool.pool) };
        if answer < 0 { Err(message(answer)) } else { Ok(line) }
    }

    /// Receives at most `count` packets; adds those that were split over several buffers, and dropped, to `split`.
    pub(crate) fn receive<'a>(&self, _pool: &'a Pool, count: u16, split: &mut u64) -> Vec<Buffer<'a>> {
        let mut buffers: Vec<Buffer<'a>> = Vec::with_capacity(count.into());
        // SAFETY: room for `count` views, which `Buffer` is; the driver hands over as many buffers as it says.
        unsafe {
            let received = fl_dpdk_receive(self.port, buffers.as_mut_ptr().cast(), count, split);
            buffers.set_len(received as usize);
        }
        buffers
    }

    /// Sends packets in order; returns the number accepted. The others are freed.
    pub(crate) fn send(&self, mut buffers: Vec<Buffer<'_>>) -> usize {
        let mut sent = 0;
        // Drivers may accept a part at a time.
        while sent < buffers.len() {
            let rest = &mut buffers[sent..];
            let count = rest.len().min(u16::MAX.into()) as u16;
            // SAFETY: as many views; those accepted belong to the driver from now on.
            let accepted = unsafe { fl_dpdk_send(self.port, rest.as_mut_ptr().cast(), count) };
            if accepted == 0 {
                break;
            }
            sent += accepted as usize;
        }
        buffers.drain(..sent).for_each(std::mem::forget);
        sent
    }

    /// The packets dropped at reception and at transmission.
    pub(crate) fn counters(&self) -> (u64, u64) {
        let mut counters = Counters::default();
        // SAFETY: a mutable place.
        unsafe { fl_dpdk_counters(self.port, &raw mut counters) };
        (counters.rx_missed, counters.tx_errors)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // SAFETY: the port was started by us, and this is its only handle.
        unsafe { fl_dpdk_stop(self.port) };
    }
}
